"""Losses and costs of many configurations on the same prompts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._engine import Pairs, sum_over_prompts
from sklearn_clm.calibration.checks import as_array
from sklearn_clm.calibration.data import CalibrationData, check_data
from sklearn_clm.calibration.risk import MISSES, Risk
from sklearn_clm.calibration.set_scores import SetScoreLike, get_set_score


class Weights(TypedDict):
    """Prices of size, relative excess and draws (Eq. 7)."""

    size_weight: float
    excess_weight: float
    draw_weight: float


@dataclass(frozen=True)
class ConfigurationRisks:
    """Losses and costs of configurations, as means over the prompts.

    The arrays have one entry for each of a list of configurations, or one axis for each threshold
    of a grid. `n_errors` counts prompts whose set errs, by default holds no admissible response,
    and `loss` is their share; `size` is the mean number of texts in the set at the stop (of draws,
    where texts are not known), `samples` the mean number of draws, rejected ones included, and
    `excess` the mean share of draws taken after the first admissible one.
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
        # the draws of steps may be unknown, and 0 times NaN would be NaN
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
    # each array of risks gets the shape of the grid
    reshaped = {}
    for name, values in vars(risks).items():
        if isinstance(values, np.ndarray):
            reshaped[name] = values.reshape(shape)
    return ConfigurationRisks(**reshaped)


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
    l1, place_of_l1 = np.unique(configurations[:, 0], return_inverse=True)
    l2, place_of_l2 = np.unique(configurations[:, 1], return_inverse=True)
    l3, place_of_l3 = np.unique(configurations[:, 2], return_inverse=True)
    budgets, place_of_budget = np.unique(budget_of, return_inverse=True)
    # acceptance depends on similarity and quality alone: one pass for each pair of thresholds
    codes = place_of_l1 * len(l2) + place_of_l2
    distinct_codes, place_of_pair = np.unique(codes, return_inverse=True)
    pairs = Pairs(l1, l2, distinct_codes // len(l2), distinct_codes % len(l2))
    score = get_set_score(set_score)
    n = data.n_prompts

    def sums(part: CalibrationData, risk: Risk) -> tuple[np.ndarray, int]:
        totals, unit = sum_over_prompts(part, pairs, l3, score, budgets, risk)
        return totals[:, place_of_pair, place_of_budget, place_of_l3], unit

    (n_errors, size, samples, excess), unit = sums(data, risk)
    # the excess is counted in whole units, so that its sum is exact
    risks = ConfigurationRisks(n_errors, n_errors / n, size / n, samples / n, excess / unit / n)
    may_err: CalibrationData | None = data
    if at_stake is not None:
        may_err = None
        n_errors = np.zeros_like(n_errors)
        if np.any(at_stake):
            may_err = data.take(np.flatnonzero(at_stake))
            totals, _ = sums(may_err, risk)
            n_errors = totals[0]
        risks = replace(risks, n_errors=n_errors, loss=n_errors / n)
    if risk.counts_all:
        return risks

    # sets that are not empty count (`check_counts`)
    n_empty = _n_empty(sums, data)
    n_counted = n - n_empty
    empty_sets_err = bool(risk.errs(np.zeros(1, dtype=np.intp))[0])
    if empty_sets_err and may_err is not None:
        n_errors = n_errors - _n_empty(sums, may_err)
    share_of_counted = n_errors / np.maximum(n_counted, 1)
    return replace(
        risks,
        n_errors=n_errors,
        # what shows no set at all counts as the worst
        loss=np.where(n_counted > 0, share_of_counted, 1.0),
        charged=n_empty * budget_of / n,
        n_counted=n_counted,
    )


def _n_empty(
    sums: Callable[[CalibrationData, Risk], tuple[np.ndarray, int]], data: CalibrationData
) -> np.ndarray:
    """How many sets of the data are empty, by configuration."""
    # where every draw is admissible only empty sets miss
    all_right = data.with_labels(np.ones(data.labels.shape, dtype=np.int8))
    totals, _ = sums(all_right, MISSES)
    return np.asarray(totals[0])
