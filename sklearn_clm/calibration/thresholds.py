"""Thresholds: the path of a frontier's configurations."""

import math
from collections.abc import Iterator
from typing import ClassVar, Self

import numpy as np

from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.algorithm_1 import StoppedSet, run_algorithm_1, sets_at_stop
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.path import Column, ColumnPath
from sklearn_clm.calibration.risk import Risk, check_counts
from sklearn_clm.calibration.set_scores import SetScore
from sklearn_clm.calibration.surface import ConfigurationRisks, evaluate_configurations
from sklearn_clm.calibration.table import Table


class ThresholdPath(ColumnPath):
    """The configurations of a frontier, in its order."""

    what: ClassVar[str] = "configuration"
    parts: ClassVar[tuple[str, str]] = ("finds the frontier", "tests it")

    def __init__(
        self, table: Table, rows: np.ndarray, frontier: Frontier, set_score: SetScore
    ) -> None:
        super().__init__(table, rows)
        self.frontier = frontier
        self.set_score = set_score
        self._risks: dict[Risk, ConfigurationRisks] = {}

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
        return type(self)(self.table, self.rows, alone, self.set_score)

    def on(self, rows: np.ndarray) -> Self:
        return type(self)(self.table, rows, self.frontier, self.set_score)

    def risks(self, risk: Risk) -> ConfigurationRisks:
        """Exact errors and costs of all steps (filled tables)."""
        # a whole grid, which a test asks about at each of its steps
        if risk not in self._risks:
            check_counts(risk, self.table.k_max)
            budgets = self.frontier.k_max
            # draws beyond the largest budget are in no set
            part = self.table.part(self.rows).truncate(int(np.max(budgets)))
            self._risks[risk] = evaluate_configurations(
                part,
                self.frontier.lambdas,
                set_score=self.set_score,
                k_max=budgets,
                risk=risk,
                at_stake=self.at_stake,
            )
        return self._risks[risk]

    def tally(self, risk: Risk) -> tuple[np.ndarray, np.ndarray] | None:
        if not self.table.is_filled:
            return None
        risks = self.risks(risk)
        n_counted = risks.n_counted
        if n_counted is None:
            n_counted = np.full(len(self), len(self.rows))
        return risks.n_errors, n_counted

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
