"""What a score is: its fingerprint, and copies of it that later changes do not reach."""

import dataclasses
import hashlib
import types
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from sklearn_clm.calibration import SetScore
from sklearn_clm.generators import prompt_bytes
from sklearn_clm.generators._fingerprint import identity, measured

_SMALL = 2**20  # bytes that are read in a few milliseconds

_T = TypeVar("_T")


@runtime_checkable
class Wrapper(Protocol):
    """Something that says what another score or admission says, such as a cache of it."""

    @property
    def wrapped(self) -> Any:
        """The score or admission; None where it is to count as another one."""


def score_fingerprint(score: Any) -> str:
    """Name of a score, or name and digest where it is no built-in one."""
    if isinstance(score, Wrapper) and score.wrapped is not None:
        score = score.wrapped
    if isinstance(score, str):
        return score
    if hasattr(score, "fingerprint"):
        return str(score.fingerprint())
    name = getattr(score, "__qualname__", type(score).__qualname__)
    content = identity([score.name, score.of_set] if isinstance(score, SetScore) else score)
    return f"{name}:{hashlib.blake2b(prompt_bytes(content), digest_size=16).hexdigest()}"


def small_digest(score: object) -> str | None:
    """Digest of what may change in a score that is no copy; None where that is much to read."""
    content, n_bytes = measured(
        [score.name, score.of_set] if isinstance(score, SetScore) else score
    )
    if n_bytes > _SMALL:
        return None
    return hashlib.blake2b(prompt_bytes(content), digest_size=16).hexdigest()


def frozen(value: _T) -> _T:
    """A copy that later changes of parameters, lists and plain records do not reach.

    What a classifier has learnt is copied as well. What other estimators have learnt or hold open
    is shared, and so are models, functions and all objects of other kinds.
    """
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(frozen(item) for item in value)  # type: ignore[call-arg, attr-defined]
    if type(value) is dict:
        return {key: frozen(item) for key, item in value.items()}  # type: ignore[attr-defined, return-value]
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return value
    names = list(vars(value))
    if hasattr(value, "get_params") and not hasattr(value, "predict_proba"):
        names = [name for name in value.get_params(deep=False) if name in names]
    elif not (
        hasattr(value, "get_params")
        or dataclasses.is_dataclass(value)
        or isinstance(value, types.SimpleNamespace)
    ):
        return value
    # not by `copy`, which would leave behind what a pickle leaves behind, such as a loaded model
    copied = object.__new__(type(value))
    copied.__dict__.update(vars(value))
    copied.__dict__.update({name: frozen(vars(value)[name]) for name in names})
    return copied
