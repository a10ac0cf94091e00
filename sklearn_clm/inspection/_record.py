"""The one door from a fitted estimator to what was calibrated."""

from typing import TypeVar

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ComponentSelector, ConformalSampler

Estimator = TypeVar("Estimator", ConformalSampler, ComponentSelector)


def calibrated(estimator: object) -> ConformalSampler | ComponentSelector:
    """The sampler or selector itself, or the last one of a pipeline, which has data."""
    given, kinds = estimator, (ConformalSampler, ComponentSelector)
    while isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps if isinstance(step, (*kinds, Pipeline))]
        estimator = steps[-1] if steps else None
    if not isinstance(estimator, kinds):
        found = getattr(given, "best_estimator_", None)
        advice = f" Its best_estimator_ is a {type(found).__name__}." if found is not None else ""
        raise TypeError(
            "estimator must be a ConformalSampler, a ComponentSelector or a pipeline of them, got "
            f"{type(given).__name__} instead.{advice}"
        )
    check_is_fitted(
        estimator,
        ["calibration_", "calibration_data_"],
        msg="This %(name)s has no calibration data to report on; call fit or calibrate. "
        "A calibration that was loaded from a file has none.",
    )
    return estimator


def calibrated_one(estimator: object, kind: type[Estimator]) -> Estimator:
    """The one of this kind, itself or at the end of a pipeline, which has data."""
    found = calibrated(estimator)
    if not isinstance(found, kind):
        raise TypeError(f"estimator must be a {kind.__name__}, got {type(found).__name__} instead.")
    return found
