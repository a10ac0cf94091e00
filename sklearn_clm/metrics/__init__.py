"""Measures of prediction sets and of selected components, and scorers made of them."""

from sklearn_clm.metrics._auc import normalized_auc
from sklearn_clm.metrics._components import (
    component_count,
    component_loss,
    component_precision,
    component_recall,
)
from sklearn_clm.metrics._scorers import COMPONENT_SCORERS, SCORERS
from sklearn_clm.metrics._sets import (
    SetOutcomes,
    set_coverage,
    set_excess,
    set_loss,
    set_objective,
    set_outcomes,
    set_samples,
    set_size,
)

__all__ = [
    "COMPONENT_SCORERS",
    "SCORERS",
    "SetOutcomes",
    "component_count",
    "component_loss",
    "component_precision",
    "component_recall",
    "normalized_auc",
    "set_coverage",
    "set_excess",
    "set_loss",
    "set_objective",
    "set_outcomes",
    "set_samples",
    "set_size",
]
