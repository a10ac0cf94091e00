"""The tested sequence of configurations, and where the test stopped."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import LearnThenTestResult, critical_count
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.inspection._figures import BLUE, DASHED, DOTTED, LIMIT, RED, AxesLike, Display
from sklearn_clm.inspection._record import calibrated_one

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# p-values far in the tail say nothing more
_SMALLEST_P = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class FrontierDisplay(Display):
    """Pareto frontier, the sequence of tests along it, and the configuration it chose.

    Every point is one configuration of the frontier, on the left at its objective (Eq. 7) and
    its loss on the calibration part, on the right at its place in the sequence of tests and its
    p-value. The tests start with the safest, and go on while the p-value is at most delta, that
    is, while the loss stays at or under the dashed line; the cross is where they stopped. The
    open star surrounds lambda-hat. The dotted line is the same frontier on the optimisation
    part, where it was found. Create it with :meth:`from_estimator` or :meth:`from_result`.

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

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    axes_ : ndarray of matplotlib Axes, shape (2,) or (1,)
        The frontier and, if there is a second one, the tests.

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

    @property
    def critical_loss(self) -> float:
        """Largest loss on the calibration part that passes a test; NaN if even 0 does not."""
        count = critical_count(self.n_calibration, self.epsilon, self.delta)
        return np.nan if count < 0 else count / self.n_calibration

    @classmethod
    def from_estimator(cls, estimator: ConformalSampler, *, ax: AxesLike = None) -> Self:
        """Plot the calibration of a fitted sampler.

        Parameters
        ----------
        estimator : ConformalSampler
            A fitted sampler.
        ax
            As in :meth:`plot`.

        Returns
        -------
        FrontierDisplay
            The display, plotted.
        """
        record = calibrated_one(estimator, ConformalSampler).calibration_
        if record.result is None:
            raise ValueError(
                "estimator must be calibrated with thresholds, and with enough prompts for a test, "
                f"got one of {record.data.n_prompts} prompts without a frontier instead."
            )
        return cls._of_tests(record.result, record.weights).plot(ax=ax)

    @classmethod
    def from_result(
        cls,
        result: LearnThenTestResult,
        *,
        size_weight: float = 0.5,
        excess_weight: float = 0.5,
        ax: AxesLike = None,
    ) -> Self:
        """Plot a result of :func:`sklearn_clm.calibration.learn_then_test`.

        Parameters
        ----------
        result : LearnThenTestResult
            The result.
        size_weight, excess_weight : float, default=0.5
            The weights of Eq. 7 that it was made with.
        ax
            As in :meth:`plot`.

        Returns
        -------
        FrontierDisplay
            The display, plotted.
        """
        weights = Weights(size_weight=size_weight, excess_weight=excess_weight, draw_weight=0.0)
        return cls._of_tests(result, weights).plot(ax=ax)

    @classmethod
    def _of_tests(cls, result: LearnThenTestResult, weights: Weights) -> Self:
        """The display, not plotted yet."""
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
        groups: list[tuple[slice, str, dict[str, Any]]] = []
        if stop:
            style: dict[str, Any] = {"marker": "o", "c": BLUE, "s": 13, "zorder": 3}
            groups.append((slice(0, stop), f"valid ({stop})", style))
        if stop + 1 < n:
            style = {"marker": "o", "facecolors": "none", "edgecolors": "0.5", "s": 13, "zorder": 2}
            groups.append((slice(stop + 1, n), f"not tested ({n - stop - 1})", style))
        # open, so that neither hides a point underneath
        if self.selected is not None:
            style = {"marker": "*", "facecolors": "none", "edgecolors": "black", "s": 190}
            style |= {"linewidths": 1.1, "zorder": 4}
            groups.append((slice(self.selected, self.selected + 1), r"$\hat{\lambda}$", style))
        if stop < n:
            style = {"marker": "x", "c": RED, "s": 40, "linewidths": 1.8, "zorder": 5}
            groups.append((slice(stop, stop + 1), "first failure, tests stop", style))
        for part, label, style in groups:
            axes.scatter(x[part], y[part], label=label, **style)
