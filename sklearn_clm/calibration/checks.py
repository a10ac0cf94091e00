"""Arguments from outside, and errors of functions from outside."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

IntegerArray = int | np.integer | Sequence[int] | np.ndarray
Number = type[np.number[Any]]


def as_array(
    values: object,
    name: str,
    shape: tuple[int | None, ...],
    dtype: Number = np.float64,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    where: np.ndarray | bool = True,
) -> np.ndarray:
    """A checked array: shape, type, and range at `where`."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must be an array, got rows of different lengths instead."
        ) from error
    if array.dtype.kind not in ("iu" if issubclass(dtype, np.integer) else "fiub"):
        raise TypeError(
            f"{name} must be an array of {dtype.__name__}, got dtype {array.dtype} instead."
        )
    fits = [wanted in (None, length) for wanted, length in zip(shape, array.shape)]
    if array.ndim != len(shape) or not all(fits):
        wanted = str(shape).replace("None", "any")
        raise ValueError(f"{name} must have shape {wanted}, got {array.shape} instead.")
    # the negation finds NaN as well
    is_outside = ~((array >= low) & (array <= high))
    outside = array[is_outside & where]
    if outside.size:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {outside[0]} instead.")
    return array.astype(dtype, copy=False)


def as_labels(values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Labels as int8: 1, 0, or -1 for unknown."""
    array = as_array(values, "admissible", shape, low=-1, high=1)
    labels = array.astype(np.int8)
    # a share between 0 and 1 is no label, and would be cut to 0
    if not np.array_equal(labels, array):
        raise ValueError("admissible must hold booleans, or 0, 1 and -1, got others instead.")
    return labels


def check_probability(value: object, name: str) -> np.ndarray:
    """An array of numbers strictly between 0 and 1."""
    try:
        array = np.asarray(value)
        array = array.astype(np.float64, casting="unsafe" if array.dtype == object else "same_kind")
    except (TypeError, ValueError):  # text, too, though NumPy reads it as a number
        raise TypeError(f"{name} must be a number in (0, 1), got {value!r} instead.") from None
    # the negated comparison catches NaN as well
    if not np.all((array > 0.0) & (array < 1.0)):
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r} instead.")
    return array


def check_level(value: ArrayLike, name: str) -> float:
    """`value` as one number strictly between 0 and 1."""
    if np.ndim(value) != 0:
        raise ValueError(f"{name} must be a single number in (0, 1), got {value!r} instead.")
    return float(check_probability(value, name))


def check_error_counts(n_errors: IntegerArray, n: IntegerArray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of errors among n, as arrays, checked."""
    counts = np.asarray(n_errors)
    totals = np.asarray(n)
    # a float, even a whole one, may be a rounded mean
    for array, name in ((counts, "n_errors"), (totals, "n")):
        if array.dtype.kind not in "iu":
            raise TypeError(
                f"{name} must be integers, got dtype {array.dtype} instead: a p-value is computed "
                "from exact counts, not from a mean."
            )
    if np.any(totals < 1) or np.any(counts < 0) or np.any(counts > totals):
        raise ValueError(
            f"n_errors must lie in 0 to n, and n be positive, got {n_errors!r}, {n!r} instead."
        )
    return counts, totals


def check_budgets(k_max: int | Sequence[int] | None, available: int | None = None) -> list[int]:
    """Numbers of draws, ascending and distinct; None is all."""
    wanted = available if k_max is None else k_max
    budgets = np.atleast_1d(np.asarray(wanted, dtype=object)).ravel().tolist()
    most = math.inf if available is None else available

    # True is an integer of Python, and no number of draws
    def fits(k: object) -> bool:
        return isinstance(k, Integral) and not isinstance(k, bool) and 1 <= int(k) <= most

    if not budgets or not all(map(fits, budgets)):
        limit = "" if available is None else f", up to {available}, the number of draws in data"
        raise ValueError(
            f"k_max must be one integer of at least 1, or several{limit}, got {k_max!r} instead."
        )
    return sorted({int(k) for k in budgets})


@contextmanager
def noting_arguments(function: str, *arguments: object) -> Iterator[None]:
    """Add to an error what a function was given."""
    try:
        yield
    except Exception as error:
        # the error is the function's own: who reads it wants to know which call it was
        given = " and ".join(f"{one!r:.80}" for one in arguments)
        error.add_note(f"{function} was given {given}.")
        raise
