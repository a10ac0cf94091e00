"""Measures of prediction sets."""

from sklearn_clm._judging import SetOutcomes

__all__ = ["SetOutcomes"]
