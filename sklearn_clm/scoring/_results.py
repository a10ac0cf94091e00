"""Checks of what callables and objects of users give."""

from collections.abc import Mapping, Sequence, Sized
from typing import TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

Found = TypeVar("Found")


class Named:
    """A callable object that is called in messages what its repr says."""

    @property
    def __name__(self) -> str:
        return repr(self)


def by_name(argument: str, name: str, known: Mapping[str, Found], others: str) -> Found:
    """What a name stands for, or a ValueError that lists the names and what else is possible."""
    if name not in known:
        raise ValueError(
            f"{argument} must be one of {sorted(known)}{others}, got {name!r} instead."
        )
    return known[name]


def wrong_kind(argument: str, wanted: str, value: object) -> TypeError:
    """The error about an argument that is none of what is possible."""
    got = f"{type(value).__name__} {value!r:.80}"
    return TypeError(f"{argument} must be {wanted}, got {got} instead.")


def refuse_unfitted(classifier: object, argument: str) -> None:
    """Refuse an estimator of scikit-learn that cannot predict yet."""
    if not isinstance(classifier, BaseEstimator):
        return
    try:
        check_is_fitted(classifier)
    except NotFittedError as error:
        raise ValueError(
            f"{argument} must be fitted on other prompts (in a FrozenEstimator, where clones are "
            f"to keep it), got a {type(classifier).__name__} that is not fitted instead."
        ) from error


def name_of(scorer: object) -> str:
    """How a callable or object is called in messages."""
    if isinstance(scorer, str):
        return scorer
    return str(getattr(scorer, "__name__", None) or type(scorer).__name__)


def as_bool(value: object) -> bool | None:
    """A verdict: a bool, or an integer that is 0 or 1; None for anything else."""
    if isinstance(value, (bool, np.bool_, int, np.integer)) and value in (0, 1):
        return bool(value)
    return None


def as_score(value: object, argument: str, scorer: object, where: str) -> float:
    """One real number, or a ValueError that names the argument."""
    array = _as_numbers(value)
    if array is None or array.ndim or np.isnan(array):
        raise ValueError(
            f"{argument} {name_of(scorer)} must return one real number, got {value!r:.80} for "
            f"{where} instead."
        )
    return float(array)


def as_scores(
    values: object,
    shape: tuple[int, ...],
    argument: str,
    scorer: object,
    needed: np.ndarray | None = None,
) -> np.ndarray:
    """An array of real numbers of one shape, or a ValueError that names the argument.

    Only the entries of the boolean array `needed` must not be NaN; by default all.
    """
    array = _as_numbers(values)
    if array is None or array.shape != shape:
        got = f"{values!r:.80}" if array is None else f"an array of shape {array.shape}"
        raise ValueError(
            f"{argument} {name_of(scorer)} must return real numbers of shape {shape}, got {got} "
            "instead."
        )
    array = array.astype(np.float64)
    missing = np.isnan(array) if needed is None else np.isnan(array) & needed
    if missing.any():
        first = tuple(int(i) for i in np.argwhere(missing)[0])
        raise ValueError(
            f"{argument} {name_of(scorer)} must return real numbers, got NaN at index {first} "
            "instead."
        )
    return array


def _as_numbers(values: object) -> np.ndarray | None:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # such as of uneven lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def check_draws(rows: Sequence[Sized], argument: str, start: int = 0) -> int:
    """Number of draws of each prompt, which must be the same for all and at least `start`."""
    sizes = sorted({len(row) for row in rows}) or [0]
    if len(sizes) > 1:
        raise ValueError(
            f"{argument} must hold as many draws for every prompt, got {sizes[0]} for one and "
            f"{sizes[-1]} for another instead."
        )
    if not 0 <= start <= sizes[0]:
        raise ValueError(
            f"start must be from 0 to {sizes[0]}, the draws so far, got {start!r} instead."
        )
    return sizes[0]


def near_boundary(values: np.ndarray, decimals: int, error: float) -> np.ndarray:
    """Where an error, or a tenth of it times the value, could change what values are rounded to."""
    finite = np.where(np.isfinite(values), values, 0.0)
    scaled = finite * 10.0**decimals
    distance = np.abs(scaled - np.floor(scaled) - 0.5) / 10.0**decimals
    return np.asarray(distance <= error * (1.0 + 0.1 * np.abs(finite)))
