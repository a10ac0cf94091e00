"""Lines that stay apart in black and white and for colour-blind readers."""

from typing import Any

import numpy as np

__all__ = ["import_pyplot", "line_style", "marker_positions", "split_axes"]

# the palette of Okabe and Ito, without its yellow, which is faint on white
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_LINES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (5, 1, 1, 1)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def import_pyplot() -> Any:
    """Import matplotlib on first use, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Displays need matplotlib: pip install 'sklearn-clm[plot]' (or matplotlib itself)."
        ) from error
    return plt


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


def split_axes(ax: Any, n_rows: int, row_height: float) -> tuple[Any, np.ndarray]:
    """Figure and `n_rows` axes: new ones, or those given, checked for their number."""
    if ax is None:
        figure, axes = import_pyplot().subplots(
            n_rows,
            1,
            sharex=True,
            squeeze=False,
            figsize=(5.2, row_height * n_rows + 0.6),
            layout="constrained",
        )
        return figure, axes[:, 0]
    axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(axes) != n_rows:
        raise ValueError(
            f"ax holds {len(axes)} axes; wanted {n_rows}, one for each measure, or None."
        )
    return axes[0].figure, axes
