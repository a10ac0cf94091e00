"""ThresholdPolicy: thresholds on similarity, quality and set score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_clm._exceptions import naming_parameters
from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    Configuration,
    LearnThenTestResult,
    search_frontier,
)
from sklearn_clm.calibration._learn_then_test import certify_frontier
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.algorithm_1 import sets_at_stop
from sklearn_clm.calibration.band import AchievableEpsilon
from sklearn_clm.calibration.outcome import Audited, Outcome, SafestStep
from sklearn_clm.calibration.risk import MISSES, CostOfMisses, MissesIfAny, Risk, check_counts
from sklearn_clm.calibration.rows import Part
from sklearn_clm.calibration.set_scores import SetScore, SetScoreLike, get_set_score
from sklearn_clm.calibration.surface import Weights
from sklearn_clm.calibration.table import LossesOfSets, Table
from sklearn_clm.calibration.tests import BettingTest, BinomialTest
from sklearn_clm.calibration.thresholds import ThresholdPath
from sklearn_clm.generators.identity import score_fingerprint
from sklearn_clm.policies.base import Policy
from sklearn_clm.policies.batched import BatchedThresholds, DrawScores
from sklearn_clm.policies.judging import Judging
from sklearn_clm.policies.rules import Expected, Fact, Rule, SetCounts, SetRule


@dataclass(frozen=True)
class ThresholdRule(SetRule):
    """Algorithm 1 with certified thresholds, and means of other losses."""

    claim: Claim
    lambda_hat: Configuration
    k_max: int
    outcome: Outcome | None = field(default=None, repr=False)
    shares_of_draws: tuple[float, ...] = field(default=(), compare=False, repr=False)
    tested: SetCounts | None = field(default=None, compare=False, repr=False)

    kind: ClassVar[str] = "thresholds"
    heading: ClassVar[str] = "Thresholds (lambda-hat)"

    @property
    def words(self) -> str:
        l1, l2, l3 = self.lambda_hat
        return f"similarity {l1:.4g}, quality {l2:.4g}, set score {l3:.4g}"

    @property
    def costs(self) -> tuple[float, float]:
        outcome = self.outcome
        return (np.nan, np.nan) if outcome is None else (outcome.size, outcome.samples)

    def facts(self, set_score: str) -> list[Fact]:
        l1, l2, l3 = self.lambda_hat
        return [
            ("similarity", f"{l1:.6g}", "reject a draw more similar than this to an accepted one"),
            ("quality", f"{l2:.6g}", "reject a draw of lower quality than this"),
            ("set_score", f"{l3:.6g}", f"stop once the set score {set_score} is at least this"),
            ("k_max", str(self.k_max), "stop after this many draws in any case"),
        ]

    def expected(self, data: CalibrationData, set_score: SetScoreLike) -> Expected | None:
        return Expected.of_thresholds(
            data, self.lambda_hat, self.k_max, set_score, self.outcome, self.claim.risk
        )

    def batched(self, scores: DrawScores) -> BatchedThresholds:
        return BatchedThresholds(self.lambda_hat, self.k_max, scores)

    def shown(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        return sets_at_stop(data, self.lambda_hat, self.k_max, set_score).shown

    def content(self) -> dict[str, Any]:
        values = zip(Configuration._fields, map(float, self.lambda_hat))
        return {"lambda_hat": dict(values)}

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: int) -> "ThresholdRule":
        values = {name: float(value) for name, value in content["lambda_hat"].items()}
        return cls(claim, Configuration(**values), k_max)


class ThresholdPolicy(Policy[Frontier, ThresholdPath, BinomialTest[ThresholdPath]]):
    """Algorithm 1: thresholds on similarity, quality and set score.

    ``policy=None`` of a :class:`ConformalSampler` stands for one with default parameters. Draws are
    accepted, scored and ended as in the paper, but a set shows each text once, and its size, in
    Eq. 7 and everywhere, is the number of texts. The paper's program counts a text twice that was
    accepted twice, as "self_consistency" wants it. A copy is right or wrong as the text is, so that
    losses, tests and guarantee are the same, and Eq. 7 chooses what is small for those who read it.

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
    abstain : bool, default=False
        Whether an empty set abstains, and is no error: `epsilon` is then the tolerated share of
        misses among the sets that are not empty. In Eq. 7 an empty set is charged as many responses
        as there are draws. With ``judging="all"``.
    cost : callable, default=None
        ``cost(prompt) -> float`` in [0, 1]: what a miss costs. `epsilon` is then the tolerated
        expected cost; ``cost=lambda prompt: 1.0`` is the usual promise. Costs of few prompts far
        above those of others serve best: a prompt tests with the probability of its cost alone.
        With ``judging="all"`` and ``abstain=False``.
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
    _learnt_as: ClassVar[str] = "frontier"
    guarantee: Literal["pac", "marginal"] = "pac"
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "set_score": [str, callable, SetScore],
        "n_lambdas": [Interval(Integral, 1, None, closed="left")],
        "size_weight": [Interval(Real, 0, None, closed="left")],
        "excess_weight": [Interval(Real, 0, None, closed="left")],
        "draw_weight": [Interval(Real, 0, None, closed="left")],
        "select": [StrOptions({"objective", "last"})],
        "abstain": ["boolean"],
        "cost": [None, callable],
        "frontier": [None, Frontier],
    }

    @naming_parameters
    def __init__(
        self,
        *,
        set_score: SetScoreLike = "max",
        n_lambdas: int = 25,
        size_weight: float = 0.5,
        excess_weight: float = 0.5,
        draw_weight: float = 0.0,
        select: Literal["objective", "last"] = "objective",
        abstain: bool = False,
        cost: Callable[[Any], float] | None = None,
        frontier: Frontier | None = None,
    ) -> None:
        self.set_score = set_score
        self.n_lambdas = n_lambdas
        self.size_weight = size_weight
        self.excess_weight = excess_weight
        self.draw_weight = draw_weight
        self.select = select
        self.abstain = abstain
        self.cost = cost
        self.frontier = frontier

    @property
    def risk(self) -> Risk:  # type: ignore[override]
        """What is an error, and who counts."""
        if self.cost is not None:
            return CostOfMisses(self.cost)
        return MissesIfAny() if self.abstain else MISSES

    @property
    def described(self) -> dict[str, object]:
        # a file holds no function: by its fingerprint another cost is refused
        cost = "none" if self.cost is None else score_fingerprint(self.cost)
        return {
            **super().described,
            "policy__abstain": bool(self.abstain),
            "policy__cost": cost,
        }

    @property
    def early_ends(self) -> Literal["none", "own", "any"]:  # type: ignore[override]
        """Which draws may end early."""
        # the set of all draws, which no prompt has shaped, is the first step where all count
        return "any" if self.risk.counts_all else "own"

    @property
    def weights(self) -> Weights:
        """Prices of size, excess and draws in Eq. 7."""
        return {
            "size_weight": self.size_weight,
            "excess_weight": self.excess_weight,
            "draw_weight": self.draw_weight,
        }

    def refuse(self, k_max: int | Sequence[int], judging: str | Judging = "all") -> None:
        # a wrong name, or a risk that thresholds cannot test, is found before draws are paid for
        get_set_score(self.set_score)
        check_counts(self.risk, int(np.max(k_max)))
        if self.abstain and self.cost is not None:
            raise ValueError("cost must be None where thresholds may abstain, got both instead.")
        # where not all prompts count, p-values of all steps order the frontier
        if self.risk.has_costs or not self.risk.counts_all:
            self._refuse_unknown_labels(judging)
        if self.frontier is not None and np.max(self.frontier.k_max) != np.max(k_max):
            raise ValueError(
                f"k_max must be {np.max(self.frontier.k_max)}, the largest budget of the policy's "
                f"frontier, got {k_max!r} instead."
            )

    def search(self, table: Table, rows: np.ndarray, claim: Claim, judging: Judging) -> Frontier:
        # some may be estimated: the path needs no true label to be valid
        labels, _ = judging.labels(table, rows, table.texts[rows])
        part = table.part(rows).with_labels(labels)
        frontier = search_frontier(
            part,
            set_score=self.set_score,
            n_lambdas=self.n_lambdas,
            k_max=table.budgets,
            risk=self.risk,
            at_stake=None if table.at_stake is None else table.at_stake[rows],
            **self.weights,
        )
        # where all prompts count, the frontier stands in the order of its errors
        if not claim.losses and self.risk.counts_all:
            return frontier

        # the set of all draws errs least, but its other losses may be the largest; and of sets that
        # may abstain those that err least often may be few: the step that is likeliest to pass all
        # tests comes first. Any order will do that the calibration part has no part in
        path = ThresholdPath(table, rows, frontier, self._function)
        p_values = [self.test_of(path, claim).p_values()]
        for test in self.other_tests(path, claim):
            # a betting test knows the p-values of steps that it was asked about
            for step in range(len(frontier)):
                test.passes(step)
            p_values.append(test.p_values())
        largest = np.max(p_values, axis=0)
        return frontier.ordered(np.argsort(largest, kind="stable"))

    @property
    def _function(self) -> SetScore:
        """The set function F that the parameter names."""
        return get_set_score(self.set_score)

    def path_on(
        self, learnt: Frontier, table: Table, part: Part, rows: np.ndarray
    ) -> ThresholdPath:
        # tested prompts may have shaped such a search: only what it cannot shape is tested
        if table.ended_by_others:
            learnt = learnt.of_all_draws()
        return ThresholdPath(table, rows, learnt, self._function)

    def learnt_of(self, path: ThresholdPath) -> Frontier:
        return path.frontier

    def audited(
        self, path: ThresholdPath, step: int, audit: Audited, claim: Claim, part: Part
    ) -> Rule:
        rule = super().audited(path, step, audit, claim, part)
        alone = path.only(step)
        # no band of epsilon: the labels are those of a model, and the promise is about people
        result = LearnThenTestResult(
            frontier=alone.frontier,
            n_optimization=audit.n_optimization,
            epsilon=claim.level,
            smallest_epsilon=audit.smallest_level,
            achievable_epsilon=AchievableEpsilon(np.nan, np.nan),
            risks=alone.risks(self.risk),
            provenance=path.table.data.provenance,
            **audit.tests(),
        )
        outcome = None if rule.outcome is None else replace(rule.outcome, tests=result)
        return rule.having(outcome=outcome)

    def other_tests(self, path: ThresholdPath, claim: Claim) -> list[BettingTest]:
        # each at delta, without a correction: all must pass, and the largest of the p-values is a
        # p-value of "some risk is too high"
        tests = []
        losses_of_sets = cast(LossesOfSets, path.table.losses)  # None where the claim names none
        for name, level in claim.losses.items():
            losses = partial(losses_of_sets, name, path)
            tests.append(BettingTest(name, path, losses, level, claim.delta))
        return tests

    def certify(
        self, path: ThresholdPath, test: BinomialTest, other_tests: list[BettingTest], part: Part
    ) -> Outcome:
        result = certify_frontier(
            test, other_tests, searched=part.searched, weights=self.weights, select=self.select
        )
        step = result.position or 0
        errors = result.errors_of_choice._replace(n_counted=test.n_counted(step))
        # of other risks the first step is not that of all draws, or its errors are not all
        safest = None
        n_errors = result.errors_of_first
        if self.risk.has_band and n_errors is not None:
            safest = SafestStep(n_errors)
            # a frontier that the user gives need not begin with all draws
            if not path.accepts_all(0):
                safest = SafestStep(n_errors, f"the first {path.what} that is tested")
        return Outcome(
            step=result.position,
            errors=errors,
            rows=path.rows,
            safest=safest,
            sizes=path.sizes(step),
            draws=path.draws(step),
            **Outcome.left_open(path, self.risk, step),
            smallest_level=result.smallest_epsilon,
            smallest_bound=errors.bound,
            means={other.name: float(other.means[step]) for other in other_tests},
            tests=result,
        )

    def rule_at(self, path: ThresholdPath, outcome: Outcome, claim: Claim) -> ThresholdRule:
        # the path is the chosen step alone
        return ThresholdRule(claim, path.frontier.configuration(0), path.budget(0))

    def advice(self, path: ThresholdPath, outcome: Outcome, claim: Claim) -> str:
        if not outcome.means or outcome.tests is None:
            return ""
        # the first configuration that was tested
        means = "".join(f", mean {name} {value:.3g}" for name, value in outcome.means.items())
        return f"The first that was tested has a p-value of {outcome.tests.p_values[0]:.3g}{means}."
