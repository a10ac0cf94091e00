"""Calibration of components for the fraction of wrong ones.

The loss of a prompt at threshold gamma is the fraction of wrong components among those that score
at least gamma, 0 where there is none. The claim is that its mean over new prompts is at most alpha,
with probability 1 - delta over the calibration data. Two arguments of section 4.4 fail for it.

**It is not monotone.** A right component that joins a wrong one lowers the fraction. The loss of
Eq. 9 only rises as gamma falls, so that thresholds of too high a risk form a half-line, and walking
down scores of the calibration data itself can go wrong at one place alone, which no data chose.
Here there is no such place. So the thresholds come from other prompts, the *path part*:

1. Given the path part, gamma_1 > ... > gamma_m are fixed, and the losses of the tested prompts at
   each of them are independent, identically distributed and in [0, 1].
2. Hence p_j, by betting or by Hoeffding-Bentkus, is super-uniform where the risk at gamma_j is
   above alpha.
3. Let j be the first such threshold. Fixed sequence testing certifies it, or one after it, only if
   p_j <= delta, which has probability at most delta. So all certified thresholds have a risk of at
   most alpha with probability 1 - delta, the lowest among them included.

The path part needs no labels: its scores alone say where thresholds lie.

**A subset may be worse.** Proposition 4.4 calibrates with all K samples, since a set that holds
some of them has no more wrong components. It may have a larger fraction of them: 1/2 for one right
and one wrong component, 1 for the wrong one alone. The largest fraction over all subsets is 1 as
soon as any component is wrong, so a bound for every subset is the loss of Eq. 9 again. Hence the
components must be those of the very sets that are used in prediction:

4. Given a sampler that was calibrated on other prompts, and the seed of its draws, the set of a
   prompt is a function of the prompt. So is the loss, and steps 1 to 3 apply with the same sampler
   in prediction.

Step 4 fails for a sampler that was calibrated on the same prompts, which chose its thresholds by
their labels.
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._arrays import refuse_unknown
from sklearn_clm.calibration._binomial import (
    check_level,
    mistaken_delta,
    prompts_needed,
    warn_caller,
)
from sklearn_clm.calibration._bounded_losses import betting_p_value, hoeffding_bentkus_p_value
from sklearn_clm.calibration._components import (
    ComponentCalibrationData,
    ComponentThreshold,
    check_components,
)
from sklearn_clm.calibration._data import optimization_size, split_prompts
from sklearn_clm.calibration._fixed_sequence import fixed_sequence_test

_MOST_THRESHOLDS = 100
_HALVINGS = 30


def component_fraction_test(
    data: ComponentCalibrationData,
    alpha: float,
    delta: float = 0.05,
    *,
    p_value: Literal["betting", "hoeffding_bentkus"] = "betting",
    path_fraction: float = 0.2,
    thresholds: ArrayLike | None = None,
) -> ComponentThreshold:
    """Find the lowest threshold at which few selected components are wrong.

    With probability at least 1 - delta over the calibration data, the mean fraction of wrong
    components among those of a new prompt that score at least gamma-hat is at most alpha. An empty
    selection has none.

    Parameters
    ----------
    data : ComponentCalibrationData
        Scores and labels of the components of n independent prompts: those of *the sets that are
        used in prediction*, made by a rule that no label of these prompts has shaped. Components of
        all K samples will not do for sets of fewer, see the notes.
    alpha : float
        Tolerated mean fraction of wrong components, in (0, 1).
    delta : float, default=0.05
        Tolerated probability, over the calibration data, that the mean exceeds `alpha`.
    p_value : {"betting", "hoeffding_bentkus"}, default="betting"
        The p-value, see :func:`betting_p_value` and :func:`hoeffding_bentkus_p_value`.
    path_fraction : float, default=0.2
        Share of the prompts, in (0, 1), whose scores give the thresholds. Their labels may be
        unknown, and take no part in the tests. Which prompts these are depends on n alone.
    thresholds : array-like of shape (m,), default=None
        Thresholds that were fixed without a look at `data`; all prompts are then tested. None takes
        up to 100 quantiles of the scores of the path part.

    Returns
    -------
    ComponentThreshold
        The certified threshold and the tests that led to it: `losses` are the mean fractions,
        `n_errors` counts prompts with any wrong component selected, and `n_calibration` the tested
        prompts.

    Raises
    ------
    ValueError
        If a number is out of range, too few prompts are left for the tests, or one of these has a
        component without a label.

    Notes
    -----
    *Thresholds of other prompts.* The fraction may fall as gamma falls, since a right component
    that joins a wrong one lowers it. So the order of the tests is fixed beforehand, by scores of
    prompts that are not tested, from the largest threshold down to the first whose p-value exceeds
    `delta` (fixed sequence testing).

    *Sets as in prediction.* A subset of a set may have a larger fraction of wrong components than
    the set, so Proposition 4.4 does not hold for fractions: components of all K samples bound
    nothing about the sets of a sampler that stops early. The largest fraction over all subsets is
    the 0/1 loss of :func:`component_learn_then_test`, for which it does hold.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import ComponentCalibrationData
    >>> from sklearn_clm.calibration import component_fraction_test, component_learn_then_test
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random((600, 8))
    >>> data = ComponentCalibrationData.from_arrays(scores, rng.random((600, 8)) < scores)
    >>> few_wrong = component_fraction_test(data, alpha=0.2)
    >>> none_wrong = component_learn_then_test(data, alpha=0.2)
    >>> bool(few_wrong.gamma_hat < none_wrong.gamma_hat)
    True
    """
    check_components(data)
    check_level(alpha, "alpha")
    warn_caller(mistaken_delta(check_level(delta, "delta")))
    bounds = {"betting": betting_p_value, "hoeffding_bentkus": hoeffding_bentkus_p_value}
    if p_value not in bounds:
        raise ValueError(
            f"p_value must be 'betting' or 'hoeffding_bentkus', got {p_value!r} instead."
        )
    p_value_of = bounds[p_value]
    if thresholds is None:
        gammas, tested = component_path(data, path_fraction)
        data = data.take(tested)
    else:
        gammas = _checked(thresholds)
    needed = prompts_needed(alpha, delta)
    if data.n_prompts < needed:
        raise ValueError(
            f"data must leave at least {needed} prompts for the tests, for any p-value to reach "
            f"delta={delta} at alpha={alpha}, got {data.n_prompts} instead."
        )
    refuse_unknown(data, "component of the prompts that are tested", ".")
    losses, n_selected, n_wrong = _counts(data, gammas)
    p_values = p_value_of(losses, alpha) if len(gammas) else np.empty(0)
    certified = fixed_sequence_test(p_values, delta)
    means = losses.mean(axis=0)
    smallest = math.nan
    if len(gammas):
        low, smallest = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + smallest) / 2.0
            if p_value_of(losses[:, :1], middle)[0] <= delta:
                smallest = middle
            else:
                low = middle
    return ComponentThreshold(
        gamma_hat=float(gammas[certified][-1]) if certified.any() else math.inf,
        thresholds=gammas,
        n_errors=np.sum(n_wrong > 0, axis=0),
        p_values=p_values,
        n_components=n_selected.mean(axis=0),
        alpha=float(alpha),
        delta=float(delta),
        n_calibration=data.n_prompts,
        smallest_alpha=smallest,
        achievable_alpha=(float(means[0]), float(means[-1])) if len(means) else (0.0, 0.0),
        provenance=data.provenance,
        exact=np.ones(len(gammas), dtype=bool),
        loss="fraction",
        losses=means,
    )


def path_part(
    n_prompts: int, path_fraction: float = 0.2, prompts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the prompts whose scores give the thresholds, and of those that are tested.

    Those with equal digests in `prompts` are in the same part.
    """
    digests = np.arange(n_prompts) if prompts is None else prompts
    return split_prompts(digests, optimization_size(n_prompts, path_fraction), 0)


def component_path(
    data: ComponentCalibrationData, path_fraction: float = 0.2
) -> tuple[np.ndarray, np.ndarray]:
    """The thresholds that the path part gives, and positions of the prompts that are tested."""
    path, tested = path_part(data.n_prompts, path_fraction, data.prompts)
    return _quantiles(data.take(path).scores), tested


def wrong_fractions(data: ComponentCalibrationData, thresholds: ArrayLike) -> np.ndarray:
    """Fraction of wrong components among those that reach each threshold.

    Parameters
    ----------
    data : ComponentCalibrationData
        Scores and labels of components, of n prompts. A label that is unknown counts as wrong.
    thresholds : array-like of shape (m,)
        The thresholds, from the largest down.

    Returns
    -------
    ndarray of shape (n, m)
        0 where no component reaches the threshold.

    Examples
    --------
    >>> from sklearn_clm.calibration import ComponentCalibrationData, wrong_fractions
    >>> data = ComponentCalibrationData.from_arrays([[0.9, 0.4], [0.7]], [[0, 1], [1]])
    >>> wrong_fractions(data, [0.95, 0.8, 0.3])
    array([[0. , 1. , 0.5],
           [0. , 0. , 0. ]])
    """
    return _counts(data, _checked(thresholds))[0]


def _counts(
    data: ComponentCalibrationData, gammas: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fractions of wrong, numbers selected and numbers wrong, each of shape (n, m)."""
    # the first threshold that a component reaches; m for none
    first = np.searchsorted(-gammas, -data.scores)
    shape = data.n_prompts, len(gammas) + 1
    selected, wrong = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    np.add.at(selected, (data.prompt_index, first), 1)
    np.add.at(wrong, (data.prompt_index, first), ~data.admissible)
    selected, wrong = (np.cumsum(one[:, :-1], axis=1) for one in (selected, wrong))
    return wrong / np.maximum(selected, 1), selected, wrong


def _quantiles(scores: np.ndarray) -> np.ndarray:
    """Scores that cut the sorted ones into equal parts, distinct, from the largest down."""
    if not scores.size:
        return np.empty(0)
    ordered = np.sort(scores)
    places = np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST_THRESHOLDS)).round()
    return np.unique(ordered[places.astype(np.intp)])[::-1]


def _checked(thresholds: ArrayLike) -> np.ndarray:
    gammas = np.asarray(thresholds, dtype=np.float64)
    if gammas.ndim != 1 or np.isnan(gammas).any() or np.any(np.diff(gammas) >= 0):
        raise ValueError(
            "thresholds must be distinct numbers from the largest down, got "
            f"{thresholds!r:.200} instead."
        )
    return gammas
