"""Calibrations of fitted estimators as small JSON files that a person can read."""

import json
import math
import os
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import sklearn

from sklearn_clm._version import __version__
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators._records import json_value, naming

__all__ = [
    "as_count",
    "as_number",
    "as_section",
    "as_threshold",
    "naming",
    "read_calibration",
    "refuse_differences",
    "threshold_text",
    "write_calibration",
]


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
    path: str | os.PathLike[str], written_as: str, fields: set[str]
) -> dict[str, Any]:
    """The content of a file of the given format that has all of the fields."""
    with open(path, "rb") as file:
        text = file.read()
    with naming(f"{os.fspath(path)!r} is not an intact file written by save_calibration"):
        content = json_value(text)
        if not isinstance(content, dict):
            raise ValueError(f"it is not a JSON object but a {type(content).__name__}")
        missing = ({"format"} | fields) - content.keys()
        if missing:
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        if content["format"] != written_as:
            raise ValueError(f"its format is {content['format']!r}, wanted {written_as!r}")
    return content


def refuse_differences(name: str, what: str, saved: Mapping[str, Any], own: Any) -> None:
    """Refuse a file whose entries are not the estimator's own; None is unknown, and agrees."""
    for key, value in own.items():
        if saved.get(key) not in (None, value) and value is not None:
            raise ValueError(
                f"{name!r} was calibrated with other {what}: {key} is {saved.get(key)!r} there and "
                f"{value!r} here. The guarantee holds for what was calibrated alone: set {key} to "
                "what it was, or calibrate again."
            )


def threshold_text(value: float) -> float | str:
    """A threshold for JSON, which has no infinities."""
    return float(value) if math.isfinite(value) else str(float(value))


def as_threshold(value: Any) -> float:
    """A threshold from JSON."""
    if value in ("inf", "-inf") or (type(value) in (int, float) and math.isfinite(value)):
        return float(value)
    raise ValueError(f"{value!r} is no threshold")


def as_count(content: Mapping[str, Any], name: str, least: int) -> int:
    """A whole number from JSON."""
    value = content[name]
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {value!r:.40}, wanted an integer >= {least}")
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
