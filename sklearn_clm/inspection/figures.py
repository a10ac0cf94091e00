"""Base classes and styles of all figures."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ConformalSampler
from sklearn_clm._exceptions import optional_module

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    AxesLike = Axes | np.ndarray | list[Axes] | None
else:
    AxesLike = object  # what builds the pages reads annotations without matplotlib

# the palette of Okabe and Ito, without its yellow, which is faint on white
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
BLUE, RED, GREEN = _COLORS[:3]
DASHED = (0, (5, 2))
DOTTED = (0, (1, 2))
LIMIT: dict[str, Any] = {"color": "black", "linewidth": 1.0}  # of a line that stands for a level
# solid, dashed, dotted, and one or two dots after a dash: told apart without colours
_LINES = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (5, 1, 1, 1)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# grey shades the risks that a single draw satisfies, in every figure
TRIVIAL = "0.92"


def calibrated(estimator: object, *kinds: type, with_data: bool = True) -> Any:
    """The estimator, or the last fitting step of a pipeline."""
    candidate = estimator
    # pipelines may stand in pipelines
    while isinstance(candidate, Pipeline):
        steps = [step for _, step in candidate.steps if isinstance(step, (*kinds, Pipeline))]
        candidate = steps[-1] if steps else None
    if not isinstance(candidate, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"estimator must be a {names}, or a pipeline with one (of a search, its "
            f"best_estimator_), got {type(estimator).__name__} instead."
        )
    needed = ["calibration_", "calibration_data_"] if with_data else ["calibration_"]
    check_is_fitted(
        candidate,
        needed,
        msg="This %(name)s has no calibration data to show; call fit or calibrate. "
        "A calibration that was loaded from a file has none.",
    )
    return candidate


def line_style(position: int) -> dict[str, Any]:
    """Colour, dashes and marker of the method at this position."""
    return {
        "color": _COLORS[position % len(_COLORS)],
        "linestyle": _LINES[position % len(_LINES)],
        "marker": _MARKERS[position % len(_MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.6,
    }


class Display(ABC):
    """A figure of one or several pairs of axes.

    As with scikit-learn's displays, ``from_estimator`` and the like make and draw it, and ``plot``
    draws it again.

    Attributes
    ----------
    figure_, axes_, ax_ : matplotlib Figure, ndarray of Axes, and the first of them
        What was drawn.
    """

    figure_: "Figure"
    axes_: np.ndarray

    title = ""
    shape = (1, 1)
    size = (5.6, 4.0)
    legend_above = False

    @property
    def ax_(self) -> "Axes":
        """The first axes."""
        return self.axes_[0]

    def plot(self, *, ax: AxesLike = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        display
            This display, with `figure_` and its axes.
        """
        self.figure_, self.axes_ = self._new_axes() if ax is None else self._given_axes(ax)
        self._draw()
        for axis in self.axes_:
            axis.spines[["top", "right"]].set_visible(False)
        # one legend for all axes, which names each label once
        entries = {
            label: handle
            for axis in self.axes_
            for handle, label in zip(*axis.get_legend_handles_labels())
        }
        style: dict[str, Any] = {"fontsize": "x-small", "framealpha": 0.85, "edgecolor": "none"}
        # a legend of many methods would hide the curves
        if self.legend_above:
            style |= {"title": self.title, "alignment": "left", "loc": "lower left"}
            style |= {"bbox_to_anchor": (0.0, 1.12), "ncols": 2, "borderpad": 0.0}
        else:
            self.ax_.set_title(self.title, fontsize="medium", loc="left")
        self.ax_.legend(entries.values(), entries.keys(), **style)
        return self

    @abstractmethod
    def _draw(self) -> None:
        """Draw on `axes_`, which are there."""

    def _new_axes(self) -> tuple["Figure", np.ndarray]:
        figure, axes = optional_module("matplotlib.pyplot", "plot", "a display").subplots(
            *self.shape,
            sharex=self.shape[1] == 1,
            squeeze=False,
            figsize=self.size,
            layout="constrained",
        )
        return figure, axes.ravel()

    def _given_axes(self, ax: AxesLike) -> tuple["Figure", np.ndarray]:
        axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        wanted = self.shape[0] * self.shape[1]
        if len(axes) != wanted:
            raise ValueError(f"ax must hold {wanted} axes, got {len(axes)} instead.")
        return axes[0].figure, axes


class EstimatorDisplay(Display):
    """A figure of a calibrated estimator."""

    kinds: ClassVar[tuple[type, ...]] = (ConformalSampler,)
    wanted: ClassVar[str] = ""  # what there must be to show

    @classmethod
    def from_estimator(cls, estimator: object, *, ax: AxesLike = None) -> Self:
        """Plot a fitted estimator.

        Parameters
        ----------
        estimator : ConformalSampler, ComponentSelector or Pipeline
            An estimator after ``fit`` or ``calibrate``, of the kind that the display is about; of a
            pipeline, the last step that is one.
        ax
            As in :meth:`plot`.

        Returns
        -------
        display
            The display, plotted.
        """
        display = cls._of(calibrated(estimator, *cls.kinds))
        if display is None:
            raise ValueError(f"estimator must {cls.wanted}, got one without instead.")
        return display.plot(ax=ax)

    @classmethod
    @abstractmethod
    def _of(cls, estimator: Any) -> Self | None:
        """The display, not plotted; None where there is no content."""
