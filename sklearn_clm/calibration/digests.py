"""Digests of rows: numbers that say what a row holds."""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, so that its multiples differ


def row_digests(array: np.ndarray) -> np.ndarray:
    """Digests of the rows of numbers, uint64 of shape (n,)."""
    k = array.shape[1]
    numbers = np.ascontiguousarray(array + 0.0, dtype=np.float64)  # -0.0 becomes 0.0
    words = numbers.view(np.uint64)
    # odd factors of its own for each column, so that an exchange of columns is noticed
    rng = np.random.default_rng(k)
    factors, factors_of_upper_half = rng.integers(2**64 - 1, size=(2, k), dtype=np.uint64) | 1
    # a product modulo 2**64 loses upper bits: the upper half is multiplied once more, by itself
    upper_half = words >> np.uint64(32)
    mixed = (words * factors) ^ (upper_half * factors_of_upper_half)
    mixed ^= mixed >> np.uint64(29)
    # a sum modulo 2**64 does not depend on the order in which columns are added
    return mixed.sum(axis=1, dtype=np.uint64)


def next_digests(before: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Digests of rows that go on with an array."""
    return before * _GOLDEN + row_digests(array)


def repeated(digests: np.ndarray) -> np.ndarray:
    """Which digests occur more than once, bool of shape (n,)."""
    _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return np.asarray(counts[inverse] > 1)


def numbered(digests: np.ndarray, ties: np.ndarray | None = None) -> np.ndarray:
    """Digests that all differ: copies are counted, by `ties`."""
    order = np.lexsort((digests,) if ties is None else (ties, digests))
    ordered = digests[order]
    first_copy = np.searchsorted(ordered, ordered, side="left")
    number_of_copy = np.arange(len(ordered)) - first_copy
    different = np.empty_like(digests)
    different[order] = ordered + number_of_copy.astype(np.uint64) * _GOLDEN
    return different
