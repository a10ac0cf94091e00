"""Thresholds on similarity, quality and set score: Algorithm 1 of the paper."""

from typing import Any, ClassVar

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import StrOptions

from sklearn_clm.calibration import (
    Frontier,
)

__all__ = ["ThresholdPolicy"]


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
    >>> from sklearn_clm.policies import ThresholdPolicy
    >>> ConformalSampler(policy=ThresholdPolicy(select="last")).get_params()["policy__select"]
    'last'
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "select": [StrOptions({"objective", "last"})],
        "frontier": [None, Frontier],
    }

    def __init__(self, *, select: str = "objective", frontier: Frontier | None = None) -> None:
        self.select = select
        self.frontier = frontier
