"""Arrays read from disk as they are needed, without filling memory with what was read before."""

import mmap

import numpy as np

__all__ = ["copy_rows", "release_pages"]

_ROWS_AT_ONCE = 1024


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
    """A copy of some rows, in memory; out of a memory map without filling memory with the rest."""
    if not isinstance(array, np.memmap):
        return array[positions]
    rows = np.empty((len(positions), *array.shape[1:]), dtype=array.dtype)
    for start in range(0, len(positions), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        rows[part] = array[positions[part]]
        release_pages(array)
    return rows
