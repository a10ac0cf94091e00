"""What calibration found, as a small JSON file that a person can read."""

import json
import math
import os
import platform
import warnings
from typing import Any, Self

import numpy as np
import scipy
import sklearn
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._calibrating import calibrated_with, draw_budgets, take_over
from sklearn_clm._collecting import untrained_generator
from sklearn_clm._fingerprints import score_fingerprint
from sklearn_clm._version import __version__
from sklearn_clm.calibration import AchievableEpsilon, Configuration
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators._base import fingerprint
from sklearn_clm.generators._records import draw_from_record, draw_to_record, json_value, naming

__all__ = ["CalibrationFileMixin"]

_FORMAT = "sklearn_clm.calibration/1"
_FIELDS = {
    *("format", "lambda_hat", "achievable_epsilon", "k_max", "seed"),
    *("scores", "generator", "epsilon", "delta"),
}
_SCORES = ("admission", "quality", "similarity", "set_score")


class CalibrationFileMixin:
    """Files of fitted samplers: calibrations as JSON, and pickles that pack the draws."""

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        draws = state.get("calibration_draws_")
        if draws is None:
            return state
        try:
            records = [[draw_to_record(draw) for draw in row] for row in draws]
        except TypeError:  # responses that are neither text nor numbers
            return state
        # one text in the place of millions of objects, of which skops would describe each
        packed = json.dumps(records, separators=(",", ":"))
        return {**state, "calibration_draws_": packed, "_paid_draws": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        packed = state.get("calibration_draws_")
        if isinstance(packed, str):
            draws = [[draw_from_record(record) for record in row] for row in json.loads(packed)]
            state = {**state, "calibration_draws_": draws}
        super().__setstate__(state)  # type: ignore[misc]

    def save_calibration(self, path: Any) -> None:
        """Write what calibration found to a small, readable JSON file.

        Parameters
        ----------
        path : str or path
            The file. It holds the thresholds, what they were calibrated for, the versions in use
            and fingerprints of the generator and the scores; no data, and no model.
        """
        check_is_fitted(self)
        _save(self, path)

    def load_calibration(self, path: Any) -> Self:
        """Take over a calibration written by :meth:`save_calibration`.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        ConformalSampler
            Itself, ready to predict. What calibration looked at (`calibration_data_`, `frontier_`,
            `p_values_`, ...) is not in the file.

        Raises
        ------
        ValueError
            If the file belongs to another generator, other scores or other parameters, or is no
            such file.
        """
        sampler: Any = self
        sampler._validate_params()
        draw_budgets(sampler.k_max)
        attributes = _load(self, path)
        take_over(self, attributes)
        return self


def _save(sampler: Any, path: str | os.PathLike[str]) -> None:
    """Write the calibration of a fitted sampler."""
    result = getattr(sampler, "result_", None)
    lambda_hat = sampler.lambda_hat_
    content = {
        "format": _FORMAT,
        "lambda_hat": None
        if lambda_hat is None
        else {name: _encode(value) for name, value in lambda_hat._asdict().items()},
        "k_max": sampler.k_max_,
        "epsilon": float(calibrated_with(sampler, "epsilon")),
        "delta": float(calibrated_with(sampler, "delta")),
        "achievable_epsilon": [float(value) for value in sampler.achievable_epsilon_],
        "n_calibration": None if result is None else result.n_calibration,
        "n_optimization": None if result is None else result.n_optimization,
        "seed": sampler.seed_,
        "scores": {name: score_fingerprint(calibrated_with(sampler, name)) for name in _SCORES},
        "generator": {
            "class": type(sampler.generator_).__name__,
            "fingerprint": fingerprint(sampler.generator_),
        },
        "versions": {
            "sklearn_clm": __version__,
            "scikit-learn": sklearn.__version__,
            "scipy": scipy.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)


def _load(sampler: Any, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Fitted attributes by name, from a file that fits the sampler."""
    name = os.fspath(path)
    with open(name, "rb") as file:
        text = file.read()
    with naming(f"{name!r} is not an intact file written by save_calibration"):
        content = json_value(text)
        found = _read(content)
    attributes = untrained_generator(sampler) if not _is_trained(sampler) else {}
    generator = attributes.get("generator_", getattr(sampler, "generator_", None))
    scores = _score_fingerprints(sampler)
    if content["generator"] is None:
        scores = _recorded_scores(name, content["scores"], scores)
    else:
        # a cache of the same model is of another class
        prints = {"fingerprint": fingerprint(generator)}
        _refuse_differences(name, "generator", content["generator"], prints)
    _refuse_differences(name, "scores", content["scores"], scores)
    own = {"epsilon": float(sampler.epsilon), "delta": float(sampler.delta)}
    _refuse_differences(name, "parameters", {key: content[key] for key in own}, own)
    if found["k_max_"] not in draw_budgets(sampler.k_max):
        raise ValueError(
            f"{name!r} was calibrated for k_max={found['k_max_']}, but this sampler has "
            f"k_max={sampler.k_max!r}."
        )
    return {**attributes, "generator_": generator, **found}


def _is_trained(sampler: Any) -> bool:
    return hasattr(getattr(sampler, "generator_", None), "fit")


def _read(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"it is not a JSON object but a {type(content).__name__}")
    missing = _FIELDS - content.keys()
    if missing:
        raise ValueError(f"it has no {', '.join(sorted(missing))}")
    if content["format"] != _FORMAT:
        raise ValueError(f"its format is {content['format']!r}, wanted {_FORMAT!r}")
    lambda_hat = content["lambda_hat"]
    if lambda_hat is not None:
        lambda_hat = Configuration(**{key: _decode(value) for key, value in lambda_hat.items()})
    low, high = content["achievable_epsilon"]
    k_max, seed = content["k_max"], content["seed"]
    if type(k_max) is not int or k_max < 1:
        raise ValueError(f"k_max is {k_max!r:.40}, wanted an integer >= 1")
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed is {seed!r:.40}, wanted an integer >= 0")
    if not isinstance(content["scores"], dict):
        raise ValueError(f"scores is {content['scores']!r:.40}, wanted an object")
    return {
        "lambda_hat_": lambda_hat,
        "k_max_": k_max,
        "achievable_epsilon_": AchievableEpsilon(float(low), float(high)),
        "seed_": seed,
    }


def _recorded_scores(name: str, saved: dict[str, Any], own: dict[str, str]) -> dict[str, str]:
    """Those of the sampler's scores that a calibration of mere arrays can be compared with."""
    recorded = {key: value for key, value in own.items() if saved.get(key) is not None}
    unknown = ", ".join(key for key in own if key not in recorded)
    warnings.warn(
        f"{name!r} was calibrated on arrays, which do not tell the generator, {unknown} they came "
        "from: the guarantee holds only if these are the sampler's own.",
        UserWarning,
        stacklevel=4,
    )
    return recorded


def _refuse_differences(name: str, what: str, saved: Any, own: dict[str, Any]) -> None:
    saved = saved if isinstance(saved, dict) else {}
    for key, value in own.items():
        if saved.get(key) != value:
            raise ValueError(
                f"{name!r} was calibrated with other {what}: {key} is {saved.get(key)!r} there and "
                f"{value!r} in this sampler. The guarantee holds for what was calibrated alone."
            )


def _score_fingerprints(sampler: Any) -> dict[str, str]:
    return {name: score_fingerprint(getattr(sampler, name)) for name in _SCORES}


def _encode(value: float) -> float | str:
    # JSON has no infinities
    return float(value) if math.isfinite(value) else str(float(value))


def _decode(value: Any) -> float:
    if value in ("inf", "-inf") or (type(value) in (int, float) and math.isfinite(value)):
        return float(value)
    raise ValueError(f"{value!r} is no threshold")
