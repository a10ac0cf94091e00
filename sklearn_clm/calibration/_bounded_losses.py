"""P-values for losses in [0, 1], by betting.

The hypothesis is that the mean loss exceeds epsilon. For losses of 0 and 1 the exact binomial test
is the best there is; these are for the others, such as the share of wrong members of a set.

**Betting** (Waudby-Smith and Ramdas, 2024). Put the losses into an order that was fixed before any
of them was seen, and let W_t = prod_{s <= t} (1 + b_s (epsilon - L_s)), where the stake
0 <= b_s < 1 / (1 - epsilon) depends on the first s - 1 losses alone.

1. Every factor is positive, because epsilon - L_s >= epsilon - 1.
2. Under the hypothesis E[epsilon - L_s | the losses before] <= 0 for independent losses with a
   mean of at least epsilon, so that W is a nonnegative supermartingale that starts at 1.
3. Ville's inequality: P(W_t >= 1 / p for some t) <= p, so that p = 1 / max_t W_t is
   super-uniform.

Step 2 needs the order to be fixed beforehand: an order that was chosen after a look at the losses
makes any p-value small. Here a seed determines it.
"""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._binomial import check_probability

# stakes below their limit keep every factor away from zero
_LARGEST_STAKE = 0.5


def betting_p_value(losses: ArrayLike, epsilon: float, *, seed: int = 0) -> np.ndarray:
    """P-value of a mean loss above epsilon, by betting in a fixed order.

    The stakes are predictable plug-in stakes: the mean excess of the losses so far below epsilon
    in units of their variance, after one prior observation of each.

    Parameters
    ----------
    losses : array-like of shape (n,) or (n, m)
        Losses in [0, 1] of n independent prompts, of m configurations side by side.
    epsilon : float
        Tolerated mean loss, in (0, 1).
    seed : int, default=0
        Seed of the order of the prompts. To be fixed before any loss is seen.

    Returns
    -------
    ndarray of shape () or (m,)
        The p-values, in (0, 1].
    """
    values = check_losses(losses)
    check_probability(epsilon, "epsilon")
    ordered = values[np.random.default_rng(seed).permutation(len(values))]
    count = np.arange(1, len(ordered) + 1).reshape((-1,) + (1,) * (ordered.ndim - 1))
    # mean and variance of the losses *before* each, as if a loss of epsilon had come first
    before = np.zeros_like(ordered)
    np.cumsum(ordered[:-1], axis=0, out=before[1:])
    mean = (epsilon + before) / count
    deviation = (ordered - mean) ** 2
    spread = np.full_like(ordered, 0.25)
    spread[1:] += np.cumsum(deviation[:-1], axis=0)
    variance = spread / count
    stake = np.clip((epsilon - mean) / (variance + (epsilon - mean) ** 2), 0.0, None)
    stake = np.minimum(stake, _LARGEST_STAKE / (1.0 - epsilon))
    log_wealth = np.cumsum(np.log1p(stake * (epsilon - ordered)), axis=0)
    return np.exp(-np.maximum(log_wealth.max(axis=0), 0.0))


def check_losses(losses: ArrayLike) -> np.ndarray:
    """Losses of prompts, (n,) or (n, m), as float64 array, all of them in [0, 1]."""
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"losses must have shape (n,) or (n, m), got {values.shape} instead.")
    outside = values[~((values >= 0.0) & (values <= 1.0))]
    if outside.size:
        raise ValueError(f"losses must lie in [0, 1], got {outside[0]} instead.")
    return values
