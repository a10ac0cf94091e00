"""A test of people's verdicts by a model and audits.

A model judges the responses of each of N prompts, until it admits one, the *witness*, or refuses
all of them. Of the prompts with a witness, n are drawn at random, and people say whether they admit
it. The number n is fixed beforehand. The risk is the probability that a new prompt is refused, or
has a witness that people reject; a set holds no response that people admit at most as often.

1. *Model.* Let a be the probability that the model refuses a prompt, and b the probability that
   people reject the witness of one that it does not refuse. The risk is a + (1 - a) b. The prompts
   are independent, so that K, the number of refused ones, is Bin(N, a).
2. *Audit.* Given which prompts are refused, the verdicts of people on the witnesses of the others
   are independent and reject with probability b. If N - K >= n, a random n of them, drawn without
   regard to these verdicts, hold X ~ Bin(n, b) rejected ones, whatever K is: X and K are
   independent.
3. *Fewer than n witnesses.* If N - K < n, all N - K are audited, and each of the n - (N - K)
   verdicts that are lacking counts as a rejection. X is then at least as large as if further
   prompts with a witness had been drawn for the lacking ones, which would give step 2. As the tests
   reject for small X (step 4), they reject no more often than with Bin(n, b).
4. *Statistic.* G(K, X) is the log-likelihood at its maximum, K / N and X / n, minus its maximum on
   the boundary a + (1 - a) b = epsilon, where the estimate of the risk is below epsilon; elsewhere
   it is -inf. The maximum on the boundary has a closed form: with b = (epsilon - a) / (1 - a) the
   derivative in a is zero at the root of a quadratic. It is then replaced by the largest G(K', X')
   with K' >= K and X' >= X, so that R = {G >= g} is a down-set for each g: with a point it holds
   all that have fewer refusals and fewer rejections.
5. *The worst case lies on the boundary.* The probability of a down-set falls as a or b rises, since
   a binomial variable rises with its parameter. For each (a, b) with risk above epsilon there is a
   point of the boundary with no larger a and no larger b: (a, b(a)) with
   b(a) = (epsilon - a) / (1 - a) if a <= epsilon, and else (epsilon, 0). Hence
   p = max over a in [0, epsilon] of P_{a, b(a)}(G >= observed G) is a p-value.
6. *Bounded, not searched.* [0, epsilon] is cut into cells. In a cell from a to a' the probability
   is at most that at (a, b(a')), as b falls in a. The p-value is the largest of these bounds. It
   lies above the maximum by what a cell's width makes, and not below it but for rounding.
7. *One rule.* The rule that makes the sets is fixed before the prompts are looked at, and which
   member is the witness is decided by scores and by the model's verdicts alone. Each rule of a path
   would need audits of its own.
"""

from dataclasses import dataclass, field
from functools import lru_cache, partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlog1py, xlogy
from scipy.stats import binom

from sklearn_clm.calibration._binomial import smallest_level
from sklearn_clm.calibration.checks import check_level

_CELLS = 2000  # at 300 prompts the p-value is then about 1 % above the maximum


@dataclass(frozen=True, eq=False)
class AuditRecord:
    """Verdicts of a model, and of people who audit it.

    Parameters
    ----------
    n_refused, n_prompts, n_missed : int
        As in :func:`two_phase_p_value`.
    n_planned : int
        How many audits were planned. Fewer are made where the model admits fewer prompts, or where
        betting ends before.
    rows : ndarray of int
        The audited prompts, by position among those of the data.
    prompts, draws : ndarray of int, shape (m,)
        What people judged, all of it admitted by the model: one draw of each audited prompt. Of
        components `prompts` are positions in the flat arrays of the data, and `draws` are 0.
    verdicts : ndarray of bool, shape (m,)
        What people said.
    """

    n_refused: int
    n_prompts: int
    n_missed: int
    n_planned: int
    rows: np.ndarray = field(repr=False)
    prompts: np.ndarray = field(repr=False)
    draws: np.ndarray = field(repr=False)
    verdicts: np.ndarray = field(repr=False)


class _Design:
    """Statistic of a design, and its law on the boundary."""

    def __init__(self, n_prompts: int, n_audited: int, epsilon: float) -> None:
        self.n_prompts = n_prompts
        self.n_audited = n_audited
        self.epsilon = epsilon
        # where more than epsilon N are refused, or epsilon n rejected, G is -inf
        most_refused = int(np.ceil(n_prompts * epsilon))
        most_missed = int(np.ceil(n_audited * epsilon))
        refused = np.arange(most_refused + 1)
        missed = np.arange(most_missed + 1)
        self.statistic = self._statistic(refused[:, np.newaxis], missed)

        # step 6: as b(a) falls in a, no probability in the cell from a to a' is above that at
        # (a, b(a')), with refusals of its lower end and rejections of its upper end
        edges = _edges_of_cells(epsilon)
        next_a = edges[1:]
        b = np.maximum((epsilon - next_a) / (1.0 - next_a), 0.0)
        self._chance_refused = _chance_refused(n_prompts, most_refused, epsilon)
        # P(X <= x) for x = -1, 0, 1, ...
        self._chance_at_most_missed = np.zeros((_CELLS, len(missed) + 1))
        chance_missed = binom.pmf(missed, n_audited, b[:, np.newaxis])
        np.cumsum(chance_missed, axis=1, out=self._chance_at_most_missed[:, 1:])

    def _statistic(self, refused: np.ndarray, missed: np.ndarray) -> np.ndarray:
        """Gain of likelihood G(K, X), step 4, made a down-set."""
        n_prompts = self.n_prompts
        n_audited = self.n_audited
        epsilon = self.epsilon

        # the maximum of the likelihood, and that on the boundary, where a is the smaller root of
        # A a^2 - B a + C, written without cancellation; B = 0 only where C = 0
        share_refused = refused / n_prompts
        share_missed = missed / n_audited
        square = n_prompts - n_audited + missed
        linear = refused + (n_prompts - n_audited) * epsilon + missed
        constant = refused * epsilon
        discriminant = linear**2 - 4.0 * square * constant
        root = np.sqrt(np.maximum(discriminant, 0.0))
        a = np.minimum(2.0 * constant / np.maximum(linear + root, 1e-300), epsilon)
        b = (epsilon - a) / (1.0 - a)
        with np.errstate(divide="ignore"):
            at_maximum = self._log_likelihood(refused, missed, share_refused, share_missed)
            on_boundary = self._log_likelihood(refused, missed, a, b)
            gain = at_maximum - on_boundary
        estimated_risk = share_refused + (1.0 - share_refused) * share_missed
        gain = np.where(estimated_risk < epsilon, gain, -np.inf)

        # the largest G of all that is worse, which makes {G >= g} a down-set
        for axis in (0, 1):
            from_the_worst = np.flip(gain, axis)
            gain = np.flip(np.maximum.accumulate(from_the_worst, axis=axis), axis)
        return np.asarray(gain)

    def _log_likelihood(
        self, refused: np.ndarray, missed: np.ndarray, a: np.ndarray, b: np.ndarray
    ) -> np.ndarray:
        """Log-likelihood of counts, given the shares refused and missed."""
        of_refused = xlogy(refused, a) + xlog1py(self.n_prompts - refused, -a)
        of_missed = xlogy(missed, b) + xlog1py(self.n_audited - missed, -b)
        return np.asarray(of_refused + of_missed)

    def most_missed(self, least: float) -> np.ndarray:
        """For each K the largest X with G >= `least`."""
        # -1 for none; a down-set: of each K it holds the first so many X
        return np.asarray(np.sum(self.statistic >= least, axis=1) - 1)

    def p_value(self, observed: float) -> float:
        """P-value of G: the largest over cells of the boundary."""
        # steps 5 and 6: the worst case lies on the boundary, and a bound of each cell is enough
        if observed == -np.inf:
            return 1.0
        # the chance of a G at least as large, in each cell of the boundary: so many are refused,
        # and of the audited at most as many missed as the down-set holds
        chance_within = self._chance_at_most_missed[:, self.most_missed(observed) + 1]
        of_cells = np.sum(self._chance_refused * chance_within, axis=1)
        return float(min(np.max(of_cells), 1.0))

    def most_missed_certified(self, delta: float) -> np.ndarray:
        """For each K the largest X that certifies at delta."""
        values = np.unique(self.statistic[self.statistic > -np.inf])
        # p-values fall as G rises: bisection finds the smallest G that certifies
        low = 0
        high = len(values)
        while low < high:
            middle = (low + high) // 2
            if self.p_value(values[middle]) <= delta:
                high = middle
            else:
                low = middle + 1
        smallest_certified = values[low] if low < len(values) else np.inf
        return self.most_missed(smallest_certified)


def _edges_of_cells(epsilon: float) -> np.ndarray:
    """Equal cells in the standard deviations of K and X."""
    angles = np.linspace(0.0, np.pi / 2, _CELLS + 1)
    return np.asarray(epsilon * np.sin(angles) ** 2)


@lru_cache(maxsize=2)  # designs of other numbers of audits share it
def _chance_refused(n_prompts: int, most_refused: int, epsilon: float) -> np.ndarray:
    """Chance of each number refused, at the cells' lower ends."""
    a = _edges_of_cells(epsilon)[:-1]
    chances = binom.pmf(np.arange(most_refused + 1), n_prompts, a[:, np.newaxis])
    return np.asarray(chances)


# few are kept, since a design holds some MB of probabilities
_design = lru_cache(maxsize=2)(_Design)


@lru_cache(maxsize=256)
def _most_missed_certified(
    n_prompts: int, n_audited: int, epsilon: float, delta: float
) -> np.ndarray:
    return _design(n_prompts, n_audited, epsilon).most_missed_certified(delta)


@partial(np.vectorize, otypes=[np.float64])
def _p_value(
    n_refused: int, n_prompts: int, n_missed: int, n_audited: int, epsilon: float
) -> float:
    _check_audit_counts(n_refused, n_prompts, n_missed, n_audited)
    design = _design(n_prompts, n_audited, check_level(epsilon, "epsilon"))
    # step 3 of the proof: missing verdicts count as rejections
    missed = n_missed + max(n_audited - (n_prompts - n_refused), 0)
    n_rows, n_columns = design.statistic.shape
    if n_refused >= n_rows or missed >= n_columns:
        return 1.0  # beyond the boundary of the statistic, where G is -inf
    return design.p_value(float(design.statistic[n_refused, missed]))


def two_phase_p_value(
    n_refused: ArrayLike,
    n_prompts: ArrayLike,
    n_missed: ArrayLike,
    n_audited: ArrayLike,
    epsilon: ArrayLike,
) -> Any:
    """P-value of "the risk by people's standard exceeds epsilon".

    A model judges `n_prompts` prompts and finds no witness for `n_refused`; of the others
    `n_audited`, drawn at random, are shown to people, who reject the witness of `n_missed`. The
    test is exact and of one rule that was fixed beforehand; its proof heads this module. The
    arguments broadcast against each other.

    Parameters
    ----------
    n_refused : int or array of int
        Prompts of which the model admits no response, 0 to `n_prompts`.
    n_prompts : int or array of int
        Number of independent prompts.
    n_missed : int or array of int
        Audited prompts whose witness people reject.
    n_audited : int or array of int
        How many were to be audited, 1 to `n_prompts`, fixed before any label was known. Where
        fewer have a witness, all of them are audited, and each missing audit counts as missed
        (not to be counted in `n_missed`).
    epsilon : float or array of float
        Tolerated risk, in (0, 1).

    Examples
    --------
    >>> from sklearn_clm.calibration import binomial_p_value, two_phase_p_value
    >>> round(two_phase_p_value(21, 300, 1, 60, 0.15), 4)
    0.0282
    >>> round(binomial_p_value(5, 60, 0.15), 4)  # 60 verdicts of people alone: 4 + 1 missed
    0.0968
    """
    p_values = _p_value(n_refused, n_prompts, n_missed, n_audited, epsilon)
    return float(p_values) if np.ndim(p_values) == 0 else p_values


def two_phase_smallest_epsilon(
    n_refused: int, n_prompts: int, n_missed: int, n_audited: int, delta: float
) -> float:
    """Smallest tolerated risk that the two-phase test certifies.

    An epsilon with ``two_phase_p_value(..., epsilon) <= delta``, at most 1e-5 above an epsilon
    where the p-value is larger than delta; 1.0 where no smaller one was found.
    """
    level = check_level(delta, "delta")

    def certified(epsilon: float) -> bool:
        p_value = two_phase_p_value(n_refused, n_prompts, n_missed, n_audited, epsilon)
        return bool(p_value <= level)

    return smallest_level(certified)


def two_phase_power(
    refused: ArrayLike,
    missed: ArrayLike,
    n_prompts: int,
    n_audited: int,
    epsilon: float,
    delta: float,
) -> Any:
    """Probability that the two-phase test certifies, exactly.

    Where the model refuses all responses of a prompt with probability `refused`, and people reject
    a witness with probability `missed`, in [0, 1]; numbers and arrays broadcast.
    """
    _check_audit_counts(0, n_prompts, 0, n_audited)
    risk = check_level(epsilon, "epsilon")
    level = check_level(delta, "delta")
    # not yet broadcast: each chance is computed once
    a = np.asarray(refused)[..., np.newaxis]
    b = np.asarray(missed)[..., np.newaxis]
    # exact: a sum over all numbers of refused prompts, each with the most rejections that certify
    most_missed = _most_missed_certified(n_prompts, n_audited, risk, level)
    n_refused = np.arange(len(most_missed))
    # where there are fewer witnesses than audits, the missing ones count as missed
    n_lacking = np.maximum(n_refused - (n_prompts - n_audited), 0)
    chance_refused = binom.pmf(n_refused, n_prompts, a)
    chance_certified = binom.cdf(most_missed - n_lacking, n_audited - n_lacking, b)
    power = np.sum(chance_refused * chance_certified, axis=-1)
    return float(power) if power.ndim == 0 else power


def _check_audit_counts(n_refused: int, n_prompts: int, n_missed: int, n_audited: int) -> None:
    ranges = {
        "n_audited": (n_audited, 1, n_prompts),
        "n_refused": (n_refused, 0, n_prompts),
        "n_missed": (n_missed, 0, min(n_audited, n_prompts - n_refused)),
    }
    for name, (count, low, high) in ranges.items():
        if not isinstance(count, Integral) or not low <= count <= high:
            raise ValueError(
                f"{name} must be an integer from {low} to {high}, got {count!r} instead."
            )
