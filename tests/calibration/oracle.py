"""The sampling rule run prompt by prompt: what every faster computation must equal."""

from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration import CalibrationData, Configuration, SamplingRule
from sklearn_clm.scoring import get_set_score


class Outcome(NamedTuple):
    n_errors: int
    size: float
    samples: float
    excess: float


def outcome(data: CalibrationData, configuration, set_score, k_max=None) -> Outcome:
    """Number of errors, and means of the other three, of one configuration."""
    score = get_set_score(set_score)
    k_max = data.k_max if k_max is None else k_max
    errors = size = samples = excess = 0
    for quality, similarity, admissible in zip(
        data.quality.tolist(), data.similarity.tolist(), data.admissible.tolist()
    ):
        thresholds = Configuration(*map(float, configuration))
        rule = SamplingRule(thresholds, score, int(k_max), width=data.k_max)
        j = 0
        while not rule.done:
            rule.update(quality[j], similarity[j][:j])
            j += 1
        errors += not any(admissible[member] for member in rule.accepted)
        size += len(rule.accepted)
        samples += rule.n_samples
        if any(admissible):
            excess += max(rule.n_samples - (admissible.index(True) + 1), 0) / rule.n_samples
    n = data.n_prompts
    return Outcome(errors, size / n, samples / n, excess / n)


def surface(data: CalibrationData, l1, l2, l3, set_score) -> Outcome:
    """The same for a grid, as arrays of shape (L1, L2, L3)."""
    outcomes = [outcome(data, (a, b, c), set_score) for a in l1 for b in l2 for c in l3]
    shape = (len(l1), len(l2), len(l3))
    return Outcome(*(np.array(values).reshape(shape) for values in zip(*outcomes)))
