"""The two estimators, and what they collect, calibrate and keep.

Other rooms enter by these names alone.
"""

import sklearn_clm.policies  # noqa: F401 - whole, before parts of it
from sklearn_clm._estimators._agreement import refuse_differences
from sklearn_clm._estimators._calibration import PARTS, SamplerCalibration, SelectorCalibration
from sklearn_clm._estimators._collection import SCORES
from sklearn_clm._estimators._files import (
    claim_content,
    claim_of,
    prompts_of,
    reading,
    write_content,
)
from sklearn_clm._estimators._sampler import ConformalSampler
from sklearn_clm._estimators._selector import ComponentSelector

__all__ = [
    "PARTS",
    "SCORES",
    "ComponentSelector",
    "ConformalSampler",
    "SamplerCalibration",
    "SelectorCalibration",
    "claim_content",
    "claim_of",
    "prompts_of",
    "reading",
    "refuse_differences",
    "write_content",
]
