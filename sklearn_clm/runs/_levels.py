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

import numpy as np

from sklearn_clm.calibration import Claim, critical_count, fixed_sequence_test
from sklearn_clm.calibration.answer import chances_to_pass
from sklearn_clm.calibration.between import middles_above, middles_below
from sklearn_clm.calibration.certify import nth_largest
from sklearn_clm.calibration.tests import step_p_values

_N_LEVELS = 60  # quantiles of M that are levels to test
_NEARLY = 0.95  # of the greatest chance to pass


def keeping_level(of_successes: np.ndarray, largest_risks: np.ndarray, claim: Claim) -> float:
    """The lowest level that keeps the successes.

    `of_successes` are the M of the n1 calibration runs that succeed, enough for the claim; the
    level stands in a gap of all `largest_risks`.
    """
    allowed = critical_count(len(of_successes), claim.level, claim.delta)
    highest_kept = nth_largest(of_successes, allowed + 1)
    (between,) = middles_above(largest_risks, np.array([highest_kept]))
    # above w in any case, however the middle is rounded
    return max(float(between), float(np.nextafter(highest_kept, np.inf)))


def levels_to_test(
    largest_risks: np.ndarray, succeeded: np.ndarray, n: int, claim: Claim
) -> np.ndarray:
    """Ascending levels to test, by other runs.

    `largest_risks` are the M of these runs, and n calibration runs will test. The first level is
    the least selective one of nearly the greatest chance to pass: its chance is estimated from the
    most runs. The last level stops nothing.
    """
    shares = np.linspace(0.0, 1.0, _N_LEVELS)
    quantiles = np.quantile(largest_risks, shares, method="lower")
    between = np.unique(middles_below(largest_risks, quantiles))
    # below the smallest M every run is stopped, which lets through nobody to test
    levels = np.append(between[1:], np.inf)
    n_passing, n_failed = let_through(levels, largest_risks, succeeded)
    n_seen = len(largest_risks)
    risks = (n_failed + 0.5) / (n_passing + 1.0)  # never 0: few runs do not prove a certainty
    chances = chances_to_pass(n_passing / n_seen, risks, n_seen, n, claim.level, claim.delta)
    start = np.flatnonzero(chances >= _NEARLY * chances.max())[-1]
    return levels[start:]


def passing_level(
    levels: np.ndarray, largest_risks: np.ndarray, succeeded: np.ndarray, claim: Claim
) -> float:
    """The last of ascending levels that passes.

    Where the first one fails, -inf stands for none.
    """
    n_passing, n_failed = let_through(levels, largest_risks, succeeded)
    p_values = step_p_values(n_failed, n_passing, claim.level)
    n_passed = fixed_sequence_test(p_values, claim.delta).sum()
    return float(np.append(-np.inf, levels)[n_passed])


def let_through(
    levels: np.ndarray, largest_risks: np.ndarray, succeeded: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Runs let through by each level, and failures among them."""
    passing = largest_risks[:, np.newaxis] < levels
    return passing.sum(axis=0), passing[~succeeded].sum(axis=0)
