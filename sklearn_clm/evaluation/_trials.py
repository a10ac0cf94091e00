"""The paper's protocol of repeated random splits for response sets (section 5, Appendix F)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from tqdm.auto import tqdm

from sklearn_clm.calibration import (
    CalibrationData,
    LearnThenTestResult,
    critical_count,
    learn_then_test,
)
from sklearn_clm.calibration._binomial import check_level
from sklearn_clm.calibration._data import check_data, split_prompts
from sklearn_clm.calibration._set_scores import SetScore, get_set_score
from sklearn_clm.calibration._surface import evaluate_configurations
from sklearn_clm.evaluation._results import TrialResults

Method = str | Callable[..., float] | SetScore
Methods = Method | Sequence[Method] | Mapping[str, Method]
RandomState = int | np.random.RandomState | None


def run_trials(
    data: CalibrationData,
    methods: Methods = ("first_k", "first_k_reject", "max", "sum"),
    epsilons: ArrayLike | None = None,
    *,
    delta: float = 0.05,
    n_trials: int = 100,
    frontier_fraction: float = 0.2,
    testing_fraction: float = 0.4,
    n_lambdas: int = 25,
    size_weight: float = 0.5,
    excess_weight: float = 0.5,
    draw_weight: float = 0.0,
    k_max: int | Sequence[int] | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> TrialResults:
    """Repeat calibration and test over random splits, for several set scores and all epsilons.

    Each trial splits the prompts at random into a part that finds the Pareto frontier, a part
    that tests it, and a part that measures the chosen configurations. All methods see the same
    splits, and all epsilons share one frontier, so that one trial takes little longer for 101
    epsilons than for one.

    A null trial abstains: no configuration is valid, and its measures are NaN. As epsilon grows,
    a trial that is null becomes achievable, and at last trivial: always returning the first
    generation would satisfy epsilon, too.

    Parameters
    ----------
    data : CalibrationData
        Quality, similarity and admissibility of the draws of all prompts.
    methods : str or callable, sequence of these, or dict of name to these
        Set scores F, as :func:`sklearn_clm.scoring.get_set_score` takes them.
    epsilons : array-like of shape (n_levels,), optional
        Levels in [0, 1], strictly increasing. Default: 101 from 0 to 1.
    delta : float in (0, 1), default=0.05
        Level of the tests.
    n_trials : int, default=100
        Number of random splits.
    frontier_fraction, testing_fraction : float in (0, 1), default=0.2 and 0.4
        Shares of the prompts that find the frontier and that test it; the rest measures. With
        many thousands of prompts, 0.1 and 0.2 leave more to measure on.
    n_lambdas, size_weight, excess_weight, draw_weight, k_max
        As in :func:`sklearn_clm.calibration.learn_then_test`.
    random_state : int, RandomState or None, default=None
        Seed of the splits. The results do not depend on `n_jobs`.
    n_jobs : int, optional
        Trials in parallel, as in joblib: 1 by default, -1 for all cores.
    verbose : int, default=0
        If positive, show a progress bar.

    Returns
    -------
    TrialResults
        Loss, excess, size, draws and lambda-hat of each method, trial and epsilon.

    Raises
    ------
    ValueError
        If an argument is out of range, a part of the split would be empty, or the testing part
        is too small for the largest epsilon.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData
    >>> from sklearn_clm.evaluation import run_trials
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((500, 5))
    >>> data = CalibrationData(quality, np.zeros((500, 5, 5)), rng.random((500, 5)) < quality)
    >>> results = run_trials(
    ...     data, ("first_k", "max"), [0.2, 0.3], n_trials=5, n_lambdas=8, random_state=0
    ... )
    >>> results.loss.shape
    (2, 5, 2)
    >>> results.compare("max", "first_k", "excess", level=0.3).mean < 0
    True
    """
    check_data(data)
    names, members = _resolve(methods)
    levels = check_levels("epsilons", epsilons)
    check_level(delta, "delta")
    fractions = {"frontier_fraction": frontier_fraction, "testing_fraction": testing_fraction}
    n_frontier, n_testing = part_sizes(data.n_prompts, fractions)
    weights = size_weight, excess_weight, draw_weight
    calibrate = partial(
        learn_then_test,
        epsilon=float(max(levels[levels < 1.0], default=0.5)) or 0.5,
        delta=delta,
        optimization_fraction=n_frontier / (n_frontier + n_testing),
        n_lambdas=n_lambdas,
        size_weight=size_weight,
        excess_weight=excess_weight,
        draw_weight=draw_weight,
        k_max=k_max,
    )
    plan = _Plan(members, levels, delta, calibrate, weights)
    splits = list(
        random_splits(
            data.n_prompts, n_frontier + n_testing, n_trials, random_state, prompts=data.prompts
        )
    )
    # only the draws within the budgets, in all parts: a vectorised set score is rounded alike on
    # arrays of one width alone
    data = data.truncate(largest_budget(k_max, data.k_max))
    # threads: the time goes to NumPy, which releases the interpreter, and data stay in one place
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    running = parallel(delayed(_run_one)(data, plan, split) for split in splits)
    trials = list(tqdm(running, total=n_trials, desc="trials", disable=verbose <= 0))

    first_1 = np.array([trial.first_1_error for trial in trials])
    budgets = np.stack([trial.budgets for trial in trials], axis=1)
    measures = np.stack([trial.measures for trial in trials], axis=1)
    return TrialResults(
        methods=names,
        levels=levels,
        delta=float(delta),
        null=budgets == 0,
        trivial=(first_1[:, np.newaxis] <= levels)[np.newaxis],
        loss=measures[..., 0],
        excess=measures[..., 1],
        size=measures[..., 2],
        draws=measures[..., 3],
        lambdas=np.stack([trial.lambdas for trial in trials], axis=1),
        budgets=budgets,
        first_1_error=first_1,
        first_k_error=np.array([trial.first_k_error for trial in trials]),
        k_max=data.k_max,
        n_frontier=n_frontier,
        n_testing=n_testing,
        n_test=data.n_prompts - n_frontier - n_testing,
    )


class Split(NamedTuple):
    """One random split of prompts, as :func:`random_splits` describes it."""

    calibration: np.ndarray
    test: np.ndarray
    seed: int


class _Plan(NamedTuple):
    """What all trials share."""

    methods: tuple[Method, ...]
    levels: np.ndarray
    delta: float
    calibrate: Callable[..., LearnThenTestResult]
    weights: tuple[float, float, float]


class _Trial(NamedTuple):
    """One split: arrays with a row for each method and a column for each level."""

    lambdas: np.ndarray
    budgets: np.ndarray
    measures: np.ndarray
    first_1_error: float
    first_k_error: float


def _resolve(methods: Methods) -> tuple[tuple[str, ...], tuple[Method, ...]]:
    """Names and members of the set scores to compare."""
    if isinstance(methods, (str, SetScore)) or callable(methods):
        methods = [methods]
    if not isinstance(methods, (Sequence, Mapping)) or not methods:
        wanted = "a non-empty sequence of set scores, or a dict of them"
        raise ValueError(f"methods must be {wanted}, got {methods!r} instead.")
    members = tuple(methods.values() if isinstance(methods, Mapping) else methods)
    names = tuple(get_set_score(method).name for method in members)
    if isinstance(methods, Mapping):
        return tuple(str(name) for name in methods), members
    if len(set(names)) < len(names):
        raise ValueError(f"methods must have different names, got {names}; name them by a dict.")
    return names, members


def largest_budget(k_max: int | Sequence[int] | None, available: int) -> int:
    """The largest of the budgets that were asked for, by default all draws."""
    budgets = np.asarray(available if k_max is None else k_max)
    if not budgets.size or budgets.dtype.kind not in "iu" or not 1 <= budgets.max() <= available:
        raise ValueError(f"k_max must hold integers from 1 to {available}, got {k_max!r} instead.")
    return int(budgets.max())


def _run_one(data: CalibrationData, plan: _Plan, split: Split) -> _Trial:
    used, test = data.take(split.calibration), data.take(split.test)
    shape = (len(plan.methods), len(plan.levels))
    lambdas, budgets = np.full((*shape, 3), np.nan), np.zeros(shape, dtype=np.int64)
    measures = np.full((*shape, 4), np.nan)
    for m, method in enumerate(plan.methods):
        result = plan.calibrate(used, set_score=method, random_state=split.seed)
        objective = result.risks.objective(*plan.weights)
        critical = critical_counts(result.n_calibration, plan.levels, plan.delta)
        chosen = choose(result.n_errors, objective, critical)
        certified = chosen >= 0
        distinct, which = np.unique(chosen[certified], return_inverse=True)
        if not len(distinct):
            continue
        path = result.frontier
        lambdas[m, certified] = path.lambdas[chosen[certified]]
        budgets[m, certified] = path.k_max[chosen[certified]]
        risks = evaluate_configurations(
            test, path.lambdas[distinct], set_score=method, k_max=path.k_max[distinct]
        )
        columns = np.column_stack([risks.loss, risks.excess, risks.size, risks.samples])
        measures[m, certified] = columns[which]
    first_1 = float(1.0 - test.admissible[:, 0].mean())
    first_k = float(1.0 - test.admissible.any(axis=1).mean())
    return _Trial(lambdas, budgets, measures, first_1, first_k)


def choose(n_errors: np.ndarray, objective: np.ndarray, critical: np.ndarray) -> np.ndarray:
    """Position of lambda-hat in the tested sequence for each critical count; -1 for null.

    A sequence of tests ends before the first configuration with more errors than the critical
    count; of those before it, the one of lowest objective is chosen, the first in a tie.
    """
    n_valid = np.searchsorted(np.maximum.accumulate(n_errors), critical, side="right")
    lowest = np.minimum.accumulate(objective)
    improves = np.append(True, objective[1:] < lowest[:-1])
    best = np.maximum.accumulate(np.where(improves, np.arange(len(objective)), 0))
    return np.append(-1, best)[n_valid]


def check_levels(name: str, levels: ArrayLike | None) -> np.ndarray:
    """Levels as a strictly increasing array in [0, 1]; 101 of them by default."""
    if levels is None:
        return np.linspace(0.0, 1.0, 101)
    array = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a non-empty 1-D array, got shape {array.shape} instead.")
    inside = (array >= 0.0) & (array <= 1.0)
    if not inside.all() or not np.all(np.diff(array) > 0.0):
        raise ValueError(f"{name} must lie in [0, 1] and increase strictly, got {array} instead.")
    return array


def part_sizes(n_prompts: int, fractions: dict[str, float]) -> tuple[int, ...]:
    """Prompts in each named part of a split; what remains is for the test."""
    for name, fraction in fractions.items():
        check_level(fraction, name)
    total = sum(fractions.values())
    if total >= 1.0:
        raise ValueError(f"{' + '.join(fractions)} must be less than 1, got {total:g} instead.")
    sizes = tuple(round(fraction * n_prompts) for fraction in fractions.values())
    if min(*sizes, n_prompts - sum(sizes)) < 1:
        raise ValueError(
            f"data must hold prompts for each part, got {n_prompts} for {' + '.join(fractions)} "
            f"= {total:g} instead."
        )
    return sizes


def random_splits(
    n_prompts: int,
    n_calibration: int,
    n_trials: int,
    random_state: RandomState = None,
    *,
    prompts: ArrayLike | None = None,
) -> Iterator[Split]:
    """Independent random splits, the same whatever order and number of workers use them.

    Parameters
    ----------
    n_prompts : int
        Prompts to split.
    n_calibration : int
        Prompts in the calibration part; the rest is the test part.
    n_trials : int
        Number of splits.
    random_state : int, RandomState or None, default=None
        Seed of the splits.
    prompts : array-like of shape (n_prompts,), default=None
        What tells prompts from each other, such as `prompts` of calibration data: equal ones are
        in the same part. None: all differ.

    Returns
    -------
    iterator of named tuples (calibration, test, seed)
        For each trial the sorted positions of the prompts in each part, and the seed of the split
        of the calibration part into one that finds the frontier and one that tests it: those of
        :func:`run_trials` and :func:`run_component_trials` with this seed.

    Examples
    --------
    >>> from sklearn_clm.evaluation import random_splits
    >>> [split.test.tolist() for split in random_splits(6, 4, n_trials=2, random_state=0)]
    [[3, 4], [1, 3]]
    """
    if n_trials < 1:
        raise ValueError(f"n_trials must be at least 1, got {n_trials} instead.")
    try:
        rng = check_random_state(random_state)
    except ValueError:
        raise ValueError(
            "random_state must be an integer from 0 to 2**32 - 1, a RandomState or None, got "
            f"{random_state!r:.60} instead."
        ) from None
    seed = int(rng.randint(np.iinfo(np.int32).max))
    digests = np.arange(n_prompts) if prompts is None else np.asarray(prompts)
    return (
        _split(np.random.default_rng(child), digests, n_calibration)
        for child in np.random.SeedSequence(seed).spawn(n_trials)
    )


def _split(stream: np.random.Generator, digests: np.ndarray, n_calibration: int) -> Split:
    calibration, test = split_prompts(digests, n_calibration, stream)
    return Split(calibration, test, int(stream.integers(2**31)))


def critical_counts(n: int, levels: np.ndarray, delta: float) -> np.ndarray:
    """Critical count of errors among n at each level in [0, 1]; -1 where even 0 fails."""
    critical = np.full(levels.shape, -1)
    critical[levels == 1.0] = n  # a loss never exceeds 1
    inner = (levels > 0.0) & (levels < 1.0)
    critical[inner] = critical_count(n, levels[inner], delta)
    return critical
