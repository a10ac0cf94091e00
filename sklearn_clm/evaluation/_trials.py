"""The paper's protocol of repeated random splits (section 5, Appendix F)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration import CalibrationData, evaluate_configurations, learn_then_test
from sklearn_clm.calibration._learn_then_test import _check_budgets
from sklearn_clm.evaluation._results import TrialResults
from sklearn_clm.evaluation._splits import (
    check_delta,
    check_levels,
    critical_counts,
    part_sizes,
    trial_streams,
)
from sklearn_clm.scoring import SetScore, get_set_score

__all__ = ["run_trials"]

Method = str | Callable[..., Any] | SetScore


def run_trials(
    data: CalibrationData,
    methods: Sequence[Method] | Mapping[str, Method] = ("first_k", "first_k_reject", "max", "sum"),
    epsilons: ArrayLike | None = None,
    *,
    delta: float = 0.05,
    n_trials: int = 100,
    frontier_fraction: float = 0.1,
    testing_fraction: float = 0.2,
    n_lambdas: int = 25,
    size_weight: float = 0.5,
    excess_weight: float = 0.5,
    k_max: int | Sequence[int] | None = None,
    random_state: Any = None,
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
    methods : sequence of str or callable, or dict of name to these
        Set scores F, as :func:`~sklearn_clm.scoring.get_set_score` takes them.
    epsilons : array-like of shape (n_levels,), optional
        Levels in [0, 1], strictly increasing. Default: 101 from 0 to 1.
    delta : float in (0, 1), default=0.05
        Level of the tests.
    n_trials : int, default=100
        Number of random splits.
    frontier_fraction, testing_fraction : float in (0, 1), default=0.1 and 0.2
        Shares of the prompts that find the frontier and that test it; the rest measures.
    n_lambdas, size_weight, excess_weight, k_max
        As in :func:`~sklearn_clm.calibration.learn_then_test`.
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
    if not isinstance(data, CalibrationData):
        raise TypeError(f"data must be CalibrationData, got {type(data).__name__}.")
    names, members = _resolve(methods)
    levels = check_levels("epsilons", epsilons)
    check_delta(delta)
    n_frontier, n_testing = part_sizes(
        data.n_prompts,
        {"frontier_fraction": frontier_fraction, "testing_fraction": testing_fraction},
    )
    plan = _Plan(
        methods=members,
        n_frontier=n_frontier,
        n_testing=n_testing,
        critical=critical_counts(n_testing, levels, delta),
        options={
            "epsilon": float(max(levels[levels < 1.0], default=0.5)) or 0.5,
            "delta": delta,
            "optimization_fraction": n_frontier / (n_frontier + n_testing),
            "n_lambdas": n_lambdas,
            "size_weight": size_weight,
            "excess_weight": excess_weight,
            "k_max": k_max,
        },
    )
    streams = trial_streams(random_state, n_trials)
    # only the draws within the budgets, in all parts: a vectorised set score is rounded alike on
    # arrays of one width alone
    data = data.truncate(int(_check_budgets(k_max, data.k_max).max()))
    trials = _run_all(data, plan, streams, n_jobs, verbose)

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


class _Plan(NamedTuple):
    """What all trials share."""

    methods: tuple[Method, ...]
    n_frontier: int
    n_testing: int
    critical: np.ndarray
    options: dict[str, Any]


class _Trial(NamedTuple):
    """One split: arrays with a row for each method and a column for each level."""

    lambdas: np.ndarray
    budgets: np.ndarray
    measures: np.ndarray
    first_1_error: float
    first_k_error: float


def _resolve(methods: Any) -> tuple[tuple[str, ...], tuple[Method, ...]]:
    if isinstance(methods, str) or not isinstance(methods, (Sequence, Mapping)) or not methods:
        raise ValueError(
            "methods must be a non-empty sequence of set scores, or a dict of them, got "
            f"{methods!r}."
        )
    members = tuple(methods.values() if isinstance(methods, Mapping) else methods)
    names = tuple(get_set_score(method).name for method in members)
    if isinstance(methods, Mapping):
        return tuple(str(name) for name in methods), members
    if len(set(names)) < len(names):
        raise ValueError(f"methods must have different names, got {names}; name them by a dict.")
    return names, members


def _run_all(
    data: CalibrationData,
    plan: _Plan,
    streams: Sequence[np.random.Generator],
    n_jobs: int | None,
    verbose: int,
) -> list[_Trial]:
    from joblib import Parallel, delayed
    from tqdm.auto import tqdm

    # threads: the time goes to NumPy, which releases the interpreter, and data stay in one place
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    trials = parallel(delayed(_run_one)(data, plan, stream) for stream in streams)
    return list(tqdm(trials, total=len(streams), desc="trials", disable=verbose <= 0))


def _run_one(data: CalibrationData, plan: _Plan, stream: np.random.Generator) -> _Trial:
    order = stream.permutation(data.n_prompts)
    n_used = plan.n_frontier + plan.n_testing
    used = data.take(np.sort(order[:n_used]))
    test = data.take(np.sort(order[n_used:]))
    inner_seed = int(stream.integers(2**31))

    shape = (len(plan.methods), len(plan.critical))
    lambdas, budgets = np.full((*shape, 3), np.nan), np.zeros(shape, dtype=np.int64)
    measures = np.full((*shape, 4), np.nan)
    for m, method in enumerate(plan.methods):
        result = learn_then_test(used, set_score=method, random_state=inner_seed, **plan.options)
        objective = result.risks.objective(
            plan.options["size_weight"], plan.options["excess_weight"]
        )
        chosen = choose(result.n_errors, objective, plan.critical)
        found = chosen >= 0
        distinct, which = np.unique(chosen[found], return_inverse=True)
        if not len(distinct):
            continue
        lambdas[m, found] = result.frontier.lambdas[chosen[found]]
        budgets[m, found] = result.frontier.k_max[chosen[found]]
        risks = evaluate_configurations(
            test,
            result.frontier.lambdas[distinct],
            set_score=method,
            k_max=result.frontier.k_max[distinct],
        )
        columns = np.column_stack([risks.loss, risks.excess, risks.size, risks.samples])
        measures[m, found] = columns[which]
    return _Trial(
        lambdas,
        budgets,
        measures,
        float(1.0 - test.admissible[:, 0].mean()),
        float(1.0 - test.admissible.any(axis=1).mean()),
    )


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
