"""Tables of a report: numbers with their intervals, and a few rows of many."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from sklearn_clm.calibration import clopper_pearson
from sklearn_clm.evaluation._plan import mean_interval

_CONFIDENCE = 0.95
INTERVAL = "95 % interval"
MEANS = ("what", "mean", INTERVAL)


def role_of(i: int, n_valid: int) -> str:
    """What became of test i."""
    return "not tested" if i > n_valid else "failed" if i == n_valid else "valid"


def shown_positions(m: int, n_valid: int, chosen: int | None) -> list[int]:
    """A few positions from the whole sequence, and those that decided."""
    steps = np.linspace(0, m - 1, min(m, 7)).round().astype(int).tolist()
    decisive = [min(n_valid, m - 1), *([] if chosen is None else [chosen])]
    return sorted({*steps, *decisive})


def with_gaps(rows: Sequence[tuple[str, ...]], m: int) -> Iterable[tuple[str, ...]]:
    """The rows, and between them how many of the m tests are left out."""
    positions, rest = [int(row[0]) for row in rows], [""] * (len(rows[0]) - 2)
    for before, at, row in zip([0, *positions], positions, rows):
        if at > before + 1:
            yield ("...", f"({at - before - 1} more)", *rest)
        yield row
    if m > positions[-1]:
        yield ("...", f"({m - positions[-1]} more)", *rest)


def mean_cells(values: np.ndarray) -> tuple[str, str]:
    """A mean and its interval."""
    mean, low, high = mean_interval(values, _CONFIDENCE)
    return f"{mean:.4g}", _interval(low, high)


def share_cells(count: int, n: int, bound: str = "") -> tuple[str, str]:
    """A share of n and its exact interval, none where the count is a bound."""
    low, high = clopper_pearson(count, n, _CONFIDENCE)
    return f"{bound}{count / n:.4f}", "" if bound else _interval(float(low), float(high))


def _interval(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}"


def rounded_up(level: float) -> str:
    """The level with four decimals, so that a test at the level that is named does succeed."""
    return f"{math.ceil(level * 1e4) / 1e4:.4f}"
