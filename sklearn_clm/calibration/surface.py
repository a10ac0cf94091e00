"""Losses and costs of many configurations on the same prompts."""

from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._engine import Pairs, sum_over_prompts
from sklearn_clm.calibration.checks import as_array
from sklearn_clm.calibration.data import CalibrationData, check_data
from sklearn_clm.calibration.risk import MISSES, Risk
from sklearn_clm.calibration.set_scores import SetScore, SetScoreLike, get_set_score


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
    sums = _Sums(configurations, budget_of, get_set_score(set_score))
    n = data.n_prompts
    (n_errors, size, samples, excess), unit = sums.of(data, risk)
    if at_stake is not None:
        n_errors = sums.n_errors(data, risk, at_stake)
    # the excess is counted in whole units, so that its sum is exact
    risks = ConfigurationRisks(n_errors, n_errors / n, size / n, samples / n, excess / unit / n)
    if risk.counts_all:
        return risks

    # sets that are not empty count (`check_counts`)
    n_empty = sums.n_empty(data)
    n_counted = n - n_empty
    empty_sets_err = bool(risk.errs(np.zeros(1, dtype=np.intp))[0])
    if empty_sets_err:
        n_errors = n_errors - (n_empty if at_stake is None else sums.n_empty(data, at_stake))
    share_of_counted = n_errors / np.maximum(n_counted, 1)
    return replace(
        risks,
        n_errors=n_errors,
        # what shows no set at all counts as the worst
        loss=np.where(n_counted > 0, share_of_counted, 1.0),
        charged=n_empty * budget_of / n,
        n_counted=n_counted,
    )


class _Sums:
    """Sums over prompts for configurations, whose thresholds repeat."""

    def __init__(self, lambdas: np.ndarray, budget_of: np.ndarray, set_score: SetScore) -> None:
        l1, place_of_l1 = np.unique(lambdas[:, 0], return_inverse=True)
        l2, place_of_l2 = np.unique(lambdas[:, 1], return_inverse=True)
        self._l3, self._place_of_l3 = np.unique(lambdas[:, 2], return_inverse=True)
        self._budgets, self._place_of_budget = np.unique(budget_of, return_inverse=True)
        # acceptance depends on similarity and quality alone: one pass for each pair of thresholds
        codes = place_of_l1 * len(l2) + place_of_l2
        distinct_codes, self._place_of_pair = np.unique(codes, return_inverse=True)
        self._pairs = Pairs(l1, l2, distinct_codes // len(l2), distinct_codes % len(l2))
        self._set_score = set_score

    def of(self, data: CalibrationData, risk: Risk) -> tuple[np.ndarray, int]:
        """Errors, size, samples and excess, with its unit."""
        totals, unit = sum_over_prompts(
            data, self._pairs, self._l3, self._set_score, self._budgets, risk
        )
        return totals[:, self._place_of_pair, self._place_of_budget, self._place_of_l3], unit

    def n_errors(self, data: CalibrationData, risk: Risk, chosen: np.ndarray | None) -> np.ndarray:
        """How many prompts err, or how many of the chosen."""
        if chosen is not None and not np.any(chosen):
            return np.zeros(len(self._place_of_pair), dtype=np.int64)
        part = data if chosen is None else data.take(np.flatnonzero(chosen))
        totals, _ = self.of(part, risk)
        return np.asarray(totals[0])

    def n_empty(self, data: CalibrationData, chosen: np.ndarray | None = None) -> np.ndarray:
        """How many sets are empty, or of those chosen."""
        # where every draw is admissible only empty sets miss
        all_right = data.with_labels(np.ones(data.labels.shape, dtype=np.int8))
        return self.n_errors(all_right, MISSES, chosen)
