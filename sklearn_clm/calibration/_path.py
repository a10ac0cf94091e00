"""Paths of thresholds: which configurations are tested, in which order, and what each one makes.

The optimisation part lays out a grid of thresholds and keeps the Pareto frontier of loss and
objective, from the safest configuration on. Whatever path comes of it, fixed sequence testing on
*other* prompts holds; a bad one only certifies less. A step of the path makes of each prompt a set
of accepted draws and a number of draws taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration._data import CalibrationData, check_data, prompt_digests
from sklearn_clm.calibration._engine._stopping import scores_of_prefixes
from sklearn_clm.calibration._grid import threshold_grid
from sklearn_clm.calibration._pareto import pareto_frontier
from sklearn_clm.calibration._rule import Configuration
from sklearn_clm.calibration._set_scores import SetScore, SetScoreLike, get_set_score
from sklearn_clm.calibration._surface import (
    ConfigurationRisks,
    Weights,
    evaluate_configurations,
    sum_over_grid,
)
from sklearn_clm.calibration._table import Table


@dataclass(frozen=True)
class Frontier:
    """The configurations to be tested, in the order of testing: from the safest.

    The first accepts everything: no rejection, no stop before the largest budget is used up. No
    configuration errs on fewer prompts, so that it passes whenever any other does. The second is
    the same without responses that are nearly equal to earlier ones, where that cost no error on
    the optimisation part: certified next to nothing else, it spares users sets full of copies.

    Parameters
    ----------
    lambdas : ndarray of shape (m, 3)
        Thresholds (similarity, quality, set score).
    k_max : ndarray of int, shape (m,)
        Budgets.
    loss, objective : ndarray of shape (m,)
        Mean loss (ascending) and objective (descending) on the optimisation part.
    seen : ndarray of uint64, shape (n, 1) or (n, 2), or None
        Digests by which the n prompts that were searched are known again, of their scores and of
        the prompts themselves, as far as these are known; None where nothing is.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import Frontier
    >>> frontier = Frontier(
    ...     lambdas=np.array([[np.inf, 0.1, 2.0], [0.8, 0.3, 1.0]]),
    ...     k_max=np.array([20, 20]),
    ...     loss=np.array([0.1, 0.3]),
    ...     objective=np.array([2.5, 1.0]),
    ... )
    >>> len(frontier)
    2
    """

    lambdas: np.ndarray
    k_max: np.ndarray
    loss: np.ndarray
    objective: np.ndarray
    seen: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lambdas)

    def __repr__(self) -> str:
        return f"Frontier(n_configurations={len(self)})"

    def configuration(self, m: int) -> Configuration:
        """The thresholds of step m."""
        return Configuration(*self.lambdas[m].tolist())

    def ordered(self, order: np.ndarray) -> "Frontier":
        """The same configurations in another order."""
        return Frontier(
            self.lambdas[order],
            self.k_max[order],
            self.loss[order],
            self.objective[order],
            self.seen,
        )


def search_frontier(
    optimization: CalibrationData,
    *,
    set_score: SetScoreLike = "max",
    n_lambdas: int = 25,
    size_weight: float = 0.5,
    excess_weight: float = 0.5,
    draw_weight: float = 0.0,
    k_max: int | Sequence[int] | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Frontier:
    """Search the configurations that are worth testing.

    Parameters
    ----------
    optimization : CalibrationData
        Prompts that will not calibrate. Labels that were estimated shape the search alone.
    set_score, n_lambdas, size_weight, excess_weight, draw_weight, k_max, n_jobs, verbose
        As in :func:`learn_then_test`.

    Returns
    -------
    Frontier
        *Accept everything*, the same without copies, then the Pareto frontier from the safest
        configuration on.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, learn_then_test, search_frontier
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((600, 5))
    >>> data = CalibrationData(quality, rng.random((600, 5, 5)), rng.random((600, 5)) < quality)
    >>> frontier = search_frontier(data.take(np.arange(200)))
    >>> learn_then_test(data.take(np.arange(200, 600)), 0.3, frontier=frontier).n_calibration
    400
    """
    check_data(optimization)
    budgets = check_budgets(k_max, optimization.k_max)
    weights = check_weights_of_objective(size_weight, excess_weight, draw_weight)
    optimization = optimization.truncate(int(budgets.max()))
    score = get_set_score(set_score)
    l1, l2, l3 = threshold_grid(optimization, set_score=score, n_lambdas=n_lambdas)
    risks = sum_over_grid(optimization, l1, l2, l3, score, budgets, n_jobs, verbose)
    # the frontier keeps the first of several equals, so the most cautious comes first: the least
    # rejection, the largest budget, the latest stop
    loss, objective = (
        np.flip(costs, axis=(0, 2, 3)).ravel() for costs in (risks.loss, risks.objective(**weights))
    )
    chosen = pareto_frontier(np.column_stack((loss, objective)))
    if chosen[0] != 0:
        # position 0 accepts everything. Another may err as rarely on this part, but none does on
        # the calibration part: tested first, it costs no power and spares needless nulls
        chosen = np.concatenate(([0], _without_copies(loss, objective, len(l1), chosen), chosen))
    a, b, k, c = np.unravel_index(chosen, risks.loss.shape)
    return Frontier(
        lambdas=np.column_stack((l1[::-1][a], l2[b], l3[::-1][c])),
        k_max=budgets[::-1][k],
        loss=loss[chosen],
        objective=objective[chosen],
        seen=prompt_digests(optimization),
    )


def _without_copies(
    loss: np.ndarray, objective: np.ndarray, n_similarities: int, chosen: np.ndarray
) -> np.ndarray:
    """Position of what accepts everything but near copies, if it errs as rarely and is not chosen.

    Similarity thresholds descend along the first axis of the flattened grid.
    """
    step = len(loss) // n_similarities
    places = np.arange(1, n_similarities) * step
    rejecting = places[objective[places] < objective[0]][:1]
    return rejecting[(loss[rejecting] == loss[0]) & ~np.isin(rejecting, chosen)]


def check_weights_of_objective(
    size_weight: float, excess_weight: float, draw_weight: float
) -> Weights:
    """The weights, finite and at least 0."""
    for name, weight in zip(Weights.__annotations__, (size_weight, excess_weight, draw_weight)):
        if not isinstance(weight, Real) or not 0.0 <= weight < math.inf:
            raise ValueError(f"{name} must be finite and at least 0, got {weight!r}.")
    return {"size_weight": size_weight, "excess_weight": excess_weight, "draw_weight": draw_weight}


def check_budgets(k_max: int | Sequence[int] | None, available: int) -> np.ndarray:
    """The budgets, ascending and distinct."""
    budgets = np.atleast_1d(available if k_max is None else np.asarray(k_max))
    if budgets.ndim != 1 or not len(budgets) or budgets.dtype.kind not in "iu":
        raise ValueError(f"k_max must be an integer or a sequence of integers, got {k_max!r}.")
    if budgets.min() < 1 or budgets.max() > available:
        raise ValueError(
            f"k_max must lie between 1 and {available}, the number of draws in data, got {k_max!r}."
        )
    return np.unique(budgets)


class Column(NamedTuple):
    """What one step makes of n prompts.

    Parameters
    ----------
    accepted : ndarray of bool, shape (n, K)
        The draws in each prompt's set, as far as draws were made.
    samples : ndarray of int, shape (n,)
        Draws taken; the budget where those that were made do not reach the stop.

    Examples
    --------
    See :func:`sets_at_stop`.
    """

    accepted: np.ndarray
    samples: np.ndarray


def sets_at_stop(
    data: CalibrationData, configuration: Configuration, k_max: int, set_score: SetScoreLike
) -> Column:
    """Every prompt's set under one configuration of Algorithm 1.

    Parameters
    ----------
    data : CalibrationData
        Scores of the draws; labels are not looked at.
    configuration : Configuration
        The thresholds.
    k_max : int
        The budget, at most ``data.k_max``.
    set_score : str, callable or SetScore
        The set function F.

    Returns
    -------
    Column
        Accepted draws and draws taken.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, Configuration, sets_at_stop
    >>> data = CalibrationData([[0.1, 0.7, 0.9]], np.zeros((1, 3, 3)), np.zeros((1, 3)))
    >>> column = sets_at_stop(data, Configuration(1.0, 0.5, 0.6), 3, "max")
    >>> column.accepted, column.samples
    (array([[False,  True, False]]), array([2]))
    """
    quality, similarity, score = data.quality, data.similarity, get_set_score(set_score)
    made = np.ones(quality.shape, dtype=bool)
    if data.n_draws is not None:
        made = np.arange(data.k_max) < data.n_draws[:, np.newaxis]
    accepted = (quality >= configuration.quality) & made
    for j in range(1, data.k_max):
        alike = similarity[:, j, :j].astype(np.float64) > configuration.similarity
        accepted[:, j] &= ~np.any(accepted[:, :j] & alike, axis=1)
    not_empty = np.logical_or.accumulate(accepted, axis=1)
    # F changes with an accepted draw alone, unless it counts draws
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


class Columns(Sequence[Column]):
    """What each configuration of a frontier makes of the prompts at `rows` of a table.

    Where draws are missing, a column holds what those that were made show, and :meth:`finish` makes
    the others up to the stop.
    """

    def __init__(
        self,
        table: Table,
        rows: np.ndarray,
        frontier: Frontier,
        set_score: SetScore,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.table, self.rows, self.frontier = table, rows, frontier
        self.set_score, self.n_jobs, self.verbose = set_score, n_jobs, verbose
        self._known: dict[int, tuple[Column, np.ndarray]] = {}  # and how many draws were made then

    def __len__(self) -> int:
        return len(self.frontier)

    def __getitem__(self, m: int) -> Column:  # type: ignore[override]
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

    @cached_property
    def risks(self) -> ConfigurationRisks:
        """Exact errors and costs of all configurations, from a table that is filled."""
        largest = int(np.max(self.frontier.k_max))
        return evaluate_configurations(
            self.table.part(self.rows).truncate(largest),
            self.frontier.lambdas,
            set_score=self.set_score,
            k_max=self.frontier.k_max,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )

    def unfinished(self, m: int) -> np.ndarray:
        """Which prompts lack draws before the stop of configuration m: bool of shape (n,)."""
        made = self.table.n_draws[self.rows]
        if np.all(made == self.table.k_max):
            return np.zeros(len(self.rows), dtype=bool)
        return np.asarray(self[m].samples > made)

    def finish(self, m: int, chosen: np.ndarray | None = None) -> None:
        """Draw the chosen prompts (bool of shape (n,)), or all, up to the stop of step m."""
        while True:
            waiting = self.unfinished(m) if chosen is None else self.unfinished(m) & chosen
            if not waiting.any():
                return
            rows = self.rows[waiting]
            self.table.ensure(rows, self.table.n_draws[rows] + 1)

    def accepts_all(self, m: int) -> bool:
        """Whether step m returns every draw, which errs for no more prompts than any other."""
        similarity, quality, set_score = self.frontier.lambdas[m]
        everything = similarity == np.inf and quality == -np.inf and set_score == np.inf
        return bool(everything and self.frontier.k_max[m] == self.frontier.k_max.max())

    def costs(self, m: int) -> tuple[float, float]:
        """Mean set size and mean draws of step m; NaN where draws are missing."""
        if self.accepts_all(m):
            k_max = float(self.frontier.k_max[m])
            return k_max, k_max
        if self.unfinished(m).any():
            return math.nan, math.nan
        column = self[m]
        return float(column.accepted.sum(axis=1).mean()), float(column.samples.mean())
