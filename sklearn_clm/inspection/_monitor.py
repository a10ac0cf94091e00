"""Wealth of a monitor, and confidence limits of the risk."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from sklearn_clm.calibration.betting import confidence_sequence
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.inspection.figures import BLUE, DASHED, GREEN, LIMIT, RED, AxesLike, Display

_POINTS = 300
_SMALLEST_E = 1e-3  # below it wealth is lost, and a logarithmic axis would go on for ever


@dataclass(kw_only=True, eq=False, repr=False)
class RiskMonitorDisplay(Display):
    """E-value and confidence sequence of a monitor.

    Above, the e-value after each outcome, and 1 / alpha, where the alarm goes off. Below, the mean
    loss with its confidence sequence, which is right at all times together with probability
    1 - alpha if the risk does not change, and epsilon. Create it with :meth:`from_monitor`.

    Parameters
    ----------
    monitor : RiskMonitor
        A monitor with at least one outcome.

    Examples
    --------
    A risk of 0.15 that becomes 0.45 after 150 outcomes:

    >>> import numpy as np
    >>> from sklearn_clm.evaluation import RiskMonitor
    >>> from sklearn_clm.inspection import RiskMonitorDisplay
    >>> errors = np.random.default_rng(0).random(300) < np.repeat([0.15, 0.45], 150)
    >>> display = RiskMonitorDisplay.from_monitor(RiskMonitor(0.2).update(errors))
    >>> 150 < display.monitor.alarm_at_ < 300
    True
    """

    monitor: RiskMonitor

    title = "Watch on the risk"
    shape = (2, 1)
    size = (6.4, 5.2)

    @classmethod
    def from_monitor(cls, monitor: RiskMonitor, *, ax: AxesLike = None) -> Self:
        """Plot a monitor.

        The monitor must have at least one outcome; `ax` is as in :meth:`plot`.
        """
        if not monitor.n_audited_:
            raise ValueError("monitor must have at least one outcome, got none; call update.")
        return cls(monitor=monitor).plot(ax=ax)

    def _draw(self) -> None:
        monitor = self.monitor
        wealth, risk = self.axes_
        losses = monitor.losses_
        alpha = monitor.alpha
        n = monitor.n_audited_
        label = f"e-value (no less than {_SMALLEST_E:g} shown)"
        e_values = np.maximum(monitor.e_values_, _SMALLEST_E)
        wealth.plot(np.arange(1, n + 1), e_values, color=BLUE, linewidth=1.4, label=label)
        label = f"alarm at 1 / $\\alpha$ = {1.0 / alpha:g}"
        wealth.axhline(1.0 / alpha, linestyle=DASHED, label=label, **LIMIT)
        wealth.set_yscale("log")
        wealth.set_ylabel("E-value")

        # a confidence sequence is costly: a few hundred points draw the same line
        spread = np.linspace(1, n, min(n, _POINTS))
        times = np.unique(spread.round().astype(int))
        totals = np.cumsum(losses)[times - 1]
        low, high = confidence_sequence(totals, times, alpha)
        label = f"{100 * (1 - alpha):g} % confidence sequence"
        risk.fill_between(times, low, high, color=GREEN, alpha=0.15, lw=0, label=label)
        risk.plot(times, totals / times, color=GREEN, linewidth=1.4, label="mean loss")
        risk.axhline(monitor.epsilon, label=f"$\\epsilon$ = {monitor.epsilon:g}", **LIMIT)
        # the first limits are wide, and would squeeze what is of interest
        top = max(2.5 * monitor.epsilon, 1.2 * float(high[-1]))
        risk.set_ylim(0.0, min(1.0, top))
        risk.set_ylabel("Risk")
        risk.set_xlabel("Audited outcomes")
        if (alarm_at := monitor.alarm_at_) is not None:
            for axes in self.axes_:
                label = f"alarm after {alarm_at} outcomes"
                axes.axvline(alarm_at, color=RED, linewidth=1.4, label=label)
