"""What was calibrated: frozen records, all that prediction depends on."""

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Container, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from sklearn_clm._results import PredictionSet
from sklearn_clm.caching import DrawMemory
from sklearn_clm.calibration import Claim, Configuration, LearnThenTestResult, Provenance
from sklearn_clm.calibration._binomial import mistaken_delta, mistaken_epsilon
from sklearn_clm.calibration._learn_then_test import AchievableEpsilon
from sklearn_clm.calibration._set_scores import SetScoreLike, get_set_score
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.generators import DrawQueue
from sklearn_clm.generators._identity import score_fingerprint
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.policies._collection import SCORES
from sklearn_clm.policies._files import claim_content, claim_of, reading, record_of
from sklearn_clm.policies._groups import Groups
from sklearn_clm.policies._losses import Losses, why_empty
from sklearn_clm.policies._open_sets import (
    DrawScores,
    QualityLike,
    SetsByRule,
    SimilarityLike,
)
from sklearn_clm.policies._rules import Certified, Rule, Rules, SelectionRule
from sklearn_clm.policies._shift import Shift
from sklearn_clm.policies._source import (
    DrawSource,
    naming_position,
    progress_bar,
    warn_of_repeated_draws,
)
from sklearn_clm.scoring._quality import bind_quality

PARTS = ("splitter", "component_score", "admission")
# what the guarantee of sets, and of components, has to know of the data
DRAWN_WITH = ("generator", "seed", *SCORES)
SELECTED_WITH = ("generator", "seed", *PARTS, "k_max")
_MOSTLY_EMPTY = 0.5
_MOST_DRAWS = 1_000_000  # a file must not make predict allocate more


def groups_in_use(
    known: Container[Hashable | None],
    groups: Groups | None,
    given: object,
    n_prompts: int,
    prompts: CheckedPrompts | None,
) -> list[Hashable | None]:
    """The calibrated group of each prompt; None where what holds for all prompts is in use."""
    if groups is None:
        if given is not None:
            raise ValueError(
                "groups must be None where calibration was given none, got groups instead."
            )
        return [None] * n_prompts
    asked = groups.of(given, n_prompts, prompts)
    unknown = {name for name in asked if name not in known}
    if groups.unknown == "error" and unknown:
        raise ValueError(
            "groups must be among those that were calibrated, got "
            f"{next(iter(unknown))!r} instead; Groups(unknown='pooled') uses the rule for all "
            "prompts there."
        )
    return [None if name in unknown else name for name in asked]


@dataclass(frozen=True, kw_only=True)
class Calibration(ABC):
    """What an estimator has calibrated, and all that its predictions depend on."""

    rules: Rules  # by group, and at last for all prompts together, None
    delta: float
    provenance: Provenance  # of the data; unknown fields are None
    data: Any = None  # None for a calibration from a file
    groups: Groups | None = None  # within which it holds
    remarks: tuple[str, ...] = field(default=(), repr=False)  # what calibration warned of

    file_format: ClassVar[str]
    _collected_with: ClassVar[tuple[str, ...]]
    _written: ClassVar[tuple[str, ...]]  # fields that a file holds as they are

    def __getstate__(self) -> dict[str, Any]:
        """Attributes with the rules as pairs: skops writes no dict that has a key None."""
        return {**vars(self), "rules": list(self.rules.items())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "rules": dict(state["rules"])})

    @property
    def rule(self) -> Any:
        """The rule for all prompts together."""
        return self.rules[None].rule

    @property
    def claim(self) -> Claim:
        """What may be said of all prompts together."""
        return self.rules[None].claim

    @property
    def tests(self) -> Any:
        """The tests for all prompts together; None from a file or on too few prompts."""
        return self.rule.result

    @property
    def by_group(self) -> Rules | None:
        """The rule of each group; None without groups."""
        return {name: one for name, one in self.rules.items() if name is not None} or None

    @property
    def uses_pooled_rule(self) -> bool:
        """Whether the rule for all prompts together is one that predict may use."""
        return len(self.rules) == 1 or self.groups is None or self.groups.unknown == "pooled"

    @property
    def in_use(self) -> Rules:
        """The rules that predict may use."""
        pooled = self.uses_pooled_rule
        return {name: one for name, one in self.rules.items() if name is not None or pooled}

    @property
    def claims_in_use(self) -> dict[Hashable | None, Claim]:
        """Their claims."""
        return {name: one.claim for name, one in self.in_use.items()}

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed."""
        return any(claim.holds for claim in self.claims_in_use.values())

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known to have collected the data."""
        return unknown_fields(self.provenance, self._collected_with)

    def groups_of(self, given: object, prompts: CheckedPrompts) -> list[Hashable | None]:
        """The group of each prompt whose rule is used for it."""
        return groups_in_use(self.rules, self.groups, given, len(prompts), prompts)

    def content(self) -> dict[str, Any]:
        """What a file holds."""
        return {
            "format": self.file_format,
            **{name: getattr(self, name) for name in self._written},
            "provenance": asdict(self.provenance),
            "groups": None if self.groups is None else self.groups.content(),
            "rules": [
                {**claim_content(group, claim), **self._content_of(rule)}
                for group, (rule, claim) in self.rules.items()
            ],
        }

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file must have in common with an estimator, and fields of the record."""
        with reading(path, cls.file_format) as content:
            return cls._read(content)

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same, of the content of a file."""
        fields = {name: content[name] for name in cls._written}
        provenance, groups = content["provenance"], content["groups"]
        described = {**provenance, **fields, **groups_described(groups, "none")}
        rules: Rules = {}
        for one in content["rules"]:
            rule = cls._rule_of(one, fields)
            rules[one["group"]] = Certified(rule, claim_of(one, certified=rule.certified))
        return described, {
            **fields,
            "rules": rules,
            "provenance": record_of(Provenance, provenance),
            "groups": None if groups is None else Groups(**{**groups, "by": None}),
        }

    @abstractmethod
    def _content_of(self, rule: Any) -> dict[str, Any]:
        """What a file holds of a rule; refuses one that could not be read from it."""

    @classmethod
    @abstractmethod
    def _rule_of(cls, content: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
        """A rule, from what a file holds of it and of the record."""


def groups_described(content: Mapping[str, Any] | None, none: str | None = None) -> dict[str, Any]:
    """What two groups must have in common, `none` if there are none.

    Those of a file are taken over where there are none, unless a function tells them.
    """
    if content is None:
        return {"groups": none, "groups__by": "none"}
    others = {name: value for name, value in content.items() if name != "by"}
    return {"groups": others, "groups__by": content["by"] or "none"}


def unknown_fields(known: Provenance, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Fields of a provenance that are not known."""
    return tuple(name for name in fields if getattr(known, name) is None)


@dataclass(frozen=True, kw_only=True)
class SamplerCalibration(Calibration):
    """What was calibrated of a sampler."""

    width: int  # the largest budget that calibration saw
    epsilon: float
    weights: Weights  # prices of the objective
    quality: QualityLike
    similarity: SimilarityLike
    set_score: SetScoreLike
    source: DrawSource
    n_judgements: int | None = None  # with lazy judging: responses that were judged, in all
    shift: Shift | None = None
    losses: Losses | None = None

    file_format: ClassVar[str] = "sklearn_clm.calibration/2"
    _collected_with: ClassVar[tuple[str, ...]] = DRAWN_WITH
    _written: ClassVar[tuple[str, ...]] = ("width", "epsilon", "delta", "weights", "n_judgements")

    @property
    def result(self) -> LearnThenTestResult | None:
        """The tests, of thresholds alone."""
        return self.tests if isinstance(self.tests, LearnThenTestResult) else None

    @property
    def k_max(self) -> int:
        """The budget in force; of several groups the largest."""
        return max(one.rule.k_max for one in self.in_use.values())

    @property
    def lambda_hat(self) -> Configuration | None:
        """The chosen thresholds, where thresholds are certified."""
        chosen: Configuration | None = self.rule.lambda_hat
        return chosen

    @property
    def achievable_epsilon(self) -> AchievableEpsilon:
        """Error of always drawing K, and of always drawing one; NaN where it is not known."""
        if self.data is None or self.data.unknown is not None or self.n_judgements is not None:
            return AchievableEpsilon(math.nan, math.nan)
        return AchievableEpsilon.of_labels(self.data.admissible)

    def doubts(self) -> Iterator[str | None]:
        """Warnings: delta looks mistaken, or the sets are certified and of little use."""
        if self.claim.guarantee == "pac":
            yield mistaken_delta(self.delta)
        if any(one.rule.costs[0] < _MOSTLY_EMPTY for one in self.in_use.values()):
            yield why_empty(self.losses, self.epsilon)
        elif self.losses is None:
            yield mistaken_epsilon(self.epsilon, self.achievable_epsilon.high)
        size, _ = self.rule.costs
        if self.by_group is None and self.claim.holds and size == self.k_max > 1:
            lazily = ", or judging more of the optimisation part" * (self.n_judgements is not None)
            yield (
                f"nothing smaller than the set of all {self.k_max} draws was certified: predict "
                "returns all of them, with the guarantee. A larger epsilon or more prompts (of "
                f"another calibration) may give smaller sets{lazily}."
            )

    @property
    def drawn_with(self) -> Provenance:
        """What predictions are made with."""
        source = self.source
        return replace(self.provenance, generator=source.fingerprint, seed=source.seed)

    @property
    def digest(self) -> str:
        """Digest of all that decides which set a prompt gets, as far as it is known."""
        decisive = [(one.rule.k_max, one.rule.content()) for one in self.in_use.values()]
        scores = self.drawn_with, score_fingerprint(self.set_score)
        text = f"{decisive} {self.claim.guarantee} {list(self.in_use)!r} {scores}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def content(self) -> dict[str, Any]:
        return {
            **super().content(),
            "set_score": score_fingerprint(self.set_score),
            "shift": None if self.shift is None else asdict(self.shift),
            "losses": None if self.losses is None else self.losses.content(),
        }

    def _content_of(self, rule: Any) -> dict[str, Any]:
        content = rule.content()
        type(rule).of_content(content, rule.k_max)
        return {"kind": rule.kind, "k_max": rule.k_max, **content}

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        described, fields = super()._read(content)
        seed = fields["provenance"].seed
        if seed is not None and (type(seed) is not int or seed < 0):
            raise ValueError(f"{seed!r:.40} is no seed")
        whole, shift = fields["rules"][None], content["shift"]
        shift = None if shift is None else record_of(Shift, shift)
        described |= {
            "guarantee": whole.claim.guarantee,
            whole.claim.level_name: whole.claim.level,
            "set_score": content["set_score"],
            "losses": content["losses"] or "none",
            "weight_bound": "none" if shift is None else shift.weight_bound,
            **whole.rule.described,
        }
        return described, {**fields, "shift": shift}

    @classmethod
    def _rule_of(cls, content: Mapping[str, Any], fields: Mapping[str, Any]) -> Rule:
        k_max = content["k_max"]
        if type(k_max) is not int or not 1 <= k_max <= fields["width"] <= _MOST_DRAWS:
            raise ValueError(f"{k_max!r:.40} is no budget")
        return Rule.of_kind(content["kind"]).of_content(dict(content), k_max)

    def sets(
        self,
        prompts: CheckedPrompts,
        groups: object,
        memory: DrawMemory,
        *,
        n_jobs: int | None,
        verbose: int,
    ) -> list[PredictionSet]:
        """The sets of new prompts, each by the rule of its group."""
        names = self.groups_of(groups, prompts)
        scores = DrawScores(
            prompts,
            bind_quality(self.quality, self.source.generator),
            self.similarity,
            get_set_score(self.set_score),
            self.width,
            n_jobs,
        )
        with (
            naming_position(prompts),
            progress_bar(verbose, len(prompts), "prompt") as progress,
        ):
            parts = {
                name: rule.open_sets(scores, claim, progress)
                for name, (rule, claim) in self.in_use.items()
            }
            sets = SetsByRule(parts, names, progress)
            queue = DrawQueue(
                prompts.prompts,
                self.k_max,
                seed=self.source.seed,
                decide=sets.decide,
                on_draw=sets.count_draw,
            )
            memory.serve(self.source.generator, queue, fingerprint=self.source.fingerprint)
        if self.data is not None:
            warn_of_repeated_draws([one.generations for one in sets.closed], self.data)
        return sets.closed


@dataclass(frozen=True, kw_only=True)
class SelectorCalibration(Calibration):
    """What was calibrated of a selector."""

    alpha: float
    splitter: Any
    component_score: Any
    sampler: Any = None  # makes sets of prompts; None where there is none yet

    file_format: ClassVar[str] = "sklearn_clm.component_calibration/3"
    _collected_with: ClassVar[tuple[str, ...]] = SELECTED_WITH
    _written: ClassVar[tuple[str, ...]] = ("alpha", "delta")

    @property
    def gamma_hat(self) -> float:
        """The threshold for all prompts together."""
        gamma: float = self.rule.gamma_hat
        return gamma

    @property
    def n_draws(self) -> int | None:
        """Draws that calibration saw for each prompt; None where it is unknown."""
        return self.provenance.k_max

    @property
    def shift(self) -> Shift | None:
        """The shift of prompts that the guarantee holds for."""
        return Shift.of(self.provenance)

    @property
    def digest(self) -> str:
        """Text of all that decides which components are selected."""
        return repr([(name, rule.gamma_hat) for name, (rule, _) in self.rules.items()])

    def _content_of(self, rule: Any) -> dict[str, Any]:
        return {"gamma_hat": rule.gamma_hat}

    @classmethod
    def _rule_of(cls, content: Mapping[str, Any], fields: Mapping[str, Any]) -> SelectionRule:
        return SelectionRule(float(content["gamma_hat"]))
