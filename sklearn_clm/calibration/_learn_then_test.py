"""Learn Then Test with Pareto testing (section 4.3, appendix E)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from sklearn_clm.calibration._binomial import smallest_epsilon
from sklearn_clm.calibration._holes import completed
from sklearn_clm.calibration._rule import Configuration
from sklearn_clm.calibration._search import Frontier, search_frontier, weights_of_objective
from sklearn_clm.calibration.band import AchievableEpsilon
from sklearn_clm.calibration.certify import SequenceResult
from sklearn_clm.calibration.checks import check_budgets, check_level, check_probability
from sklearn_clm.calibration.claim import Claim, refuse_too_few
from sklearn_clm.calibration.data import (
    CalibrationData,
    check_data,
    refuse_common_prompts,
    split_of,
)
from sklearn_clm.calibration.risk import MISSES
from sklearn_clm.calibration.rows import RandomState
from sklearn_clm.calibration.set_scores import SetScoreLike, get_set_score
from sklearn_clm.calibration.surface import ConfigurationRisks, Weights
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tests import (
    BettingTest,
    BinomialTest,
    StepTest,
    count_steps,
    step_p_values,
)
from sklearn_clm.calibration.thresholds import ThresholdPath


@dataclass(frozen=True, kw_only=True)
class LearnThenTestResult(SequenceResult):
    """Result of Learn Then Test for one epsilon.

    Parameters
    ----------
    frontier, risks : Frontier, ConfigurationRisks
        The m tested configurations, and their losses and costs on the calibration part.
    n_valid, position : int, int or None
        How many are certified, from the first on, and which one was chosen; None: no one.
    n_errors, p_values, exact : ndarray of shape (m,)
        Errors and p-values, and where they are exact; elsewhere lazy judging left bounds.
    n_optimization, n_calibration, n_judgements : int
        How many prompts gave the frontier, how many tested it, and how many of the responses of
        these were judged; None for all.
    epsilon, delta, smallest_epsilon, achievable_epsilon : float, float, float, AchievableEpsilon
        Tolerated risk, level, the smallest risk at which anything is certified, 1.0 for none, and
        what both parts together say of the risks in reach.
    provenance : Provenance
        What the data were collected with.
    """

    frontier: Frontier
    n_optimization: int
    epsilon: float
    smallest_epsilon: float
    achievable_epsilon: AchievableEpsilon
    risks: ConfigurationRisks = field(repr=False)
    n_judgements: int | None = None

    parts: ClassVar[tuple[str, str]] = ("finds the frontier", "tests it")

    @property
    def lambda_hat(self) -> Configuration | None:
        """The chosen configuration; None if none is certified."""
        return None if self.position is None else self.frontier.configuration(self.position)

    @property
    def k_max_hat(self) -> int | None:
        """The budget of the chosen configuration."""
        return None if self.position is None else int(self.frontier.k_max[self.position])

    @property
    def valid_lambdas(self) -> np.ndarray:
        """The certified configurations, as tested: (n_valid, 3)."""
        return self.frontier.lambdas[: self.n_valid]


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
    k_max: int | Sequence[int] | None = None,
    frontier: Frontier | None = None,
) -> Any:
    """Choose a configuration whose risk is at most epsilon.

    This holds with confidence 1 - delta. The prompts are split at random. One part gives the
    frontier, see :func:`search_frontier`. The other tests it, from the safest configuration on,
    until the first test fails; of those that passed, the one of lowest objective is chosen, the
    earlier one in a tie. A `frontier` that is given is tested in its order.

    Parameters
    ----------
    data : CalibrationData
        Independent prompts, identically distributed with those to come, each once. Where draws
        are missing, what the others do not decide counts as an error.
    epsilon : float or sequence of float
        Tolerated risk, in (0, 1). A sequence gives a tuple of results, from one frontier.
    delta : float, default=0.05
        Tolerated probability, over the calibration data, that the risk is exceeded; in (0, 1).
    set_score : str, callable or SetScore, default="max"
        The set function F.
    optimization_fraction, random_state
        Share of the first part, and source of the split, as in :meth:`CalibrationData.split`.
    n_lambdas : int, default=25
        Thresholds in each dimension of the grid, next to observed quantiles, and -inf and +inf.
    size_weight, excess_weight, draw_weight : float
        rho_1 and rho_2 of Eq. 7, and a price of each draw besides, >= 0.
    k_max : int, sequence of int, or None
        Budget of draws; None is ``data.k_max``. Several are a fourth dimension of the grid.
    frontier : Frontier, default=None
        Configurations to test, which must come from *other* prompts; all prompts of `data` then
        test them, and `optimization_fraction`, `n_lambdas` and `k_max` have no part in it.

    Returns
    -------
    LearnThenTestResult, or tuple of them

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
    check_data(data, draws=False)
    score = get_set_score(set_score)
    epsilons = np.atleast_1d(check_probability(epsilon, "epsilon")).tolist()
    if np.ndim(epsilon) > 1 or not epsilons:
        raise ValueError(f"epsilon must be one number or several, got {epsilon!r} instead.")
    # too few prompts for the largest epsilon are too few for all
    largest = Claim(max(epsilons), check_level(delta, "delta"))
    weights = weights_of_objective(size_weight, excess_weight, draw_weight)
    budgets = check_budgets(k_max if frontier is None else frontier.k_max.tolist(), data.k_max)
    data = data.truncate(budgets[-1])
    if frontier is None:
        # the guarantee rests on this split: no prompt shapes the frontier and tests it
        seen, tested = split_of(data, optimization_fraction, random_state)
        refuse_too_few(len(tested), largest, optimization_fraction)
        part = data.take(seen)
        # whatever fills the holes of this part shapes the path alone (`_holes.py`)
        part = part if part.n_made == part.quality.size else completed(part)
        frontier = search_frontier(
            part, set_score=score, n_lambdas=n_lambdas, k_max=budgets, **weights
        )
    else:
        seen = np.arange(0)
        tested = data.order()
        refuse_common_prompts("frontier", frontier.seen, data)
        refuse_too_few(data.n_prompts, largest)
    table = Table(data)
    # where draws ended by verdicts on other prompts, tested prompts may have shaped the search
    if table.ended_by_others:
        frontier = frontier.of_all_draws()
    # one frontier for all levels: it was fixed before the calibration part was looked at
    path = ThresholdPath(table, tested, frontier, score)
    tests = [BinomialTest(path, MISSES, level, delta) for level in epsilons]
    results = tuple(certify_frontier(test, searched=seen, weights=weights) for test in tests)
    return results[0] if np.ndim(epsilon) == 0 else results


def certify_frontier(
    main_test: BinomialTest[ThresholdPath],
    other_tests: Sequence[BettingTest] = (),
    *,
    searched: np.ndarray,
    weights: Weights,
    select: Literal["objective", "last"] = "objective",
) -> LearnThenTestResult:
    """Test a frontier on other prompts than those at `searched`.

    The other tests must pass as well. Of the steps that pass, the one of the smallest objective is
    chosen, or the "last". Of a table that is filled on demand, or has holes, the result
    holds bounds of errors and p-values, and the objective leaves out the excess, which needs labels
    that no test asks for. Where costs are not known, the objective is that of the search.
    """
    path = main_test.path
    n = main_test.n_prompts
    lazily = path.table.is_lazy
    n_judged_before = path.table.n_judgements
    tests: list[StepTest] = [main_test, *other_tests]
    # witnesses in the small sets of late steps settle most of the steps before
    start = main_test.likely_last() if lazily else 0
    n_passed = count_steps(path, tests, start)

    band = AchievableEpsilon(math.nan, math.nan)
    if path.table.is_filled:
        evidence = _evidence_of_all_labels(main_test, tests, weights)
        # no test rests on the band: all prompts may tell it (Appendix C)
        labels = path.table.labels[np.concatenate((searched, path.rows))]
        band = AchievableEpsilon.of_labels(labels == 1)
    else:
        evidence = _evidence_of_few_labels(main_test, n_passed, select, weights)
    risks = evidence.risks

    # with other losses no epsilon alone would have certified the first step
    smallest = math.nan
    if not other_tests:
        n_counted = main_test.n_counted(0)
        smallest = 1.0
        if n_counted:
            smallest = float(smallest_epsilon(risks.n_errors[0], n_counted, main_test.delta))
    chosen = None
    if n_passed and select == "last":
        chosen = n_passed - 1
    elif n_passed:
        # of equals argmin takes the first, which is the safer one where all prompts count
        chosen = int(np.argmin(evidence.objective[:n_passed]))
    n_judged = path.table.n_judgements - n_judged_before
    return LearnThenTestResult(
        frontier=path.frontier,
        n_valid=n_passed,
        position=chosen,
        n_errors=risks.n_errors,
        n_counted=risks.n_counted,
        p_values=evidence.p_values,
        n_optimization=len(searched),
        n_calibration=n,
        epsilon=main_test.level,
        delta=main_test.delta,
        smallest_epsilon=smallest,
        achievable_epsilon=band,
        risks=risks,
        provenance=path.table.data.provenance,
        exact=evidence.exact,
        open_err=path.table.has_holes and not lazily,
        n_judgements=n_judged if lazily else None,
    )


class _Evidence(NamedTuple):
    """What tests found of the steps of a frontier."""

    risks: ConfigurationRisks
    p_values: np.ndarray
    exact: np.ndarray  # where errors and p-values are exact, bool
    objective: np.ndarray  # by which one of the steps that passed is chosen


def _evidence_of_all_labels(
    main_test: BinomialTest[ThresholdPath], tests: Sequence[StepTest], weights: Weights
) -> _Evidence:
    """Errors, p-values and costs of a table that is filled."""
    risks = main_test.path.risks(main_test.risk)
    # the largest p-value of a step is one of "some risk is too high"
    p_values = np.max([test.p_values() for test in tests], axis=0)
    exact = np.ones(len(main_test.path), dtype=bool)
    return _Evidence(risks, p_values, exact, risks.objective(**weights))


def _evidence_of_few_labels(
    main_test: BinomialTest[ThresholdPath], n_passed: int, select: str, weights: Weights
) -> _Evidence:
    """Bounds of errors and p-values of an incomplete table."""
    path = main_test.path
    risks, exact = _tested_risks(main_test, n_passed, select)
    n_counted = main_test.n_prompts if risks.n_counted is None else risks.n_counted
    p_values = step_p_values(risks.n_errors, n_counted, main_test.level)
    p_values[n_passed + 1 :] = np.nan  # after the first failure nothing is tested
    # the excess needs the first admissible draw, a label that no test asks for
    objective = replace(risks, excess=np.zeros(len(path))).objective(**weights)
    if np.isnan(objective[:n_passed]).any():
        objective = path.frontier.objective
    return _Evidence(risks, p_values, exact, objective)


def _tested_risks(
    main_test: BinomialTest[ThresholdPath], n_passed: int, select: str
) -> tuple[ConfigurationRisks, np.ndarray]:
    """Bounds of errors, and costs, of an incomplete table.

    Errors are the most there can be where a configuration is certified, or the table has no judge
    to ask, and the fewest elsewhere.
    """
    path = main_test.path
    n = main_test.n_prompts
    m = len(path)
    exact = np.zeros(m, dtype=bool)
    n_errors = np.full(m, n)
    n_counted = np.full(m, n)
    sizes = np.full(m, np.nan)
    samples = np.full(m, np.nan)
    tested = range(min(n_passed + 1, m))
    for step in tested:
        fewest, most = main_test.errors(step)
        is_most = step < n_passed or not path.table.is_lazy
        exact[step] = fewest == most
        n_errors[step] = most if is_most else fewest
        n_counted[step] = max(main_test.n_counted(step), 1)  # a share of nobody is 0, not NaN
    # costs choose among the steps that passed: the draws of these are made up to the stop
    first_chosen = 0 if select == "objective" else max(n_passed - 1, 0)
    for step in range(first_chosen, n_passed):
        # how many texts all draws hold matters where another step may be as cheap
        if not path.accepts_all(step) or (path.table.knows_texts and n_passed > 1):
            path.finish(step)
    for step in tested:
        sizes[step], samples[step] = path.costs(step)
    excess = np.full(m, np.nan)  # it needs labels of all draws
    losses = n_errors / n_counted
    risks = ConfigurationRisks(n_errors, losses, sizes, samples, excess, n_counted=n_counted)
    return risks, exact
