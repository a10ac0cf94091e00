"""Tests of a risk that are valid at any time.

The hypothesis is that the risk, given all that came before, is at most epsilon. For a
stake b in (0, 1 / epsilon), W_t = prod_{s <= t} (1 + b (L_s - epsilon)).

1. Every factor is positive: 1 + b (L - epsilon) >= 1 - b epsilon > 0.
2. Under the hypothesis E[L_s - epsilon | the past] <= 0, so that W is a nonnegative supermartingale
   that starts at 1. So is W with a start at any later time, where it stands at 1 until then.
3. A mixture E of them with weights fixed beforehand is one as well. The weights here are equal for
   the stakes; start t has weight r_{t-1} - r_t with r_t = log 2 / log(t + 2). The late starts are
   for a risk that rises late: the wealth that an early start lost before is not missed.
4. Ville's inequality: P(E_t >= 1 / alpha for some t) <= alpha. One may look after each outcome and
   stop whenever one likes.

Step 2 needs stakes that were chosen before the outcome, and outcomes that were not chosen at all:
all of them, or a random share.

**Confidence sequence.** For losses of a constant mean, the set of all m that the same product with
the one start at 1, for m instead of epsilon, does not reject at alpha / 2, nor the one for 1 - L
and 1 - m, contains the mean at all times with probability 1 - alpha. With b = c / m the factor of
a loss of 0 is 1 - c and that of a loss of 1 is 1 - c + c / m; both fall as m rises, so that the set
is an interval. A loss between the two has at least the weighted geometric mean of these factors
(the logarithm is concave), which is what is used: sums of losses suffice.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._binomial import check_probability
from sklearn_clm.calibration._bounded_losses import check_losses

# the best stake against epsilon for a risk p is c / epsilon with c = (p - epsilon) / (1 - epsilon)
_STAKES = np.geomspace(0.005, 0.8, 14)
# wealth above this is thrown away, which keeps it a supermartingale and finite
_ENOUGH = 1e300
_HALVINGS = 40


class RiskEProcess:
    """E-process against a risk of at most epsilon; start to finish, e-values of losses in order."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = float(check_probability(epsilon, "epsilon"))
        self._wealth = np.zeros(1)  # of each stake, over the starts so far
        self._count = 0

    def __repr__(self) -> str:
        return f"<RiskEProcess epsilon={self.epsilon:g}, {self._count} losses>"

    @property
    def _reserve(self) -> float:
        """Weight of the starts to come."""
        return math.log(2.0) / math.log(self._count + 2.0)

    def update(self, losses: ArrayLike) -> np.ndarray:
        """The e-value after each of further losses, (n,) or (n, m) for m processes side by side.

        At least 1 / alpha at any time: alarm at level alpha.
        """
        values = check_losses(losses)
        stakes = _STAKES.reshape((-1,) + (1,) * (values.ndim - 1)) / self.epsilon
        e_values = np.empty_like(values)
        for t, loss in enumerate(values):
            before = self._reserve
            self._count += 1
            wealth = self._wealth + before - self._reserve
            self._wealth = np.minimum(wealth * (1.0 + stakes * (loss - self.epsilon)), _ENOUGH)
            e_values[t] = self._reserve + self._wealth.mean(axis=0)
        return e_values


def confidence_sequence(
    totals: ArrayLike, n: ArrayLike, alpha: float = 0.05
) -> tuple[np.ndarray, np.ndarray]:
    """Limits for a mean loss, valid at all times together.

    `totals` are sums of the first `n` losses, each in [0, 1]. Each limit is wrong at any time with
    probability at most ``alpha / 2``.
    """
    check_probability(alpha, "alpha")
    total, count = np.broadcast_arrays(np.asarray(totals, dtype=np.float64), np.asarray(n))
    # sums of many fractions are rounded
    if not np.all((total >= 0.0) & (total <= count * (1.0 + 1e-12))):
        raise ValueError("totals must lie between 0 and n.")
    total = np.minimum(total, count)
    level = math.log(2.0 / alpha)
    return _lower_limit(total, count, level), 1.0 - _lower_limit(count - total, count, level)


def _lower_limit(total: np.ndarray, n: np.ndarray, level: float) -> np.ndarray:
    """Largest m, to rounding downwards, against which the log wealth reaches `level`."""
    low, high = np.zeros(total.shape), np.ones(total.shape)
    zeros = (n - total)[..., np.newaxis] * np.log1p(-_STAKES)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        ones = total[..., np.newaxis] * np.log(1.0 - _STAKES + _STAKES / middle[..., np.newaxis])
        wealth = np.logaddexp.reduce(zeros + ones, axis=-1) - math.log(len(_STAKES))
        rejected = wealth >= level
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low
