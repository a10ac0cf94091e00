"""Tests under a shift of the prompts.

**Covariate shift.** New prompts have the density w(x) relative to the calibration prompts, with
0 <= w(x) <= B; their risk is E[w L] / E[w].

*Rejection.* Keep prompt i with probability w_i / B, independently of everything else.

1. P(x is kept) is proportional to w(x), so that a kept prompt is distributed as a new one.
2. The decision uses the prompt alone, hence given the number of kept prompts their losses are
   i.i.d. with the new risk.
3. The exact binomial test on the kept prompts is therefore valid, given that number. What is
   dropped need not be judged.

*Betting.* The risk is at most epsilon if and only if E[w (L - epsilon)] <= 0. The numbers
epsilon + (w / B) (L - epsilon) lie in [0, 1], and their mean is at most epsilon in the same case:
the test for bounded losses applies to them. It uses all prompts, but a weight of B limits every
stake: for errors of 0 and 1 rejection certified more at each B that was tried.

Both are exact for known weights; with estimated ones the guarantee is approximate.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._arrays import as_array
from sklearn_clm.calibration._betting import betting_p_value


def keep_by_weight(
    weights: ArrayLike, bound: float, keys: ArrayLike, *, seed: int = 0
) -> np.ndarray:
    """Choose prompts so that those kept are distributed as new ones.

    Parameters
    ----------
    weights : array-like of shape (n,)
        Density of the new prompts relative to the calibration prompts, in [0, bound].
    bound : float
        Largest weight that any prompt may have, B; fixed without a look at these prompts.
    keys, seed : array-like of int, shape (n,), and int
        A number for each prompt, such as a digest, and a seed. With them and its own weight a
        prompt is kept with probability ``weight / bound``, whatever the others.
    """
    values = check_weights(weights, bound)
    numbers = as_array(keys, "keys", values.shape, np.uint64)
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    # 53 bits make a uniform number in [0, 1)
    uniform = (_mixed(numbers ^ start) >> np.uint64(11)) * 2.0**-53
    return uniform * bound < values


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64: each bit of the result depends on all of the number's."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def weighted_betting_p_value(
    losses: ArrayLike, weights: ArrayLike, epsilon: float, *, bound: float, seed: int = 0
) -> float:
    """P-value of a weighted risk above epsilon, by betting.

    The risk is that of new prompts; arguments as in :func:`betting_p_value` and
    :func:`keep_by_weight`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import weighted_betting_p_value
    >>> weights = np.tile([0.5, 1.5], 150)
    >>> losses = np.tile([0.9, 0.0], 150)  # the weighted risk is 0.225
    >>> weighted_betting_p_value(losses, weights, 0.4, bound=1.5) < 0.05
    True
    """
    values = check_weights(weights, bound)
    loss = as_array(losses, "losses", values.shape, low=0.0, high=1.0)
    transformed = epsilon + values / bound * (loss - epsilon)
    return float(betting_p_value(np.clip(transformed, 0.0, 1.0), epsilon, seed=seed))


def check_weights(weights: Any, bound: float, name: str = "weights") -> np.ndarray:
    """Weights as an array, each in [0, bound] and not all zero."""
    if not 0.0 < bound < np.inf:
        raise ValueError(f"bound must be positive and finite, got {bound!r} instead.")
    values = as_array(weights, name, (None,), low=0.0, high=bound)
    if not values.any():
        raise ValueError(f"{name} must not all be zero.")
    return values
