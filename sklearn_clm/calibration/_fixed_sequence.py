"""Fixed sequence testing (appendix E): hypotheses in a given order, until the first failure."""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._binomial import check_level


def fixed_sequence_test(p_values: ArrayLike, delta: float) -> np.ndarray:
    """Hypotheses rejected by fixed sequence testing.

    The order must have been fixed without looking at the data that gave the p-values. The
    probability of any false rejection is then at most delta.

    Parameters
    ----------
    p_values : array-like of shape (m,)
        P-values in the order of testing, in [0, 1].
    delta : float
        Level, in (0, 1).

    Returns
    -------
    ndarray of bool, shape (m,)
        True up to, and without, the first p-value greater than delta.

    Raises
    ------
    ValueError
        If a p-value or delta is out of range.

    Examples
    --------
    >>> from sklearn_clm.calibration import fixed_sequence_test
    >>> fixed_sequence_test([0.01, 0.05, 0.2, 0.001], delta=0.05)
    array([ True,  True, False, False])
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1:
        raise ValueError(f"p_values must be one-dimensional, got shape {p.shape}.")
    if not np.all((p >= 0.0) & (p <= 1.0)):
        raise ValueError("p_values must lie in [0, 1] and not be NaN.")
    return np.logical_and.accumulate(p <= check_level(delta, "delta"))
