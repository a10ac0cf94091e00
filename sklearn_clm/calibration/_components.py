"""Which threshold on the scores of components is safe (section 4.4 of the paper)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from sklearn_clm.calibration._binomial import (
    binomial_p_value,
    check_probability,
    prompts_needed,
    smallest_epsilon,
)
from sklearn_clm.calibration._component_data import ComponentCalibrationData
from sklearn_clm.calibration._fixed_sequence import fixed_sequence_test

__all__ = ["ComponentThreshold", "component_learn_then_test"]


@dataclass(frozen=True)
class ComponentThreshold:
    """Result of :func:`component_learn_then_test`.

    Parameters
    ----------
    gamma_hat : float
        The lowest certified threshold. +inf, which selects nothing and is always valid, where
        none could be certified.
    thresholds : ndarray of shape (t,)
        The distinct scores of the calibration data, from the largest down.
    n_errors : ndarray of shape (t,), int64
        Number of prompts with an inadmissible component that scores at least the threshold. It
        never falls along the array.
    p_values : ndarray of shape (t,)
        P(Binom(n, alpha) <= n_errors).
    n_components : ndarray of shape (t,)
        Mean number of components per prompt that score at least the threshold.
    alpha, delta : float
        Tolerated risk and error probability.
    n_calibration : int
        Number of prompts n.
    smallest_alpha : float
        The smallest alpha for which a threshold would have been certified.
    achievable_alpha : tuple of (float, float)
        Share of prompts with an error at the highest threshold and at the lowest: below this
        band next to nothing can be selected, above it everything is.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import ComponentCalibrationData, component_learn_then_test
    >>> data = ComponentCalibrationData.from_arrays(np.ones((50, 1)), np.ones((50, 1)))
    >>> component_learn_then_test(data, alpha=0.1).smallest_alpha < 0.06
    True
    """

    gamma_hat: float
    thresholds: np.ndarray = field(repr=False)
    n_errors: np.ndarray = field(repr=False)
    p_values: np.ndarray = field(repr=False)
    n_components: np.ndarray = field(repr=False)
    alpha: float
    delta: float
    n_calibration: int
    smallest_alpha: float
    achievable_alpha: tuple[float, float]


@overload
def component_learn_then_test(
    data: ComponentCalibrationData, alpha: float, delta: float = ...
) -> ComponentThreshold: ...


@overload
def component_learn_then_test(
    data: ComponentCalibrationData, alpha: Sequence[float] | np.ndarray, delta: float = ...
) -> tuple[ComponentThreshold, ...]: ...


def component_learn_then_test(
    data: ComponentCalibrationData,
    alpha: float | Sequence[float] | np.ndarray,
    delta: float = 0.05,
) -> ComponentThreshold | tuple[ComponentThreshold, ...]:
    """Find the lowest safe threshold on component scores.

    With probability at least 1 - delta over the calibration data, all components of a new prompt
    that score at least gamma-hat are admissible with probability at least 1 - alpha (Eq. 9,
    Proposition 4.4).

    Parameters
    ----------
    data : ComponentCalibrationData
        Scores and labels of the distinct components of all K samples, n prompts.
    alpha : float in (0, 1), or a sequence of them
        Tolerated probability of selecting any inadmissible component for a prompt.
    delta : float in (0, 1), default=0.05
        Tolerated probability, over the calibration data, that the risk exceeds `alpha`.

    Returns
    -------
    ComponentThreshold, or a tuple of them where `alpha` is a sequence
        The certified threshold and the tests that led to it.

    Raises
    ------
    ValueError
        If `alpha` or `delta` is not in (0, 1), or if n is too small for any p-value to reach
        `delta`.

    Notes
    -----
    The loss of a prompt falls as gamma rises, so the thresholds form one fixed sequence and no
    correction for multiple tests is needed: they are tested from the largest down, up to the
    first whose p-value exceeds `delta`. By the same monotonicity the number of selected
    components is largest at the lowest certified threshold (Eq. 10). Time is O(m log m) for m
    components.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import ComponentCalibrationData, component_learn_then_test
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random((500, 6))
    >>> data = ComponentCalibrationData.from_arrays(scores, rng.random((500, 6)) < scores)
    >>> result = component_learn_then_test(data, alpha=0.3)
    >>> bool(0.6 < result.gamma_hat < 0.95)
    True
    """
    if not isinstance(data, ComponentCalibrationData):
        raise TypeError(f"data must be ComponentCalibrationData, got {type(data).__name__}.")
    alphas = np.atleast_1d(check_probability(alpha, "alpha"))
    if np.ndim(delta) != 0:
        raise ValueError(f"delta must be a single number in (0, 1), got {delta!r}.")
    check_probability(delta, "delta")
    if alphas.ndim != 1 or not alphas.size:
        raise ValueError(f"alpha must be a number or a sequence of numbers, got {alpha!r}.")
    for value in alphas.tolist():
        _check_enough_prompts(data.n_prompts, value, delta)

    thresholds = np.unique(data.scores)[::-1]
    worst = np.sort(data.worst_inadmissible())
    n_errors = len(worst) - np.searchsorted(worst, thresholds, side="left")
    n_selected = data.n_components - np.searchsorted(np.sort(data.scores), thresholds, side="left")
    results = []
    for value in alphas.tolist():
        p_values = binomial_p_value(n_errors, data.n_prompts, value)
        certified = fixed_sequence_test(p_values, delta)
        results.append(
            ComponentThreshold(
                gamma_hat=float(thresholds[certified][-1]) if certified.any() else math.inf,
                thresholds=thresholds,
                n_errors=n_errors.astype(np.int64),
                p_values=p_values,
                n_components=n_selected / data.n_prompts,
                alpha=value,
                delta=float(delta),
                n_calibration=data.n_prompts,
                smallest_alpha=_smallest_alpha(n_errors, data.n_prompts, delta),
                achievable_alpha=_achievable(n_errors, data.n_prompts),
            )
        )
    return results[0] if np.ndim(alpha) == 0 else tuple(results)


def _smallest_alpha(n_errors: np.ndarray, n_prompts: int, delta: float) -> float:
    if not n_errors.size:
        return math.nan
    return float(smallest_epsilon(n_errors[0], n_prompts, delta))


def _achievable(n_errors: np.ndarray, n_prompts: int) -> tuple[float, float]:
    if not n_errors.size:
        return (0.0, 0.0)
    return (float(n_errors[0] / n_prompts), float(n_errors[-1] / n_prompts))


def _check_enough_prompts(n_prompts: int, alpha: float, delta: float) -> None:
    """Refuse a calibration set on which even no error at all proves nothing."""
    wanted = prompts_needed(alpha, delta)
    if n_prompts < wanted:
        raise ValueError(
            f"data holds {n_prompts} prompts, too few for any p-value to reach delta={delta} at "
            f"alpha={alpha}; it takes at least {wanted}."
        )
