"""Losses and costs of many configurations on the same prompts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._data import CalibrationData, check_data
from sklearn_clm.calibration._engine._acceptance import Pairs
from sklearn_clm.calibration._engine._sums import Sums, sum_over_prompts
from sklearn_clm.calibration._set_scores import SetScore, SetScoreLike, get_set_score

# a list of configurations is read off the grid that it spans, unless that is larger than this
_MAX_CELLS = 2**16


class Weights(TypedDict):
    """Prices of Eq. 7: of a member of the set, of relative excess, and of a draw."""

    size_weight: float
    excess_weight: float
    draw_weight: float


@dataclass(frozen=True)
class ConfigurationRisks:
    """Losses and costs of m configurations, as means over the prompts.

    `n_errors` counts prompts whose set holds no admissible response, and `loss` is their share;
    `size` is the mean set size at the stop, `samples` the mean number of draws, rejected ones
    included, and `excess` the mean share of draws taken after the first admissible one.
    """

    n_errors: np.ndarray
    loss: np.ndarray
    size: np.ndarray
    samples: np.ndarray
    excess: np.ndarray
    n_prompts: int

    def objective(
        self, size_weight: float = 0.5, excess_weight: float = 0.5, draw_weight: float = 0.0
    ) -> np.ndarray:
        """Objective of Eq. 7, of each configuration, plus a price for each draw."""
        objective = size_weight * self.size + excess_weight * self.excess
        return objective + draw_weight * self.samples if draw_weight else objective


@dataclass(frozen=True)
class RiskSurface(ConfigurationRisks):
    """Losses and costs on a grid: the arrays have one axis for each threshold, (L1, L2, L3)."""

    similarity_thresholds: np.ndarray
    quality_thresholds: np.ndarray
    set_score_thresholds: np.ndarray


def risk_surface(
    data: CalibrationData,
    similarity_thresholds: ArrayLike,
    quality_thresholds: ArrayLike,
    set_score_thresholds: ArrayLike,
    *,
    set_score: SetScoreLike,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> RiskSurface:
    """Loss, size, draws and excess of Algorithm 1 on a whole grid of thresholds.

    Parameters
    ----------
    data : CalibrationData
        The prompts.
    similarity_thresholds, quality_thresholds, set_score_thresholds : array-like
        Values of lambda_1, lambda_2 and lambda_3, in any order; -inf and +inf are allowed, NaN
        is not. Shapes (L1,), (L2,), (L3,).
    set_score : str, callable or SetScore
        The set function F.
    n_jobs : int or None, default=None
        Number of processes, as in joblib: None is 1 unless in a :obj:`joblib.parallel_config`
        context, -1 one per processor. Small data stay in one. The result does not depend on it.
    verbose : int, default=0
        Whether a set score that must be called set by set shows a progress bar.

    Returns
    -------
    RiskSurface
        Means over the prompts, and the integer numbers of errors, of shape (L1, L2, L3).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, risk_surface
    >>> rng = np.random.default_rng(0)
    >>> data = CalibrationData(
    ...     rng.random((50, 4)), rng.random((50, 4, 4)), rng.random((50, 4)) < 0.4
    ... )
    >>> surface = risk_surface(data, [0.5, np.inf], [0.2], [0.5, 1.0, 1.5], set_score="sum")
    >>> surface.loss.shape
    (2, 1, 3)
    >>> surface.n_errors[1, 0]
    array([25, 10,  6])
    """
    check_data(data)
    score = get_set_score(set_score)
    given = [
        _check_thresholds(values, name)
        for values, name in (
            (similarity_thresholds, "similarity_thresholds"),
            (quality_thresholds, "quality_thresholds"),
            (set_score_thresholds, "set_score_thresholds"),
        )
    ]
    (l1, back1), (l2, back2), (l3, back3) = (np.unique(t, return_inverse=True) for t in given)
    budgets = np.array([data.k_max])
    risks = sum_over_grid(data, l1, l2, l3, score, budgets, n_jobs, verbose)
    at = np.ix_(back1, back2, back3)
    return RiskSurface(
        risks.n_errors[:, :, 0][at],
        risks.loss[:, :, 0][at],
        risks.size[:, :, 0][at],
        risks.samples[:, :, 0][at],
        risks.excess[:, :, 0][at],
        data.n_prompts,
        *given,
    )


def evaluate_configurations(
    data: CalibrationData,
    lambdas: ArrayLike,
    *,
    set_score: SetScoreLike,
    k_max: ArrayLike | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ConfigurationRisks:
    """Losses and costs of Algorithm 1 for configurations `lambdas`, of shape (m, 3).

    `k_max` gives one budget, or that of each configuration; None is ``data.k_max``.
    """
    check_data(data)
    score = get_set_score(set_score)
    configurations = np.asarray(lambdas, dtype=np.float64)
    m, n = len(configurations), data.n_prompts
    budgets_of = np.asarray(data.k_max if k_max is None else k_max)
    budgets = np.broadcast_to(budgets_of, m)
    totals, unit = np.zeros((4, m), dtype=np.int64), 1
    for i in _batches(configurations, budgets, np.lexsort(configurations.T)):
        sums = _sums_of_list(data, configurations[i], budgets[i], score, n_jobs, verbose)
        totals[:, i], unit = sums[:4], sums.unit
    return _means(Sums._make((*totals, unit)), n)


def _batches(
    configurations: np.ndarray, k_max: np.ndarray, order: np.ndarray
) -> Iterator[np.ndarray]:
    """Positions, in batches that are not much smaller than the grids that they span."""
    if not len(order):
        return
    chosen = configurations[order]
    n_pairs, n_l3 = len(np.unique(chosen[:, :2], axis=0)), len(np.unique(chosen[:, 2]))
    cells = n_pairs * n_l3 * len(np.unique(k_max[order]))
    if len(order) == 1 or cells <= max(_MAX_CELLS, 4 * len(order)):
        yield order
    else:
        # the order is that of l3, so that the halves have few of them in common
        middle = len(order) // 2
        yield from _batches(configurations, k_max, order[:middle])
        yield from _batches(configurations, k_max, order[middle:])


def _sums_of_list(
    data: CalibrationData,
    configurations: np.ndarray,
    k_max: np.ndarray,
    set_score: SetScore,
    n_jobs: int | None,
    verbose: int,
) -> Sums:
    l1, a = np.unique(configurations[:, 0], return_inverse=True)
    l2, b = np.unique(configurations[:, 1], return_inverse=True)
    l3, c = np.unique(configurations[:, 2], return_inverse=True)
    budgets, k = np.unique(k_max, return_inverse=True)
    codes, pair = np.unique(a * len(l2) + b, return_inverse=True)
    pairs = Pairs(codes // len(l2), codes % len(l2), grid=False)
    sums = sum_over_prompts(data, l1, l2, pairs, l3, set_score, budgets, n_jobs, verbose)
    return sums.at((pair, k, c))


def sum_over_grid(
    data: CalibrationData,
    l1: np.ndarray,
    l2: np.ndarray,
    l3: np.ndarray,
    set_score: SetScore,
    budgets: np.ndarray,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ConfigurationRisks:
    """Means on the grid of ascending thresholds and budgets: (L1, L2, budgets, L3)."""
    sums = sum_over_prompts(
        data, l1, l2, Pairs.of_grid(len(l1), len(l2)), l3, set_score, budgets, n_jobs, verbose
    )
    in_grid = np.arange(len(l1) * len(l2)).reshape(len(l2), len(l1)).T
    return _means(sums.at(in_grid), data.n_prompts)


def _means(sums: Sums, n: int) -> ConfigurationRisks:
    return ConfigurationRisks(
        sums.n_errors,
        sums.n_errors / n,
        sums.size / n,
        sums.samples / n,
        sums.excess / sums.unit / n,
        n,
    )


def _check_thresholds(values: ArrayLike, name: str) -> np.ndarray:
    try:
        thresholds = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, got {values!r}.") from None
    if thresholds.ndim != 1 or not len(thresholds):
        raise ValueError(
            f"{name} must be one-dimensional and not empty, got shape {thresholds.shape}."
        )
    if np.isnan(thresholds).any():
        raise ValueError(f"{name} must not be NaN.")
    return thresholds
