"""Files of calibrations: small, readable JSON that is checked when it is read."""

import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy
import sklearn

from sklearn_clm._exceptions import warn
from sklearn_clm._version import __version__
from sklearn_clm.calibration import Configuration, ExitModel, critical_count
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.calibration._exit_policy import (
    ARRIVAL_FEATURES,
    TEXT_FEATURES,
    Classifier,
    ConstantClassifier,
    ScoreScale,
)
from sklearn_clm.generators._records import json_value, naming
from sklearn_clm.policies._base import CalibratedRule, Policy, ThresholdRule
from sklearn_clm.policies._collection import OWN_CODE
from sklearn_clm.policies._exit import ExitPolicy, ExitResult, errors_allowed
from sklearn_clm.policies._groups import Groups
from sklearn_clm.policies._risks import Losses
from sklearn_clm.policies._shift import CovariateShift, Shift
from sklearn_clm.scoring._identity import score_fingerprint

_WRITTEN_BY = {
    "sklearn_clm.calibration/1": "ConformalSampler",
    "sklearn_clm.component_calibration/1": "ComponentSelector",
}


class Record(Protocol):
    """What a file holds."""

    written_as: ClassVar[str]
    in_file: ClassVar[frozenset[str]]

    @staticmethod
    def read(content: Mapping[str, Any]) -> dict[str, Any]: ...


def write_calibration(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write the content, the versions in use and a digest of both."""
    versions = {
        "sklearn_clm": __version__,
        "scikit-learn": sklearn.__version__,
        "scipy": scipy.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    whole = {**content, "versions": versions}
    text = json.dumps({**whole, "digest": _digest(whole)}, indent=2, allow_nan=False) + "\n"
    with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)


def _digest(content: Mapping[str, Any]) -> str:
    """Digest of all that a file says; its layout does not count."""
    said = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(said, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def read_calibration(
    path: str | os.PathLike[str], kind: type[Record]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of a file, and the fields of a record that it holds."""
    with open(path, "rb") as file:
        text = file.read()
    with naming(f"{os.fspath(path)!r} is not an intact file written by save_calibration"):
        content = json_value(text)
        if not isinstance(content, dict):
            raise ValueError(f"it is not a JSON object but a {type(content).__name__}")
        if content.get("format") in _WRITTEN_BY.keys() - {kind.written_as}:
            raise ValueError(
                f"a {_WRITTEN_BY[content['format']]} wrote it, wanted one of a "
                f"{_WRITTEN_BY[kind.written_as]}"
            )
        missing = ({"format"} | kind.in_file) - content.keys()
        if missing:
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        if content["format"] != kind.written_as:
            raise ValueError(f"its format is {content['format']!r}, wanted {kind.written_as!r}")
        if content.get("digest", _digest(content)) != _digest(content):
            raise ValueError("its digest is not that of its content, which was changed")
        read = kind.read(content)
    if "digest" not in content:
        warn(
            f"{os.fspath(path)!r} has no digest, as files of early versions: nothing tells whether "
            "its thresholds are those that were calibrated. Calibrate again, and save it anew."
        )
    return content, read


def refuse_too_few(content: Mapping[str, Any], risk: str) -> None:
    """Refuse what even a calibration without an error could not have certified."""
    if content.get("n_calibration") is None:
        return
    n = as_count(content, "n_calibration", 1)
    epsilon, delta = as_number(content, risk), as_number(content, "delta")
    if critical_count(n, epsilon, delta) < 0:
        raise ValueError(f"n_calibration={n} is too few for {risk}={epsilon} and delta={delta}")


def _restored(what: str, key: str) -> str:
    if key == "fingerprint":  # of all parameters, which nobody sets
        return (
            f"give the {what} the parameters and the training that it had (code of yours that was "
            "edited, or moved to another module, is other code, unless a CachedGenerator around "
            "it has a key=; a PrecomputedGenerator with draws of other prompts is another one, "
            "unless both have the same key=)"
        )
    code = f" ({OWN_CODE})" if what in ("scores", "score") else ""
    return f"set {key} to what it was{code}"


def refuse_differences(name: str, what: str, saved: Mapping[str, Any], own: Any) -> None:
    """Refuse a file whose entries are not the estimator's own; None is unknown, and agrees."""
    for key, value in own.items():
        there = saved.get(key)
        if None not in (there, value) and there != value:
            raise ValueError(
                f"{name!r} was calibrated with other {what}: {key} is {saved.get(key)!r} there and "
                f"{value!r} here. The guarantee holds for what was calibrated alone: "
                f"{_restored(what, key)}, or calibrate again."
            )


def refuse_other_sampler(
    name: str,
    content: Mapping[str, Any],
    saved: Mapping[str, Any],
    *,
    fingerprint: str,
    scores: Mapping[str, str],
    parameters: Mapping[str, object],
    policy: Policy[Any],
    groups: Groups | None,
    losses: Losses | None,
    shift: CovariateShift | None,
) -> None:
    """Refuse a file that belongs to a sampler with another generator, scores or parameters."""
    known, rule = saved["provenance"], saved["rule"]
    # a null of too few prompts belongs to no policy
    kind = rule.kind if rule.certified or isinstance(rule, ExitResult) else None
    for what, there, here in (
        ("generator", {"fingerprint": known.generator}, {"fingerprint": fingerprint}),
        ("scores", content["scores"] or {}, scores),
        ("parameters", {**saved, "policy": kind}, {**parameters, "policy": policy.kind}),
    ):
        refuse_differences(name, what, there, here)
    if isinstance(rule, ExitResult) and isinstance(policy, ExitPolicy):
        own = _exit_parts(policy.same_text, policy.path)
        refuse_differences(name, "parameters", _exit_parts(rule.same_text, rule.model), own)
    kept = {"losses": content.get("losses") or "none"}
    refuse_differences(name, "parameters", kept, {"losses": losses_content(losses) or "none"})
    refuse_other_groups(name, content.get("groups"), groups)
    found: Shift | None = saved.get("shift")
    # without a shift of its own the sampler takes over that of the file, as its sets say
    if shift is not None and (found is None or not shift.agrees(found)):
        own = {"method": shift.method, "weight_bound": float(shift.weight_bound)}
        there = None if found is None else {key: getattr(found, key) for key in own}
        refuse_differences(name, "parameters", {"shift": there or "none"}, {"shift": own})


def _exit_parts(same_text: float | None, model: ExitModel | None) -> dict[str, object]:
    """What a rule takes over from an exit policy; the model where it was learnt before."""
    return {
        "policy__same_text": "none" if same_text is None else float(same_text),
        "policy.model_": None if model is None else score_fingerprint(_model_to_json(model)),
    }


def refuse_other_groups(name: str, saved: Mapping[str, Any] | None, groups: Groups | None) -> None:
    """Refuse a file whose groups are not those of an estimator."""
    options = ("by", "guarantee", "unknown")
    there = None if saved is None else {option: saved[option] for option in options}
    here = None if groups is None else groups_content(groups)
    if here is None and there is not None and there["by"] is None:
        return  # groups that are given to predict
    if here != there:
        refuse_differences(
            name, "parameters", {"groups": there or "none"}, {"groups": here or "none"}
        )


def groups_content(groups: Groups) -> dict[str, str | None]:
    """What a file holds of the guarantee of groups."""
    by = None if groups.by is None else score_fingerprint(groups.by)
    return {"by": by, "guarantee": groups.guarantee, "unknown": groups.unknown}


def losses_content(losses: Losses | None) -> dict[str, Any] | None:
    """What a file holds of other losses."""
    if losses is None:
        return None
    named = losses.named()
    return {
        "functions": {name: score_fingerprint(loss) for name, (loss, _) in named.items()},
        "levels": {name: level for name, (_, level) in named.items()},
        "admission": bool(losses.admission),
        "p_value": losses.p_value,
    }


def threshold_text(value: float) -> float | str:
    """A threshold for JSON, which has no infinities."""
    return float(value) if math.isfinite(value) else str(float(value))


def as_threshold(value: Any) -> float:
    """A threshold from JSON."""
    if value in ("inf", "-inf") or (type(value) in (int, float) and math.isfinite(value)):
        return float(value)
    raise ValueError(f"{value!r} is no threshold")


def as_count(content: Mapping[str, Any], name: str, least: int, most: int = 2**63 - 1) -> int:
    """A whole number from JSON."""
    value = content[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.40}, wanted an integer from {least} to {most}")
    return value


def as_number(content: Mapping[str, Any], name: str) -> float:
    """A number from JSON."""
    value = content[name]
    if type(value) not in (int, float):
        raise ValueError(f"{name} is {value!r:.40}, wanted a number")
    return float(value)


def as_section(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object from JSON, empty where there is none."""
    value = content[name]
    if not isinstance(value, (dict, type(None))):
        raise ValueError(f"{name} is {value!r:.40}, wanted an object")
    return value or {}


def exit_content(found: ExitResult) -> dict[str, Any]:
    return {
        "level": threshold_text(found.level),
        "same_text": found.same_text,
        "equal_texts": found.equal_texts,
        "n_errors_allowed": found.n_errors_allowed,
        "n_calibration": found.n_calibration,
        "n_optimization": found.n_optimization,
        "size": found.size,
        "samples": found.samples,
        "model": _model_to_json(found.model),
    }


def thresholds_content(rule: CalibratedRule) -> dict[str, float | str] | None:
    found = rule.lambda_hat if isinstance(rule, ThresholdRule) else None
    return None if found is None else {k: threshold_text(x) for k, x in found._asdict().items()}


def rule_of(part: Mapping[str, Any], content: Mapping[str, Any], k_max: int) -> CalibratedRule:
    """The rule in a part of a file, or in the whole of it."""
    if part.get("exit") is not None:
        return exit_of(as_section(part, "exit"), content)
    thresholds = part["lambda_hat"]
    if thresholds is None:
        return ThresholdRule(None, k_max)
    found = Configuration(**{name: as_threshold(x) for name, x in thresholds.items()})
    losses = as_section(content, "losses")
    if losses.get("admission", True) and content.get("guarantee", "pac") == "pac":
        refuse_too_few(content, "epsilon")
        if found.quality == math.inf:
            raise ValueError("the threshold of quality is inf, so that every set would be empty")
    return ThresholdRule(found, k_max)


def exit_of(part: Mapping[str, Any], content: Mapping[str, Any]) -> ExitResult:
    same_text = part["same_text"]
    model = _model_from_json(as_section(as_section(content, "exit"), "model"))
    if model.k_max != content["k_max"]:
        raise ValueError(f"its exit model is one of k_max={model.k_max}")
    level, guarantee = as_threshold(part["level"]), as_guarantee(content["guarantee"])
    epsilon = as_number(content, "epsilon")
    delta = as_number(part if "delta" in part else content, "delta")
    n = as_count(part, "n_calibration", 1)
    allowed = as_count(part, "n_errors_allowed", -1)
    wanted = errors_allowed(n, epsilon, delta, guarantee)
    if allowed != wanted or (allowed < 0 and level > -math.inf):
        raise ValueError(f"n_errors_allowed is {allowed}, wanted {wanted} of {n} prompts")
    return ExitResult(
        model=model,
        same_text=None if same_text is None else float(same_text),
        equal_texts=bool(part.get("equal_texts", True)),
        level=level,
        guarantee=guarantee,
        epsilon=epsilon,
        delta=delta,
        n_errors_allowed=allowed,
        n_optimization=as_count(part, "n_optimization", 0),
        n_calibration=n,
        size=float(part["size"]),
        samples=float(part["samples"]),
        smallest_epsilon=math.nan,
    )


def as_guarantee(value: object) -> str:
    if value not in ("pac", "marginal"):
        raise ValueError(f"guarantee must be 'pac' or 'marginal', got {value!r:.40} instead")
    return str(value)


class _Linear:
    """A logistic model from a file."""

    def __init__(self, coefficients: list[float], intercept: float) -> None:
        self.coef_ = np.array([coefficients], dtype=np.float64)
        self.intercept_ = np.array([intercept], dtype=np.float64)

    def fit(self, X: np.ndarray, y: np.ndarray) -> "_Linear":
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        share = 1.0 / (1.0 + np.exp(-(X @ self.coef_[0] + self.intercept_[0])))
        return np.stack((1.0 - share, share), axis=1)


def _model_to_json(model: ExitModel) -> dict[str, Any]:
    """An exit model as JSON values; logistic models only."""

    def of(classifier: Any) -> dict[str, Any]:
        if isinstance(classifier, ConstantClassifier):
            return {"probability": float(classifier.probability)}
        if np.shape(getattr(classifier, "coef_", ())) in ((1, 5), (1, 6)):
            return {
                "coefficients": [float(value) for value in classifier.coef_[0]],
                "intercept": float(np.ravel(classifier.intercept_)[0]),
            }
        raise ValueError(
            "the policy's estimator must be a logistic regression for a JSON file, got "
            f"{type(classifier).__name__} instead; pickle the sampler."
        )

    return {
        "text": of(model.text_classifier),
        "arrival": of(model.arrival_classifier),
        "quality": [threshold_text(value) for value in model.quality_scale.knots],
        "similarity": [threshold_text(value) for value in model.similarity_scale.knots],
        "rho": float(model.rho),
        "k_max": int(model.k_max),
    }


def _model_from_json(content: Mapping[str, Any]) -> ExitModel:
    """The exit model that :func:`_model_to_json` wrote."""

    def of(part: Mapping[str, Any], features: Sequence[str]) -> Classifier:
        if "probability" in part:
            return ConstantClassifier(float(part["probability"]))
        coefficients = np.array([float(value) for value in part["coefficients"]])
        if coefficients.shape != (len(features),) or not np.isfinite(coefficients).all():
            raise ValueError(f"coefficients must be {len(features)} finite numbers")
        return _Linear(coefficients.tolist(), float(part["intercept"]))

    def scale(values: Sequence[float | str]) -> ScoreScale:
        knots = np.array([float(value) for value in values])
        if not len(knots) or np.isnan(knots).any() or np.any(knots[1:] < knots[:-1]):
            raise ValueError("quantiles of scores must be ascending numbers")
        return ScoreScale(knots)

    rho = float(content["rho"])
    if not 0.0 < rho < np.inf:
        raise ValueError(f"rho must be a positive number, got {rho!r} instead")
    return ExitModel(
        of(content["text"], TEXT_FEATURES),
        of(content["arrival"], ARRIVAL_FEATURES),
        scale(content["quality"]),
        scale(content["similarity"]),
        rho,
        int(content["k_max"]),
    )
