"""Arrays from outside: checked as they come in, written whole or not at all, never unpickled.

Memory-mapped arrays are read as they are needed, without filling memory with what was read before.
"""

import contextlib
import math
import mmap
import os
import secrets
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._provenance import Provenance

# what stands for an array: values, or the path of a .npy file
Source = ArrayLike | str | os.PathLike[str]

_NPY_BEGINS = b"\x93NUMPY"
_ROWS_AT_ONCE = 1024
_CHUNK_BYTES = 64 * 2**20


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Name of a file to write, which takes the place of the one at `path` once it is complete.

    A symlink is followed. What is no file, such as a device or a pipe, is written to itself.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        yield os.fspath(path)
        return
    target = os.path.realpath(path)
    unfinished = f"{target}.{secrets.token_hex(8)}.partial"
    try:
        # not by tempfile, whose files nobody else may read
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    try:
        yield unfinished
        with open(unfinished, "r+b") as file:
            os.fsync(file.fileno())  # else a crash could leave the new name with old blocks
        os.replace(unfinished, target)
    except BaseException:
        _remove(unfinished)
        raise


def release_pages(array: np.ndarray) -> None:
    """Let go of the memory that reading a memory-mapped array has filled; others are left alone.

    The pages stay in the system's cache, but count no longer as memory of this process. Private
    maps (mode "c") are left alone, too: their changes exist nowhere else.
    """
    if isinstance(array, np.memmap) and array.mode in ("r", "r+"):
        mapping = getattr(array, "_mmap", None)
        if mapping is not None and hasattr(mapping, "madvise"):
            mapping.madvise(mmap.MADV_DONTNEED)


def copy_rows(array: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """A copy of some rows; out of a memory map without filling memory with the rest.

    More than 64 MiB of a memory map are copied to a file beside it, which goes with the copy.
    """
    if not isinstance(array, np.memmap):
        return array[positions]
    shape = (len(positions), *array.shape[1:])
    if len(positions) * array[:1].nbytes <= _CHUNK_BYTES:
        rows = np.empty(shape, dtype=array.dtype)
    else:
        rows = _temporary_map(array, shape)
    for start in range(0, len(positions), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        rows[part] = array[positions[part]]
        release_pages(array)
        if isinstance(rows, np.memmap):
            release_pages(rows)
    return rows


@contextlib.contextmanager
def mapped_array(
    path: str | os.PathLike[str] | None, shape: tuple[int, ...]
) -> Iterator[np.ndarray | None]:
    """A mapped array of float64 in a .npy file, to be filled; None where there is no path.

    The file is replaced once it is filled.
    """
    if path is None:
        yield None
        return
    with replacing(path) as unfinished:
        whole = np.lib.format.open_memmap(unfinished, "w+", np.float64, shape)
        yield whole
        whole.flush()
        del whole


def _temporary_map(array: np.memmap, shape: tuple[int, ...]) -> np.memmap:
    """A map of a new file, on the same disk where it can be written to."""
    folder = None if array.filename is None else os.path.dirname(os.path.abspath(array.filename))
    if folder is not None and not os.access(folder, os.W_OK):
        folder = None
    # it has a name as long as it is in use, so that worker processes can map it as well
    handle, name = tempfile.mkstemp(".partial", "rows-", folder)
    os.ftruncate(handle, math.prod(shape) * array.dtype.itemsize)
    os.close(handle)
    rows = np.memmap(name, array.dtype, "r+", shape=shape)
    weakref.finalize(getattr(rows, "_mmap", rows), _remove, name)  # what all views hold
    return rows


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def as_float(array: np.ndarray, name: str, ndim: int, *, keep_single: bool) -> np.ndarray:
    """`array` as float64, or as it is where single precision is to be kept."""
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of numbers, got dtype {array.dtype}.")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {array.shape}.")
    if array.dtype == np.float64 or (keep_single and array.dtype == np.float32):
        return array
    single = keep_single and array.dtype == np.float16
    return array.astype(np.float32 if single else np.float64)


def as_labels(values: ArrayLike, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None]:
    """The labels as booleans of the wanted shape, and where they are unknown (-1), if anywhere."""
    array = as_array(values, "admissible")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"admissible must hold booleans or 0 and 1, got dtype {array.dtype}.")
    if array.shape != shape:
        raise ValueError(
            f"admissible must have shape {shape}, one label for each score, got {array.shape} "
            "instead."
        )
    if array.dtype.kind == "b":
        return array.astype(bool), None
    unknown = array == -1
    known = (array == 0) | (array == 1)
    if not np.all(known | unknown):
        strange = array[~(known | unknown)][0]
        raise ValueError(f"admissible must hold booleans or 0 and 1, got {strange!r}.")
    return array == 1, unknown if unknown.any() else None


def as_array(values: ArrayLike, name: str) -> np.ndarray:
    """`values` as an array; rows of different lengths are refused."""
    try:
        return np.asanyarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must be an array with as many draws for every prompt, got rows of different "
            "lengths instead."
        ) from error


def refuse_nan(quality: np.ndarray, similarity: np.ndarray) -> None:
    """Refuse NaN in the qualities and in the similarities to earlier draws."""
    if np.isnan(quality).any():
        i, j = np.argwhere(np.isnan(quality))[0]
        raise ValueError(f"quality must not be NaN, but is for prompt {i}, draw {j}.")
    n, k, _ = similarity.shape
    later, earlier = np.tril_indices(k, -1)
    n_rows = max(1, _CHUNK_BYTES // (k * k * 8))
    for start in range(0, n, n_rows):
        missing = np.isnan(similarity[start : start + n_rows])
        # the whole chunk first: fancy indexing costs more than the test itself
        if missing.any() and missing[:, later, earlier].any():
            i, pair = np.argwhere(missing[:, later, earlier])[0]
            raise ValueError(
                f"similarity must not be NaN, but is for prompt {start + i}, draws "
                f"{later[pair]} and {earlier[pair]}."
            )
        release_pages(similarity)


def write_arrays(
    path: str | os.PathLike[str], *, compressed: bool = False, **arrays: object
) -> None:
    """Write a .npz file; an existing one is replaced once the new one is complete."""
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]


@contextlib.contextmanager
def naming(path: str | os.PathLike[str], what: str, argument: str = "") -> Iterator[None]:
    """Make whatever goes wrong over the bytes of a file a ValueError that names it."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    # bytes of unknown origin: the zip, deflate and npy readers raise all sorts of errors
    except Exception as error:
        prefix = f"{argument}: " if argument else ""
        raise ValueError(f"{prefix}{os.fspath(path)!r} {what}: {error}") from error


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], writer: str) -> Iterator[IO[bytes]]:
    """A file to read, which a writer of ours has written."""
    with open(path, "rb") as file, naming(path, f"is not an intact file written by {writer}"):
        yield file


def read_arrays(
    file: IO[bytes], names: Sequence[str], format_: str | None = None, optional: Sequence[str] = ()
) -> dict[str, Any]:
    """The named members of an open .npz file, and those of the optional ones that it has.

    With `format_`, the member ``format`` must be that text and a version: 1, or 2 that adds the
    member ``provenance``.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("it is not a .npz archive.")
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        wanted = [*names]
        if format_ is not None:
            version = str(archive["format"]) if "format" in archive.files else "no format"
            if version not in (f"{format_}1", f"{format_}2"):
                raise ValueError(f"it was not written in the format {format_}1 or {format_}2.")
            wanted += [name for name in optional if name in archive.files]
            wanted += ["provenance"] * version.endswith("2")
        missing = [name for name in wanted if name not in archive.files]
        if missing:
            raise ValueError(f"it has no member {', '.join(missing)}.")
        arrays: dict[str, Any] = {name: np.asarray(archive[name]) for name in wanted}
    if "provenance" in arrays:
        arrays["provenance"] = Provenance.from_array(arrays["provenance"])
    return arrays


class SavedArrays:
    """Arrays of the draws of prompts, which a .npz file keeps."""

    _members: ClassVar[tuple[str, ...]]
    _optional: ClassVar[tuple[str, ...]] = ()

    provenance: Provenance
    admissible: np.ndarray
    unknown: np.ndarray | None

    @property
    def labels(self) -> np.ndarray:
        """1, 0, or -1 where unknown: int8 of the shape of `admissible`."""
        labels = self.admissible.astype(np.int8)
        if self.unknown is not None:
            labels[self.unknown] = -1
        return labels

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to a .npz file, without pickle.

        Parameters
        ----------
        path : str or path
            Name of the file, used as given. An existing file is replaced only once the new one is
            complete.
        """
        arrays = {name: getattr(self, name) for name in (*self._members, *self._optional)}
        if self.unknown is not None:
            arrays["admissible"] = self.labels
        arrays["format"] = np.array(f"sklearn_clm.{type(self).__name__}/2")
        arrays["provenance"] = self.provenance.to_array()
        write_arrays(path, **{name: array for name, array in arrays.items() if array is not None})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file written by :meth:`save`.

        Nothing in the file is ever unpickled, so a file from elsewhere cannot run code.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        object of this class
            The data, checked like any other.

        Raises
        ------
        ValueError
            If it is not such a file, or is damaged.
        OSError
            If it cannot be opened.
        """
        format_ = f"sklearn_clm.{cls.__name__}/"
        with opened(path, f"{cls.__name__}.save") as file:
            return cls(**read_arrays(file, cls._members, format_, cls._optional))


def refuse_unknown(
    data: SavedArrays, each: str, advice: str = "; lazy judging asks for those that a test needs."
) -> None:
    """Refuse data with unknown labels."""
    if data.unknown is not None:
        raise ValueError(
            f"data must have a label for each {each}, got {int(data.unknown.sum())} unknown labels "
            f"instead{advice}"
        )


def read_npy(source: Source, name: str, *, mmap: bool = False) -> ArrayLike:
    """The array of a .npy file; what is no path is returned as it is."""
    if not isinstance(source, (str, os.PathLike)):
        return source
    with naming(source, "is not an intact .npy file of numbers", name):
        with open(source, "rb") as file:
            # NumPy takes a file of anything else for a pickle
            if file.read(len(_NPY_BEGINS)) != _NPY_BEGINS and not zipfile.is_zipfile(file):
                raise ValueError("it does not begin as one does; write it with numpy.save.")
        array = np.load(source, mmap_mode="r" if mmap else None, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("it is an archive.")
    return array
