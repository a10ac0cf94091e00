"""Archives of arrays on disk: written whole or not at all, and read without ever unpickling."""

import contextlib
import os
import zipfile
from collections.abc import Sequence
from typing import IO

import numpy as np

__all__ = ["read_arrays", "write_arrays"]


def write_arrays(
    path: str | os.PathLike[str], *, compressed: bool = False, **arrays: object
) -> None:
    """Write a .npz file; an existing one is replaced once the new one is complete."""
    target = os.path.abspath(os.fspath(path))
    temporary = f"{target}.{os.getpid()}.partial"
    try:
        with open(temporary, "wb") as file:
            (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_arrays(file: IO[bytes], names: Sequence[str]) -> dict[str, np.ndarray]:
    """The named members of an open .npz file.

    Bytes of unknown origin make the zip, deflate and npy readers raise all sorts of errors, which
    the caller translates.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("it is not a .npz archive.")
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        missing = [name for name in names if name not in archive.files]
        if missing:
            raise ValueError(f"it has no member {', '.join(missing)}.")
        return {name: np.asarray(archive[name]) for name in names}
