"""From calibration data to the fitted attributes of a sampler, null results included."""

import math
import warnings
from numbers import Integral
from typing import Any

import numpy as np

from sklearn_clm._caller import caller_level
from sklearn_clm._exceptions import NullCalibrationError, NullCalibrationWarning
from sklearn_clm._fingerprints import score_fingerprint
from sklearn_clm._snapshots import snapshot
from sklearn_clm.calibration import (
    CalibrationData,
    LearnThenTestResult,
    achievable_epsilon,
    learn_then_test,
    prompts_needed,
)
from sklearn_clm.calibration._data import optimization_size

__all__ = [
    "calibrated_attributes",
    "calibrated_with",
    "check_collected_data",
    "draw_budgets",
    "forget_calibration",
    "is_own",
    "report_null",
    "scores_of_collection",
    "set_or_delete",
    "take_over",
]

_CALIBRATED = (
    "calibration_data_",
    "result_",
    "lambda_hat_",
    "k_max_",
    "valid_lambdas_",
    "frontier_",
    "p_values_",
    "achievable_epsilon_",
    "_calibrated_with",
)
_HOLDS_FOR = ("set_score", "epsilon", "delta", "k_max", "size_weight", "excess_weight")


def draw_budgets(k_max: Any) -> list[int]:
    """Values of the parameter `k_max` in ascending order."""
    if isinstance(k_max, Integral):
        return [int(k_max)]
    budgets = list(k_max)
    if not budgets or not all(isinstance(k, Integral) and int(k) >= 1 for k in budgets):
        raise ValueError(f"k_max must be an int >= 1, or a sequence of such, got {k_max!r}.")
    return sorted({int(k) for k in budgets})


def set_or_delete(estimator: Any, name: str, value: Any) -> None:
    """Set an attribute; None means that there is to be none."""
    if value is not None:
        setattr(estimator, name, value)
    elif hasattr(estimator, name):
        delattr(estimator, name)


def forget_calibration(estimator: Any) -> None:
    """Remove what an earlier calibration found."""
    for name in _CALIBRATED:
        set_or_delete(estimator, name, None)


def scores_of_collection(sampler: Any) -> dict[str, Any]:
    """Scores that collected data depend on; a fingerprint of the judge, whom predict needs not."""
    return {
        "quality": snapshot(sampler.quality),
        "similarity": snapshot(sampler.similarity),
        "admission": score_fingerprint(sampler.admission),
    }


def take_over(sampler: Any, attributes: dict[str, Any]) -> None:
    """Replace an earlier calibration, and note the parameters that this one holds for."""
    forget_calibration(sampler)
    for name, value in attributes.items():
        setattr(sampler, name, value)
    params = {name: snapshot(getattr(sampler, name)) for name in _HOLDS_FOR}
    sampler._calibrated_with = {**params, **scores_of_collection(sampler)}


def calibrated_with(sampler: Any, name: str) -> Any:
    """Value of a parameter when calibration looked at it: `set_params` voids no guarantee."""
    noted = getattr(sampler, "_calibrated_with", {})
    return noted[name] if name in noted else getattr(sampler, name)


def is_own(sampler: Any, data: CalibrationData) -> bool:
    """Whether the sampler itself has collected the data, or these are a part of them."""
    own = getattr(sampler, "calibration_data_", None)
    if own is None or not hasattr(sampler, "_collected_with"):
        return False
    return bool(np.may_share_memory(data.quality, own.quality))


def check_collected_data(sampler: Any, data: CalibrationData) -> None:
    """Refuse data that the sampler itself has collected with other scores than it has now."""
    if not is_own(sampler, data):
        return
    collected = sampler._collected_with
    for name, now in scores_of_collection(sampler).items():
        then = collected[name]
        if now is not then and score_fingerprint(now) != score_fingerprint(then):
            raise ValueError(
                f"data was collected with {name}={then!r:.80}, but now {name}={now!r:.80}; "
                "wanted data collected with the scores that predict is to use. Call collect, or "
                "fit, again: a cache gives draws back that were made before."
            )


def calibrated_attributes(
    data: CalibrationData,
    budgets: list[int],
    *,
    epsilon: float,
    delta: float,
    set_score: Any,
    random_state: Any,
    n_lambdas: int,
    optimization_fraction: float,
    size_weight: float,
    excess_weight: float,
    on_null: str,
) -> dict[str, Any]:
    """Fitted attributes by name; warns or raises where calibration is null."""
    if data.k_max < budgets[-1]:
        raise ValueError(
            f"k_max={budgets[-1]} asks for more draws than the {data.k_max} of the calibration "
            "data; collect them, or lower k_max."
        )
    data = data.truncate(budgets[-1])
    needed = prompts_needed(epsilon, delta)
    n = data.n_prompts
    n_calibration = n - optimization_size(n, optimization_fraction) if n > 1 else 0
    if n_calibration < needed:
        message = _too_small(n, n_calibration, needed, optimization_fraction, epsilon, delta)
        report_null(message, on_null)
        return _attributes(data, None, budgets)
    result = learn_then_test(
        data,
        epsilon,
        delta,
        set_score=set_score,
        random_state=random_state,
        n_lambdas=n_lambdas,
        optimization_fraction=optimization_fraction,
        size_weight=size_weight,
        excess_weight=excess_weight,
        k_max=budgets if len(budgets) > 1 else None,
    )
    if result.lambda_hat is None:
        report_null(_null(result, budgets[-1]), on_null)
    return _attributes(data, result, budgets)


def report_null(message: str, on_null: str) -> None:
    """Warn of a null calibration, or raise it."""
    if on_null == "raise":
        raise NullCalibrationError(message)
    warnings.warn(message, NullCalibrationWarning, stacklevel=caller_level())


def _attributes(
    data: CalibrationData, result: LearnThenTestResult | None, budgets: list[int]
) -> dict[str, Any]:
    attributes = {"calibration_data_": data, "result_": result}
    if result is None:
        return attributes | {
            "lambda_hat_": None,
            "k_max_": budgets[-1],
            "valid_lambdas_": np.empty((0, 3)),
            "frontier_": None,
            "p_values_": np.empty(0),
            "achievable_epsilon_": achievable_epsilon(data),
        }
    return attributes | {
        "lambda_hat_": result.lambda_hat,
        "k_max_": budgets[-1] if result.k_max_hat is None else int(result.k_max_hat),
        "valid_lambdas_": result.valid_lambdas,
        "frontier_": result.frontier,
        "p_values_": result.p_values,
        "achievable_epsilon_": result.achievable_epsilon,
    }


def _too_small(
    n: int, n_calibration: int, needed: int, fraction: float, epsilon: float, delta: float
) -> str:
    total = prompts_needed(epsilon, delta, fraction)
    return (
        f"Calibration is null: the calibration part has {n_calibration} of n_samples={n} prompts, "
        f"and no p-value can reach delta={delta:g} at epsilon={epsilon:g} with fewer than "
        f"{needed}. With optimization_fraction={fraction:.3g} that takes at least {total} prompts "
        "(those that train a generator not counted). The trivial set of all draws is returned, "
        "without any guarantee."
    )


def _null(result: LearnThenTestResult, k_max: int) -> str:
    low, high = result.achievable_epsilon
    # rounded up, so that the epsilon which is named does work
    smallest = math.ceil(result.smallest_epsilon * 1e4) / 1e4
    hint = " No draw is admissible for any prompt: check admission and references."
    return (
        f"Calibration is null: no configuration is certified at epsilon={result.epsilon:g}, "
        f"delta={result.delta:g} with {result.n_calibration} calibration prompts. The smallest "
        f"epsilon that would have worked is {smallest:g}. Sets of the first draw alone err "
        f"for {high:.1%} of the prompts, and sets of all {k_max} draws still for {low:.1%}; "
        "epsilon can sensibly lie between the two (appendix C). The trivial set of all draws is "
        f"returned, without any guarantee.{hint if low == 1.0 else ''}"
    )
