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
        names = sorted(known)
        raise ValueError(f"{argument}={name!r} is unknown; wanted one of {names}{others}.")
    return known[name]


def wrong_kind(argument: str, wanted: str, value: object) -> TypeError:
    """The error about an argument that is none of what is possible."""
    return TypeError(f"{argument} must be {wanted}, got {type(value).__name__} {value!r:.80}.")


def refuse_unfitted(classifier: object, argument: str) -> None:
    """Refuse an estimator of scikit-learn that cannot predict yet."""
    if not isinstance(classifier, BaseEstimator):
        return
    try:
        check_is_fitted(classifier)
    except NotFittedError as error:
        raise ValueError(
            f"{argument} is a {type(classifier).__name__} that is not fitted; wanted one that was "
            "fitted on other prompts (in a FrozenEstimator, where clones are to keep it)."
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
    try:
        array = np.asarray(value)
        score = float(array) if array.ndim == 0 and array.dtype.kind not in "USO" else None
    except (TypeError, ValueError, RuntimeError):
        score = None
    if score is None:
        raise ValueError(
            f"{argument} {name_of(scorer)} returned {value!r:.80} ({type(value).__name__}) for "
            f"{where}; wanted one real number."
        )
    if np.isnan(score):
        raise ValueError(
            f"{argument} {name_of(scorer)} returned NaN for {where}; wanted a real number."
        )
    return score


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
    name = name_of(scorer)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{argument} {name} returned values of uneven lengths; wanted shape {shape}."
        ) from error
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{argument} {name} returned an array of dtype {array.dtype}; wanted real numbers."
        )
    if array.shape != shape:
        raise ValueError(
            f"{argument} {name} returned an array of shape {array.shape}; wanted {shape}."
        )
    array = array.astype(np.float64)
    missing = np.isnan(array)
    if missing.any() and needed is not None:
        missing &= needed
    if missing.any():
        first = tuple(int(i) for i in np.argwhere(missing)[0])
        raise ValueError(
            f"{argument} {name} returned NaN at index {first}; wanted real numbers alone."
        )
    return array


def check_draws(rows: Sequence[Sized], argument: str, start: int = 0) -> int:
    """Number of draws of each prompt, which must be the same for all and at least `start`."""
    size = len(rows[0]) if len(rows) else 0
    for i, row in enumerate(rows):
        if len(row) != size:
            raise ValueError(
                f"{argument}[{i}] holds {len(row)} draws and {argument}[0] {size}; wanted the same "
                "number for every prompt."
            )
    if not 0 <= start <= size:
        raise ValueError(f"start must be between 0 and {size} (the draws so far), got {start!r}.")
    return size


def near_boundary(values: np.ndarray, decimals: int, error: float) -> np.ndarray:
    """Where an error, or a tenth of it times the value, could change what values are rounded to."""
    finite = np.where(np.isfinite(values), values, 0.0)
    scaled = finite * 10.0**decimals
    distance = np.abs(scaled - np.floor(scaled) - 0.5) / 10.0**decimals
    return np.asarray(distance <= error * (1.0 + 0.1 * np.abs(finite)))
