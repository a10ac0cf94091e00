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
from sklearn_clm._version import __version__
from sklearn_clm.calibration import (
    AchievableEpsilon,
    CalibrationData,
    ComponentCalibrationData,
    ComponentThreshold,
    Configuration,
    LearnThenTestResult,
    Provenance,
)
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators import Generator
from sklearn_clm.generators._base import fingerprint
from sklearn_clm.generators._records import json_value, naming
from sklearn_clm.policies._exit import ExitResult, model_from_json, model_to_json
from sklearn_clm.policies._judging import Verdicts
from sklearn_clm.scoring._identity import score_fingerprint, small_digest

__all__ = [
    "PARTS",
    "SCORES",
    "DrawSource",
    "SamplerCalibration",
    "SelectorCalibration",
    "read_calibration",
    "refuse_differences",
    "write_calibration",
]

SCORES = ("quality", "similarity", "admission")
PARTS = ("splitter", "component_score", "admission")
_NUMBERS = ("epsilon", "delta", "size_weight", "excess_weight", "draw_weight")
_MOST_DRAWS = 1_000_000  # a file must not make predict allocate more


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
    verdicts : Verdicts, or None
        Whom lazy judging asks about these draws.
    """

    generator: Generator
    fingerprint: str
    seed: int
    trained_on: np.ndarray = field(repr=False)
    indices: np.ndarray | None = field(default=None, repr=False)
    prompts: CheckedPrompts | None = field(default=None, repr=False)
    data: CalibrationData | None = None
    verdicts: Verdicts | None = field(default=None, repr=False)

    def collected(self, data: CalibrationData) -> bool:
        """Whether these very draws are what was collected, all or the first, of any labels."""
        if self.data is None or data.n_prompts != self.data.n_prompts:
            return False
        own, given = self.data.quality, data.quality
        # a truncated array is a view that begins where the whole one does
        return own is given or (
            own.strides == given.strides
            and own.__array_interface__["data"] == given.__array_interface__["data"]
        )

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
class _Calibration:
    """What was calibrated, of parts that are compared where they are used."""

    parts: ClassVar[tuple[str, ...]]
    digests: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = {name: small_digest(getattr(self, name)) for name in self.parts}
        known = {name: digest for name, digest in found.items() if digest is not None}
        object.__setattr__(self, "digests", known)

    def refuse_changes(self) -> None:
        """Refuse parts that are not what was calibrated, as far as they are quickly compared."""
        for name, digest in self.digests.items():
            if small_digest(getattr(self, name)) != digest:
                raise ValueError(
                    f"{name} must be the one that was calibrated, got one that has changed since: "
                    f"{getattr(self, name)!r:.80} reads globals, variables of functions around it "
                    "or attributes that have other values now. Restore them, or call fit again."
                )


@dataclass(frozen=True)
class SamplerCalibration(_Calibration):
    """What was calibrated, and all that prediction depends on.

    Parameters
    ----------
    lambda_hat : Configuration or None
        The chosen thresholds; None for null.
    k_max, width : int
        The budget in force, and the largest one that calibration saw.
    epsilon, delta, size_weight, excess_weight, draw_weight : float
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
        The tests; None for a calibration from a file, on too few prompts, or of an exit policy.
    exit : ExitResult or None
        The calibrated exit policy, where there is one.
    guarantee : {"pac", "marginal"}
        What is promised: with confidence 1 - delta over the calibration prompts, or on average
        over calibration and new prompts together.
    n_judgements : int or None
        With lazy judging: how many responses were judged, in all.
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
    draw_weight: float
    quality: Any
    similarity: Any
    set_score: Any
    source: DrawSource
    provenance: Provenance
    achievable_epsilon: AchievableEpsilon
    result: LearnThenTestResult | None = field(default=None, repr=False)
    exit: ExitResult | None = field(default=None, repr=False)
    guarantee: str = "pac"
    n_judgements: int | None = None
    data: CalibrationData | None = None

    parts: ClassVar[tuple[str, ...]] = ("quality", "similarity", "set_score")
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
    def certified(self) -> bool:
        """Whether anything is guaranteed; False for null."""
        return self.lambda_hat is not None or (
            self.exit is not None and self.exit.level > -math.inf
        )

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
        result, known = self.exit or self.result, self.provenance
        return {
            "format": self.written_as,
            "lambda_hat": None
            if self.lambda_hat is None
            else {name: _threshold_text(x) for name, x in self.lambda_hat._asdict().items()},
            **({} if self.exit is None else {"exit": _exit_content(self.exit)}),
            "k_max": self.k_max,
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
            "achievable_epsilon": AchievableEpsilon(
                *(math.nan if value is None else float(value) for value in (low, high))
            ),
            "guarantee": _as_guarantee(content.get("guarantee", "pac")),
            "exit": None if content.get("exit") is None else _exit_of(content),
            "provenance": Provenance(
                generator=_as_section(content, "generator").get("fingerprint"),
                seed=None if content["seed"] is None else _as_count(content, "seed", 0),
                k_max=width,
                precision=content["precision"],
                **{name: scores.get(name) for name in SCORES},
            ),
        }


@dataclass(frozen=True)
class SelectorCalibration(_Calibration):
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

    parts: ClassVar[tuple[str, ...]] = ("splitter", "component_score")
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


def _exit_content(found: ExitResult) -> dict[str, Any]:
    return {
        "level": _threshold_text(found.level),
        "same_text": found.same_text,
        "equal_texts": found.equal_texts,
        "n_errors_allowed": found.n_errors_allowed,
        "n_calibration": found.n_calibration,
        "n_optimization": found.n_optimization,
        "size": found.size,
        "samples": found.samples,
        "model": model_to_json(found.model),
    }


def _exit_of(content: Mapping[str, Any]) -> ExitResult:
    part = _as_section(content, "exit")
    same_text = part["same_text"]
    model = model_from_json(_as_section(part, "model"))
    if model.k_max != content["k_max"]:
        raise ValueError(f"its exit model is one of k_max={model.k_max}")
    return ExitResult(
        model,
        None if same_text is None else float(same_text),
        bool(part.get("equal_texts", True)),
        _as_threshold(part["level"]),
        _as_guarantee(content["guarantee"]),
        _as_number(content, "epsilon"),
        _as_number(content, "delta"),
        int(part["n_errors_allowed"]),
        _as_count(part, "n_optimization", 0),
        _as_count(part, "n_calibration", 1),
        float(part["size"]),
        float(part["samples"]),
        math.nan,
    )


def _as_guarantee(value: object) -> str:
    if value not in ("pac", "marginal"):
        raise ValueError(f"guarantee must be 'pac' or 'marginal', got {value!r:.40} instead")
    return str(value)
