"""What a monitor has seen: its wealth, and the limits of the risk."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from sklearn_clm.calibration._betting import confidence_sequence
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.evaluation._monitor import first_alarm
from sklearn_clm.inspection._figures import BLUE, DASHED, LIMIT, RED, AxesLike, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 300
_SMALLEST_E = 1e-3


@dataclass(kw_only=True, eq=False, repr=False)
class RiskMonitorDisplay(Display):
    """E-value and confidence sequence of a monitor, against the number of audited outcomes.

    Above, the e-value after each outcome, and 1 / alpha, where the alarm goes off. Below, the mean
    loss with its confidence sequence, which is right at all times together with probability
    1 - alpha if the risk does not change, and epsilon. Create it with :meth:`from_monitor`.

    Parameters
    ----------
    losses, e_values : ndarray of shape (n,)
        Outcomes in order of arrival, and the e-value after each.
    epsilon, alpha : float
        The watched risk, and the level of the alarm.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.inspection import RiskMonitorDisplay
    >>> display = RiskMonitorDisplay(
    ...     losses=np.ones(3), e_values=np.array([1.4, 3.0, 25.0]), epsilon=0.3, alpha=0.05
    ... )
    >>> display.alarm_at
    3
    """

    losses: np.ndarray
    e_values: np.ndarray
    epsilon: float
    alpha: float

    title = "Watch on the risk"
    shape = (2, 1)
    size = (6.4, 5.2)
    least = 1

    @property
    def alarm_at(self) -> int | None:
        """Number of outcomes at the alarm; None for no alarm."""
        return first_alarm(self.e_values, self.alpha)

    @classmethod
    def from_monitor(cls, monitor: RiskMonitor, *, ax: AxesLike = None) -> Self:
        """Plot a monitor.

        Parameters
        ----------
        monitor : RiskMonitor
            A monitor with at least one outcome.
        ax
            As in :meth:`plot`.

        Returns
        -------
        RiskMonitorDisplay
            The display, plotted.
        """
        if not monitor.n_audited_:
            raise ValueError("monitor must have at least one outcome, got none; call update.")
        return cls(
            losses=monitor.losses_,
            e_values=monitor.e_values_,
            epsilon=monitor.epsilon,
            alpha=monitor.alpha,
        ).plot(ax=ax)

    def _draw(self) -> None:
        first, n = self.axes_[0], len(self.losses)
        label = f"e-value (no less than {_SMALLEST_E:g} shown)"
        shown = np.maximum(self.e_values, _SMALLEST_E)
        first.plot(np.arange(1, n + 1), shown, color=BLUE, linewidth=1.4, label=label)
        label = f"alarm at 1 / $\\alpha$ = {1.0 / self.alpha:g}"
        first.axhline(1.0 / self.alpha, linestyle=DASHED, label=label, **LIMIT)
        if len(self.axes_) == 2:
            self._plot_risk()
        if self.alarm_at is not None:
            label = f"alarm after {self.alarm_at} outcomes"
            for axes in self.axes_:
                axes.axvline(self.alarm_at, color=RED, linewidth=1.4, label=label)
        first.set_yscale("log")
        first.set_ylabel("E-value")
        self.axes_[-1].set_xlabel("Audited outcomes")

    def _plot_risk(self) -> None:
        axes: Axes = self.axes_[1]
        n = len(self.losses)
        times = np.unique(np.linspace(1, n, min(n, _POINTS)).round().astype(int))
        totals = np.cumsum(self.losses)[times - 1]
        low, high = confidence_sequence(totals, times, self.alpha)
        label = f"{100 * (1 - self.alpha):g} % confidence sequence"
        axes.fill_between(times, low, high, color=BLUE, alpha=0.15, lw=0, label=label)
        axes.plot(times, totals / times, color=BLUE, linewidth=1.4, label="mean loss")
        axes.axhline(self.epsilon, label=f"$\\epsilon$ = {self.epsilon:g}", **LIMIT)
        axes.set_ylim(0.0, min(1.0, max(2.5 * self.epsilon, 1.2 * float(high[-1]))))
        axes.set_ylabel("Risk")
