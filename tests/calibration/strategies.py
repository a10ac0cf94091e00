"""Calibration data and thresholds as hypothesis draws them."""

import numpy as np
from hypothesis import strategies as st

from sklearn_clm.calibration import CalibrationData

# few distinct values, so that ties between draws and with thresholds are common
TIED = [-np.inf, -1.5, 0.0, 0.1, 0.25, 0.3, 1.0, np.inf]


MEASURES = ("n_errors", "loss", "size", "samples", "excess")


def random_data(n, k, seed=0, share=0.5, **known):
    """Data without any ties, and `share` of the draws admissible."""
    rng = np.random.default_rng(seed)
    similarity = rng.random((n, k, k))
    return CalibrationData(rng.random((n, k)), similarity, rng.random((n, k)) < share, **known)


def mean_of_members(quality, accepted):
    """A set score that is not monotone, of rows."""
    with np.errstate(invalid="ignore"):
        return np.sum(quality, axis=1, where=accepted) / np.maximum(accepted.sum(axis=1), 1)


SET_SCORES = ["max", "sum", "first_k", "first_k_reject", np.mean, mean_of_members]


@st.composite
def calibration_data(draw):
    n, k = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["continuous", "tied", "finite ties", "duplicates"]))
    if kind == "continuous":
        quality, similarity = rng.random((n, k)), rng.random((n, k, k))
    elif kind == "duplicates":
        quality, similarity = np.full((n, k), 0.25), np.ones((n, k, k))
    else:
        values = TIED if kind == "tied" else [v for v in TIED if np.isfinite(v)]
        quality, similarity = rng.choice(values, (n, k)), rng.choice(values, (n, k, k))
    # entries that must not matter
    similarity[:, *np.triu_indices(k)] = np.nan
    texts, admissible = None, rng.random((n, k)) < rng.random()
    if draw(st.booleans()):
        texts = np.argmax((names := rng.integers(4, size=(n, k)))[:, :, None] == names[:, None], 2)
        admissible = np.take_along_axis(admissible, texts, axis=1)
    return CalibrationData(quality, similarity, admissible, texts=texts)


def thresholds(max_size=4):
    return st.lists(
        st.one_of(st.sampled_from(TIED), st.floats(-2.0, 3.0)), min_size=1, max_size=max_size
    )
