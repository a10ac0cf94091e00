"""Scorers for ``scoring=`` in scikit-learn's model selection; greater is always better."""

from collections.abc import Callable

import numpy as np
from sklearn.metrics import make_scorer

from sklearn_clm._results import ComponentSets, PredictionSets
from sklearn_clm.metrics._components import component_loss, component_precision, component_recall
from sklearn_clm.metrics._sets import Admissions, objective_of, set_coverage, set_outcomes

Scorer = Callable[..., float]  # of an estimator, prompts and admissions


def _size(admissions: Admissions, sets: PredictionSets | ComponentSets) -> float:
    return float(np.mean(sets.sizes))


def _samples(admissions: Admissions, sets: PredictionSets) -> float:
    return float(np.mean(sets.n_samples))


def _excess(admissions: Admissions, sets: PredictionSets) -> float:
    return float(np.mean(set_outcomes(admissions, sets).excess))


def _objective(admissions: Admissions, sets: PredictionSets) -> float:
    """Objective of Eq. 7 with the sampler's weights; +inf where nothing is guaranteed."""
    if not sets.guaranteed or sets.sampler is None:
        return np.inf
    outcomes = set_outcomes(admissions, sets)
    return objective_of(outcomes, **sets.sampler.calibration_.weights)


SCORERS: dict[str, Scorer] = {
    "coverage": make_scorer(set_coverage),
    "neg_set_size": make_scorer(_size, greater_is_better=False),
    "neg_samples": make_scorer(_samples, greater_is_better=False),
    "neg_excess": make_scorer(_excess, greater_is_better=False),
    "neg_objective": make_scorer(_objective, greater_is_better=False),
}

COMPONENT_SCORERS: dict[str, Scorer] = {
    "component_count": make_scorer(_size),
    "component_precision": make_scorer(component_precision),
    "component_recall": make_scorer(component_recall),
    "neg_component_loss": make_scorer(component_loss, greater_is_better=False),
}
