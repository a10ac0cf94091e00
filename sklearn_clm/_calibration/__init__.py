"""What was calibrated, where its draws come from, and files of it."""

from sklearn_clm._calibration._attributes import SamplerAttributes
from sklearn_clm._calibration._files import (
    read_calibration,
    refuse_differences,
    refuse_other_sampler,
    write_calibration,
)
from sklearn_clm._calibration._records import (
    PARTS,
    SCORES,
    SamplerCalibration,
    SelectorCalibration,
)
from sklearn_clm._calibration._source import (
    DrawSource,
    conditions_of,
    needed_shift,
    progress_bar,
    refuse_other_models,
    seed_of_draws,
)

__all__ = [
    "PARTS",
    "SCORES",
    "DrawSource",
    "SamplerAttributes",
    "SamplerCalibration",
    "SelectorCalibration",
    "conditions_of",
    "needed_shift",
    "progress_bar",
    "read_calibration",
    "refuse_differences",
    "refuse_other_models",
    "refuse_other_sampler",
    "seed_of_draws",
    "write_calibration",
]
