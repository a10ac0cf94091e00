"""Pictures of a gate: what it stops, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from sklearn_clm import NullCalibrationError
from sklearn_clm.calibration.checks import as_array
from sklearn_clm.inspection.figures import BLUE, DOTTED, LIMIT, RED, AxesLike, Display
from sklearn_clm.runs._gate import RunGate, errors_of, outcomes_of

_SHOWN = {
    "keeps": ("stopped of those that fail", "stopped of those that succeed"),
    "passes": ("stopped of those that fail", "failing of those let through"),
}


@dataclass(kw_only=True, eq=False, repr=False)
class GateDisplay(Display):
    """Runs that are stopped over alpha, and when.

    Left, the share of the failing runs that is stopped over alpha, with what is promised and how it
    was kept; right, after which share of their steps runs are stopped at the alpha of the gate.
    Create it with :meth:`from_estimator`.

    Parameters
    ----------
    alphas : ndarray of shape (a,)
        Tolerated shares of errors.
    shares : dict of str to ndarray of shape (a,)
        By name the share that is stopped of the runs that fail, and the share that alpha is about:
        of those that succeed the stopped ones, or of those let through the failing ones. NaN where
        nothing is certified.
    stops : dict of str to ndarray
        Of the stopped runs that "fail" and of those that "succeed", the share of their steps after
        which they are stopped.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.runs import GateDisplay, RunGate
    >>> rng = np.random.default_rng(0)
    >>> succeeded = rng.random(600) < 0.6
    >>> runs = [rng.normal(good, 1.0, size=rng.integers(2, 9)) for good in succeeded]
    >>> display = GateDisplay.from_estimator(
    ...     RunGate(), runs[:400], succeeded[:400], runs[400:], succeeded[400:], alphas=[0.1, 0.2]
    ... )
    >>> failing, errors = display.shares.values()
    >>> bool(failing[0] < failing[1])
    True
    """

    alphas: np.ndarray
    shares: dict[str, np.ndarray]
    stops: dict[str, np.ndarray]

    title = "What the gate stops, and when"
    shape = (1, 2)
    size = (9.0, 3.6)

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
        ax: AxesLike = None,
    ) -> Self:
        """Calibrate copies of a gate, and plot them.

        Parameters
        ----------
        gate : RunGate
            Its parameters count, but for groups.
        X, y, X_new, y_new
            Runs that calibrate, and new ones, and whether each succeeds, as ``fit`` takes them.
        alphas : array-like of shape (a,)
            Tolerated shares of errors.
        ax
            As in :meth:`plot`.
        """
        fitted = clone(gate).fit(X, y)
        taken, n_steps, stopped = fitted.calibration_.followed(X_new, None)
        # unfinished runs count as the gate counts them in calibration
        outcomes, _ = outcomes_of(y_new, len(taken), gate.unfinished)
        stops = {
            "fail": (taken / n_steps)[stopped & (outcomes == 0)],
            "succeed": (taken / n_steps)[stopped & (outcomes == 1)],
        }

        levels = as_array(alphas, "alphas", (None,), low=0.0, high=1.0)
        shares = {name: np.full(len(levels), np.nan) for name in _SHOWN[gate.promise]}
        for i, alpha in enumerate(levels.tolist()):
            # a level that calibration cannot certify leaves a gap in the curve
            copy = clone(gate).set_params(alpha=alpha, on_null="raise")
            try:
                errors = errors_of(copy.fit(X, y).stopped(X_new), outcomes)
            except NullCalibrationError:
                continue
            for name in shares:
                shares[name][i] = errors[name].mean()
        return cls(alphas=levels, shares=shares, stops=stops).plot(ax=ax)

    def _draw(self) -> None:
        shares, steps = self.axes_
        for (name, of_alphas), color in zip(self.shares.items(), (RED, BLUE)):
            shares.plot(self.alphas, of_alphas, "o-", color=color, label=name)
        # the diagonal: a gate that keeps its promise stays at or under it
        shares.plot(self.alphas, self.alphas, linestyle=DOTTED, label="promised at most", **LIMIT)
        shares.set(xlabel="alpha", ylabel="Share of runs", ylim=(0.0, None))
        labels = [f"stopped runs that {outcome}" for outcome in self.stops]
        bins = np.linspace(0.0, 1.0, 11).tolist()
        shares_of_steps = list(self.stops.values())
        steps.hist(shares_of_steps, bins=bins, color=[RED, BLUE], label=labels)
        steps.set(xlabel="Share of the steps taken until the stop", ylabel="Stopped runs")
