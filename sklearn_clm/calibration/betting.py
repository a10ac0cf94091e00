"""Betting tests of a mean of losses in [0, 1].

The hypothesis is that the mean loss, given all that came before, is at most epsilon, or at least
epsilon. For losses of 0 and 1 of a fixed number of prompts the exact binomial test is the best
there is; these are for other losses, such as the share of wrong members of a set, and for outcomes
that are looked at as they come.

**Wealth.** Let W_t = prod_{s <= t} (1 + b_s x_s), where x_s is L_s - epsilon or epsilon - L_s, and
the stake b_s >= 0 depends on the losses before L_s alone.

1. Every factor is positive, as b_s < 1 / epsilon in the first case, b_s < 1 / (1 - epsilon) in the
   second.
2. Under the hypothesis E[x_s | the losses before] <= 0, so that W is a nonnegative supermartingale
   that starts at 1.
3. Ville's inequality: P(W_t >= 1 / alpha for some t) <= alpha.

Step 2 needs stakes that were chosen before the outcome, and outcomes that were not chosen at all.

**A p-value of n losses** of a mean of at least epsilon (Waudby-Smith and Ramdas, 2024) is
1 / max_t W_t, by step 3. Their order must have nothing to do with them, or step 2 fails: an order
that was chosen after a look at the losses makes any p-value small. Positions give no such order,
not even permuted by a seed, since tables come sorted: with 196 losses of mean .30, the largest
first, one seed certified a mean of at most .29 in 58 of 60 tables, at delta = .05. So digests, the
losses beside them and the seed determine the order. It is a uniform one, whatever stands beside the
digests, and hence the ordered losses of independent rows are independent and identically
distributed.

**An e-process** against a risk of at most epsilon is a mixture of such W with weights fixed
beforehand, and a supermartingale as well. The weights here are equal for the stakes, and each W
starts at any time, where it stands at 1 until then; start t has weight r_{t-1} - r_t with
r_t = log 2 / log(t + 2). The late starts are for a risk that rises late: the wealth that an early
start lost before is not missed. By step 3 one may look after each outcome and stop whenever one
likes. Outcomes are all there are, or a random share, in the order in which they come.

**Under a shift**, of density w(x) <= B, the risk of new prompts, E[w L] / E[w], is at most epsilon
if and only if E[w (L - epsilon)] <= 0. The numbers epsilon + (w / B) (L - epsilon) lie in [0, 1],
and their mean is at most epsilon in the same case: the test of n losses applies to them. It uses
all prompts, but a weight of B limits every stake: for errors of 0 and 1 the exact test on the
prompts that weights keep certified more at each B that was tried.

**Audits, one after the other.** A model refuses a prompt with probability a, and people reject the
witness of one that it admits with probability b; ``_two_phase.py`` says why a + (1 - a) b bounds
the risk. The prompts, in a random order, are cut into blocks, and the first admitted one of each is
audited. With R the share of refused prompts in the block, and X = 1 where people reject, let

    Z = R + (1 - R) X = mean over the block of [L~ + (xi / pi) (L - L~)],

where L~ and L are the losses by the model and by people, xi marks the audited prompt, and 1 / pi is
the number of admitted ones; Z = 1 in a block without any. Prompts are independent, so that whatever
came before R has the mean a, and X given R < 1 the mean b: E[Z] = a + (1 - a) b. Z lies in [0, 1].
The stake is the smaller of sqrt(2 log(1 / delta) / (v n)), which is the best for n blocks of losses
of variance v, and c / (1 - epsilon). By step 3 people may stop after any block, and 1 / max_t W_t
is a p-value then. It falls as epsilon rises, since each factor 1 + stake (epsilon - Z) rises: with
the first stake, which does not depend on epsilon, because epsilon - Z rises; with the second,
which rises too and would lose more at a Z above epsilon, because the factor is
1 - c + c (1 - Z) / (1 - epsilon). So does the factor of the smaller stake: the two are equal at one
epsilon alone, the second is the smaller one below it and the first above.

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
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom

from sklearn_clm.calibration.checks import as_array, check_probability
from sklearn_clm.calibration.digests import next_digests
from sklearn_clm.calibration.rows import check_weights, random_stream

# stakes below their limit keep every factor away from zero
_LARGEST_STAKE = 0.5
# the best stake against epsilon for a risk p is c / epsilon with c = (p - epsilon) / (1 - epsilon)
_STAKES = np.geomspace(0.005, 0.8, 14)
# wealth above this is thrown away, which keeps it a supermartingale and finite
_ENOUGH = 1e300
_HALVINGS = 40  # of [0, 1]: limits to 12 digits
# near the best of 300 to 1,200 prompts with 60 to 400 audits, of models that people audit
_AUDIT_VARIANCE = 0.07
_LARGEST_AUDIT_STAKE = 0.8


def betting_p_value(
    losses: ArrayLike, epsilon: float, *, keys: ArrayLike | None = None, seed: int = 0
) -> np.ndarray:
    """P-value of a mean loss above epsilon, by betting.

    The stakes are predictable plug-in stakes. Let v be the variance of the losses so far, and g how
    far their mean lies below epsilon. The next stake is g / (v + g^2), about that of the fastest
    growth, and none where g is negative. Before the first loss the mean is epsilon, and v is 1/4.

    Parameters
    ----------
    losses : array-like of shape (n,) or (n, m)
        Losses in [0, 1] of n independent prompts, perhaps of m configurations side by side.
    epsilon : float
        The tolerated mean, in (0, 1).
    keys : array-like of uint64, shape (n,), default=None
        Digests of the prompts, which determine with `seed` and the losses in which order is bet,
        wherever the rows stand. None: the rows must stand in an order that is unrelated to their
        losses, neither sorted nor grouped by anything, or the p-value means nothing.
    seed : int, default=0
        Seed of the order, fixed before any loss is seen.

    Returns
    -------
    ndarray of shape () or (m,)
        The p-values.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import betting_p_value
    >>> losses = np.repeat([0.3, 0.1], 100)  # sorted
    >>> keys = np.random.default_rng(0).integers(2**63, size=200)  # digests of the prompts
    >>> backwards = betting_p_value(losses[::-1], 0.25, keys=keys[::-1])
    >>> bool(betting_p_value(losses, 0.25, keys=keys) == backwards <= 0.05)
    True
    """
    values = check_losses(losses)
    if not len(values):
        raise ValueError("losses must be those of at least one prompt, got none instead.")
    check_probability(epsilon, "epsilon")
    ordered = _in_random_order(values, keys, seed)
    n = len(ordered)
    further_axes = tuple(range(1, ordered.ndim))
    count = np.expand_dims(np.arange(1, n + 1), further_axes)

    # mean and variance of the losses *before* each, as if a loss of epsilon had come first
    sum_before = np.zeros_like(ordered)
    np.cumsum(ordered[:-1], axis=0, out=sum_before[1:])
    mean = (epsilon + sum_before) / count
    square = (ordered - mean) ** 2
    squares_before = np.full_like(ordered, 0.25)
    squares_before[1:] += np.cumsum(square[:-1], axis=0)
    variance = squares_before / count

    # no stake while the losses so far are above epsilon: a bet can be left out, not reversed
    gain = epsilon - mean
    stake = np.clip(gain / (variance + gain**2), 0.0, None)
    stake = np.minimum(stake, _LARGEST_STAKE / (1.0 - epsilon))
    return np.asarray(_p_values(ordered, epsilon, stake)[-1])


def _in_random_order(values: np.ndarray, keys: ArrayLike | None, seed: int) -> np.ndarray:
    """Losses in an order unrelated to them."""
    n = len(values)
    if keys is None:
        order = np.random.default_rng(seed).permutation(n)
        return np.asarray(values[order])
    digests = as_array(keys, "keys", (n,), np.uint64)
    by_digest = np.argsort(digests, kind="stable")
    sorted_digests = digests[by_digest]
    some_repeat = bool(np.any(sorted_digests[1:] == sorted_digests[:-1]))
    columns = []
    for losses in np.ascontiguousarray(values.reshape(n, -1).T):
        # rows of one prompt by their losses, so that positions have no part; then all are permuted
        by_key = np.lexsort((losses, digests)) if some_repeat else by_digest
        sorted_losses = losses[by_key]
        # where prompts are numbers of sorted rows, they alone would make a fixed order of these
        content = next_digests(sorted_digests, sorted_losses[:, np.newaxis])
        order = random_stream(content, seed).permutation(n)
        columns.append(sorted_losses[order])
    return np.stack(columns, axis=1).reshape(values.shape)


def weighted_betting_p_value(
    losses: ArrayLike,
    weights: ArrayLike,
    epsilon: float,
    *,
    bound: float,
    keys: ArrayLike | None = None,
    seed: int = 0,
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
    # it lies in [0, 1] but for rounding
    clipped = np.clip(transformed, 0.0, 1.0)
    return float(betting_p_value(clipped, epsilon, keys=keys, seed=seed))


def _p_values(ordered: np.ndarray, epsilon: float, stake: float | np.ndarray) -> np.ndarray:
    """1 / max W after each loss."""
    log_factors = np.log1p(stake * (epsilon - ordered))
    log_wealth = np.cumsum(log_factors, axis=0)
    # the wealth before any bet is 1
    largest_so_far = np.maximum(np.maximum.accumulate(log_wealth, axis=0), 0.0)
    return np.exp(-largest_so_far)


def _audit_stake(n_blocks: int, epsilon: float, delta: float) -> float:
    """The best stake for blocks of the usual variance, limited."""
    best = math.sqrt(2.0 * math.log(1.0 / delta) / (_AUDIT_VARIANCE * n_blocks))
    return min(best, _LARGEST_AUDIT_STAKE / (1.0 - epsilon))


def fewest_audits(epsilon: float, delta: float) -> int:
    """Fewest audits that certify anything, if all is admitted."""

    def certifies(n_audits: int) -> bool:
        stake = _audit_stake(n_audits, epsilon, delta)
        return n_audits * math.log1p(stake * epsilon) >= -math.log(delta)

    # bisection: `too_few` certify nothing, `enough` do
    too_few = 0
    enough = 1
    while not certifies(enough):
        too_few = enough
        enough *= 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if certifies(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def audit_p_values(losses: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
    """P-values of a risk above epsilon after each block.

    The first, 1, is that before any; `losses` are the Z of the blocks, (n,) or, of m audits side by
    side, (n, m).
    """
    stake = _audit_stake(len(losses), epsilon, delta)
    before_any = np.ones((1, *losses.shape[1:]))
    return np.concatenate((before_any, _p_values(losses, epsilon, stake)))


def audit_power(
    refused: ArrayLike,
    rejected: ArrayLike,
    n_prompts: int,
    n_audits: int,
    epsilon: float,
    delta: float,
) -> tuple[np.ndarray, np.ndarray]:
    """About how often audits certify, and how many are made.

    The model refuses a share `refused` of all prompts, and people reject a share `rejected` of the
    witnesses that they are shown (a and b above); arrays broadcast. At most `n_audits` are made;
    the second is their mean. As if the logarithm of the wealth were a Brownian motion.
    """
    a, b = np.broadcast_arrays(refused, rejected)
    a = a[..., np.newaxis]
    b = b[..., np.newaxis]

    # the possible blocks, along the last axis: so many of its prompts are refused; of the others
    # one witness is shown to people, and a block without any counts as rejected
    block_size = n_prompts // n_audits
    n_refused = np.arange(block_size + 1)
    share_refused = n_refused / block_size
    chance_of_block = binom.pmf(n_refused, block_size, a)
    chance_rejected = np.where(share_refused < 1.0, b, 1.0)
    chance_admitted = 1.0 - chance_rejected

    # mean and variance of the step that the logarithm of the wealth takes with a block
    stake = _audit_stake(n_audits, epsilon, delta)
    step_if_admitted = np.log1p(stake * (epsilon - share_refused))
    step_if_rejected = math.log1p(stake * (epsilon - 1.0))
    mean_of_block = chance_admitted * step_if_admitted + chance_rejected * step_if_rejected
    square_of_block = chance_admitted * step_if_admitted**2 + chance_rejected * step_if_rejected**2
    mean_step = np.sum(chance_of_block * mean_of_block, axis=-1, keepdims=True)
    mean_square = np.sum(chance_of_block * square_of_block, axis=-1, keepdims=True)
    variance = np.maximum(mean_square - mean_step**2, 1e-6)

    # the goal is log(1 / delta); the last step goes beyond it, on average by half of the largest
    goal = math.log(1.0 / delta) + step_if_admitted[0] / 2.0
    # the chance that a Brownian motion of this drift has reached the goal after each block: it is
    # beyond the goal now, or has been there before (reflection principle)
    n_blocks = np.arange(1, n_audits + 1)
    expected = n_blocks * mean_step
    spread = np.sqrt(n_blocks * variance)
    chance_beyond = ndtr((expected - goal) / spread)
    log_chance_mirrored = log_ndtr(-(goal + expected) / spread)
    chance_returned = np.exp(2.0 * mean_step * goal / variance + log_chance_mirrored)
    chance_reached = chance_beyond + chance_returned
    # no audit is made after the goal is reached
    mean_audits = n_audits - np.sum(chance_reached[..., :-1], axis=-1)
    return chance_reached[..., -1], mean_audits


def check_losses(losses: ArrayLike) -> np.ndarray:
    """Losses in [0, 1] as float64, (n,) or (n, m)."""
    shape = (None,) * max(np.ndim(losses), 1)
    return as_array(losses, "losses", shape, low=0.0, high=1.0)


class RiskEProcess:
    """E-process against a risk of at most epsilon."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = float(check_probability(epsilon, "epsilon"))
        self._wealth = np.zeros(1)  # of each stake, over the starts so far
        self._count = 0

    @property
    def _reserve(self) -> float:
        """Weight of the starts to come."""
        return math.log(2.0) / math.log(self._count + 2.0)

    def update(self, losses: ArrayLike) -> np.ndarray:
        """E-values after each of further losses, (n,) or (n, m).

        There are m processes side by side. At least 1 / alpha at any time: alarm at level alpha.
        """
        values = check_losses(losses)
        further_axes = tuple(range(1, values.ndim))
        stakes = np.expand_dims(_STAKES, further_axes) / self.epsilon
        e_values = np.empty_like(values)
        for t, loss in enumerate(values):
            reserve_before = self._reserve
            self._count += 1
            # the process that starts now takes its weight from the reserve, at a wealth of 1
            wealth = self._wealth + reserve_before - self._reserve
            factor = 1.0 + stakes * (loss - self.epsilon)
            self._wealth = np.minimum(wealth * factor, _ENOUGH)
            # the starts to come stand at their weight, the others at the mean over the stakes
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
        raise ValueError(f"totals must lie between 0 and n, got {totals!r:.80} instead.")
    total = np.minimum(total, count)
    # the upper limit is the lower one of 1 - loss; each is wrong with probability alpha / 2
    level = math.log(2.0 / alpha)
    lower = _lower_limit(total, count, level)
    lower_of_rest = _lower_limit(count - total, count, level)
    return lower, 1.0 - lower_of_rest


def _lower_limit(total: np.ndarray, n: np.ndarray, level: float) -> np.ndarray:
    """Largest m against which the log wealth reaches `level`."""
    n_ones = total[..., np.newaxis]
    n_zeros = (n - total)[..., np.newaxis]
    log_of_zeros = n_zeros * np.log1p(-_STAKES)
    low = np.zeros(total.shape)
    high = np.ones(total.shape)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        log_of_ones = n_ones * np.log(1.0 - _STAKES + _STAKES / middle[..., np.newaxis])
        of_stakes = np.logaddexp.reduce(log_of_zeros + log_of_ones, axis=-1)
        log_wealth = of_stakes - math.log(len(_STAKES))
        is_rejected = log_wealth >= level
        low = np.where(is_rejected, middle, low)
        high = np.where(is_rejected, high, middle)
    return low  # rounded downwards
