"""Simulated draws with informative qualities and plain duplicates."""

import numpy as np

from sklearn_clm.calibration import CalibrationData


def simulated_data(n, k, seed=0, answers=6):
    """Each prompt has its own difficulty; equal answers are alike, and right ones score higher."""
    rng = np.random.default_rng(seed)
    difficulty = rng.beta(1.2, 1.5, size=(n, 1))
    admissible = rng.random((n, k)) > difficulty
    answer = np.where(admissible, 0, rng.integers(1, answers, size=(n, k)))
    quality = np.exp(-rng.gamma(2.0, 0.25 + 0.4 * difficulty, size=(n, k)) * (2.0 - admissible))
    same = answer[:, :, None] == answer[:, None, :]
    similarity = np.where(same, 1.0, 0.5 * rng.random((n, k, k)))
    return CalibrationData(quality, similarity, admissible)
