"""The three arrays of calibration data, as they are held, or an error that says what is wrong."""

from typing import Any

import numpy as np

from sklearn_clm.calibration._memory_maps import release_pages

__all__ = ["as_boolean", "as_float", "refuse_nan"]

_CHUNK_BYTES = 64 * 2**20


def as_float(values: Any, name: str, ndim: int, *, keep_single: bool) -> np.ndarray:
    array = _as_array(values, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of numbers, got dtype {array.dtype}.")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {array.shape}.")
    if array.dtype == np.float64 or (keep_single and array.dtype == np.float32):
        return array
    single = keep_single and array.dtype == np.float16
    return array.astype(np.float32 if single else np.float64)


def as_boolean(values: Any, shape: tuple[int, int]) -> np.ndarray:
    array = _as_array(values, "admissible")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"admissible must hold booleans or 0 and 1, got dtype {array.dtype}.")
    if array.shape != shape:
        raise ValueError(
            f"admissible must have shape {shape} like quality, got shape {array.shape}."
        )
    if array.dtype.kind != "b" and not np.all((array == 0) | (array == 1)):
        strange = array[(array != 0) & (array != 1)][0]
        raise ValueError(f"admissible must hold booleans or 0 and 1, got {strange!r}.")
    return array.astype(bool)


def _as_array(values: Any, name: str) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must be an array of numbers, the same number of draws for every prompt; got "
            "rows of different lengths."
        ) from error


def refuse_nan(quality: np.ndarray, similarity: np.ndarray) -> None:
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
