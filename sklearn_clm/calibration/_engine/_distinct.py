"""The distinct accepted sets of each prompt: most pairs of thresholds accept the same draws."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration._engine._acceptance import set_bits


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
