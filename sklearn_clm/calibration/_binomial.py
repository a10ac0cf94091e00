"""The exact binomial test (section 4.3), and certified levels."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincc, betainccinv

from sklearn_clm.calibration.checks import (
    IntegerArray,
    check_error_counts,
    check_level,
    check_probability,
)
from sklearn_clm.calibration.rows import size_that_leaves


def binomial_p_value(n_errors: IntegerArray, n: IntegerArray, epsilon: ArrayLike) -> Any:
    """P-value of a risk above epsilon, by the binomial tail.

    ``P(Binom(n, epsilon) <= n_errors)``, for `n_errors` among `n` independent prompts. It is
    super-uniform where the true error probability exceeds epsilon, in (0, 1). Numbers and arrays
    broadcast against each other.

    Examples
    --------
    >>> from sklearn_clm.calibration import binomial_p_value
    >>> binomial_p_value(0, 2, 0.5)
    0.25
    >>> binomial_p_value([20, 30], 100, 0.3).round(3)
    array([0.016, 0.549])
    """
    counts, totals = check_error_counts(n_errors, n)
    p_value = _tail(counts, totals, check_probability(epsilon, "epsilon"))
    return float(p_value) if p_value.ndim == 0 else p_value


def _tail(counts: np.ndarray, totals: np.ndarray, risk: np.ndarray) -> np.ndarray:
    """P(Binom(n, risk) <= count)."""
    # the complement of I_risk(k + 1, n - k), so that 1 - risk is never rounded; a = 0 is outside
    # betaincc's domain, and k = n has probability one
    below = betaincc(counts + 1.0, np.maximum(totals - counts, 1), risk)
    return np.where(counts == totals, 1.0, below)


def smallest_epsilon(n_errors: IntegerArray, n: IntegerArray, delta: ArrayLike) -> Any:
    """Smallest risk that the data exclude: the upper Clopper-Pearson limit.

    The smallest epsilon with ``binomial_p_value(n_errors, n, epsilon) <= delta`` as computed; 1.0
    where every prompt was an error.

    Examples
    --------
    >>> from sklearn_clm.calibration import binomial_p_value, smallest_epsilon
    >>> epsilon = smallest_epsilon(20, 100, 0.05)
    >>> round(epsilon, 3)
    0.277
    >>> binomial_p_value(20, 100, epsilon) <= 0.05
    True
    """
    counts, totals = check_error_counts(n_errors, n)
    level = check_probability(delta, "delta")
    limit = betainccinv(counts + 1.0, np.maximum(totals - counts, 1), level)
    limit = np.where(counts == totals, 1.0, limit)  # nothing is excluded
    # the inverse is right up to rounding: step upwards until the test agrees with it
    step = 2.0**-52
    while True:
        too_low = (limit < 1.0) & (_tail(counts, totals, limit) > level)
        if not np.any(too_low):
            return float(limit) if limit.ndim == 0 else limit
        higher = np.minimum(limit * (1.0 + step), 1.0)
        limit = np.where(too_low, higher, limit)
        step *= 2.0


def smallest_level(certified: Callable[[float], bool]) -> float:
    """Smallest certified risk, rounded up to 1e-5; 1.0 without one.

    It is for tests without a closed form such as :func:`smallest_epsilon`.
    """
    # bisection keeps `high` certified, so that rounding never claims too much
    low = 0.0
    high = 1.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        if certified(middle):
            high = middle
        else:
            low = middle
    return high


def critical_count(n: IntegerArray, epsilon: ArrayLike, delta: ArrayLike) -> Any:
    """Largest number of errors at which the test still rejects.

    ``max{e : binomial_p_value(e, n, epsilon) <= delta}``; -1 where not even zero errors pass.
    P-values rise with the errors, so a comparison of counts decides as one of p-values does.

    Examples
    --------
    >>> from sklearn_clm.calibration import critical_count
    >>> critical_count(100, 0.3, 0.05)
    22
    >>> critical_count([5, 50, 500], 0.1, 0.05)
    array([-1,  1, 38])
    """
    _, totals = check_error_counts(0, n)
    risk = check_probability(epsilon, "epsilon")
    level = check_probability(delta, "delta")
    if totals.ndim == risk.ndim == level.ndim == 0:  # asked for again and again
        return _count_of_one(int(totals), float(risk), float(level))
    return _largest_that_passes(*np.broadcast_arrays(totals, risk, level))


def _largest_that_passes(totals: np.ndarray, risk: np.ndarray, level: np.ndarray) -> np.ndarray:
    """The critical counts of arrays of one shape."""
    # bisection: `passes` passes (or is -1), `fails` does not (n errors have p-value 1)
    passes = np.full(totals.shape, -1)
    fails = totals.astype(np.int64)
    while np.any(fails - passes > 1):
        middle = (passes + fails) // 2
        rejected = (middle < 0) | (_tail(np.maximum(middle, 0), totals, risk) <= level)
        passes = np.where(rejected, middle, passes)
        fails = np.where(rejected, fails, middle)
    return passes


@functools.lru_cache(maxsize=4096)
def _count_of_one(n: int, epsilon: float, delta: float) -> int:
    return int(_largest_that_passes(*map(np.asarray, (n, epsilon, delta))))


def marginal_count(n: int, epsilon: float) -> int:
    """Largest number of errors that a marginal level allows.

    It is floor((n + 1) epsilon) - 1. Quotients are compared, not products: the float 0.29 is that
    nearest to 29 / 100, whereas 100 * 0.29 is below 29. So (c + 1) / (n + 1), as computed, is the
    smallest epsilon that allows c errors.
    """
    quotients = np.arange(1, n + 2) / (n + 1)
    return int(np.sum(quotients <= epsilon)) - 1


def clopper_pearson(
    n_errors: IntegerArray, n: IntegerArray, confidence: float = 0.95
) -> tuple[Any, Any]:
    """Exact two-sided confidence interval for the probability of an error.

    Each limit is missed with probability at most ``(1 - confidence) / 2``.

    Examples
    --------
    >>> from sklearn_clm.calibration import clopper_pearson
    >>> low, high = clopper_pearson(20, 100)
    >>> round(low, 3), round(high, 3)
    (0.127, 0.292)
    """
    tail = (1.0 - check_probability(confidence, "confidence")) / 2.0
    counts, totals = check_error_counts(n_errors, n)
    # the errors' lower limit is one minus the upper limit of the successes
    high = smallest_epsilon(counts, totals, tail)
    low = 1.0 - smallest_epsilon(totals - counts, totals, tail)
    return low, high


def prompts_needed(epsilon: float, delta: float, optimization_fraction: float = 0.0) -> int:
    """Smallest number of prompts with which anything can be certified.

    With so many prompts zero errors have a p-value of at most `delta`, at a tolerated risk
    `epsilon`, both in (0, 1), where a share of `optimization_fraction`, in [0, 1), is not used for
    the tests.
    """
    epsilon = check_level(epsilon, "epsilon")
    delta = check_level(delta, "delta")
    # the p-value of no error is (1 - epsilon)^n; begin one below what logarithms, which may be
    # rounded upwards, say
    by_logarithms = math.ceil(math.log(delta) / math.log1p(-epsilon))
    n = max(1, by_logarithms - 1)
    while binomial_p_value(0, n, epsilon) > delta:
        n += 1
    return size_that_leaves(n, optimization_fraction) if optimization_fraction else n


def marginal_prompts_needed(epsilon: float) -> int:
    """Smallest number of prompts that can certify a marginal level."""
    # (n + 1) epsilon >= 1; begun one below what the quotient says, which may be rounded upwards
    n = max(1, math.ceil(1.0 / epsilon) - 2)
    while marginal_count(n, epsilon) < 0:
        n += 1
    return n
