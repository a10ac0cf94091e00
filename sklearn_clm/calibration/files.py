"""Files: written whole or not at all, read without code."""

import contextlib
import os
import secrets
from collections.abc import Iterator

import numpy as np
from numpy.lib.format import read_array
from numpy.typing import ArrayLike

# an array: its values, or the path of a .npy file
Source = ArrayLike | str | os.PathLike[str]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """A temporary file that replaces `path` once it is complete.

    A symlink is followed. What is no file, such as a device or a pipe, is written to itself.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        yield os.fspath(path)
        return
    target = os.path.realpath(path)
    unfinished = f"{target}.{secrets.token_hex(8)}.partial"
    open(unfinished, "x").close()  # tempfile would make it private to this user
    try:
        yield unfinished
        with open(unfinished, "r+b") as file:
            os.fsync(file.fileno())  # otherwise a crash could leave an incomplete file
        os.replace(unfinished, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


@contextlib.contextmanager
def expecting_intact(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn errors about a file's bytes into a named ValueError."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    # the zip, deflate and npy readers raise many types of errors on foreign bytes
    except Exception as error:
        raise ValueError(f"{os.fspath(path)!r} {what}: {error}") from error


def read_npy(source: Source, name: str) -> ArrayLike:
    """The array of a .npy file, or the given values."""
    if not isinstance(source, (str, os.PathLike)):
        return source
    what = f"must be an intact .npy file of numbers for {name}"
    with expecting_intact(source, what), open(source, "rb") as file:
        return np.asarray(read_array(file, allow_pickle=False))
