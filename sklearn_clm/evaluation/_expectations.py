"""What one calibration can be expected to do: intervals, chances of failure, larger samples."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from sklearn_clm.calibration import binomial_p_value, critical_count, smallest_epsilon


def first_k_errors(admissible: ArrayLike) -> np.ndarray:
    """Counts of prompts none of whose first 1, 2, ... draws is admissible."""
    admitted = np.logical_or.accumulate(np.asarray(admissible, dtype=bool), axis=1)
    return np.count_nonzero(~admitted, axis=0)


def smallest_epsilons(
    n_errors: int, n: int, sizes: Sequence[int] | np.ndarray, delta: float
) -> np.ndarray:
    """Smallest epsilon that calibration parts of other sizes certify at the same error rate.

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
    critical = critical_count(n, epsilon, delta)
    if critical < 0:
        return 1.0
    if n_errors in (0, n):
        return float(n_errors > critical)
    return 1.0 - float(binomial_p_value(critical, n, n_errors / n))


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean of independent values, and the ends of its normal interval."""
    mean = float(np.mean(values))
    half = float(ndtri(0.5 + confidence / 2) * np.std(values) / math.sqrt(len(values)))
    return mean, mean - half, mean + half
