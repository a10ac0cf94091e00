"""The two estimators, and what they collect, calibrate and keep."""

from sklearn_clm._estimators._sampler import ConformalSampler
from sklearn_clm._estimators._selector import ComponentSelector

__all__ = ["ComponentSelector", "ConformalSampler"]
