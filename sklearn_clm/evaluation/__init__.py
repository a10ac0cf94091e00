"""The paper's protocol of repeated random splits, and what a calibration can be expected to do."""

from sklearn_clm.evaluation._component_trials import reference_scores, run_component_trials
from sklearn_clm.evaluation._results import (
    ComponentTrialResults,
    PairedDifference,
    TrialResults,
)
from sklearn_clm.evaluation._trials import Split, random_splits, run_trials

__all__ = [
    "ComponentTrialResults",
    "PairedDifference",
    "Split",
    "TrialResults",
    "random_splits",
    "reference_scores",
    "run_component_trials",
    "run_trials",
]
