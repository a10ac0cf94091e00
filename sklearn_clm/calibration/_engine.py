"""The fast evaluation of a whole grid of configurations.

A pass per configuration takes K steps of acceptance and K of scoring for each of 19,683
configurations of a 27 x 27 x 27 grid. Here,

* acceptance depends on (l1, l2) alone, and is a recursion of four bit operations for each draw on
  whole rows of prompts;
* most pairs (l1, l2) accept the same draws of a prompt: of 729 pairs there are 50 to 80 distinct
  sets. A sort of integers that hold set and pair finds them;
* a set score is evaluated once for each distinct *prefix* of accepted draws, two or three for each
  distinct set, and a comparison with all thresholds l3 says which of them it stops at;
* what remains is to add each set's row of results to all pairs that lead to it: a sparse 0-1
  matrix (pairs x sets, which the sort has left in compressed form) times the dense rows, with
  errors, size and draws packed into one float64 and the excess into another.

All of it runs in compiled loops of NumPy and SciPy, on blocks of prompts that stay in the cache.

For n = 1,565, K = 20, the sum and 27 x 27 x 27 configurations this module takes 0.07 s, Algorithm 1
in NumPy for each configuration 120 s, and the same in C 0.03 to 0.04 s, on one core.

A set of draws is an unsigned integer whose *top* bit is draw 0 (several integers of 64 bits where
K > 64). So sorted sets that start alike lie side by side; and every earlier draw is worth more than
the draw at hand, so that one `minimum` turns "which conflicts are there" into "this draw's bit".
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array

from sklearn_clm.calibration._rule import first_admissible, relative_excess
from sklearn_clm.calibration._set_scores import SetScore
from sklearn_clm.calibration.data import CalibrationData

_EXACT_BITS = 53
# an excess is a fraction with a denominator of at most K: whole multiples of 1 / lcm(1, ..., K)
# where that is small, else rounded to a multiple of this
_FINEST = 2**41
# sets of one block: two arrays of them fit into a cache of 1 to 2 MiB
_BLOCK_SETS = 2**17
_BLOCK_PROMPTS = (16, 1024)


class Pairs(NamedTuple):
    """Pairs (l1[a], l2[b]) of ascending thresholds."""

    l1: np.ndarray
    l2: np.ndarray
    a: np.ndarray
    b: np.ndarray


def _set_bits(k: int) -> Iterator[tuple[int, np.unsignedinteger]]:
    """For each draw its word and its bit."""
    dtype = _word_type(k)
    width = 8 * dtype.itemsize
    for draw in range(k):
        word, position = divmod(draw, width)
        yield word, dtype.type(1 << (width - 1 - position))


def _word_type(k: int) -> np.dtype:
    """Smallest unsigned integer with enough bits, at most 64."""
    return np.dtype(next((f"u{width // 8}" for width in (8, 16, 32) if k <= width), "u8"))


def _count_passed(passes: np.ufunc, values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many thresholds each value passes; NaN passes none."""
    counts = np.zeros(values.shape, dtype=np.min_scalar_type(len(thresholds)))
    for threshold in thresholds:
        counts += passes(values, threshold)
    return counts


def _quality_sets(quality: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Draws of sufficient quality, as words (W, B, n)."""
    n, k = quality.shape
    sets = np.zeros((-(-k // 64), len(thresholds), n), dtype=_word_type(k))
    for draw, (word, bit) in enumerate(_set_bits(k)):
        sets[word] |= (quality[:, draw] >= thresholds[:, np.newaxis]) * bit
    return sets


def _conflict_sets(similarity: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Earlier draws that are too similar, (K, W, A, n)."""
    n, k, _ = similarity.shape
    n_thresholds = len(thresholds)
    earlier, later = np.triu_indices(k, 1)
    pairs = np.ascontiguousarray(similarity.reshape(n, k * k)[:, later * k + earlier].T)
    # a pair that exceeds exactly r thresholds is in conflict below position r: so note each pair
    # once, at its r, and let a running OR carry it downwards
    sets = np.zeros((k, -(-k // 64), n_thresholds + 1, n), dtype=_word_type(k))
    stride_draw = sets[0].size
    stride_word = sets[0, 0].size
    stride_r = n
    position = _count_passed(np.greater, pairs, thresholds).astype(np.intp)
    position *= stride_r
    position += (later * stride_draw)[:, np.newaxis]
    position += np.arange(n)
    flat = sets.reshape(-1)
    end = 0
    for draw, (word, bit) in enumerate(_set_bits(k)):
        start, end = end, end + k - 1 - draw
        flat[position[start:end] + word * stride_word] |= bit
    for r in range(n_thresholds - 1, 0, -1):
        sets[:, :, r] |= sets[:, :, r + 1]
    return sets[:, :, 1:]  # position 0 exceeds no threshold


def _accepted_sets(quality: np.ndarray, conflicts: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Algorithm 1 without its stop, as words (W, P, n)."""
    k, _, _, n = conflicts.shape
    accepted = quality[:, pairs.b]
    rejected = np.empty_like(accepted[0])
    # array with array is the fast form of `minimum`, array with scalar is not
    bits = np.empty(n, dtype=quality.dtype)
    for draw, (word, bit) in enumerate(_set_bits(k)):
        bits.fill(bit)
        for w in range(word + 1):
            np.take(conflicts[draw, w], pairs.a, axis=0, out=rejected, mode="clip")
            rejected &= accepted[w]
            # any conflict in an earlier word rejects; in the same word the minimum tells
            if w < word:
                rejected[rejected != 0] = bit
            np.minimum(rejected, bits, out=rejected)
            accepted[word] |= rejected
            accepted[word] ^= rejected
    return accepted


class DistinctSets(NamedTuple):
    """U distinct sets, and the threshold pairs of each.

    `words` are (W, U), and `accepted` is the same as bool (K, U); `prompt` (U,) is ascending; the
    pairs of set u are ``pairs[begin[u]:begin[u + 1]]``.
    """

    words: np.ndarray

    accepted: np.ndarray
    prompt: np.ndarray
    pairs: np.ndarray
    begin: np.ndarray

    def of_prompts(self, values: np.ndarray) -> np.ndarray:
        """Values (n, K) of prompts, at their sets: (K, U)."""
        return np.take(np.ascontiguousarray(values.T), self.prompt, axis=1)

    def new_prefixes(self) -> np.ndarray:
        """Accepted draws (K, U) that begin a new prefix.

        Sets are in lexicographic order, so that these are the distinct prefixes of each prompt.
        """
        differs = np.ones_like(self.accepted)
        np.not_equal(self.accepted[:, 1:], self.accepted[:, :-1], out=differs[:, 1:])
        differs[:, np.flatnonzero(np.diff(self.prompt)) + 1] = True
        for j in range(1, len(differs)):
            differs[j] |= differs[j - 1]
        return self.accepted & differs

    def shown(self, texts: np.ndarray | None) -> np.ndarray:
        """Accepted draws (K, U) without those that repeat a text.

        `texts`, (n, K), name the first draw of each text; None: all differ.
        """
        if texts is None:
            return self.accepted
        shown = self.accepted.copy()
        k = len(self.accepted)
        bits = list(_set_bits(k))
        for draw, (last_word, _) in enumerate(bits):
            copies = np.zeros((last_word + 1, len(texts)), dtype=self.words.dtype)
            for earlier, (word, bit) in enumerate(bits[:draw]):
                copies[word] |= (texts[:, earlier] == texts[:, draw]) * bit
            for word in range(last_word + 1):
                if copies[word].any():
                    shown[draw] &= (copies[word][self.prompt] & self.words[word]) == 0
        return shown


def sets_of_pairs(data: CalibrationData, pairs: Pairs) -> DistinctSets:
    """Sets of Algorithm 1 without its stop, for threshold pairs."""
    conflicts = _conflict_sets(np.asarray(data.similarity), pairs.l1)
    return _distinct_sets(
        _accepted_sets(_quality_sets(data.quality, pairs.l2), conflicts, pairs), data.k_max
    )


def _distinct_sets(words: np.ndarray, k: int) -> DistinctSets:
    """Distinct sets among the words (W, P, n)."""
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
        # sets of several words: pairs go with them by the order of the sort
        rows = words.swapaxes(1, 2)
        order = np.lexsort(rows[::-1], axis=1)
        rows = np.take_along_axis(rows, order[np.newaxis], axis=2)
        new = np.ones((n, n_pairs), dtype=bool)
        np.any(rows[:, :, 1:] != rows[:, :, :-1], axis=0, out=new[:, 1:])
        first = np.flatnonzero(new)
        sets = rows.reshape(n_words, -1)[:, first]
        pairs = order.reshape(-1).astype(np.int32)
    begin = np.append(first, n * n_pairs).astype(np.int32)
    accepted = np.empty((k, sets.shape[1]), dtype=bool)
    for draw, (word, bit) in enumerate(_set_bits(k)):
        np.not_equal(sets[word] & bit, 0, out=accepted[draw])
    return DistinctSets(sets, accepted, first // n_pairs, pairs, begin)


class Packing:
    """Errors, sizes, draws and excess, packed into two numbers.

    Sums of whole numbers below 2**53 are exact in float64: the result does not depend on the order
    of the prompts. `max_prompts` may be summed at once.
    """

    def __init__(self, k: int, n_prompts: int) -> None:
        # the grand total of the excess must fit into 63 bits
        finest = min(_FINEST, 2 ** (62 - n_prompts.bit_length()))
        common = math.lcm(*range(1, min(k, 64) + 1))
        self.unit = min(common, finest)
        # as many prompts as fit: draws, size and errors side by side in 53 bits
        count_bits = 1
        draw_bits = k.bit_length()
        while (
            3 * (count_bits + 1) + 2 * draw_bits <= _EXACT_BITS
            and count_bits + 1 + self.unit.bit_length() <= _EXACT_BITS
        ):
            count_bits += 1
        self.max_prompts = 2**count_bits - 1
        self.size_unit = 2.0**count_bits
        self.samples_unit = 2.0 ** (2 * count_bits + draw_bits)
        self.k = k

    def excess(self, admissible: np.ndarray) -> np.ndarray:
        """Excess (n, K) of each stop, in whole units."""
        first = first_admissible(admissible)
        shares = relative_excess(np.arange(1, self.k + 1), first[:, np.newaxis])
        # exact where the unit is the common denominator: the product is a whole number but for
        # the rounding of the quotient, which is far less than one half
        return np.rint(shares * float(self.unit))

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """Sums of errors, size, samples, and excess in units."""
        counts, excess = packed.real, packed.imag
        samples = np.floor(counts / self.samples_unit)
        counts = counts - samples * self.samples_unit
        size = np.floor(counts / self.size_unit)
        errors = counts - size * self.size_unit
        return np.stack([errors, size, samples, excess]).astype(np.int64)


def scores_of_prefixes(
    set_score: SetScore, quality: np.ndarray, accepted: np.ndarray, prefixes: np.ndarray
) -> np.ndarray:
    """F of single prefixes of accepted sets.

    `quality` and `accepted` are (K, U); `prefixes` are positions in the flattened arrays, each
    the last accepted draw of a prefix.
    """
    if set_score.running is not None:
        scores = set_score.running(quality.T, accepted.T)
        return np.ascontiguousarray(scores.T).reshape(-1)[prefixes]
    k, n_sets = accepted.shape
    draw = prefixes // n_sets
    row = prefixes - draw * n_sets
    values = np.ascontiguousarray(quality.T)
    members = np.ascontiguousarray(accepted.T)
    if set_score.of_sets is not None:
        prefix = np.take(members, row, axis=0)
        prefix &= np.take(np.tri(k, dtype=bool), draw, axis=0)
        return set_score.of_sets(np.take(values, row, axis=0), prefix)
    return np.array(
        [
            set_score.of_set(values[u, : j + 1][members[u, : j + 1]], j + 1)
            for u, j in zip(row.tolist(), draw.tolist())
        ],
        dtype=np.float64,
    )


def _codes(
    set_score: SetScore, quality: np.ndarray, sets: DistinctSets, l3: np.ndarray
) -> np.ndarray:
    """How many of l3 the set reaches by each draw."""
    accepted = sets.accepted
    if set_score.counts_draws:
        every_prefix = np.arange(accepted.size)
        scores = scores_of_prefixes(set_score, quality, accepted, every_prefix)
        codes = _count_passed(np.greater_equal, scores, l3).reshape(accepted.shape)
        codes *= np.logical_or.accumulate(accepted, axis=0)
    else:
        # sets that begin alike share the scores of their beginnings: one evaluation for each
        # prefix, carried on to the sets that follow until the next prefix of as many draws
        prefixes = np.flatnonzero(sets.new_prefixes())
        scores = scores_of_prefixes(set_score, quality, accepted, prefixes)
        counts = _count_passed(np.greater_equal, scores, l3)
        codes = np.zeros(accepted.shape, dtype=counts.dtype)
        if len(prefixes):
            carried = np.repeat(counts, np.diff(prefixes, append=accepted.size))
            codes.reshape(-1)[prefixes[0] :] = carried
        codes *= accepted
    for j in range(1, len(codes)):
        np.maximum(codes[j], codes[j - 1], out=codes[j])
    return codes


def _packed_profiles(
    set_score: SetScore,
    data: CalibrationData,
    sets: DistinctSets,
    l3: np.ndarray,
    budgets: np.ndarray,
    packing: Packing,
) -> Iterator[np.ndarray]:
    """Packed outcomes of each set at its stop, (U, L3)."""
    accepted, prompt, admissible = sets.accepted, sets.prompt, data.admissible
    k, n_sets = accepted.shape
    codes = _codes(set_score, sets.of_prompts(data.quality), sets, l3)
    # thresholds from the code before to the code of a draw stop there; those beyond the last
    # code do not stop before the budget is used up
    stopping = np.empty((n_sets, k + 1), dtype=codes.dtype)
    stopping[:, 0] = codes[0]
    np.subtract(codes[1:].T, codes[:-1].T, out=stopping[:, 1:k])
    np.subtract(len(l3), codes[-1], out=stopping[:, k])
    stops = np.flatnonzero(stopping != 0)
    n_thresholds = stopping.reshape(-1)[stops].astype(np.intp)

    # a stop has errors and size of its set, and draws and excess of its prompt: two tables
    state = _errors_and_size(accepted, sets.shown(data.texts), sets.of_prompts(admissible))
    of_state = np.arange(2 * k + 2) // 2 * packing.size_unit + np.arange(2 * k + 2) % 2
    of_prompt = np.empty(admissible.shape, dtype=np.complex128)
    of_prompt.real = np.arange(1, k + 1) * packing.samples_unit
    of_prompt.imag = packing.excess(admissible)
    # who does not stop by a threshold stops with the last draw
    draws = np.append(np.arange(k), k - 1)
    for budget in budgets:
        last = np.minimum(draws, budget - 1)
        # whole rows first: cheaper than picking single entries by two indices
        packed = np.take(of_prompt[:, last], prompt, axis=0).reshape(-1)[stops]
        packed.real += of_state[state[:, last].reshape(-1)[stops]]
        yield np.repeat(packed, n_thresholds).reshape(n_sets, len(l3))


def _errors_and_size(accepted: np.ndarray, shown: np.ndarray, admissible: np.ndarray) -> np.ndarray:
    """Twice the size, plus one without admissible member: (U, K)."""
    k, n_sets = shown.shape
    state = np.empty((n_sets, k), dtype=np.min_scalar_type(2 * k + 1))
    lost = np.ones(n_sets, dtype=bool)
    twice_size = np.zeros(n_sets, dtype=state.dtype)
    for j in range(k):
        lost &= ~(accepted[j] & admissible[j])
        twice_size += shown[j]
        twice_size += shown[j]
        np.add(twice_size, lost, out=state[:, j])
    return state


def sum_over_prompts(
    data: CalibrationData, pairs: Pairs, l3: np.ndarray, set_score: SetScore, budgets: np.ndarray
) -> tuple[np.ndarray, int]:
    """Sums of errors, size, samples and excess, and its unit.

    The sums are integers of shape (4, P, budgets, L3), the excess in multiples of 1 / unit. All
    thresholds ascend.
    """
    _keep_freed_memory()
    packing = Packing(data.k_max, data.n_prompts)
    block = int(np.clip(_BLOCK_SETS // len(pairs.a), *_BLOCK_PROMPTS))
    block = min(block, packing.max_prompts)
    shape = len(pairs.a), len(budgets), len(l3)
    totals = np.zeros((4, *shape), dtype=np.int64)
    n_packed = 0
    packed = np.zeros(shape, dtype=np.complex128)
    for start in range(0, data.n_prompts, block):
        part = data.take(slice(start, start + block))
        # before the fields of the packed numbers run over into each other
        if n_packed + part.n_prompts > packing.max_prompts:
            totals += packing.unpack(packed)
            packed[:], n_packed = 0.0, 0
        n_packed += part.n_prompts
        sets = sets_of_pairs(part, pairs)
        leads_to = csc_array(
            (np.ones(len(sets.pairs)), sets.pairs, sets.begin),
            shape=(len(pairs.a), len(sets.prompt)),
        )
        profiles = _packed_profiles(set_score, part, sets, l3, budgets, packing)
        for i, profile in enumerate(profiles):
            # real and imaginary parts side by side: twice as fast as the complex product
            packed[:, i] += (leads_to @ profile.view(np.float64)).view(np.complex128)
    return totals + packing.unpack(packed), packing.unit


def _keep_freed_memory() -> None:
    """Make the C library reuse freed memory, which saves time.

    By default glibc hands each freed array of some size back to the system, and the next one
    pays for its pages anew. Once a block of almost 32 MiB (its limit) has been freed, it keeps
    what is smaller. The pages of this block are never touched; elsewhere it has no effect.
    """
    np.empty(2**25 - 2**16, dtype=np.uint8)
