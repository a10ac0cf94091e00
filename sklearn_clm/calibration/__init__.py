"""Which configuration is safe: arrays in, thresholds out."""

from sklearn_clm.calibration._component_data import ComponentCalibrationData
from sklearn_clm.calibration._components import ComponentThreshold, component_learn_then_test
from sklearn_clm.calibration._rule import Configuration, SamplingRule

__all__ = [
    "ComponentCalibrationData",
    "ComponentThreshold",
    "Configuration",
    "SamplingRule",
    "component_learn_then_test",
]
