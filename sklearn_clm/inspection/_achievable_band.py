"""How far more draws can take the error: the band of Appendix C."""

from typing import Any, Self

import numpy as np

from sklearn_clm.calibration import clopper_pearson, smallest_epsilon
from sklearn_clm.inspection._style import import_pyplot

__all__ = ["AchievableBandDisplay"]


class AchievableBandDisplay:
    """Error of the first k draws against k: what a budget can achieve (Appendix C).

    With a budget of k_max draws, the achievable and not trivial epsilons lie between the error
    of first-1 and that of first-k_max; the figure shows the latter for every k_max up to the
    number of draws at hand, with exact (Clopper-Pearson) intervals, and the smallest epsilon
    that a calibration of this many prompts is expected to reach. Choose as k_max the smallest k
    whose dashed line is under the epsilon you need. Create it with :meth:`from_estimator` or
    :meth:`from_data`.

    Parameters
    ----------
    error : ndarray of shape (n_draws,)
        Share of the prompts with no admissible response among the first 1, 2, ... draws.
    low, high : ndarray of shape (n_draws,)
        Their confidence intervals.
    reachable : ndarray of shape (n_draws,)
        Smallest epsilon that `n_calibration` prompts with this share of errors reach.
    n_prompts, n_calibration : int
        Prompts that `error` was measured on; prompts in the calibration part.
    confidence, delta : float
        Confidence of the intervals; level of the tests.
    epsilon : float, optional
        An epsilon to mark.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    ax_ : matplotlib Axes
        Its axes.
    """

    def __init__(
        self,
        *,
        error: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        reachable: np.ndarray,
        n_prompts: int,
        n_calibration: int,
        confidence: float = 0.95,
        delta: float = 0.05,
        epsilon: float | None = None,
    ) -> None:
        self.error = error
        self.low = low
        self.high = high
        self.reachable = reachable
        self.n_prompts = n_prompts
        self.n_calibration = n_calibration
        self.confidence = confidence
        self.delta = delta
        self.epsilon = epsilon

    @classmethod
    def from_estimator(cls, estimator: Any, *, confidence: float = 0.95, ax: Any = None) -> Self:
        """Plot the band of a fitted sampler.

        Parameters
        ----------
        estimator : ConformalSampler
            A fitted sampler.
        confidence : float in (0, 1), default=0.95
            Confidence of the intervals.
        ax : matplotlib Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        AchievableBandDisplay
            The display, plotted.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator, "calibration_data_")
        return cls.from_data(
            estimator.calibration_data_,
            epsilon=estimator.epsilon,
            delta=estimator.delta,
            optimization_fraction=estimator.optimization_fraction,
            confidence=confidence,
            ax=ax,
        )

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        epsilon: float | None = None,
        delta: float = 0.05,
        optimization_fraction: float = 1 / 3,
        confidence: float = 0.95,
        ax: Any = None,
    ) -> Self:
        """Plot the band of calibration data, before any calibration.

        Parameters
        ----------
        data : CalibrationData or array-like of bool, shape (n_prompts, n_draws)
            The data, or which draws are admissible.
        epsilon : float, optional
            An epsilon to mark.
        delta : float in (0, 1), default=0.05
            Level of the tests.
        optimization_fraction : float in [0, 1), default=1/3
            Share of the prompts that will not be used for the tests.
        confidence : float in (0, 1), default=0.95
            Confidence of the intervals.
        ax : matplotlib Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        AchievableBandDisplay
            The display, plotted.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_clm.inspection import AchievableBandDisplay
        >>> admissible = np.random.default_rng(0).random((300, 10)) < 0.3
        >>> AchievableBandDisplay.from_data(admissible).error.round(2)[:3]
        array([0.71, 0.45, 0.3 ])
        """
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must be in (0, 1), got {confidence}.")
        admissible = np.asarray(getattr(data, "admissible", data))
        if admissible.ndim != 2 or admissible.size == 0:
            raise ValueError(
                "data must be CalibrationData or a boolean array of shape (n_prompts, n_draws), "
                f"got an array of shape {admissible.shape}."
            )
        found = np.logical_or.accumulate(admissible.astype(bool), axis=1)
        n_errors = np.count_nonzero(~found, axis=0)
        n = len(admissible)
        n_calibration = max(1, n - round(optimization_fraction * n))
        # whole numbers throughout: a quotient may round to just above an integer
        expected = -(-n_errors * n_calibration // n)
        low, high = clopper_pearson(n_errors, n, confidence)
        display = cls(
            error=n_errors / n,
            low=low,
            high=high,
            reachable=smallest_epsilon(expected, n_calibration, delta),
            n_prompts=n,
            n_calibration=n_calibration,
            confidence=confidence,
            delta=delta,
            epsilon=epsilon,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the band.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        AchievableBandDisplay
            This display, with `figure_` and `ax_`.
        """
        if ax is None:
            _, ax = import_pyplot().subplots(figsize=(5.6, 3.9), layout="constrained")
        self.figure_, self.ax_ = ax.figure, ax
        k = np.arange(1, len(self.error) + 1)
        ax.axhspan(
            self.error[-1],
            self.error[0],
            color="0.93",
            lw=0,
            zorder=0,
            label=f"achievable, not trivial: {self.error[-1]:.3f} to {self.error[0]:.3f}",
        )
        ax.errorbar(
            k,
            self.error,
            yerr=[self.error - self.low, self.high - self.error],
            color="#0072B2",
            marker="o",
            markersize=4,
            linewidth=1.6,
            capsize=2,
            label=f"error of first-k, {self.confidence:.0%} interval".replace("%", " %"),
        )
        ax.plot(
            k,
            self.reachable,
            color="#D55E00",
            linestyle=(0, (5, 1.5)),
            marker="s",
            markersize=3.5,
            linewidth=1.4,
            label=f"smallest $\\epsilon$ within reach, n = {self.n_calibration}, "
            f"$\\delta$ = {self.delta:g}",
        )
        if self.epsilon is not None:
            ax.axhline(
                self.epsilon, color="black", linewidth=1.0, label=f"$\\epsilon$ = {self.epsilon:g}"
            )
        ax.set_xlabel("k (budget of draws)")
        ax.set_ylabel(f"Share of {self.n_prompts} prompts without\nan admissible response")
        ax.set_ylim(0.0, min(1.0, 1.1 * max(self.high[0], self.reachable[0])))
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize="x-small", frameon=False)
        return self
