"""Sizes of calibrations: what a number of prompts can certify."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, nbinom

from sklearn_clm.calibration import critical_count, smallest_epsilon
from sklearn_clm.calibration.checks import check_error_counts
from sklearn_clm.calibration.rows import size_that_leaves


def chance_to_certify(n: ArrayLike, share: ArrayLike, epsilon: float, delta: float) -> np.ndarray:
    """Probability that n prompts with this error rate certify anything."""
    return np.asarray(binom.cdf(critical_count(np.asarray(n), epsilon, delta), n, share))


def prompts_to_collect(
    share: float, epsilon: float, delta: float, power: float, fraction: float, most: int
) -> int | None:
    """Fewest prompts from which on the power suffices, if any."""
    # no number of prompts certifies a risk below the share of errors
    if share >= epsilon:
        return None
    # the smallest calibration parts with which a test may reject at 0, 1, ... errors: one more
    # prompt than it takes to err that often, with probability 1 - delta
    allowed = np.arange(int(2 * most * epsilon) + 2)
    parts = (allowed + 1 + nbinom.ppf(1.0 - delta, allowed + 1, epsilon)).astype(np.int64)
    # with as many errors allowed, each further prompt lowers the chance
    lowest = binom.cdf(allowed[:-1], parts[1:] - 1, share)
    fails = np.flatnonzero(lowest < power)
    part = int(parts[fails[-1] + 1 if len(fails) else 0])
    total = size_that_leaves(part, fraction) if fraction else part
    return total if total <= most else None


def first_k_errors(admissible: ArrayLike) -> np.ndarray:
    """Prompts without an admissible response in 1, 2, ... draws."""
    admitted = np.logical_or.accumulate(np.asarray(admissible, dtype=bool), axis=1)
    return np.count_nonzero(~admitted, axis=0)


def smallest_epsilons(
    n_errors: int, n: int, sizes: Sequence[int] | np.ndarray, delta: float
) -> np.ndarray:
    """Smallest epsilon of other sizes, at the same error rate.

    Parameters
    ----------
    n_errors, n : int
        Errors of accepting every draw, among n prompts.
    sizes : sequence of int
        Prompts in the calibration part.
    delta : float
        Level of the tests, in (0, 1).

    Returns
    -------
    ndarray of float
        One epsilon for each size; errors are rounded up to whole prompts.

    Examples
    --------
    >>> from sklearn_clm.evaluation import smallest_epsilons
    >>> smallest_epsilons(30, 300, [100, 300, 3000], 0.05).round(3)
    array([0.164, 0.133, 0.109])
    """
    check_error_counts(n_errors, n)
    sizes = np.asarray(sizes, dtype=np.int64)
    # in integers: a rounded share would at times count one error more
    return np.asarray(smallest_epsilon(-(-sizes * n_errors // n), sizes, delta))


def chance_of_null(n_errors: int, n: int, epsilon: float, delta: float) -> float:
    """Probability that another calibration of this size certifies nothing.

    Parameters
    ----------
    n_errors, n : int
        Errors of the safest configuration, among n calibration prompts.
    epsilon, delta : float
        Tolerated risk and level of the tests, in (0, 1).

    Returns
    -------
    float
        The probability, if the share of errors is what was observed.

    Examples
    --------
    >>> from sklearn_clm.evaluation import chance_of_null
    >>> round(chance_of_null(30, 300, 0.15, 0.05), 3)
    0.191
    """
    check_error_counts(n_errors, n)
    return 1.0 - float(chance_to_certify(n, n_errors / n, epsilon, delta))
