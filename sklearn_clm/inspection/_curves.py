"""Curves over epsilon or alpha, with their bands over trials (section 6, Appendix G)."""

import textwrap
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.evaluation import run_component_trials, run_trials
from sklearn_clm.evaluation._results import LevelResults
from sklearn_clm.inspection._figures import (
    TRIVIAL,
    AxesLike,
    Display,
    calibrated,
    line_style,
)
from sklearn_clm.policies import ThresholdPolicy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


@dataclass(kw_only=True, eq=False, repr=False)
class _CurveDisplay(Display):
    """One row of axes for each measure, one curve for each method."""

    trivial_label: ClassVar[str] = "trivial"
    default_measures: ClassVar[tuple[str, ...]] = ()
    level_label: ClassVar[str] = "level"
    measure_labels: ClassVar[dict[str, str]] = {}
    legend_above = True

    results: LevelResults
    measures: Sequence[str]
    methods: Sequence[str]
    min_share: float = 1.0

    def __post_init__(self) -> None:
        n, results, share = len(self.measures), self.results, self.min_share
        self.shape, self.size = (n, 1), (5.6, 2.3 * n + 0.9)
        rows = [results.position(method) for method in self.methods]
        self._mean = {name: results.mean(name, min_share=share)[rows] for name in self.measures}
        self._std = {name: results.std(name, min_share=share)[rows] for name in self.measures}
        self._auc = {name: results.auc(name)[rows].mean(axis=1) for name in self.measures}

    @property
    def trivial_level(self) -> float | None:
        """The smallest level that is trivial in half of the trials; None for no such level."""
        trivial = np.flatnonzero(self.results.trivial.mean(axis=(0, 1)) >= 0.5)
        return float(self.results.levels[trivial[0]]) if len(trivial) else None

    @classmethod
    def from_estimator(cls, estimator: object, *, ax: AxesLike = None, **options: Any) -> Self:
        """Run the protocol on the data that an estimator was calibrated on, and plot it.

        Parameters
        ----------
        estimator : ConformalSampler, ComponentSelector or Pipeline
            A fitted sampler (for components: selector); nothing is drawn or judged anew.
        ax
            As in :meth:`from_trials`.
        **options
            As in :func:`sklearn_clm.evaluation.run_trials` (for components:
            :func:`~sklearn_clm.evaluation.run_component_trials`). By default the estimator's own
            score in 30 trials.

        Returns
        -------
        display
            The display, plotted.
        """
        return cls.from_trials(cls._run(estimator, {"n_trials": 30, **options}), ax=ax)

    @classmethod
    @abstractmethod
    def _run(cls, estimator: object, options: dict[str, Any]) -> LevelResults:
        """The protocol on the data of an estimator."""

    @classmethod
    def from_trials(
        cls,
        results: LevelResults,
        *,
        measures: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        min_share: float = 1.0,
        ax: AxesLike = None,
    ) -> Self:
        """Plot the results of repeated random splits.

        Parameters
        ----------
        results : TrialResults or ComponentTrialResults
            The results.
        measures : sequence of str, optional
            What to show, one row each. Default: the rows of the paper's figure.
        methods : sequence of str, optional
            Which methods, in which order. Default: all.
        min_share : float, default=1.0
            Levels are shown where at least this share of the trials did not abstain.
        ax : matplotlib Axes or array of them, optional
            One for each measure. Default: a new figure.

        Returns
        -------
        display
            The display, plotted.
        """
        return cls(
            results=results,
            measures=cls.default_measures if measures is None else tuple(measures),
            methods=results.methods if methods is None else tuple(methods),
            min_share=min_share,
        ).plot(ax=ax)

    def _title(self) -> str:
        title, reason = f"{self.title}, {self.results.n_trials} random splits", ""
        if (why := self.results.why_no_area()) is not None:
            reason = "\n" + textwrap.fill(why, 70)
        elif any(np.isnan(mean).any() for mean in self._mean.values()):
            share = "all" if self.min_share == 1.0 else f"{100 * self.min_share:g} %"
            reason = f"\nA curve stands where {share} of its splits certify anything."
        return f"{title}{reason}"

    def _draw(self) -> None:
        self.lines_: list[Line2D] = []
        trivial, right = self.trivial_level, float(self.results.levels[-1])
        if trivial is not None:
            right = min(right, 1.15 * trivial)  # what is trivial needs no room
        left = self._left(right)
        for measure, axes in zip(self.measures, self.axes_):
            if measure == "loss":
                label = f"loss = {self.level_label.split()[0]}: valid at or under it"
                line = {"color": "0.45", "linewidth": 0.9, "linestyle": (0, (1, 3))}
                axes.plot([left, right], [left, right], label=label, **line)
            self._plot_measure(axes, measure, self.results.levels <= right)
            if trivial is not None and trivial < right:
                label = self.trivial_label
                axes.axvspan(trivial, right, color=TRIVIAL, zorder=0, lw=0, label=label)
            if not np.isnan(self._auc[measure]).all():
                areas = ["–" if np.isnan(area) else f"{area:#.3g}" for area in self._auc[measure]]
                shown = ", ".join(map(" ".join, zip(self.methods, areas)))
                axes.set_title(f"AUC: {shown}", loc="left", fontsize="x-small")
            axes.set_ylabel(self.measure_labels.get(measure, measure))
            axes.set_xlim(left, right)
            axes.set_ylim(bottom=0.0)
        self.axes_[-1].set_xlabel(self.level_label)

    def _left(self, right: float) -> float:
        """Where the axes begin: at 0, or later where only large levels can be had."""
        levels = self.results.levels
        shown = [~np.isnan(mean).all(axis=0) & (levels < right) for mean in self._mean.values()]
        reached = levels[np.any(shown, axis=0)]
        left = 1.5 * float(reached[0]) - 0.5 * right if len(reached) else 0.0
        return left if left > 0.1 * right else 0.0

    def _plot_measure(self, axes: "Axes", measure: str, inside: np.ndarray) -> None:
        levels, n = self.results.levels[inside], len(self.methods)
        for i, method in enumerate(self.methods):
            mean, std = self._mean[measure][i][inside], self._std[measure][i][inside]
            style = line_style(i)
            # some eight points get a marker, others for each method
            defined = np.flatnonzero(~np.isnan(mean))
            step = max(1, len(defined) // 8)
            markers = defined[(i * step) // n :: step].tolist()
            label = method if len(defined) else f"{method} (nowhere)"
            self.lines_ += axes.plot(levels, mean, label=label, markevery=markers, **style)
            band = {"color": style["color"], "alpha": 0.15, "lw": 0}
            axes.fill_between(levels, mean - std, mean + std, **band)
        label = "shaded: mean ± 1 standard deviation over splits"
        axes.fill_between([], [], color="0.5", alpha=0.3, lw=0, label=label)
        if np.isnan(self._mean[measure][:, inside]).all():
            name = self.level_label.split()[0]
            text = f"No {name} worth having was certified in enough trials: it takes more prompts, "
            place: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes}
            style = {"color": "0.35", "fontsize": "small"}
            axes.text(0.5, 0.5, textwrap.fill(f"{text}or a lower min_share.", 58), **style, **place)


@dataclass(kw_only=True, eq=False, repr=False)
class RiskCurveDisplay(_CurveDisplay):
    """Loss, relative excess and set size against epsilon (section 6).

    A row for each measure, a curve for each method: the mean over trials, with a band of one
    standard deviation on each side. A valid method keeps its loss at or under the dotted
    diagonal. Grey marks the trivial epsilons, which always returning the first generation
    satisfies. Create it from trials or from an estimator; `lines_` are the curves.

    Parameters
    ----------
    results : TrialResults
        What is plotted.
    measures, methods : sequence of str
        The rows and the curves.
    min_share : float, default=1.0
        Levels are shown where at least this share of the trials did not abstain.
    """

    title = "Response sets"
    trivial_label: ClassVar[str] = "trivial: one draw"
    default_measures: ClassVar[tuple[str, ...]] = ("loss", "excess", "relative_size")
    level_label: ClassVar[str] = "ε (tolerated risk)"
    measure_labels: ClassVar[dict[str, str]] = {
        "loss": "Loss",
        "excess": "Relative excess",
        "size": "Set size",
        "relative_size": "Set size / $k_{max}$",
        "draws": "Draws",
        "relative_draws": "Draws / $k_{max}$",
    }

    @classmethod
    def _run(cls, estimator: object, options: dict[str, Any]) -> LevelResults:
        sampler = calibrated(estimator, ConformalSampler)
        record, policy = sampler.calibration_, sampler.policy
        path = policy if isinstance(policy, ThresholdPolicy) else ThresholdPolicy()
        own = {"methods": (record.set_score,), "delta": record.delta, "n_lambdas": path.n_lambdas}
        return run_trials(record.data, **{**own, **record.weights, **options})


@dataclass(kw_only=True, eq=False, repr=False)
class ComponentCurveDisplay(_CurveDisplay):
    """Loss, number and recall of the selected components against alpha (section 6, Appendix G).

    A row for each measure, a curve for each component score: the mean over trials, with a band
    of one standard deviation on each side. A valid method keeps its loss at or under the dotted
    diagonal. Grey marks the trivial alphas, at which every component could be selected. Create
    it from trials or from an estimator.

    Parameters
    ----------
    results, measures, methods, min_share
        As in :class:`RiskCurveDisplay`, of components.
    """

    title = "Selected components"
    trivial_label: ClassVar[str] = "trivial: every component"
    default_measures: ClassVar[tuple[str, ...]] = ("loss", "number", "recall")
    level_label: ClassVar[str] = "α (tolerated risk)"
    measure_labels: ClassVar[dict[str, str]] = {
        "loss": "Loss",
        "number": "Components selected",
        "recall": "Recall",
    }

    @classmethod
    def _run(cls, estimator: object, options: dict[str, Any]) -> LevelResults:
        selector = calibrated(estimator, ComponentSelector)
        record, score = selector.calibration_, selector.component_score
        name = score if isinstance(score, str) else type(score).__name__
        return run_component_trials({name: record.data}, **{"delta": record.delta, **options})
