"""Paths: ordered steps, and what each makes of the prompts.

A path is a sequence of rules that was laid out by other prompts, mostly the optimisation part. On
the prompts of a table a step is a column: the members of each prompt's set, and the draws that were
taken for it. What calibrates knows no more of a policy than this.
"""

import copy
from abc import abstractmethod
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np

from sklearn_clm.calibration.certify import Entries
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.risk import Risk
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

    def tally(self, risk: Risk) -> tuple[np.ndarray, np.ndarray] | None:
        """Errors of all steps, and how many prompts count.

        None where they are not counted at once, but step by step.
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


class ColumnPath(TablePath):
    """Steps that each make a column of what was drawn.

    Where draws are missing, a column holds what those that were made show, and :meth:`finish` makes
    the others up to the stop.
    """

    what: ClassVar[str] = "step"
    parts: ClassVar[tuple[str, str]] = ("finds the path", "tests it")

    def __init__(self, table: Table, rows: np.ndarray) -> None:
        self.table = table
        self.rows = rows
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
            column_of_changed = self.column_of(step, self.table.part(self.rows[changed]))
            column.shown[changed] = column_of_changed.shown
            column.samples[changed] = column_of_changed.samples
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
