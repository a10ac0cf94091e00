"""Losses and costs of many configurations on the same prompts."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._arrays import as_array
from sklearn_clm.calibration._data import CalibrationData, check_data
from sklearn_clm.calibration._engine import Pairs, sum_over_prompts
from sklearn_clm.calibration._set_scores import SetScore, SetScoreLike, get_set_score


class Weights(TypedDict):
    """Prices of Eq. 7: of a member of the set, of relative excess, and of a draw."""

    size_weight: float
    excess_weight: float
    draw_weight: float


@dataclass(frozen=True)
class ConfigurationRisks:
    """Losses and costs of configurations, as means over the prompts.

    The arrays have one entry for each of a list of configurations, or one axis for each threshold
    of a grid. `n_errors` counts prompts whose set holds no admissible response, and `loss` is their
    share; `size` is the mean set size at the stop, `samples` the mean number of draws, rejected
    ones included, and `excess` the mean share of draws taken after the first admissible one.
    """

    n_errors: np.ndarray
    loss: np.ndarray
    size: np.ndarray
    samples: np.ndarray
    excess: np.ndarray

    def objective(
        self, size_weight: float = 0.5, excess_weight: float = 0.5, draw_weight: float = 0.0
    ) -> np.ndarray:
        """Objective of Eq. 7, of each configuration, plus a price for each draw."""
        objective = size_weight * self.size + excess_weight * self.excess
        return objective + draw_weight * self.samples if draw_weight else objective


def risk_surface(
    data: CalibrationData,
    similarity_thresholds: ArrayLike,
    quality_thresholds: ArrayLike,
    set_score_thresholds: ArrayLike,
    *,
    set_score: SetScoreLike,
) -> ConfigurationRisks:
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

    Returns
    -------
    ConfigurationRisks
        `loss`, `size`, `samples`, `excess` and `n_errors`, of shape (L1, L2, L3).

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
    given = {
        "similarity_thresholds": similarity_thresholds,
        "quality_thresholds": quality_thresholds,
        "set_score_thresholds": set_score_thresholds,
    }
    for name, thresholds in given.items():
        if not as_array(thresholds, name, (None,)).size:
            raise ValueError(f"{name} must hold a threshold, got none instead.")
    (l1, a), (l2, b), (l3, c) = (np.unique(one, return_inverse=True) for one in given.values())
    budgets = np.array([data.k_max])
    risks = evaluate_grid(data, l1, l2, l3, get_set_score(set_score), budgets)
    asked = np.ix_(a, b, c)
    return ConfigurationRisks(**{name: x[:, :, 0][asked] for name, x in vars(risks).items()})


def evaluate_configurations(
    data: CalibrationData,
    lambdas: ArrayLike,
    *,
    set_score: SetScoreLike,
    k_max: ArrayLike | None = None,
) -> ConfigurationRisks:
    """Losses and costs of Algorithm 1 for configurations `lambdas`, of shape (m, 3).

    `k_max` gives one budget, or that of each configuration; None is ``data.k_max``. They are read
    off the sets of their own pairs (l1, l2), with all their l3 and budgets.
    """
    check_data(data)
    configurations = np.asarray(lambdas, dtype=np.float64)
    budget_of = np.broadcast_to(data.k_max if k_max is None else k_max, len(configurations))
    l1, a = np.unique(configurations[:, 0], return_inverse=True)
    l2, b = np.unique(configurations[:, 1], return_inverse=True)
    l3, c = np.unique(configurations[:, 2], return_inverse=True)
    budgets, k = np.unique(budget_of, return_inverse=True)
    codes, pair = np.unique(a * len(l2) + b, return_inverse=True)
    pairs = Pairs(l1, l2, codes // len(l2), codes % len(l2))
    totals, unit = sum_over_prompts(data, pairs, l3, get_set_score(set_score), budgets)
    return _means(totals[:, pair, k, c], unit, data.n_prompts)


def evaluate_grid(
    data: CalibrationData,
    l1: np.ndarray,
    l2: np.ndarray,
    l3: np.ndarray,
    set_score: SetScore,
    budgets: np.ndarray,
) -> ConfigurationRisks:
    """Means on the grid of ascending thresholds and budgets: (L1, L2, budgets, L3)."""
    pairs = Pairs.of_grid(l1, l2)
    totals, unit = sum_over_prompts(data, pairs, l3, set_score, budgets)
    in_grid = np.arange(len(pairs)).reshape(len(l2), len(l1)).T
    return _means(totals[:, in_grid], unit, data.n_prompts)


def _means(totals: np.ndarray, unit: int, n: int) -> ConfigurationRisks:
    n_errors, size, samples, excess = totals
    return ConfigurationRisks(n_errors, n_errors / n, size / n, samples / n, excess / unit / n)
