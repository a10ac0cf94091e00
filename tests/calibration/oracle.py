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


def run(data: CalibrationData, i: int, configuration, set_score, k_max=None) -> SamplingRule:
    """The rule on prompt i, to its end."""
    thresholds = Configuration(*map(float, configuration))
    rule = SamplingRule(
        thresholds, get_set_score(set_score), int(k_max or data.k_max), width=data.k_max
    )
    while not rule.done:
        j = rule.n_samples
        rule.update(float(data.quality[i, j]), data.similarity[i, j], int(data.first[i, j]))
    return rule


def outcome(data: CalibrationData, configuration, set_score, k_max=None) -> Outcome:
    """Number of errors, and means of the other three, of one configuration."""
    errors = size = samples = excess = 0
    for i, admissible in enumerate(data.admissible.tolist()):
        rule = run(data, i, configuration, set_score, k_max)
        errors += not any(admissible[member] for member in rule.accepted)
        size += len(rule.texts)
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
