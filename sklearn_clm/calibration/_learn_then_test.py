"""Learn Then Test with Pareto testing (section 4.3 and appendix E)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np

from sklearn_clm.calibration._binomial import (
    binomial_p_value,
    check_level,
    check_probability,
    mistaken_delta,
    mistaken_epsilon,
    prompts_needed,
    smallest_epsilon,
    warn_caller,
)
from sklearn_clm.calibration._data import (
    CalibrationData,
    RandomState,
    check_data,
    prompt_digests,
    refuse_common_prompts,
    split_of,
)
from sklearn_clm.calibration._fixed_sequence import fixed_sequence_test
from sklearn_clm.calibration._grid import threshold_grid
from sklearn_clm.calibration._pareto import pareto_frontier
from sklearn_clm.calibration._provenance import Provenance
from sklearn_clm.calibration._rule import Configuration
from sklearn_clm.calibration._set_scores import SetScoreLike, get_set_score
from sklearn_clm.calibration._surface import (
    ConfigurationRisks,
    Weights,
    evaluate_configurations,
    sum_over_grid,
)

_SUSPICIOUS = 0.9  # error of all draws, above which references may be wrong


class AchievableEpsilon(NamedTuple):
    """The risks that are neither out of reach nor trivial (appendix C).

    Parameters
    ----------
    low : float
        Share of prompts none of whose K draws is admissible: no set can do better.
    high : float
        Share of prompts whose first draw is not admissible: one draw does as well.

    Examples
    --------
    >>> from sklearn_clm.calibration import AchievableEpsilon
    >>> AchievableEpsilon(low=0.1, high=0.6)
    AchievableEpsilon(low=0.1, high=0.6)
    """

    low: float
    high: float

    @classmethod
    def of_labels(cls, admissible: np.ndarray) -> "AchievableEpsilon":
        """The band of some prompts.

        Parameters
        ----------
        admissible : ndarray of bool, shape (n, K)
            Whether each draw is admissible.

        Returns
        -------
        AchievableEpsilon
        """
        wrong = ~admissible
        return cls(low=float(wrong.all(axis=1).mean()), high=float(wrong[:, 0].mean()))


def doubts_of_admission(error: float) -> str:
    """What to look at where nearly no prompt has an admissible draw; nothing for other errors."""
    if not error > _SUSPICIOUS:
        return ""
    what = "Hardly any prompt has an admissible draw"
    if error == 1.0:
        what = "No draw is admissible for any prompt"
    return (
        f"{what}: check admission and references (that each stands with its own prompt and is of "
        "the type of the responses, and that several are a list)."
    )


@dataclass(frozen=True)
class Frontier:
    """The configurations to be tested, in the order of testing: from the safest.

    The first accepts everything: no rejection, no stop before the largest budget is used up. No
    configuration errs on fewer prompts, so that it passes whenever any other does. The second is
    the same without responses that are nearly equal to earlier ones, where that cost no error on
    the optimisation part: certified next to nothing else, it spares users sets full of copies.

    Parameters
    ----------
    lambdas : ndarray of shape (m, 3)
        Thresholds (similarity, quality, set score).
    k_max : ndarray of int, shape (m,)
        Budgets.
    loss, objective : ndarray of shape (m,)
        Mean loss (ascending) and objective (descending) on the optimisation part.
    seen : ndarray of uint64, shape (n, 1) or (n, 2), or None
        Digests by which the n prompts that were searched are known again, of their scores and of
        the prompts themselves, as far as these are known; None where nothing is.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import Frontier
    >>> frontier = Frontier(
    ...     lambdas=np.array([[np.inf, 0.1, 2.0], [0.8, 0.3, 1.0]]),
    ...     k_max=np.array([20, 20]),
    ...     loss=np.array([0.1, 0.3]),
    ...     objective=np.array([2.5, 1.0]),
    ... )
    >>> len(frontier)
    2
    """

    lambdas: np.ndarray
    k_max: np.ndarray
    loss: np.ndarray
    objective: np.ndarray
    seen: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lambdas)

    def __repr__(self) -> str:
        return f"Frontier(n_configurations={len(self)})"


@dataclass(frozen=True)
class LearnThenTestResult:
    """What Learn Then Test found for one epsilon.

    Parameters
    ----------
    lambda_hat : Configuration or None
        The chosen configuration; None is *null*: no configuration could be certified.
    k_max_hat : int or None
        The budget chosen with it.
    valid_lambdas : ndarray of shape (v, 3)
        The certified configurations, from the safest.
    valid_k_max : ndarray of int, shape (v,)
        Their budgets.
    frontier : Frontier
        The tested configurations.
    n_errors : ndarray of int, shape (m,)
        Errors of each on the calibration part.
    p_values : ndarray of shape (m,)
        Binomial tail p-value of each.
    n_optimization, n_calibration : int
        Numbers of prompts in the two parts.
    epsilon, delta : float
        Tolerated risk, and tolerated probability of exceeding it.
    smallest_epsilon : float
        The smallest epsilon at which these data certify anything; 1.0 if there is none.
    achievable_epsilon : AchievableEpsilon
        Estimated on both parts together.
    risks : ConfigurationRisks
        Losses and costs of the frontier on the calibration part.
    exact : ndarray of bool, shape (m,), or None
        With lazy judging: which p-values are exact. Any other is an upper bound where the
        configuration is certified, a lower bound where it is not, and NaN where it was not
        tested; `n_errors` are the bounds that they come from. None: all of them are exact.
    n_judgements : int or None
        With lazy judging: how many responses of the calibration part were judged.
    provenance : Provenance
        What the data were collected with. Its `precision` belongs to the thresholds:
        :class:`SamplingRule` rounds new scores to it before it compares them.

    Examples
    --------
    See :func:`learn_then_test`.
    """

    lambda_hat: Configuration | None
    k_max_hat: int | None
    valid_lambdas: np.ndarray = field(repr=False)
    valid_k_max: np.ndarray = field(repr=False)
    frontier: Frontier
    n_errors: np.ndarray = field(repr=False)
    p_values: np.ndarray = field(repr=False)
    n_optimization: int
    n_calibration: int
    epsilon: float
    delta: float
    smallest_epsilon: float
    achievable_epsilon: AchievableEpsilon
    risks: ConfigurationRisks = field(repr=False)
    provenance: Provenance = field(default_factory=Provenance)
    exact: np.ndarray | None = field(default=None, repr=False)
    n_judgements: int | None = None

    @property
    def position(self) -> int | None:
        """Position of `lambda_hat` in the frontier; None for null."""
        if self.lambda_hat is None:
            return None
        same = np.all(self.frontier.lambdas == np.asarray(self.lambda_hat), axis=1)
        return int(np.flatnonzero(same & (self.frontier.k_max == self.k_max_hat))[0])


def achievable_epsilon(data: CalibrationData) -> AchievableEpsilon:
    """Estimate the band of epsilon for which calibration is both possible and worthwhile.

    Parameters
    ----------
    data : CalibrationData
        The prompts.

    Returns
    -------
    AchievableEpsilon
        Error of always taking all K draws, and error of always taking the first.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, achievable_epsilon
    >>> achievable_epsilon(CalibrationData([[0.2, 0.9]], np.zeros((1, 2, 2)), [[False, True]]))
    AchievableEpsilon(low=0.0, high=1.0)
    """
    check_data(data)
    return AchievableEpsilon.of_labels(data.admissible)


def learn_then_test(
    data: CalibrationData,
    epsilon: float | Sequence[float],
    delta: float = 0.05,
    *,
    set_score: SetScoreLike = "max",
    random_state: RandomState = None,
    n_lambdas: int = 25,
    optimization_fraction: float = 1 / 3,
    size_weight: float = 0.5,
    excess_weight: float = 0.5,
    draw_weight: float = 0.0,
    select: Literal["objective", "last"] = "objective",
    k_max: int | Sequence[int] | None = None,
    frontier: Frontier | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Any:
    """Choose a configuration whose risk is at most epsilon, with confidence 1 - delta.

    The prompts are split at random. On the optimisation part, the grid of thresholds is laid out
    and searched for the Pareto frontier of loss and objective. On the calibration part, first
    *accept everything*, with near copies and without, and then the frontier is tested, from the
    safest configuration on, until the first test fails; of those that passed, the one of lowest
    objective is chosen, the safer one in a tie. The result is null only if sets of all K draws
    cannot be certified either.

    Parameters
    ----------
    data : CalibrationData
        Independent prompts, identically distributed with those to come.
    epsilon : float or sequence of float
        Tolerated risk, in (0, 1). All of a sequence are answered from one split and one frontier.
    delta : float, default=0.05
        Tolerated probability, over the calibration data, that the risk is exceeded; in (0, 1).
    set_score : str, callable or SetScore, default="max"
        The set function F.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None
        Source of the split, as in :meth:`CalibrationData.split`; None splits the same data always
        alike.
    n_lambdas : int, default=25
        Observed quantiles in each dimension of the grid, besides -inf and +inf.
    optimization_fraction : float, default=1/3
        Share of the optimisation part, in (0, 1).
    size_weight, excess_weight : float, default=0.5
        rho_1 and rho_2 of Eq. 7, >= 0.
    draw_weight : float, default=0.0
        Price of each draw in the objective, >= 0; 0 is Eq. 7.
    select : {"objective", "last"}, default="objective"
        Which of the certified configurations is chosen: the one of lowest objective on the
        calibration part, or the last that was certified, which was the cheapest of them on the
        optimisation part and takes no label of the calibration part beyond the tests.
    k_max : int, sequence of int, or None
        Budget of draws, 1 to ``data.k_max``. With several, the budget is a fourth dimension of
        the grid, chosen together with the thresholds and covered by the same guarantee.
    frontier : Frontier, default=None
        Configurations to test, from :func:`search_frontier` or another result. They must come
        from *other* prompts; all prompts of `data` then test them, none is split off, and
        `optimization_fraction`, `n_lambdas` and `k_max` have no part in it.
    n_jobs, verbose
        As in :func:`risk_surface`.

    Returns
    -------
    LearnThenTestResult, or tuple of them
        One result for each epsilon: a tuple if `epsilon` is a sequence.

    Raises
    ------
    ValueError
        If a parameter is out of range, a frontier was searched on many of these prompts, or the
        calibration part is so small that even without an error no p-value could reach delta (of
        several epsilons: not for the largest either).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, learn_then_test
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((600, 5))
    >>> data = CalibrationData(quality, rng.random((600, 5, 5)), rng.random((600, 5)) < quality)
    >>> result = learn_then_test(data, epsilon=0.3, set_score="max", random_state=0)
    >>> bool(result.p_values[0] <= 0.05), result.k_max_hat
    (True, 5)
    """
    check_data(data)
    score = get_set_score(set_score)
    epsilons = np.atleast_1d(check_probability(epsilon, "epsilon"))
    if epsilons.ndim != 1 or not len(epsilons):
        raise ValueError(f"epsilon must be a number or a sequence of numbers, got {epsilon!r}.")
    check_level(delta, "delta")
    weights = _checked_weights(size_weight, excess_weight, draw_weight)
    if select not in ("objective", "last"):
        raise ValueError(f"select must be 'objective' or 'last', got {select!r} instead.")
    if frontier is None:
        budgets = _check_budgets(k_max, data.k_max)
        data = data.truncate(int(budgets.max()))
        seen, tested = split_of(data, optimization_fraction, random_state)
        _check_size(
            data.n_prompts, len(tested), optimization_fraction, float(epsilons.max()), float(delta)
        )
        calibration = data.take(tested)
        frontier = search_frontier(
            data.take(seen),
            set_score=score,
            n_lambdas=n_lambdas,
            k_max=budgets.tolist(),
            n_jobs=n_jobs,
            verbose=verbose,
            **weights,
        )
    else:
        refuse_frontier(frontier, data)
        n = data.n_prompts
        _check_size(n, n, 0.0, float(epsilons.max()), float(delta))
        calibration = data
    found = frontier_tests(
        calibration,
        frontier,
        epsilons,
        delta,
        set_score=score,
        select=select,
        n_jobs=n_jobs,
        verbose=verbose,
        **weights,
    )
    n_optimization, band = data.n_prompts - calibration.n_prompts, achievable_epsilon(data)
    single = len(epsilons) == 1
    trivial = mistaken_epsilon(float(epsilons[0]), band.high) if single else None
    warn_caller(mistaken_delta(delta), trivial)
    results = [
        replace(one, n_optimization=n_optimization, achievable_epsilon=band) for one in found
    ]
    return results[0] if np.ndim(epsilon) == 0 else tuple(results)


def refuse_frontier(frontier: Frontier, data: CalibrationData) -> None:
    """Refuse a frontier of more draws than there are, or from the prompts that are to test it."""
    largest = int(_check_budgets(frontier.k_max.tolist(), data.k_max).max())
    refuse_common_prompts("frontier", frontier.seen, data.truncate(largest))


def frontier_tests(
    data: CalibrationData,
    frontier: Frontier,
    epsilons: Iterable[float],
    delta: float,
    *,
    set_score: SetScoreLike = "max",
    select: Literal["objective", "last"] = "objective",
    n_jobs: int | None = None,
    verbose: int = 0,
    **weights: Unpack[Weights],
) -> list[LearnThenTestResult]:
    """Tests of a frontier on prompts that are known to be others; one result for each epsilon."""
    risks = evaluate_configurations(
        data.truncate(int(np.max(frontier.k_max))),
        frontier.lambdas,
        set_score=set_score,
        k_max=frontier.k_max,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    objective = risks.objective(**weights)
    n = data.n_prompts
    limit = smallest_epsilon(risks.n_errors[0], n, delta)
    band = achievable_epsilon(data)
    results = []
    for level in epsilons:
        p_values = binomial_p_value(risks.n_errors, n, level)
        rejected = fixed_sequence_test(p_values, delta)
        found = choose_configuration(frontier, rejected, objective, select)
        results.append(
            LearnThenTestResult(
                **found,
                frontier=frontier,
                n_errors=risks.n_errors,
                p_values=p_values,
                n_optimization=0,
                n_calibration=n,
                epsilon=float(level),
                delta=float(delta),
                smallest_epsilon=limit,
                achievable_epsilon=band,
                risks=risks,
                provenance=data.provenance,
            )
        )
    return results


class _Chosen(TypedDict):
    """The fields of a result that say what was certified and chosen."""

    lambda_hat: Configuration | None
    k_max_hat: int | None
    valid_lambdas: np.ndarray
    valid_k_max: np.ndarray


def choose_configuration(
    frontier: Frontier,
    rejected: np.ndarray,
    objective: np.ndarray,
    select: Literal["objective", "last"],
) -> _Chosen:
    """The certified configurations of a frontier, and the one that `select` asks for."""
    valid = np.flatnonzero(rejected)
    best = None
    if len(valid):
        # argmin takes the first of equals, which is the safest
        best = valid[-1 if select == "last" else np.argmin(objective[valid])]
    return {
        "lambda_hat": None if best is None else Configuration(*frontier.lambdas[best].tolist()),
        "k_max_hat": None if best is None else int(frontier.k_max[best]),
        "valid_lambdas": frontier.lambdas[valid],
        "valid_k_max": frontier.k_max[valid],
    }


def _checked_weights(size_weight: float, excess_weight: float, draw_weight: float) -> Weights:
    for name, weight in zip(Weights.__annotations__, (size_weight, excess_weight, draw_weight)):
        if not isinstance(weight, Real) or not 0.0 <= weight < math.inf:
            raise ValueError(f"{name} must be finite and at least 0, got {weight!r}.")
    return {"size_weight": size_weight, "excess_weight": excess_weight, "draw_weight": draw_weight}


def _check_budgets(k_max: int | Sequence[int] | None, available: int) -> np.ndarray:
    """The budgets, ascending and distinct."""
    budgets = np.atleast_1d(available if k_max is None else np.asarray(k_max))
    if budgets.ndim != 1 or not len(budgets) or budgets.dtype.kind not in "iu":
        raise ValueError(f"k_max must be an integer or a sequence of integers, got {k_max!r}.")
    if budgets.min() < 1 or budgets.max() > available:
        raise ValueError(
            f"k_max must lie between 1 and {available}, the number of draws in data, got {k_max!r}."
        )
    return np.unique(budgets)


def _check_size(
    n_prompts: int, n_calibration: int, fraction: float, epsilon: float, delta: float
) -> None:
    needed = prompts_needed(epsilon, delta)
    if n_calibration >= needed:
        return
    total = prompts_needed(epsilon, delta, fraction)
    raise ValueError(
        f"{n_prompts} prompts leave {n_calibration} for calibration, too few for any p-value to "
        f"reach delta={delta:g} at epsilon={epsilon:g}: that takes {needed}, so at least {total} "
        f"prompts in all with optimization_fraction={fraction:g}."
    )


def _without_copies(
    loss: np.ndarray, objective: np.ndarray, n_similarities: int, chosen: np.ndarray
) -> np.ndarray:
    """Position of what accepts everything but near copies, if it errs as rarely and is not chosen.

    Similarity thresholds descend along the first axis of the flattened grid.
    """
    step = len(loss) // n_similarities
    places = np.arange(1, n_similarities) * step
    rejecting = places[objective[places] < objective[0]][:1]
    return rejecting[(loss[rejecting] == loss[0]) & ~np.isin(rejecting, chosen)]


def search_frontier(
    optimization: CalibrationData,
    *,
    set_score: SetScoreLike = "max",
    n_lambdas: int = 25,
    size_weight: float = 0.5,
    excess_weight: float = 0.5,
    draw_weight: float = 0.0,
    k_max: int | Sequence[int] | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Frontier:
    """Search the configurations that are worth testing.

    Parameters
    ----------
    optimization : CalibrationData
        Prompts that will not calibrate. Labels that were estimated shape the search alone.
    set_score, n_lambdas, size_weight, excess_weight, draw_weight, k_max, n_jobs, verbose
        As in :func:`learn_then_test`.

    Returns
    -------
    Frontier
        *Accept everything*, the same without copies, then the Pareto frontier from the safest
        configuration on.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, learn_then_test, search_frontier
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((600, 5))
    >>> data = CalibrationData(quality, rng.random((600, 5, 5)), rng.random((600, 5)) < quality)
    >>> frontier = search_frontier(data.take(np.arange(200)))
    >>> learn_then_test(data.take(np.arange(200, 600)), 0.3, frontier=frontier).n_calibration
    400
    """
    check_data(optimization)
    budgets = _check_budgets(k_max, optimization.k_max)
    weights = _checked_weights(size_weight, excess_weight, draw_weight)
    optimization = optimization.truncate(int(budgets.max()))
    score = get_set_score(set_score)
    l1, l2, l3 = threshold_grid(optimization, set_score=score, n_lambdas=n_lambdas)
    risks = sum_over_grid(optimization, l1, l2, l3, score, budgets, n_jobs, verbose)
    # the frontier keeps the first of several equals, so the most cautious comes first: the least
    # rejection, the largest budget, the latest stop
    loss, objective = (
        np.flip(costs, axis=(0, 2, 3)).ravel() for costs in (risks.loss, risks.objective(**weights))
    )
    chosen = pareto_frontier(np.column_stack((loss, objective)))
    if chosen[0] != 0:
        # position 0 accepts everything. Another may err as rarely on this part, but none does on
        # the calibration part: tested first, it costs no power and spares needless nulls
        chosen = np.concatenate(([0], _without_copies(loss, objective, len(l1), chosen), chosen))
    a, b, k, c = np.unravel_index(chosen, risks.loss.shape)
    return Frontier(
        lambdas=np.column_stack((l1[::-1][a], l2[b], l3[::-1][c])),
        k_max=budgets[::-1][k],
        loss=loss[chosen],
        objective=objective[chosen],
        seen=prompt_digests(optimization),
    )
