"""Arrays from outside: checked as they come in, written whole or not at all, never unpickled."""

import contextlib
import copy
import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._provenance import Provenance

# what stands for an array: values, or the path of a .npy file
Source = ArrayLike | str | os.PathLike[str]

_ROWS_AT_ONCE = 1024


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
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def as_numbers(values: ArrayLike, name: str, ndim: int) -> np.ndarray:
    """An array of numbers; what is not in single precision becomes float64."""
    try:
        array = np.asanyarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must be an array, got rows of different lengths instead."
        ) from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of numbers, got dtype {array.dtype} instead.")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {array.shape} instead.")
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def as_labels(values: ArrayLike, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None]:
    """The labels as booleans of the wanted shape, and where they are unknown (-1), if anywhere."""
    array = as_numbers(values, "admissible", len(shape))
    if array.shape != shape:
        raise ValueError(f"admissible must have shape {shape}, got {array.shape} instead.")
    strange = array[~np.isin(array, (0, 1, -1))]
    if strange.size:
        raise ValueError(f"admissible must hold booleans or 0 and 1, got {strange[0]} instead.")
    unknown = array == -1
    return array == 1, unknown if unknown.any() else None


def as_integers(
    values: ArrayLike, name: str, shape: tuple[int, ...], dtype: type[np.integer[Any]]
) -> np.ndarray:
    """Integers of the wanted shape."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.shape != shape:
        raise ValueError(
            f"{name} must be integers of shape {shape}, got dtype {array.dtype} of shape "
            f"{array.shape} instead."
        )
    return array.astype(dtype, copy=False)


def refuse_nan(quality: np.ndarray, similarity: np.ndarray) -> None:
    """Refuse NaN in the qualities and in the similarities to earlier draws."""
    if len(places := np.argwhere(np.isnan(quality))):
        i, j = places[0]
        raise ValueError(f"quality must not be NaN, but is for prompt {i}, draw {j}.")
    # in blocks, as a mapped array may be larger than memory
    for start in range(0, len(similarity), _ROWS_AT_ONCE):
        missing = np.tril(np.isnan(similarity[start : start + _ROWS_AT_ONCE]), -1)
        if len(places := np.argwhere(missing)):
            i, later, earlier = places[0]
            raise ValueError(
                f"similarity must not be NaN, but is for prompt {start + i}, draws {later} and "
                f"{earlier}."
            )


def write_arrays(
    path: str | os.PathLike[str], *, compressed: bool = False, **arrays: object
) -> None:
    """Write a .npz file; an existing one is replaced once the new one is complete."""
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]


@contextlib.contextmanager
def naming(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Make whatever goes wrong over the bytes of a file a ValueError that names it."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    # bytes of unknown origin: the zip, deflate and npy readers raise all sorts of errors
    except Exception as error:
        raise ValueError(f"{os.fspath(path)!r} {what}: {error}") from error


def read_arrays(
    path: str | os.PathLike[str], names: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """The named members of a .npz file, and those of the optional ones that it has."""
    with open(path, "rb") as file:
        # NumPy takes a file of anything else for a pickle
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not a .npz archive.")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            wanted = [*names, *(name for name in optional if name in archive.files)]
            return {name: np.asarray(archive[name]) for name in wanted}


class SavedArrays:
    """Arrays of the draws of prompts, which a .npz file keeps."""

    _members: ClassVar[tuple[str, ...]]
    _optional: ClassVar[tuple[str, ...]]

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

    def with_labels(self, labels: ArrayLike) -> Self:
        """The same draws, or components, with other labels: booleans or 1, 0 and -1 for unknown.

        The other arrays are shared; `provenance.admission` is None, not known.
        """
        data = copy.copy(self)
        data.admissible, data.unknown = as_labels(labels, self.admissible.shape)
        data.provenance = replace(self.provenance, admission=None)
        return data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to a .npz file, without pickle, whole or not at all.

        By a digest of the arrays, ``load`` notices a file that was changed.
        """
        arrays = {name: getattr(self, name) for name in (*self._members, *self._optional)}
        if self.unknown is not None:
            arrays["admissible"] = self.labels
        arrays["format"] = np.array(f"sklearn_clm.{type(self).__name__}/2")
        arrays["provenance"] = np.array(json.dumps(vars(self.provenance)))
        arrays = {name: array for name, array in arrays.items() if array is not None}
        write_arrays(path, **arrays, digest=digest_of_arrays(arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file written by :meth:`save`; nothing in it is unpickled, so it runs no code."""
        with naming(path, f"is not an intact file written by {cls.__name__}.save"):
            members = ("format", "provenance", "digest", *cls._members)
            arrays = read_arrays(path, members, cls._optional)
            is_intact = str(arrays.pop("digest")) == digest_of_arrays(arrays)
            format_ = str(arrays.pop("format"))
            if format_ != f"sklearn_clm.{cls.__name__}/2":
                raise ValueError(f"it was written in the format {format_!r}.")
            arrays["provenance"] = Provenance(**json.loads(str(arrays["provenance"])))
            data = cls(**arrays)
            if not is_intact:
                raise ValueError("its arrays were changed since it was written.")
            return data


def digest_of_arrays(arrays: Mapping[str, Any]) -> str:
    """A digest of named arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.atleast_1d(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def refuse_unknown(
    data: SavedArrays, each: str, advice: str = "; lazy judging asks for those that a test needs."
) -> None:
    """Refuse data with unknown labels."""
    if data.unknown is not None:
        raise ValueError(
            f"data must have a label for each {each}, got {int(data.unknown.sum())} unknown labels "
            f"instead{advice}"
        )


def read_npy(source: Source, name: str) -> ArrayLike:
    """The array of a .npy file; what is no path is returned as it is."""
    if not isinstance(source, (str, os.PathLike)):
        return source
    with naming(source, f"must be an intact .npy file of numbers for {name}"):
        array: ArrayLike = np.load(source, allow_pickle=False)
        return array
