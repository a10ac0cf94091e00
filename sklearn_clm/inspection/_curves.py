"""Curves over epsilon or alpha, with their bands over trials."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from sklearn_clm.evaluation._results import LevelResults
from sklearn_clm.inspection._style import line_style, marker_positions, split_axes

__all__ = ["CurveDisplay"]


class CurveDisplay:
    """One row of axes for each measure, one curve for each method."""

    default_measures: ClassVar[tuple[str, ...]] = ()
    level_label: ClassVar[str] = "level"
    measure_labels: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        *,
        levels: np.ndarray,
        methods: Sequence[str],
        mean: dict[str, np.ndarray],
        std: dict[str, np.ndarray],
        auc: dict[str, np.ndarray],
        trivial_level: float | None = None,
    ) -> None:
        self.levels = levels
        self.methods = methods
        self.mean = mean
        self.std = std
        self.auc = auc
        self.trivial_level = trivial_level

    @classmethod
    def from_trials(
        cls,
        results: LevelResults,
        *,
        measures: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        common: bool = True,
        min_share: float = 1.0,
        ax: Any = None,
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
        common : bool, default=True
            Whether the areas in the legend are over the levels that all methods can use, or
            over each method's own.
        min_share : float in (0, 1], default=1.0
            Levels are shown where at least this share of the trials did not abstain.
        ax : matplotlib Axes or array of them, optional
            One for each measure. Default: a new figure.

        Returns
        -------
        display
            The display, plotted.
        """
        measures = cls.default_measures if measures is None else tuple(measures)
        methods = results.methods if methods is None else tuple(methods)
        rows = [results._position(method) for method in methods]
        trivial = np.flatnonzero(results.trivial.mean(axis=(0, 1)) >= 0.5)
        display = cls(
            levels=results.levels,
            methods=methods,
            mean={name: results.mean(name, min_share=min_share)[rows] for name in measures},
            std={name: results.std(name, min_share=min_share)[rows] for name in measures},
            auc={name: results.auc(name, common=common)[rows].mean(axis=1) for name in measures},
            trivial_level=float(results.levels[trivial[0]]) if len(trivial) else None,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None, band: bool = True, legend: bool = True) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes or array of them, optional
            One for each measure. Default: a new figure.
        band : bool, default=True
            Whether to shade one standard deviation over trials on each side of a mean.
        legend : bool, default=True
            Whether each row gets a legend with the normalised areas.

        Returns
        -------
        display
            This display, with `figure_`, `axes_` and `lines_`.
        """
        self.figure_, self.axes_ = split_axes(ax, len(self.mean), 2.3)
        self.lines_: list[Any] = []
        right = float(self.levels[-1])
        if self.trivial_level is not None:
            # what is trivial needs no room
            right = min(right, 1.15 * self.trivial_level)
        left = self._left(right)
        for row, (measure, axes) in enumerate(zip(self.mean, self.axes_)):
            if measure == "loss":
                ends = [left, right]
                axes.plot(ends, ends, color="0.45", linewidth=0.9, linestyle=(0, (1, 3)))
                axes.annotate(
                    f"loss = {self.level_label.split()[0]}",
                    (left + 0.9 * (right - left),) * 2,
                    xytext=(-5, 3),
                    textcoords="offset points",
                    ha="right",
                    fontsize="x-small",
                    color="0.35",
                )
            self._plot_measure(axes, measure, band, self.levels <= right)
            if np.isnan(self.mean[measure][:, self.levels <= right]).all():
                self._say_empty(axes)
            if self.trivial_level is not None and self.trivial_level < right:
                axes.axvspan(self.trivial_level, right, color="0.93", zorder=0, lw=0)
                if row == 0:
                    axes.annotate(
                        "trivial",
                        (self.trivial_level, 0.0),
                        xytext=(4, 4),
                        textcoords="offset points",
                        fontsize="x-small",
                        color="0.35",
                    )
            axes.set_ylabel(self.measure_labels.get(measure, measure))
            axes.set_xlim(left, right)
            axes.set_ylim(bottom=0.0)
            axes.spines[["top", "right"]].set_visible(False)
            if legend:
                axes.legend(fontsize="x-small", frameon=False, handlelength=3.2, loc="best")
        self.axes_[-1].set_xlabel(self.level_label)
        return self

    def _left(self, right: float) -> float:
        """Where the axes begin: at 0, or later where only large levels can be had."""
        shown = [~np.isnan(mean).all(axis=0) & (self.levels < right) for mean in self.mean.values()]
        reached = self.levels[np.any(shown, axis=0)]
        left = 1.5 * float(reached[0]) - 0.5 * right if len(reached) else 0.0
        return left if left > 0.1 * right else 0.0

    def _say_empty(self, axes: Any) -> None:
        axes.annotate(
            f"no {self.level_label.split()[0]} worth having was certified in enough trials:\n"
            "it takes more prompts, or a lower min_share",
            (0.5, 0.5),
            xycoords="axes fraction",
            ha="center",
            va="center",
            fontsize="small",
            color="0.35",
        )

    def _plot_measure(self, axes: Any, measure: str, band: bool, inside: np.ndarray) -> None:
        levels = self.levels[inside]
        for i, method in enumerate(self.methods):
            mean, std = self.mean[measure][i][inside], self.std[measure][i][inside]
            area = self.auc[measure][i]
            style = line_style(i)
            (line,) = axes.plot(
                levels,
                mean,
                label=f"{method} (AUC {'–' if np.isnan(area) else f'{area:#.3g}'})",
                markevery=marker_positions(mean, i, len(self.methods)),
                **style,
            )
            if band:
                axes.fill_between(
                    levels, mean - std, mean + std, color=style["color"], alpha=0.15, lw=0
                )
            self.lines_.append(line)
