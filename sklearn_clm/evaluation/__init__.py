"""Repeated random splits, what a calibration can be expected to do, and a watch on it in use."""

from sklearn_clm.evaluation._component_trials import reference_scores, run_component_trials
from sklearn_clm.evaluation._expectations import (
    RuleOutcomes,
    chance_of_null,
    first_k_errors,
    mean_interval,
    rule_outcomes,
    smallest_epsilons,
)
from sklearn_clm.evaluation._monitor import RiskMonitor
from sklearn_clm.evaluation._results import (
    ComponentTrialResults,
    PairedDifference,
    TrialResults,
)
from sklearn_clm.evaluation._trials import Split, random_splits, run_trials

__all__ = [
    "ComponentTrialResults",
    "PairedDifference",
    "RiskMonitor",
    "RuleOutcomes",
    "Split",
    "TrialResults",
    "chance_of_null",
    "first_k_errors",
    "mean_interval",
    "random_splits",
    "reference_scores",
    "rule_outcomes",
    "run_component_trials",
    "run_trials",
    "smallest_epsilons",
]
