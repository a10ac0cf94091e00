"""The paper's repeated random splits (sections 5 and 6)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, validate_params
from tqdm.auto import tqdm

from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    LearnThenTestResult,
    critical_count,
    learn_then_test,
)
from sklearn_clm.calibration.certify import places_of_rank
from sklearn_clm.calibration.checks import check_budgets, check_level
from sklearn_clm.calibration.components import (
    ComponentEntries,
    check_components,
)
from sklearn_clm.calibration.data import check_data
from sklearn_clm.calibration.digests import numbered
from sklearn_clm.calibration.rows import split_prompts
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.evaluation._results import TrialResults
from sklearn_clm.scoring import SetScore, component_match, get_set_score

Method = str | Callable[..., float] | SetScore
Match = Callable[[str, str], bool]
Splitter = Callable[[str], Sequence[object]]
RandomState = int | np.random.RandomState | None


def run_trials(
    data: CalibrationData,
    methods: Sequence[Method] | Mapping[str, Method] = ("first_k", "first_k_reject", "max", "sum"),
    epsilons: ArrayLike | None = None,
    *,
    delta: float = 0.05,
    n_trials: int = 100,
    frontier_fraction: float = 0.2,
    testing_fraction: float = 0.4,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    **search: Any,
) -> TrialResults:
    """Repeat calibration and test over random splits of data.

    Each trial splits the prompts at random into a part that finds the Pareto frontier, a part
    that tests it, and a part that measures the chosen configurations. All methods see the same
    splits, and all epsilons share one frontier.

    A null trial abstains, and its measures are NaN. As epsilon grows, a trial that is null becomes
    achievable, and at last trivial: always returning the first generation would satisfy it, too.

    Parameters
    ----------
    data : CalibrationData
        Quality, similarity and admissibility of the draws of all prompts.
    methods : sequence of str or callable, or dict of name to these
        Set scores F, as :func:`sklearn_clm.scoring.get_set_score` takes them.
    epsilons : array-like of shape (n_levels,), optional
        Levels in (0, 1), strictly increasing. Default: 0.01, 0.02, ..., 0.99.
    delta : float in (0, 1), default=0.05
        Level of the tests.
    n_trials : int, default=100
        Number of random splits.
    frontier_fraction, testing_fraction : float in (0, 1), default=0.2 and 0.4
        Shares of the prompts that find the frontier and that test it; the rest measures. With
        many thousands of prompts, 0.1 and 0.2 leave more to measure on.
    random_state : int, RandomState or None, default=None
        Seed of the splits. The results do not depend on `n_jobs`.
    n_jobs : int, optional
        Trials in parallel, as in joblib: 1 by default, -1 for all cores.
    verbose : int, default=0
        If positive, show a progress bar.
    **search
        `n_lambdas`, weights of the objective, and `k_max`, as in
        :func:`sklearn_clm.calibration.learn_then_test`.

    Returns
    -------
    TrialResults
        Loss, excess, size and draws of each method, trial and epsilon.

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
    >>> results.measures["loss"].shape
    (2, 5, 2)
    >>> bool(results.compare("max", "first_k", "excess", level=0.3).mean() < 0)
    True
    """
    check_data(data)
    # a vectorised set score is rounded alike on arrays of one width alone
    data = data.truncate(check_budgets(search.get("k_max"), data.k_max)[-1])
    named = _named(methods)
    levels = _check_levels("epsilons", epsilons)
    fractions = {"frontier_fraction": frontier_fraction, "testing_fraction": testing_fraction}
    n_frontier, n_testing = _part_sizes(data.n_prompts, fractions)
    n_used = n_frontier + n_testing

    def measure(split: Split) -> dict[str, np.ndarray]:
        used = data.take(split.calibration)
        test = data.take(split.test)
        lambdas = np.full((3, len(named), len(levels)), np.nan)
        costs = np.full((4, len(named), len(levels)), np.nan)
        # every method sees the same split: differences are of methods alone
        for m, method in enumerate(named.values()):
            tests, certified, chosen = _choices(
                used, method, levels, delta, n_frontier / n_used, split.seed, search
            )
            if not certified.size:
                continue
            # many levels choose the same configuration: each is measured once
            path = tests.frontier
            distinct, which = np.unique(chosen, return_inverse=True)
            risks = evaluate_configurations(
                test, path.lambdas[distinct], set_score=method, k_max=path.k_max[distinct]
            )
            lambdas[:, m, certified] = path.lambdas[distinct[which]].T
            measured = np.stack([risks.loss, risks.excess, risks.size, risks.samples])
            costs[:, m, certified] = measured[:, which]
        results = dict(zip(("similarity", "quality", "set_score"), lambdas))
        results |= dict(zip(("loss", "excess", "size", "draws"), costs))
        # levels at which one draw would do say nothing of a method (Appendix C)
        trivial = 1.0 - test.admissible[:, 0].mean() <= levels
        return results | {"trivial": np.broadcast_to(trivial, (len(named), len(levels)))}

    splits = random_splits(data.digests, n_used, n_trials, random_state)
    results = _over_splits(measure, splits, n_trials, n_jobs, verbose)
    thresholds = {name: results.pop(name) for name in ("similarity", "quality", "set_score")}
    trivial = results.pop("trivial")
    size = results["size"]
    draws = results["draws"]
    return TrialResults(
        methods=tuple(named),
        level_name="epsilon",
        levels=levels,
        delta=float(delta),
        null=np.isnan(size),
        trivial=trivial,
        measures={
            "loss": results["loss"],
            "excess": results["excess"],
            "size": size,
            "relative_size": size / data.k_max,
            "draws": draws,
            "relative_draws": draws / data.k_max,
        },
        thresholds=thresholds,
    )


def _choices(
    used: CalibrationData,
    method: Method,
    levels: np.ndarray,
    delta: float,
    optimization_fraction: float,
    seed: int,
    search: Mapping[str, Any],
) -> tuple[LearnThenTestResult, np.ndarray, list[int]]:
    """Tests, levels that certify anything, the step each chooses.

    Levels are named by their positions. `search` are options of :func:`learn_then_test`.
    """
    tests = learn_then_test(
        used,
        float(levels[-1]),  # the frontier and its errors are those of every epsilon
        delta,
        set_score=method,
        optimization_fraction=optimization_fraction,
        random_state=seed,
        **search,
    )
    # a fixed sequence: step m passes only if all before it do, hence their most errors
    most = np.maximum.accumulate(tests.n_errors)
    critical = critical_count(tests.n_calibration, levels, delta)
    # so one run of the tests answers every epsilon: integer counts against critical counts
    n_valid = np.searchsorted(most, critical, side="right")
    certified = np.flatnonzero(n_valid)

    # argmin takes the first of equals, which is the safest
    weights = {name: value for name, value in search.items() if name.endswith("_weight")}
    objective = tests.risks.objective(**weights)
    chosen = [int(np.argmin(objective[:n])) for n in n_valid[certified]]
    return tests, certified, chosen


def run_component_trials(
    data: Mapping[str, ComponentCalibrationData],
    alphas: ArrayLike | None = None,
    *,
    reference_scores: Mapping[str, Sequence[ArrayLike]] | None = None,
    delta: float = 0.05,
    n_trials: int = 100,
    calibration_fraction: float = 0.3,
    max_wrong: int = 0,
    random_state: RandomState = None,
) -> TrialResults:
    """Repeat calibration and test of component selection over random splits.

    Parameters
    ----------
    data : dict of str to ComponentCalibrationData
        For each component score to compare, the scores and labels of the components of the same
        n prompts, in the same order.
    alphas : array-like of shape (n_levels,), optional
        Levels in (0, 1), strictly increasing. Default: 0.01, 0.02, ..., 0.99.
    reference_scores : dict of str to sequence of n 1-D arrays, optional
        For each component score what :func:`reference_scores` gives. Recall is then the share of
        the reference that the selection covers (Appendix G). By default it is the share of the
        admissible components, among those of all K samples, that are selected. Prompts with an
        empty reference, or no admissible component, do not count.
    calibration_fraction : float in (0, 1), default=0.3
        Share of the prompts to calibrate on; the rest tests. (No part is needed to find a
        frontier.)
    max_wrong : int, default=0
        How many selected components may be wrong without an error.
    delta, n_trials, random_state
        As in :func:`run_trials`. All component scores see the same splits.

    Returns
    -------
    TrialResults
        Loss, number of components, recall and share of empty selections for each score, trial and
        alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import ComponentCalibrationData
    >>> from sklearn_clm.evaluation import run_component_trials
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random((600, 5))
    >>> admissible = rng.random((600, 5)) < scores**0.2
    >>> results = run_component_trials(
    ...     {
    ...         "good": ComponentCalibrationData.from_arrays(scores, admissible),
    ...         "random": ComponentCalibrationData.from_arrays(rng.random((600, 5)), admissible),
    ...     },
    ...     [0.2, 0.3],
    ...     n_trials=10,
    ...     random_state=0,
    ... )
    >>> bool(results.compare("good", "random", "number", level=0.3).mean() > 0)
    True
    """
    n = _number_of_prompts(data)
    if reference_scores is None:
        targets = {name: _admissible(part) for name, part in data.items()}
    else:
        sizes = {name: len(reference_scores.get(name, ())) for name in data}
        if set(sizes.values()) != {n}:
            raise ValueError(f"reference_scores must hold {n} arrays each, got {sizes} instead.")
        targets = {name: _covered_from(reference_scores[name]) for name in data}
    levels = _check_levels("alphas", alphas)
    (n_calibration,) = _part_sizes(n, {"calibration_fraction": calibration_fraction})
    check_level(delta, "delta")

    def measure(split: Split) -> dict[str, np.ndarray]:
        critical = critical_count(len(split.calibration), levels, delta)
        results = []
        for name, part in data.items():
            tested = ComponentEntries(part.take(split.calibration), max_wrong=max_wrong)
            # errors rise along the sequence, from the largest threshold down
            n_errors = tested.n_at_least(tested.labels != 1)
            n_valid = np.searchsorted(n_errors, critical, side="right")
            # where nothing passes the threshold is +inf, an empty selection, which is valid
            gammas = np.append(np.inf, tested.thresholds[::-1])[n_valid]
            test = part.take(split.test)
            wanted = targets[name].take(split.test)
            results.append(_of_test_part(test, wanted, gammas, levels, max_wrong))
        return {name: np.stack([result[name] for result in results]) for name in results[0]}

    digests = next(iter(data.values())).prompts
    if digests is None:
        # rows of all scores together tell a prompt: one score may be the same for many
        of_scores = np.sum([part.content_digests() for part in data.values()], axis=0)
        of_targets = np.sum([target.content_digests() for target in targets.values()], axis=0)
        digests = numbered(of_scores, of_targets)
    splits = random_splits(digests, n_calibration, n_trials, random_state)
    results = _over_splits(measure, splits, n_trials)
    gammas = results.pop("gamma")
    trivial = results.pop("trivial")
    return TrialResults(
        methods=tuple(data),
        level_name="alpha",
        levels=levels,
        delta=float(delta),
        null=gammas == np.inf,
        trivial=trivial,
        measures=results,
        thresholds={"gamma": gammas},
    )


def reference_scores(
    references: Sequence[str],
    components: Sequence[Sequence[str]],
    scores: Sequence[ArrayLike],
    *,
    match: str | Match = "rouge_l",
    splitter: str | Splitter = "sentence",
) -> list[np.ndarray]:
    """Highest score of components that almost match each reference sentence.

    A selection at threshold gamma covers the sentences whose number is at least gamma.

    Parameters
    ----------
    references : sequence of n str
        One reference for each prompt.
    components : sequence of n sequences of str
        The components of the draws for each prompt.
    scores : sequence of n 1-D arrays
        Their scores.
    match : {"rouge_l", "exact_match"} or callable, default="rouge_l"
        When ``match(reference sentence, component)`` holds: "rouge_l" is a ROUGE-L of at least
        0.4.
    splitter : str or callable, default="sentence"
        Splits references, as in :func:`sklearn_clm.scoring.get_splitter`.

    Returns
    -------
    list of n ndarray
        One number for each sentence of each reference; -inf where no component matches.

    Examples
    --------
    >>> from sklearn_clm.evaluation import reference_scores
    >>> reference_scores(
    ...     ["There is no effusion. The lungs are clear."],
    ...     [["No effusion.", "No effusion today.", "The heart is large."]],
    ...     [[0.5, 0.7, 0.9]],
    ...     match=lambda sentence, component: "effusion" in sentence and "effusion" in component,
    ... )
    [array([ 0.7, -inf])]
    """
    almost = component_match(match, splitter)
    best = []
    for reference, texts, values in zip(references, components, scores, strict=True):
        # from the surest down, so that the first match is the best
        numbers = np.asarray(values, dtype=np.float64).tolist()
        ordered = sorted(zip(numbers, texts, strict=True), key=itemgetter(0), reverse=True)
        row = []
        for sentence in almost.parts(reference):
            matches = (value for value, text in ordered if almost.admission(sentence, text))
            row.append(next(matches, -np.inf))
        best.append(np.array(row, dtype=np.float64))
    return best


class Split(NamedTuple):
    """Positions of both parts, by digest, and a seed."""

    calibration: np.ndarray
    test: np.ndarray
    seed: int


@validate_params(
    {"n_trials": [Interval(Integral, 1, None, closed="left")], "random_state": ["random_state"]},
    prefer_skip_nested_validation=True,
)
def random_splits(
    digests: np.ndarray, n_calibration: int, n_trials: int, random_state: RandomState = None
) -> Iterator[Split]:
    """Independent random splits that keep equal digests together."""
    # one seed of all trials, which spawns those of each, whatever order they run in
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    for child in np.random.SeedSequence(seed).spawn(n_trials):
        stream = np.random.default_rng(child)
        calibration, test = split_prompts(digests, n_calibration, stream)
        yield Split(calibration, test, int(stream.integers(2**31)))


def _over_splits(
    measure: Callable[[Split], dict[str, np.ndarray]],
    splits: Iterator[Split],
    n_trials: int,
    n_jobs: int | None = 1,
    verbose: int = 0,
) -> dict[str, np.ndarray]:
    """Measures of each split, trials along the second axis."""
    # threads: the time goes to NumPy, which releases the interpreter, and data stay in one place
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    running = parallel(delayed(measure)(split) for split in splits)
    trials = list(tqdm(running, total=n_trials, desc="trials", disable=verbose <= 0))
    measures = trials[0]
    return {name: np.stack([trial[name] for trial in trials], axis=1) for name in measures}


def _of_test_part(
    test: ComponentCalibrationData,
    wanted: ComponentCalibrationData,
    gammas: np.ndarray,
    levels: np.ndarray,
    max_wrong: int,
) -> dict[str, np.ndarray]:
    """What thresholds select of test prompts, and what it covers."""
    n = test.n_prompts
    wrong = test.labels != 1
    scores = test.scores[wrong]
    # a prompt errs at every threshold up to this score; one with fewer wrong components at none
    worst = scores[places_of_rank(test.prompt_index[wrong], scores, max_wrong)]
    highest = test.scores[places_of_rank(test.prompt_index, test.scores, 0)]
    n_wanted = np.diff(wanted.offsets)
    weights = wanted.admissible / n_wanted[wanted.prompt_index]
    n_counted = np.count_nonzero(n_wanted)
    # each prompt weighs 1, whatever the number of its components
    covered = _at_least(wanted.scores, gammas, weights)
    return {
        "gamma": gammas,
        "trivial": len(worst) / n <= levels,
        "loss": _at_least(worst, gammas) / n,
        "number": _at_least(test.scores, gammas) / n,
        "recall": covered / n_counted if n_counted else np.full(len(gammas), np.nan),
        "empty": 1.0 - _at_least(highest, gammas) / n,
    }


def _covered_from(references: Sequence[ArrayLike]) -> ComponentCalibrationData:
    """Scores from which on each reference's sentence is covered."""
    rows = [np.asarray(row, dtype=np.float64) for row in references]
    return ComponentCalibrationData.from_arrays(rows, [row > -np.inf for row in rows])


def _admissible(data: ComponentCalibrationData) -> ComponentCalibrationData:
    """The admissible components, each of which covers itself."""
    kept = data.admissible
    counts = np.bincount(data.prompt_index[kept], minlength=data.n_prompts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return ComponentCalibrationData(data.scores[kept], kept[kept], offsets)


def _at_least(
    values: np.ndarray, thresholds: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Number, or weight, of values at or above each threshold."""
    # sorted once for all thresholds, in place of a comparison of each with each
    order = np.argsort(values)
    below = np.searchsorted(values[order], thresholds, side="left")
    if weights is None:
        return len(values) - below
    total = np.append(0.0, np.cumsum(weights[order]))
    return np.asarray(total[-1] - total[below])


def _number_of_prompts(data: Mapping[str, ComponentCalibrationData]) -> int:
    """Number of prompts, the same for all component scores."""
    if not isinstance(data, Mapping) or not data:
        raise TypeError(
            "data must be a non-empty dict of ComponentCalibrationData, got "
            f"{type(data).__name__} instead."
        )
    for part in data.values():
        check_components(part)
    n, *other_numbers = {part.n_prompts for part in data.values()}
    if other_numbers:
        raise ValueError(
            f"data must be of the same prompts, got {[n, *other_numbers]} of them instead."
        )
    return n


def _named(methods: Sequence[Method] | Mapping[str, Method]) -> dict[str, Method]:
    """The set scores to compare, by name."""
    if not isinstance(methods, (Sequence, Mapping)) or isinstance(methods, str) or not methods:
        wanted = "a non-empty sequence of set scores, or a dict of them"
        raise ValueError(f"methods must be {wanted}, got {methods!r} instead.")
    if isinstance(methods, Mapping):
        return {str(name): get_set_score(method) for name, method in methods.items()}
    # results are found by name, so that two methods of one name would be one
    named: dict[str, Method] = {get_set_score(method).name: method for method in methods}
    if len(named) < len(methods):
        raise ValueError(f"methods must have different names, got {methods}; name them by a dict.")
    return named


def _check_levels(name: str, levels: ArrayLike | None) -> np.ndarray:
    """Levels as a strictly increasing array in (0, 1)."""
    if levels is None:
        return np.linspace(0.0, 1.0, 101)[1:-1]
    # increasing, since curves and areas over the levels are drawn and summed in this order
    array = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    inside = array.size > 0 and np.all((array > 0.0) & (array < 1.0))
    if array.ndim != 1 or not inside or not np.all(np.diff(array) > 0.0):
        raise ValueError(
            f"{name} must be a 1-D array in (0, 1) that increases strictly, got {levels} instead."
        )
    return array


def _part_sizes(n_prompts: int, fractions: dict[str, float]) -> tuple[int, ...]:
    """Sizes of a split's named parts; others are for test."""
    for name, fraction in fractions.items():
        check_level(fraction, name)
    sizes = tuple(round(fraction * n_prompts) for fraction in fractions.values())
    if min(*sizes, n_prompts - sum(sizes)) < 1:
        raise ValueError(
            f"{' + '.join(fractions)} must leave prompts of data for each part, got {fractions} "
            f"for {n_prompts} prompts instead."
        )
    return sizes
