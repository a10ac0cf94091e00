"""Paths: ordered steps, and what each makes of the prompts.

A path is a sequence of rules that was laid out by other prompts, mostly the optimisation part. On
the prompts of a table a step is a column: the members of each prompt's set, and the draws that were
taken for it. What calibrates knows no more of a policy than this.
"""

import copy
import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np

from sklearn_clm.calibration._engine import scores_of_prefixes
from sklearn_clm.calibration._rule import Configuration
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.certify import Entries
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.risk import MISSES, Risk, check_counts
from sklearn_clm.calibration.set_scores import SetScore, SetScoreLike, get_set_score
from sklearn_clm.calibration.surface import ConfigurationRisks, evaluate_configurations
from sklearn_clm.calibration.table import DrawEntries, Table


class Column(NamedTuple):
    """Sets and draws of n prompts at one step."""

    # bool (n, K): the members of each set, as far as draws were made. Each text stands there once,
    # by the first of its draws that was accepted
    shown: np.ndarray
    samples: np.ndarray  # (n,): draws taken, the budget where those made do not reach the stop


class Path(Protocol):
    """Ordered steps on n prompts, at `rows` of their data.

    `what` names a step, and `parts` say in a report what the two parts of the data are for. All
    arrays of a step have n entries, those of `members` one for each member. What has a body here
    holds of most paths.
    """

    what: ClassVar[str]
    parts: ClassVar[tuple[str, str]]
    rows: np.ndarray

    @property
    def at_stake(self) -> np.ndarray | None:
        """Prompts that may err, bool; None: all."""
        return None

    def __len__(self) -> int:
        """Number of steps."""

    def members(self, step: int) -> Entries:
        """The members of the sets, with their labels."""

    def sizes(self, step: int) -> np.ndarray:
        """Number of members of each set; NaN where unknown."""

    def draws(self, step: int) -> np.ndarray:
        """Number of draws taken for each prompt."""

    def on(self, rows: np.ndarray) -> Self:
        """The steps of this path, on other prompts."""

    def laid_out(self) -> Self:
        """All steps that differ for these prompts, in order."""
        return self

    def expected_losses(self) -> np.ndarray | None:
        """What each step is expected to err, if known."""
        return None

    def unfinished(self, step: int) -> np.ndarray:
        """Which prompts lack draws before their stop, bool."""

    def finish(self, step: int, chosen: np.ndarray | None = None) -> None:
        """Make the draws of chosen prompts up to the stop."""
        return None  # they were made

    def only(self, step: int) -> Self:
        """The path of this step alone."""

    def tally(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Errors of all steps, and how many prompts count.

        They are those of the one risk that the path is for; None where they are not known at once.
        """
        return None


class TablePath(Path, Protocol):
    """A path on a table that tests may fill."""

    table: Table

    @property
    def at_stake(self) -> np.ndarray | None:
        """Prompts that may err, bool; None: all."""
        at_stake = self.table.at_stake
        return None if at_stake is None else at_stake[self.rows]

    def budget(self, step: int) -> int:
        """The most draws of a prompt at a step."""
        return self.table.k_max

    def likely_last(self, n_allowed: int) -> int:
        """The step that is expected to pass last."""
        return 0


class StoppedSet(NamedTuple):
    """The set of one prompt when Algorithm 1 stops."""

    accepted: tuple[int, ...]  # draws, with those that repeat a text
    n_samples: int  # draws taken
    score: float  # set score F, -inf of an empty set
    by_score: bool  # whether F reached its threshold: otherwise the budget was used up


class StoppedSets(NamedTuple):
    """The sets of n prompts when Algorithm 1 stops."""

    accepted: np.ndarray  # bool (n, K)
    samples: np.ndarray  # (n,): the budget where the draws made do not reach the stop
    score: np.ndarray  # (n,)
    by_score: np.ndarray  # bool (n,)

    def one_by_one(self) -> Iterator[StoppedSet]:
        """The set of each prompt in turn."""
        samples = self.samples.tolist()
        scores = self.score.tolist()
        by_score = self.by_score.tolist()
        for position, is_accepted in enumerate(self.accepted):
            accepted = tuple(np.flatnonzero(is_accepted).tolist())
            yield StoppedSet(accepted, samples[position], scores[position], by_score[position])


def run_algorithm_1(
    data: CalibrationData, configuration: Configuration, k_max: int, set_score: SetScoreLike
) -> StoppedSets:
    """Accepted draws and stop of each prompt (Algorithm 1)."""
    quality = data.quality
    similarity = data.similarity
    score = get_set_score(set_score)
    is_made = np.arange(data.k_max) < data.n_draws[:, np.newaxis]

    # which draws would be accepted, if sampling went on
    accepted = (quality >= configuration.quality) & is_made
    # Algorithm 1: a draw meets the accepted earlier draws, never the rejected ones
    for j in range(1, data.k_max):
        alike = similarity[:, j, :j] > configuration.similarity
        accepted[:, j] &= ~np.any(accepted[:, :j] & alike, axis=1)

    # F after each draw that changes it: an accepted one, or any where F counts draws; an empty set
    # has no score, and never stops
    not_empty = np.logical_or.accumulate(accepted, axis=1)
    is_change = not_empty & is_made if score.counts_draws else accepted
    # draws by prompts, as the scores of prefixes want them: a place of the flattened array names a
    # prompt and the last draw of a prefix
    changes = is_change.T
    places = np.flatnonzero(changes)
    scores = np.full(changes.shape, -np.inf)
    scores.reshape(-1)[places] = scores_of_prefixes(
        score, np.ascontiguousarray(quality.T), np.ascontiguousarray(accepted.T), places
    )

    # the first draw at which F reaches its threshold; the budget stops in any case
    reaches = changes & (scores >= configuration.set_score)
    is_stop = reaches.copy()
    is_stop[k_max - 1] = True
    last = is_stop.argmax(axis=0)
    samples = last + 1
    is_before_stop = np.arange(data.k_max) < samples[:, np.newaxis]

    # F at the stop is that after the last draw which changed it; an empty set has none
    prompts = np.arange(data.n_prompts)
    draw_of_change = np.where(changes, np.arange(data.k_max)[:, np.newaxis], -1)
    last_change = np.maximum.accumulate(draw_of_change, axis=0)[last, prompts]
    return StoppedSets(
        accepted=accepted & is_before_stop,
        samples=samples,
        score=np.where(last_change < 0, -np.inf, scores[last_change, prompts]),
        by_score=reaches[last, prompts],
    )


def sets_at_stop(
    data: CalibrationData, configuration: Configuration, k_max: int, set_score: SetScoreLike
) -> Column:
    """The set of each prompt under a configuration (Algorithm 1).

    Accepted draws that repeat a text count for the set score, and are not shown.
    """
    sets = run_algorithm_1(data, configuration, k_max, set_score)
    shown = sets.accepted.copy()
    if data.texts is not None:
        # from the last draw on, so that those before still say what was accepted
        for j in range(data.k_max - 1, 0, -1):
            same = data.texts[:, :j] == data.texts[:, j, np.newaxis]
            shown[:, j] &= ~np.any(shown[:, :j] & same, axis=1)
    return Column(shown, sets.samples)


class ColumnPath(TablePath):
    """Steps that each make a column of what was drawn.

    Where draws are missing, a column holds what those that were made show, and :meth:`finish` makes
    the others up to the stop.
    """

    what: ClassVar[str] = "step"
    parts: ClassVar[tuple[str, str]] = ("finds the path", "tests it")

    def __init__(self, table: Table, rows: np.ndarray) -> None:
        self.table, self.rows = table, rows
        self._columns: dict[int, tuple[Column, np.ndarray]] = {}  # and the draws made by then

    @abstractmethod
    def __len__(self) -> int:
        """Number of steps."""

    @abstractmethod
    def column_of(self, step: int, data: CalibrationData) -> Column:
        """What a step makes of the draws of some prompts."""

    @abstractmethod
    def only(self, step: int) -> Self:
        """The path of this step alone."""

    def on(self, rows: np.ndarray) -> Self:
        """The steps of this path, on other prompts."""
        path = copy.copy(self)
        ColumnPath.__init__(path, self.table, rows)
        return path

    def __getitem__(self, step: int) -> Column:
        # a column is kept, and asked for anew only for prompts that it may still change
        n_draws = self.table.n_draws[self.rows]
        if step not in self._columns:
            self._columns[step] = self.column_of(step, self.table.part(self.rows)), n_draws
        column, n_draws_before = self._columns[step]
        # further draws change nothing for prompts that have stopped
        has_new_draws = n_draws > n_draws_before
        had_not_stopped = column.samples > n_draws_before
        changed = np.flatnonzero(has_new_draws & had_not_stopped)
        if len(changed):
            columns = self.column_of(step, self.table.part(self.rows[changed]))
            column.shown[changed] = columns.shown
            column.samples[changed] = columns.samples
        self._columns[step] = column, n_draws
        return column

    def members(self, step: int) -> DrawEntries:
        """The members of the sets, and which to ask first."""
        shown, samples = self[step]
        owner, draws = np.nonzero(shown)
        rows = self.rows[owner]
        # a text is as good as its best draw before the stop
        texts = self.table.texts[rows]
        text_of_member = self.table.texts[rows, draws]
        is_same_text = texts == text_of_member[:, np.newaxis]
        is_before_stop = np.arange(self.table.k_max) < samples[owner][:, np.newaxis]
        counts = is_same_text & is_before_stop
        quality = self.table.data.quality[rows]
        best = np.max(quality, axis=1, where=counts, initial=-np.inf)
        return DrawEntries(self.table, rows, draws, owner, len(self.rows), preference=best)

    def sizes(self, step: int) -> np.ndarray:
        """Number of members of each set."""
        return self[step].shown.sum(axis=1)

    def draws(self, step: int) -> np.ndarray:
        """Number of draws taken for each prompt."""
        return self[step].samples

    def unfinished(self, step: int) -> np.ndarray:
        """Prompts that lack draws before the stop of a step."""
        return np.asarray(self[step].samples > self.table.n_draws[self.rows])

    def finish(self, step: int, chosen: np.ndarray | None = None) -> None:
        """Make the draws of chosen prompts up to the stop."""
        while True:
            unfinished = self.unfinished(step) & ~self.table.is_hole(self.rows)
            waiting = unfinished if chosen is None else unfinished & chosen
            if not waiting.any():
                return
            rows = self.rows[waiting]
            # one draw each, then the rule looks again: none is made beyond the stop
            self.table.ensure(rows, self.table.n_draws[rows] + 1)


class ThresholdPath(ColumnPath):
    """The configurations of a frontier, from the safest."""

    what: ClassVar[str] = "configuration"
    parts: ClassVar[tuple[str, str]] = ("finds the frontier", "tests it")

    def __init__(
        self,
        table: Table,
        rows: np.ndarray,
        frontier: Frontier,
        set_score: SetScore,
        risk: Risk = MISSES,
    ) -> None:
        super().__init__(table, rows)
        check_counts(risk, table.k_max)
        self.frontier = frontier
        self.set_score = set_score
        self.risk = risk

    def __len__(self) -> int:
        return len(self.frontier)

    def budget(self, step: int) -> int:
        return int(self.frontier.k_max[step])

    def column_of(self, step: int, data: CalibrationData) -> Column:
        configuration = self.frontier.configuration(step)
        return sets_at_stop(data, configuration, self.budget(step), self.set_score)

    def stopped_sets(self, step: int) -> Iterator[StoppedSet]:
        """The set of each prompt at a step, repetitions included."""
        configuration = self.frontier.configuration(step)
        data = self.table.part(self.rows)
        sets = run_algorithm_1(data, configuration, self.budget(step), self.set_score)
        return sets.one_by_one()

    def only(self, step: int) -> Self:
        alone = self.frontier.ordered(np.array([step]))
        return type(self)(self.table, self.rows, alone, self.set_score, self.risk)

    def on(self, rows: np.ndarray) -> Self:
        return type(self)(self.table, rows, self.frontier, self.set_score, self.risk)

    @cached_property
    def risks(self) -> ConfigurationRisks:
        """Exact errors and costs of all steps (filled tables)."""
        lambdas = self.frontier.lambdas
        budgets = self.frontier.k_max
        # draws beyond the largest budget are in no set
        part = self.table.part(self.rows).truncate(int(np.max(budgets)))
        return evaluate_configurations(
            part,
            lambdas,
            set_score=self.set_score,
            k_max=budgets,
            risk=self.risk,
            at_stake=self.at_stake,
        )

    def tally(self) -> tuple[np.ndarray, np.ndarray] | None:
        return self._tally if self.table.is_filled else None

    @cached_property
    def _tally(self) -> tuple[np.ndarray, np.ndarray]:
        everybody = np.full(len(self), len(self.rows))
        counted = self.risks.n_counted
        return self.risks.n_errors, everybody if counted is None else counted

    def expected_losses(self) -> np.ndarray:
        return self.frontier.loss

    def likely_last(self, n_allowed: int) -> int:
        # a frontier may stand in another order than that of its losses
        losses = np.maximum.accumulate(self.frontier.loss)
        n_expected = int(np.sum(losses * len(self.rows) <= n_allowed))
        return max(n_expected - 1, 1)  # the first step has all draws, and is the dearest to decide

    def sizes(self, step: int) -> np.ndarray:
        sizes = super().sizes(step)
        unfinished = self.unfinished(step)
        if not self.accepts_all(step) or not unfinished.any():
            return sizes
        # the draws of a set that holds all of them need not be made: their number is its size, but
        # where texts are known, since some of them may be equal
        size_of_all = np.nan if self.table.knows_texts else self.budget(step)
        # where a prompt's draws are all made, the size of its set stays known: an empty set may not
        # count
        return np.where(unfinished, size_of_all, sizes)

    def accepts_all(self, step: int) -> bool:
        """Whether a step returns every draw, the safest step."""
        largest = self.frontier.k_max[step] == self.frontier.k_max.max()
        return bool(largest and self.frontier.configuration(step).accepts_all)

    def costs(self, step: int) -> tuple[float, float]:
        """Mean size and draws of a step; NaN if unknown."""
        if not self.accepts_all(step) and self.unfinished(step).any():
            return math.nan, math.nan
        return float(self.sizes(step).mean()), float(self.draws(step).mean())
