"""Scorers for ``scoring=`` in scikit-learn's model selection; greater is always better."""

from collections.abc import Callable, Collection

from sklearn.metrics import make_scorer

from sklearn_clm._results import ComponentSets, PredictionSets
from sklearn_clm.metrics._components import (
    component_count,
    component_loss,
    component_precision,
    component_recall,
)
from sklearn_clm.metrics._sets import set_coverage, set_excess, set_objective, set_samples, set_size

Scorer = Callable[..., float]  # of an estimator, prompts and admissions


def _size(admissions: Collection[object], sets: PredictionSets) -> float:
    return float(set_size(sets))


def _samples(admissions: Collection[object], sets: PredictionSets) -> float:
    return float(set_samples(sets))


def _count(admissions: Collection[object], sets: ComponentSets) -> float:
    return float(component_count(sets))


SCORERS: dict[str, Scorer] = {
    "coverage": make_scorer(set_coverage),
    "neg_set_size": make_scorer(_size, greater_is_better=False),
    "neg_samples": make_scorer(_samples, greater_is_better=False),
    "neg_excess": make_scorer(set_excess, greater_is_better=False),
    "neg_objective": make_scorer(set_objective, greater_is_better=False),
}

COMPONENT_SCORERS: dict[str, Scorer] = {
    "component_count": make_scorer(_count),
    "component_precision": make_scorer(component_precision),
    "component_recall": make_scorer(component_recall),
    "neg_component_loss": make_scorer(component_loss, greater_is_better=False),
}
