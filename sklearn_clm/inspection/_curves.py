"""Curves over epsilon or alpha (section 6, Appendix G)."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.evaluation import TrialResults, run_component_trials, run_trials
from sklearn_clm.inspection.figures import TRIVIAL, AxesLike, Display, calibrated, line_style
from sklearn_clm.policies import ThresholdPolicy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_LABELS = {
    "loss": "Loss",
    "excess": "Relative excess",
    "size": "Set size",
    "relative_size": "Set size / $k_{max}$",
    "draws": "Draws",
    "relative_draws": "Draws / $k_{max}$",
    "number": "Components selected",
    "recall": "Recall",
    "empty": "Empty selections",
}
_ROWS = ("loss", "excess", "relative_size", "number", "recall")  # of the paper's figures


@dataclass(kw_only=True, eq=False, repr=False)
class RiskCurveDisplay(Display):
    """Loss and costs against the tolerated risk (Appendix G).

    Of sets: loss, relative excess and set size against epsilon, a curve for each set score. Of
    components: loss, number and recall against alpha, a curve for each component score. Curves are
    means over trials, with a band of one standard deviation on each side; they stand where every
    trial certifies something. A valid method keeps its loss at or under the dotted diagonal. Grey
    marks the trivial levels, which always returning the first generation, or every component,
    satisfies. Create it from trials or from an estimator; `lines_` are the curves.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData
    >>> from sklearn_clm.evaluation import run_trials
    >>> from sklearn_clm.inspection import RiskCurveDisplay
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((600, 8))
    >>> right = rng.random((600, 8)) < quality**2 * rng.random((600, 1))
    >>> data = CalibrationData(quality, np.zeros((600, 8, 8)), right)
    >>> epsilons = np.linspace(0.1, 0.7, 13)
    >>> results = run_trials(data, ["max", "first_k"], epsilons, n_trials=10, random_state=0)
    >>> display = RiskCurveDisplay.from_trials(results)
    >>> [line.get_label() for line in display.lines_][:2]
    ['max', 'first_k']
    """

    results: TrialResults
    measures: Sequence[str]
    methods: Sequence[str]

    legend_above = True

    def __post_init__(self) -> None:
        n = len(self.measures)
        results = self.results
        self.shape = (n, 1)
        self.size = (5.6, 2.3 * n + 0.9)
        rows = [results.position(method) for method in self.methods]
        self._mean = {name: results.mean(name)[rows] for name in self.measures}
        self._std = {name: results.std(name)[rows] for name in self.measures}
        # areas are over levels that all methods can use, so that they compare like with like
        areas = {name: results.auc(name)[rows] for name in self.measures}
        self._auc = {name: of_trials.mean(axis=1) for name, of_trials in areas.items()}
        self.title = f"{results.n_trials} random splits"
        if (why := results.why_no_area()) is not None:
            self.title += "\n" + textwrap.fill(why, 70)
        elif any(np.isnan(mean).any() for mean in self._mean.values()):
            self.title += "\nA curve stands where all of its splits certify anything."

    @property
    def level_label(self) -> str:
        """The name of the horizontal axis."""
        return f"{'ε' if self.results.level_name == 'epsilon' else 'α'} (tolerated risk)"

    @property
    def trivial_level(self) -> float | None:
        """The smallest level trivial in half of the trials."""
        trivial = np.flatnonzero(self.results.trivial.mean(axis=(0, 1)) >= 0.5)
        return float(self.results.levels[trivial[0]]) if len(trivial) else None

    @classmethod
    def from_estimator(cls, estimator: object, *, ax: AxesLike = None, **options: Any) -> Self:
        """Run the protocol on an estimator's data, and plot it.

        Parameters
        ----------
        estimator : ConformalSampler, ComponentSelector or Pipeline
            A fitted sampler or selector; nothing is drawn or judged anew.
        ax
            As in :meth:`from_trials`.
        **options
            As in :func:`sklearn_clm.evaluation.run_trials` (of a selector:
            :func:`~sklearn_clm.evaluation.run_component_trials`). By default the estimator's own
            score in 30 trials.
        """
        fitted = calibrated(estimator, ConformalSampler, ComponentSelector)
        record = fitted.calibration_
        options = {"n_trials": 30, "delta": record.delta, **options}
        if isinstance(fitted, ComponentSelector):
            score = fitted.component_score
            name = score if isinstance(score, str) else type(score).__name__
            # errors are counted as the claim counts them, unless the caller wants others
            options = {"max_wrong": record.claim.max_wrong, **options}
            return cls.from_trials(run_component_trials({name: record.data}, **options), ax=ax)
        if record.claim.risk.escalates:
            raise ValueError(
                "estimator must return sets or components, got one with an "
                f"{type(fitted.policy).__name__} instead; TradeOffDisplay shows its answers."
            )
        # trials compare thresholds: of another policy the data are shown under its weights
        policy = fitted.policy if isinstance(fitted.policy, ThresholdPolicy) else ThresholdPolicy()
        defaults = {"methods": (record.set_score,), "n_lambdas": policy.n_lambdas, **record.weights}
        return cls.from_trials(run_trials(record.data, **{**defaults, **options}), ax=ax)

    @classmethod
    def from_trials(
        cls,
        results: TrialResults,
        *,
        measures: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        ax: AxesLike = None,
    ) -> Self:
        """Plot the results of repeated random splits.

        Parameters
        ----------
        results : TrialResults
            The results.
        measures : sequence of str, optional
            What to show, one row each. Default: the rows of the paper's figure.
        methods : sequence of str, optional
            Which methods, in which order. Default: all.
        ax : matplotlib Axes or array of them, optional
            One for each measure. Default: a new figure.
        """
        rows = [name for name in _ROWS if name in results.measures]
        return cls(
            results=results,
            measures=rows if measures is None else tuple(measures),
            methods=results.methods if methods is None else tuple(methods),
        ).plot(ax=ax)

    def _draw(self) -> None:
        self.lines_: list[Line2D] = []
        trivial = self.trivial_level
        right = float(self.results.levels[-1])
        if trivial is not None:
            right = min(right, 1.15 * trivial)  # what is trivial needs no room
        # and neither does what no trial certifies
        certified = self.results.levels[~self.results.null.all(axis=(0, 1))]
        leftmost = float(certified[0]) if len(certified) and certified[0] < right else 0.0

        for measure, axes in zip(self.measures, self.axes_):
            if measure == "loss":
                label = f"loss = {self.level_label[0]}: valid at or under it"
                line = {"color": "0.45", "linewidth": 0.9, "linestyle": (0, (1, 3))}
                axes.plot([leftmost, right], [leftmost, right], label=label, **line)
            self._plot_measure(axes, measure, self.results.levels <= right)
            if trivial is not None and trivial < right:
                axes.axvspan(trivial, right, color=TRIVIAL, zorder=0, lw=0, label="trivial")
            if not np.isnan(self._auc[measure]).all():
                areas = [f"{area:#.3g}" for area in self._auc[measure]]
                areas_in_words = ", ".join(map(" ".join, zip(self.methods, areas)))
                axes.set_title(f"AUC: {areas_in_words}", loc="left", fontsize="x-small")
            axes.set_ylabel(_LABELS.get(measure, measure))
            axes.set_xlim(leftmost - 0.03 * (right - leftmost), right)
            axes.set_ylim(bottom=0.0)
        self.axes_[-1].set_xlabel(self.level_label)

    def _plot_measure(self, axes: "Axes", measure: str, inside: np.ndarray) -> None:
        levels = self.results.levels[inside]
        n = len(self.methods)
        for i, method in enumerate(self.methods):
            mean = self._mean[measure][i][inside]
            std = self._std[measure][i][inside]
            style = line_style(i)
            # some eight points get a marker, others for each method
            defined = np.flatnonzero(~np.isnan(mean))
            step = max(1, len(defined) // 8)
            markers = defined[(i * step) // n :: step].tolist()
            label = method if len(defined) else f"{method} (nowhere)"
            self.lines_ += axes.plot(levels, mean, label=label, markevery=markers, **style)
            band = {"color": style["color"], "alpha": 0.15, "lw": 0}
            axes.fill_between(levels, mean - std, mean + std, **band)
        # an empty band: one entry of the legend for those of all methods
        label = "shaded: mean ± 1 standard deviation over splits"
        axes.fill_between([], [], color="0.5", alpha=0.3, lw=0, label=label)
