"""What was calibrated: frozen records, all that prediction depends on."""

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal

from sklearn_clm.calibration import (
    AchievableEpsilon,
    CalibrationData,
    ComponentCalibrationData,
    ComponentThreshold,
    Configuration,
    LearnThenTestResult,
    Provenance,
)
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.generators import Generator
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.policies._base import CalibratedRule, ThresholdRule
from sklearn_clm.policies._collection import SCORES
from sklearn_clm.policies._exit import ExitResult
from sklearn_clm.policies._files import (
    as_count,
    as_guarantee,
    as_number,
    as_section,
    as_threshold,
    exit_content,
    groups_content,
    losses_content,
    refuse_too_few,
    rule_of,
    threshold_text,
    thresholds_content,
)
from sklearn_clm.policies._groups import Groups
from sklearn_clm.policies._risks import Losses
from sklearn_clm.policies._sampling import (
    DrawScores,
    Marks,
    Progress,
    QualityLike,
    SetsByRule,
    SimilarityLike,
)
from sklearn_clm.policies._shift import Shift
from sklearn_clm.policies._source import DrawSource
from sklearn_clm.scoring._identity import score_fingerprint

PARTS = ("splitter", "component_score", "admission")
_NUMBERS = ("epsilon", "delta", "size_weight", "excess_weight", "draw_weight")
_MOSTLY_EMPTY = 0.5
_MOST_DRAWS = 1_000_000  # a file must not make predict allocate more


@dataclass(frozen=True)
class CertifiedGroups:
    """To which groups of prompts something is promised.

    Parameters
    ----------
    groups : Groups
        How groups are known.
    certified : mapping from group to bool
        Whether something is promised to it.
    pooled : bool
        Whether something is promised to prompts of other groups.
    """

    groups: Groups
    certified: Mapping[Hashable, bool]
    pooled: bool

    @property
    def nulls(self) -> list[Hashable]:
        """Groups to which nothing is promised."""
        return [name for name, certified in self.certified.items() if not certified]

    def promised(self, given: object, n: int, prompts: CheckedPrompts | None) -> list[bool]:
        """Whether something is promised to each of n prompts; groups are not asked for in vain."""
        others = self.groups.unknown == "error" or self.pooled
        if not n or (given is None and others and not self.nulls):
            return [True] * n
        known = [*self.certified.values(), self.pooled]
        places = places_of_groups(self.certified, self.groups, given, n, prompts)
        return [known[place] for place in places or ()]


@dataclass(frozen=True)
class SamplerCalibration:
    """What was calibrated, and all that prediction depends on.

    Parameters
    ----------
    rule : ThresholdRule or ExitResult
        How sampling stops and what is returned, for all prompts together.
    width : int
        The largest budget that calibration saw.
    epsilon, delta, size_weight, excess_weight, draw_weight : float
        As calibration was asked for.
    guarantee : {"pac", "marginal"}
        What is promised: with confidence 1 - delta over the calibration prompts, or on average
        over calibration and new prompts together.
    quality, similarity : str, callable or object
        The scores, as copies that later changes do not reach.
    set_score : str, callable or SetScore
        The set function F.
    source : DrawSource
        Generator and seed of the draws.
    provenance : Provenance
        What the data were collected with; unknown fields are None.
    achievable_epsilon : AchievableEpsilon
        Error of always drawing K, and of always drawing one.
    n_judgements : int or None
        With lazy judging: how many responses were judged, in all.
    data : CalibrationData or None
        What was calibrated on; None for a calibration from a file.
    by_group : mapping from group to ThresholdRule or ExitResult, or None
        The rule of each group; None without groups.
    groups : Groups or None
        What is promised within groups.
    shift : Shift or None
        The shift of prompts that the guarantee holds for.
    losses : Losses or None
        Other losses that are kept.
    """

    rule: CalibratedRule
    width: int
    epsilon: float
    delta: float
    size_weight: float
    excess_weight: float
    draw_weight: float
    guarantee: str
    quality: QualityLike
    similarity: SimilarityLike
    set_score: SetScoreLike
    source: DrawSource
    provenance: Provenance
    achievable_epsilon: AchievableEpsilon
    n_judgements: int | None = None
    data: CalibrationData | None = None
    by_group: Mapping[Hashable, CalibratedRule] | None = None
    groups: Groups | None = None
    shift: Shift | None = None
    losses: Losses | None = None

    written_as: ClassVar[str] = "sklearn_clm.calibration/1"
    in_file: ClassVar[frozenset[str]] = frozenset(
        {
            *("lambda_hat", "achievable_epsilon", "k_max", "width", "seed", "scores", "generator"),
            *("epsilon", "delta", "size_weight", "excess_weight", "draw_weight", "precision"),
        }
    )

    @property
    def generator(self) -> Generator:
        """The generator in use."""
        return self.source.generator

    @property
    def seed(self) -> int:
        """Seed of the draws."""
        return self.source.seed

    @property
    def rules(self) -> list[CalibratedRule]:
        """The rules that predict may use."""
        return [*(self.by_group or {}).values(), *([self.rule] if self.uses_pooled_rule else [])]

    @property
    def uses_pooled_rule(self) -> bool:
        """Whether the rule for all prompts together is one that predict may use."""
        return self.by_group is None or self.groups is None or self.groups.unknown == "pooled"

    @property
    def k_max(self) -> int:
        """The budget in force; of several groups the largest."""
        return max(rule.k_max for rule in self.rules)

    @property
    def lambda_hat(self) -> Configuration | None:
        """The chosen thresholds; None for null, and of an exit policy."""
        return self.rule.lambda_hat if isinstance(self.rule, ThresholdRule) else None

    @property
    def result(self) -> LearnThenTestResult | None:
        """The tests; None from a file, on too few prompts, or of an exit policy."""
        return self.rule.result if isinstance(self.rule, ThresholdRule) else None

    @property
    def group_results(self) -> dict[Hashable, LearnThenTestResult]:
        """The tests of each group that is large enough for any."""
        return {
            name: rule.result
            for name, rule in (self.by_group or {}).items()
            if isinstance(rule, ThresholdRule) and rule.result is not None
        }

    @property
    def exit(self) -> ExitResult | None:
        """The calibrated exit policy, where there is one."""
        return self.rule if isinstance(self.rule, ExitResult) else None

    @property
    def has_empty_sets(self) -> bool:
        """Whether a rule that predict may use gives empty sets to more than half of the prompts."""
        return any(rule.size < _MOSTLY_EMPTY for rule in self.rules if rule.certified)

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed; False for null."""
        return any(rule.certified for rule in self.rules)

    @property
    def certified_groups(self) -> CertifiedGroups | None:
        """To which groups anything is guaranteed; None without groups."""
        if self.by_group is None or self.groups is None:
            return None
        certified = {name: rule.certified for name, rule in self.by_group.items()}
        return CertifiedGroups(self.groups, certified, self.rule.certified)

    def open_sets(self, scores: DrawScores, given: object, progress: Progress) -> SetsByRule:
        """The sets of prompts before their first draw, each by the rule of its group."""
        prompts = scores.prompts
        of_prompt = places_of_groups(self.by_group, self.groups, given, len(prompts), prompts)
        names = [*(self.by_group or ()), *([None] if self.uses_pooled_rule else [])]
        approximate = self.shift is not None and self.shift.estimated
        about = (not self.unknown, self.guarantee, progress)
        parts = [
            rule.open_sets(
                scores,
                Marks(
                    rule.certified, *about, name, approximate, bool(self.by_group) and name is None
                ),
            )
            for rule, name in zip(self.rules, names, strict=True)
        ]
        return SetsByRule(parts, of_prompt, progress)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known to have collected the data."""
        of_data = ("generator", "seed", *SCORES)
        return tuple(name for name in of_data if getattr(self.provenance, name) is None)

    @property
    def digest(self) -> str:
        """Digest of all that decides which set a prompt gets, as far as it is known."""
        levels = [[*_decisive(rule), int(rule.k_max)] for rule in self.rules]
        known = self.drawn_with
        scores = known.quality, known.similarity, score_fingerprint(self.set_score)
        text = f"{levels} {self.guarantee} {known.generator} {known.seed} {scores}"
        if self.by_group is not None:
            text += f" {list(self.by_group)!r} {self.groups and groups_content(self.groups)}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def drawn_with(self) -> Provenance:
        """What predictions are made with."""
        source = self.source
        return replace(self.provenance, generator=source.fingerprint, seed=source.seed)

    def content(self) -> dict[str, Any]:
        """What a file of the calibration holds."""
        result, known = self.exit or self.result, self.provenance
        return {
            "format": self.written_as,
            "lambda_hat": thresholds_content(self.rule),
            **({} if self.exit is None else {"exit": exit_content(self.exit)}),
            "k_max": self.rule.k_max,
            "groups": _groups_content(self, _rule_content),
            "shift": None if self.shift is None else asdict(self.shift),
            "losses": losses_content(self.losses),
            "width": self.width,
            "guarantee": self.guarantee,
            **{name: float(getattr(self, name)) for name in _NUMBERS},
            "achievable_epsilon": [
                None if math.isnan(value) else float(value) for value in self.achievable_epsilon
            ],
            "n_calibration": None if result is None else result.n_calibration,
            "n_optimization": None if result is None else result.n_optimization,
            "provenance": f"unknown: {', '.join(self.unknown)}" if self.unknown else "known",
            "seed": known.seed,
            "precision": known.precision,
            "scores": {
                **{name: getattr(known, name) for name in SCORES},
                "set_score": score_fingerprint(self.set_score),
            },
            "generator": known.generator
            and {"class": type(self.generator).__name__, "fingerprint": known.generator},
        }

    @staticmethod
    def read(content: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a record, from the content of a file."""
        scores = as_section(content, "scores")
        low, high = content["achievable_epsilon"]
        k_max = as_count(content, "k_max", 1)
        width = as_count(content, "width", k_max, _MOST_DRAWS)

        def rule_of_group(one: Mapping[str, Any]) -> CalibratedRule:
            return rule_of(one, content, as_count(one, "k_max", 1, width))

        shift = content.get("shift")
        return {
            "rule": rule_of(content, content, k_max),
            "width": width,
            **_read_groups(content, rule_of_group),
            "shift": None if shift is None else Shift(**as_section(content, "shift")),
            **{name: as_number(content, name) for name in _NUMBERS},
            "achievable_epsilon": AchievableEpsilon(
                *(math.nan if value is None else float(value) for value in (low, high))
            ),
            "guarantee": as_guarantee(content.get("guarantee", "pac")),
            "provenance": Provenance(
                generator=as_section(content, "generator").get("fingerprint"),
                seed=None if content["seed"] is None else as_count(content, "seed", 0),
                k_max=width,
                precision=content["precision"],
                **{name: scores.get(name) for name in SCORES},
            ),
        }


@dataclass(frozen=True)
class SelectorCalibration:
    """What was calibrated, and all that the selection depends on.

    Parameters
    ----------
    gamma_hat : float
        The threshold; +inf where none could be certified.
    alpha, delta : float
        As calibration was asked for.
    splitter : callable
        As calibration used it: a copy that later changes do not reach.
    component_score : ComponentScore
        The score, a copy as well.
    n_draws : int or None
        Draws that calibration saw for each prompt; None where it is unknown.
    provenance : Provenance
        What the data were collected with; unknown fields are None.
    achievable_alpha : tuple of float
        Share of calibration prompts with an error at the highest threshold and at the lowest.
    sampler : ConformalSampler or None
        Makes sets of prompts; None where there is none yet.
    loss : {"any", "fraction"}
        What is bounded by alpha: the probability that any component is wrong, or the mean
        fraction of wrong ones.
    result : ComponentThreshold or None
        The tests; None for a calibration from a file or on too few prompts.
    data : ComponentCalibrationData or None
        What was calibrated on; None for a calibration from a file.
    by_group : mapping from group to float, or None
        The threshold of each group; None without groups.
    groups : Groups or None
        What is promised within groups.
    group_results : mapping from group to ComponentThreshold or None
        The tests of each group; None without groups, and for a calibration from a file.
    remarks : tuple of str
        What calibration warned of; empty for one from a file.
    """

    gamma_hat: float
    alpha: float
    delta: float
    splitter: Callable[[str], Any]
    component_score: Any
    n_draws: int | None
    provenance: Provenance
    achievable_alpha: tuple[float, float]
    sampler: Any = None
    loss: Literal["any", "fraction"] = "any"
    result: ComponentThreshold | None = field(default=None, repr=False)
    data: ComponentCalibrationData | None = None
    by_group: Mapping[Hashable, float] | None = None
    groups: Groups | None = None
    group_results: Mapping[Hashable, ComponentThreshold | None] | None = field(
        default=None, repr=False
    )
    remarks: tuple[str, ...] = field(default=(), repr=False)

    written_as: ClassVar[str] = "sklearn_clm.component_calibration/1"
    in_file: ClassVar[frozenset[str]] = frozenset(
        {"gamma_hat", "alpha", "delta", "achievable_alpha", "n_draws", "provenance"}
    )

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

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed; False for null."""
        return min(gamma for gamma, _ in self._rules()) < math.inf

    @property
    def certified_groups(self) -> CertifiedGroups | None:
        """To which groups anything is guaranteed; None without groups."""
        if self.by_group is None or self.groups is None:
            return None
        certified = {name: gamma < math.inf for name, gamma in self.by_group.items()}
        return CertifiedGroups(self.groups, certified, self.gamma_hat < math.inf)

    @property
    def uses_pooled_rule(self) -> bool:
        """Whether the threshold for all prompts together is one that predict may use."""
        return self.by_group is None or self.groups is None or self.groups.unknown == "pooled"

    def _rules(self) -> list[tuple[float, Hashable | None]]:
        """The thresholds that predict may use, and the group of each."""
        by_group = [(gamma, name) for name, gamma in (self.by_group or {}).items()]
        pooled: tuple[float, Hashable | None] = (self.gamma_hat, None)
        return [*by_group, *([pooled] if self.uses_pooled_rule else [])]

    def thresholds_of(
        self, given: object, prompts: list[Any]
    ) -> list[tuple[float, Hashable | None]]:
        """The threshold of each prompt, and the group that it holds for."""
        rules = self._rules()
        checked = CheckedPrompts(prompts, numeric=False)
        places = places_of_groups(self.by_group, self.groups, given, len(prompts), checked)
        return rules * len(prompts) if places is None else [rules[place] for place in places]

    def content(self) -> dict[str, Any]:
        """What a file of the calibration holds."""
        return {
            "format": self.written_as,
            "gamma_hat": threshold_text(self.gamma_hat),
            "loss": self.loss,
            "groups": _groups_content(self, lambda gamma: {"gamma_hat": threshold_text(gamma)}),
            "alpha": float(self.alpha),
            "delta": float(self.delta),
            "achievable_alpha": [
                None if math.isnan(value) else float(value) for value in self.achievable_alpha
            ],
            "n_draws": self.n_draws,
            "n_calibration": None if self.data is None else self.data.n_prompts,
            "provenance": asdict(self.provenance),
        }

    @staticmethod
    def read(content: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a record, from the content of a file."""
        low, high = content["achievable_alpha"]
        gamma_hat, loss = as_threshold(content["gamma_hat"]), _as_loss(content.get("loss", "any"))
        if gamma_hat < math.inf and loss == "any":
            refuse_too_few(content, "alpha")
        return {
            **_read_groups(content, lambda one: as_threshold(one["gamma_hat"])),
            "gamma_hat": gamma_hat,
            "loss": loss,
            "alpha": as_number(content, "alpha"),
            "delta": as_number(content, "delta"),
            "n_draws": None if content["n_draws"] is None else as_count(content, "n_draws", 1),
            "provenance": Provenance(**as_section(content, "provenance")),
            "achievable_alpha": tuple(
                math.nan if value is None else float(value) for value in (low, high)
            ),
        }


def places_of_groups(
    by_group: Mapping[Hashable, object] | None,
    groups: Groups | None,
    given: object,
    n_prompts: int,
    prompts: CheckedPrompts | None,
) -> list[int] | None:
    """Where each prompt's group stands among the calibrated ones; None where there are none.

    A group that was not calibrated has the place behind them all.
    """
    if by_group is None or groups is None:
        if given is not None:
            raise ValueError(
                "groups must be None where calibration was given none, got groups instead."
            )
        return None
    position = {name: g for g, name in enumerate(by_group)}
    asked = groups.of(given, n_prompts, prompts)
    if groups.unknown == "error" and (unknown := set(asked) - set(position)):
        raise ValueError(
            f"groups must be among those that were calibrated, {list(by_group)!r:.200}, "
            f"got {next(iter(unknown))!r} instead; Groups(unknown='pooled') uses the rule "
            "for all prompts there."
        )
    return [position.get(name, len(position)) for name in asked]


def _group_in_file(name: Hashable) -> Hashable:
    finite = type(name) is not float or math.isfinite(name)
    if type(name) not in (str, int, float, bool) or not finite:
        raise ValueError(
            f"groups must be text or numbers for a JSON file, got {name!r:.80} instead; pickle the "
            "estimator."
        )
    return name


def _groups_content(
    record: SamplerCalibration | SelectorCalibration, content: Callable[[Any], dict[str, Any]]
) -> dict[str, Any] | None:
    if record.by_group is None or record.groups is None:
        return None
    rules = [
        {"group": _group_in_file(name), **content(rule)} for name, rule in record.by_group.items()
    ]
    return {**groups_content(record.groups), "rules": rules}


def _rule_content(rule: CalibratedRule) -> dict[str, Any]:
    content: dict[str, Any] = {"k_max": rule.k_max, "lambda_hat": thresholds_content(rule)}
    if isinstance(rule, ExitResult):
        # the model is that of all prompts
        content["exit"] = {**exit_content(rule), "delta": rule.delta, "model": None}
    return content


def _read_groups(
    content: Mapping[str, Any], rule_of_group: Callable[[Mapping[str, Any]], object]
) -> dict[str, Any]:
    if content.get("groups") is None:
        return {}
    part = as_section(content, "groups")
    groups = Groups(guarantee=part["guarantee"], unknown=part["unknown"])
    groups._validate_params()
    rules = {one["group"]: rule_of_group(one) for one in part["rules"]}
    return {"groups": groups, "by_group": rules}


def _decisive(rule: CalibratedRule) -> list[object]:
    """All of a rule that decides which draws are made and which are returned."""
    if isinstance(rule, ExitResult):
        content = exit_content(rule)
        return [content[name] for name in ("level", "same_text", "equal_texts", "model")]
    found = rule.lambda_hat if isinstance(rule, ThresholdRule) else None
    return [] if found is None else list(map(float, found))


def _as_loss(value: object) -> str:
    if value not in ("any", "fraction"):
        raise ValueError(f"loss is {value!r:.40}, wanted 'any' or 'fraction'")
    return str(value)
