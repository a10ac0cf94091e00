"""What was calibrated: frozen records, all that prediction depends on."""

import hashlib
import math
import os
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    ComponentCalibrationData,
    ComponentThreshold,
    Configuration,
    LearnThenTestResult,
    Provenance,
)
from sklearn_clm.calibration._binomial import mistaken_epsilon
from sklearn_clm.calibration._learn_then_test import AchievableEpsilon
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.calibration._surface import Weights
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
from sklearn_clm.policies._rules import Certified, Rule, Rules
from sklearn_clm.policies._shift import Shift
from sklearn_clm.policies._source import DrawSource

PARTS = ("splitter", "component_score", "admission")
# what the guarantee of sets, and of components, has to know of the data
DRAWN_WITH = ("generator", "seed", *SCORES)
SELECTED_WITH = ("generator", "seed", *PARTS, "k_max")
_MOSTLY_EMPTY = 0.5
_MOST_DRAWS = 1_000_000  # a file must not make predict allocate more


def places_of_groups(
    known: Mapping[Hashable | None, object],
    groups: Groups | None,
    given: object,
    n_prompts: int,
    prompts: CheckedPrompts | None,
) -> list[int] | None:
    """Where each prompt's group stands among the calibrated ones; None where there are none.

    A group that was not calibrated has the place of all prompts, behind the others.
    """
    names = [name for name in known if name is not None]
    if not names or groups is None:
        if given is not None:
            raise ValueError(
                "groups must be None where calibration was given none, got groups instead."
            )
        return None
    position = {name: g for g, name in enumerate(names)}
    asked = groups.of(given, n_prompts, prompts)
    if groups.unknown == "error" and (unknown := set(asked) - set(position)):
        raise ValueError(
            f"groups must be among those that were calibrated, {names!r:.200}, "
            f"got {next(iter(unknown))!r} instead; Groups(unknown='pooled') uses the rule "
            "for all prompts there."
        )
    return [position.get(name, len(position)) for name in asked]


class _Calibration:
    """What both records tell of their claims; `claims` are given by group, None is all prompts."""

    claims: Any
    groups: Groups | None
    provenance: Provenance
    file_format: ClassVar[str]
    _collected_with: ClassVar[tuple[str, ...]]
    _written: ClassVar[tuple[str, ...]]  # fields that a file holds as they are

    @property
    def claim(self) -> Claim:
        """What may be said of all prompts together."""
        claim: Claim = self.claims[None]
        return claim

    @property
    def uses_pooled_rule(self) -> bool:
        """Whether the rule for all prompts together is one that predict may use."""
        return len(self.claims) == 1 or self.groups is None or self.groups.unknown == "pooled"

    @property
    def claims_in_use(self) -> dict[Hashable | None, Claim]:
        """Claims of the rules that predict may use, by group."""
        pooled = self.uses_pooled_rule
        return {name: one for name, one in self.claims.items() if name is not None or pooled}

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed."""
        return any(claim.holds for claim in self.claims_in_use.values())

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known to have collected the data."""
        return unknown_fields(self.provenance, self._collected_with)

    def _content(self) -> dict[str, Any]:
        """What a file holds of either record."""
        return {
            "format": self.file_format,
            **{name: getattr(self, name) for name in self._written},
            "provenance": asdict(self.provenance),
            "groups": None if self.groups is None else self.groups.content(),
        }

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file must have in common with an estimator, and fields of the record."""
        fields = {name: content[name] for name in cls._written}
        provenance, groups = content["provenance"], content["groups"]
        described = {**provenance, **fields, **groups_described(groups, "none")}
        fields["provenance"] = record_of(Provenance, provenance)
        fields["groups"] = None if groups is None else Groups(**{**groups, "by": None})
        return described, fields


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


@dataclass(frozen=True)
class SamplerCalibration(_Calibration):
    """What was calibrated, and all that prediction depends on.

    Parameters
    ----------
    rules : dict from group to Certified
        How sampling stops and what is returned, and what may be said of it; None is the rule for
        all prompts together, the last one.
    width : int
        The largest budget that calibration saw.
    epsilon, delta : float
        As calibration was asked for.
    weights : Weights
        Prices of the objective.
    quality, similarity, set_score : str, callable or object
        The scores, and the set function F.
    source : DrawSource
        Generator and seed of the draws.
    provenance : Provenance
        What the data were collected with; unknown fields are None.
    n_judgements : int or None
        With lazy judging: how many responses were judged, in all.
    data : CalibrationData or None
        What was calibrated on; None for a calibration from a file.
    groups, shift, losses : Groups, Shift, Losses or None
        Within which groups, for which prompts and for which losses it holds.
    """

    rules: Rules
    width: int
    epsilon: float
    delta: float
    weights: Weights
    quality: QualityLike
    similarity: SimilarityLike
    set_score: SetScoreLike
    source: DrawSource
    provenance: Provenance
    n_judgements: int | None = None
    data: CalibrationData | None = None
    groups: Groups | None = None
    shift: Shift | None = None
    losses: Losses | None = None

    file_format: ClassVar[str] = "sklearn_clm.calibration/2"
    _collected_with: ClassVar[tuple[str, ...]] = DRAWN_WITH
    _written: ClassVar[tuple[str, ...]] = ("width", "epsilon", "delta", "weights", "n_judgements")

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
    def claims(self) -> dict[Hashable | None, Claim]:
        """What may be said of the sets of each group; None is all prompts together."""
        return {name: one.claim for name, one in self.rules.items()}

    @property
    def tests(self) -> Any:
        """The tests for all prompts together; None from a file or on too few prompts."""
        return self.rule.result

    @property
    def result(self) -> LearnThenTestResult | None:
        """The same, of thresholds alone."""
        return self.tests if isinstance(self.tests, LearnThenTestResult) else None

    @property
    def by_group(self) -> dict[Hashable, Certified] | None:
        """The rule of each group; None without groups."""
        return {name: one for name, one in self.rules.items() if name is not None} or None

    @property
    def in_use(self) -> Rules:
        """The rules that predict may use."""
        return {name: self.rules[name] for name in self.claims_in_use}

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

    def remarks(self) -> Iterator[str | None]:
        """Warnings: the sets are certified, and of little use."""
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
        """What a file holds; refuses a rule that could not be read from it."""
        rules = []
        for group, (rule, claim) in self.rules.items():
            content = rule.content()
            type(rule).of_content(content, rule.k_max)
            written = {"kind": rule.kind, "k_max": rule.k_max, **content}
            rules.append({**claim_content(group, claim), **written})
        return {
            **self._content(),
            "rules": rules,
            "set_score": score_fingerprint(self.set_score),
            "shift": None if self.shift is None else asdict(self.shift),
            "losses": None if self.losses is None else self.losses.content(),
        }

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file must have in common with a sampler, and fields of the record."""
        with reading(path, cls.file_format) as content:
            described, fields = cls._read(content)
            seed = fields["provenance"].seed
            if seed is not None and (type(seed) is not int or seed < 0):
                raise ValueError(f"{seed!r:.40} is no seed")
            rules: Rules = {}
            for one in content["rules"]:
                k_max = one["k_max"]
                if type(k_max) is not int or not 1 <= k_max <= fields["width"] <= _MOST_DRAWS:
                    raise ValueError(f"{k_max!r:.40} is no budget")
                rule = Rule.of_kind(one["kind"]).of_content(one, one["k_max"])
                claim = claim_of(one, certified=rule.certified)
                rules[one["group"]] = Certified(rule, claim)
            whole, shift = rules[None], content["shift"]
            shift = None if shift is None else record_of(Shift, shift)
            described |= {
                "guarantee": whole.claim.guarantee,
                whole.claim.level_name: whole.claim.level,
                "set_score": content["set_score"],
                "losses": content["losses"] or "none",
                "weight_bound": "none" if shift is None else shift.weight_bound,
                **whole.rule.described,
            }
            return described, {**fields, "rules": rules, "shift": shift}

    def open_sets(self, scores: DrawScores, given: object, progress: Any) -> SetsByRule:
        """The sets of prompts before their first draw, each by the rule of its group."""
        prompts = scores.prompts
        places = places_of_groups(self.rules, self.groups, given, len(prompts), prompts)
        parts = [one.rule.open_sets(scores, one.claim, progress) for one in self.in_use.values()]
        return SetsByRule(parts, places, progress)


@dataclass(frozen=True)
class SelectorCalibration(_Calibration):
    """What was calibrated, and all that the selection depends on.

    Parameters
    ----------
    thresholds : dict from group to float
        The threshold of each group, +inf where none could be certified; None is that of all prompts
        together, the last one.
    claims : dict from group to Claim
        What may be said of what is selected.
    alpha, delta : float
        As calibration was asked for.
    splitter, component_score : callable, ComponentScore
        As calibration used them.
    n_draws : int or None
        Draws that calibration saw for each prompt; None where it is unknown.
    provenance : Provenance
        What the data were collected with; unknown fields are None.
    sampler : ConformalSampler or None
        Makes sets of prompts; None where there is none yet.
    results : dict from group to ComponentThreshold or None
        The tests of each group; None where there were too few prompts. Empty from a file.
    data : ComponentCalibrationData or None
        What was calibrated on; None for a calibration from a file.
    groups : Groups or None
        What is promised within groups.
    remarks : tuple of str
        What calibration warned of; empty for one from a file.
    """

    thresholds: dict[Hashable | None, float]
    claims: dict[Hashable | None, Claim]
    alpha: float
    delta: float
    splitter: Any
    component_score: Any
    n_draws: int | None
    provenance: Provenance
    sampler: Any = None
    results: dict[Hashable | None, ComponentThreshold | None] = field(
        default_factory=dict, repr=False
    )
    data: ComponentCalibrationData | None = None
    groups: Groups | None = None
    remarks: tuple[str, ...] = field(default=(), repr=False)

    file_format: ClassVar[str] = "sklearn_clm.component_calibration/2"
    _collected_with: ClassVar[tuple[str, ...]] = SELECTED_WITH
    _written: ClassVar[tuple[str, ...]] = ("alpha", "delta", "n_draws")

    @property
    def gamma_hat(self) -> float:
        """The threshold for all prompts together."""
        return self.thresholds[None]

    @property
    def tests(self) -> ComponentThreshold | None:
        """The tests for all prompts together; None from a file or on too few prompts."""
        return self.results.get(None)

    @property
    def by_group(self) -> dict[Hashable, float] | None:
        """The threshold of each group; None without groups."""
        return {name: one for name, one in self.thresholds.items() if name is not None} or None

    @property
    def shift(self) -> Shift | None:
        """The shift of prompts that the guarantee holds for."""
        return Shift.of(self.provenance)

    def content(self) -> dict[str, Any]:
        """What a file holds."""
        thresholds = [
            {**claim_content(group, self.claims[group]), "gamma_hat": gamma}
            for group, gamma in self.thresholds.items()
        ]
        return {**self._content(), "thresholds": thresholds}

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file must have in common with a selector, and fields of the record."""
        with reading(path, cls.file_format) as content:
            described, fields = cls._read(content)
            thresholds = {one["group"]: float(one["gamma_hat"]) for one in content["thresholds"]}
            claims = {
                one["group"]: claim_of(one, certified=thresholds[one["group"]] < math.inf)
                for one in content["thresholds"]
            }
            return described, {**fields, "thresholds": thresholds, "claims": claims}

    def group_of(self, given: object, prompts: list[Any]) -> list[Hashable | None]:
        """The group of each prompt whose threshold holds for it; None is that of all prompts."""
        checked = CheckedPrompts(prompts, numeric=False)
        places = places_of_groups(self.thresholds, self.groups, given, len(prompts), checked)
        names = list(self.thresholds)
        return [None] * len(prompts) if places is None else [names[place] for place in places]
