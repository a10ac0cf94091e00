"""The paper's whole protocol, beside one evaluation in NumPy for each configuration."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
from joblib import cpu_count

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration._search import threshold_grid
from sklearn_clm.evaluation import run_trials

from . import Row, best_time, measured_apart
from ._memory import peak_gib
from .risk_surface import algorithm_1, simulate

__all__ = ["rows"]

_SETTINGS = {
    "full": {"n": 15_658, "k": 20, "n_trials": 100, "n_epsilons": 101},
    "quick": {"n": 3_000, "k": 20, "n_trials": 8, "n_epsilons": 101},
}


def rows(quick: bool = False) -> Iterator[Row]:
    """Time all trials, and memory at its peak, in a process of its own."""
    name = "quick" if quick else "full"
    settings = _SETTINGS[name]
    measured = measured_apart(__name__, name)
    what = (
        f"protocol: {settings['n_trials']} trials x 5 methods x {settings['n_epsilons']} epsilons, "
        f"n = {settings['n']:,}, K = {settings['k']}, {measured['n_jobs']} cores"
    )
    reference, ours = measured["reference_s"], measured["ours_s"]
    yield Row(
        what,
        f"NumPy per configuration, one core, extrapolated: {reference / 3600:.1f} h",
        f"{ours:.0f} s",
        reference / ours,
    )
    limit, peak = 4.0, measured["peak_gib"]
    yield Row(f"{what}: memory", f"limit: {limit:g} GiB", f"{peak:.2f} GiB", limit / peak)


def noisy_or(quality: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """Probability that any of the accepted draws is right, were they independent."""
    return 1.0 - np.prod(np.where(accepted, 1.0 - quality, 1.0), axis=1)


_METHODS = ("first_k", "first_k_reject", "max", "sum", noisy_or)


def measure(name: str) -> dict[str, float]:
    """Time and memory of all trials."""
    n, k, n_trials, n_epsilons = _SETTINGS[name].values()
    data = simulate(n, k, "clustered")
    n_jobs = cpu_count()
    start = perf_counter()
    epsilons = np.linspace(0.0, 1.0, n_epsilons + 2)[1:-1]
    options = {"n_trials": n_trials, "random_state": 0, "n_jobs": n_jobs, "verbose": 1}
    run_trials(data, _METHODS, epsilons, **options)
    ours = perf_counter() - start
    peak = peak_gib()
    reference = n_trials * sum(_reference_seconds(data, method) for method in _METHODS)
    return {"ours_s": ours, "reference_s": reference, "peak_gib": peak, "n_jobs": n_jobs}


def _reference_seconds(data: CalibrationData, method: Any) -> float:
    """One trial of one method: the grid on the frontier part, and every epsilon on the test part.

    What one configuration takes is the same for all on so many prompts; so a few are timed.
    """
    n_frontier, n_test = round(0.1 * data.n_prompts), round(0.7 * data.n_prompts)
    frontier, test = data.take(range(n_frontier)), data.take(range(n_test))
    grid = threshold_grid(frontier, set_score=method)
    middle = tuple(float(thresholds[len(thresholds) // 2]) for thresholds in grid)
    n_configurations = np.prod([len(thresholds) for thresholds in grid])
    seconds = n_configurations * best_time(lambda: algorithm_1(frontier, *middle, method))
    # some 30 different configurations are chosen for all epsilons together
    return float(seconds + 30 * best_time(lambda: algorithm_1(test, *middle, method)))
