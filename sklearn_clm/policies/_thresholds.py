"""Thresholds on similarity, quality and set score: Algorithm 1 of the paper."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import StrOptions

from sklearn_clm.calibration import (
    CalibrationData,
    Frontier,
    LabelTable,
    LearnThenTestResult,
    learn_then_test,
    learn_then_test_lazily,
    search_frontier,
)
from sklearn_clm.calibration._data import RandomState, refuse_common_prompts, split_positions
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.policies._judging import LazyJudging, Verdicts

__all__ = ["ThresholdPolicy", "calibrate_thresholds"]


class ThresholdPolicy(BaseEstimator):
    """Algorithm 1 of the paper: thresholds on similarity, quality and set score.

    ``policy="thresholds"`` of a :class:`ConformalSampler` stands for one with default parameters.

    Parameters
    ----------
    select : {"objective", "last"}, default="objective"
        Which of the certified configurations is used: that of lowest objective (Eq. 7), or the
        last one that was certified, the least cautious. With lazy judging the objective is that
        of size and draws alone, since the excess would need labels that no test asks for.
    frontier : Frontier, default=None
        Configurations to test, in this order, from other data, such as the `frontier_` of another
        sampler. All prompts then test them, and none is spent on the search.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import ThresholdPolicy
    >>> ConformalSampler(policy=ThresholdPolicy(select="last")).get_params()["policy__select"]
    'last'
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "select": [StrOptions({"objective", "last"})],
        "frontier": [None, Frontier],
    }

    def __init__(
        self,
        *,
        select: Literal["objective", "last"] = "objective",
        frontier: Frontier | None = None,
    ) -> None:
        self.select = select
        self.frontier = frontier


def calibrate_thresholds(
    policy: ThresholdPolicy,
    data: CalibrationData,
    budgets: list[int],
    *,
    epsilon: float,
    delta: float,
    set_score: SetScoreLike,
    weights: Weights,
    n_lambdas: int,
    optimization_fraction: float,
    random_state: RandomState,
    judging: LazyJudging | None = None,
    verdicts: Verdicts | None = None,
) -> LearnThenTestResult:
    """Learn Then Test on collected draws, with all labels or asking for those it needs.

    Parameters
    ----------
    policy : ThresholdPolicy
        Where the frontier comes from, and which certified configuration is used.
    data : CalibrationData
        The draws.
    budgets : list of int
        Budgets of draws to choose from, ascending.
    epsilon, delta, set_score, n_lambdas, optimization_fraction, random_state
        As in :func:`~sklearn_clm.calibration.learn_then_test`.
    weights : mapping
        `size_weight`, `excess_weight` and `draw_weight`.
    judging : LazyJudging, default=None
        How labels are asked for; None where `data` has them all.
    verdicts : Verdicts, default=None
        Whom to ask.

    Returns
    -------
    LearnThenTestResult
    """
    if policy.frontier is not None:
        largest = int(policy.frontier.k_max.max())
        if largest != budgets[-1]:
            raise ValueError(
                f"k_max must be {largest}, the largest budget of the policy's frontier, got "
                f"{budgets[-1]} instead."
            )
        refuse_common_prompts("the policy's frontier", policy.frontier.seen, data)
    if judging is None or verdicts is None:
        result: LearnThenTestResult = learn_then_test(
            data,
            epsilon,
            delta,
            set_score=set_score,
            random_state=random_state,
            n_lambdas=n_lambdas,
            optimization_fraction=optimization_fraction,
            select=policy.select,
            k_max=budgets if len(budgets) > 1 else None,
            frontier=policy.frontier,
            **weights,
        )
        return result
    frontier, rows = policy.frontier, np.arange(data.n_prompts)
    n_optimization = 0
    if frontier is None:
        optimization, rows = split_positions(data.n_prompts, optimization_fraction, random_state)
        n_optimization = len(optimization)
        part = data.take(optimization)
        table = LabelTable(part.first, verdicts.of_rows(optimization), part.labels)
        frontier = search_frontier(
            part.with_labels(judging.labels(part, part.first, table)),
            set_score=set_score,
            n_lambdas=n_lambdas,
            k_max=budgets,
            **weights,
        )
    part = data.take(rows)
    found = learn_then_test_lazily(
        part,
        frontier,
        epsilon,
        delta,
        LabelTable(part.first, verdicts.of_rows(rows), part.labels),
        set_score=set_score,
        size_weight=weights["size_weight"],
        draw_weight=weights["draw_weight"],
        select=policy.select,
    )
    return replace(found, n_optimization=n_optimization)
