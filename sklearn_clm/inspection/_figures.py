"""What all figures share: axes, lines, and the meaning of grey."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    AxesLike = Axes | np.ndarray | list[Axes] | None
else:
    AxesLike = object  # what builds the pages reads annotations without matplotlib

# the palette of Okabe and Ito, without its yellow, which is faint on white
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
BLUE, RED = _COLORS[:2]
DASHED = (0, (5, 2))
DOTTED = (0, (1, 2))
LIMIT: dict[str, Any] = {"color": "black", "linewidth": 1.0}  # of a line that stands for a level
_LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# grey shades the risks that a single draw satisfies, in every figure
TRIVIAL = "0.92"


def line_style(position: int) -> dict[str, Any]:
    """Colour, dashes and marker of the method at this position."""
    return {
        "color": _COLORS[position % len(_COLORS)],
        "linestyle": _LINES[position % len(_LINES)],
        "marker": _MARKERS[position % len(_MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.6,
    }


def marker_positions(values: np.ndarray, position: int, n_methods: int) -> list[int]:
    """Some eight points of a curve that get a marker, others for each method."""
    defined = np.flatnonzero(~np.isnan(values))
    step = max(1, len(defined) // 8)
    offset = (position * step) // max(1, n_methods)
    return [int(index) for index in defined[offset::step]]


def new_axes(
    ax: AxesLike, shape: tuple[int, int], size: tuple[float, float], least: int | None = None
) -> tuple["Figure", np.ndarray]:
    """Figure and axes: new ones of this shape, or those given, checked for their number.

    Fewer axes than in `shape` may be given, down to `least`.
    """
    n = shape[0] * shape[1]
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                "Displays need matplotlib: pip install 'sklearn-clm[plot]' (or matplotlib itself)."
            ) from error
        figure, axes = plt.subplots(
            *shape, sharex=shape[1] == 1, squeeze=False, figsize=size, layout="constrained"
        )
        return figure, axes.ravel()
    axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if not (least or n) <= len(axes) <= n:
        what = f"{n}, one for each measure," if least is None else "one or two,"
        raise ValueError(f"ax holds {len(axes)} axes; wanted {what} or None.")
    return axes[0].figure, axes


class Display(ABC):
    """A figure of one pair of axes, or of two that stand side by side or above each other."""

    figure_: "Figure"
    axes_: np.ndarray

    title = ""
    shape = (1, 1)
    size = (5.6, 4.0)
    least: int | None = None
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
            Where to draw; the second of two may be left out. Default: a new figure.

        Returns
        -------
        display
            This display, with `figure_` and its axes.
        """
        self.figure_, self.axes_ = new_axes(ax, self.shape, self.size, self.least)
        self._draw()
        finish(self.axes_, self.title, above=self.legend_above)
        return self

    @abstractmethod
    def _draw(self) -> None:
        """Draw on `axes_`, which are there."""


def finish(axes: np.ndarray, title: str, *, legend: bool = True, above: bool = False) -> None:
    """Give the figure its title and its one legend, inside the first axes or above them."""
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    if not above:
        axes[0].set_title(title, fontsize="medium", loc="left")
    if not legend:
        return
    entries = {
        label: handle for one in axes for handle, label in zip(*one.get_legend_handles_labels())
    }
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.12), "ncols": 2, "borderpad": 0.0}
    axes[0].legend(
        entries.values(),
        entries.keys(),
        fontsize="x-small",
        framealpha=0.85,
        edgecolor="none",
        **({"title": title, "alignment": "left", **place} if above else {}),
    )
