"""What more draws bring: the achievable band of Appendix C."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import CalibrationData, clopper_pearson
from sklearn_clm.calibration.data import check_data
from sklearn_clm.calibration.rows import optimization_size
from sklearn_clm.evaluation.sizes import first_k_errors, smallest_epsilons
from sklearn_clm.inspection.figures import (
    BLUE,
    DASHED,
    LIMIT,
    RED,
    TRIVIAL,
    AxesLike,
    EstimatorDisplay,
)
from sklearn_clm.policies import ThresholdPolicy


@dataclass(kw_only=True, eq=False, repr=False)
class AchievableBandDisplay(EstimatorDisplay):
    """Error of the first k draws against k (Appendix C).

    With a budget of k draws, an epsilon below the blue line is out of reach, and the dashed line
    is the smallest epsilon that a calibration of this many prompts certifies. Grey marks the
    trivial epsilons, which the first draw alone satisfies, and blue those that can be achieved.
    Create it with :meth:`from_estimator` or :meth:`from_data`.

    Choosing `k_max` by this figure on the data that then calibrate voids the guarantee. Look at
    other prompts, or give `k_max` a sequence: then calibration chooses, under the guarantee.

    Parameters
    ----------
    n_errors : ndarray of int, shape (n_draws,)
        Prompts with no admissible response among the first 1, 2, ... draws.
    n_prompts, n_calibration : int
        Prompts that the errors are counted in; prompts in the calibration part.
    delta : float
        Level of the tests.
    epsilon : float, optional
        An epsilon to mark.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData
    >>> from sklearn_clm.inspection import AchievableBandDisplay
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((600, 8))
    >>> right = rng.random((600, 8)) < quality**2 * rng.random((600, 1))
    >>> data = CalibrationData(quality, np.zeros((600, 8, 8)), right)
    >>> display = AchievableBandDisplay.from_data(data)
    >>> display.error.round(2)[[0, 7]]
    array([0.82, 0.3 ])
    """

    n_errors: np.ndarray
    n_prompts: int
    n_calibration: int
    delta: float = 0.05
    epsilon: float | None = None

    title = "What more draws bring"
    wanted = "have all labels"

    @property
    def error(self) -> np.ndarray:
        """Share of prompts without an admissible response, by budget."""
        return self.n_errors / self.n_prompts

    @property
    def reachable(self) -> np.ndarray:
        """Smallest epsilon that `n_calibration` prompts certify with each budget."""
        # by the share of errors of these prompts, whose number need not be that of the tests
        sizes = [self.n_calibration]
        levels = [smallest_epsilons(e, self.n_prompts, sizes, self.delta) for e in self.n_errors]
        return np.concatenate(levels)

    @classmethod
    def _of(cls, estimator: ConformalSampler) -> Self | None:
        record = estimator.calibration_
        data = estimator.calibration_data_
        # how often K draws hold an admissible one takes all labels
        if data.unknown is not None:
            return None
        if record.outcome is not None:
            n_calibration = record.outcome.n_calibration
        else:
            # nothing was tested, so that the split tells how many prompts would test
            policy = ThresholdPolicy() if estimator.policy is None else estimator.policy
            _, tested = policy.split(data, estimator.optimization_fraction, 0)
            n_calibration = len(tested)
        return cls(
            n_errors=first_k_errors(data.admissible),
            n_prompts=data.n_prompts,
            n_calibration=n_calibration,
            epsilon=record.epsilon,
            delta=record.delta,
        )

    @classmethod
    def from_data(
        cls,
        data: CalibrationData,
        *,
        epsilon: float | None = None,
        delta: float = 0.05,
        optimization_fraction: float = 1 / 3,
        ax: AxesLike = None,
    ) -> Self:
        """Plot the band of calibration data, before any calibration.

        Parameters
        ----------
        data : CalibrationData
            The data.
        epsilon : float, optional
            An epsilon to mark.
        delta : float in (0, 1), default=0.05
            Level of the tests.
        optimization_fraction : float in (0, 1), default=1/3
            Share of the prompts that will not be used for the tests.
        ax
            As in :meth:`plot`.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_clm.calibration import CalibrationData
        >>> from sklearn_clm.inspection import AchievableBandDisplay
        >>> rng = np.random.default_rng(0)
        >>> quality, admissible = rng.random((300, 9)), rng.random((300, 9)) < 0.3
        >>> data = CalibrationData(quality, np.zeros((300, 9, 9)), admissible)
        >>> AchievableBandDisplay.from_data(data).error.round(2)[:3]
        array([0.7 , 0.44, 0.28])
        """
        check_data(data)
        return cls(
            n_errors=first_k_errors(data.admissible),
            n_prompts=data.n_prompts,
            n_calibration=data.n_prompts - optimization_size(data.n_prompts, optimization_fraction),
            delta=delta,
            epsilon=epsilon,
        ).plot(ax=ax)

    def _draw(self) -> None:
        ax = self.ax_
        error = self.error
        reachable = self.reachable
        low, high = clopper_pearson(self.n_errors, self.n_prompts)
        k = np.arange(1, len(error) + 1)
        # where one draw does as well no epsilon says anything: the axis ends there
        top = min(1.0, 1.25 * max(high[0], reachable[0]))
        ax.axhspan(error[0], top, color=TRIVIAL, lw=0, zorder=0, label="trivial: one draw")
        label = f"achievable, not trivial: {error[-1]:.3f} to {error[0]:.3f}"
        fill: dict[str, Any] = {"color": BLUE, "alpha": 0.1, "lw": 0, "zorder": 0}
        ax.axhspan(error[-1], error[0], label=label, **fill)
        # above the blue line: what a test of so many prompts needs besides the error itself
        label = f"smallest $\\epsilon$ within reach, n = {self.n_calibration}, "
        label += f"$\\delta$ = {self.delta:g}"
        squares: dict[str, Any] = {"marker": "s", "markerfacecolor": "none", "markersize": 5.5}
        ax.plot(k, reachable, color=RED, linestyle=DASHED, lw=1.4, label=label, **squares)
        style: dict[str, Any] = {"fmt": "-o", "ms": 3.5, "lw": 1.6, "capsize": 2, "color": BLUE}
        label = "error of first-k, bars: 95 % interval"
        ax.errorbar(k, error, yerr=[error - low, high - error], label=label, **style)
        if self.epsilon is not None:
            ax.axhline(self.epsilon, label=f"$\\epsilon$ = {self.epsilon:g}", **LIMIT)
        ax.set_xlabel("k (budget of draws)")
        ax.set_ylabel(f"Share of {self.n_prompts} prompts without\nan admissible response")
        ax.set_ylim(0.0, top)
        ax.locator_params(axis="x", integer=True)
