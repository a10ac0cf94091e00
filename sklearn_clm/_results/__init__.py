"""Sets of responses and components, as arrays, text and HTML."""

import sklearn_clm.scoring  # noqa: F401 - whole, before parts of it
from sklearn_clm._results._claims import Rewritten, ShownClaim
from sklearn_clm._results._selections import ComponentSet, ComponentSets
from sklearn_clm._results._sets import PredictionSet, PredictionSets

__all__ = [
    "ComponentSet",
    "ComponentSets",
    "PredictionSet",
    "PredictionSets",
    "Rewritten",
    "ShownClaim",
]
