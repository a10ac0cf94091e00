"""Paths of thresholds: what each configuration makes of each prompt."""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._engine import scores_of_prefixes
from sklearn_clm.calibration._rule import Configuration
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration._set_scores import SetScore, SetScoreLike, get_set_score
from sklearn_clm.calibration._surface import ConfigurationRisks, evaluate_configurations
from sklearn_clm.calibration._table import DrawEntries, Table


class Column(NamedTuple):
    """Sets and draws of n prompts at one step."""

    accepted: np.ndarray  # bool (n, K): the draws in each set, as far as draws were made
    samples: np.ndarray  # (n,): draws taken, the budget where those made do not reach the stop


def sets_at_stop(
    data: CalibrationData, configuration: Configuration, k_max: int, set_score: SetScoreLike
) -> Column:
    """The set of each prompt under a configuration (Algorithm 1)."""
    quality, similarity, score = data.quality, data.similarity, get_set_score(set_score)
    made = np.arange(data.k_max) < data.n_draws[:, np.newaxis]
    accepted = (quality >= configuration.quality) & made
    for j in range(1, data.k_max):
        alike = similarity[:, j, :j].astype(np.float64) > configuration.similarity
        accepted[:, j] &= ~np.any(accepted[:, :j] & alike, axis=1)
    not_empty = np.logical_or.accumulate(accepted, axis=1)
    # F changes only with an accepted draw, unless it counts draws
    changes = (not_empty & made if score.counts_draws else accepted).T
    places = np.flatnonzero(changes)
    reached = np.zeros(changes.shape, dtype=bool)
    scores = scores_of_prefixes(
        score, np.ascontiguousarray(quality.T), np.ascontiguousarray(accepted.T), places
    )
    reached.reshape(-1)[places] = scores >= configuration.set_score
    reached[k_max - 1] = True
    samples = reached.argmax(axis=0) + 1
    return Column(accepted & (np.arange(data.k_max) < samples[:, np.newaxis]), samples)


class Columns:
    """Sets and draws of some prompts at each step.

    Where draws are missing, a column holds what those that were made show, and :meth:`finish` makes
    the others up to the stop.
    """

    def __init__(
        self, table: Table, rows: np.ndarray, frontier: Frontier, set_score: SetScore
    ) -> None:
        self.table, self.rows, self.frontier, self.set_score = table, rows, frontier, set_score
        self._known: dict[int, tuple[Column, np.ndarray]] = {}  # and the draws made by then

    def __len__(self) -> int:
        return len(self.frontier)

    def __getitem__(self, m: int) -> Column:
        made = self.table.n_draws[self.rows]
        if m not in self._known:
            self._known[m] = self._column(m, self.rows), made
        column, before = self._known[m]
        # further draws change nothing for prompts that have stopped
        new = np.flatnonzero((made > before) & (column.samples > before))
        if len(new):
            column.accepted[new], column.samples[new] = self._column(m, self.rows[new])
        self._known[m] = column, made
        return column

    def _column(self, m: int, rows: np.ndarray) -> Column:
        k_max = int(self.frontier.k_max[m])
        part = self.table.part(rows)
        return sets_at_stop(part, self.frontier.configuration(m), k_max, self.set_score)

    def members(self, m: int) -> DrawEntries:
        """The members of the sets of step m."""
        owner, draws = np.nonzero(self[m].accepted)
        rows = self.rows[owner]
        quality = self.table.data.quality[rows, draws]
        return DrawEntries(self.table, rows, draws, owner, len(self.rows), preference=quality)

    @property
    def digests(self) -> np.ndarray | None:
        """Digests of the prompts, if known."""
        digests = self.table.data.prompts
        return None if digests is None else digests[self.rows]

    @cached_property
    def risks(self) -> ConfigurationRisks:
        """Exact errors and costs of all steps (filled tables)."""
        lambdas, budgets = self.frontier.lambdas, self.frontier.k_max
        part = self.table.part(self.rows).truncate(int(np.max(budgets)))
        return evaluate_configurations(part, lambdas, set_score=self.set_score, k_max=budgets)

    def unfinished(self, m: int) -> np.ndarray:
        """Prompts that lack draws before the stop of step m."""
        return np.asarray(self[m].samples > self.table.n_draws[self.rows])

    def finish(self, m: int, chosen: np.ndarray | None = None) -> None:
        """Make the draws of chosen prompts up to the stop."""
        while True:
            waiting = self.unfinished(m) if chosen is None else self.unfinished(m) & chosen
            if not waiting.any():
                return
            rows = self.rows[waiting]
            self.table.ensure(rows, self.table.n_draws[rows] + 1)

    def accepts_all(self, m: int) -> bool:
        """Whether step m returns every draw, the safest step."""
        similarity, quality, set_score = self.frontier.lambdas[m]
        everything = similarity == np.inf and quality == -np.inf and set_score == np.inf
        return bool(everything and self.frontier.k_max[m] == self.frontier.k_max.max())

    def costs(self, m: int) -> tuple[float, float]:
        """Mean size and draws of step m; NaN if unknown."""
        if self.accepts_all(m):
            k_max = float(self.frontier.k_max[m])
            return k_max, k_max
        if self.unfinished(m).any():
            return math.nan, math.nan
        column = self[m]
        return float(column.accepted.sum(axis=1).mean()), float(column.samples.mean())
