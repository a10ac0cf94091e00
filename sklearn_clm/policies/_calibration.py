"""What was calibrated: frozen records, all that prediction depends on."""

import hashlib
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    ComponentCalibrationData,
    ComponentThreshold,
    Configuration,
    LearnThenTestResult,
    Provenance,
)
from sklearn_clm.calibration._learn_then_test import AchievableEpsilon
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.generators import Generator
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.policies._collection import SCORES
from sklearn_clm.policies._groups import Groups
from sklearn_clm.policies._losses import Losses
from sklearn_clm.policies._open_sets import DrawScores, Progress, QualityLike, SimilarityLike
from sklearn_clm.policies._rules import Certified, LevelResult, Rules, SetsByRule, ThresholdRule
from sklearn_clm.policies._shift import Shift
from sklearn_clm.policies._source import DrawSource
from sklearn_clm.scoring._identity import score_fingerprint

PARTS = ("splitter", "component_score", "admission")
_MOSTLY_EMPTY = 0.5


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


@dataclass(frozen=True)
class SamplerCalibration:
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
    quality, similarity : str, callable or object
        The scores.
    set_score : str, callable or SetScore
        The set function F.
    source : DrawSource
        Generator and seed of the draws.
    provenance : Provenance
        What the data were collected with; unknown fields are None.
    n_judgements : int or None
        With lazy judging: how many responses were judged, in all.
    data : CalibrationData or None
        What was calibrated on; None for a calibration from a file.
    groups : Groups or None
        What is promised within groups.
    shift : Shift or None
        The shift of prompts that the guarantee holds for.
    losses : Losses or None
        Other losses that are kept.
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

    @property
    def generator(self) -> Generator:
        """The generator in use."""
        return self.source.generator

    @property
    def seed(self) -> int:
        """Seed of the draws."""
        return self.source.seed

    @property
    def rule(self) -> Any:
        """The rule for all prompts together."""
        return self.rules[None].rule

    @property
    def claim(self) -> Claim:
        """What may be said of the sets of all prompts together."""
        return self.rules[None].claim

    @property
    def claims(self) -> dict[Hashable | None, Claim]:
        """What may be said of the sets of each group; None is all prompts together."""
        return {name: one.claim for name, one in self.rules.items()}

    @property
    def tests(self) -> LearnThenTestResult | LevelResult | None:
        """The tests for all prompts together; None from a file or on too few prompts."""
        tests: LearnThenTestResult | LevelResult | None = self.rule.result
        return tests

    @property
    def by_group(self) -> dict[Hashable, Certified] | None:
        """The rule of each group; None without groups."""
        found = {name: one for name, one in self.rules.items() if name is not None}
        return found or None

    @property
    def in_use(self) -> Rules:
        """The rules that predict may use."""
        if self.by_group is None or self.uses_pooled_rule:
            return self.rules
        return dict(self.by_group)

    @property
    def claims_in_use(self) -> dict[Hashable | None, Claim]:
        """Claims of the rules that predict may use, by group."""
        return {name: one.claim for name, one in self.in_use.items()}

    @property
    def uses_pooled_rule(self) -> bool:
        """Whether the rule for all prompts together is one that predict may use."""
        return self.by_group is None or self.groups is None or self.groups.unknown == "pooled"

    @property
    def k_max(self) -> int:
        """The budget in force; of several groups the largest."""
        return max(one.rule.k_max for one in self.in_use.values())

    @property
    def lambda_hat(self) -> Configuration | None:
        """The chosen thresholds; None for null, and of an exit policy."""
        return self.rule.lambda_hat if isinstance(self.rule, ThresholdRule) else None

    @property
    def result(self) -> LearnThenTestResult | None:
        """The tests of thresholds; None from a file, on too few prompts, or of an exit policy."""
        found = self.rule.result
        return found if isinstance(found, LearnThenTestResult) else None

    @property
    def achievable_epsilon(self) -> AchievableEpsilon:
        """Error of always drawing K, and of always drawing one; NaN where it is not known."""
        if self.data is None or self.data.unknown is not None or self.n_judgements is not None:
            return AchievableEpsilon(math.nan, math.nan)
        return AchievableEpsilon.of_labels(self.data.admissible)

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed; False for null."""
        return any(one.claim.holds for one in self.in_use.values())

    @property
    def has_empty_sets(self) -> bool:
        """Whether a rule that predict may use gives empty sets to more than half of the prompts."""
        return any(one.rule.costs[0] < _MOSTLY_EMPTY for one in self.in_use.values())

    @property
    def returns_everything(self) -> bool:
        """Whether what is certified is the set of all draws."""
        size, _ = self.rule.costs
        return self.by_group is None and self.claim.holds and size == self.k_max > 1

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known to have collected the data."""
        of_data = ("generator", "seed", *SCORES)
        return tuple(name for name in of_data if getattr(self.provenance, name) is None)

    @property
    def drawn_with(self) -> Provenance:
        """What predictions are made with."""
        source = self.source
        return replace(self.provenance, generator=source.fingerprint, seed=source.seed)

    @property
    def digest(self) -> str:
        """Digest of all that decides which set a prompt gets, as far as it is known."""
        decisive = [one.rule.decisive for one in self.in_use.values()]
        scores = self.drawn_with, score_fingerprint(self.set_score)
        text = f"{decisive} {self.claim.guarantee} {list(self.in_use)!r} {scores}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def open_sets(self, scores: DrawScores, given: object, progress: Progress) -> SetsByRule:
        """The sets of prompts before their first draw, each by the rule of its group."""
        prompts = scores.prompts
        places = places_of_groups(self.rules, self.groups, given, len(prompts), prompts)
        parts = [one.rule.open_sets(scores, one.claim, progress) for one in self.in_use.values()]
        return SetsByRule(parts, places, progress)


@dataclass(frozen=True)
class SelectorCalibration:
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
    splitter : callable
        As calibration used it.
    component_score : ComponentScore
        The score.
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

    @property
    def gamma_hat(self) -> float:
        """The threshold for all prompts together."""
        return self.thresholds[None]

    @property
    def claim(self) -> Claim:
        """What may be said of the selections of all prompts together."""
        return self.claims[None]

    @property
    def result(self) -> ComponentThreshold | None:
        """The tests for all prompts together; None from a file or on too few prompts."""
        return self.results.get(None)

    @property
    def tests(self) -> ComponentThreshold | None:
        """The same, by the name that it has in a sampler's record."""
        return self.result

    @property
    def by_group(self) -> dict[Hashable, float] | None:
        """The threshold of each group; None without groups."""
        found = {name: gamma for name, gamma in self.thresholds.items() if name is not None}
        return found or None

    @property
    def uses_pooled_rule(self) -> bool:
        """Whether the threshold for all prompts together is one that predict may use."""
        return self.by_group is None or self.groups is None or self.groups.unknown == "pooled"

    @property
    def claims_in_use(self) -> dict[Hashable | None, Claim]:
        """Claims of the thresholds that predict may use, by group."""
        names = [name for name in self.thresholds if name is not None or self.uses_pooled_rule]
        return {name: self.claims[name] for name in names}

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed; False for null."""
        return any(claim.holds for claim in self.claims_in_use.values())

    @property
    def achievable_alpha(self) -> tuple[float, float]:
        """Share of prompts with an error at the highest threshold and at the lowest."""
        return (np.nan, np.nan) if self.result is None else self.result.achievable_alpha

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known to have collected the data."""
        of_data = ("generator", "seed", *PARTS, "k_max")
        return tuple(name for name in of_data if getattr(self.provenance, name) is None)

    @property
    def shift(self) -> Shift | None:
        """The shift of prompts that the guarantee holds for."""
        text = self.provenance.shift
        return None if text is None else Shift.from_json(text)

    def group_of(self, given: object, prompts: list[Any]) -> list[Hashable | None]:
        """The group of each prompt whose threshold holds for it; None is that of all prompts."""
        checked = CheckedPrompts(prompts, numeric=False)
        places = places_of_groups(self.thresholds, self.groups, given, len(prompts), checked)
        names = list(self.thresholds)
        return [None] * len(prompts) if places is None else [names[place] for place in places]
