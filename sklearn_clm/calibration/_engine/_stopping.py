"""Where each set stops under every threshold l3, and what it has cost by then."""

import math
from collections.abc import Iterator

import numpy as np

from sklearn_clm.calibration._engine._acceptance import DistinctSets, count_reached
from sklearn_clm.calibration._rule import relative_excess
from sklearn_clm.calibration._set_scores import SetScore

_EXACT_BITS = 53
# an excess is a fraction with a denominator of at most K: whole multiples of 1 / lcm(1, ..., K)
# where that is small, else rounded to a multiple of this
_FINEST = 2**41


class Packing:
    """Errors, sizes, draws and excess as two whole numbers: two sums do for four.

    Sums of whole numbers below 2**53 are exact in float64: the result does not depend on the order
    of the prompts, nor on how they are shared out among processes. `max_prompts` may be summed at
    once.
    """

    def __init__(self, k: int, n_prompts: int) -> None:
        # the grand total of the excess must fit into 63 bits
        finest = min(_FINEST, 2 ** (62 - n_prompts.bit_length()))
        common = math.lcm(*range(1, min(k, 64) + 1))
        self.unit = min(common, finest)
        count_bits, draw_bits = 1, k.bit_length()
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
        """Excess (n, K) of stopping after each draw, in whole units."""
        first = np.where(admissible.any(axis=1), admissible.argmax(axis=1) + 1, 0)
        shares = relative_excess(np.arange(1, self.k + 1), first[:, np.newaxis])
        # exact where the unit is the common denominator: the product is a whole number but for
        # the rounding of the quotient, which is far less than one half
        return np.rint(shares * float(self.unit))

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """Sums of errors, size, samples, and excess in units: four arrays of int64 in one."""
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
    values, members = np.ascontiguousarray(quality.T), np.ascontiguousarray(accepted.T)
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
    """How many of the ascending l3 the set reaches by each draw, (K, U); 0 if it is empty."""
    accepted = sets.accepted
    if set_score.counts_draws:
        everything = np.arange(accepted.size)
        scores = scores_of_prefixes(set_score, quality, accepted, everything)
        codes = count_reached(scores, l3).reshape(accepted.shape)
        codes *= np.logical_or.accumulate(accepted, axis=0)
    else:
        # sets that begin alike share the scores of their beginnings: one evaluation for each
        # prefix, carried on to the sets that follow until the next prefix of as many draws
        prefixes = np.flatnonzero(sets.new_prefixes())
        scores = scores_of_prefixes(set_score, quality, accepted, prefixes)
        counts = count_reached(scores, l3)
        codes = np.zeros(accepted.shape, dtype=counts.dtype)
        if len(prefixes):
            carried = np.repeat(counts, np.diff(prefixes, append=accepted.size))
            codes.reshape(-1)[prefixes[0] :] = carried
        codes *= accepted
    for j in range(1, len(codes)):
        np.maximum(codes[j], codes[j - 1], out=codes[j])
    return codes


def packed_profiles(
    set_score: SetScore,
    quality: np.ndarray,
    admissible: np.ndarray,
    sets: DistinctSets,
    l3: np.ndarray,
    budgets: np.ndarray,
    packing: Packing,
) -> Iterator[np.ndarray]:
    """For each budget, packed errors, size, samples and excess of each set at its stop: (U, L3).

    `quality` and `admissible` are (n, K).
    """
    accepted, prompt = sets.accepted, sets.prompt
    k, n_sets = accepted.shape
    of_set = np.take(np.ascontiguousarray(quality.T), prompt, axis=1)
    codes = _codes(set_score, of_set, sets, l3)

    # thresholds from the code before to the code of a draw stop there; those beyond the last
    # code do not stop before the budget is used up
    stopping = np.empty((n_sets, k + 1), dtype=codes.dtype)
    stopping[:, 0] = codes[0]
    np.subtract(codes[1:].T, codes[:-1].T, out=stopping[:, 1:k])
    np.subtract(len(l3), codes[-1], out=stopping[:, k])
    stops = np.flatnonzero(stopping != 0)
    n_thresholds = stopping.reshape(-1)[stops].astype(np.intp)

    state = _errors_and_size(accepted, np.take(np.ascontiguousarray(admissible.T), prompt, axis=1))
    of_state = np.arange(2 * k + 2) // 2 * packing.size_unit + np.arange(2 * k + 2) % 2
    of_prompt = np.empty(admissible.shape, dtype=np.complex128)
    of_prompt.real = np.arange(1, k + 1) * packing.samples_unit
    of_prompt.imag = packing.excess(admissible)
    draws = np.append(np.arange(k), k - 1)
    for budget in budgets:
        last = np.minimum(draws, budget - 1)
        # whole rows first: cheaper than picking single entries by two indices
        packed = np.take(of_prompt[:, last], prompt, axis=0).reshape(-1)[stops]
        at_stop = state if budget == k else state[:, last]
        packed.real += of_state[at_stop.reshape(-1)[stops]]
        yield np.repeat(packed, n_thresholds).reshape(n_sets, len(l3))


def _errors_and_size(accepted: np.ndarray, admissible: np.ndarray) -> np.ndarray:
    """Twice the size by each draw, plus one while no member is admissible: (U, K + 1).

    The last column repeats the one before, for sets that do not stop.
    """
    k, n_sets = accepted.shape
    state = np.empty((n_sets, k + 1), dtype=np.min_scalar_type(2 * k + 1))
    lost = np.ones(n_sets, dtype=bool)
    twice_size = np.zeros(n_sets, dtype=state.dtype)
    for j in range(k):
        lost &= ~(accepted[j] & admissible[j])
        twice_size += accepted[j]
        twice_size += accepted[j]
        np.add(twice_size, lost, out=state[:, j])
    state[:, k] = state[:, k - 1]
    return state
