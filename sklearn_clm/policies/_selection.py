"""Selections: components that score at least a threshold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from sklearn_clm.calibration import (
    Claim,
    ComponentCalibrationData,
    ComponentThreshold,
    component_learn_then_test,
    critical_count,
    prompts_needed,
)
from sklearn_clm.calibration._certify import may_ask, settle
from sklearn_clm.calibration._claim import nothing_passed, percent
from sklearn_clm.calibration._components import ComponentEntries
from sklearn_clm.calibration._rows import Part
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.policies._asking import CollectedJudge
from sklearn_clm.policies._rules import Outcomes, Row, Rule


@dataclass(frozen=True)
class SelectionRule(Rule):
    """Select the components that score at least `gamma_hat`."""

    claim: Claim
    gamma_hat: float
    result: ComponentThreshold | None = field(default=None, repr=False)

    kind: ClassVar[str] = "selection"
    heading: ClassVar[str] = "Threshold (gamma-hat)"
    priced: ClassVar[tuple[str, ...]] = ("components selected",)
    counts: ClassVar[str] = (
        "The components are those of all draws: sets that stop early hold fewer components, and "
        "no more errors."
    )
    k_max: ClassVar[None] = None  # type: ignore[misc]

    @property
    def words(self) -> str:
        return f"gamma-hat {self.gamma_hat:.4g}" if self.certified else "empty selections"

    @property
    def costs(self) -> tuple[float, ...]:
        if self.result is None or self.result.position is None:
            return (np.nan if self.certified else 0.0,)
        return (float(self.result.n_components[self.result.position]),)

    def facts(self, set_score: str) -> list[Row]:
        use = "select a component of at least this"
        return [("gamma-hat", f"{self.gamma_hat:.6g}", use)]

    def outcomes(self, data: ComponentCalibrationData, set_score: SetScoreLike) -> Outcomes | None:
        if self.result is None or not len(self.result.thresholds):
            return None
        n, chosen = data.n_prompts, data.scores >= self.gamma_hat
        number = np.bincount(data.prompt_index[chosen], minlength=n)
        # unknown labels count as errors: an upper bound
        wrong = np.unique(data.prompt_index[chosen & (data.labels != 1)]).size
        bound = "at most " if np.any(data.labels[chosen] < 0) else ""
        return Outcomes((wrong, n, bound), {"components selected": number})

    @property
    def errors(self) -> tuple[str, int, int]:
        tests: Any = self.result
        return super().errors if self.certified else ("", 0, tests.n_calibration)

    @property
    def smallest(self) -> tuple[str, float]:
        result = self.result
        if result is None or not len(result.thresholds):
            return "", np.nan
        return result.bound(0), result.smallest_alpha

    def content(self) -> dict[str, Any]:
        return {"gamma_hat": self.gamma_hat}

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: object) -> "SelectionRule":
        return cls(claim, float(content["gamma_hat"]))


def labelled(
    data: ComponentCalibrationData,
    verdicts: CollectedJudge,
    alpha: float,
    parts: Sequence[Part] | None = None,
) -> ComponentCalibrationData:
    """The data with all labels, or those that tests need.

    People are asked anew, since they may have changed their minds.
    """
    if verdicts.of_people:
        verdicts.forget()
    labels = verdicts.labels.reshape(-1)
    tested = []
    for part in parts or ():
        if (n := len(part.rows)) >= prompts_needed(alpha, part.delta):
            own = data.components_of(part.rows)
            tested.append((part.rows, own, critical_count(n, alpha, part.delta) + 1))

    def left() -> np.ndarray:
        if parts is None:
            return verdicts.labels < 0
        known, open_ones = data.with_labels(labels), np.zeros(verdicts.labels.shape, dtype=bool)
        for rows, own, rank in tested:
            open_ones[own[may_ask(ComponentEntries(known.take(rows)), rank)]] = True
        return open_ones

    with verdicts.bounding(np.arange(len(labels)), left):
        if parts is None:
            unknown = np.flatnonzero(labels < 0)
            verdicts.ask(unknown, np.zeros_like(unknown))
        for rows, own, rank in tested:

            def ask(of: np.ndarray, own: np.ndarray = own) -> Iterator[bool]:
                return verdicts(own[of], np.zeros_like(of))

            settle(ComponentEntries(data.with_labels(labels).take(rows), ask), rank)
    return data.with_labels(labels, data.provenance.admission)


def threshold_of_part(data: ComponentCalibrationData, part: Part, claim: Claim) -> SelectionRule:
    """Test the components of a part, from the highest score."""
    result = component_learn_then_test(data.take(part.rows), claim.level, part.delta)
    if result.gamma_hat == np.inf:
        claim = claim.nullified(why_nothing(result, claim))
    return SelectionRule(claim, result.gamma_hat, result)


def why_nothing(result: ComponentThreshold, claim: Claim) -> str:
    """Why no threshold was certified."""
    n, (low, high) = result.n_calibration, result.achievable_alpha
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
