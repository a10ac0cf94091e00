"""Frozen records of a calibration: everything that prediction depends on."""

import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np

from sklearn_clm._estimators._collection import SCORES
from sklearn_clm._estimators._files import claim_content, claim_of, prompts_of, reading, record_of
from sklearn_clm._estimators._source import DrawSource
from sklearn_clm.calibration import (
    Claim,
    ComponentThreshold,
    Configuration,
    LearnThenTestResult,
    Provenance,
    smallest_epsilon,
)
from sklearn_clm.calibration.band import AchievableEpsilon
from sklearn_clm.calibration.certify import SequenceResult
from sklearn_clm.calibration.claim import MOST_NAMED, repetitions_of
from sklearn_clm.calibration.outcome import Outcome
from sklearn_clm.calibration.risk import MISSES, Risk
from sklearn_clm.calibration.set_scores import SetScoreLike
from sklearn_clm.calibration.surface import Weights
from sklearn_clm.calibration.words import Bound, counted, percent, rounded_up
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.policies import Groups
from sklearn_clm.policies.groups import groups_of
from sklearn_clm.policies.rules import Rule, Rules, SetCounts, SetRule
from sklearn_clm.policies.selection import SelectionRule
from sklearn_clm.policies.shift import Shift
from sklearn_clm.scoring import ComponentScore
from sklearn_clm.scoring._quality import QualityLike
from sklearn_clm.scoring._similarity import SimilarityLike
from sklearn_clm.scoring._splitters import Splitter

PARTS = ("splitter", "component_score", "admission")


@dataclass(frozen=True, kw_only=True)
class Calibration(ABC):
    """The result of calibration: everything that predictions depend on."""

    rules: Rules  # one for each group, and one for all prompts together, under None
    # parameters of the estimator that a file must agree with
    parameters: Mapping[str, Any] = field(repr=False)
    provenance: Provenance  # of the data; unknown fields are None
    data: Any = None  # None for a calibration from a file
    groups: Groups | None = None  # option of the estimator, if prompts are grouped
    columns: tuple[str, ...] = ()  # names, if prompts are rows of a data frame
    # distinct digests of the calibration prompts; empty if the data do not hold them
    seen: np.ndarray = field(
        default_factory=partial(np.zeros, 0, np.uint64), repr=False, compare=False
    )
    remarks: tuple[str, ...] = field(default=(), repr=False)  # warnings of calibration

    file_format: ClassVar[str]
    collected_with: ClassVar[tuple[str, ...]]  # fields of the provenance that the guarantee needs
    _written: ClassVar[tuple[str, ...]] = ()  # fields that are written to a file unchanged
    # what parameters were that older files do not name
    _missing_in_older_files: ClassVar[Mapping[str, Any]] = {}

    def __str__(self) -> str:
        conditions = self.conditions() if self.certified else ()
        return " ".join((self.claim.sentence(), *conditions, *self.remarks))

    @property
    def rule(self) -> Rule:
        """The rule for all prompts together."""
        return self.rules[None]

    @property
    def claim(self) -> Claim:
        """The claim of the rules that predict uses."""
        claims = self.claims_in_use
        # of several groups the first that holds, if any does
        claim = next((claim for claim in claims if claim.holds), claims[0])
        if self.by_group is None:
            return claim
        if not claim.holds:
            return replace(claim, group=None) if len(claims) > 1 else claim
        # with guarantee="all" each group was tested at its share of delta, so that all claims hold
        # together with confidence 1 - delta; with "each" that is the confidence of each of them
        audit = None if claim.audit is None else f"Group {claim.group!r}: {claim.audit}"
        repeated = repetitions_of(claim for claim in claims if claim.holds)
        claim = replace(claim, audit=audit, repeated=repeated)
        return replace(claim, delta=self.delta, group=None, answered=None)

    @property
    def outcome(self) -> Outcome | None:
        """What tests of all prompts together found, if any."""
        outcome: Outcome | None = self.rule.outcome
        return outcome

    @property
    def tests(self) -> SequenceResult | None:
        """All tests of all prompts together, where they were counted."""
        return None if self.outcome is None else self.outcome.tests

    @property
    def by_group(self) -> Rules | None:
        """The rule of each group; None without groups."""
        return {name: rule for name, rule in self.rules.items() if name is not None} or None

    @property
    def in_use(self) -> Rules:
        """The rules that predict uses: of the groups, if any."""
        return self.by_group or self.rules

    @property
    def claims_in_use(self) -> list[Claim]:
        """The claims of the rules in use."""
        return [rule.claim for rule in self.in_use.values()]

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed."""
        return self.claim.holds

    @property
    def delta(self) -> float:
        """The level that all tests share."""
        return float(self.parameters["delta"])

    @property
    def unknown(self) -> tuple[str, ...]:
        """Fields of the provenance that are unknown."""
        return unknown_fields(self.provenance, self.collected_with)

    @property
    def shift(self) -> Shift | None:
        """The covariate shift for which the guarantee holds."""
        return Shift.of(self.provenance)

    @property
    def drawn_with(self) -> Provenance:
        """Generator, seed and scores with which predictions are made."""
        return self.provenance

    @property
    def digest(self) -> str:
        """Digest of all that decides the set of a prompt."""
        # not what was found about the rules, such as errors: sets do not depend on it
        # as JSON gives it back, so that a file that is read has the digest of what was written
        decisive = []
        for name, rule in self.in_use.items():
            # a rule of a user may hold numbers of NumPy, of which files hold Python's
            content = json.dumps(_content_of(rule), default=_without_numpy)
            decisive.append((name, json.loads(content)))
        set_score = self.parameters.get("set_score")
        # with the same rules, only the promise distinguishes pac sets from marginal ones
        text = f"{decisive} {self.claim.guarantee} {self.drawn_with} {set_score}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def collected_with_provenance(self, provenance: Provenance, judge: str | None = None) -> Self:
        """This calibration, with the provenance of its data.

        Claims then name what is still unknown. `judge` names who gave the verdicts, where no
        admission did.
        """
        record = replace(self, provenance=provenance)
        unknown = record.unknown
        if judge is not None:
            unknown = tuple(name for name in unknown if name != "admission")
        rules = {}
        for group, rule in self.rules.items():
            claim = replace(rule.claim, unknown=unknown, judge=judge)
            rules[group] = rule.having(claim=claim)
        return replace(record, rules=rules)

    def conditions(self) -> tuple[str, ...]:
        """Conditions of the guarantee, in sentences."""
        nulls = [repr(claim.group) for claim in self.claims_in_use if not claim.holds]
        # where no group has a certificate, the claim itself says so
        if not nulls or not self.certified:
            return self.claim.conditions()
        names = ", ".join(nulls[:MOST_NAMED])
        if len(nulls) > MOST_NAMED:
            names += ", ..."
        null_groups = f"{len(nulls)} of {len(self.in_use)} groups"
        return (f"Nothing is certified for {null_groups}: {names}.", *self.claim.conditions())

    def doubts(self) -> list[str]:
        """Warnings where what is certified is of little use."""
        if not self.certified or self.claim.guarantee == "marginal" or self.delta < 0.5:
            return []
        return [
            f"delta={self.delta:g} is a confidence of {percent(1 - self.delta)} alone: a guarantee "
            f"of this kind fails for {percent(self.delta)} of calibrations. 0.05 would be 95 %."
        ]

    @property
    @abstractmethod
    def parts(self) -> list[Any]:
        """The generator and the scores that predictions use."""

    @abstractmethod
    def numbers(self) -> dict[str, object]:
        """The numbers that describe the data."""

    def groups_of(self, groups: object, prompts: CheckedPrompts) -> list[Hashable | None]:
        """For each prompt the group whose rule applies, or None."""
        if self.groups is None and groups is not None:
            raise ValueError(
                "groups must be None where calibration was given none, got groups instead."
            )
        names = groups_of(self.groups, groups, len(prompts), prompts)
        if names is None:
            return [None] * len(prompts)
        # nothing is known of the risk within a group that had no prompts
        if strange := [name for name in names if name not in self.rules]:
            raise ValueError(
                f"groups must be among those that were calibrated, got {strange[0]!r} instead."
            )
        return list(names)

    def content(self) -> dict[str, Any]:
        """The content of a calibration file."""
        # None would mean unknown in a file
        parameters = {
            name: "none" if value is None else value for name, value in self.parameters.items()
        }
        rules = []
        for group, rule in self.rules.items():
            # refuse to write a rule that could not be read again: later it would be too late
            type(rule).of_content(rule.claim, rule.content(), rule.k_max)
            counts = {"taken": list(rule.shares_of_draws)} if rule.shares_of_draws else {}
            if rule.tested is not None:
                counts["tested"] = list(rule.tested)
            rules.append({**claim_content(group, rule.claim), **_content_of(rule), **counts})
        return {
            "format": self.file_format,
            **parameters,
            **{name: getattr(self, name) for name in self._written},
            "provenance": asdict(self.provenance),
            "columns": list(self.columns),
            "rules": rules,
            "remarks": list(self.remarks),
            "prompts": self.seen.tobytes().hex(),
        }

    @classmethod
    def read(cls, path: str | os.PathLike[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a record in a file."""
        with reading(path, cls.file_format) as content:
            groups = content["groups"]
            provenance = record_of(Provenance, content["provenance"])
            rules: dict[Hashable | None, Rule] = {}
            for content_of_rule in content["rules"]:
                rule = Rule.of_kind(content_of_rule["kind"]).of_content(
                    claim_of(content_of_rule), content_of_rule, content_of_rule["k_max"]
                )
                if "taken" in content_of_rule:
                    shares = tuple(map(float, content_of_rule["taken"]))
                    rule = rule.having(shares_of_draws=shares)
                if "tested" in content_of_rule:
                    n_tested, n_empty, n_used_up = map(int, content_of_rule["tested"])
                    rule = rule.having(tested=SetCounts(n_tested, n_empty, n_used_up))
                rules[content_of_rule["group"]] = rule
            # attributes of an estimator show it, and so do reports of groups
            if None not in rules:
                raise ValueError("no rule is for all prompts")

            # None agrees with any value: an older file does not say
            in_file = {name: cls._missing_in_older_files.get(name) for name in parameters}
            in_file.update({name: content[name] for name in parameters if name in content})
            return {
                **{name: content[name] for name in cls._written},
                "rules": rules,
                "parameters": in_file,
                "provenance": provenance,
                "columns": tuple(content.get("columns", ())),
                "remarks": tuple(content.get("remarks", ())),
                "seen": prompts_of(content),
                "groups": None if groups == "none" else Groups(guarantee=groups),
            }


def _content_of(rule: Rule) -> dict[str, Any]:
    return {"kind": rule.kind, "k_max": rule.k_max, **rule.content()}


def _without_numpy(value: Any) -> Any:
    """A number, or an array, that JSON does not know."""
    if not isinstance(value, (np.generic, np.ndarray)):
        text = f"the content of a rule must be values for JSON, got {value!r:.60} instead."
        raise TypeError(text)
    return value.tolist()


def unknown_fields(provenance: Provenance, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Which of the fields are unknown in a provenance."""
    return tuple(name for name in fields if getattr(provenance, name) is None)


@dataclass(frozen=True, kw_only=True)
class SamplerCalibration(Calibration):
    """The calibration of a sampler."""

    width: int  # the largest budget in calibration
    weights: Weights  # prices of the objective
    quality: QualityLike
    similarity: SimilarityLike
    set_score: SetScoreLike
    source: DrawSource
    risk: Risk = MISSES  # what an error is, and what it costs
    n_judgements: int | None = None  # number of judged responses with lazy judging

    file_format: ClassVar[str] = "sklearn_clm.calibration/3"
    collected_with: ClassVar[tuple[str, ...]] = ("generator", "seed", *SCORES)
    _written: ClassVar[tuple[str, ...]] = ("width", "weights", "n_judgements")

    @property
    def parts(self) -> list[Any]:
        """The generator and the scores that predictions use."""
        return [self.source.generator, self.quality, self.similarity]

    @property
    def rule(self) -> SetRule:
        """The rule for all prompts together."""
        return cast(SetRule, super().rule)

    @property
    def in_use(self) -> Mapping[Hashable | None, SetRule]:
        """The rules that predict uses: of the groups, if any."""
        return cast(Mapping[Hashable | None, SetRule], super().in_use)

    @property
    def epsilon(self) -> float | None:
        """The tolerated risk; None where it has no part."""
        return self.parameters.get("epsilon")

    @property
    def result(self) -> LearnThenTestResult | None:
        """The tests of thresholds; None for other policies."""
        return self.tests if isinstance(self.tests, LearnThenTestResult) else None

    @property
    def lambda_hat(self) -> Configuration | None:
        """The certified thresholds, where the rule has any."""
        return self.rule.lambda_hat

    @property
    def k_max(self) -> int:
        """The budget in force; of several groups the largest."""
        return max(rule.k_max for rule in self.in_use.values())

    @property
    def achievable_epsilon(self) -> AchievableEpsilon:
        """Error of K draws, and of one; NaN if unknown."""
        labels_are_known = (
            self.data is not None and self.data.unknown is None and self.n_judgements is None
        )
        # with an audit the labels are those of a model, and the claim is about people
        if not labels_are_known or self.claim.audit is not None:
            return AchievableEpsilon(math.nan, math.nan)
        return AchievableEpsilon.of_labels(self.data.admissible)

    def doubts(self) -> list[str]:
        doubts = super().doubts() + self._open()
        if self.by_group or not self.claim.holds:
            return doubts

        # a rule that keeps all draws is certified, and of no use: whoever reads the claim alone
        # would not see it
        rule = self.rule
        size, _ = rule.costs
        what_may_help = ""
        if self.data is not None and self.data.n_made < self.data.quality.size:
            what_may_help = rule.advice_on_holes
        if (size == self.k_max or rule.keeps_all) and self.k_max == self.width > 1:
            doubts.append(
                f"nothing smaller than the set of all {self.k_max} draws was certified: predict "
                "returns all of them, with the guarantee. A larger epsilon or more prompts (of "
                f"another calibration) may give smaller sets.{what_may_help}"
            )

        claim = self.claim
        error = self.achievable_epsilon.high  # NaN where it is unknown
        # with other losses the level alone decides nothing, of another risk than a miss the first
        # draw's labels do not tell what it errs, and some risks do not count sets of one
        is_about_misses = claim.risk.one_witness_decides and not claim.losses
        single_counts = claim.risk.counts(np.ones(1, dtype=int))[0]
        if claim.level >= error and self.k_max > 1 and is_about_misses and single_counts:
            name = claim.level_name
            hint = ""
            if claim.level > 0.5:
                # who gives 0.95 takes the tolerated risk for the coverage
                hint = f" {name} is the tolerated risk: 0.05 would be 95 % {claim.risk.kept}."
            doubts.append(
                f"a single draw errs for {percent(error)} of the prompts: {name}={claim.level:g} "
                f"promises nothing more.{hint}"
            )
        return doubts

    def _open(self) -> list[str]:
        """How many prompts stay open, and what they cost."""
        pairs = [(rule.claim, rule.outcome) for rule in self.in_use.values()]
        n_open = sum(outcome.n_open for _, outcome in pairs if outcome is not None)
        if not n_open:
            return []
        # groups are counted together: each has a rule of its own
        n = sum(outcome.n_calibration for _, outcome in pairs if outcome is not None)
        claim, outcome = pairs[0]  # all groups have the same kind of claim
        text = (
            f"the draws of {n_open} of {counted(n, 'calibration prompt')} end before they show "
            f"whether the {claim.risk.given} is right, and each of these counts as an error."
        )
        # lazily, where nothing passed, the fewest errors alone are known
        if (
            len(pairs) == 1
            and outcome is not None
            and outcome.errors.bound is not Bound.AT_LEAST
            and claim.guarantee == "pac"
        ):
            n_counted = outcome.n_counted
            n_closed_errors = outcome.n_errors - n_open
            with_open = smallest_epsilon(outcome.n_errors, n_counted, claim.delta)
            without_open = smallest_epsilon(n_closed_errors, n_counted, claim.delta)
            text += (
                f" Were they all right, the smallest {claim.level_name} of this rule would be "
                f"{rounded_up(without_open):g}, not {rounded_up(with_open):g}."
            )
        return [text]

    @property
    def drawn_with(self) -> Provenance:
        """Generator, seed and scores with which predictions are made."""
        source = self.source
        return replace(self.provenance, generator=source.fingerprint, seed=source.seed)

    def numbers(self) -> dict[str, object]:
        numbers: dict[str, object] = {"prompts": self.data.n_prompts}
        if self.outcome is not None:
            searches, certifies = self.outcome.parts
            numbers[f"optimisation part, {searches}"] = self.outcome.n_optimization
            numbers[f"calibration part, {certifies}"] = self.outcome.n_calibration
        seed = self.source.seed
        return {**numbers, "most draws for a prompt": self.data.k_max, "seed of the draws": seed}


@dataclass(frozen=True, kw_only=True)
class SelectorCalibration(Calibration):
    """The calibration of a selector."""

    splitter: Splitter
    component_score: ComponentScore
    sampler: Any = None  # fitted sampler of the sets; None if there is none yet

    file_format: ClassVar[str] = "sklearn_clm.component_calibration/4"
    collected_with: ClassVar[tuple[str, ...]] = ("generator", "seed", *PARTS, "k_max")
    _missing_in_older_files: ClassVar[Mapping[str, Any]] = {"max_wrong": 0}

    @property
    def tests(self) -> ComponentThreshold | None:
        """The tests of thresholds, where they were counted."""
        tests = super().tests
        return tests if isinstance(tests, ComponentThreshold) else None

    @property
    def in_use(self) -> Mapping[Hashable | None, SelectionRule]:
        """The rules that predict uses: of the groups, if any."""
        return cast(Mapping[Hashable | None, SelectionRule], super().in_use)

    @property
    def thresholds(self) -> dict[Hashable | None, float]:
        """gamma-hat of each group, and under None of all prompts."""
        return {
            group: rule.gamma_hat
            for group, rule in self.rules.items()
            if isinstance(rule, SelectionRule)
        }

    @property
    def parts(self) -> list[Any]:
        """The splitter and the score that predictions use."""
        return [self.splitter, self.component_score]

    def conditions(self) -> tuple[str, ...]:
        """Conditions of the claim, and the claim of the sampler."""
        conditions = super().conditions()
        confidence = "1 - 2 delta"
        if self.sampler is not None:
            sets = self.sampler.calibration_
            conditions += (f"Of the sampler's sets: {sets.claim.sentence()}",)
            if not (sets.certified and sets.claim.guarantee == "pac"):
                return conditions
            # two tests fail with probability delta each, and with the sum of both at most
            if sets.delta != self.delta:
                confidence = percent(1 - self.delta - sets.delta)
        both = (
            "The guarantee of the sampler's sets and this one hold at once with confidence "
            f"{confidence}, by the union bound."
        )
        return (*conditions, both)

    def numbers(self) -> dict[str, object]:
        data = self.data
        judged = {}
        if data.unknown is not None:
            judged = {"of these judged": int(np.sum(data.labels >= 0))}
        return {"prompts": data.n_prompts, "distinct components": data.n_components, **judged}
