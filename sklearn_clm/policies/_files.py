"""Files of calibrations: small, readable JSON that is checked when it is read.

The content follows the fields of the records: a file holds what prediction depends on and can be
written down, never data or code. Scores, groups and losses are known by their fingerprints.
"""

import hashlib
import json
import math
import os
import platform
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import scipy
import sklearn

from sklearn_clm._version import __version__
from sklearn_clm.calibration import Claim, Configuration, Provenance
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.calibration._exit_model import (
    ARRIVAL_FEATURES,
    TEXT_FEATURES,
    Classifier,
    ConstantClassifier,
    ExitModel,
    ScoreScale,
)
from sklearn_clm.generators._records import json_value, naming
from sklearn_clm.policies._answer import AnswerLevel
from sklearn_clm.policies._calibration import SamplerCalibration, SelectorCalibration
from sklearn_clm.policies._collection import OWN_CODE
from sklearn_clm.policies._groups import Groups
from sklearn_clm.policies._losses import Losses
from sklearn_clm.policies._rules import (
    Certified,
    Everything,
    LevelRule,
    Rules,
    ThresholdRule,
    model_content,
)
from sklearn_clm.policies._shift import Shift
from sklearn_clm.scoring._identity import score_fingerprint

_FORMATS = {
    "sklearn_clm.calibration/2": "ConformalSampler",
    "sklearn_clm.component_calibration/2": "ComponentSelector",
}
_OF_SAMPLERS = ("width", "epsilon", "delta", "weights", "n_judgements")
_OF_SELECTORS = ("alpha", "delta", "n_draws")
_MOST_DRAWS = 1_000_000  # a file must not make predict allocate more


# --- what both files have in common -----------------------------------------------------------


def write_calibration(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write the content, the versions in use and a digest of both."""
    versions = {
        "sklearn_clm": __version__,
        "scikit-learn": sklearn.__version__,
        "scipy": scipy.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    whole = {**_plain(content), "versions": versions}
    text = json.dumps({**whole, "digest": _digest(whole)}, indent=2, allow_nan=False) + "\n"
    with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)


def _digest(content: Mapping[str, Any]) -> str:
    """Digest of all that a file says; its layout does not count."""
    said = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=32).hexdigest()


def _plain(value: Any) -> Any:
    """A value for JSON, which has neither infinities nor arrays."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(part) for part in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else str(float(value))
    return int(value) if isinstance(value, np.integer) else value


def _content(path: str | os.PathLike[str], wanted: str) -> dict[str, Any]:
    """The content of a file of a format, whose digest is right."""
    with open(path, "rb") as file:
        content = json_value(file.read())
    if not isinstance(content, dict):
        raise ValueError(f"it is not a JSON object but a {type(content).__name__}")
    written_as = content.get("format")
    if written_as != wanted:
        by = _FORMATS.get(str(written_as), f"an object of the format {written_as!r:.60}")
        version = content.get("versions")
        version = version.get("sklearn_clm") if isinstance(version, dict) else None
        raise ValueError(
            f"a {by} of sklearn_clm {version} wrote it, wanted one of a {_FORMATS[wanted]} in the "
            f"format {wanted!r}; calibrate again, and save it anew"
        )
    if content.get("digest") != _digest(content):
        raise ValueError("its digest is not that of its content, which was changed")
    return content


def _record(kind: Any, content: Mapping[str, Any]) -> Any:
    """A dataclass whose fields are numbers, text, lists or mappings of them."""
    given = {field.name: content[field.name] for field in fields(kind) if field.name in content}
    return kind(**given)


def _of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _claim(content: Mapping[str, Any]) -> Claim:
    claim: Claim = _record(Claim, {**content, "unknown": tuple(content["unknown"])})
    if not (0.0 < claim.level < 1.0 and 0.0 < claim.delta < 1.0):
        raise ValueError("a claim must have a level and a delta in (0, 1)")
    return claim


def _name(group: Hashable) -> Hashable:
    if group is None or type(group) in (str, int, bool):
        return group
    if type(group) is float and math.isfinite(group):
        return group
    raise ValueError(
        f"groups must be text or numbers for a JSON file, got {group!r:.80} instead; pickle the "
        "estimator."
    )


def _count(value: Any, least: int, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.40} is no integer from {least} to {most}")
    return value


def _written(record: Any, names: Sequence[str], **more: object) -> dict[str, Any]:
    """Fields of a record that both files hold, with its own."""
    return {
        **{name: getattr(record, name) for name in names},
        "provenance": _of(record.provenance),
        "groups": groups_content(record.groups),
        **more,
    }


def _read(content: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What :func:`_written` wrote."""
    groups = content["groups"]
    return {
        **{name: content[name] for name in names},
        "provenance": _record(Provenance, content["provenance"]),
        "groups": None if groups is None else Groups(**{**groups, "by": None}),
    }


def groups_content(groups: Groups | None) -> dict[str, Any] | None:
    """What a file holds of groups."""
    if groups is None:
        return None
    return {**groups.get_params(deep=False), "by": groups.by and score_fingerprint(groups.by)}


def losses_content(losses: Losses | None) -> dict[str, Any] | None:
    """What a file holds of other losses."""
    if losses is None:
        return None
    named = losses.named()
    return {
        "functions": {name: score_fingerprint(loss) for name, (loss, _) in named.items()},
        "levels": {name: level for name, (_, level) in named.items()},
        "admission": bool(losses.admission),
    }


def refuse_differences(name: str, saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuse a file whose entries are not the estimator's own; None is unknown, and agrees."""
    for key, value in own.items():
        there = saved.get(key)
        if None not in (there, value) and there != value:
            hint = OWN_CODE
            if key == "generator":
                hint = f"{hint}; CachedGenerator(generator, store, key=...) keeps one name for it"
            raise ValueError(
                f"{name!r} was calibrated with another {key}: {there!r:.200} there and "
                f"{value!r:.200} here. The guarantee holds for what was calibrated alone: set it "
                f"to what it was ({hint}), or calibrate again."
            )


def refuse_other_groups(name: str, saved: Mapping[str, Any] | None, own: Any) -> None:
    """Refuse a file whose groups are not those of an estimator."""
    if own is None and saved is not None and saved["by"] is None:
        return  # groups that are given to predict
    refuse_differences(name, {"groups": saved or "none"}, {"groups": own or "none"})


# --- samplers ---------------------------------------------------------------------------------


def sampler_content(record: SamplerCalibration) -> dict[str, Any]:
    """What a file of a sampler's calibration holds."""
    return _written(
        record,
        _OF_SAMPLERS,
        format="sklearn_clm.calibration/2",
        rules=[
            {"group": _name(group), **_rule_content(one.rule), "claim": _of(one.claim)}
            for group, one in record.rules.items()
        ],
        set_score=score_fingerprint(record.set_score),
        shift=None if record.shift is None else _of(record.shift),
        losses=losses_content(record.losses),
    )


def read_sampler(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file must have in common with a sampler, and fields of the record that it holds."""
    with naming(f"{os.fspath(path)!r} is not an intact file written by save_calibration"):
        content = _content(path, "sklearn_clm.calibration/2")
        width = _count(content["width"], 1, _MOST_DRAWS)
        rules: Rules = {
            one["group"]: Certified(_rule(one, width), _claim(one["claim"]))
            for one in content["rules"]
        }
        for rule, claim in rules.values():
            if claim.holds == isinstance(rule, Everything):
                raise ValueError("a rule certifies something where its claim does not, or not")
        if None not in rules:
            raise ValueError("it has no rule for all prompts")
        compared = {key: content[key] for key in ("set_score", "groups", "losses")}
        shift = content["shift"]
        return compared, {
            **_read(content, _OF_SAMPLERS),
            "rules": rules,
            "shift": None if shift is None else _record(Shift, shift),
        }


def refuse_other_sampler(
    name: str, content: Mapping[str, Any], read: Mapping[str, Any], own: Mapping[str, Any]
) -> None:
    """Refuse a file that belongs to a sampler with another generator, scores or parameters.

    `content` and `read` are those of :func:`read_sampler`, `own` the same of the sampler.
    """
    one, known, shift = read["rules"][None], read["provenance"], read["shift"]
    level = one.rule if isinstance(one.rule, LevelRule) else None
    # where nothing is certified, no policy counts
    kind = None if not one.rule.certified else "thresholds" if level is None else "an exit policy"
    saved = {
        **_of(known),
        **{key: read[key] for key in ("epsilon", "delta")},
        "set_score": content["set_score"],
        "guarantee": one.claim.guarantee,
        "policy": kind,
        "model": None if level is None else model_content(level.model),
    }
    compared = set(saved) & set(own)
    refuse_differences(name, saved, {key: own[key] for key in own if key in compared})
    # where these are not given, that is another calibration, too
    texts = {} if level is None else {"same_text": level.same_text}
    pairs = {**texts, "losses": content["losses"]}
    if own["weight_bound"] is not None:  # without a shift of its own the sampler takes over this
        pairs["weight_bound"] = None if shift is None else shift.weight_bound
    for key, there in pairs.items():
        here = own[key]
        given = {key: "none" if there is None else there}
        refuse_differences(name, given, {key: "none" if here is None else here})
    refuse_other_groups(name, content["groups"], own["groups"])


def _rule_content(rule: Any) -> dict[str, Any]:
    if isinstance(rule, ThresholdRule):
        return {"kind": "thresholds", "k_max": rule.k_max, "lambda_hat": rule.lambda_hat._asdict()}
    if isinstance(rule, AnswerLevel):
        raise ValueError(
            "policy must be one of thresholds or an exit policy for a JSON file, got an answer "
            "policy instead; pickle the sampler."
        )
    if isinstance(rule, LevelRule):
        return {
            "kind": "exit level",
            "k_max": rule.k_max,
            "level": rule.level,
            "same_text": rule.same_text,
            "equal_texts": rule.equal_texts,
            "model": _checked_model(model_content(rule.model)),
        }
    return {"kind": "everything", "k_max": rule.k_max}


def _checked_model(content: dict[str, Any]) -> dict[str, Any]:
    """A model that its content is all of."""
    for classifier in (content["text"], content["arrival"]):
        if "hash" in classifier:
            raise ValueError(
                "the policy's estimator must be a logistic regression for a JSON file, got "
                f"{classifier['other']} instead; pickle the sampler."
            )
    return content


def _rule(content: Mapping[str, Any], width: int) -> ThresholdRule | LevelRule | Everything:
    k_max = _count(content["k_max"], 1, width)
    if content["kind"] == "thresholds":
        values = {name: float(value) for name, value in content["lambda_hat"].items()}
        if any(map(math.isnan, values.values())):
            raise ValueError("thresholds must not be NaN")
        return ThresholdRule(Configuration(**values), k_max)
    if content["kind"] == "exit level":
        model, same_text = _model(content["model"]), content["same_text"]
        level = float(content["level"])
        if model.k_max != k_max or not level > -math.inf:
            raise ValueError("an exit level must be certified, and of the budget of its model")
        return LevelRule(
            model,
            None if same_text is None else float(same_text),
            bool(content["equal_texts"]),
            level,
        )
    if content["kind"] != "everything":
        raise ValueError(f"{content['kind']!r:.40} is no kind of rule")
    return Everything(k_max)


def _classifier(content: Mapping[str, Any], n_features: int) -> Classifier:
    if "probability" in content:
        return ConstantClassifier(float(content["probability"]))
    from sklearn.linear_model import LogisticRegression

    coefficients = np.array([float(value) for value in content["coefficients"]])
    if coefficients.shape != (n_features,) or not np.isfinite(coefficients).all():
        raise ValueError(f"coefficients must be {n_features} finite numbers")
    classifier = LogisticRegression()
    classifier.classes_ = np.array([False, True])
    classifier.coef_ = coefficients[np.newaxis]
    classifier.intercept_ = np.array([float(content["intercept"])])
    fitted: Classifier = classifier
    return fitted


def _scale(values: list[Any]) -> ScoreScale:
    knots = np.array([float(value) for value in values])
    if not len(knots) or np.isnan(knots).any() or np.any(knots[1:] < knots[:-1]):
        raise ValueError("quantiles of scores must be ascending numbers")
    return ScoreScale(knots)


def _model(content: Mapping[str, Any]) -> ExitModel:
    rho = float(content["rho"])
    if not 0.0 < rho < np.inf:
        raise ValueError(f"rho must be a positive number, got {rho!r} instead")
    return ExitModel(
        _classifier(content["text"], len(TEXT_FEATURES)),
        _classifier(content["arrival"], len(ARRIVAL_FEATURES)),
        _scale(content["quality"]),
        _scale(content["similarity"]),
        rho,
        _count(content["k_max"], 1, _MOST_DRAWS),
    )


# --- selectors --------------------------------------------------------------------------------


def selector_content(record: SelectorCalibration) -> dict[str, Any]:
    """What a file of a selector's calibration holds."""
    return _written(
        record,
        _OF_SELECTORS,
        format="sklearn_clm.component_calibration/2",
        thresholds=[
            {"group": _name(group), "gamma_hat": gamma, "claim": _of(record.claims[group])}
            for group, gamma in record.thresholds.items()
        ],
    )


def read_selector(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of a file, and fields of the record that it holds."""
    with naming(f"{os.fspath(path)!r} is not an intact file written by save_calibration"):
        content = _content(path, "sklearn_clm.component_calibration/2")
        thresholds = {one["group"]: float(one["gamma_hat"]) for one in content["thresholds"]}
        claims = {one["group"]: _claim(one["claim"]) for one in content["thresholds"]}
        if any(claims[group].holds != (gamma < math.inf) for group, gamma in thresholds.items()):
            raise ValueError("a threshold selects something where its claim does not, or not")
        if content["n_draws"] is not None:
            _count(content["n_draws"], 1)
        read = _read(content, _OF_SELECTORS)
        return content, {**read, "thresholds": thresholds, "claims": claims}
