"""Conformal language modeling for scikit-learn.

Sampled response sets that hold an admissible response with probability at least 1 - epsilon, and
the components of those responses that can be trusted on their own.
"""

from sklearn_clm._exceptions import NullCalibrationError, NullCalibrationWarning
from sklearn_clm._results import ComponentSet, ComponentSets, PredictionSet, PredictionSets
from sklearn_clm._sampler import ConformalSampler
from sklearn_clm._selector import ComponentSelector
from sklearn_clm._version import __version__

__all__ = [
    "ComponentSelector",
    "ComponentSet",
    "ComponentSets",
    "ConformalSampler",
    "NullCalibrationError",
    "NullCalibrationWarning",
    "PredictionSet",
    "PredictionSets",
    "__version__",
]
