"""The paper's protocol of repeated random splits for response sets (section 5, Appendix F)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, validate_params
from tqdm.auto import tqdm

from sklearn_clm.calibration import CalibrationData, critical_count, learn_then_test
from sklearn_clm.calibration._binomial import check_level
from sklearn_clm.calibration._data import check_data, split_prompts
from sklearn_clm.calibration._search import check_budgets
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
    splits, and all epsilons share one frontier.

    A null trial abstains, and its measures are NaN. As epsilon grows, a trial that is null becomes
    achievable, and at last trivial: always returning the first generation would satisfy it, too.

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
    named = _named(methods)
    levels = check_levels("epsilons", epsilons)
    check_level(delta, "delta")
    fractions = {"frontier_fraction": frontier_fraction, "testing_fraction": testing_fraction}
    n_frontier, n_testing = part_sizes(data.n_prompts, fractions)
    n_used = n_frontier + n_testing
    # only the draws within the budgets, in all parts: a vectorised set score is rounded alike on
    # arrays of one width alone
    within = data.truncate(int(check_budgets(k_max, data.k_max).max()))
    weights = size_weight, excess_weight, draw_weight

    def measure(split: Split) -> dict[str, np.ndarray]:
        used, test = within.take(split.calibration), within.take(split.test)
        shape = (len(named), len(levels))
        lambdas, budgets = np.full((*shape, 3), np.nan), np.zeros(shape, dtype=np.int64)
        costs = np.full((*shape, 4), np.nan)
        for m, method in enumerate(named.values()):
            result = learn_then_test(
                used,
                # the frontier and the counts of errors are those of every epsilon
                float(max(levels[levels < 1.0], default=0.5)) or 0.5,
                delta,
                set_score=method,
                optimization_fraction=n_frontier / n_used,
                n_lambdas=n_lambdas,
                size_weight=size_weight,
                excess_weight=excess_weight,
                draw_weight=draw_weight,
                k_max=k_max,
                random_state=split.seed,
            )
            critical = critical_counts(result.n_calibration, levels, delta)
            chosen = choose(result.n_errors, result.risks.objective(*weights), critical)
            certified = chosen >= 0
            if not certified.any():
                continue
            path = result.frontier
            lambdas[m, certified] = path.lambdas[chosen[certified]]
            budgets[m, certified] = path.k_max[chosen[certified]]
            distinct, which = np.unique(chosen[certified], return_inverse=True)
            risks = evaluate_configurations(
                test, path.lambdas[distinct], set_score=method, k_max=path.k_max[distinct]
            )
            columns = np.column_stack([risks.loss, risks.excess, risks.size, risks.samples])
            costs[m, certified] = columns[which]
        names = ("loss", "excess", "size", "draws")
        return {
            **dict(zip(names, np.moveaxis(costs, -1, 0))),
            "lambdas": lambdas,
            "budgets": budgets,
            "first_1_error": 1.0 - test.admissible[:, 0].mean(),
            "first_k_error": 1.0 - test.admissible.any(axis=1).mean(),
        }

    splits = random_splits(data.n_prompts, n_used, n_trials, random_state, prompts=data.prompts)
    measured = over_splits(measure, splits, n_trials, n_jobs, verbose)
    return TrialResults(
        methods=tuple(named),
        levels=levels,
        delta=float(delta),
        null=measured["budgets"] == 0,
        trivial=(measured["first_1_error"][:, np.newaxis] <= levels)[np.newaxis],
        **measured,
        k_max=within.k_max,
        n_frontier=n_frontier,
        n_testing=n_testing,
        n_test=data.n_prompts - n_used,
    )


class Split(NamedTuple):
    """Sorted positions of the prompts in both parts, and a seed for splitting the first anew."""

    calibration: np.ndarray
    test: np.ndarray
    seed: int


def over_splits(
    measure: Callable[[Split], dict[str, np.ndarray]],
    splits: Iterator[Split],
    n_trials: int,
    n_jobs: int | None,
    verbose: int,
) -> dict[str, np.ndarray]:
    """What is measured of each split, with trials along the second axis, behind the methods."""
    # threads: the time goes to NumPy, which releases the interpreter, and data stay in one place
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    running = parallel(delayed(measure)(split) for split in splits)
    trials = list(tqdm(running, total=n_trials, desc="trials", disable=verbose <= 0))
    return {
        name: np.stack([trial[name] for trial in trials], axis=min(1, np.ndim(one)))
        for name, one in trials[0].items()
    }


def _named(methods: Methods) -> dict[str, Method]:
    """The set scores to compare, by name."""
    if isinstance(methods, (str, SetScore)) or callable(methods):
        methods = [methods]
    if not isinstance(methods, (Sequence, Mapping)) or not methods:
        wanted = "a non-empty sequence of set scores, or a dict of them"
        raise ValueError(f"methods must be {wanted}, got {methods!r} instead.")
    if isinstance(methods, Mapping):
        return {str(name): get_set_score(method) for name, method in methods.items()}
    named: dict[str, Method] = {get_set_score(method).name: method for method in methods}
    if len(named) < len(methods):
        raise ValueError(f"methods must have different names, got {methods}; name them by a dict.")
    return named


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
    inside = array.size > 0 and np.all((array >= 0.0) & (array <= 1.0))
    if array.ndim != 1 or not inside or not np.all(np.diff(array) > 0.0):
        raise ValueError(
            f"{name} must be a 1-D array in [0, 1] that increases strictly, got {levels} instead."
        )
    return array


def part_sizes(n_prompts: int, fractions: dict[str, float]) -> tuple[int, ...]:
    """Prompts in each named part of a split; what remains is for the test."""
    for name, fraction in fractions.items():
        check_level(fraction, name)
    sizes = tuple(round(fraction * n_prompts) for fraction in fractions.values())
    if min(*sizes, n_prompts - sum(sizes)) < 1:
        raise ValueError(
            f"{' + '.join(fractions)} must leave prompts of data for each part, got {fractions} "
            f"for {n_prompts} prompts instead."
        )
    return sizes


@validate_params(
    {"n_trials": [Interval(Integral, 1, None, closed="left")], "random_state": ["random_state"]},
    prefer_skip_nested_validation=True,
)
def random_splits(
    n_prompts: int,
    n_calibration: int,
    n_trials: int,
    random_state: RandomState = None,
    *,
    prompts: np.ndarray | None = None,
) -> Iterator[Split]:
    """Independent random splits; equal `prompts`, which all differ by default, stay together."""
    digests = np.arange(n_prompts) if prompts is None else prompts
    # one seed of all trials, which spawns those of each, whatever order they run in
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    for child in np.random.SeedSequence(seed).spawn(n_trials):
        stream = np.random.default_rng(child)
        calibration, test = split_prompts(digests, n_calibration, stream)
        yield Split(calibration, test, int(stream.integers(2**31)))


def critical_counts(n: int, levels: np.ndarray, delta: float) -> np.ndarray:
    """Critical count of errors among n at each level in [0, 1]; -1 where even 0 fails."""
    critical = np.full(levels.shape, -1)
    critical[levels == 1.0] = n  # a loss never exceeds 1
    inner = (levels > 0.0) & (levels < 1.0)
    critical[inner] = critical_count(n, levels[inner], delta)
    return critical
