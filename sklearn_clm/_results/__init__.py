"""What the estimators return, and how it looks: sets for prompts, as arrays, text and HTML."""

from sklearn_clm._results._html import STYLE, counted, visual_block
from sklearn_clm._results._sets import ComponentSet, ComponentSets, PredictionSet, PredictionSets

__all__ = [
    "STYLE",
    "ComponentSet",
    "ComponentSets",
    "PredictionSet",
    "PredictionSets",
    "counted",
    "visual_block",
]
