"""What more draws and more calibration prompts bring: the band of Appendix C, and its edge."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.calibration import CalibrationData, clopper_pearson
from sklearn_clm.calibration._data import check_data, optimization_size
from sklearn_clm.evaluation._plan import first_k_errors, smallest_epsilons
from sklearn_clm.inspection._figures import (
    BLUE,
    DASHED,
    DOTTED,
    LIMIT,
    RED,
    TRIVIAL,
    AxesLike,
    EstimatorDisplay,
)


@dataclass(kw_only=True, eq=False, repr=False)
class AchievableBandDisplay(EstimatorDisplay):
    """Error of the first k draws against k: what a budget can achieve (Appendix C).

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
    reachable : ndarray of shape (n_draws,)
        Smallest epsilon that `n_calibration` prompts with this share of errors certify. Of an
        estimator, the last is what its calibration part certifies.
    n_prompts, n_calibration : int
        Prompts that the errors are counted in; prompts in the calibration part.
    delta : float
        Level of the tests.
    epsilon : float, optional
        An epsilon to mark.
    """

    n_errors: np.ndarray
    reachable: np.ndarray
    n_prompts: int
    n_calibration: int
    delta: float = 0.05
    epsilon: float | None = None

    title = "What more draws bring"

    @property
    def error(self) -> np.ndarray:
        """Share of the prompts with no admissible response among the first 1, 2, ... draws."""
        return self.n_errors / self.n_prompts

    @classmethod
    def _of(cls, estimator: ConformalSampler) -> Self:
        check_data(estimator.calibration_data_)
        record, tests = estimator.calibration_, estimator.calibration_.tests
        labels = estimator.calibration_data_.admissible
        fraction = estimator.optimization_fraction
        n_calibration = max(1, len(labels) - optimization_size(len(labels), fraction))
        if tests is not None:
            n_calibration = tests.n_calibration
        display = cls._of_labels(labels, n_calibration, epsilon=record.epsilon, delta=record.delta)
        pac = record.claim.guarantee == "pac"
        if tests is not None and pac and not np.isnan(tests.smallest_epsilon):
            display.reachable[-1] = tests.smallest_epsilon
        return display

    @classmethod
    def from_data(
        cls,
        data: CalibrationData | ArrayLike,
        *,
        epsilon: float | None = None,
        delta: float = 0.05,
        optimization_fraction: float = 1 / 3,
        ax: AxesLike = None,
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
        ax
            As in :meth:`plot`.

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
        if isinstance(data, CalibrationData):
            check_data(data)
        labels = data.admissible if isinstance(data, CalibrationData) else np.asarray(data)
        if labels.ndim != 2 or labels.size == 0:
            raise ValueError(
                "data must be CalibrationData or booleans of shape (n_prompts, n_draws), got shape "
                f"{labels.shape} instead."
            )
        n_calibration = max(1, len(labels) - round(optimization_fraction * len(labels)))
        return cls._of_labels(labels, n_calibration, epsilon=epsilon, delta=delta).plot(ax=ax)

    @classmethod
    def _of_labels(
        cls, labels: np.ndarray, n_calibration: int, *, epsilon: float | None, delta: float
    ) -> Self:
        n, n_errors = len(labels), first_k_errors(labels)
        reachable = [smallest_epsilons(int(e), n, [n_calibration], delta)[0] for e in n_errors]
        return cls(
            n_errors=n_errors,
            reachable=np.array(reachable),
            n_prompts=n,
            n_calibration=n_calibration,
            delta=delta,
            epsilon=epsilon,
        )

    def _draw(self) -> None:
        ax, error = self.ax_, self.error
        low, high = clopper_pearson(self.n_errors, self.n_prompts)
        k = np.arange(1, len(error) + 1)
        top = min(1.0, 1.25 * max(high[0], self.reachable[0]))
        ax.axhspan(error[0], top, color=TRIVIAL, lw=0, zorder=0, label="trivial: one draw")
        label = f"achievable, not trivial: {error[-1]:.3f} to {error[0]:.3f}"
        ax.axhspan(error[-1], error[0], color=BLUE, alpha=0.1, lw=0, zorder=0, label=label)
        label = f"smallest $\\epsilon$ within reach, n = {self.n_calibration}, "
        label += f"$\\delta$ = {self.delta:g}"
        squares: dict[str, Any] = {"marker": "s", "markerfacecolor": "none", "markersize": 5.5}
        ax.plot(k, self.reachable, color=RED, linestyle=DASHED, lw=1.4, label=label, **squares)
        style: dict[str, Any] = {"fmt": "-o", "ms": 3.5, "lw": 1.6, "capsize": 2, "color": BLUE}
        label = "error of first-k, bars: 95 % interval"
        ax.errorbar(k, error, yerr=[error - low, high - error], label=label, **style)
        if self.epsilon is not None:
            ax.axhline(self.epsilon, label=f"$\\epsilon$ = {self.epsilon:g}", **LIMIT)
        ax.set_xlabel("k (budget of draws)")
        ax.set_ylabel(f"Share of {self.n_prompts} prompts without\nan admissible response")
        ax.set_ylim(0.0, top)
        ax.locator_params(axis="x", integer=True)


@dataclass(kw_only=True, eq=False, repr=False)
class PromptGainDisplay(EstimatorDisplay):
    """Smallest epsilon that can be certified against the number of calibration prompts.

    The line supposes that the safest rule keeps its share of errors on a larger calibration
    part; the band follows the ends of the exact interval of that share. The dotted line is the
    share itself, which no number of prompts undercuts. Create it with :meth:`from_estimator`.

    It is for planning another calibration. Decide its number of prompts beforehand, or share delta
    over the looks, see :func:`sklearn_clm.evaluation.plan`.

    Parameters
    ----------
    n_errors, n_calibration : int
        Errors of the safest rule among the calibration prompts.
    delta : float
        Level of the tests.
    level : float
        The tolerated risk: epsilon, or alpha.
    symbol : str, default="epsilon"
        Its name.

    Examples
    --------
    >>> from sklearn_clm.inspection import PromptGainDisplay
    >>> display = PromptGainDisplay(n_errors=30, n_calibration=300, delta=0.05, level=0.15)
    >>> display.smallest([300, 3000]).round(3)
    array([0.133, 0.109])
    """

    n_errors: int
    n_calibration: int
    delta: float
    level: float
    symbol: str = "epsilon"

    title = "What more prompts bring"
    kinds = (ConformalSampler, ComponentSelector)
    wanted = (
        "have no groups, guarantee='pac', no audit "
        "and no other loss than admission, enough prompts for a test and labels that tell the "
        "errors of its safest sets"
    )

    def smallest(self, sizes: ArrayLike) -> np.ndarray:
        """Smallest level that calibration parts of these sizes certify, one for each."""
        return smallest_epsilons(self.n_errors, self.n_calibration, np.asarray(sizes), self.delta)

    @classmethod
    def _of(cls, estimator: ConformalSampler | ComponentSelector) -> Self | None:
        record = estimator.calibration_
        claim, tests = record.claim, record.tests
        if record.by_group or claim.guarantee == "marginal" or tests is None:
            return None
        n_errors = tests.errors_of_safest
        # by a model's standard these errors say nothing of what people would certify
        if n_errors is None or claim.audit is not None:
            return None
        return cls(
            n_errors=n_errors,
            n_calibration=tests.n_calibration,
            delta=claim.delta,
            level=claim.level,
            symbol=claim.level_name,
        )

    def _smooth(self, n_errors: int, sizes: np.ndarray) -> np.ndarray:
        """Levels at these sizes: the binomial bound, continued to numbers of errors in between."""
        errors = sizes * (n_errors / self.n_calibration)
        bounds = stats.beta.ppf(1.0 - self.delta, errors + 1.0, np.maximum(sizes - errors, 1e-9))
        return np.asarray(np.where(errors < sizes, bounds, 1.0))

    def _draw(self) -> None:
        ax = self.ax_
        n, share = self.n_calibration, self.n_errors / self.n_calibration
        sizes = np.unique(np.geomspace(max(2, n // 4), 10 * n, 60).round().astype(int))
        ends = [round(float(end) * n) for end in clopper_pearson(self.n_errors, n)]
        middle, low, high = (self._smooth(e, sizes) for e in (self.n_errors, *ends))
        symbol = f"$\\{self.symbol}$"
        label = "95 % interval of that share"
        ax.fill_between(sizes, low, high, color=BLUE, alpha=0.15, lw=0, label=label)
        label = f"smallest {symbol}, $\\delta$ = {self.delta:g}, same share of errors"
        ax.plot(sizes, middle, color=BLUE, linewidth=1.6, label=label)
        label = f"this calibration part: n = {n}, {symbol} = {self.smallest([n])[0]:.3f}"
        ax.plot([n], self.smallest([n]), "o", color=BLUE, label=label)
        ax.axhline(self.level, label=f"{symbol} = {self.level:g}", **LIMIT)
        floor = f"share of errors of the safest rule: {share:.3f}"
        ax.axhline(share, color="0.4", linewidth=1.0, linestyle=DOTTED, label=floor)
        ax.set_xscale("log")
        marked = [sizes[0], *(growth * n for growth in (1, 2, 5, 10))]
        ax.set_xticks(marked, map(str, marked))
        ax.minorticks_off()
        ax.set_ylim(0.0, 1.5 * max(self.level, float(high[0])))
        ax.set_xlabel("Prompts in the calibration part")
        ax.set_ylabel(f"Smallest {symbol} that is certified")
