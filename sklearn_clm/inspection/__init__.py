"""Figures, in scikit-learn's manner."""

from sklearn_clm.inspection._achievable_band import AchievableBandDisplay
from sklearn_clm.inspection._component_curves import ComponentCurveDisplay
from sklearn_clm.inspection._frontier import FrontierDisplay
from sklearn_clm.inspection._risk_curves import RiskCurveDisplay

__all__ = [
    "AchievableBandDisplay",
    "ComponentCurveDisplay",
    "FrontierDisplay",
    "RiskCurveDisplay",
]
