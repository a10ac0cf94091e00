"""Rules: what prediction runs, each with its claim."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    Configuration,
)
from sklearn_clm.calibration._rule import first_admissible, relative_excess
from sklearn_clm.calibration.algorithm_1 import sets_at_stop
from sklearn_clm.calibration.claim import too_few
from sklearn_clm.calibration.outcome import Outcome
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.calibration.rows import Part
from sklearn_clm.calibration.set_scores import SetScoreLike
from sklearn_clm.calibration.words import ErrorCount, counted
from sklearn_clm.policies.batched import BatchedRule, BatchedThresholds, DrawScores

_NOT_COMPARED = (
    "all prompts together were not tested, since that would ask for verdicts for a rule that no "
    "prediction uses."
)
Fact: TypeAlias = tuple[str, str, str]
"""What, its value, and its use."""


class Expected(NamedTuple):
    """What a rule makes of the n prompts that calibrated."""

    errors: ErrorCount
    of_prompts: dict[str, np.ndarray]  # other counts, each of shape (n,)

    @classmethod
    def of_thresholds(
        cls,
        data: CalibrationData,
        lambdas: Configuration,
        k_max: int,
        set_score: SetScoreLike,
        outcome: Outcome | None,
        risk: Risk,
    ) -> "Expected | None":
        """What Algorithm 1 makes of data, if known."""
        # costs of prompts, like labels that were not given, are not in the data
        errors_are_in_data = data.unknown is None and not risk.has_costs
        if data.n_made < data.quality.size or (outcome is None and not errors_are_in_data):
            return None
        # where not all prompts count, or at their cost, the report counts those of the test
        counts_as_tested = not risk.counts_all or risk.has_costs
        if outcome is not None and counts_as_tested:
            data = data.take(outcome.rows)
        shown, draws = sets_at_stop(data, lambdas, k_max, set_score)
        of_prompts = {"size": shown.sum(axis=1), "draws": draws}
        if data.unknown is None:
            admissible = data.admissible[:, :k_max]
            # S* counts from 1, rejected draws included
            of_prompts["excess"] = relative_excess(draws, first_admissible(admissible))
        if outcome is not None and (counts_as_tested or not errors_are_in_data):
            return cls(outcome.errors, of_prompts)
        is_counted = risk.counts(of_prompts["size"])
        is_wrong = is_counted & ~risk.right(shown, data.admissible)
        return cls(ErrorCount(int(is_wrong.sum()), int(is_counted.sum())), of_prompts)


class Rule(ABC):
    """What prediction runs, with the claim of calibration about it.

    A rule states itself in reports, and writes and reads its own part of a file: no other code
    depends on its kind.
    """

    kind: ClassVar[str]  # in files
    heading: ClassVar[str]  # in reports
    priced: ClassVar[tuple[str, ...]]  # names of `costs`
    legend: ClassVar[str]  # what the numbers of `expected` count, in a sentence
    claim: Claim
    k_max: Any  # budget of draws; None where it is no part of the rule
    outcome: Outcome | None  # None where nothing was tested, or for a calibration from a file
    # share of the tested prompts that took more than k draws
    shares_of_draws: tuple[float, ...] = ()
    tested: "SetCounts | None" = None  # what the tested prompts got; None if unknown
    _kinds: ClassVar[dict[str, type["Rule"]]] = {}  # those of other packages, too

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            Rule._kinds[cls.kind] = cls  # of equal names the latest

    @property
    def certified(self) -> bool:
        """Whether its claim holds."""
        return self.claim.holds

    def having(self, **fields: object) -> Self:
        """This rule with other values of some fields."""
        changed: Self = replace(self, **fields)  # type: ignore[type-var]
        return changed

    @property
    @abstractmethod
    def words(self) -> str:
        """The rule in few words."""

    @property
    @abstractmethod
    def costs(self) -> tuple[float, ...]:
        """Mean costs on the calibration prompts; NaN if unknown."""

    @abstractmethod
    def facts(self, set_score: str) -> list[Fact]:
        """The parts of the rule, for a report."""

    def expected(self, data: Any, set_score: SetScoreLike) -> Expected | None:
        """What it makes of the calibration prompts, if known."""
        return None

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Parameters of the rule in a file, apart from `k_max`."""

    @classmethod
    @abstractmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: int) -> Self:
        """The rule from the content of a file."""

    @staticmethod
    def of_kind(kind: str) -> "type[Rule]":
        """The class of rules of a kind."""
        if kind not in Rule._kinds:
            raise ValueError(f"{kind!r:.40} is no kind of rule")
        return Rule._kinds[kind]


class SetCounts(NamedTuple):
    """Numbers of prompts, empty sets and used-up budgets.

    Copies of a prompt count once.
    """

    prompts: int
    empty: int  # sets
    used_up: int  # sets that took all draws

    @classmethod
    def of(
        cls, sizes: np.ndarray, draws: np.ndarray, k_max: int, digests: np.ndarray | None
    ) -> "SetCounts":
        """The counts of sets of some sizes and draws."""
        rows = np.arange(len(sizes))
        # equal prompts have equal draws, and so equal sets: each distinct prompt counts once
        if digests is not None:
            _, rows = np.unique(digests, return_index=True)
        n_empty = int(np.sum(sizes[rows] == 0))
        n_used_up = int(np.sum(draws[rows] >= k_max))
        return cls(len(rows), n_empty, n_used_up)


def shares_of_draws(draws: np.ndarray, k_max: int) -> tuple[float, ...]:
    """Share of prompts that took more than k draws."""
    takes_more = draws[:, np.newaxis] > np.arange(k_max)
    return tuple(np.mean(takes_more, axis=0).tolist())


class SetRule(Rule):
    """How sampling stops and what is returned.

    `lambda_hat` are certified thresholds, where it has any.
    """

    k_max: int
    lambda_hat: Configuration | None
    priced: ClassVar[tuple[str, ...]] = ("size", "draws")
    legend: ClassVar[str] = "Size counts the responses in a set; draws, those made for it."
    # what may give smaller sets where it keeps all draws, and some end early
    advice_on_holes: ClassVar[str] = ""

    @property
    def keeps_all(self) -> bool:
        """Whether it is known to keep every draw."""
        return self.lambda_hat is not None and self.lambda_hat.accepts_all

    @abstractmethod
    def batched(self, scores: DrawScores) -> BatchedRule:
        """The rule as it runs on many prompts at once."""

    @abstractmethod
    def shown(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        """Draws in each set, bool (n, K), each text once."""


_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.inf)


@dataclass(frozen=True)
class Everything(SetRule):
    """All draws, without a claim, where nothing is certified."""

    claim: Claim
    k_max: int
    outcome: Outcome | None = field(default=None, repr=False)

    kind: ClassVar[str] = "everything"
    heading: ClassVar[str] = "Everything"
    lambda_hat: ClassVar[None] = None  # type: ignore[misc]

    @property
    def words(self) -> str:
        return f"all {counted(self.k_max, 'draw')}"

    @property
    def costs(self) -> tuple[float, ...]:
        return np.nan, float(self.k_max)  # how many texts these are was not counted

    def facts(self, set_score: str) -> list[Fact]:
        return []

    def expected(self, data: CalibrationData, set_score: SetScoreLike) -> Expected | None:
        return Expected.of_thresholds(
            data, _ACCEPT_ALL, self.k_max, set_score, None, self.claim.risk
        )

    def batched(self, scores: DrawScores) -> BatchedRule:
        return BatchedThresholds(None, self.k_max, scores)

    def shown(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        return sets_at_stop(data, _ACCEPT_ALL, self.k_max, set_score).shown

    def content(self) -> dict[str, Any]:
        return {}

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: int) -> "Everything":
        return cls(claim, k_max)


Rules: TypeAlias = Mapping[Hashable | None, Rule]
"""The rule of each group; None is that of all prompts together."""


def rules_of_parts(
    parts: list[Part],
    claim: Claim,
    digests: np.ndarray | None,
    all_draws: Callable[[Claim], Rule],
    test: Callable[[Part, Claim], Rule],
    *,
    compares: bool,
) -> Rules:
    """The tested rule of each part, or `all_draws`.

    `claim` is what is promised of all prompts where their test passes, `digests` are theirs. Where
    there are groups, prediction uses no rule for all prompts together: these are tested if that
    `compares` at no cost.
    """
    rules: dict[Hashable | None, Rule] = {}
    for part in parts:
        claim_of_part = replace(claim, delta=part.delta, group=part.group)
        if part.group is None:
            claim_of_part = replace(claim_of_part, within_groups=None)
        if part.group is None and len(parts) > 1 and not compares:
            rules[None] = all_draws(claim_of_part.nullified(_NOT_COMPARED))
            continue
        n = len(part.rows)
        # so few that even without an error the p-value would be above delta: no test, no labels
        if n >= claim_of_part.fewest_prompts:
            claim_of_part = claim_of_part.tested_on(
                part.rows, digests, part.searched, part.left_out
            )
            rules[part.group] = test(part, claim_of_part)
            continue
        # the split is of all groups together, so that it says nothing about one of them
        share_searched = 0.0
        if n and part.group is None:
            share_searched = len(part.searched) / (n + len(part.searched))
        why = too_few(n, claim_of_part, share_searched)
        rules[part.group] = all_draws(claim_of_part.nullified(why))
    return rules
