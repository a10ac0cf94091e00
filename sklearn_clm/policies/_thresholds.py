"""ThresholdPolicy: thresholds on similarity, quality and set score."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    Configuration,
    LearnThenTestResult,
    search_frontier,
)
from sklearn_clm.calibration._claim import nothing_passed
from sklearn_clm.calibration._learn_then_test import certify_frontier
from sklearn_clm.calibration._path import Columns, sets_at_stop
from sklearn_clm.calibration._rows import Part
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration._set_scores import SetScore, SetScoreLike, get_set_score
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.calibration._table import Table
from sklearn_clm.calibration._tests import AdmissionTest, LossTest
from sklearn_clm.policies._asking import bounding
from sklearn_clm.policies._base import Policy
from sklearn_clm.policies._batched import BatchedThresholds, DrawScores
from sklearn_clm.policies._judging import Judging
from sklearn_clm.policies._rules import (
    Everything,
    Outcomes,
    Row,
    Rule,
    SetRule,
    Tested,
    shares_taken,
)


@dataclass(frozen=True)
class ThresholdRule(SetRule):
    """Algorithm 1 with certified thresholds, and means of other losses."""

    claim: Claim
    lambda_hat: Configuration
    k_max: int
    result: LearnThenTestResult | None = field(default=None, repr=False)
    means: dict[str, float] = field(default_factory=dict)
    taken: tuple[float, ...] = field(default=(), compare=False, repr=False)
    tested: Tested | None = field(default=None, compare=False, repr=False)

    kind: ClassVar[str] = "thresholds"
    heading: ClassVar[str] = "Thresholds (lambda-hat)"

    @property
    def words(self) -> str:
        values = ", ".join(f"{value:.4g}" for value in self.lambda_hat)
        return f"similarity, quality, set score {values}"

    @property
    def costs(self) -> tuple[float, float]:
        if self.result is None:
            return np.nan, np.nan
        risks, chosen = self.result.risks, self.result.position or 0
        return float(risks.size[chosen]), float(risks.samples[chosen])

    def facts(self, set_score: str) -> list[Row]:
        l1, l2, l3 = self.lambda_hat
        return [
            ("similarity", f"{l1:.6g}", "reject a draw more similar than this to an accepted one"),
            ("quality", f"{l2:.6g}", "reject a draw of lower quality than this"),
            ("set_score", f"{l3:.6g}", f"stop once the set score {set_score} is at least this"),
            ("k_max", str(self.k_max), "stop after this many draws in any case"),
        ]

    def outcomes(self, data: CalibrationData, set_score: SetScoreLike) -> Outcomes | None:
        return Outcomes.of_thresholds(data, self.lambda_hat, self.k_max, set_score, self.result)

    def batched(self, scores: DrawScores) -> BatchedThresholds:
        return BatchedThresholds(self.lambda_hat, self.k_max, scores)

    def members(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        return sets_at_stop(data, self.lambda_hat, self.k_max, set_score).accepted

    @classmethod
    def of(
        cls, claim: Claim, result: LearnThenTestResult, columns: Columns, means: dict[str, float]
    ) -> Self:
        """The rule of the chosen configuration of a result."""
        chosen: Any = result.lambda_hat
        k_max: Any = result.k_max_hat
        accepted, draws = columns[result.position or 0]
        tested = Tested.of(accepted.sum(axis=1), draws, k_max, columns.digests)
        return cls(claim, chosen, k_max, result, means, shares_taken(draws, k_max), tested)

    def content(self) -> dict[str, Any]:
        values = zip(Configuration._fields, map(float, self.lambda_hat))
        return {"lambda_hat": dict(values)}

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: int) -> "ThresholdRule":
        values = {name: float(value) for name, value in content["lambda_hat"].items()}
        return cls(claim, Configuration(**values), k_max)


class ThresholdPolicy(Policy):
    """Algorithm 1: thresholds on similarity, quality and set score.

    ``policy=None`` of a :class:`ConformalSampler` stands for one with default parameters.

    Parameters
    ----------
    set_score : {"first_k", "first_k_reject", "max", "sum"} or callable, default="max"
        Set score F.
    n_lambdas : int, default=25
        Largest number of values to try for each threshold, in gaps between observed ones, besides
        -inf and +inf.
    size_weight, excess_weight : float, default=0.5
        Weights rho_1 of the set size, and rho_2 of the relative excess of draws, in Eq. 7, >= 0.
    draw_weight : float, default=0.0
        Price of a draw in the objective, >= 0; with 0 it is that of Eq. 7.
    select : {"objective", "last"}, default="objective"
        The certified configuration to use: that of lowest objective (Eq. 7; with lazy judging
        without the excess), or the last in the sequence, the least cautious.
    frontier : Frontier, default=None
        Configurations to test, in this order, searched on other data: all prompts then calibrate.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import ThresholdPolicy
    >>> sampler = ConformalSampler(policy=ThresholdPolicy(set_score="sum"))
    >>> sampler.get_params()["policy__set_score"]
    'sum'
    """

    rule: ClassVar[type[Rule]] = ThresholdRule
    guarantee: Literal["pac", "marginal"] = "pac"
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "set_score": [str, callable, SetScore],
        "n_lambdas": [Interval(Integral, 1, None, closed="left")],
        "size_weight": [Interval(Real, 0, None, closed="left")],
        "excess_weight": [Interval(Real, 0, None, closed="left")],
        "draw_weight": [Interval(Real, 0, None, closed="left")],
        "select": [StrOptions({"objective", "last"})],
        "frontier": [None, Frontier],
    }

    def __init__(
        self,
        *,
        set_score: SetScoreLike = "max",
        n_lambdas: int = 25,
        size_weight: float = 0.5,
        excess_weight: float = 0.5,
        draw_weight: float = 0.0,
        select: Literal["objective", "last"] = "objective",
        frontier: Frontier | None = None,
    ) -> None:
        self.set_score = set_score
        self.n_lambdas = n_lambdas
        self.size_weight = size_weight
        self.excess_weight = excess_weight
        self.draw_weight = draw_weight
        self.select = select
        self.frontier = frontier

    @property
    def path(self) -> Frontier | None:
        """The frontier from other data."""
        return self.frontier

    @property
    def weights(self) -> Weights:
        """Prices of size, excess and draws in Eq. 7."""
        return {
            "size_weight": self.size_weight,
            "excess_weight": self.excess_weight,
            "draw_weight": self.draw_weight,
        }

    def refuse(self, k_max: int | Sequence[int]) -> None:
        get_set_score(self.set_score)
        if self.frontier is not None and np.max(self.frontier.k_max) != np.max(k_max):
            raise ValueError(
                f"k_max must be {np.max(self.frontier.k_max)}, the largest budget of the policy's "
                f"frontier, got {k_max!r} instead."
            )

    def search(self, table: Table, rows: np.ndarray, claim: Claim, judging: Judging) -> Frontier:
        labels, _ = judging.labels(table, rows, table.texts[rows])
        part = table.part(rows).with_labels(labels)
        frontier = search_frontier(
            part,
            set_score=self.set_score,
            n_lambdas=self.n_lambdas,
            k_max=table.budgets,
            **self.weights,
        )
        if not claim.losses:
            return frontier
        # the set of all draws errs least, but its other losses may be the largest
        columns = Columns(table, rows, frontier, self._score)
        p_values = [AdmissionTest(columns, claim.level, claim.delta).p_values()]
        for test in self._loss_tests(columns, claim):
            for m in range(len(frontier)):
                test.passes(m)
            p_values.append(test.p_values())
        return frontier.ordered(np.argsort(np.max(p_values, axis=0), kind="stable"))

    @property
    def _score(self) -> SetScore:
        return get_set_score(self.set_score)

    @staticmethod
    def _loss_tests(columns: Columns, claim: Claim) -> list[LossTest]:
        """The tests of the other losses."""
        if not claim.losses:
            return []
        prompts: Any = columns.table.data.prompts  # known where the sampler collected them
        keys, tests = prompts[columns.rows], []
        for name, level in claim.losses.items():
            losses = partial(columns.table.losses, name, columns)
            tests.append(LossTest(len(columns), losses, keys, level, claim.delta))
        return tests

    def test(self, path: Frontier, table: Table, part: Part, claim: Claim) -> Rule:
        columns = Columns(table, part.rows, path, self._score)
        admission = AdmissionTest(columns, claim.level, claim.delta)
        others = self._loss_tests(columns, claim)
        with bounding(table.judge, part.rows, admission.may_ask):
            result = certify_frontier(
                admission, others, searched=part.searched, weights=self.weights, select=self.select
            )
        position = result.position or 0
        means = {name: float(test.means[position]) for name, test in zip(claim.losses, others)}
        if result.position is None:
            why = self._why_nothing(result, claim, means)
            return Everything(claim.nullified(why), table.k_max, result)
        return ThresholdRule.of(claim, result, columns, means)

    def _why_nothing(self, result: LearnThenTestResult, claim: Claim, means: dict[str, Any]) -> str:
        advice = ""
        if means:
            # the first configuration that was tested
            shown = "".join(f", mean {name} {value:.3g}" for name, value in means.items())
            advice = f"The first that was tested has a p-value of {result.p_values[0]:.3g}{shown}."
        return nothing_passed(
            claim,
            result.n_calibration,
            "configuration",
            result.smallest_epsilon,
            exact=result.n_judgements is None,
            advice=advice,
        )
