"""What was calibrated: frozen records, all that prediction depends on, and files of them."""

import json
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy
import sklearn

from sklearn_clm._prompts import CheckedPrompts
from sklearn_clm._results import PredictionSet
from sklearn_clm._version import __version__
from sklearn_clm.calibration import (
    AchievableEpsilon,
    CalibrationData,
    ComponentCalibrationData,
    ComponentThreshold,
    Configuration,
    LearnThenTestResult,
    Provenance,
    SamplingRule,
    get_set_score,
)
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators import Generation, Generator
from sklearn_clm.generators._base import fingerprint
from sklearn_clm.generators._records import json_value, naming
from sklearn_clm.scoring import quality_matrix, similarity_tensor
from sklearn_clm.scoring._identity import score_fingerprint
from sklearn_clm.scoring._quality import bind_quality

__all__ = [
    "PARTS",
    "SCORES",
    "DrawSource",
    "OpenSets",
    "SamplerCalibration",
    "SelectorCalibration",
    "read_calibration",
    "refuse_differences",
    "write_calibration",
]

SCORES = ("quality", "similarity", "admission")
PARTS = ("splitter", "component_score", "admission")
_NUMBERS = ("epsilon", "delta", "size_weight", "excess_weight")
_MOST_DRAWS = 1_000_000  # a file must not make predict allocate more
# no number reaches a set score that is none: even one of +inf stops nothing
_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class DrawSource:
    """Where the draws of an estimator come from.

    Parameters
    ----------
    generator : Generator
        A copy that belongs to the estimator, trained where it can be.
    fingerprint : str
        Of the generator, before it drew anything.
    seed : int
        Seed of all draws.
    trained_on : ndarray of uint64
        Digests of the prompts that trained the generator.
    indices : ndarray of int, or None
        Positions of the prompts left for calibration; None where nothing was collected.
    prompts : CheckedPrompts, or None
        These prompts.
    data : CalibrationData, or None
        What was collected.
    """

    generator: Generator
    fingerprint: str
    seed: int
    trained_on: np.ndarray = field(repr=False)
    indices: np.ndarray | None = field(default=None, repr=False)
    prompts: CheckedPrompts | None = field(default=None, repr=False)
    data: CalibrationData | None = None

    def refuse_changes(self) -> None:
        """Refuse a generator whose fingerprint is no longer that of the calibration."""
        named = hasattr(self.generator, "fingerprint") or hasattr(self.generator, "get_params")
        # the attributes of any other one count as well, even mere counters
        if named and (now := fingerprint(self.generator)) != self.fingerprint:
            raise ValueError(
                f"generator_ must be the {type(self.generator).__name__} that was calibrated, "
                f"fingerprint {self.fingerprint}, got one with the fingerprint {now} instead: it "
                "was changed or trained since. Call fit again."
            )


@dataclass(frozen=True)
class SamplerCalibration:
    """What was calibrated, and all that prediction depends on.

    Parameters
    ----------
    lambda_hat : Configuration or None
        The chosen thresholds; None for null.
    k_max, width : int
        The budget in force, and the largest one that calibration saw.
    epsilon, delta, size_weight, excess_weight : float
        As calibration was asked for.
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
    result : LearnThenTestResult or None
        The tests; None for a calibration from a file or on too few prompts.
    data : CalibrationData or None
        What was calibrated on; None for a calibration from a file.
    """

    lambda_hat: Configuration | None
    k_max: int
    width: int
    epsilon: float
    delta: float
    size_weight: float
    excess_weight: float
    quality: Any
    similarity: Any
    set_score: Any
    source: DrawSource
    provenance: Provenance
    achievable_epsilon: AchievableEpsilon
    result: LearnThenTestResult | None = field(default=None, repr=False)
    data: CalibrationData | None = None

    written_as: ClassVar[str] = "sklearn_clm.calibration/1"
    in_file: ClassVar[frozenset[str]] = frozenset(
        {
            *("lambda_hat", "achievable_epsilon", "k_max", "width", "seed", "scores", "generator"),
            *("epsilon", "delta", "size_weight", "excess_weight", "precision"),
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
    def unknown(self) -> tuple[str, ...]:
        """What is not known to have collected the data."""
        of_data = ("generator", "seed", *SCORES)
        return tuple(name for name in of_data if getattr(self.provenance, name) is None)

    @property
    def drawn_with(self) -> Provenance:
        """What predictions are made with."""
        source = self.source
        return replace(self.provenance, generator=source.fingerprint, seed=source.seed)

    def content(self) -> dict[str, Any]:
        """What a file of the calibration holds."""
        result, known = self.result, self.provenance
        return {
            "format": self.written_as,
            "lambda_hat": None
            if self.lambda_hat is None
            else {name: _threshold_text(x) for name, x in self.lambda_hat._asdict().items()},
            "k_max": self.k_max,
            "width": self.width,
            **{name: float(getattr(self, name)) for name in _NUMBERS},
            "achievable_epsilon": [float(value) for value in self.achievable_epsilon],
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
        thresholds, scores = content["lambda_hat"], _as_section(content, "scores")
        low, high = content["achievable_epsilon"]
        k_max = _as_count(content, "k_max", 1)
        width = _as_count(content, "width", k_max, _MOST_DRAWS)
        return {
            "lambda_hat": None
            if thresholds is None
            else Configuration(**{name: _as_threshold(x) for name, x in thresholds.items()}),
            "k_max": k_max,
            "width": width,
            **{name: _as_number(content, name) for name in _NUMBERS},
            "achievable_epsilon": AchievableEpsilon(float(low), float(high)),
            "provenance": Provenance(
                generator=_as_section(content, "generator").get("fingerprint"),
                seed=None if content["seed"] is None else _as_count(content, "seed", 0),
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
    result : ComponentThreshold or None
        The tests; None for a calibration from a file or on too few prompts.
    data : ComponentCalibrationData or None
        What was calibrated on; None for a calibration from a file.
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
    result: ComponentThreshold | None = field(default=None, repr=False)
    data: ComponentCalibrationData | None = None

    written_as: ClassVar[str] = "sklearn_clm.component_calibration/1"
    in_file: ClassVar[frozenset[str]] = frozenset(
        {"gamma_hat", "alpha", "delta", "achievable_alpha", "n_draws", "provenance"}
    )

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known to have collected the data."""
        of_data = ("generator", "seed", *PARTS, "k_max")
        return tuple(name for name in of_data if getattr(self.provenance, name) is None)

    def content(self) -> dict[str, Any]:
        """What a file of the calibration holds."""
        low, high = (float(value) for value in self.achievable_alpha)
        return {
            "format": self.written_as,
            "gamma_hat": _threshold_text(self.gamma_hat),
            "alpha": float(self.alpha),
            "delta": float(self.delta),
            "achievable_alpha": None if math.isnan(low) else [low, high],
            "n_draws": self.n_draws,
            "n_calibration": None if self.data is None else self.data.n_prompts,
            "provenance": asdict(self.provenance),
        }

    @staticmethod
    def read(content: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a record, from the content of a file."""
        low, high = content["achievable_alpha"] or (math.nan, math.nan)
        return {
            "gamma_hat": _as_threshold(content["gamma_hat"]),
            "alpha": _as_number(content, "alpha"),
            "delta": _as_number(content, "delta"),
            "n_draws": None if content["n_draws"] is None else _as_count(content, "n_draws", 1),
            "provenance": Provenance(**_as_section(content, "provenance")),
            "achievable_alpha": (float(low), float(high)),
        }


class _OpenSet:
    """The set of a prompt that sampling has not stopped on."""

    __slots__ = ("draws", "qualities", "rule")

    def __init__(self, rule: SamplingRule) -> None:
        self.rule = rule
        self.draws: list[Generation] = []
        self.qualities: list[float] = []


class OpenSets:
    """Algorithm 1 on many prompts at once, as their draws arrive."""

    def __init__(
        self,
        record: SamplerCalibration,
        prompts: CheckedPrompts,
        n_jobs: int | None,
        known: dict[int, int],
        progress: Any,
    ) -> None:
        self.sets: list[Any] = [None] * len(prompts)
        self._open: dict[int, _OpenSet] = {}
        self._record = record
        self._quality = bind_quality(record.quality, record.generator)
        self._set_score = get_set_score(record.set_score)
        self._prompts = prompts
        self._n_jobs = n_jobs
        self._known = known
        self._progress = progress
        self._n_drawn = 0

    def decide(self, arrived: list[tuple[int, list[Generation]]]) -> list[int]:
        """How many draws of each of these prompts are wanted, now that more have arrived."""
        for i, draws in arrived:
            one = self._open.get(i)
            if one is None:
                one = self._open[i] = _OpenSet(self._new_rule())
            one.draws.extend(draws)
        waiting = [i for i, _ in arrived]
        while waiting:
            groups: dict[tuple[int, int], list[int]] = {}
            for i in waiting:
                groups.setdefault(self._next_draws(self._open[i]), []).append(i)
            for (start, stop), members in groups.items():
                self._advance(members, start, stop)
            waiting = [
                i
                for i in waiting
                if not self._open[i].rule.done
                and len(self._open[i].draws) > self._open[i].rule.n_samples
            ]
        return [self._wanted(i) for i, _ in arrived]

    def count_draw(self, i: int, draw: int, generation: Generation) -> None:
        """Show one draw more."""
        self._n_drawn += 1
        if not self._progress.disable:
            self._progress.set_postfix(draws=self._n_drawn, refresh=False)

    def _new_rule(self) -> SamplingRule:
        record = self._record
        configuration = _ACCEPT_ALL if record.lambda_hat is None else record.lambda_hat
        precision = record.provenance.precision
        return SamplingRule(configuration, self._set_score, record.k_max, record.width, precision)

    def _next_draws(self, one: _OpenSet) -> tuple[int, int]:
        # a draw that the rule may not look at is not scored, which can cost as much as drawing
        start = one.rule.n_samples
        return start, len(one.draws) if self._record.lambda_hat is None else start + 1

    def _advance(self, members: list[int], start: int, stop: int) -> None:
        quality, similarity = self._scores(members, start, stop)
        for m, i in enumerate(members):
            one = self._open[i]
            for r in range(stop - start):
                one.qualities.append(float(quality[m, r]))
                one.rule.update(one.qualities[-1], similarity[m, r])

    def _scores(self, members: list[int], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Quality (m, stop - start) and similarity (m, stop - start, stop) of these draws."""
        record, data = self._record, self._record.data
        rows = [self._known.get(i, -1) for i in members]
        if data is not None and min(rows) >= 0:
            return data.quality[rows, start:stop], data.similarity[rows, start:stop, :stop]
        if max(rows) >= 0:  # each part by itself
            parts = [self._scores([i], start, stop) for i in members]
            return np.concatenate([q for q, _ in parts]), np.concatenate([s for _, s in parts])
        draws = [self._open[i].draws[:stop] for i in members]
        quality = quality_matrix(
            self._quality,
            self._prompts.take(members).prompts,
            draws,
            start=start,
            n_jobs=self._n_jobs,
        )
        if record.lambda_hat is None or record.lambda_hat.similarity == np.inf:
            similarity = np.zeros((len(members), stop - start, stop))
        else:
            responses = [[draw.response for draw in row] for row in draws]
            similarity = similarity_tensor(
                record.similarity, responses, start=start, n_jobs=self._n_jobs
            )
        return quality, similarity

    def _wanted(self, i: int) -> int:
        one = self._open[i]
        if not one.rule.done:
            return one.rule.k_max if self._record.lambda_hat is None else one.rule.n_samples + 1
        self.sets[i] = self._closed(self._prompts.prompts[i], self._open.pop(i))
        self._progress.update()
        return 0

    def _closed(self, prompt: Any, one: _OpenSet) -> PredictionSet:
        rule = one.rule
        return PredictionSet(
            prompt=prompt,
            responses=tuple(one.draws[j].response for j in rule.accepted),
            quality=np.array([one.qualities[j] for j in rule.accepted], dtype=np.float64),
            indices=np.array(rule.accepted, dtype=np.intp),
            n_samples=rule.n_samples,
            set_score=rule.score,
            stopped=rule.stopped,
            guaranteed=self._record.lambda_hat is not None,
            generations=tuple(one.draws[: rule.n_samples]),
            provenance_known=not self._record.unknown,
        )


def write_calibration(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write the content and the versions in use; the file is replaced once it is complete."""
    versions = {
        "sklearn_clm": __version__,
        "scikit-learn": sklearn.__version__,
        "scipy": scipy.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    text = json.dumps({**content, "versions": versions}, indent=2, allow_nan=False) + "\n"
    with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)


def read_calibration(
    path: str | os.PathLike[str], kind: "type[SamplerCalibration | SelectorCalibration]"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of a file, and the fields of a record that it holds."""
    with open(path, "rb") as file:
        text = file.read()
    with naming(f"{os.fspath(path)!r} is not an intact file written by save_calibration"):
        content = json_value(text)
        if not isinstance(content, dict):
            raise ValueError(f"it is not a JSON object but a {type(content).__name__}")
        missing = ({"format"} | kind.in_file) - content.keys()
        if missing:
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        if content["format"] != kind.written_as:
            raise ValueError(f"its format is {content['format']!r}, wanted {kind.written_as!r}")
        return content, kind.read(content)


def refuse_differences(name: str, what: str, saved: Mapping[str, Any], own: Any) -> None:
    """Refuse a file whose entries are not the estimator's own; None is unknown, and agrees."""
    for key, value in own.items():
        if saved.get(key) not in (None, value) and value is not None:
            raise ValueError(
                f"{name!r} was calibrated with other {what}: {key} is {saved.get(key)!r} there and "
                f"{value!r} here. The guarantee holds for what was calibrated alone: set {key} to "
                "what it was, or calibrate again."
            )


def _threshold_text(value: float) -> float | str:
    """A threshold for JSON, which has no infinities."""
    return float(value) if math.isfinite(value) else str(float(value))


def _as_threshold(value: Any) -> float:
    """A threshold from JSON."""
    if value in ("inf", "-inf") or (type(value) in (int, float) and math.isfinite(value)):
        return float(value)
    raise ValueError(f"{value!r} is no threshold")


def _as_count(content: Mapping[str, Any], name: str, least: int, most: int = 2**63 - 1) -> int:
    """A whole number from JSON."""
    value = content[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.40}, wanted an integer from {least} to {most}")
    return value


def _as_number(content: Mapping[str, Any], name: str) -> float:
    """A number from JSON."""
    value = content[name]
    if type(value) not in (int, float):
        raise ValueError(f"{name} is {value!r:.40}, wanted a number")
    return float(value)


def _as_section(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object from JSON, empty where there is none."""
    value = content[name]
    if not isinstance(value, (dict, type(None))):
        raise ValueError(f"{name} is {value!r:.40}, wanted an object")
    return value or {}
