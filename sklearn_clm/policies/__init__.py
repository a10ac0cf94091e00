"""How sampling stops and how much is judged: choices with parameters of their own.

``ConformalSampler(policy=..., judging=...)`` takes these objects, or the names of the defaults;
their parameters are reached as ``policy__look_ahead`` or ``judging__optimization_judgements``.
"""

from sklearn_clm.policies._exit import ExitPolicy, ExitResult
from sklearn_clm.policies._judging import LazyJudging
from sklearn_clm.policies._thresholds import ThresholdPolicy

__all__ = ["ExitPolicy", "ExitResult", "LazyJudging", "ThresholdPolicy"]
