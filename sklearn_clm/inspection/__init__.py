"""Figures and reports, in scikit-learn's manner."""

from sklearn_clm.inspection._budgets import AchievableBandDisplay, PromptGainDisplay
from sklearn_clm.inspection._curves import ComponentCurveDisplay, RiskCurveDisplay
from sklearn_clm.inspection._frontier import FrontierDisplay
from sklearn_clm.inspection._monitor import RiskMonitorDisplay
from sklearn_clm.inspection._report import CalibrationReport, Section

__all__ = [
    "AchievableBandDisplay",
    "CalibrationReport",
    "ComponentCurveDisplay",
    "FrontierDisplay",
    "PromptGainDisplay",
    "RiskCurveDisplay",
    "RiskMonitorDisplay",
    "Section",
]
