"""Levels of risk for two promises about runs.

Let M be the largest risk that is predicted over the prefixes of a run. The rule at level t stops a
run at the first prefix of risk >= t, so that it stops the runs with M >= t, and those stopped at a
higher level are among those stopped at a lower one.

*Keeps: of the runs that would succeed at most alpha are stopped.* Given the learnt risk, the n1
calibration runs that succeed are independent draws from the runs that would. Let c be the critical
count of n1 and w the (c + 1)-th largest M among them. Every level t > w holds, wherever it stands:
let g be the supremum of the levels at which more than alpha of the runs that would succeed are
stopped. P(M >= g) >= alpha for them, and > if g itself is such a level. If t is one, then
w < t <= g, and at most c of the n1 runs have M >= g: an event of probability at most
P(Bin(n1, alpha) <= c) <= delta. So one level is calibrated, without a sequence of tests, and it
stands in the gap above w.

*Passes: of the runs that are let through at most alpha fail.* The share of failures among those let
through need not fall with the level, so that the levels are tested in a fixed sequence. They come
from the optimisation part, out-of-fold, and so does the start, the level of the greatest chance to
pass; then come less selective ones, up to the first that fails. At a level fixed beforehand m
calibration runs are let through, and of these Bin(m, share) fail, given m.
"""

from dataclasses import dataclass

import numpy as np

from sklearn_clm.calibration import critical_count
from sklearn_clm.calibration._answer import chances_to_pass
from sklearn_clm.calibration._between import middles_above, middles_below
from sklearn_clm.calibration.certify import count_passed, nth_largest

_N_LEVELS = 60
_NEARLY = 0.95  # of the greatest chance to pass


@dataclass(frozen=True)
class Level:
    """A level, and what the calibration runs say of it.

    Of `n` runs that count `n_errors` are errors: those that succeed and are stopped, or those that
    are let through and fail. `level` is +inf or -inf where nothing is certified.
    """

    level: float
    n: int
    n_errors: int
    certified: bool


def level_that_keeps(
    largest_risks: np.ndarray, succeeded: np.ndarray, alpha: float, delta: float
) -> Level:
    """The lowest level that keeps the successes.

    `largest_risks` are the M of n calibration runs, and `succeeded` whether they succeed.
    """
    of_successes = largest_risks[succeeded]
    n = len(of_successes)
    allowed = int(critical_count(n, alpha, delta)) if n else -1
    if allowed < 0:
        return Level(np.inf, n, 0, False)
    highest_kept = nth_largest(of_successes, allowed + 1)
    (between,) = middles_above(largest_risks, np.array([highest_kept]))
    level = max(float(between), float(np.nextafter(highest_kept, np.inf)))
    return Level(level, n, int(np.sum(of_successes >= level)), True)


def level_that_passes(
    levels: np.ndarray,
    start: int,
    largest_risks: np.ndarray,
    succeeded: np.ndarray,
    alpha: float,
    delta: float,
) -> Level:
    """The last level at which few failures pass.

    `levels` ascend, and the tests begin at position `start`; both were fixed before.
    """

    def counts(step: int) -> tuple[int, int]:
        passing = largest_risks < levels[start + step]
        return int(passing.sum()), int(np.sum(passing & ~succeeded))

    def passes(step: int) -> bool:
        n, n_failed = counts(step)
        return n > 0 and n_failed <= critical_count(n, alpha, delta)

    n_passed = count_passed(passes, len(levels) - start)
    if n_passed == 0:
        return Level(-np.inf, *counts(0), False)
    return Level(float(levels[start + n_passed - 1]), *counts(n_passed - 1), True)


def levels_to_test(largest_risks: np.ndarray) -> np.ndarray:
    """Ascending levels between the M of other runs."""
    ordered = np.sort(largest_risks)
    chosen = np.linspace(0, len(ordered) - 1, min(_N_LEVELS, len(ordered)))
    between = middles_below(largest_risks, ordered[chosen.astype(np.intp)])
    # +inf stops nothing
    return np.append(np.unique(between)[1:], np.inf)


def start_of(
    levels: np.ndarray,
    largest_risks: np.ndarray,
    succeeded: np.ndarray,
    n: int,
    alpha: float,
    delta: float,
) -> int:
    """A level of nearly the greatest chance to pass.

    Of those the least selective: its chance is estimated from the most runs.
    """
    passing = largest_risks[:, np.newaxis] < levels
    n_seen = len(largest_risks)
    n_failed = np.sum(passing & ~succeeded[:, np.newaxis], axis=0)
    shares = passing.mean(axis=0)
    risks = (n_failed + 0.5) / (passing.sum(axis=0) + 1.0)
    chances = chances_to_pass(shares, risks, n_seen, n, alpha, delta)
    return int(np.flatnonzero(chances >= _NEARLY * chances.max())[-1])
