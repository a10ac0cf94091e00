"""The one door from a fitted estimator to what was calibrated."""

from types import SimpleNamespace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from sklearn_clm._calibrating import calibrated_with
from sklearn_clm._sampler import ConformalSampler
from sklearn_clm._selector import ComponentSelector

__all__ = ["calibration_of"]

_SAMPLER = ("epsilon", "delta", "size_weight", "excess_weight", "quality", "similarity")
_FITTED = ("lambda_hat", "k_max", "seed", "achievable_epsilon", "result", "generator")


def calibration_of(estimator: ConformalSampler | ComponentSelector) -> Any:
    """The frozen record of a calibration, with the data that it looked at."""
    check_is_fitted(
        estimator,
        "calibration_data_",
        msg="This %(name)s has no calibration data to report on; call fit or calibrate. "
        "A calibration that was loaded from a file has none.",
    )
    if hasattr(estimator, "calibration_"):
        return estimator.calibration_
    data = estimator.calibration_data_
    provenance = getattr(data, "provenance", None)
    if isinstance(estimator, ConformalSampler):
        return SimpleNamespace(
            **{name: calibrated_with(estimator, name) for name in (*_SAMPLER, "set_score")},
            **{name: getattr(estimator, f"{name}_", None) for name in _FITTED},
            data=data,
            provenance=provenance,
        )
    return SimpleNamespace(
        gamma_hat=estimator.gamma_hat_,
        alpha=estimator.alpha,
        delta=estimator.delta,
        splitter=estimator.splitter_,
        component_score=estimator.component_score_,
        result=estimator.result_,
        data=data,
        provenance=provenance,
    )
