"""Which configuration is safe: arrays in, thresholds out."""

from sklearn_clm.calibration._rule import Configuration, SamplingRule

__all__ = ["Configuration", "SamplingRule"]
