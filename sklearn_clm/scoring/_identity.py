"""What a score is: its fingerprint, and copies of it that later changes do not reach."""

import dataclasses
import hashlib
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from sklearn_clm.calibration import SetScore
from sklearn_clm.generators import prompt_bytes
from sklearn_clm.generators._fingerprint import Described, described

_SMALL = 2**20  # bytes that are read in a few milliseconds
# scores that were seen to change as they were used, by id
_changing: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

_T = TypeVar("_T")


@runtime_checkable
class Wrapper(Protocol):
    """Something that says what another score or admission says, such as a cache of it."""

    @property
    def wrapped(self) -> Any:
        """The score or admission; None where it is to count as another one."""


def score_fingerprint(score: Any) -> str:
    """Name of a score, or name and digests of its code and its state where it is no built-in one.

    Of one that changes as it is used, such as one that holds a client which counts, the state
    tells nothing: it has no digest of it, see
    :func:`~sklearn_clm.calibration._provenance.same_score`.
    """
    score = _itself(score)
    if isinstance(score, str):
        return score
    if hasattr(score, "fingerprint"):
        return str(score.fingerprint())
    return _text_of(score, _described(score))


def small_fingerprint(score: Any) -> str | None:
    """Fingerprint of a score that is no copy; None where it takes long to read."""
    score = _itself(score)
    found = _described(score)
    return None if found.n_bytes > _SMALL else _text_of(score, found)


@contextmanager
def in_use(*scores: Any) -> Iterator[list[str | None]]:
    """Find out which scores change as they are used; gives their small fingerprints before it."""
    before = [small_fingerprint(score) for score in scores]
    try:
        yield before
    finally:
        for score, then in zip(scores, before):
            if then is not None and small_fingerprint(score) != then:
                own = _owner(_itself(score))
                with suppress(TypeError):  # an object that cannot be referred to weakly
                    _changing[id(own)] = own


def _itself(score: Any) -> Any:
    return score.wrapped if isinstance(score, Wrapper) and score.wrapped is not None else score


def _owner(score: Any) -> Any:
    """What holds the state of a score: a bound method is another object each time."""
    return getattr(score, "__self__", score)


def _described(score: Any) -> Described:
    return described([score.name, score.of_set] if isinstance(score, SetScore) else score)


def _text_of(score: Any, found: Described) -> str:
    name = getattr(score, "__qualname__", type(score).__qualname__)
    code = f"{name}:{_digest(found.code)}"
    own = _owner(score)
    return code if _changing.get(id(own)) is own else f"{code}.{_digest(found.content)}"


def _digest(content: object) -> str:
    return hashlib.blake2b(prompt_bytes(content), digest_size=8).hexdigest()


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
