"""Losses and costs of many configurations on the same prompts."""

from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._engine import Pairs, sum_over_prompts
from sklearn_clm.calibration._set_scores import SetScoreLike, get_set_score
from sklearn_clm.calibration.checks import as_array
from sklearn_clm.calibration.data import CalibrationData, check_data
from sklearn_clm.calibration.risk import MISSES, Risk


class Weights(TypedDict):
    """Prices of size, relative excess and draws (Eq. 7)."""

    size_weight: float
    excess_weight: float
    draw_weight: float


@dataclass(frozen=True)
class ConfigurationRisks:
    """Losses and costs of configurations, as means over the prompts.

    The arrays have one entry for each of a list of configurations, or one axis for each threshold
    of a grid. `n_errors` counts prompts whose set holds no admissible response, and `loss` is their
    share; `size` is the mean number of texts in the set at the stop (of draws, where texts are not
    known), `samples` the mean number of draws, rejected
    ones included, and `excess` the mean share of draws taken after the first admissible one.
    """

    n_errors: np.ndarray
    loss: np.ndarray
    size: np.ndarray
    samples: np.ndarray
    excess: np.ndarray
    # an empty set that is no error is charged as many responses as there are draws
    charged: np.ndarray | float = 0.0
    n_counted: np.ndarray | None = None  # prompts that count for the risk; None for all

    def objective(
        self, size_weight: float = 0.5, excess_weight: float = 0.5, draw_weight: float = 0.0
    ) -> np.ndarray:
        """Objective of Eq. 7, plus a price for each draw."""
        objective = size_weight * (self.size + self.charged) + excess_weight * self.excess
        return objective + draw_weight * self.samples if draw_weight else objective


def risk_surface(
    data: CalibrationData,
    similarity_thresholds: ArrayLike,
    quality_thresholds: ArrayLike,
    set_score_thresholds: ArrayLike,
    *,
    set_score: SetScoreLike,
) -> ConfigurationRisks:
    """Loss and costs of Algorithm 1 on a threshold grid.

    The thresholds are values of lambda_1, lambda_2 and lambda_3, of shapes (L1,), (L2,), (L3,),
    some of which may be infinite; `set_score` is the set function F, by name or as a callable. The
    result has `loss`, `size`, `samples`, `excess` and `n_errors`, of shape (L1, L2, L3).

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
    thresholds_of = {
        "similarity_thresholds": similarity_thresholds,
        "quality_thresholds": quality_thresholds,
        "set_score_thresholds": set_score_thresholds,
    }
    axes = [as_array(thresholds, name, (None,)) for name, thresholds in thresholds_of.items()]
    for name, axis in zip(thresholds_of, axes):
        if not axis.size:
            raise ValueError(f"{name} must hold a threshold, got none instead.")
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    risks = evaluate_configurations(data, grid.reshape(-1, 3), set_score=set_score)
    shape = grid.shape[:3]
    named = {name: x for name, x in vars(risks).items() if isinstance(x, np.ndarray)}
    return ConfigurationRisks(**{name: x.reshape(shape) for name, x in named.items()})


def evaluate_configurations(
    data: CalibrationData,
    lambdas: ArrayLike,
    *,
    set_score: SetScoreLike,
    k_max: ArrayLike | None = None,
    risk: Risk = MISSES,
    at_stake: np.ndarray | None = None,
) -> ConfigurationRisks:
    """Losses and costs of Algorithm 1 for m configurations.

    `k_max` gives one budget, or that of each configuration; None is ``data.k_max``. Only prompts
    `at_stake` err, bool of shape (n,); None: all may.
    """
    check_data(data)
    configurations = np.asarray(lambdas, dtype=np.float64)
    budget_of = np.broadcast_to(data.k_max if k_max is None else k_max, len(configurations))
    l1, a = np.unique(configurations[:, 0], return_inverse=True)
    l2, b = np.unique(configurations[:, 1], return_inverse=True)
    l3, c = np.unique(configurations[:, 2], return_inverse=True)
    budgets, k = np.unique(budget_of, return_inverse=True)
    # acceptance depends on similarity and quality alone: one pass for each pair of thresholds
    codes, pair = np.unique(a * len(l2) + b, return_inverse=True)
    pairs = Pairs(l1, l2, codes // len(l2), codes % len(l2))
    score = get_set_score(set_score)
    n = data.n_prompts
    totals, unit = sum_over_prompts(data, pairs, l3, score, budgets)
    n_errors, size, samples, excess = totals[:, pair, k, c]
    # the excess is counted in whole units, so that its sum is exact
    risks = ConfigurationRisks(n_errors, n_errors / n, size / n, samples / n, excess / unit / n)
    if at_stake is not None:
        n_errors = np.zeros_like(n_errors)
        if at_stake.any():
            staked = data.take(np.flatnonzero(at_stake))
            n_errors = sum_over_prompts(staked, pairs, l3, score, budgets)[0][0, pair, k, c]
        risks = replace(risks, n_errors=n_errors, loss=n_errors / n)
    if risk.counts_all:
        return risks
    # where every draw is admissible only empty sets err
    all_right = data.with_labels(np.ones(data.labels.shape, dtype=np.int8))
    n_empty = sum_over_prompts(all_right, pairs, l3, score, budgets)[0][0, pair, k, c]
    n_errors = n_errors - n_empty
    n_counted = n - n_empty
    loss = np.where(n_counted > 0, n_errors / np.maximum(n_counted, 1), 1.0)
    return replace(
        risks,
        n_errors=n_errors,
        loss=loss,
        charged=n_empty * budget_of / n,
        n_counted=n_counted,
    )
