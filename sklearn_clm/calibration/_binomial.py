"""Binomial tail p-values (section 4.3) and their inverse."""

import math
from typing import Any

import numpy as np
from scipy.special import betaincc, betainccinv

__all__ = ["binomial_p_value", "check_probability", "prompts_needed", "smallest_epsilon"]


def check_probability(value: Any, name: str) -> np.ndarray:
    """`value` as float64 array, all of it strictly between 0 and 1."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number in (0, 1), got {value!r}.") from None
    # the negated comparison catches NaN as well
    if not np.all((array > 0.0) & (array < 1.0)):
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}.")
    return array


def _check_counts(n_errors: Any, n: Any) -> tuple[np.ndarray, np.ndarray]:
    counts, totals = np.asarray(n_errors), np.asarray(n)
    for array, name in ((counts, "n_errors"), (totals, "n")):
        if array.dtype.kind not in "iu":
            raise TypeError(
                f"{name} must be integers, got dtype {array.dtype}: a p-value is computed from "
                "exact counts, not from a mean."
            )
    if np.any(totals < 1):
        raise ValueError(f"n must be at least 1, got {n!r}.")
    if np.any(counts < 0) or np.any(counts > totals):
        raise ValueError(f"n_errors must lie between 0 and n, got {n_errors!r} with n={n!r}.")
    return counts, totals


def binomial_p_value(n_errors: Any, n: Any, epsilon: Any) -> Any:
    """P-value of the hypothesis that the risk exceeds epsilon (the binomial tail bound).

    ``P(Binom(n, epsilon) <= n_errors)``, which is super-uniform where the true error probability
    exceeds epsilon. The arguments broadcast against each other.

    Parameters
    ----------
    n_errors : int or array of int
        Observed errors, 0 to n.
    n : int or array of int
        Number of independent prompts, >= 1.
    epsilon : float or array of float
        Tolerated risk, in (0, 1).

    Returns
    -------
    float or ndarray
        The p-values, in [0, 1].

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If a count or epsilon is out of range.

    Examples
    --------
    >>> from sklearn_clm.calibration import binomial_p_value
    >>> binomial_p_value(0, 2, 0.5)
    0.25
    >>> binomial_p_value([20, 30], 100, 0.3).round(3)
    array([0.016, 0.549])
    """
    counts, totals = _check_counts(n_errors, n)
    risk = check_probability(epsilon, "epsilon")
    # the complement of I_eps(k + 1, n - k), so that 1 - epsilon is never rounded; a = 0 is
    # outside betaincc's domain, and k = n has probability one
    p_value = np.where(
        counts == totals, 1.0, betaincc(counts + 1.0, np.maximum(totals - counts, 1), risk)
    )
    return float(p_value) if p_value.ndim == 0 else p_value


def smallest_epsilon(n_errors: Any, n: Any, delta: Any) -> Any:
    """Smallest risk that the data exclude: the upper Clopper-Pearson limit.

    Parameters
    ----------
    n_errors : int or array of int
        Observed errors, 0 to n.
    n : int or array of int
        Number of independent prompts, >= 1.
    delta : float or array of float
        Level of the test, in (0, 1).

    Returns
    -------
    float or ndarray
        The smallest epsilon with ``binomial_p_value(n_errors, n, epsilon) <= delta``, rounded
        upwards so that the inequality holds as computed; 1.0 where no epsilon below one has it
        (every prompt was an error).

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If a count or delta is out of range.

    Examples
    --------
    >>> from sklearn_clm.calibration import binomial_p_value, smallest_epsilon
    >>> epsilon = smallest_epsilon(20, 100, 0.05)
    >>> round(epsilon, 3)
    0.277
    >>> binomial_p_value(20, 100, epsilon) <= 0.05
    True
    """
    counts, totals = _check_counts(n_errors, n)
    level = check_probability(delta, "delta")
    arrays = np.broadcast_arrays(counts, totals, level)
    shape = arrays[0].shape
    counts, totals, level = (array.reshape(-1) for array in arrays)
    limit = betainccinv(counts + 1.0, np.maximum(totals - counts, 1), level)
    limit = np.where(counts == totals, 1.0, limit)
    # the inverse is right up to rounding: step upwards until the test agrees with it
    step = 2.0**-52
    while True:
        below_one = np.flatnonzero(limit < 1.0)
        p_values = binomial_p_value(counts[below_one], totals[below_one], limit[below_one])
        short = below_one[p_values > level[below_one]]
        if not short.size:
            break
        limit[short] = np.minimum(limit[short] * (1.0 + step), 1.0)
        step *= 2.0
    return float(limit[0]) if shape == () else limit.reshape(shape)


def prompts_needed(epsilon: float, delta: float) -> int:
    """Smallest n for which zero errors give a p-value of at most delta."""
    n = max(1, math.ceil(math.log(delta) / math.log1p(-epsilon)))
    # the logarithms may be off by one rounding either way
    while n > 1 and binomial_p_value(0, n - 1, epsilon) <= delta:
        n -= 1
    while binomial_p_value(0, n, epsilon) > delta:
        n += 1
    return n
