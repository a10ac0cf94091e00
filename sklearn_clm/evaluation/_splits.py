"""What every protocol of repeated random splits shares: levels, splits and critical counts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from sklearn_clm.calibration import binomial_p_value

__all__ = ["check_delta", "check_levels", "critical_counts", "part_sizes", "trial_streams"]


def check_levels(name: str, levels: ArrayLike | None) -> np.ndarray:
    """Levels as a strictly increasing array in [0, 1]; 101 of them by default."""
    if levels is None:
        return np.linspace(0.0, 1.0, 101)
    array = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a non-empty 1-D array, got shape {array.shape}.")
    if not np.all((array >= 0.0) & (array <= 1.0)):
        raise ValueError(f"{name} must lie in [0, 1], got {array.min()} to {array.max()}.")
    if not np.all(np.diff(array) > 0.0):
        raise ValueError(f"{name} must be strictly increasing, got {array}.")
    return array


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be in (0, 1), got {delta}.")


def part_sizes(n_prompts: int, fractions: dict[str, float]) -> tuple[int, ...]:
    """Prompts in each named part of a split; what remains is for the test."""
    for name, fraction in fractions.items():
        if not 0.0 < fraction < 1.0:
            raise ValueError(f"{name} must be in (0, 1), got {fraction}.")
    total = sum(fractions.values())
    if total >= 1.0:
        raise ValueError(
            f"{' + '.join(fractions)} = {total:g} leaves nothing to test on; wanted less than 1."
        )
    sizes = tuple(round(fraction * n_prompts) for fraction in fractions.values())
    for name, size in (*zip(fractions, sizes), ("the test part", n_prompts - sum(sizes))):
        if size < 1:
            raise ValueError(
                f"data has {n_prompts} prompts, which leaves {name} with none; wanted more "
                "prompts or other fractions."
            )
    return sizes


def trial_streams(random_state: Any, n_trials: int) -> Sequence[np.random.Generator]:
    """One independent stream for each trial, whoever runs it and in whatever order."""
    if n_trials < 1:
        raise ValueError(f"n_trials must be at least 1, got {n_trials}.")
    try:
        rng = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(
            f"random_state must be a number from 0 to 2**32 - 1, a RandomState or None, got "
            f"{random_state!r:.60}."
        ) from error
    seed = int(rng.randint(np.iinfo(np.int32).max))
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n_trials)]


def critical_counts(n: int, levels: np.ndarray, delta: float) -> np.ndarray:
    """Largest number of errors among n whose p-value is at most delta; -1 where even 0 fails.

    p-values rise with the count, so comparing counts decides every test exactly as comparing
    p-values does, without computing one for each.
    """
    counts = np.arange(n + 1)
    inner = (levels > 0.0) & (levels < 1.0)
    critical = np.full(levels.shape, -1)
    critical[levels == 1.0] = n  # a loss never exceeds 1
    for index in np.flatnonzero(inner):
        p_values = np.asarray(binomial_p_value(counts, n, float(levels[index])))
        critical[index] = np.count_nonzero(p_values <= delta) - 1
    return critical
