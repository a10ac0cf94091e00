"""The one door from a fitted estimator to what was calibrated."""

from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ComponentSelector, ConformalSampler


def calibrated(estimator: object) -> ConformalSampler | ComponentSelector:
    """The sampler or selector itself, or the last one of a pipeline, which has data."""
    given, kinds = estimator, (ConformalSampler, ComponentSelector)
    while isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps if isinstance(step, (*kinds, Pipeline))]
        estimator = steps[-1] if steps else None
    if not isinstance(estimator, kinds):
        raise TypeError(
            "estimator must be a ConformalSampler, a ComponentSelector or a pipeline of them, got "
            f"{type(given).__name__} instead."
        )
    check_is_fitted(
        estimator,
        ["calibration_", "calibration_data_"],
        msg="This %(name)s has no calibration data to report on; call fit or calibrate. "
        "A calibration that was loaded from a file has none.",
    )
    return estimator


def calibrated_sampler(estimator: object) -> ConformalSampler:
    """The sampler itself, or the one of a pipeline, which has data."""
    found = calibrated(estimator)
    if not isinstance(found, ConformalSampler):
        raise TypeError(
            f"estimator must be a ConformalSampler, got {type(found).__name__} instead."
        )
    return found


def calibration_of(estimator: object) -> Any:
    """The frozen record of a calibration, with the data that it looked at."""
    return calibrated(estimator).calibration_
