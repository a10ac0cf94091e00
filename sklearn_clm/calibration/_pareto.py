"""The Pareto frontier of two costs (appendix E, stage 1)."""

import numpy as np
from numpy.typing import ArrayLike


def pareto_frontier(costs: ArrayLike) -> np.ndarray:
    """Indices of the points that no other point beats.

    A point is beaten by another that is no worse in both costs and better in one. Of several
    points with equal costs, the first is kept.

    Parameters
    ----------
    costs : array-like of shape (m, 2)
        Two costs of each point, lower is better.

    Returns
    -------
    ndarray of int, shape (f,)
        Indices of the frontier, by ascending first cost (so by descending second cost).

    Raises
    ------
    ValueError
        If `costs` has another shape or holds NaN.

    Examples
    --------
    >>> from sklearn_clm.calibration import pareto_frontier
    >>> pareto_frontier([[0.2, 3.0], [0.1, 4.0], [0.2, 5.0], [0.3, 1.0], [0.1, 4.0]])
    array([1, 0, 3])
    """
    points = np.asarray(costs, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"costs must have shape (m, 2), got {points.shape}.")
    if np.isnan(points).any():
        raise ValueError("costs must not be NaN.")
    if not len(points):
        return np.empty(0, dtype=np.intp)
    # lexsort is stable: among equal points the lowest index comes first
    order = np.lexsort((points[:, 1], points[:, 0]))
    second = points[order, 1]
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(second)[:-1]))
    keep = second < best_before
    # inf is never < inf, but a point of infinite second cost can still have the lowest first one
    keep[0] = True
    return order[keep]
