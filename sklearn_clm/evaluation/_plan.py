"""How many calibration prompts to collect, and what to expect of so many."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import binom, nbinom
from sklearn.utils import check_scalar

from sklearn_clm._exceptions import DECIDE_BEFOREHAND
from sklearn_clm._results import counted
from sklearn_clm.calibration import (
    CalibrationData,
    clopper_pearson,
    critical_count,
    prompts_needed,
    search_frontier,
    smallest_epsilon,
)
from sklearn_clm.calibration._binomial import check_level
from sklearn_clm.calibration._data import check_data, optimization_size, size_that_leaves
from sklearn_clm.calibration._search import check_budgets
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.calibration._surface import Weights, evaluate_configurations
from sklearn_clm.evaluation._results import markdown_table
from sklearn_clm.evaluation._trials import choose
from sklearn_clm.policies._shift import Shift

if TYPE_CHECKING:
    import pandas as pd

_SIZES = (100, 200, 500, 1000, 2000)
_LARGEST_ADVICE = 10_000
# larger calibration parts hardly choose otherwise
_MOST_SIMULATED = 5_000
_FORMS = {"smallest_epsilon": ".3f", "chance": ".2f", "size": ".2f", "draws": ".2f"}


@dataclass(frozen=True, eq=False)
class Plan:
    """What calibrations of several sizes can be expected to do.

    Parameters
    ----------
    n_prompts : ndarray of int, shape (s,)
        Prompts to collect, the optimisation part included.
    n_calibration : ndarray of int, shape (s,)
        Of these, prompts in the calibration part.
    estimates : dict of str to ndarray of shape (s, 3)
        Estimates with both ends of their intervals; the columns of :meth:`to_frame`.

        - "smallest_epsilon": smallest risk that will be certified. The interval is for the
          calibration to come: it holds the chance of its prompts as well as that of the pilot's.
        - "chance": probability that a calibration at `epsilon` certifies anything.
        - "size", "draws": mean size of the sets, and draws per new prompt, after a calibration at
          `epsilon`; one that certifies nothing counts with all K draws. NaN where the prompts are
          too few for any test.
        - "judgements": judge calls of the collection: distinct responses where the pilot knows
          which responses are equal, otherwise all draws.
    n_recommended, n_recommended_cautious : int or None
        With this number of prompts, and any larger one, a calibration at `epsilon` succeeds with
        probability `power`, if the share of errors is that of the pilot, and if it is the upper end
        of its interval; None if there is none up to 10,000 or the largest of `n_prompts`. Some
        smaller numbers do as well: the chance falls until the test allows one error more.
    epsilon_of_largest, epsilon_of_largest_cautious : float
        Smallest epsilon at which the largest of `n_prompts` succeeds with probability `power`,
        for the same two shares; 1 if there is none.
    lowest, lowest_interval : float, tuple of float
        Share of prompts without any admissible draw: no epsilon below it can be certified.
    epsilon, delta, power, confidence, looks : float, int
        As asked for.
    n_pilot, k_max : int
        Prompts of the pilot, and draws for each.
    share_kept : float
        Of a pilot whose prompts were kept by their weights: the share that was. All numbers of
        prompts are of those that are kept.

    Examples
    --------
    See :func:`plan`.
    """

    n_prompts: np.ndarray
    n_calibration: np.ndarray
    estimates: dict[str, np.ndarray]
    n_recommended: int | None
    n_recommended_cautious: int | None
    epsilon_of_largest: float
    epsilon_of_largest_cautious: float
    lowest: float
    lowest_interval: tuple[float, float]
    epsilon: float
    delta: float
    power: float
    confidence: float
    looks: int
    n_pilot: int
    k_max: int
    share_kept: float

    def to_frame(self) -> "pd.DataFrame":
        """The estimates, one row for each number of prompts; intervals end in _low and _high."""
        import pandas as pd

        columns = {"n_prompts": self.n_prompts, "n_calibration": self.n_calibration}
        for name, values in self.estimates.items():
            columns |= dict(zip((name, f"{name}_low", f"{name}_high"), values.T))
        return pd.DataFrame(columns)

    def to_markdown(self) -> str:
        """The plan as text with tables in Markdown."""
        low, high = self.lowest_interval
        parts = [
            f"Plan from a pilot of {counted(self.n_pilot, 'prompt')} with "
            f"{counted(self.k_max, 'draw')} each: epsilon = {self.epsilon:g}, delta = "
            f"{self.delta:g}.",
            f"Share of prompts without any admissible draw: {self.lowest:.3f} [{low:.3f}, "
            f"{high:.3f}]. No number of prompts certifies an epsilon below it. With probability "
            f"{self.power:g} a calibration succeeds with:",
            self._needs(),
        ]
        if self.n_recommended is None:
            parts.append(
                "Epsilon is below the pilot's share of errors, or too near to it: raise epsilon, "
                "take more draws, a better model or another admission."
            )
        elif self.n_recommended_cautious is None:
            parts.append("The pilot does not tell: collect a larger one, or raise epsilon.")
        else:
            parts.append(
                f"Collect {self.n_recommended_cautious} prompts, the number of the second row. "
                f"That of the first is enough if a pilot of {self.n_pilot} happens to have the "
                "true share of errors."
            )
        if self.looks > 1:
            parts.append(
                f"For {self.looks} looks at growing data, each a calibration with delta = "
                f"{self.delta / self.looks:.6g}; all numbers here are of one look."
            )
        else:
            parts.append(DECIDE_BEFOREHAND)
        if self.share_kept < 1.0:
            parts.append(
                "The pilot's prompts are those that their weights kept, "
                f"{100 * self.share_kept:.3g} % of all. The numbers of prompts here are of kept "
                f"ones: collect {1 / self.share_kept:.3g} times as many."
            )
        parts += [
            self._by_size(),
            f"In brackets: {100 * self.confidence:g} % intervals. Set size and draws are per new "
            f"prompt after a calibration at epsilon = {self.epsilon:g}, where one that certifies "
            "nothing gives all draws, and for thresholds, not for an ExitPolicy. The rest holds "
            'for both, with guarantee="pac".',
        ]
        return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"

    def _needs(self) -> str:
        """How many prompts this epsilon takes, and which epsilon the largest number certifies."""
        end = self.lowest_interval[1]
        n, cautious = self.n_recommended, self.n_recommended_cautious
        least, at_end = self.epsilon_of_largest, self.epsilon_of_largest_cautious
        of_largest = f"epsilon of {self.n_prompts[-1]} prompts"
        return markdown_table(
            [
                ["share of errors", f"prompts for epsilon = {self.epsilon:g}", of_largest],
                [f"{self.lowest:.3f}, the pilot's", self._count(n, self.lowest), f"{least:.3f}"],
                [f"{end:.3f}, its upper limit", self._count(cautious, end), f"{at_end:.3f}"],
            ]
        )

    def _by_size(self) -> str:
        """What each number of prompts brings."""
        header = ["prompts", "calibration part", "smallest epsilon", f"chance of {self.epsilon:g}"]
        rows = [[*header, "set size", "draws", "judge calls"]]
        for i, (n, m) in enumerate(zip(self.n_prompts, self.n_calibration)):
            rows.append([str(n), str(m)])
            for name, values in self.estimates.items():
                shown = [f"{value:{_FORMS.get(name, ',.0f')}}" for value in values[i]]
                cell = f"{shown[0]} [{shown[1]}, {shown[2]}]"
                rows[-1].append("too few prompts" if np.isnan(values[i, 0]) else cell)
        return markdown_table(rows)

    def _count(self, n: int | None, share: float) -> str:
        """Prompts for epsilon at a share of errors."""
        if n is not None:
            return str(n)
        most = max(_LARGEST_ADVICE, int(self.n_prompts[-1]))
        return "none" if share >= self.epsilon else f"more than {most:,}"

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def plan(
    data: CalibrationData,
    epsilon: float,
    delta: float = 0.05,
    *,
    sizes: Sequence[int] = _SIZES,
    set_score: SetScoreLike = "max",
    k_max: int | Sequence[int] | None = None,
    optimization_fraction: float = 1 / 3,
    n_lambdas: int = 25,
    size_weight: float = 0.5,
    excess_weight: float = 0.5,
    draw_weight: float = 0.0,
    power: float = 0.9,
    confidence: float = 0.95,
    n_trials: int = 40,
    random_state: int | None = None,
    looks: int = 1,
) -> Plan:
    """Estimate from a pilot what larger calibrations will do.

    What can be certified depends on the errors of *accept everything*, whose share among the
    pilot's prompts has an exact interval. With half of the allowed error for that share, and half
    for the calibration to come, the interval of the smallest epsilon follows without simulation.

    Set sizes and draws are simulated: in each trial a random two thirds of the pilot find the
    frontier, the others are resampled to the planned size, and Learn Then Test chooses among the
    frontier. The intervals hold the central trials. A frontier of so few prompts is coarser than
    the one to come, so that these numbers tend to be pessimistic. They are for thresholds. What can
    be certified is the same for an :class:`~sklearn_clm.policies.ExitPolicy`; its set sizes and
    draws are not estimated.

    Parameters
    ----------
    data : CalibrationData
        The pilot: some 50 to 100 independent prompts, distributed like those to come. They must
        not be calibrated with afterwards if they decided on `epsilon` or `k_max`.
    epsilon : float
        The risk to certify, in (0, 1).
    delta : float, default=0.05
        Level of the tests, in (0, 1).
    sizes : sequence of int, default=(100, 200, 500, 1000, 2000)
        Numbers of prompts to consider, the optimisation part included.
    set_score, k_max, optimization_fraction, n_lambdas, size_weight, excess_weight, draw_weight
        As in :func:`sklearn_clm.calibration.learn_then_test`.
    power : float, default=0.9
        Probability of success of the recommended number of prompts, in (0, 1).
    confidence : float, default=0.95
        Confidence of all intervals, in (0, 1).
    n_trials : int, default=40
        Simulations of each size, at least 2.
    random_state : int or None, default=None
        Seed of the simulations.
    looks : int, default=1
        How many calibrations, of more and more prompts, share `delta`, at least 1, as is decided
        beforehand. The plan is for each of them, at level ``delta / looks``.

    Returns
    -------
    Plan
        One row for each size.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData
    >>> from sklearn_clm.evaluation import plan
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((80, 5))
    >>> pilot = CalibrationData(quality, rng.random((80, 5, 5)), rng.random((80, 5)) < quality)
    >>> expected = plan(pilot, epsilon=0.2, sizes=[100, 400], random_state=0)
    >>> expected.to_frame()["smallest_epsilon"].round(2).tolist(), expected.n_recommended
    ([0.09, 0.05], 45)
    """
    check_data(data)
    fraction, levels = optimization_fraction, {"epsilon": epsilon, "delta": delta, "power": power}
    levels |= {"confidence": confidence, "optimization_fraction": fraction}
    for name, value in levels.items():
        check_level(value, name)
    check_scalar(n_trials, "n_trials", Integral, min_val=2)
    check_scalar(looks, "looks", Integral, min_val=1)
    if random_state is not None:
        check_scalar(random_state, "random_state", Integral, min_val=0)
    planned = np.unique(np.asarray(sizes))
    if not planned.size or planned.dtype.kind not in "iu" or planned[0] < 2:
        raise ValueError(f"sizes must be integers of at least 2, got {sizes!r} instead.")
    n, pilot = data.n_prompts, data.truncate(int(check_budgets(k_max, data.k_max).max()))
    parts = np.array([size - optimization_size(size, fraction) for size in planned.tolist()])
    n_errors, level = int(first_k_errors(pilot.admissible)[-1]), delta / looks
    low, high = clopper_pearson(n_errors, n, confidence)
    shares = np.array([n_errors / n, low, high])
    most = max(_LARGEST_ADVICE, int(planned[-1]))
    recommended, cautious = (
        prompts_to_collect(share, epsilon, level, power, fraction, most)
        for share in shares[[0, 2]].tolist()
    )
    most_errors = binom.ppf(power, parts[-1], shares[[0, 2]]).astype(np.int64)
    certified, certified_cautious = smallest_epsilon(most_errors, parts[-1], level).tolist()
    costs = np.full((2, len(parts), 3), np.nan)
    enough = parts >= prompts_needed(epsilon, level)
    simulated = np.minimum(parts[enough], _MOST_SIMULATED)
    costs[:, enough] = _simulated_costs(
        pilot,
        simulated,
        np.atleast_1d(critical_count(simulated, epsilon, level)),
        {"size_weight": size_weight, "excess_weight": excess_weight, "draw_weight": draw_weight},
        {"k_max": k_max, "n_lambdas": n_lambdas, "set_score": set_score},
        n_trials,
        confidence,
        random_state,
    )
    shift = Shift.of(data.provenance)
    own_text = pilot.first == np.arange(pilot.k_max)
    calls = mean_interval(own_text.sum(axis=1).astype(float), confidence)
    return Plan(
        n_prompts=planned,
        n_calibration=parts,
        estimates={
            "smallest_epsilon": _smallest_epsilons(n_errors, n, parts, level, confidence),
            # the more errors, the smaller the chance
            "chance": chance_to_certify(parts[:, np.newaxis], shares[[0, 2, 1]], epsilon, level),
            "size": costs[0],
            "draws": costs[1],
            "judgements": np.outer(planned, calls),
        },
        n_recommended=recommended,
        n_recommended_cautious=cautious,
        epsilon_of_largest=certified,
        epsilon_of_largest_cautious=certified_cautious,
        lowest=n_errors / n,
        lowest_interval=(float(low), float(high)),
        epsilon=float(epsilon),
        delta=float(delta),
        power=float(power),
        confidence=float(confidence),
        looks=int(looks),
        n_pilot=n,
        k_max=pilot.k_max,
        share_kept=1.0 if shift is None else shift.n_kept / shift.n_offered,
    )


def _smallest_epsilons(
    n_errors: int, n: int, parts: np.ndarray, delta: float, confidence: float
) -> np.ndarray:
    """Smallest epsilon of each calibration part, and an interval for the one to come."""
    # half of the allowed error for the pilot's share, half for the calibration to come
    tail = (1.0 - confidence) / 4.0
    low, high = clopper_pearson(n_errors, n, 1.0 - 2.0 * tail)
    fewest, most = binom.ppf(tail, parts, low), binom.ppf(1.0 - tail, parts, high)
    ends = [smallest_epsilon(count.astype(np.int64), parts, delta) for count in (fewest, most)]
    return np.column_stack([smallest_epsilons(n_errors, n, parts, delta), *ends])


def _simulated_costs(
    pilot: CalibrationData,
    sizes: np.ndarray,
    critical: np.ndarray,
    weights: Weights,
    search: dict[str, Any],
    n_trials: int,
    confidence: float,
    random_state: int | None,
) -> np.ndarray:
    """Mean set size and draws with the ends of their intervals, shape (2, s, 3)."""
    rng = np.random.default_rng(random_state)
    means = np.empty((n_trials, len(sizes), 2))
    for trial in means:
        # a pilot is small: the frontier needs most of it to resemble the one to come
        optimization, rest = pilot.split(2 / 3, rng)
        path = search_frontier(optimization, **search, **weights)
        for i, size in enumerate(sizes.tolist()):
            sample = rest.take(rng.integers(rest.n_prompts, size=size))
            risks = evaluate_configurations(
                sample, path.lambdas, set_score=search["set_score"], k_max=path.k_max
            )
            (best,) = choose(risks.n_errors, risks.objective(**weights), critical[[i]])
            # all draws where nothing is certified
            trial[i] = pilot.k_max if best < 0 else (risks.size[best], risks.samples[best])
    ends = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.moveaxis(np.stack([means.mean(axis=0), *ends], axis=-1), 1, 0)


def prompts_to_collect(
    share: float, epsilon: float, delta: float, power: float, fraction: float, most: int
) -> int | None:
    """Prompts from which on the chance of success is at least `power`; None above `most`."""
    if share >= epsilon:
        return None
    # the smallest calibration parts with which a test may reject at 0, 1, ... errors: one more
    # prompt than it takes to err that often, with probability 1 - delta
    allowed = np.arange(int(2 * most * epsilon) + 2)
    parts = (allowed + 1 + nbinom.ppf(1.0 - delta, allowed + 1, epsilon)).astype(np.int64)
    # with as many errors allowed, each further prompt lowers the chance
    lowest = binom.cdf(allowed[:-1], parts[1:] - 1, share)
    fails = np.flatnonzero(lowest < power)
    part = int(parts[fails[-1] + 1 if len(fails) else 0])
    total = size_that_leaves(part, fraction) if fraction else part
    return total if total <= most else None


def chance_to_certify(n: ArrayLike, share: ArrayLike, epsilon: float, delta: float) -> np.ndarray:
    """Probability that n calibration prompts with this share of errors certify anything."""
    return np.asarray(binom.cdf(critical_count(np.asarray(n), epsilon, delta), n, share))


def first_k_errors(admissible: ArrayLike) -> np.ndarray:
    """Counts of prompts none of whose first 1, 2, ... draws is admissible."""
    admitted = np.logical_or.accumulate(np.asarray(admissible, dtype=bool), axis=1)
    return np.count_nonzero(~admitted, axis=0)


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean of independent values, and the ends of its normal interval."""
    mean = float(np.mean(values))
    half = float(ndtri(0.5 + confidence / 2) * np.std(values) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def smallest_epsilons(
    n_errors: int, n: int, sizes: Sequence[int] | np.ndarray, delta: float
) -> np.ndarray:
    """Smallest epsilon that calibration parts of other sizes certify at the same error rate.

    Parameters
    ----------
    n_errors, n : int
        Errors of accepting every draw, among n prompts.
    sizes : sequence of int
        Prompts in the calibration part.
    delta : float
        Level of the tests, in (0, 1).

    Returns
    -------
    ndarray of float
        One epsilon for each size; errors are rounded up to whole prompts.

    Examples
    --------
    >>> from sklearn_clm.evaluation import smallest_epsilons
    >>> smallest_epsilons(30, 300, [100, 300, 3000], 0.05).round(3)
    array([0.164, 0.133, 0.109])
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    # in integers: a rounded share would at times count one error more
    return np.asarray(smallest_epsilon(-(-sizes * n_errors // n), sizes, delta))


def chance_of_null(n_errors: int, n: int, epsilon: float, delta: float) -> float:
    """Probability that another calibration of this size certifies nothing.

    Parameters
    ----------
    n_errors, n : int
        Errors of the safest configuration, among n calibration prompts.
    epsilon, delta : float
        Tolerated risk and level of the tests, in (0, 1).

    Returns
    -------
    float
        The probability, if the share of errors is what was observed.

    Examples
    --------
    >>> from sklearn_clm.evaluation import chance_of_null
    >>> round(chance_of_null(30, 300, 0.15, 0.05), 3)
    0.191
    """
    return 1.0 - float(chance_to_certify(n, n_errors / n, epsilon, delta))
