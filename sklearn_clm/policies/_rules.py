"""Rules: what prediction runs, one for each policy; `Everything` where nothing is certified."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    ComponentThreshold,
    Configuration,
    LearnThenTestResult,
)
from sklearn_clm.calibration._claim import too_few
from sklearn_clm.calibration._data import size_that_leaves
from sklearn_clm.calibration._path import sets_at_stop
from sklearn_clm.calibration._rows import Part
from sklearn_clm.calibration._rule import relative_excess
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.policies._open_sets import DrawScores, OpenSets, ThresholdSets

Row: TypeAlias = tuple[str, str, str]
"""What, its value, and its use."""


class Outcomes(NamedTuple):
    """What a rule gave n prompts that calibrated."""

    errors: tuple[int, int, str]  # errors, of how many prompts, "at most " where not all is judged
    size: np.ndarray
    draws: np.ndarray
    excess: np.ndarray | None = None  # relative, where labels tell

    @classmethod
    def of_thresholds(
        cls,
        data: CalibrationData,
        lambdas: Configuration,
        k_max: int,
        set_score: SetScoreLike,
        tests: LearnThenTestResult | None,
    ) -> "Outcomes | None":
        """Those of Algorithm 1; of labels that nobody asked for, as far as the tests tell."""
        if data.n_draws is not None or (tests is None and data.unknown is not None):
            return None
        accepted, draws = sets_at_stop(data, lambdas, k_max, set_score)
        if tests is not None and data.unknown is not None:
            bound, n_errors = tests.errors_of_choice
            return cls((n_errors, tests.n_calibration, bound), accepted.sum(axis=1), draws)
        right = data.admissible[:, :k_max]
        first = np.where(right.any(axis=1), right.argmax(axis=1) + 1, 0)
        wrong = int(np.sum(~np.any(accepted & data.admissible, axis=1)))
        excess = relative_excess(draws, first)
        return cls((wrong, data.n_prompts, ""), accepted.sum(axis=1), draws, excess)


class Rule(ABC):
    """How sampling stops and what is returned, as calibration found it.

    A rule makes the sets of prediction, states itself in reports, writes itself into a file and
    reads itself from one: nobody else knows of its kind. `lambda_hat` are certified thresholds,
    where it has any, and `means` those of other losses on the calibration part.
    """

    kind: ClassVar[str]  # in files
    heading: ClassVar[str]  # in reports
    certified: ClassVar[bool] = True
    k_max: int
    result: Any  # the tests; None where there were none, or for a calibration from a file

    @property
    @abstractmethod
    def words(self) -> str:
        """The rule in few words."""

    @property
    @abstractmethod
    def costs(self) -> tuple[float, float]:
        """Mean set size and mean draws of the calibration prompts; NaN where not known."""

    @abstractmethod
    def facts(self, set_score: str) -> list[Row]:
        """What it consists of; `set_score` is the name of F."""

    def outcomes(self, data: CalibrationData, set_score: SetScoreLike) -> Outcomes | None:
        """What it gives the prompts that calibrated; None where labels do not tell."""
        return None

    @abstractmethod
    def open_sets(self, scores: DrawScores, claim: Claim, progress: Any) -> OpenSets:
        """The sets of prompts before their first draw."""

    @property
    def described(self) -> dict[str, object]:
        """What a policy must agree with for its rule to be this one, by names of parameters."""
        return {"policy": self.kind}

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """All that decides which draws are made and which are returned, but for `k_max`."""

    @classmethod
    @abstractmethod
    def of_content(cls, content: dict[str, Any], k_max: int) -> Self:
        """The rule of such a content, from a file."""

    @staticmethod
    def of_kind(kind: str) -> "type[Rule]":
        """The class of rules of a kind."""
        for one in _kinds(Rule):  # type: ignore[type-abstract]
            if getattr(one, "kind", None) == kind:
                return one
        raise ValueError(f"{kind!r:.40} is no kind of rule")


def _kinds(base: type[Rule]) -> Iterator[type[Rule]]:
    for one in base.__subclasses__():
        yield one
        yield from _kinds(one)


@dataclass(frozen=True)
class Everything(Rule):
    """All draws, of which nothing is claimed: the rule where nothing is certified."""

    k_max: int
    result: Any = field(default=None, repr=False)

    kind: ClassVar[str] = "everything"
    heading: ClassVar[str] = "Everything"
    certified: ClassVar[bool] = False
    words: ClassVar[str] = "all draws"
    lambda_hat: ClassVar[None] = None
    means: ClassVar[dict[str, float]] = {}

    @property
    def costs(self) -> tuple[float, float]:
        return float(self.k_max), float(self.k_max)

    def facts(self, set_score: str) -> list[Row]:
        return []

    def outcomes(self, data: CalibrationData, set_score: SetScoreLike) -> Outcomes | None:
        everything = Configuration(np.inf, -np.inf, np.inf)
        return Outcomes.of_thresholds(data, everything, self.k_max, set_score, None)

    def open_sets(self, scores: DrawScores, claim: Claim, progress: Any) -> OpenSets:
        return ThresholdSets(None, self.k_max, scores, claim, progress)

    @property
    def described(self) -> dict[str, object]:
        return {}  # no policy counts

    def content(self) -> dict[str, Any]:
        return {}

    @classmethod
    def of_content(cls, content: dict[str, Any], k_max: int) -> "Everything":
        return cls(k_max)


@dataclass(frozen=True)
class SelectionRule:
    """Select the components that score at least `gamma_hat`; +inf selects nothing."""

    gamma_hat: float
    result: ComponentThreshold | None = field(default=None, repr=False)

    @property
    def certified(self) -> bool:
        return self.gamma_hat < np.inf


class Certified(NamedTuple):
    """A rule, and what may be said of what it gives."""

    rule: Any
    claim: Claim


Rules: TypeAlias = dict[Hashable | None, Certified]
"""The rule of each group; None is that of all prompts together."""


def rules_of_parts(
    parts: list[Part],
    claim: Claim,
    needed: Callable[[float], int],
    nothing: Any,
    test: Callable[[Part, Claim], Certified],
) -> Rules:
    """The rule of each part: `nothing` where it has too few prompts, otherwise as tested.

    `needed` gives the fewest prompts that certify anything at a level of the tests; `claim` is
    what is promised of all prompts where their test passes.
    """
    rules: Rules = {}
    for part in parts:
        pooled = len(parts) > 1 and part.group is None
        own = replace(claim, delta=part.delta, group=part.group, pooled=pooled)
        n, n_searched, least = len(part.rows), len(part.searched), needed(part.delta)
        if n >= least:
            rules[part.group] = test(part, own)
            continue
        in_all = None
        if n and n_searched and part.group is None:
            in_all = size_that_leaves(least, n_searched / (n + n_searched))
        rules[part.group] = Certified(nothing, own.nullified(too_few(n, least, own, in_all)))
    return rules
