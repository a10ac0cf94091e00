"""Pictures of a gate: what it stops, and when."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._exceptions import optional_module
from sklearn_clm.runs._gate import RunGate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class GateDisplay:
    """Runs that are stopped over alpha, and when.

    Create it by :meth:`from_estimator`.

    Parameters
    ----------
    alphas : ndarray of shape (a,)
        Tolerated shares of errors.
    failures, successes : ndarray of shape (a,)
        Of the runs that fail, and of those that succeed, the shares that are stopped; NaN where
        nothing is certified.
    stops : dict of str to ndarray
        Of the stopped runs that "fail" and of those that "succeed", the share of their steps after
        which they are stopped, at the alpha of the gate.
    promise : str
        That of the gate.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was plotted.
    figure_ : matplotlib Figure
        The figure around it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.runs import GateDisplay, RunGate
    >>> rng = np.random.default_rng(0)
    >>> succeeded = rng.random(600) < 0.6
    >>> runs = [rng.normal(good, 1.0, size=rng.integers(2, 9)) for good in succeeded]
    >>> gate = RunGate()
    >>> display = GateDisplay.from_estimator(
    ...     gate, runs[:400], succeeded[:400], runs[400:], succeeded[400:], alphas=[0.1, 0.2]
    ... )
    >>> bool(display.failures[0] < display.failures[1])
    True
    """

    def __init__(
        self,
        alphas: np.ndarray,
        failures: np.ndarray,
        successes: np.ndarray,
        stops: dict[str, np.ndarray],
        promise: str,
    ) -> None:
        self.alphas = alphas
        self.failures = failures
        self.successes = successes
        self.stops = stops
        self.promise = promise

    @classmethod
    def from_estimator(
        cls,
        gate: RunGate,
        X: Sequence[Any],
        y: ArrayLike,
        X_new: Sequence[Any],
        y_new: ArrayLike,
        *,
        alphas: ArrayLike = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3),
    ) -> Self:
        """Try copies of a gate, calibrated at several alphas."""
        levels = np.asarray(alphas, dtype=np.float64)
        succeeded = np.asarray(y_new, dtype=bool)
        failures = np.full(len(levels), np.nan)
        successes = np.full(len(levels), np.nan)
        for i, alpha in enumerate(levels):
            copy = clone(gate).set_params(alpha=float(alpha))
            try:
                stopped = copy.fit(X, y).stopped(X_new)
            except ValueError:  # too few runs for this alpha
                continue
            if copy.claims_[None].holds:
                failures[i] = stopped[~succeeded].mean()
                successes[i] = stopped[succeeded].mean()
        fitted = clone(gate).fit(X, y)
        check_is_fitted(fitted, "levels_")
        steps, is_stopped = fitted.predict(X_new), fitted.stopped(X_new)
        taken = steps / np.array([len(run) for run in X_new])
        stops = {"fail": taken[is_stopped & ~succeeded], "succeed": taken[is_stopped & succeeded]}
        return cls(levels, failures, successes, stops, gate.promise)

    def plot(self, what: str = "shares", *, ax: "Axes | None" = None) -> Self:
        """Draw one of the pictures.

        Parameters
        ----------
        what : {"shares", "steps"}, default="shares"
            Shares of runs that are stopped over alpha, with the diagonal that the promise of
            "keeps" allows; or after which share of their steps runs are stopped.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        if what not in ("shares", "steps"):
            raise ValueError(f"what must be 'shares' or 'steps', got {what!r} instead.")
        pyplot = optional_module("matplotlib.pyplot", "plot", "GateDisplay")
        if ax is None:
            _, ax = pyplot.subplots(figsize=(5.6, 3.4), layout="constrained")
        if what == "shares":
            ax.plot(self.alphas, self.failures, marker="o", label="of the runs that fail")
            ax.plot(self.alphas, self.successes, marker="s", label="of those that succeed")
            if self.promise == "keeps":
                ax.plot(self.alphas, self.alphas, "k:", label="promised at most, of these")
            ax.set(xlabel="alpha", ylabel="share that is stopped", ylim=(0, None))
        else:
            bins = np.linspace(0, 1, 11).tolist()
            ax.hist([*self.stops.values()], bins=bins, label=[f"runs that {k}" for k in self.stops])
            ax.set(xlabel="share of the steps taken until the stop", ylabel="stopped runs")
        ax.legend()
        self.ax_ = ax
        self.figure_ = ax.figure
        return self
