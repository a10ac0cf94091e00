"""The tested sequence of configurations, and where the test stopped."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import critical_count
from sklearn_clm.inspection._figures import (
    BLUE,
    DASHED,
    DOTTED,
    LIMIT,
    RED,
    EstimatorDisplay,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# p-values far in the tail say nothing more
_SMALLEST_P = 1e-6
# open, so that neither hides a point underneath
_OPEN = {"marker": "o", "facecolors": "none", "zorder": 4}


@dataclass(kw_only=True, eq=False, repr=False)
class FrontierDisplay(EstimatorDisplay):
    """Pareto frontier, the sequence of tests along it, and the configuration it chose.

    Every point is one configuration of the frontier, on the left at its objective (Eq. 7) and
    its loss on the calibration part, on the right at its place in the sequence of tests and its
    p-value. The tests start with the safest, and go on while the p-value is at most delta, that
    is, while the loss stays at or under the dashed line; the cross is where they stopped. The
    open star surrounds lambda-hat. The dotted line is the same frontier on the optimisation
    part, where it was found. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    objective, loss : ndarray of shape (n_configurations,)
        On the calibration part, in the order of the tests.
    optimization_objective, optimization_loss : ndarray of shape (n_configurations,)
        The same on the optimisation part.
    p_values : ndarray of shape (n_configurations,)
        On the calibration part.
    n_valid : int
        How many configurations passed, from the first on.
    selected : int or None
        Position of lambda-hat in the sequence; None where none was certified.
    epsilon, delta : float
        The tolerated risk, and the level of the tests.
    n_calibration : int
        Prompts in the calibration part.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.inspection import FrontierDisplay
    >>> objective, loss = np.array([3.0, 2.0, 1.0]), np.array([0.1, 0.15, 0.4])
    >>> display = FrontierDisplay(
    ...     objective=objective,
    ...     loss=loss,
    ...     optimization_objective=objective,
    ...     optimization_loss=loss,
    ...     p_values=np.array([0.0001, 0.0004, 0.98]),
    ...     n_valid=2,
    ...     selected=1,
    ...     epsilon=0.3,
    ...     delta=0.05,
    ...     n_calibration=100,
    ... )
    >>> round(display.critical_loss, 2)
    0.22
    """

    objective: np.ndarray
    loss: np.ndarray
    optimization_objective: np.ndarray
    optimization_loss: np.ndarray
    p_values: np.ndarray
    n_valid: int
    selected: int | None
    epsilon: float
    delta: float
    n_calibration: int

    title = "Frontier of configurations"
    shape = (1, 2)
    size = (9.6, 4.1)
    least = 1
    wanted = "be calibrated with thresholds, and with enough prompts for a test"

    @property
    def critical_loss(self) -> float:
        """Largest loss on the calibration part that passes a test; NaN if even 0 does not."""
        count = critical_count(self.n_calibration, self.epsilon, self.delta)
        return np.nan if count < 0 else count / self.n_calibration

    @classmethod
    def _of(cls, estimator: ConformalSampler) -> Self | None:
        result, weights = estimator.calibration_.result, estimator.calibration_.weights
        if result is None:
            return None
        return cls(
            objective=np.asarray(result.risks.objective(**weights)),
            loss=np.asarray(result.risks.loss),
            optimization_objective=np.asarray(result.frontier.objective),
            optimization_loss=np.asarray(result.frontier.loss),
            p_values=np.asarray(result.p_values),
            n_valid=len(result.valid_lambdas),
            selected=result.position,
            epsilon=result.epsilon,
            delta=result.delta,
            n_calibration=result.n_calibration,
        )

    def _draw(self) -> None:
        self._plot_frontier(self.axes_[0])
        if len(self.axes_) == 2:
            self._plot_tests(self.axes_[1])

    def _plot_frontier(self, axes: "Axes") -> None:
        found = self.optimization_objective, self.optimization_loss
        label = "frontier, optimisation part"
        axes.plot(*found, color="0.5", linestyle=DOTTED, linewidth=1.0, label=label)
        self._points(axes, self.objective, self.loss)
        axes.axhline(self.epsilon, label=f"$\\epsilon$ = {self.epsilon:.3g}", **LIMIT)
        if not np.isnan(self.critical_loss):
            label = f"largest loss that passes, $\\delta$ = {self.delta:g}"
            axes.axhline(self.critical_loss, linestyle=DASHED, label=label, **LIMIT)
        axes.set_xlabel("Objective of Eq. 7 (size and excess draws)")
        # one costly rule would squeeze all others onto the axis
        typical = float(np.median(self.objective))
        if 0.0 < 5.0 * typical < float(np.max(self.objective)):
            axes.set_xscale("symlog", linthresh=typical)
        axes.set_ylabel(f"Loss (n = {self.n_calibration})")
        # the end of the frontier, which returns next to nothing, would squeeze all the rest
        top = max(2.0 * self.epsilon, 1.5 * float(self.loss[0]), 0.2)
        axes.set_ylim(0.0, min(1.05 * max(float(self.loss.max()), self.epsilon), top))

    def _plot_tests(self, axes: "Axes") -> None:
        order = np.arange(1, len(self.p_values) + 1)
        self._points(axes, order, np.maximum(self.p_values, _SMALLEST_P))
        axes.axhline(self.delta, linestyle=DASHED, **LIMIT)
        above: dict[str, Any] = {"textcoords": "offset points", "fontsize": "x-small"}
        axes.annotate(f"$\\delta$ = {self.delta:g}", (1, self.delta), (0, 3), **above)
        axes.set_yscale("log")
        axes.set_ylim(_SMALLEST_P / 2.0, 2.0)
        axes.set_xlabel("Order of the tests, from the safest")
        axes.set_ylabel(f"p-value (no less than {_SMALLEST_P:g} shown)")
        axes.set_title("Their tests", fontsize="medium", loc="left")

    def _points(self, axes: "Axes", x: np.ndarray, y: np.ndarray) -> None:
        n, stop = len(x), self.n_valid
        axes.plot(x, y, color="0.8", linewidth=0.8, zorder=1)
        parts: list[tuple[int, int, str, dict[str, Any]]] = [
            (0, stop, f"valid ({stop})", {"marker": "o", "c": BLUE, "s": 13, "zorder": 3}),
            (stop + 1, n, f"not tested ({n - stop - 1})", {**_OPEN, "edgecolors": "0.5", "s": 13}),
        ]
        if self.selected is not None:
            star = {**_OPEN, "marker": "*", "edgecolors": "black", "s": 190, "linewidths": 1.1}
            parts.append((self.selected, self.selected + 1, r"$\hat{\lambda}$", star))
        cross = {"marker": "x", "c": RED, "s": 40, "linewidths": 1.8, "zorder": 5}
        parts.append((stop, stop + 1, "first failure, tests stop", cross))
        for first, end, label, style in parts:
            if first < min(end, n):
                axes.scatter(x[first:end], y[first:end], label=label, **style)
