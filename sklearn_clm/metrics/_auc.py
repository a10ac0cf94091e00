"""The normalised area under a curve of section 5."""

import numpy as np
from numpy.typing import ArrayLike


def normalized_auc(levels: ArrayLike, values: ArrayLike) -> np.ndarray:
    """Mean height of curves over the range of their levels, by the trapezoidal rule.

    AUC(f; a, b) is the integral of f from a to b, divided by b - a (section 5).

    Parameters
    ----------
    levels : array-like of shape (n_levels,)
        Where the curves were evaluated, strictly increasing; a is the first, b the last. Leave
        out the levels that are trivial or out of reach before the call.
    values : array-like of shape (..., n_levels)
        The curves.

    Returns
    -------
    ndarray of shape (...)
        The areas: the value itself where there is one level, NaN where there is none.

    Raises
    ------
    ValueError
        If the levels do not increase or do not match the values.

    Examples
    --------
    >>> from sklearn_clm.metrics import normalized_auc
    >>> float(normalized_auc([0.1, 0.2, 0.4], [0.0, 1.0, 1.0]))  # (0.05 + 0.2) / 0.3
    0.833...
    """
    levels = np.asarray(levels, dtype=np.float64)
    values = np.asarray(values, dtype=np.float64)
    if levels.ndim != 1 or not np.all(np.diff(levels) > 0):
        raise ValueError(f"levels must be 1-D and strictly increasing, got {levels!r}.")
    if values.shape[-1:] != levels.shape:
        raise ValueError(
            f"values must have shape (..., {len(levels)}) to match levels, got {values.shape}."
        )
    if len(levels) == 0:
        return np.full(values.shape[:-1], np.nan)
    if len(levels) == 1:
        return values[..., 0]
    return np.trapezoid(values, levels, axis=-1) / (levels[-1] - levels[0])
