"""Thresholds between scores, not on them.

Scores are not the same number twice. A matrix product rounds a row otherwise in another batch, so
does another processor, and an array on disk may hold single or half precision. A threshold that
stands *on* a score of calibration then decides by rounding: where many prompts share a score, the
sets of calibration and of prediction may have nothing in common. Between two neighbouring scores it
has room, and every decision on these scores is the same.

*Each direction.* Let a < v be neighbours among the observed scores. "Accept where q >= v" accepts
of them the very scores that "accept where q >= t" does, for any t in (a, v]: quality and set score
take the middle of the gap below v. "Reject where s > v" rejects the scores that "reject where
s > t" does, for any t in [v, b), with b the next score above: similarity takes the middle of the
gap above. Rounding to the nearest number of another precision keeps the order of scores, and takes
none across the middle of two neighbours of that precision.

*Levels that come from the calibration part.* An exit level may stand anywhere below u-hat, and a
threshold on components anywhere above the largest score that must stay out: the proofs
(``exit_policy.py``, ``components.py``) hold for these, wherever they stand.

*Nothing is tested that is not used.* Thresholds of a grid come from the optimisation part alone;
what calibrates tests them as they are, and prediction runs them as they are. A calibration score
may lie in the gap, on either side of the threshold.

*Scores that are one number.* Those closer than 1e-6 of their size are one, whatever their last
digits: the gap is the first that lies further away from v. So a score that many prompts share is
never cut through. Where scores of a continuum lie that dense, the gap is small, and so is
the share of prompts within it.

*Scores about zero.* Differences of larger numbers, such as a reward less that of a usual answer,
carry the last digits of these: where many prompts give the usual answer, their score is 4e-16 in
one batch and -4e-16 in another, or 0 where it is cut off. So where scores stand on both sides of
zero, or at it, those are one number, too, that differ by less than a share of larger scores: 1e-6
of the largest on the side where these are smaller, or what sums in double precision leave of the
largest of all. Marks, such as -1e38 for what is no answer, tell nothing of the others. Scores that
are all above zero have no such room: likelihoods may all be small.

*Sums* of numbers in half precision do not keep the order of the exact ones: 0.1 + 0.1 + 0.1 is less
than 0.3 there. They are one number where they are closer than 1/512.
"""

import numpy as np

SAME = 1e-6  # relative: scores that differ by less are one number
_SAME_SUMS_OF_HALVES = 2.0**-9  # each of two sums is wrong by 2 ** -11 at most
_LEFT_OF_LARGEST = 2.0**-44  # of the largest: what sums of hundreds of products are wrong by
_MARK = 1e10  # larger scores are marks, such as -1e30 of a failed draw, and no sums


def same_sums(scores: np.ndarray) -> float:
    """Relative difference below which sums of scores are one number."""
    # scores that half precision holds exactly were computed in it; others may not even fit
    with np.errstate(over="ignore"):
        halves = scores.astype(np.float16)
    return _SAME_SUMS_OF_HALVES if np.array_equal(halves, scores) else SAME


def middles_below(
    scores: np.ndarray, at: np.ndarray | float | None = None, same: float = SAME
) -> np.ndarray:
    """For each score the middle of the gap below it.

    The scores are those `at`, which are some of all; None: the m finite ones, ascending, so that
    the middles have shape (m,). Below the smallest there is as much room as above it. Scores that
    differ by less than `same`, relatively, are one number.
    """
    ordered = np.sort(scores[np.isfinite(scores)])
    if not len(ordered):
        return ordered
    values = ordered if at is None else np.asarray(at)
    with np.errstate(over="ignore"):
        low = np.searchsorted(ordered, values - _room(ordered, values, same), side="left")
    # the neighbour below the first score stands before all
    one_below = np.concatenate(([_reflected(ordered, same)], ordered))
    neighbours = one_below[low]
    # halves first: a sum of large scores could overflow
    middles = neighbours / 2 + ordered[low] / 2
    # of floats side by side the middle may round to the lower one, which must stay outside
    return np.maximum(middles, np.nextafter(neighbours, np.inf))


def middles_above(scores: np.ndarray, at: np.ndarray | None = None) -> np.ndarray:
    """For each score the middle of the gap above it."""
    if at is not None:
        return -middles_below(-scores, -at)
    return -middles_below(-scores)[::-1]


def first_of_largest(scores: np.ndarray) -> np.ndarray:
    """Place of the largest score of each row, (m,).

    Of several scores that are one number the first counts, whatever their last digits in this
    batch.
    """
    top = scores.max(axis=1)
    room = np.where(np.isfinite(top), SAME * np.abs(top), 0.0)
    return np.argmax(scores >= (top - room)[:, np.newaxis], axis=1)


def room_about_zero(scores: np.ndarray, same: float = SAME) -> float:
    """By how much zeros may differ; 0 where none are."""
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return 0.0
    lowest = float(finite.min())
    highest = float(finite.max())
    if not lowest <= 0.0 <= highest:
        return 0.0
    sizes = np.abs(finite)
    largest = float(sizes[sizes < _MARK].max(initial=0.0))
    return max(same * min(-lowest, highest), _LEFT_OF_LARGEST * largest)


def _room(ordered: np.ndarray, values: np.ndarray, same: float) -> np.ndarray:
    """By how much other numbers differ from each value."""
    return np.maximum(same * np.abs(values), room_about_zero(ordered, same))


def _reflected(ordered: np.ndarray, same: float) -> float:
    """The second smallest number, reflected at the smallest."""
    smallest = float(ordered[0])
    highest = smallest + float(_room(ordered, ordered[:1], same)[0])
    place = np.searchsorted(ordered, highest, side="right")
    # of one number alone nobody knows the distance to the next: as far as it lies from zero
    room = abs(smallest) or 1.0
    if place < len(ordered):
        room = float(ordered[place]) - smallest
    return smallest - room
