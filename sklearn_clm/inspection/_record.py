"""The one door from a fitted estimator to what was calibrated."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ComponentSelector, ConformalSampler

__all__ = ["calibration_of"]


def calibration_of(estimator: ConformalSampler | ComponentSelector) -> Any:
    """The frozen record of a calibration, with the data that it looked at."""
    check_is_fitted(
        estimator,
        ["calibration_", "calibration_data_"],
        msg="This %(name)s has no calibration data to report on; call fit or calibrate. "
        "A calibration that was loaded from a file has none.",
    )
    return estimator.calibration_
