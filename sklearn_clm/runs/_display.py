"""Pictures of a gate: what it stops, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from sklearn_clm.calibration.checks import as_array
from sklearn_clm.inspection._figures import BLUE, DOTTED, LIMIT, RED, AxesLike, Display
from sklearn_clm.runs._gate import RunGate, share

_ERRORS = {"keeps": "successful runs stopped", "passes": "failures among runs let through"}


@dataclass(kw_only=True, eq=False, repr=False)
class GateDisplay(Display):
    """Runs that are stopped over alpha, and when.

    Left, the share of the failing runs that is stopped over alpha, with what is promised and how it
    was kept; right, after which share of their steps runs are stopped at
    the alpha of the gate. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    alphas : ndarray of shape (a,)
        Tolerated shares of errors.
    failing, errors : ndarray of shape (a,)
        Of the runs that fail the share that is stopped; and the share that alpha is about, of
        stopped runs among those that succeed, or of failures among those that are let through. NaN
        where nothing is certified.
    promise : {"keeps", "passes"}
        That of the gate.
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
    >>> bool(display.failing[0] < display.failing[1])
    True
    """

    alphas: np.ndarray
    failing: np.ndarray
    errors: np.ndarray
    promise: str
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
        succeeded, counts = gate._outcomes(y_new, len(X_new))
        fails = counts & ~succeeded
        succeeds = counts & succeeded
        fitted = clone(gate).fit(X, y)
        shares = fitted.predict(X_new) / np.array([len(run) for run in X_new])
        stopped = fitted.stopped(X_new)
        stops = {"fail": shares[stopped & fails], "succeed": shares[stopped & succeeds]}

        levels = as_array(alphas, "alphas", (None,), low=0.0, high=1.0)
        failing = np.full(len(levels), np.nan)
        errors = np.full(len(levels), np.nan)
        for i, alpha in enumerate(levels.tolist()):
            copy = clone(gate).set_params(alpha=alpha, on_null="raise")
            try:
                stopped = copy.fit(X, y).stopped(X_new)
            except ValueError:  # nothing is certified at this alpha
                continue
            failing[i] = share(stopped, fails)
            errors[i] = share(stopped, succeeds)
            if gate.promise == "passes":
                errors[i] = share(fails, counts & ~stopped)

        display = cls(
            alphas=levels, failing=failing, errors=errors, promise=gate.promise, stops=stops
        )
        return display.plot(ax=ax)

    def _draw(self) -> None:
        shares, steps = self.axes_
        shares.plot(self.alphas, self.failing, "o-", color=RED, label="failing runs stopped")
        shares.plot(self.alphas, self.errors, "s-", color=BLUE, label=_ERRORS[self.promise])
        shares.plot(self.alphas, self.alphas, linestyle=DOTTED, label="promised at most", **LIMIT)
        shares.set(xlabel="alpha", ylabel="Share of runs", ylim=(0.0, None))
        labels = [f"stopped runs that {outcome}" for outcome in self.stops]
        bins = np.linspace(0.0, 1.0, 11).tolist()
        steps.hist([*self.stops.values()], bins=bins, color=[RED, BLUE], label=labels)
        steps.set(xlabel="Share of the steps taken until the stop", ylabel="Stopped runs")
