"""Looking at results: the paper's protocol of repeated random splits (section 5, Appendix F)."""

from sklearn_clm.evaluation._comparison import PairedDifference
from sklearn_clm.evaluation._component_trials import run_component_trials
from sklearn_clm.evaluation._reference_scores import reference_scores
from sklearn_clm.evaluation._results import ComponentTrialResults, TrialResults
from sklearn_clm.evaluation._trials import run_trials

__all__ = [
    "ComponentTrialResults",
    "PairedDifference",
    "TrialResults",
    "reference_scores",
    "run_component_trials",
    "run_trials",
]
