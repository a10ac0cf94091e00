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
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.risk import MISSES, Risk
from sklearn_clm.calibration.set_scores import SetScore

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
    for width in (8, 16, 32):
        if k <= width:
            return np.dtype(f"u{width // 8}")
    return np.dtype(np.uint64)


def _n_words(k: int) -> int:
    """Words that hold a bit for each of k draws."""
    return -(-k // 64)


def _n_thresholds_passed(
    passes: np.ufunc, values: np.ndarray, thresholds: np.ndarray
) -> np.ndarray:
    """How many thresholds each value passes; NaN passes none."""
    counts = np.zeros(values.shape, dtype=np.min_scalar_type(len(thresholds)))
    for threshold in thresholds:
        counts += passes(values, threshold)
    return counts


def _quality_sets(quality: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Draws of sufficient quality, as words (W, B, n)."""
    n, k = quality.shape
    sets = np.zeros((_n_words(k), len(thresholds), n), dtype=_word_type(k))
    for draw, (word, bit) in enumerate(_set_bits(k)):
        is_sufficient = quality[:, draw] >= thresholds[:, np.newaxis]
        sets[word] |= is_sufficient * bit
    return sets


def _conflict_sets(similarity: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Earlier draws that are too similar, (K, W, A, n)."""
    n, k, _ = similarity.shape
    n_thresholds = len(thresholds)
    earlier, later = np.triu_indices(k, 1)  # pairs in the order of the earlier draw
    of_pairs = similarity.reshape(n, k * k)[:, later * k + earlier]
    n_exceeded = _n_thresholds_passed(np.greater, np.ascontiguousarray(of_pairs.T), thresholds)

    # a pair that exceeds exactly r thresholds is in conflict below position r: so note each pair
    # once, at its r, and let a running OR carry it downwards
    sets = np.zeros((k, _n_words(k), n_thresholds + 1, n), dtype=_word_type(k))
    stride_draw = sets[0].size
    stride_word = sets[0, 0].size
    stride_r = n
    # where a pair is noted, in the flat array; in place, since there are many
    position = n_exceeded.astype(np.intp)
    position *= stride_r
    position += (later * stride_draw)[:, np.newaxis]
    position += np.arange(n)
    flat = sets.reshape(-1)
    end = 0
    for draw, (word, bit) in enumerate(_set_bits(k)):
        start = end
        end += k - 1 - draw  # pairs of which this draw is the earlier one
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
        """Accepted draws (K, U) that end a new prefix.

        Sets are in lexicographic order, so that these are the distinct prefixes of each prompt.
        """
        # whether a set differs from the one before it at this draw or at an earlier one, which is
        # carried on
        differs = np.ones_like(self.accepted)
        this_set = self.accepted[:, 1:]
        set_before = self.accepted[:, :-1]
        np.not_equal(this_set, set_before, out=differs[:, 1:])
        # sets of another prompt are new, even if they hold the same draws
        first_of_prompt = np.flatnonzero(np.diff(self.prompt)) + 1
        differs[:, first_of_prompt] = True
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
        by_draw = np.ascontiguousarray(texts.T)
        bits = list(_set_bits(len(self.accepted)))
        for draw, (last_word, _) in enumerate(bits):
            # which earlier draws of each prompt have the same text, as words
            copies = np.zeros((last_word + 1, len(texts)), dtype=self.words.dtype)
            is_copy = by_draw[:draw] == by_draw[draw]
            for earlier, (word, bit) in enumerate(bits[:draw]):
                copies[word] |= is_copy[earlier] * bit
            # the draw is shown where none of these is in the set
            for word in range(last_word + 1):
                if copies[word].any():
                    accepted_copies = np.take(copies[word], self.prompt)
                    accepted_copies &= self.words[word]
                    shown[draw] &= accepted_copies == 0
        return shown


def sets_of_pairs(data: CalibrationData, pairs: Pairs) -> DistinctSets:
    """Sets of Algorithm 1 without its stop, for threshold pairs."""
    conflicts = _conflict_sets(np.asarray(data.similarity), pairs.l1)
    sufficient = _quality_sets(data.quality, pairs.l2)
    words = _accepted_sets(sufficient, conflicts, pairs)
    return _distinct_sets(words, data.k_max)


def _distinct_sets(words: np.ndarray, k: int) -> DistinctSets:
    """Distinct sets among the words (W, P, n)."""
    n_words, n_pairs, n = words.shape
    pair_bits = (n_pairs - 1).bit_length()
    # one sort of integers where a set and its pair fit into 64 bits
    if n_words == 1 and k + pair_bits <= 64:
        sets, pairs, first = _sorted_with_pairs(words[0], k, pair_bits)
    else:
        sets, pairs, first = _sorted_by_words(words)
    begin = np.append(first, n * n_pairs).astype(np.int32)  # as SciPy's sparse matrices index
    accepted = np.empty((k, sets.shape[1]), dtype=bool)
    for draw, (word, bit) in enumerate(_set_bits(k)):
        np.not_equal(sets[word] & bit, 0, out=accepted[draw])
    prompt = first // n_pairs
    return DistinctSets(sets, accepted, prompt, pairs, begin)


def _sorted_with_pairs(
    words: np.ndarray, k: int, pair_bits: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct sets among words (P, n) of one word.

    Returns the sets, (1, U); the pairs that lead to them, (n P,), prompt by prompt in the order of
    their sets; and the place among these at which each set begins, (U,). A pair goes into the low
    bits of its set, and comes out of the sort with it.
    """
    n_pairs, n = words.shape
    word_type = words.dtype
    unused_bits = 8 * word_type.itemsize - k  # the sets lie in the upper bits of their words
    key_type = np.dtype(np.uint32 if k + pair_bits <= 32 else np.uint64)
    keys = np.empty((n, n_pairs), dtype=key_type)
    keys[...] = words.T
    if unused_bits >= pair_bits:
        keys >>= key_type.type(unused_bits - pair_bits)
    else:
        keys <<= key_type.type(pair_bits - unused_bits)
    keys |= np.arange(n_pairs, dtype=key_type)
    keys.sort(axis=1)

    # two keys differ in their sets where they differ above the bits of the pair
    is_new = np.ones((n, n_pairs), dtype=bool)
    difference = keys[:, 1:] ^ keys[:, :-1]
    np.greater_equal(difference, 1 << pair_bits, out=is_new[:, 1:])
    first = np.flatnonzero(is_new)
    sets = (keys.reshape(-1)[first] >> key_type.type(pair_bits)).astype(word_type)
    sets <<= word_type.type(unused_bits)
    keys &= key_type.type((1 << pair_bits) - 1)
    return sets[np.newaxis], keys.reshape(-1).astype(np.int32), first


def _sorted_by_words(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct sets of several words each, among (W, P, n).

    Returns what :func:`_sorted_with_pairs` does: a set and its pair do not fit into one integer.
    """
    n_words, n_pairs, n = words.shape
    rows = words.swapaxes(1, 2)
    # the last key is the first to sort by; pairs go with their sets by the order of the sort
    order = np.lexsort(rows[::-1], axis=1)
    rows = np.take_along_axis(rows, order[np.newaxis], axis=2)
    # a set is new where any of its words differs from that of the set before
    is_new = np.ones((n, n_pairs), dtype=bool)
    word_differs = rows[:, :, 1:] != rows[:, :, :-1]
    np.any(word_differs, axis=0, out=is_new[:, 1:])
    first = np.flatnonzero(is_new)
    sets = rows.reshape(n_words, -1)[:, first]
    return sets, order.reshape(-1).astype(np.int32), first


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
        # as many prompts as fit: a count of errors, and sums of sizes and of draws, up to K of each
        # prompt, side by side in 53 bits; and the sum of the excess alone
        draw_bits = k.bit_length()
        bits_for_counts = (_EXACT_BITS - 2 * draw_bits) // 3
        bits_for_excess = _EXACT_BITS - self.unit.bit_length()
        count_bits = max(min(bits_for_counts, bits_for_excess), 1)
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
        excess = packed.imag
        # the real part holds errors, sizes and draws, from the lowest bits up
        samples = np.floor(packed.real / self.samples_unit)
        size_and_errors = packed.real - samples * self.samples_unit
        size = np.floor(size_and_errors / self.size_unit)
        errors = size_and_errors - size * self.size_unit
        return np.stack([errors, size, samples, excess]).astype(np.int64)


def scores_of_prefixes(
    set_score: SetScore, quality: np.ndarray, accepted: np.ndarray, prefixes: np.ndarray
) -> np.ndarray:
    """F of single prefixes of accepted sets.

    `quality` and `accepted` are (K, U); `prefixes` are positions in the flattened arrays, each
    the last accepted draw of a prefix.
    """
    # a running score gives all prefixes at once, prompt by prompt
    if set_score.running is not None:
        scores = set_score.running(quality.T, accepted.T)
        return np.ascontiguousarray(scores.T).reshape(-1)[prefixes]

    # others are asked about each prefix, together or one by one
    k, n_sets = accepted.shape
    draw_of_prefix, set_of_prefix = np.divmod(prefixes, n_sets)
    values = np.ascontiguousarray(quality.T)
    members = np.ascontiguousarray(accepted.T)
    if set_score.of_sets is not None:
        is_up_to_draw = np.tri(k, dtype=bool)
        prefix = np.take(members, set_of_prefix, axis=0)
        prefix &= np.take(is_up_to_draw, draw_of_prefix, axis=0)
        return set_score.of_sets(np.take(values, set_of_prefix, axis=0), prefix)
    scores = np.empty(len(prefixes))
    for place, (u, draw) in enumerate(zip(set_of_prefix.tolist(), draw_of_prefix.tolist())):
        n_samples = draw + 1
        in_prefix = members[u, :n_samples]
        scores[place] = set_score.of_set(values[u, :n_samples][in_prefix], n_samples)
    return scores


def _thresholds_reached(
    set_score: SetScore, quality: np.ndarray, sets: DistinctSets, l3: np.ndarray
) -> np.ndarray:
    """How many of l3 the set reaches by each draw."""
    accepted = sets.accepted
    if set_score.counts_draws:
        every_prefix = np.arange(accepted.size)
        scores = scores_of_prefixes(set_score, quality, accepted, every_prefix)
        n_reached = _n_thresholds_passed(np.greater_equal, scores, l3).reshape(accepted.shape)
        # an empty set never stops
        n_reached *= np.logical_or.accumulate(accepted, axis=0)
    else:
        # sets that begin alike share the scores of their beginnings: one evaluation for each
        # prefix, carried on to the sets that follow until the next prefix of as many draws
        prefixes = np.flatnonzero(sets.new_prefixes())
        scores = scores_of_prefixes(set_score, quality, accepted, prefixes)
        by_prefix = _n_thresholds_passed(np.greater_equal, scores, l3)
        n_reached = np.zeros(accepted.shape, dtype=by_prefix.dtype)
        if len(prefixes):
            n_places = np.diff(prefixes, append=accepted.size)
            n_reached.reshape(-1)[prefixes[0] :] = np.repeat(by_prefix, n_places)
        # where a draw is not accepted, what was carried on is of another prefix
        n_reached *= accepted
    # F need not be monotone: a threshold that was reached once has stopped the set
    for j in range(1, len(n_reached)):
        np.maximum(n_reached[j], n_reached[j - 1], out=n_reached[j])
    return n_reached


def _packed_profiles(
    set_score: SetScore,
    data: CalibrationData,
    sets: DistinctSets,
    l3: np.ndarray,
    budgets: np.ndarray,
    packing: Packing,
    risk: Risk,
) -> Iterator[np.ndarray]:
    """Packed outcomes of each set at its stop, (U, L3)."""
    k, n_sets = sets.accepted.shape
    n_reached = _thresholds_reached(set_score, sets.of_prompts(data.quality), sets, l3)
    # how many thresholds stop a set at each draw: those that it reaches there first. They ascend:
    # those beyond what the last draw reaches do not stop before the budget is used up
    n_stopped = np.empty((n_sets, k + 1), dtype=n_reached.dtype)
    n_reached_before = n_reached[:-1].T
    n_stopped[:, 0] = n_reached[0]
    np.subtract(n_reached[1:].T, n_reached_before, out=n_stopped[:, 1:k])
    np.subtract(len(l3), n_reached[-1], out=n_stopped[:, k])
    stops = np.flatnonzero(n_stopped != 0)
    n_of_stop = n_stopped.reshape(-1)[stops].astype(np.intp)

    # a stop has errors and size of its set, and draws and excess of its prompt: two tables
    admissible = data.admissible
    shown = sets.shown(data.texts)
    state = _errors_and_size(sets.accepted, shown, sets.of_prompts(admissible), risk)
    size_of_state, errors_of_state = np.divmod(np.arange(2 * k + 2), 2)
    packed_of_state = size_of_state * packing.size_unit + errors_of_state
    packed_of_prompt = np.empty(admissible.shape, dtype=np.complex128)
    packed_of_prompt.real = np.arange(1, k + 1) * packing.samples_unit
    packed_of_prompt.imag = packing.excess(admissible)
    # a set that no threshold stops ends with the last draw
    draws = np.append(np.arange(k), k - 1)
    for budget in budgets:
        last = np.minimum(draws, budget - 1)
        # whole rows first: cheaper than picking single entries by two indices
        of_prompts = np.take(packed_of_prompt[:, last], sets.prompt, axis=0)
        packed = of_prompts.reshape(-1)[stops]
        state_of_stop = state[:, last].reshape(-1)[stops]
        packed.real += packed_of_state[state_of_stop]
        yield np.repeat(packed, n_of_stop).reshape(n_sets, len(l3))


def _errors_and_size(
    accepted: np.ndarray, shown: np.ndarray, admissible: np.ndarray, risk: Risk
) -> np.ndarray:
    """State of each set after each draw, (U, K).

    A state is twice the size, plus one where the set errs: one small number, by which a table is
    read.
    """
    k, n_sets = shown.shape
    # a copy settles nothing that its text does not, unless several members are needed
    members = accepted if risk.n_settling == 1 else shown
    has_label = admissible if risk.settled_by == 1 else ~admissible
    # as numbers, since sums would convert booleans each time
    is_member = members.view(np.uint8)
    is_of_label = has_label.view(np.uint8)
    is_shown = shown.view(np.uint8)
    # the smallest type that holds the largest state: the table is read at random places
    state = np.empty((n_sets, k), dtype=np.min_scalar_type(2 * k + 1))
    n_of_label = np.zeros(n_sets, dtype=state.dtype)
    twice_size = np.zeros(n_sets, dtype=state.dtype)
    for j in range(k):
        n_of_label += is_member[j] & is_of_label[j]
        twice_size += is_shown[j]
        twice_size += is_shown[j]
        errs = risk.errs(n_of_label)
        np.add(twice_size, errs.view(np.uint8), out=state[:, j])
    return state


def sum_over_prompts(
    data: CalibrationData,
    pairs: Pairs,
    l3: np.ndarray,
    set_score: SetScore,
    budgets: np.ndarray,
    risk: Risk = MISSES,
) -> tuple[np.ndarray, int]:
    """Sums of errors, size, samples and excess, and its unit.

    The sums are integers of shape (4, P, budgets, L3), the excess in multiples of 1 / unit. All
    thresholds ascend.
    """
    _keep_freed_memory()
    n_pairs = len(pairs.a)
    packing = Packing(data.k_max, data.n_prompts)
    fewest, most = _BLOCK_PROMPTS
    block = min(max(_BLOCK_SETS // n_pairs, fewest), most, packing.max_prompts)
    shape = n_pairs, len(budgets), len(l3)
    totals = np.zeros((4, *shape), dtype=np.int64)
    packed = np.zeros(shape, dtype=np.complex128)
    n_packed = 0  # prompts
    for start in range(0, data.n_prompts, block):
        part = data.take(slice(start, start + block))
        # before the fields of the packed numbers run over into each other
        if n_packed + part.n_prompts > packing.max_prompts:
            totals += packing.unpack(packed)
            packed[:] = 0.0
            n_packed = 0
        n_packed += part.n_prompts
        sets = sets_of_pairs(part, pairs)
        # which sets each pair of thresholds leads to, as a 0-1 matrix
        ones = np.ones(len(sets.pairs))
        n_sets = len(sets.prompt)
        leads_to = csc_array((ones, sets.pairs, sets.begin), shape=(n_pairs, n_sets))
        profiles = _packed_profiles(set_score, part, sets, l3, budgets, packing, risk)
        for place, profile in enumerate(profiles):
            # real and imaginary parts side by side: twice as fast as the complex product
            sums = leads_to @ profile.view(np.float64)
            packed[:, place] += sums.view(np.complex128)
    return totals + packing.unpack(packed), packing.unit


def _keep_freed_memory() -> None:
    """Make the C library reuse freed memory, which saves time.

    By default glibc hands each freed array of some size back to the system, and the next one
    pays for its pages anew. Once a block of almost 32 MiB (its limit) has been freed, it keeps
    what is smaller. The pages of this block are never touched; elsewhere it has no effect.
    """
    np.empty(2**25 - 2**16, dtype=np.uint8)
