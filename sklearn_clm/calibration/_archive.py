"""Arrays on disk: written whole or not at all, and read without ever unpickling."""

import contextlib
import os
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from sklearn_clm._replacing import replacing

__all__ = ["opened", "read_arrays", "read_npy", "write_arrays"]


def write_arrays(
    path: str | os.PathLike[str], *, compressed: bool = False, **arrays: object
) -> None:
    """Write a .npz file; an existing one is replaced once the new one is complete."""
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], writer: str) -> Iterator[IO[bytes]]:
    """A file to read; whatever goes wrong over its bytes is a ValueError that names it."""
    name = os.fspath(path)
    with open(name, "rb") as file:
        try:
            yield file
        # bytes of unknown origin: the zip, deflate and npy readers raise all sorts of errors
        except Exception as error:
            raise ValueError(
                f"{name!r} is not an intact file written by {writer}: {error}"
            ) from error


def read_arrays(
    file: IO[bytes], names: Sequence[str], *, written_as: str | None = None
) -> dict[str, np.ndarray]:
    """The named members of an open .npz file, whose member ``format`` is `written_as`."""
    if not zipfile.is_zipfile(file):
        raise ValueError("it is not a .npz archive.")
    file.seek(0)
    wanted = [*names] if written_as is None else ["format", *names]
    with np.load(file, allow_pickle=False) as archive:
        missing = [name for name in wanted if name not in archive.files]
        if missing:
            raise ValueError(f"it has no member {', '.join(missing)}.")
        if written_as is not None and str(archive["format"]) != written_as:
            raise ValueError(f"it was not written in the format {written_as}.")
        return {name: np.asarray(archive[name]) for name in names}


def read_npy(source: Any, name: str, *, mmap: bool = False) -> Any:
    if not isinstance(source, (str, os.PathLike)):
        return source
    try:
        array = np.load(source, mmap_mode="r" if mmap else None, allow_pickle=False)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(
            f"{name}: {os.fspath(source)!r} is not an intact .npy file of numbers: {error}"
        ) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{name}: {os.fspath(source)!r} is an archive, wanted a .npy file.")
    return array
