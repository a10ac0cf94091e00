"""Calibration files: small, readable JSON, checked on reading.

A file holds what prediction depends on and can be written down, never data or code: fields of the
record, rules as they write themselves, and fingerprints of scores, groups and losses.
"""

import hashlib
import json
import math
import os
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, TypeVar

import numpy as np

from sklearn_clm._version import __version__
from sklearn_clm.calibration import Claim
from sklearn_clm.calibration.files import replacing
from sklearn_clm.generators.records import json_value, locating_errors

_Record = TypeVar("_Record")


def write_content(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write the content, the version, and a digest of both."""
    # the version is for people who look at an old file; nothing is decided by it
    versioned = {**_for_file(content), "versions": {"sklearn_clm": __version__}}
    text = (
        json.dumps({**versioned, "digest": _digest_of_file(versioned)}, indent=2, allow_nan=False)
        + "\n"
    )
    with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)


@contextmanager
def reading(path: str | os.PathLike[str], wanted: str) -> Iterator[dict[str, Any]]:
    """The content of a file; every fault is a ValueError."""
    with locating_errors(f"{os.fspath(path)!r} is not an intact file of a calibration"):
        with open(path, "rb") as file:
            content = json_value(file.read())
        # before the digest, which another format may compute otherwise: this says more
        if (written_as := content.get("format")) != wanted:
            raise ValueError(
                f"its format is {written_as!r:.60}, wanted {wanted!r}; it is of another estimator, "
                "or version: calibrate again, and save it anew"
            )
        if content.get("digest") != _digest_of_file(content):
            raise ValueError("its digest is not that of its content, which was changed")
        yield content


def _digest_of_file(content: Mapping[str, Any]) -> str:
    """Digest of the content of a file, whatever its layout."""
    digested = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.blake2b(
        json.dumps(digested, sort_keys=True).encode(), digest_size=32
    ).hexdigest()


def _for_file(value: Any) -> Any:
    """A value for JSON, which has neither infinities nor arrays."""
    if isinstance(value, Mapping):
        return {key: _for_file(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_for_file(part) for part in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else str(float(value))
    return int(value) if isinstance(value, np.integer) else value


def record_of(kind: type[_Record], content: Mapping[str, Any]) -> _Record:
    """A dataclass from the content of a file."""
    # what the file lacks gets its default, and what this version does not know is left out
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: content[name] for name in names if name in content})


def claim_content(group: Hashable, claim: Claim) -> dict[str, Any]:
    """A group and its claim, for a file."""
    # read back as it was: a tuple would come as a list, a NumPy number as text
    is_number = type(group) is float and math.isfinite(group)
    if not is_number and group is not None and type(group) not in (str, int, bool):
        raise ValueError(
            f"groups must be text or numbers for a JSON file, got {group!r:.80} instead; pickle "
            "the estimator."
        )
    return {"group": group, "claim": asdict(claim)}


def claim_of(content: Mapping[str, Any]) -> Claim:
    """The claim in the content of a file."""
    return record_of(Claim, {**content["claim"], "unknown": tuple(content["claim"]["unknown"])})


def prompts_of(content: Mapping[str, Any]) -> np.ndarray:
    """Digests of the calibration prompts in a file, if any."""
    return np.frombuffer(bytes.fromhex(content.get("prompts", "")), np.uint64)
