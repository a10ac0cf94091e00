"""The study: worlds x set scores x settings, thousands of calibrations each."""

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import binom, binomtest

from sklearn_clm.calibration import critical_count

from .answers import ANSWER_PROCEDURES, CHOICES
from .audits import AUDIT_PROCEDURES, JUDGES, risk_of_all
from .claims import CLAIM_LEVELS, CLAIM_PROCEDURES, EXACT_PROCEDURES
from .deployed import DEPLOYED_PROCEDURES
from .deployment import DEPLOYMENT_PROCEDURES, path_risks, prompt_weights
from .estimators import command_line, component_files, estimators, files
from .orders import LEVELS_IN_ORDERS, ORDER_PROCEDURES, THRESHOLDS_IN_ORDERS
from .policies import POLICY_PROCEDURES
from .precision import PRECISION_PROCEDURES, rare_error, risk_at_three_tenths, usual_error
from .procedures import PROCEDURES as OF_ARRAYS
from .procedures import Setting, groups_of, mean_quality
from .runs import RUN_ORDERS, RUN_PROCEDURES
from .worlds import ALL_WORLDS, K_MAX, WORLDS, make_world, named

PROCEDURES = (
    OF_ARRAYS
    | POLICY_PROCEDURES
    | ANSWER_PROCEDURES
    | DEPLOYMENT_PROCEDURES
    | DEPLOYED_PROCEDURES
    | AUDIT_PROCEDURES
    | CLAIM_PROCEDURES
    | ORDER_PROCEDURES
    | PRECISION_PROCEDURES
    | RUN_PROCEDURES
    | named(estimators, files, command_line, component_files)
)

SET_SCORES: tuple[str | Callable, ...] = ("first_k", "first_k_reject", "max", "sum", mean_quality)

#: An ordinary calibration set, a tiny one, and levels that only some worlds can reach.
SETTINGS = (Setting(150, 0.3, 0.1), Setting(24, 0.45, 0.2), Setting(150, 0.12, 0.1))

#: How far inside, or outside, the risk of always taking all draws epsilon is put.
EDGES = (-0.005, 0.005)


@dataclass(frozen=True)
class Cell:
    """One cell of the study: what is calibrated how, in which world."""

    procedure: str
    world: str
    set_score: str | Callable
    setting: Setting

    @property
    def allowed(self) -> float:
        """Largest probability of failure that the theory allows."""
        if self.procedure == "marginal":
            return self.setting.epsilon
        return self.setting.delta * (2 if self.procedure == "both" else 1)

    @property
    def least(self) -> float:
        """Probability of failure of a calibration that gives nothing away.

        Where the threshold is the r-th largest of n values that hardly repeat, its risk is above
        epsilon exactly as often as at most r - 1 of them lie above the quantile at 1 - epsilon. A
        calibration that fails more rarely keeps less than it may. 0, where that is not known.
        """
        if self.procedure not in EXACT_PROCEDURES:
            return 0.0
        n, epsilon, delta = self.setting.n, self.setting.epsilon, self.setting.delta
        return float(binom.cdf(critical_count(n, epsilon, delta), n, epsilon))

    @property
    def cost(self) -> int:
        """Roughly how many calibrations of arrays one calibration takes as long as."""
        slow = ("estimators", "files", "command_line", *CHOICES, *LEVELS_IN_ORDERS)
        slow += tuple(RUN_PROCEDURES)
        return 10 if self.procedure in slow else 1

    @property
    def set_score_name(self) -> str:
        return self.set_score if isinstance(self.set_score, str) else self.set_score.__name__


@dataclass(frozen=True)
class CellResult:
    """Failures among the calibrations of a cell, with a 99.9 % Clopper-Pearson interval."""

    cell: Cell
    n_calibrations: int
    n_null: int
    n_failed: int

    @property
    def frequency(self) -> float:
        return self.n_failed / self.n_calibrations

    @property
    def interval(self) -> tuple[float, float]:
        result = binomtest(self.n_failed, self.n_calibrations)
        return tuple(result.proportion_ci(0.999, method="exact"))

    @property
    def holds(self) -> bool:
        """Whether the interval reaches down to what is allowed, and up to what is exact."""
        low, high = self.interval
        return low <= self.cell.allowed and high >= self.cell.least


def first_k_error(world: str) -> float:
    """Risk of always returning all draws: the lower end of the achievable band."""
    return float(1 - make_world(world).population.admissible.any(axis=1).mean())


def hard_group_error(world: str) -> float:
    """The same within the hard group."""
    made = make_world(world)
    hard = made.population.admissible[groups_of(made) == 1]
    return float(1 - hard.any(axis=1).mean())


def path_cell(procedure: str, world: str, n: int) -> Cell:
    """Epsilon just under the risk of returning the first four draws, or of any number of them."""
    risks = path_risks(
        world, shifted=procedure.startswith("weights"), shares=procedure.startswith("losses")
    )
    # where all risks are 1, each certificate is an error
    epsilon = min(float(risks[K_MAX // 2]) - 0.003, 0.95)
    return Cell(procedure, world, "first draws", Setting(n, epsilon, 0.1))


def deployed_cells() -> Iterator[Cell]:
    """What estimators are asked for besides, at levels that are mostly within reach."""
    made = make_world("mixed")
    hard = hard_group_error("mixed")
    yield Cell("sampler_groups_each", "mixed", "max", Setting(100, hard + 0.2, 0.1))
    yield Cell("sampler_groups_all", "mixed", "max", Setting(160, hard + 0.1, 0.1))
    missed = ~made.population.admissible.any(axis=1)
    shifted = float(np.average(missed, weights=prompt_weights("mixed")))
    yield Cell("sampler_shift", "mixed", "max", Setting(100, shifted + 0.15, 0.1))
    share = float(1 - made.population.admissible[:, 0].mean())
    yield Cell("sampler_losses", "mixed", "first_k", Setting(60, share + 0.2, 0.1))


def audit_cell(procedure: str, judge: str, world: str = "mixed") -> Cell:
    """Epsilon just under the risk of all draws or components: each certificate is an error.

    The set score of such a cell is the name of its judge.
    """
    return Cell(procedure, world, judge, Setting(150, risk_of_all(world, procedure) - 0.003, 0.1))


def claim_cell(procedure: str) -> Cell:
    """A level that is within reach: of many thresholds the risk of some is just above it."""
    return Cell(procedure, "mixed", "max", Setting(150, CLAIM_LEVELS[procedure], 0.1))


def margin_cell() -> Cell:
    """Epsilon below the risk of selecting what scores as the usual answer."""
    return Cell("margins_of_a_batch", "mixed", "max", Setting(400, usual_error() - 0.03, 0.05))


def order_cell(procedure: str, world: str) -> Cell:
    """Epsilon just under the risk of all draws: each certificate is an error."""
    epsilon = max(first_k_error(world) - 0.001, 0.05)  # in one world no prompt is missed
    if world == "wrong_on_one_topic":
        return Cell(procedure, world, "max", Setting(425, epsilon, 0.05))
    return Cell(procedure, world, "first_k", Setting(150, epsilon, 0.1))


def run_cells() -> Iterator[Cell]:
    """Gates of runs: each certificate that is counted is an error.

    The set score of such a cell is the order of its runs.
    """
    for procedure in RUN_PROCEDURES:
        world = "mixed" if procedure == "passed_runs" else "heavy_ties"
        for order in RUN_ORDERS:
            for n, alpha in ((60, 0.2), (300, 0.1), (1000, 0.1)):
                yield Cell(procedure, world, order, Setting(n, alpha, 0.1))


def all_cells() -> Iterator[Cell]:
    """Every cell of the study."""
    for world in WORLDS:
        for set_score in SET_SCORES:
            for setting in SETTINGS:
                yield Cell("response_sets", world, set_score, setting)
    for world in ("mixed", "adversarial_quality", "heavy_ties"):
        for set_score in SET_SCORES:
            for shift in EDGES:
                edge = Setting(150, first_k_error(world) + shift, 0.1)
                yield Cell("response_sets", world, set_score, edge)
            yield Cell("chosen_budget", world, set_score, SETTINGS[0])
            yield Cell("conservative_admission", world, set_score, Setting(150, 0.4, 0.1))
        for setting in (Setting(150, 0.5, 0.1), Setting(24, 0.6, 0.2), Setting(150, 0.3, 0.1)):
            yield Cell("components", world, "max", setting)
        yield Cell("component_files", world, "max", Setting(150, 0.5, 0.1))
        for procedure in ("groups_each", "groups_all"):
            for shift in (EDGES[0], 0.15):
                edge = Setting(200, hard_group_error(world) + shift, 0.1)
                yield Cell(procedure, world, "max", edge)
        yield Cell("both", world, "max", Setting(150, 0.4, 0.1))
        yield Cell("both", world, "sum", Setting(150, 0.5, 0.1))
    for world in WORLDS:
        within_reach = min(max(0.3, first_k_error(world) + 0.05), 0.95)
        for n in (60, 150, 400, 1500):
            yield Cell("exit_policy", world, "exit policy", Setting(n, within_reach, 0.1))
        yield Cell("near_copies", world, "exit policy", Setting(150, within_reach, 0.1))
        for n in (60, 1500):
            yield Cell("marginal", world, "exit policy", Setting(n, within_reach, 0.1))
        yield Cell("lazy_thresholds", world, "max", Setting(60, within_reach, 0.1))
    for world in ("mixed", "all_duplicates", "never_admissible"):
        within_reach = min(max(0.3, first_k_error(world) + 0.05), 0.95)
        for n in (60, 1500):
            yield Cell("meaningless_policy", world, "exit policy", Setting(n, within_reach, 0.1))
            yield Cell("cascade", world, "exit policy", Setting(n, within_reach, 0.1))
            yield Cell("unlabeled_policy", world, "exit policy", Setting(n, within_reach, 0.1))
        yield Cell("lazy_thresholds", world, "max", Setting(400, within_reach, 0.1))
    for world in ("mixed", "heavy_ties", "useless_quality"):
        for procedure in ANSWER_PROCEDURES:
            # of 60 prompts a choice is a vote
            for n in (300,) if procedure in CHOICES else (60, 300, 1500):
                yield Cell(procedure, world, "answers", Setting(n, 0.2, 0.1))
        yield Cell("coin_choices", world, "answers", Setting(1500, 0.2, 0.1))
    for world in ("mixed", "useless_quality", "all_duplicates"):
        for procedure in DEPLOYMENT_PROCEDURES:
            for n in (60, 300, 1500):
                yield path_cell(procedure, world, n)
    yield from deployed_cells()
    for world in ("mixed", "all_duplicates"):
        for shift in (0.03, 0.1):
            edge = Setting(150, first_k_error(world) + shift, 0.1)
            yield Cell("scores_of_a_batch", world, "max", edge)
            yield Cell("scores_of_a_batch", world, "sum", edge)
            yield Cell("arrays_of_lower_precision", world, "max", edge)
            yield Cell("exit_levels_of_a_batch", world, "exit policy", edge)
        sums = Setting(1500, risk_at_three_tenths(world) - 0.001, 0.1)
        yield Cell("sums_in_half_precision", world, "sum", sums)
        for shift in EDGES:
            edge = Setting(150, rare_error(world) + shift, 0.1)
            yield Cell("components_of_a_batch", world, "max", edge)
    yield margin_cell()
    for procedure in AUDIT_PROCEDURES:
        for judge in JUDGES:
            yield audit_cell(procedure, judge)
    for procedure in CLAIM_PROCEDURES:
        yield claim_cell(procedure)
    for procedure in THRESHOLDS_IN_ORDERS:
        for world in ALL_WORLDS:
            yield order_cell(procedure, world)
    for procedure in LEVELS_IN_ORDERS:
        yield order_cell(procedure, "wrong_on_one_topic")
    yield from run_cells()
    for world in ("mixed", "heavy_ties"):
        for name in ("estimators", "files", "command_line"):
            yield Cell(name, world, "max", Setting(60, first_k_error(world) + 0.1, 0.1))


def outcomes_of(cell: Cell, n_calibrations: int, seed: int = 0, procedure=None) -> Iterator:
    """What the cell's procedure, or another in its place, says on fresh calibration sets."""
    run = procedure or PROCEDURES[cell.procedure]
    world = make_world(cell.world)
    # the name, not its hash: that differs between processes
    key = [seed, *cell.set_score_name.encode(), *cell.world.encode(), cell.setting.n]
    for repeat in range(n_calibrations):
        yield run(world, cell.set_score, cell.setting, np.random.default_rng([*key, repeat]))


def run_cell(cell: Cell, n_calibrations: int, seed: int = 0, procedure=None) -> CellResult:
    """Repeat the procedure, and count its failures."""
    outcomes = [*outcomes_of(cell, n_calibrations, seed, procedure)]
    return CellResult(cell, n_calibrations, outcomes.count(None), outcomes.count(True))


def is_noticed(cell: Cell, n_calibrations: int, procedure=None) -> bool:
    """Whether so many calibrations do not hold.

    No further one is made once so many have failed that all others could not change it.
    """
    too_many = bisect.bisect_right(
        range(n_calibrations + 1),
        cell.allowed,
        key=lambda n_failed: CellResult(cell, n_calibrations, 0, n_failed).interval[0],
    )
    n_failed = 0
    for outcome in outcomes_of(cell, n_calibrations, procedure=procedure):
        n_failed += bool(outcome)
        if n_failed >= too_many:
            return True
    return not CellResult(cell, n_calibrations, 0, n_failed).holds


def run_study(cells, n_calibrations: int, *, n_jobs: int | None = None, verbose: int = 0):
    """Results of all cells, in order."""
    return Parallel(n_jobs=n_jobs, verbose=verbose)(
        delayed(run_cell)(cell, max(n_calibrations // cell.cost, 20)) for cell in cells
    )
