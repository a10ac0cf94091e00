"""What a score is: its fingerprint, and copies of it that later changes do not reach."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from sklearn_clm.calibration._set_scores import SetScore
from sklearn_clm.generators._fingerprint import digest_of


@runtime_checkable
class Wrapper(Protocol):
    """Something that says what another score or admission says, such as a cache of it."""

    @property
    def wrapped(self) -> Any:
        """The score or admission; None where it is to count as another one."""


def score_fingerprint(score: Any) -> str:
    """Name of a score, with a digest of what it is where it is no built-in one."""
    if isinstance(score, Wrapper) and score.wrapped is not None:
        score = score.wrapped
    if isinstance(score, str):
        return score
    if callable(getattr(score, "fingerprint", None)):
        return str(score.fingerprint())
    content = [score.name, score.of_set] if isinstance(score, SetScore) else score
    name = getattr(score, "__qualname__", type(score).__qualname__)
    return f"{name}:{digest_of(type(score), {'score': content})}"


def frozen(value: Any) -> Any:
    """A copy that later changes of parameters, lists and arrays do not reach.

    What a classifier has learnt is copied as well. What other estimators hold open is shared, and
    so are models, functions and all objects of other kinds.
    """
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(frozen(item) for item in value)
    if type(value) is dict:
        return {key: frozen(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return value
    # not by `copy`, which would leave behind what a pickle leaves behind, such as a loaded model
    copied = object.__new__(type(value))
    copied.__dict__.update(vars(value))
    names = vars(value) if hasattr(value, "predict_proba") else value.get_params(deep=False)
    copied.__dict__.update({name: frozen(getattr(value, name)) for name in names})
    return copied
