"""The tested sequence of configurations, and where the test stopped."""

from typing import Any, Self

import numpy as np
from scipy.special import bdtr

from sklearn_clm.inspection._style import import_pyplot

__all__ = ["FrontierDisplay"]


class FrontierDisplay:
    """Pareto frontier, the sequence of tests along it, and the configuration it chose.

    Every point is one configuration of the frontier, at its objective (Eq. 7) and its loss on
    the calibration part. The tests start with the safest, and go on while the loss stays at or
    under the dashed line, the largest that is significantly below epsilon at level delta; the
    cross is where they stopped. The star is lambda-hat. The thin dotted line is the same
    frontier on the optimisation part, where it was found. Create it with
    :meth:`from_estimator` or :meth:`from_result`.

    Parameters
    ----------
    objective, loss : ndarray of shape (n_configurations,)
        On the calibration part, in the order of the tests.
    optimization_objective, optimization_loss : ndarray of shape (n_configurations,)
        The same on the optimisation part.
    n_valid : int
        How many configurations passed, from the first on.
    selected : int or None
        Position of lambda-hat in the sequence; None for null.
    epsilon, delta : float
        The tolerated risk, and the level of the tests.
    n_calibration : int
        Prompts in the calibration part.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    ax_ : matplotlib Axes
        Its axes.

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
    ...     n_valid=2,
    ...     selected=1,
    ...     epsilon=0.3,
    ...     delta=0.05,
    ...     n_calibration=100,
    ... )
    >>> round(display.critical_loss, 2)
    0.22
    """

    def __init__(
        self,
        *,
        objective: np.ndarray,
        loss: np.ndarray,
        optimization_objective: np.ndarray,
        optimization_loss: np.ndarray,
        n_valid: int,
        selected: int | None,
        epsilon: float,
        delta: float,
        n_calibration: int,
    ) -> None:
        self.objective = objective
        self.loss = loss
        self.optimization_objective = optimization_objective
        self.optimization_loss = optimization_loss
        self.n_valid = n_valid
        self.selected = selected
        self.epsilon = epsilon
        self.delta = delta
        self.n_calibration = n_calibration

    @property
    def critical_loss(self) -> float:
        """Largest loss on the calibration part that passes a test; NaN if even 0 does not."""
        n_errors = np.arange(self.n_calibration + 1)
        passing = bdtr(n_errors, self.n_calibration, self.epsilon) <= self.delta
        return float(passing.sum() - 1) / self.n_calibration if passing[0] else np.nan

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Plot the calibration of a fitted sampler.

        Parameters
        ----------
        estimator : ConformalSampler
            A fitted sampler.
        ax : matplotlib Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        FrontierDisplay
            The display, plotted.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator, "result_")
        return cls.from_result(
            estimator.result_,
            size_weight=estimator.size_weight,
            excess_weight=estimator.excess_weight,
            ax=ax,
        )

    @classmethod
    def from_result(
        cls,
        result: Any,
        *,
        size_weight: float = 0.5,
        excess_weight: float = 0.5,
        ax: Any = None,
    ) -> Self:
        """Plot a result of :func:`~sklearn_clm.calibration.learn_then_test`.

        Parameters
        ----------
        result : LearnThenTestResult
            The result.
        size_weight, excess_weight : float, default=0.5
            The weights of Eq. 7 that it was made with.
        ax : matplotlib Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        FrontierDisplay
            The display, plotted.
        """
        selected = None
        if result.lambda_hat is not None:
            chosen = np.all(result.frontier.lambdas == np.asarray(result.lambda_hat), axis=1)
            chosen &= np.asarray(result.frontier.k_max) == result.k_max_hat
            selected = int(np.flatnonzero(chosen)[0])
        display = cls(
            objective=np.asarray(result.risks.objective(size_weight, excess_weight)),
            loss=np.asarray(result.risks.loss),
            optimization_objective=np.asarray(result.frontier.objective),
            optimization_loss=np.asarray(result.frontier.loss),
            n_valid=len(result.valid_lambdas),
            selected=selected,
            epsilon=result.epsilon,
            delta=result.delta,
            n_calibration=result.n_calibration,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the frontier.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        FrontierDisplay
            This display, with `figure_` and `ax_`.
        """
        if ax is None:
            _, ax = import_pyplot().subplots(figsize=(5.6, 3.9), layout="constrained")
        self.figure_, self.ax_ = ax.figure, ax
        n, stop = len(self.loss), self.n_valid
        ax.plot(
            self.optimization_objective,
            self.optimization_loss,
            color="0.6",
            linestyle=(0, (1, 2)),
            linewidth=1.0,
            label="frontier, optimisation part",
        )
        ax.plot(self.objective, self.loss, color="0.75", linewidth=0.8, zorder=1)
        self._points(slice(0, stop), "o", "#0072B2", "#0072B2", f"valid ({stop})")
        if stop < n:
            self._points(slice(stop, stop + 1), "X", "#D55E00", "#D55E00", "test stopped here", 70)
            if stop + 1 < n:
                untested = f"not tested ({n - stop - 1})"
                self._points(slice(stop + 1, n), "o", "none", "0.45", untested)
        if self.selected is not None:
            chosen = slice(self.selected, self.selected + 1)
            self._points(chosen, "*", "#E69F00", "black", r"$\hat{\lambda}$", 190)
        ax.axhline(
            self.epsilon, color="black", linewidth=1.0, label=f"$\\epsilon$ = {self.epsilon:g}"
        )
        if not np.isnan(self.critical_loss):
            ax.axhline(
                self.critical_loss,
                color="black",
                linewidth=1.0,
                linestyle=(0, (5, 2)),
                label=f"largest loss that passes, $\\delta$ = {self.delta:g}",
            )
        ax.set_xlabel("Objective of Eq. 7 (size and excess draws)")
        ax.set_ylabel(f"Loss (n = {self.n_calibration})")
        ax.set_ylim(bottom=0.0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize="x-small", frameon=False)
        return self

    def _points(
        self, part: slice, marker: str, face: str, edge: str, label: str, size: float = 22
    ) -> None:
        self.ax_.scatter(
            self.objective[part],
            self.loss[part],
            marker=marker,
            facecolors=face,
            edgecolors=edge,
            s=size,
            linewidths=0.9,
            label=label,
            zorder=3 if size < 100 else 4,
        )
