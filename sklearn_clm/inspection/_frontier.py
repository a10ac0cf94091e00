"""The tested sequence of configurations, and where the test stopped."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import LearnThenTestResult, critical_count
from sklearn_clm.calibration.surface import Weights
from sklearn_clm.inspection.figures import BLUE, DASHED, DOTTED, LIMIT, RED, EstimatorDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# p-values far in the tail say nothing more
_SMALLEST_P = 1e-6
# open, so that neither hides a point underneath
_OPEN = {"marker": "o", "facecolors": "none", "zorder": 4}


@dataclass(kw_only=True, eq=False, repr=False)
class FrontierDisplay(EstimatorDisplay):
    """Pareto frontier, and the sequence of tests along it.

    Every point is one configuration of the frontier, on the left at its objective (Eq. 7) and
    its loss on the calibration part, on the right at its place in the sequence of tests and its
    p-value. The tests go on while the p-value is at most delta; the cross is where they stopped.
    Where all prompts count, that is while the loss stays at or under the dashed line of the left
    panel; where sets that abstain do not count, tests differ in the loss that passes, and there is
    no such line. The ring surrounds lambda-hat. The dotted line is the same frontier on the
    optimisation part, where it was found. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    result : LearnThenTestResult
        Configurations in the order of their tests, and what came of these.
    weights : dict of str to float
        Weights of the objective.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, learn_then_test
    >>> from sklearn_clm.inspection import FrontierDisplay
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((600, 8))
    >>> right = rng.random((600, 8)) < quality**2 * rng.random((600, 1))
    >>> data = CalibrationData(quality, np.zeros((600, 8, 8)), right)
    >>> result = learn_then_test(data, 0.4, random_state=0)
    >>> weights = {"size_weight": 0.5, "excess_weight": 0.5, "draw_weight": 0.0}
    >>> display = FrontierDisplay(result=result, weights=weights).plot()
    >>> round(display.critical_loss, 3)
    0.357
    """

    result: LearnThenTestResult
    weights: Weights

    title = "Frontier of configurations"
    shape = (1, 2)
    size = (9.6, 4.1)
    wanted = "be calibrated with thresholds, and with enough prompts for a test"

    @property
    def critical_loss(self) -> float:
        """Largest loss that passes each test; NaN for none."""
        if self.result.n_counted is not None:
            return np.nan  # it depends on how many prompts count in a test
        n = self.result.n_calibration
        count = critical_count(n, self.result.epsilon, self.result.delta)
        return np.nan if count < 0 else count / n

    @classmethod
    def _of(cls, estimator: ConformalSampler) -> Self | None:
        record = estimator.calibration_
        return None if record.result is None else cls(result=record.result, weights=record.weights)

    def _draw(self) -> None:
        self._plot_frontier(self.axes_[0])
        self._plot_tests(self.axes_[1])

    def _plot_frontier(self, axes: "Axes") -> None:
        result = self.result
        objective = result.risks.objective(**self.weights)
        loss = result.risks.loss
        axes.plot(
            result.frontier.objective,
            result.frontier.loss,
            color="0.5",
            linestyle=DOTTED,
            linewidth=1.0,
            label="frontier, optimisation part",
        )
        self._points(axes, objective, loss)
        axes.axhline(result.epsilon, label=f"$\\epsilon$ = {result.epsilon:.3g}", **LIMIT)
        if not np.isnan(self.critical_loss):
            label = f"largest loss that passes, $\\delta$ = {result.delta:g}"
            axes.axhline(self.critical_loss, linestyle=DASHED, label=label, **LIMIT)
        axes.set_xlabel("Objective of Eq. 7 (size and excess draws)")
        # one costly rule would squeeze all others onto the axis
        typical = float(np.median(objective))
        if 0.0 < 5.0 * typical < float(np.max(objective)):
            axes.set_xscale("symlog", linthresh=typical)
            # its own ticks are powers of ten, and one alone is no scale
            powers_of_ten = 10.0 ** np.arange(-2, 5)
            ticks = np.outer(powers_of_ten, [1.0, 2.0, 5.0]).ravel()
            ticks_drawn = ticks[(ticks > 0.4 * typical) & (ticks < 1.05 * np.max(objective))]
            axes.set_xticks(ticks_drawn, [f"{tick:g}" for tick in ticks_drawn])
        axes.set_ylabel(f"Loss (n = {result.n_calibration})")
        # the end of the frontier, which returns next to nothing, would squeeze all the rest
        top = max(2.0 * result.epsilon, 1.5 * float(loss[0]), 0.2)
        axes.set_ylim(0.0, min(1.05 * max(float(loss.max()), result.epsilon), top))

    def _plot_tests(self, axes: "Axes") -> None:
        p_values = self.result.p_values
        delta = self.result.delta
        self._points(axes, np.arange(1, len(p_values) + 1), np.maximum(p_values, _SMALLEST_P))
        axes.axhline(delta, linestyle=DASHED, **LIMIT)
        above: dict[str, Any] = {"textcoords": "offset points", "fontsize": "x-small"}
        axes.annotate(f"$\\delta$ = {delta:g}", (1, delta), (0, 3), **above)
        axes.set_yscale("log")
        axes.set_ylim(_SMALLEST_P / 2.0, 2.0)  # a logarithmic axis: room below and above points
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("Order of the tests")
        axes.set_ylabel(f"p-value (no less than {_SMALLEST_P:g} shown)")
        axes.set_title("Their tests", fontsize="medium", loc="left")

    def _points(self, axes: "Axes", x: np.ndarray, y: np.ndarray) -> None:
        n = len(x)
        stop = self.result.n_valid
        chosen = self.result.position
        axes.plot(x, y, color="0.8", linewidth=0.8, zorder=1)
        # runs of the sequence: its positions from and to, its label and its style
        parts: list[tuple[int, int, str, dict[str, Any]]] = [
            (0, stop, f"valid ({stop})", {"marker": "o", "c": BLUE, "s": 13, "zorder": 3}),
            (stop + 1, n, f"not tested ({n - stop - 1})", {**_OPEN, "edgecolors": "0.5", "s": 13}),
        ]
        if chosen is not None:
            ring = {**_OPEN, "edgecolors": "black", "s": 110, "linewidths": 1.3}
            parts.append((chosen, chosen + 1, r"$\hat{\lambda}$", ring))
        cross = {"marker": "x", "c": RED, "s": 40, "linewidths": 1.8, "zorder": 5}
        parts.append((stop, stop + 1, "first failure, tests stop", cross))
        for first, end, label, style in parts:
            if first < min(end, n):
                axes.scatter(x[first:end], y[first:end], label=label, **style)
