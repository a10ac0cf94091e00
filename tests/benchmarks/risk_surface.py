"""The 27 x 27 x 27 risk surface beside one evaluation in NumPy for each configuration."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
from validity.procedures import mean_quality

from sklearn_clm.calibration import CalibrationData, risk_surface
from sklearn_clm.calibration._search import threshold_grid

from . import Row, best_time, measured_apart
from ._memory import forget_peak, peak_gib

__all__ = ["rows"]

_N_CONFIGURATIONS = 20


def rows(quick: bool = False) -> Iterator[Row]:
    """Time the surface, then memory and cost at growing n."""
    n = 400 if quick else 1_565
    for kind, k, set_score in (
        ("unrelated", 20, "sum"),
        ("clustered", 20, "sum"),
        ("clustered", 20, "max"),
        ("clustered", 20, "first_k_reject"),
        ("clustered", 20, mean_quality),
        ("unrelated", 64, "sum"),
    ):
        yield from _beside_numpy(simulate(n, k, kind), kind, set_score)
    yield from _growing(quick)


def _beside_numpy(data: CalibrationData, kind: str, set_score: Any) -> Iterator[Row]:
    grid = threshold_grid(data, set_score=set_score)
    shape = tuple(map(len, grid))
    surface = risk_surface(data, *grid, set_score=set_score)
    rng = np.random.default_rng(0)
    chosen = [tuple(rng.integers(shape)) for _ in range(_N_CONFIGURATIONS)]
    ours = best_time(lambda: risk_surface(data, *grid, set_score=set_score), 5)
    name = set_score if isinstance(set_score, str) else "vectorised callable"
    for reference, label in ((algorithm_1, "draw by draw"), (algorithm_1_tuned, "tuned by hand")):
        times = []
        for index in chosen:
            configuration = [axis[i] for axis, i in zip(grid, index)]
            start = perf_counter()
            n_errors = reference(data, *configuration, set_score)
            times.append(perf_counter() - start)
            assert int(surface.n_errors[index]) == n_errors, configuration
        each, scaled_up = 1e3 * np.mean(times), float(np.mean(times)) * surface.loss.size
        yield Row(
            f"surface {' x '.join(map(str, shape))}, n = {data.n_prompts:,}, K = {data.k_max}, "
            f"{name}, {kind} draws",
            f"NumPy per configuration, {label} ({each:.1f} ms each): {scaled_up:.1f} s",
            f"{1e3 * ours:.0f} ms",
            scaled_up / ours,
        )


def _growing(quick: bool) -> Iterator[Row]:
    sizes = [1_000, 10_000] if quick else [1_000, 10_000, 100_000]
    per_prompt = 0.0
    for n in sizes:
        measured = measured_apart(__name__, n)
        seconds = measured["seconds"]
        per_prompt = per_prompt or seconds / n
        yield Row(
            f"surface 27 x 27 x 27, n = {n:,}, K = 20, sum, "
            f"{measured['peak_gib']:.2f} GiB at the peak: time over that of n = 1,000, scaled up",
            f"{per_prompt * n:.2f} s",
            f"{seconds:.2f} s",
            seconds / (per_prompt * n),
        )


def measure(n: int) -> dict[str, float]:
    """The time of one surface, and the memory it took."""
    data = simulate(n, 20, "clustered")
    forget_peak()
    grid = threshold_grid(data, set_score="sum")
    repeats = 3 if n <= 10_000 else 1
    seconds = best_time(lambda: risk_surface(data, *grid, set_score="sum"), repeats)
    return {"seconds": seconds, "peak_gib": peak_gib()}


def algorithm_1(data: CalibrationData, l1: float, l2: float, l3: float, set_score: Any) -> int:
    """Errors of one configuration: draw by draw, over all prompts."""
    n, k = data.quality.shape
    accepted = np.zeros((n, k), dtype=bool)
    active = np.ones(n, dtype=bool)
    for j in range(k):
        similar = np.where(accepted, data.similarity[:, j], -np.inf).max(axis=1)
        new = active & (data.quality[:, j] >= l2) & ((similar <= l1) | ~accepted.any(axis=1))
        accepted[:, j] = new
        if set_score == "max":
            score = np.where(accepted, data.quality, -np.inf).max(axis=1)
        elif set_score == "sum":
            score = np.where(accepted, data.quality, 0.0).sum(axis=1)
        elif set_score == "first_k":
            score = accepted.sum(axis=1)
        elif set_score == "first_k_reject":
            score = j + 1.0
        else:
            score = set_score(data.quality, accepted)
        active &= ~(accepted.any(axis=1) & (score >= l3))
    return int(np.sum(~(accepted & data.admissible).any(axis=1)))


def algorithm_1_tuned(
    data: CalibrationData, l1: float, l2: float, l3: float, set_score: Any
) -> int:
    """The same: all draws first, on no more columns than needed, then where each prompt stops."""
    n, k = data.quality.shape
    accepted = np.zeros((n, k), dtype=bool)
    for j in range(k):
        conflict = (accepted[:, :j] & (data.similarity[:, j, :j] > l1)).any(axis=1)
        accepted[:, j] = (data.quality[:, j] >= l2) & ~conflict
    draws = np.arange(k)
    if set_score == "max":
        score = np.maximum.accumulate(np.where(accepted, data.quality, -np.inf), axis=1)
    elif set_score == "sum":
        score = np.cumsum(np.where(accepted, data.quality, 0.0), axis=1)
    elif set_score == "first_k_reject":
        score = np.broadcast_to(draws + 1.0, (n, k))
    else:
        score = np.column_stack(
            [set_score(data.quality, accepted & (draws <= j)) for j in range(k)]
        )
    stops = (score >= l3) & np.logical_or.accumulate(accepted, axis=1)
    samples = np.where(stops.any(axis=1), stops.argmax(axis=1) + 1, k)
    members = accepted & (draws < samples[:, np.newaxis])
    return int(np.sum(~(members & data.admissible).any(axis=1)))


def simulate(n: int, k: int, kind: str, *, seed: int = 0) -> CalibrationData:
    """Unrelated draws (the hardest case: every draw differs), or draws of a dozen answers."""
    rng = np.random.default_rng(seed)
    if kind == "unrelated":
        quality = rng.random((n, k))
        similarity = rng.random((n, k, k))
        return CalibrationData(quality, similarity, rng.random((n, k)) < 0.15)
    return CalibrationData(*_clustered(rng, n, k))


def _clustered(
    rng: np.random.Generator, n: int, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n_answers = 12
    decay = (1.0 - rng.beta(0.8, 1.2, (n, 1))) ** np.arange(n_answers) + 0.01
    probability = decay / decay.sum(axis=1, keepdims=True)
    thresholds = probability.cumsum(axis=1)[:, np.newaxis, :-1]
    answer = (rng.random((n, k, 1)) > thresholds).sum(axis=2)
    of_answer = 0.5 * rng.beta(2, 2, (n, n_answers)) + 0.5 * probability
    noise = np.exp(0.1 * rng.standard_normal((n, k)))
    quality = np.take_along_axis(of_answer, answer, axis=1) * noise
    between = rng.beta(1, 3, (n, n_answers, n_answers))
    row = np.arange(n)[:, np.newaxis, np.newaxis]
    same = answer[:, :, np.newaxis] == answer[:, np.newaxis]
    similarity = np.where(
        same,
        1.0 - 0.3 * rng.random((n, k, k)) ** 2,
        between[row, answer[:, :, np.newaxis], answer[:, np.newaxis]],
    )
    # similarities of short texts are fractions of small denominators, full of ties
    similarity = np.round(24 * similarity) / 24
    right = np.where(rng.random(n) < 0.7, rng.integers(0, n_answers, n), -1)
    return quality, similarity, answer == right[:, np.newaxis]
