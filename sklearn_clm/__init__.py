"""Conformal language modeling for scikit-learn.

Sampled response sets that hold an admissible response with probability at least 1 - epsilon, and
the components of those responses that can be trusted on their own.
"""

from typing import TYPE_CHECKING

# first, and from here: CPython takes a tenth longer over it from the depth of our own imports,
# where calls of its hot loops happen to straddle two chunks of the interpreter's stack
import sklearn  # noqa: F401

from sklearn_clm._exceptions import NullCalibrationError, NullCalibrationWarning
from sklearn_clm._lazy import lazy_names
from sklearn_clm._prediction_sets import PredictionSet, PredictionSets
from sklearn_clm._sampler import ConformalSampler
from sklearn_clm._version import __version__

if TYPE_CHECKING:
    from sklearn_clm._component_sets import ComponentSet, ComponentSets
    from sklearn_clm._selector import ComponentSelector
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_component_sets": ["ComponentSet", "ComponentSets"],
            "_selector": ["ComponentSelector"],
        },
    )

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
