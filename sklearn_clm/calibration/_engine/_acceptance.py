"""Which draws are accepted, for many pairs of thresholds at once, and the distinct sets.

A set of draws is an unsigned integer whose *top* bit is draw 0 (several integers of 64 bits where
K > 64). Two things follow. Sorted sets are in lexicographic order, so that sets that start alike
lie side by side. And every earlier draw is worth more than the draw at hand, so that one `minimum`
turns "which conflicts are there" into "then this draw's bit".
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# up to here, comparing with one threshold after the other beats a binary search
_FEW_THRESHOLDS = 64


class Pairs(NamedTuple):
    """Pairs (l1[a], l2[b]) of thresholds; `grid` if they are all pairs, b by b."""

    a: np.ndarray
    b: np.ndarray
    grid: bool

    @classmethod
    def of_grid(cls, n_l1: int, n_l2: int) -> "Pairs":
        return cls(np.tile(np.arange(n_l1), n_l2), np.repeat(np.arange(n_l2), n_l1), True)

    def __len__(self) -> int:
        return len(self.a)


def set_bits(k: int) -> Iterator[tuple[int, np.unsignedinteger]]:
    """For each draw, the word that holds its bit, and the bit."""
    dtype = _word_type(k)
    width = 8 * dtype.itemsize
    for draw in range(k):
        word, position = divmod(draw, width)
        yield word, dtype.type(1 << (width - 1 - position))


def _word_type(k: int) -> np.dtype:
    """Smallest unsigned integer with a bit for each draw; 64 bits where none has enough."""
    return np.dtype(next((f"u{width // 8}" for width in (8, 16, 32) if k <= width), "u8"))


def count_reached(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many of the ascending thresholds each value reaches (>=); NaN reaches none."""
    dtype = np.min_scalar_type(len(thresholds))
    if len(thresholds) > _FEW_THRESHOLDS:
        counts = np.searchsorted(thresholds, values, side="right").astype(dtype)
        counts[np.isnan(values)] = 0
        return counts
    counts = np.zeros(values.shape, dtype=dtype)
    for threshold in thresholds:
        counts += values >= threshold
    return counts


def _count_exceeded(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many of the ascending thresholds each value exceeds (>)."""
    if len(thresholds) > _FEW_THRESHOLDS:
        return np.searchsorted(thresholds, values.astype(np.float64), side="left")
    rounded = thresholds
    if values.dtype != thresholds.dtype:
        # float32 values exceed a threshold if and only if they exceed the next float32 below it
        with np.errstate(over="ignore"):
            rounded = thresholds.astype(values.dtype)
        too_high = rounded > thresholds
        rounded[too_high] = np.nextafter(rounded[too_high], values.dtype.type(-np.inf))
    counts = np.zeros(values.shape, dtype=np.uint8)
    for threshold in rounded:
        counts += values > threshold
    return counts


def quality_sets(quality: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Draws of sufficient quality: (n, K) and ascending (B,) give words (W, B, n)."""
    n, k = quality.shape
    sets = np.zeros((-(-k // 64), len(thresholds), n), dtype=_word_type(k))
    for draw, (word, bit) in enumerate(set_bits(k)):
        sets[word] |= (quality[:, draw] >= thresholds[:, np.newaxis]) * bit
    return sets


def conflict_sets(similarity: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Earlier draws that are too similar: (n, K, K) and ascending (A,) give (K, W, A, n)."""
    n, k, _ = similarity.shape
    n_thresholds = len(thresholds)
    earlier, later = np.triu_indices(k, 1)
    pairs = np.ascontiguousarray(similarity.reshape(n, k * k)[:, later * k + earlier].T)
    # a pair that exceeds exactly r thresholds is in conflict below position r: so note each pair
    # once, at its r, and let a running OR carry it downwards
    sets = np.zeros((k, -(-k // 64), n_thresholds + 1, n), dtype=_word_type(k))
    stride_draw, stride_word, stride_r = sets[0].size, sets[0, 0].size, n
    position = _count_exceeded(pairs, thresholds).astype(np.intp)
    position *= stride_r
    position += (later * stride_draw)[:, np.newaxis]
    position += np.arange(n)
    flat = sets.reshape(-1)
    end = 0
    for draw, (word, bit) in enumerate(set_bits(k)):
        start, end = end, end + k - 1 - draw
        flat[position[start:end] + word * stride_word] |= bit
    for r in range(n_thresholds - 1, 0, -1):
        sets[:, :, r] |= sets[:, :, r + 1]
    return sets[:, :, 1:]


def accepted_sets(quality: np.ndarray, conflicts: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Algorithm 1 without its stop: (W, B, n) and (K, W, A, n) give words (W, P, n)."""
    k, n_words, _, n = conflicts.shape
    accepted = np.empty((n_words, len(pairs), n), dtype=quality.dtype)
    accepted[0] = _within_first_word(quality[0], conflicts[:64, 0], pairs)
    bits = list(set_bits(k))
    for word in range(1, n_words):
        accepted[word] = quality[word][pairs.b]
        for draw in range(64 * word, min(64 * (word + 1), k)):
            bit = bits[draw][1]
            rejected = np.zeros(accepted[word].shape, dtype=quality.dtype)
            for w in range(word + 1):
                conflict = accepted[w] & conflicts[draw, w][pairs.a]
                rejected |= np.where(conflict != 0, bit, 0)
            accepted[word] &= ~rejected
    return accepted


def _within_first_word(quality: np.ndarray, conflicts: np.ndarray, pairs: Pairs) -> np.ndarray:
    """The same for the first word: (B, n) and (K, A, n) give (P, n)."""
    k, _, n = conflicts.shape
    final_width = 8 * quality.dtype.itemsize
    # with all pairs in order, one row of conflicts serves each quality threshold
    shape = (quality.shape[0], -1) if pairs.grid else (len(pairs), n)
    accepted = np.zeros((len(pairs), n), dtype=np.uint8)
    # time goes with bytes, and the first 8 draws need one byte only: let the sets grow with them
    for width in (8, 16, 32, 64):
        if width > final_width:
            break
        dtype = np.dtype(f"u{width // 8}")
        begin = 0 if width == 8 else width // 2
        accepted = accepted.astype(dtype)
        if begin:
            accepted <<= dtype.type(begin)
        added = quality >> quality.dtype.type(final_width - width)
        added &= quality.dtype.type((1 << (width - begin)) - 1)
        accepted |= added.astype(dtype)[pairs.b]
        rejected = np.empty((len(pairs), n), dtype=dtype)
        # array with array is the fast form of `minimum`, array with scalar is not
        bit = np.empty(rejected.reshape(shape).shape[1], dtype=dtype)
        for draw in range(max(begin, 1), min(width, k)):
            conflict = conflicts[draw] >> quality.dtype.type(final_width - width)
            conflict = conflict.astype(dtype, copy=False)
            if not pairs.grid:
                conflict = conflict[pairs.a]
            bit.fill(1 << (width - 1 - draw))
            np.bitwise_and(
                accepted.reshape(shape),
                conflict.reshape(-1 if pairs.grid else shape),
                out=rejected.reshape(shape),
            )
            np.minimum(rejected.reshape(shape), bit, out=rejected.reshape(shape))
            np.bitwise_or(accepted, rejected, out=accepted)
            np.bitwise_xor(accepted, rejected, out=accepted)
    return accepted


class DistinctSets(NamedTuple):
    """U distinct sets, prompt by prompt, and the pairs of thresholds that lead to each.

    `accepted` is (K, U); `prompt` (U,) is ascending; the pairs of set u are
    ``pairs[begin[u]:begin[u + 1]]``.
    """

    accepted: np.ndarray
    prompt: np.ndarray
    pairs: np.ndarray
    begin: np.ndarray

    def blocks(self, size: int) -> Iterator["DistinctSets"]:
        """The same in blocks of `size` sets."""
        for start in range(0, len(self.prompt), size):
            stop = min(start + size, len(self.prompt))
            first, last = self.begin[start], self.begin[stop]
            yield DistinctSets(
                np.ascontiguousarray(self.accepted[:, start:stop]),
                self.prompt[start:stop],
                self.pairs[first:last],
                self.begin[start : stop + 1] - first,
            )

    def new_prefixes(self) -> np.ndarray:
        """Accepted draws (K, U) whose prefix of accepted draws has not occurred just before.

        Sets are in lexicographic order, so that these are the distinct prefixes of each prompt.
        """
        differs = np.ones_like(self.accepted)
        np.not_equal(self.accepted[:, 1:], self.accepted[:, :-1], out=differs[:, 1:])
        differs[:, np.flatnonzero(np.diff(self.prompt)) + 1] = True
        for j in range(1, len(differs)):
            differs[j] |= differs[j - 1]
        return self.accepted & differs


def distinct_sets(words: np.ndarray, k: int) -> DistinctSets:
    """Distinct sets among the words (W, P, n) of P pairs and n prompts."""
    n_words, n_pairs, n = words.shape
    width = 8 * words.itemsize
    pair_bits = (n_pairs - 1).bit_length()
    if n_words == 1 and k + pair_bits <= 64:
        # the pair goes into the low bits of the set, and comes out of the sort with it
        dtype = np.dtype(np.uint32 if k + pair_bits <= 32 else np.uint64)
        keys = np.empty((n, n_pairs), dtype=dtype)
        keys[...] = words[0].T
        if width - k - pair_bits >= 0:
            keys >>= dtype.type(width - k - pair_bits)
        else:
            keys <<= dtype.type(pair_bits + k - width)
        keys |= np.arange(n_pairs, dtype=dtype)
        keys.sort(axis=1)
        new = np.ones((n, n_pairs), dtype=bool)
        np.greater_equal(keys[:, 1:] ^ keys[:, :-1], 1 << pair_bits, out=new[:, 1:])
        first = np.flatnonzero(new)
        sets = (keys.reshape(-1)[first] >> dtype.type(pair_bits))[np.newaxis].astype(words.dtype)
        sets <<= words.dtype.type(width - k)
        keys &= dtype.type((1 << pair_bits) - 1)
        pairs = keys.reshape(-1).astype(np.int32)
    else:
        rows = words.swapaxes(1, 2)
        order = np.argsort(rows[0], axis=1) if n_words == 1 else np.lexsort(rows[::-1], axis=1)
        rows = np.take_along_axis(rows, order[np.newaxis], axis=2)
        new = np.ones((n, n_pairs), dtype=bool)
        np.any(rows[:, :, 1:] != rows[:, :, :-1], axis=0, out=new[:, 1:])
        first = np.flatnonzero(new)
        sets = rows.reshape(n_words, -1)[:, first]
        pairs = order.reshape(-1).astype(np.int32)
    begin = np.append(first, n * n_pairs).astype(np.int32)
    return DistinctSets(as_booleans(sets, k), first // n_pairs, pairs, begin)


def as_booleans(words: np.ndarray, k: int) -> np.ndarray:
    """Words (W, m) as booleans (K, m)."""
    booleans = np.empty((k, words.shape[1]), dtype=bool)
    for draw, (word, bit) in enumerate(set_bits(k)):
        np.not_equal(words[word] & bit, 0, out=booleans[draw])
    return booleans
