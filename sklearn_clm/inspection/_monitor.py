"""What a monitor has seen: its wealth, and the limits of the risk."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from sklearn_clm.calibration._betting import confidence_sequence
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.inspection._figures import BLUE, DASHED, GREEN, LIMIT, RED, AxesLike, Display

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
    monitor : RiskMonitor
        A monitor with at least one outcome.
    """

    monitor: RiskMonitor

    title = "Watch on the risk"
    shape = (2, 1)
    size = (6.4, 5.2)
    least = 1

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
        return cls(monitor=monitor).plot(ax=ax)

    def _draw(self) -> None:
        first, monitor = self.axes_[0], self.monitor
        label = f"e-value (no less than {_SMALLEST_E:g} shown)"
        shown = np.maximum(monitor.e_values_, _SMALLEST_E)
        first.plot(
            np.arange(1, monitor.n_audited_ + 1), shown, color=BLUE, linewidth=1.4, label=label
        )
        label = f"alarm at 1 / $\\alpha$ = {1.0 / monitor.alpha:g}"
        first.axhline(1.0 / monitor.alpha, linestyle=DASHED, label=label, **LIMIT)
        if len(self.axes_) == 2:
            self._plot_risk()
        if (alarm_at := monitor.alarm_at_) is not None:
            label = f"alarm after {alarm_at} outcomes"
            for axes in self.axes_:
                axes.axvline(alarm_at, color=RED, linewidth=1.4, label=label)
        first.set_yscale("log")
        first.set_ylabel("E-value")
        self.axes_[-1].set_xlabel("Audited outcomes")

    def _plot_risk(self) -> None:
        axes: Axes = self.axes_[1]
        losses, epsilon, alpha = self.monitor.losses_, self.monitor.epsilon, self.monitor.alpha
        n = len(losses)
        times = np.unique(np.linspace(1, n, min(n, _POINTS)).round().astype(int))
        totals = np.cumsum(losses)[times - 1]
        low, high = confidence_sequence(totals, times, alpha)
        label = f"{100 * (1 - alpha):g} % confidence sequence"
        axes.fill_between(times, low, high, color=GREEN, alpha=0.15, lw=0, label=label)
        axes.plot(times, totals / times, color=GREEN, linewidth=1.4, label="mean loss")
        axes.axhline(epsilon, label=f"$\\epsilon$ = {epsilon:g}", **LIMIT)
        axes.set_ylim(0.0, min(1.0, max(2.5 * epsilon, 1.2 * float(high[-1]))))
        axes.set_ylabel("Risk")
