"""Selections: components that score at least a threshold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklearn_clm.calibration import (
    Claim,
    ComponentCalibrationData,
    ComponentThreshold,
    component_learn_then_test,
    critical_count,
    prompts_needed,
)
from sklearn_clm.calibration.certify import may_ask, nth_largest_by_asking
from sklearn_clm.calibration.claim import nothing_passed
from sklearn_clm.calibration.components import ComponentEntries, ComponentPath
from sklearn_clm.calibration.outcome import Audited, Outcome, SafestStep
from sklearn_clm.calibration.risk import Risk, WrongComponents
from sklearn_clm.calibration.rows import Part
from sklearn_clm.calibration.set_scores import SetScoreLike
from sklearn_clm.calibration.words import Bound, ErrorCount, percent
from sklearn_clm.policies._asking import CollectedJudge
from sklearn_clm.policies.rules import Expected, Fact, Rule


@dataclass(frozen=True)
class SelectionRule(Rule):
    """Select the components that score at least `gamma_hat`."""

    claim: Claim
    gamma_hat: float
    outcome: Outcome | None = field(default=None, repr=False)

    kind: ClassVar[str] = "selection"
    heading: ClassVar[str] = "Threshold (gamma-hat)"
    priced: ClassVar[tuple[str, ...]] = ("components selected",)
    legend: ClassVar[str] = (
        "The components are those of all draws: sets that stop early hold fewer components, and "
        "no more errors."
    )
    k_max: ClassVar[None] = None  # type: ignore[misc]

    @property
    def words(self) -> str:
        return f"gamma-hat {self.gamma_hat:.4g}" if self.certified else "empty selections"

    @property
    def costs(self) -> tuple[float, ...]:
        # certified, but read from a file: not known; null: nothing is selected
        if self.outcome is None or self.outcome.step is None:
            return (np.nan if self.certified else 0.0,)
        return (self.outcome.size,)

    def facts(self, set_score: str) -> list[Fact]:
        use = "select a component of at least this"
        return [("gamma-hat", f"{self.gamma_hat:.6g}", use)]

    def expected(self, data: ComponentCalibrationData, set_score: SetScoreLike) -> Expected | None:
        tests = None if self.outcome is None else self.outcome.tests
        if tests is None or not len(tests.n_errors):
            return None
        n = data.n_prompts
        is_selected = data.scores >= self.gamma_hat
        # unknown labels count as errors: an upper bound
        may_be_wrong = is_selected & (data.labels != 1)
        n_wrong = np.bincount(data.prompt_index[may_be_wrong], minlength=n)
        n_errors = int(np.sum(self.claim.risk.errs(n_wrong)))
        bound = Bound.AT_MOST if np.any(data.labels[is_selected] < 0) else Bound.EXACT
        return Expected(ErrorCount(n_errors, n, bound), selected(data, self.gamma_hat))

    def content(self) -> dict[str, Any]:
        return {"gamma_hat": self.gamma_hat}

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: object) -> "SelectionRule":
        return cls(claim, float(content["gamma_hat"]))


def selected(data: ComponentCalibrationData, gamma: float) -> dict[str, np.ndarray]:
    """What a threshold selects of each prompt, for a report.

    The share of the right components is of the prompts that have any.
    """

    def count(chosen: np.ndarray) -> np.ndarray:
        return np.bincount(data.prompt_index[chosen], minlength=data.n_prompts)

    is_selected = data.scores >= gamma
    n_selected = count(is_selected)
    of_prompts: dict[str, np.ndarray] = {"components selected": n_selected}
    if data.unknown is None:
        is_right = data.labels == 1
        n_right = count(is_right)
        n_right_selected = count(is_right & is_selected)
        has_right = n_right > 0
        of_prompts["share of the right ones"] = n_right_selected[has_right] / n_right[has_right]
    return {**of_prompts, "empty selections": n_selected == 0}


class _GroupTest(NamedTuple):
    """Prompts of a test of components, and what it seeks."""

    rows: np.ndarray
    components: np.ndarray  # their positions in the flat arrays, prompt by prompt
    rank: int  # of the largest V that must stay out


def labelled(
    data: ComponentCalibrationData,
    verdicts: CollectedJudge,
    alpha: float,
    parts: Sequence[Part] | None = None,
    *,
    max_wrong: int = 0,
) -> ComponentCalibrationData:
    """The data with all labels, or those that tests need.

    People are asked anew, since they may have changed their minds.
    """
    if verdicts.of_people:
        verdicts.forget()
    labels = verdicts.labels.reshape(-1)  # a view: what is asked for below stands in it
    # groups that are large enough for a test
    tests = []
    for part in parts or ():
        n = len(part.rows)
        if n >= prompts_needed(alpha, part.delta):
            # the (c + 1)-th largest score of a wrong component is sought
            rank = critical_count(n, alpha, part.delta) + 1
            tests.append(_GroupTest(part.rows, data.components_of(part.rows), rank))

    def may_still_be_asked() -> np.ndarray:
        if parts is None:
            return verdicts.labels < 0
        labeled = data.with_labels(labels)
        is_open = np.zeros(verdicts.labels.shape, dtype=bool)
        for test in tests:
            entries = ComponentEntries(labeled.take(test.rows), max_wrong=max_wrong)
            is_open[test.components[may_ask(entries, test.rank)]] = True
        return is_open

    # people are told how many verdicts can still be wanted: of all groups, in one message
    with verdicts.bounding(np.arange(len(labels)), may_still_be_asked):
        if parts is None:
            unknown = np.flatnonzero(labels < 0)
            verdicts.ask(unknown, np.zeros_like(unknown))
        for test in tests:

            def ask(entries: np.ndarray, test: _GroupTest = test) -> Iterator[bool]:
                return verdicts(test.components[entries], np.zeros_like(entries))

            labeled = data.with_labels(labels).take(test.rows)
            entries = ComponentEntries(labeled, ask, max_wrong=max_wrong)
            nth_largest_by_asking(entries, test.rank)
    return data.with_labels(labels, data.provenance.admission)


class ComponentSelection:
    """Thresholds on components, in the manner of a policy.

    As a policy it needs nothing learnt, and no table beside the scores.
    """

    def __init__(self, data: ComponentCalibrationData, max_wrong: int = 0) -> None:
        self.data = data
        self.max_wrong = max_wrong
        self.risk: Risk = WrongComponents(max_wrong)

    def path_on(self, learnt: object, table: object, part: Part, rows: np.ndarray) -> ComponentPath:
        """All thresholds of some prompts."""
        return ComponentPath(self.data, rows)

    def rule_for(self, part: Part, claim: Claim) -> SelectionRule:
        """The rule that tests of a part certify."""
        result = component_learn_then_test(
            self.data.take(part.rows), claim.level, part.delta, max_wrong=self.max_wrong
        )
        return self.concluded(part.rows, result, claim)

    def by_people(
        self,
        people: CollectedJudge,
        path: ComponentPath,
        step: int,
        part: Part,
        claim: Claim,
    ) -> SelectionRule:
        """The usual test of a part, judged by people."""
        # labels of the model must not enter this test
        unknown = self.data.with_labels(np.full(self.data.n_components, -1))
        judged = labelled(unknown, people, claim.level, [part], max_wrong=self.max_wrong)
        tested = claim.tested_on(part.rows, judged.prompts, part.searched, part.left_out)
        return ComponentSelection(judged, self.max_wrong).rule_for(part, tested)

    def audited(
        self, path: ComponentPath, step: int, audit: Audited, claim: Claim, part: Part
    ) -> SelectionRule:
        """The rule of a threshold that was audited."""
        sizes = path.sizes(step)
        # errors at other thresholds are those by a model's labels: no level is said to be in reach
        result = ComponentThreshold(
            thresholds=path.thresholds[[step]],
            n_components=np.array([sizes.mean()]),
            alpha=claim.level,
            smallest_alpha=audit.smallest_level,
            achievable_alpha=(np.nan, np.nan),
            provenance=self.data.provenance,
            **audit.tests(),
        )
        return self.concluded(path.rows, result, claim)

    def concluded(
        self, rows: np.ndarray, result: ComponentThreshold, claim: Claim
    ) -> SelectionRule:
        """The rule of what tests have found."""
        # an audit has said already why nothing passed
        if claim.holds and result.gamma_hat == np.inf and result.audit is None:
            claim = claim.nullified(why_nothing(result, claim))
        # gamma-hat may be +inf, which is no step of the path: nothing is selected
        chosen = ComponentPath(self.data, rows, np.array([result.gamma_hat]))
        errors = ErrorCount(0, result.n_calibration)
        if claim.holds:
            errors = result.errors_of_choice
        safest = None
        if result.errors_of_first is not None:
            words = f"the first {chosen.what} that is tested"
            safest = SafestStep(result.errors_of_first, words)
        outcome = Outcome(
            step=result.position,
            errors=errors,
            rows=rows,
            safest=safest,
            sizes=chosen.sizes(0),
            draws=chosen.draws(0),
            smallest_level=result.smallest_alpha,
            smallest_bound=result.bound(0) if len(result.thresholds) else Bound.EXACT,
            audit=result.audit,
            tests=result,
        )
        return SelectionRule(claim, result.gamma_hat, outcome)


def why_nothing(result: ComponentThreshold, claim: Claim) -> str:
    """Why no threshold was certified.

    Achievable levels are NaN where labels are unknown: the smallest level is then a lower bound.
    """
    n = result.n_calibration
    low, high = result.achievable_alpha
    if not result.thresholds.size:
        return f"no response of the {n} calibration prompts has any component."
    advice = (
        f"Selecting what has the highest score errs for {percent(low)} of the prompts, and "
        f"selecting everything for {percent(high)}."
    )
    exact = not np.isnan(high)
    return nothing_passed(
        claim, n, "threshold", result.smallest_alpha, exact=exact, advice=advice if exact else ""
    )
