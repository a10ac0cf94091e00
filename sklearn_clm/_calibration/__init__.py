"""What was calibrated, where its draws come from, and files of it."""

from sklearn_clm._calibration._attributes import SamplerAttributes, SelectorAttributes
from sklearn_clm._calibration._component_sources import (
    kept_prompts,
    refuse_betting,
    refuse_larger_budget,
    refuse_other_calibration,
    refuse_other_draws,
    unseen_prompts,
)
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
    "SelectorAttributes",
    "SelectorCalibration",
    "conditions_of",
    "kept_prompts",
    "needed_shift",
    "progress_bar",
    "read_calibration",
    "refuse_betting",
    "refuse_differences",
    "refuse_larger_budget",
    "refuse_other_calibration",
    "refuse_other_draws",
    "refuse_other_models",
    "refuse_other_sampler",
    "seed_of_draws",
    "unseen_prompts",
    "write_calibration",
]
