"""Tests of one step of a path, at level delta.

Each is a valid test of one fixed step, whatever made the path. Of several tests all must pass, with
no correction: the largest of their p-values is a p-value of "some risk is too high".
"""

from collections.abc import Callable, Sequence
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from sklearn_clm.calibration._binomial import (
    binomial_p_value,
    critical_count,
    marginal_count,
    smallest_epsilon,
    smallest_level,
)
from sklearn_clm.calibration._two_phase import two_phase_p_value, two_phase_smallest_epsilon
from sklearn_clm.calibration.betting import audit_p_values, betting_p_value
from sklearn_clm.calibration.certify import (
    Entries,
    count_passed,
    may_ask,
    nth_largest_by_asking,
)
from sklearn_clm.calibration.path import Path, TablePath
from sklearn_clm.calibration.risk import Risk, check_incomplete

PathT = TypeVar("PathT", bound=TablePath)


class Test(Protocol):
    """A test of a path, which may ask for labels."""

    def may_ask(self) -> np.ndarray:
        """Texts that it may still ask for, bool (n, K)."""


class StepTest(Protocol):
    """A test of each step of a path."""

    def passes(self, step: int) -> bool:
        """Whether a step passes."""

    def p_values(self) -> np.ndarray:
        """P-value of each step; NaN where it was not tested."""


class BinomialTest(Generic[PathT]):
    """Exact binomial test of a risk among prompts that count.

    A step passes if at most c of the m prompts that count err, with c the critical count of m; then
    its p-value is at most delta. Which prompts count is known from their draws alone, so that given
    m the errors are binomial. Of a table that is filled, errors are counted. Otherwise labels are
    asked for until enough settled prompts decide: m - c of right sets, or c + 1 of wrong ones.
    """

    def __init__(self, path: PathT, risk: Risk, level: float, delta: float) -> None:
        if not path.table.is_filled:
            check_incomplete(risk, path.table.k_max)
        self.path = path
        self.risk = risk
        self.level = level
        self.delta = delta
        self.n_prompts = len(path.rows)
        # critical counts by the number of prompts that count; of none nothing can be certified
        self._allowed: dict[int, int] = {0: -1}

    @property
    def _passed(self) -> np.ndarray | None:
        """Which steps pass, where all errors are known."""
        # no cached_property: under Python 3.11 it has one lock for all fits, and for forks
        if "_passing" not in self.__dict__:
            self.__dict__["_passing"] = self._found_passing()
        passing: np.ndarray | None = self.__dict__["_passing"]
        return passing

    def _found_passing(self) -> np.ndarray | None:
        tally = self.path.tally(self.risk)
        if tally is None:
            return None
        n_errors, n_counted = tally
        if self.risk.counts_all:
            return np.asarray(n_errors <= self.n_allowed(0))
        # many steps have as many prompts that count: one critical count for each such number
        _, first_steps, place = np.unique(n_counted, return_index=True, return_inverse=True)
        allowed = np.array([self.n_allowed(int(step)) for step in first_steps])
        return np.asarray(n_errors <= allowed[place])

    def n_counted(self, step: int) -> int:
        """How many prompts count at a step."""
        return n_counted_at(self.path, self.risk, step)

    def n_allowed(self, step: int) -> int:
        """How many of these may err; -1 where none may."""
        n_counted = self.n_counted(step)
        if n_counted not in self._allowed:
            self._allowed[n_counted] = int(critical_count(n_counted, self.level, self.delta))
        return self._allowed[n_counted]

    def passes(self, step: int) -> bool:
        """Whether a step passes."""
        if self._passed is not None:
            return bool(self._passed[step])
        allowed = self.n_allowed(step)
        fewest, most = self.errors(step)
        # known labels may decide already; where even no error is one too many nothing can pass
        if allowed < 0 or most <= allowed or fewest > allowed:
            return most <= allowed
        # settled prompts need neither labels nor later draws
        members = self.path.members(step).for_risk(self.risk)
        self.path.finish(step, ~_settled(members))
        members = self.path.members(step).for_risk(self.risk)
        is_settled = nth_largest_by_asking(members, self._decisive(step)) > -np.inf
        return is_settled if self.risk.settled_by == 1 else not is_settled

    def _decisive(self, step: int) -> int:
        """How many settled prompts decide the test of a step.

        If members show that sets are right, it passes once so many are; if they show that sets are
        wrong, it fails once so many are.
        """
        allowed = self.n_allowed(step)
        return self.n_counted(step) - allowed if self.risk.settled_by == 1 else allowed + 1

    def errors(self, step: int) -> tuple[int, int]:
        """Fewest and most possible errors at a step."""
        return errors_at(self.path, self.risk, step)

    def likely_last(self) -> int:
        """The step that is expected to pass last."""
        start = self.path.likely_last(self.n_allowed(0))
        # known labels may show that an earlier step fails
        for step in range(min(start, len(self.path))):
            if self.errors(step)[0] > self.n_allowed(step):
                return step
        return start

    def p_values(self) -> np.ndarray:
        """P-value of each step, where all errors are known."""
        if not self.path.table.is_filled:
            raise ValueError(
                "data must hold all labels, so that the errors of all steps are known, got some "
                "unknown ones instead."
            )
        tally = self.path.tally(self.risk)
        if tally is None:
            # a path that does not count all steps at once is asked for one after the other
            steps = range(len(self.path))
            most_errors = np.array([self.errors(step)[1] for step in steps])
            tally = most_errors, np.array([self.n_counted(step) for step in steps])
        n_errors, n_counted = tally
        return step_p_values(n_errors, n_counted, self.level)

    def may_ask(self) -> np.ndarray:
        """Texts that tests may still ask for, bool (n, K).

        A decided test stays decided, and a witness stays one, so that what no test could ask for
        now will not be asked for later.
        """
        path = self.path
        table = path.table
        is_wanted = np.zeros((self.n_prompts, table.k_max), dtype=bool)
        for step in range(len(path)):
            allowed = self.n_allowed(step)
            fewest, most = self.errors(step)
            if fewest > allowed:
                break  # this step fails, and no later one is tested
            is_undecided = most > allowed
            if is_undecided:
                is_wanted |= self._wanted_at(step)

        # equal responses of a prompt share one verdict
        prompts, draws = np.nonzero(is_wanted)
        texts = table.texts[path.rows[prompts], draws]
        is_text_wanted = np.zeros_like(is_wanted)
        is_text_wanted[prompts, texts] = True
        return is_text_wanted

    def _wanted_at(self, step: int) -> np.ndarray:
        """Draws that one test may ask for, bool (n, K)."""
        path = self.path
        table = path.table
        members = path.members(step).for_risk(self.risk)
        is_wanted = np.zeros((self.n_prompts, table.k_max), dtype=bool)
        chosen = may_ask(members, self._decisive(step))
        _, draws = members.places
        is_wanted[members.owner[chosen], draws[chosen]] = True
        # of prompts that go on any draw to come may be a member
        is_to_come = np.arange(table.k_max) >= table.n_draws[path.rows, np.newaxis]
        is_to_come[:, path.budget(step) :] = False
        is_open = path.unfinished(step) & ~_settled(members)
        goes_on = is_open & ~table.is_hole(path.rows)
        return is_wanted | (is_to_come & goes_on[:, np.newaxis])


class BettingTest:
    """Betting test of a mean loss in [0, 1].

    ``losses(step)`` gives the loss of each prompt's set at a step, of shape (n,). Digests of the
    prompts determine the order of the bets.
    """

    def __init__(
        self,
        name: str,
        path: TablePath,
        losses: Callable[[int], np.ndarray],
        level: float,
        delta: float,
    ) -> None:
        self.name = name
        self._losses = losses
        self.level = level
        self.delta = delta
        self._keys = path.table.digests_of(path.rows)
        # NaN: not tested
        self.means = np.full(len(path), np.nan)
        self._p_values = np.full(len(path), np.nan)

    def passes(self, step: int) -> bool:
        """Whether a step passes."""
        values = self._losses(step)
        self.means[step] = values.mean()
        self._p_values[step] = betting_p_value(values, self.level, keys=self._keys)
        return bool(self._p_values[step] <= self.delta)

    def p_values(self) -> np.ndarray:
        """P-value of each step that was tested; NaN elsewhere."""
        return self._p_values


class NestedTest:
    """Test of all levels of a nested family at once.

    Prompt i errs at level u if and only if V_i < u, with V_i its largest score of a witness. At
    most c prompts may: c is the critical count, or of a marginal guarantee
    floor((n + 1) epsilon) - 1. The highest level that may be used is the (c + 1)-th smallest V.
    """

    def __init__(
        self,
        entries: Entries,
        level: float,
        delta: float,
        guarantee: Literal["pac", "marginal"] = "pac",
    ) -> None:
        n = entries.n_prompts
        self.entries = entries
        self.n_prompts = n
        self.delta = delta
        self.guarantee = guarantee
        self.n_allowed = marginal_count(n, level)
        if guarantee == "pac":
            self.n_allowed = int(critical_count(n, level, delta))

    def highest(self) -> float:
        """The highest level that may be used; -inf if none."""
        # the (c + 1)-th smallest of n values is the (n - c)-th largest
        return nth_largest_by_asking(self.entries, self.n_prompts - self.n_allowed)

    def smallest_level(self, n_errors: int) -> float:
        """The smallest level that tolerates so many errors."""
        if self.guarantee == "pac":
            return float(smallest_epsilon(n_errors, self.n_prompts, self.delta))
        # floor((n + 1) epsilon) - 1 >= n_errors
        return min((n_errors + 1) / (self.n_prompts + 1), 1.0)

    def may_ask(self) -> np.ndarray:
        """Texts that may still be asked for, bool (n, K)."""
        return may_ask(self.entries, self.n_prompts - self.n_allowed).reshape(self.n_prompts, -1)


class TwoPhaseTest:
    """Exact test by a model's verdicts and audits of people.

    Of `n_prompts` the model refuses `n_refused`, and of `n_audited` others people reject
    `n_missed`, as in :func:`two_phase_p_value`.
    """

    def __init__(
        self,
        n_refused: int,
        n_prompts: int,
        n_missed: int,
        n_audited: int,
        level: float,
        delta: float,
    ) -> None:
        self.p_value = float(two_phase_p_value(n_refused, n_prompts, n_missed, n_audited, level))
        self.smallest_level = two_phase_smallest_epsilon(
            n_refused, n_prompts, n_missed, n_audited, delta
        )


class AuditBettingTest:
    """Betting on audits that are made one after the other.

    Each block of prompts is bet on in turn. `losses` are the mean losses of the blocks where people
    reject nothing; a witness that they reject makes that of its block 1.
    """

    def __init__(self, losses: np.ndarray, level: float, delta: float) -> None:
        self._losses = losses.copy()
        self.level = level
        self.delta = delta

    def reject(self, blocks: np.ndarray) -> None:
        """Note that people reject the witness of some blocks."""
        self._losses[blocks] = 1.0

    def blocks_needed(self) -> int:
        """Blocks after which the risk is certified; 0 if never.

        It is supposed that people reject no witness that they have not seen yet.
        """
        # p-values begin with 1, before any block: `argmax` gives 0 where none is small enough
        return int(np.argmax(self._p_values(self.level) <= self.delta))

    def p_value(self, n_blocks: int) -> float:
        """P-value after so many blocks."""
        return float(self._p_values(self.level)[n_blocks])

    def smallest_level(self, n_blocks: int) -> float:
        """The smallest level that so many blocks certify."""

        def certified(level: float) -> bool:
            p_value = self._p_values(level)[n_blocks]
            return bool(p_value <= self.delta)

        return smallest_level(certified)

    def _p_values(self, level: float) -> np.ndarray:
        return audit_p_values(self._losses, level, self.delta)


def step_p_values(n_errors: np.ndarray, n_counted: np.ndarray | int, level: float) -> np.ndarray:
    """P-value of each step; 1 where no prompt counts."""
    # where no prompt counts there is no error either
    n_trials = np.maximum(n_counted, 1)
    p_values = binomial_p_value(n_errors, n_trials, level)
    return np.where(np.asarray(n_counted) > 0, p_values, 1.0)


def errors_at(path: Path, risk: Risk, step: int) -> tuple[int, int]:
    """Fewest and most possible errors at a step.

    Where not all prompts count, draws may be made for it (:func:`counts_at`).
    """
    tally = path.tally(risk)
    if tally is not None:
        n_errors, _ = tally
        exact = int(n_errors[step])
        return exact, exact
    # before the members are looked at, since it may make draws
    may_err = counts_at(path, risk, step)
    if path.at_stake is not None:
        may_err = may_err & path.at_stake
    members = path.members(step).for_risk(risk)
    settled = _settled(members)
    # unknown labels, or draws to come, may settle the others
    not_unwanted = members.labels != 1 - members.wanted
    can_be_settled = members.deciding(not_unwanted) > -np.inf
    is_open = ~settled & (can_be_settled | path.unfinished(step))
    errs = settled if risk.settled_by == 0 else ~settled & ~is_open
    # a prompt that is still open may err, or not: both ends are counted
    fewest = np.sum(may_err & errs)
    most = np.sum(may_err & (errs | is_open))
    return int(fewest), int(most)


def counts_at(path: Path, risk: Risk, step: int) -> np.ndarray:
    """Which prompts count at a step, bool (n,).

    Where not all do, it is asked of their sets: draws are made for it up to the stop.
    """
    if risk.counts_all:
        return np.ones(len(path.rows), dtype=bool)
    path.finish(step)
    # a set that is still empty where draws end early may not stay so
    return risk.counts(path.sizes(step)) | path.unfinished(step)


def n_counted_at(path: Path, risk: Risk, step: int) -> int:
    """How many prompts count at a step.

    Where not all do, draws may be made for it (:func:`counts_at`).
    """
    tally = path.tally(risk)
    if tally is None:
        return int(counts_at(path, risk, step).sum())
    _, n_counted = tally
    return int(n_counted[step])


def open_prompts(path: TablePath, risk: Risk, step: int) -> np.ndarray:
    """Prompts that err because their draws end early, bool."""
    undecided = path.unfinished(step) & path.table.is_hole(path.rows)
    members = path.members(step).for_risk(risk)
    return np.asarray(undecided & ~_settled(members))


def _settled(members: Entries) -> np.ndarray:
    """Prompts that known labels settle."""
    return members.deciding(members.labels == members.wanted) > -np.inf


def count_steps(path: Path, tests: Sequence[StepTest], start: int = 0) -> int:
    """How many steps pass before the first that fails."""

    def passes(step: int) -> bool:
        # no test is left out, so that the largest p-value of a step is known
        passed = [test.passes(step) for test in tests]
        return all(passed)

    return count_passed(passes, len(path), start)
