"""From responses to scored components and selections, and what is said of null calibrations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sklearn_clm._calibrating import report_null, set_or_delete
from sklearn_clm._collecting import _seed_of_draws
from sklearn_clm._results import ComponentSet, PredictionSet
from sklearn_clm.calibration import (
    ComponentCalibrationData,
    ComponentThreshold,
    Provenance,
    component_learn_then_test,
    prompts_needed,
)
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import (
    component_scores,
    component_spans,
    get_component_score,
    get_splitter,
)
from sklearn_clm.scoring._components import DistinctComponents, distinct_components

__all__ = [
    "accepted_draws",
    "calibrated_attributes",
    "forget_calibration",
    "found_components",
    "parts_of",
    "select",
]

_CALIBRATED = (
    "calibration_data_",
    "result_",
    "gamma_hat_",
    "thresholds_",
    "n_errors_",
    "p_values_",
    "achievable_alpha_",
)


def parts_of(selector: Any) -> dict[str, Any]:
    """Splitter and score of components that the parameters stand for, by fitted name."""
    seed = _seed_of_draws(selector.random_state)
    return {
        "splitter_": get_splitter(selector.splitter),
        "component_score_": get_component_score(selector.component_score, seed=seed),
    }


def select(
    one: PredictionSet, found: DistinctComponents, gamma: float, calibrated: Provenance
) -> ComponentSet:
    """The components that reach the threshold (Algorithm 2)."""
    chosen = np.flatnonzero(calibrated.rounded(found.scores) >= gamma)
    return ComponentSet(
        components=tuple(found.components[c] for c in chosen),
        scores=found.scores[chosen],
        occurrences=tuple(tuple(found.occurrences[c]) for c in chosen),
        prediction_set=one,
        guaranteed=bool(gamma < np.inf),
    )


def calibrated_attributes(
    data: ComponentCalibrationData, alpha: float, delta: float, on_null: str
) -> dict[str, Any]:
    """Fitted attributes by name; warns or raises where calibration is null."""
    result = None
    needed = prompts_needed(alpha, delta)
    if data.n_prompts < needed:
        report_null(_too_small(data.n_prompts, needed, alpha, delta), on_null)
    else:
        result = component_learn_then_test(data, alpha, delta)
        if result.gamma_hat == np.inf:
            report_null(_null(result), on_null)
    return {
        "calibration_data_": data,
        "result_": result,
        "gamma_hat_": np.inf if result is None else result.gamma_hat,
        "thresholds_": np.empty(0) if result is None else result.thresholds,
        "n_errors_": np.empty(0, dtype=np.int64) if result is None else result.n_errors,
        "p_values_": np.empty(0) if result is None else result.p_values,
        "achievable_alpha_": (np.nan, np.nan) if result is None else result.achievable_alpha,
    }


def forget_calibration(selector: Any) -> None:
    """Remove what an earlier calibration found."""
    for name in _CALIBRATED:
        set_or_delete(selector, name, None)


def _too_small(n: int, needed: int, alpha: float, delta: float) -> str:
    return (
        f"Calibration of components is null: there are n_samples={n} calibration prompts, and "
        f"no p-value can reach delta={delta:g} at alpha={alpha:g} with fewer than {needed}. Every "
        "selection will be empty, which is valid."
    )


def _null(result: ComponentThreshold) -> str:
    if not result.thresholds.size:
        return (
            "Calibration of components is null: no response of the "
            f"{result.n_calibration} calibration prompts has any component. Every selection will "
            "be empty, which is valid."
        )
    low, high = result.achievable_alpha
    return (
        f"Calibration of components is null: no threshold is certified at alpha={result.alpha:g}, "
        f"delta={result.delta:g} with {result.n_calibration} calibration prompts. The smallest "
        f"alpha that would have worked is {result.smallest_alpha:.4g}. Selecting what has the "
        f"highest score errs for {low:.1%} of the prompts, and selecting everything for "
        f"{high:.1%}. Every selection will be empty, which is valid."
    )


def accepted_draws(one: PredictionSet) -> list[Generation]:
    """The accepted draws of a set, with their log-probabilities where it knows them."""
    if one.generations:
        return [one.generations[draw] for draw in one.indices]
    return [Generation(response) for response in one.responses]


def found_components(
    splitter: Any,
    component_score: Any,
    prompts: Any,
    draws: Sequence[Sequence[Generation]],
    indices: Sequence[Any],
) -> list[DistinctComponents]:
    """Distinct components of each prompt's responses, with their scores."""
    spans = [[component_spans(splitter, draw.response) for draw in row] for row in draws]
    scores = component_scores(component_score, prompts, draws, spans)
    return [
        distinct_components([draw.response for draw in row], places, row_spans, row_scores)
        for row, places, row_spans, row_scores in zip(draws, indices, spans, scores)
    ]
