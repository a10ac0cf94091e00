"""How many calibration prompts to collect, from a small pilot."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, nbinom
from sklearn.utils import check_scalar

from sklearn_clm._exceptions import MORE_PROMPTS
from sklearn_clm._results import counted
from sklearn_clm.calibration import (
    CalibrationData,
    binomial_p_value,
    clopper_pearson,
    critical_count,
    prompts_needed,
    search_frontier,
    smallest_epsilon,
)
from sklearn_clm.calibration._binomial import check_level
from sklearn_clm.calibration._data import check_data, optimization_size, size_that_leaves
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.calibration._surface import Weights, evaluate_configurations
from sklearn_clm.evaluation._expectations import first_k_errors, mean_interval
from sklearn_clm.evaluation._results import markdown_table
from sklearn_clm.evaluation._trials import choose, largest_budget

if TYPE_CHECKING:
    import pandas as pd

_SIZES = (100, 200, 500, 1000, 2000)
_SMALLEST_PILOT = 10
_LARGEST_PLAN = 200_000
_LARGEST_ADVICE = 10_000
_MOST_BUDGETS = 20
# larger calibration parts hardly choose otherwise
_MOST_SIMULATED = 5_000


@dataclass(frozen=True, eq=False)
class Plan:
    """What calibrations of several sizes can be expected to do.

    Every estimate comes with an interval: an array of shape (s, 2) of its ends.

    Parameters
    ----------
    n_prompts : ndarray of int, shape (s,)
        Prompts to collect, the optimisation part included.
    n_calibration : ndarray of int, shape (s,)
        Of these, prompts in the calibration part.
    smallest_epsilon, smallest_epsilon_interval : ndarray of shape (s,), (s, 2)
        Smallest risk that will be certified. The interval is for the calibration to come, so
        that it holds the chance of its prompts as well as that of the pilot's.
    chance, chance_interval : ndarray of shape (s,), (s, 2)
        Probability that a calibration at `epsilon` certifies anything.
    size, size_interval, draws, draws_interval : ndarray of shape (s,), (s, 2)
        Mean size of the sets, and draws per new prompt, after a calibration at `epsilon`; one that
        certifies nothing counts with all K draws. NaN where the prompts are too few for any test.
    judgements, judgements_interval : ndarray of shape (s,), (s, 2)
        Judge calls of the collection: distinct responses where the pilot knows which responses
        are equal, otherwise all draws.
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
    lowest_by_budget, n_recommended_by_budget : ndarray, tuple of int or None, length k_max
        The same share, and `n_recommended`, for the first 1, 2, ..., k_max draws.
    epsilon, delta, power, confidence : float
        As asked for.
    n_pilot, k_max : int
        Prompts of the pilot, and draws for each.
    share_kept : float
        Of a pilot whose prompts were kept by their weights: the share that was. All numbers of
        prompts are of those that are kept.
    looks : int
        How many calibrations share `delta`.

    Examples
    --------
    See :func:`plan`.
    """

    n_prompts: np.ndarray
    n_calibration: np.ndarray
    smallest_epsilon: np.ndarray
    smallest_epsilon_interval: np.ndarray
    chance: np.ndarray
    chance_interval: np.ndarray
    size: np.ndarray
    size_interval: np.ndarray
    draws: np.ndarray
    draws_interval: np.ndarray
    judgements: np.ndarray
    judgements_interval: np.ndarray
    n_recommended: int | None
    n_recommended_cautious: int | None
    epsilon_of_largest: float
    epsilon_of_largest_cautious: float
    lowest: float
    lowest_interval: tuple[float, float]
    lowest_by_budget: np.ndarray
    n_recommended_by_budget: tuple[int | None, ...]
    epsilon: float
    delta: float
    power: float
    confidence: float
    n_pilot: int
    k_max: int
    share_kept: float = 1.0
    looks: int = 1

    def _columns(self) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
        return {
            "smallest_epsilon": (self.smallest_epsilon, self.smallest_epsilon_interval, ".3f"),
            "chance": (self.chance, self.chance_interval, ".2f"),
            "size": (self.size, self.size_interval, ".2f"),
            "draws": (self.draws, self.draws_interval, ".2f"),
            "judgements": (self.judgements, self.judgements_interval, ",.0f"),
        }

    def to_frame(self) -> "pd.DataFrame":
        """The estimates with the ends of their intervals, one row for each number of prompts.

        Returns
        -------
        pandas.DataFrame
            The columns are called as the parameters, the ends with ``_low`` and ``_high``.
        """
        import pandas as pd

        columns = {"n_prompts": self.n_prompts, "n_calibration": self.n_calibration}
        for name, (values, interval, _) in self._columns().items():
            columns |= {name: values, f"{name}_low": interval[:, 0], f"{name}_high": interval[:, 1]}
        return pd.DataFrame(columns)

    def to_markdown(self) -> str:
        """The plan as text with tables in Markdown.

        Returns
        -------
        str
            The text.
        """
        low, high = self.lowest_interval
        parts = [
            f"Plan from a pilot of {counted(self.n_pilot, 'prompt')} with "
            f"{counted(self.k_max, 'draw')} each: epsilon = {self.epsilon:g}, delta = "
            f"{self.delta:g}.",
            f"Share of prompts without any admissible draw: {self.lowest:.3f} [{low:.3f}, "
            f"{high:.3f}]. No number of prompts certifies an epsilon below it. With probability "
            f"{self.power:g} a calibration succeeds with:",
            markdown_table(self._needs()).rstrip("\n"),
        ]
        if self.n_recommended is None:
            parts.append(
                "Epsilon is below the pilot's share of errors, or too near to it: raise epsilon, "
                "take more draws, a better model or another admission."
            )
        elif self.n_recommended_cautious is None:
            parts.append("The pilot does not tell: collect a larger one, or raise epsilon.")
        if self.looks > 1:
            parts.append(
                f"For {self.looks} looks at growing data, each a calibration with delta = "
                f"{self.delta / self.looks:.6g}; all numbers here are of one look."
            )
        else:
            parts.append(MORE_PROMPTS)
        if self.share_kept < 1.0:
            parts.append(
                "The pilot's prompts are those that their weights kept, "
                f"{100 * self.share_kept:.3g} % of all. The numbers of prompts here are of kept "
                f"ones: collect {1 / self.share_kept:.3g} times as many."
            )
        parts.append(markdown_table(self._by_size()).rstrip("\n"))
        parts.append(
            f"In brackets: {100 * self.confidence:g} % intervals. Set size and draws are per new "
            f"prompt after a calibration at epsilon = {self.epsilon:g}, where one that certifies "
            "nothing gives all draws, and for thresholds, not for an ExitPolicy. The rest holds "
            'for both, with guarantee="pac".'
        )
        if self.k_max > 1:
            parts.append(
                "What each number of draws needs, at the pilot's share of errors. Choose k_max by "
                "it only if the pilot does not calibrate."
            )
            parts.append(markdown_table(self._by_budget()).rstrip("\n"))
        return "\n\n".join(parts) + "\n"

    def _needs(self) -> list[list[str]]:
        """How many prompts this epsilon takes, and which epsilon the largest number certifies."""
        end = self.lowest_interval[1]
        here, there = self.n_recommended, self.n_recommended_cautious
        least, at_end = self.epsilon_of_largest, self.epsilon_of_largest_cautious
        of_largest = f"epsilon of {self.n_prompts[-1]} prompts"
        return [
            ["share of errors", f"prompts for epsilon = {self.epsilon:g}", of_largest],
            [f"{self.lowest:.3f}, the pilot's", self._count(here, self.lowest), f"{least:.3f}"],
            [f"{end:.3f}, its upper limit", self._count(there, end), f"{at_end:.3f}"],
        ]

    def _by_size(self) -> list[list[str]]:
        """What each number of prompts brings."""
        header = ["prompts", "calibration part", "smallest epsilon", f"chance of {self.epsilon:g}"]
        rows = [[*header, "set size", "draws", "judge calls"]]
        for i, (n, m) in enumerate(zip(self.n_prompts, self.n_calibration)):
            cells = [
                "too few prompts"
                if np.isnan(values[i])
                else f"{values[i]:{form}} [{interval[i, 0]:{form}}, {interval[i, 1]:{form}}]"
                for values, interval, form in self._columns().values()
            ]
            rows.append([str(n), str(m), *cells])
        return rows

    def _by_budget(self) -> list[list[str]]:
        """What each number of draws needs."""
        rows = [["k_max", "without any admissible draw", f"prompts for epsilon = {self.epsilon:g}"]]
        shown = np.linspace(1, self.k_max, min(self.k_max, _MOST_BUDGETS)).round().astype(int)
        for k in shown.tolist():
            share, n = self.lowest_by_budget[k - 1], self.n_recommended_by_budget[k - 1]
            rows.append([str(k), f"{share:.3f}", self._count(n, share)])
        return rows

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
    sizes: Sequence[int] | None = None,
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
    the one to come, so that these numbers tend to be pessimistic. They are for
    ``policy="thresholds"``. What can be certified is the same for an
    :class:`~sklearn_clm.policies.ExitPolicy`; its set sizes and draws are not estimated.

    The number of prompts is decided before calibration. Who collects more after a failure, until a
    calibration succeeds, is misled more often than `delta` says. Where that shall be possible, fix
    the number of `looks`, and calibrate at each of them with ``delta / looks``.

    Parameters
    ----------
    data : CalibrationData
        The pilot: some 50 to 100 independent prompts, distributed like those to come. They must
        not be calibrated with afterwards if they decided on `epsilon` or `k_max`.
    epsilon : float
        The risk to certify, in (0, 1).
    delta : float, default=0.05
        Level of the tests, in (0, 1).
    sizes : sequence of int, default=None
        Numbers of prompts to consider, the optimisation part included. None: 100 to 2000.
    set_score, k_max, optimization_fraction, n_lambdas
        As in :func:`sklearn_clm.calibration.learn_then_test`.
    size_weight, excess_weight, draw_weight
        Weights of the objective, likewise.
    power : float, default=0.9
        Probability of success of the recommended number of prompts, in (0, 1).
    confidence : float, default=0.95
        Confidence of all intervals, in (0, 1).
    n_trials : int, default=40
        Simulations of each size, at least 2.
    random_state : int or None, default=None
        Seed of the simulations.
    looks : int, default=1
        How many calibrations, of more and more prompts, share `delta`, at least 1. The plan is for
        each of them at level ``delta / looks``.

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
    >>> expected.smallest_epsilon.round(2), expected.n_recommended
    (array([0.09, 0.05]), 45)
    """
    check_data(data)
    for name, value in {
        "epsilon": epsilon,
        "delta": delta,
        "power": power,
        "confidence": confidence,
        "optimization_fraction": optimization_fraction,
    }.items():
        check_level(value, name)
    n = data.n_prompts
    if n < _SMALLEST_PILOT:
        raise ValueError(
            f"data must hold at least {_SMALLEST_PILOT} prompts for a plan, better 50 to 100, got "
            f"{n} instead."
        )
    check_scalar(n_trials, "n_trials", Integral, min_val=2)
    check_scalar(looks, "looks", Integral, min_val=1)
    if random_state is not None:
        check_scalar(random_state, "random_state", Integral, min_val=0)
    planned = _check_sizes(_SIZES if sizes is None else sizes)
    largest = largest_budget(k_max, data.k_max)
    parts = np.array([int(n) - optimization_size(int(n), optimization_fraction) for n in planned])
    errors = first_k_errors(data.admissible[:, :largest])
    n_errors, tail = int(errors[-1]), (1.0 - confidence) / 4.0
    share, level = n_errors / n, delta / looks
    # half of the allowed error for the pilot's share, half for the calibration to come
    low, high = clopper_pearson(n_errors, n, 1.0 - 2.0 * tail)
    fewest, most = binom.ppf(tail, parts, low), binom.ppf(1.0 - tail, parts, high)
    ends = [smallest_epsilon(count.astype(np.int64), parts, level) for count in (fewest, most)]
    middle = -(-parts * n_errors // n)
    interval = clopper_pearson(n_errors, n, confidence)
    recommended = partial(
        _recommended,
        epsilon=epsilon,
        delta=level,
        power=power,
        fraction=optimization_fraction,
        most=max(_LARGEST_ADVICE, int(planned[-1])),
    )
    by_budget = tuple(recommended(share) for share in (errors / n).tolist())
    certified = partial(_certified, n=int(parts[-1]), delta=level, power=power)
    enough = parts >= prompts_needed(epsilon, level)
    weights: Weights = {
        "size_weight": size_weight,
        "excess_weight": excess_weight,
        "draw_weight": draw_weight,
    }
    find = partial(search_frontier, k_max=k_max, n_lambdas=n_lambdas, set_score=set_score)
    simulated = np.minimum(parts[enough], _MOST_SIMULATED)
    critical = np.atleast_1d(critical_count(simulated, epsilon, level))
    rng = np.random.default_rng(random_state)
    means = np.full((n_trials, len(parts), 2), np.nan)
    for trial in means:
        # a pilot is small: the frontier needs most of it to resemble the one to come
        optimization, rest = data.truncate(largest).split(2 / 3, rng)
        frontier = find(optimization, **weights)
        for i, row in enumerate(np.flatnonzero(enough)):
            sample = rest.take(rng.integers(rest.n_prompts, size=int(simulated[i])))
            trial[row] = _simulate(sample, frontier, critical[[i]], set_score, weights)
    bounds = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    size, draws = means.mean(axis=0).T
    own_text = data.first[:, :largest] == np.arange(largest)
    calls = np.array(mean_interval(own_text.sum(axis=1).astype(float), confidence))
    return Plan(
        n_prompts=planned,
        n_calibration=parts,
        smallest_epsilon=np.asarray(smallest_epsilon(middle, parts, level)),
        smallest_epsilon_interval=np.column_stack(ends),
        chance=_chance(parts, share, epsilon, level),
        chance_interval=np.column_stack(
            [_chance(parts, end, epsilon, level) for end in interval[::-1]]
        ),
        size=size,
        size_interval=bounds[:, :, 0].T,
        draws=draws,
        draws_interval=bounds[:, :, 1].T,
        judgements=planned * calls[0],
        judgements_interval=np.outer(planned, calls[1:]),
        n_recommended=by_budget[-1],
        n_recommended_cautious=recommended(float(interval[1])),
        epsilon_of_largest=certified(share),
        epsilon_of_largest_cautious=certified(float(interval[1])),
        lowest=share,
        lowest_interval=(float(interval[0]), float(interval[1])),
        lowest_by_budget=errors / n,
        n_recommended_by_budget=by_budget,
        epsilon=float(epsilon),
        delta=float(delta),
        power=float(power),
        confidence=float(confidence),
        n_pilot=n,
        k_max=largest,
        share_kept=_share_kept(data),
        looks=int(looks),
    )


def _share_kept(data: CalibrationData) -> float:
    """The share of prompts that their weights let into the data."""
    if data.provenance.shift is None:
        return 1.0
    shift = json.loads(data.provenance.shift)
    return float(shift["n_kept"] / shift["n_offered"])


def _simulate(
    data: CalibrationData,
    frontier: Frontier,
    critical: np.ndarray,
    set_score: SetScoreLike,
    weights: Weights,
) -> tuple[float, float]:
    """Mean set size and draws after a calibration; of all draws where it certifies nothing."""
    lambdas, budgets = frontier.lambdas, frontier.k_max
    risks = evaluate_configurations(data, lambdas, set_score=set_score, k_max=budgets)
    (best,) = choose(risks.n_errors, risks.objective(**weights), critical)
    if best < 0:
        return data.k_max, data.k_max
    return risks.size[best], risks.samples[best]


def _check_sizes(sizes: Sequence[int]) -> np.ndarray:
    planned = np.asarray(sizes)
    if planned.ndim != 1 or not planned.size or planned.dtype.kind not in "iu":
        raise ValueError(f"sizes must be a sequence of integers, got {sizes!r} instead.")
    if planned.min() < 2 or planned.max() > _LARGEST_PLAN:
        raise ValueError(
            f"sizes must lie between 2 and {_LARGEST_PLAN}, got {list(sizes)!r} instead."
        )
    return np.unique(planned)


def _chance(n: np.ndarray, share: ArrayLike, epsilon: float, delta: float) -> np.ndarray:
    """Probability that calibration parts of these sizes certify anything."""
    critical = np.asarray(critical_count(n, epsilon, delta))
    # a share of 0 or 1 is no parameter of the binomial test
    inside = np.clip(np.asarray(share, dtype=np.float64), 1e-12, 1.0 - 1e-12)
    return np.where(critical < 0, 0.0, binomial_p_value(np.maximum(critical, 0), n, inside))


def _recommended(
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
    total = size_that_leaves(part, fraction)
    return total if total <= most else None


def _certified(share: float, n: int, delta: float, power: float) -> float:
    """Smallest epsilon that n calibration prompts certify with probability `power`."""
    return float(smallest_epsilon(int(binom.ppf(power, n, share)), n, delta))
