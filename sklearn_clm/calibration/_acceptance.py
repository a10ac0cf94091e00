"""Which draws are accepted, for many thresholds at once, as bit sets.

A set of draws is an unsigned integer whose *top* bit is draw 0. Two things follow. Sorted sets are
in lexicographic order, so that sets that start alike lie side by side. And in the recursion below
every earlier draw is worth more than the draw at hand, which makes one `minimum` out of "is there
any conflict" and "then this draw's bit".
"""

import numpy as np

__all__ = ["accepted_sets", "conflict_sets", "n_words", "quality_sets", "word_type"]


def word_type(k_max: int) -> np.dtype:
    """Smallest unsigned integer with a bit for each draw; 64 bits where none has enough."""
    for bits in (8, 16, 32):
        if k_max <= bits:
            return np.dtype(f"u{bits // 8}")
    return np.dtype(np.uint64)


def n_words(k_max: int) -> int:
    """Number of integers that a set of draws takes."""
    return -(-k_max // 64)


def _bit(draw: int, dtype: np.dtype) -> tuple[int, np.unsignedinteger]:
    """Word and value of a draw's bit."""
    width = 8 * dtype.itemsize
    word, position = divmod(draw, width)
    return word, dtype.type(1 << (width - 1 - position))


def quality_sets(quality: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Draws of sufficient quality: (n, K) and ascending (B,) give words (W, B, n)."""
    n, k = quality.shape
    dtype = word_type(k)
    sets = np.zeros((n_words(k), len(thresholds), n), dtype=dtype)
    for draw in range(k):
        word, bit = _bit(draw, dtype)
        sets[word] |= (quality[:, draw] >= thresholds[:, np.newaxis]) * bit
    return sets


def conflict_sets(similarity: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Earlier draws that are too similar: (n, K, K) and ascending (A,) give (A, K, W, n)."""
    n, k, _ = similarity.shape
    dtype = word_type(k)
    n_thresholds = len(thresholds)
    later, earlier = np.tril_indices(k, -1)
    pairs = np.ascontiguousarray(similarity.reshape(n, k * k)[:, later * k + earlier].T)
    # a value that exceeds exactly r of the ascending thresholds is in conflict below position r:
    # so note each pair once, at its r, and let a running OR carry it downwards
    exceeded = count_below(pairs, thresholds)
    sets = np.zeros((n_thresholds + 1, k, n_words(k), n), dtype=dtype)
    flat = sets.reshape(-1)
    stride = k * n_words(k) * n
    column = np.arange(n)
    for draw in range(k - 1):
        word, bit = _bit(draw, dtype)
        rows = np.flatnonzero(earlier == draw)
        position = (later[rows] * n_words(k) + word)[:, np.newaxis] * n + column
        flat[exceeded[rows] * stride + position] |= bit
    for r in range(n_thresholds - 1, 0, -1):
        sets[r] |= sets[r + 1]
    return sets[1:]


def count_below(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """For each value, the number of ascending thresholds below it, as intp."""
    return np.searchsorted(thresholds, values.astype(np.float64), side="left")


def accepted_sets(quality: np.ndarray, conflicts: np.ndarray) -> np.ndarray:
    """Algorithm 1 without its stop, for one l1: (W, B, n) and (K, W, n) give (W, B, n)."""
    accepted = quality.copy()
    k = len(conflicts)
    for draw in range(1, k):
        word, bit = _bit(draw, accepted.dtype)
        rejected = np.minimum(accepted[word] & conflicts[draw, word], bit)
        for w in range(word):
            rejected |= np.minimum(accepted[w] & conflicts[draw, w], 1) * bit
        accepted[word] |= rejected
        accepted[word] ^= rejected
    return accepted
