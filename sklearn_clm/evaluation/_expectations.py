"""What one calibration can be expected to do: intervals, null calibrations, larger samples."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    SamplingRule,
    SetScore,
    binomial_p_value,
    critical_count,
    get_set_score,
    relative_excess,
    smallest_epsilon,
)


class RuleOutcomes(NamedTuple):
    """Outcomes of one configuration for n prompts: arrays of shape (n,), draws made included.

    `exhausted` says whether the whole budget was drawn without reaching the set score to stop at.
    """

    error: np.ndarray
    size: np.ndarray
    draws: np.ndarray
    excess: np.ndarray
    exhausted: np.ndarray


def rule_outcomes(
    data: CalibrationData,
    configuration: Configuration | None,
    set_score: str | Callable[..., float] | SetScore = "max",
    k_max: int | None = None,
) -> RuleOutcomes:
    """Run one configuration draw by draw on every prompt; None accepts the whole budget."""
    n, width = data.n_prompts, data.k_max
    k_max = width if k_max is None else k_max
    score = get_set_score(set_score)
    thresholds = Configuration(math.inf, -math.inf, math.inf)
    outcomes = []
    for i in range(n):
        rule = SamplingRule(configuration or thresholds, score, k_max, width=width)
        quality, similarity = data.quality[i].tolist(), np.asarray(data.similarity[i]).tolist()
        while not rule.done:
            rule.update(quality[rule.n_samples], similarity[rule.n_samples])
        error = not data.admissible[i, rule.accepted].any()
        outcomes.append((error, len(rule.accepted), rule.n_samples, not rule.stopped))
    error, size, draws, exhausted = np.array(outcomes, dtype=np.int64).T
    admissible = data.admissible[:, :k_max]
    first = np.where(admissible.any(axis=1), admissible.argmax(axis=1) + 1, 0)
    excess = relative_excess(draws, first)
    return RuleOutcomes(error.astype(bool), size, draws, excess, exhausted.astype(bool))


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
