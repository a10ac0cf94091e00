"""Power: how often each test certifies what is safe, side by side on the same data."""

from collections.abc import Callable

import numpy as np

from sklearn_clm.calibration import (
    betting_p_value,
    binomial_p_value,
    keep_by_weight,
    weighted_betting_p_value,
)
from tests.calibration.hoeffding_bentkus import hoeffding_bentkus_p_value

N, EPSILON, DELTA = 300, 0.2, 0.05
MEANS = (0.1, 0.13, 0.16)
SHIFTED_MEANS = (0.05, 0.08, 0.11)
BOUNDS = (2.0, 4.0, 10.0)


def _share_of_wrong(rng: np.random.Generator, mean: float, shape: tuple[int, int]) -> np.ndarray:
    return rng.binomial(5, rng.beta(mean * 2, (1 - mean) * 2, shape)) / 5


LOSSES: dict[str, Callable[[np.random.Generator, float, tuple[int, int]], np.ndarray]] = {
    "0 or 1": lambda rng, mean, shape: (rng.random(shape) < mean).astype(np.float64),
    "share of wrong among five": _share_of_wrong,
    "toxicity, beta with variance 0.002": lambda rng, mean, shape: rng.beta(
        mean * (mean * (1 - mean) / 0.002 - 1), (1 - mean) * (mean * (1 - mean) / 0.002 - 1), shape
    ),
}


def power_of_losses(kind: str, mean: float, n_runs: int, seed: int = 0) -> dict[str, float]:
    """Share of the runs whose p-value is at most delta, for losses of this mean."""
    rng = np.random.default_rng([seed, sorted(LOSSES).index(kind), round(1000 * mean)])
    losses = LOSSES[kind](rng, mean, (N, n_runs))
    errors = np.sum(rng.random(losses.shape) < losses, axis=0)
    p_values = {
        "betting": betting_p_value(losses, EPSILON),
        "Hoeffding-Bentkus": hoeffding_bentkus_p_value(losses, EPSILON),
        "binomial of errors drawn from the losses": binomial_p_value(errors, N, EPSILON),
    }
    return {name: float(np.mean(values <= DELTA)) for name, values in p_values.items()}


def power_under_shift(
    bound: float, mean: float, n_runs: int, seed: int = 0
) -> tuple[dict[str, float], float]:
    """The same for weights B and 1/2 and a risk of new prompts; and the mean number kept."""
    rng = np.random.default_rng([seed, int(bound), round(1000 * mean)])
    # both kinds of prompts have weights of mean 1, and the rarer kind errs twice as often
    hard = rng.random((n_runs, N)) < 0.5 / (bound - 0.5)
    weights = np.where(hard, bound, 0.5)
    share_new = bound * 0.5 / (bound - 0.5)
    easy_risk = mean / (1 + share_new)
    losses = rng.random(hard.shape) < np.where(hard, 2 * easy_risk, easy_risk)
    kept = np.array([keep_by_weight(w, bound, rng.integers(2**62, size=N)) for w in weights])
    errors, n_kept = np.sum(losses & kept, axis=1), kept.sum(axis=1)
    p_values = {
        "rejection": np.asarray(binomial_p_value(errors, np.maximum(n_kept, 1), EPSILON)),
        "betting": np.array(
            [
                weighted_betting_p_value(one, w, EPSILON, bound=bound)
                for one, w in zip(losses.astype(np.float64), weights)
            ]
        ),
    }
    shares = {name: float(np.mean(values <= DELTA)) for name, values in p_values.items()}
    return shares, float(n_kept.mean())


def power_markdown(n_runs: int) -> str:
    """Both tables."""
    found = {(kind, mean): power_of_losses(kind, mean, n_runs) for kind in LOSSES for mean in MEANS}
    tests = list(next(iter(found.values())))
    lines = [
        f"Losses in [0, 1]: share certified with n = {N}, epsilon = {EPSILON:g}, "
        f"delta = {DELTA:g}; {n_runs:,} runs.",
        "",
        f"| losses | mean | {' | '.join(tests)} |",
        "|---|---|" + "---|" * len(tests),
    ]
    for (kind, mean), shares in found.items():
        values = " | ".join(f"{shares[test]:.3f}" for test in tests)
        lines.append(f"| {kind} | {mean:g} | {values} |")
    lines += [
        "",
        "Shift with weights B and 1/2, the same numbers otherwise.",
        "",
        "| B | risk of new prompts | rejection | betting | prompts kept |",
        "|---|---|---|---|---|",
    ]
    for bound in BOUNDS:
        for mean in SHIFTED_MEANS:
            shares, kept = power_under_shift(bound, mean, n_runs)
            lines.append(
                f"| {bound:g} | {mean:g} | {shares['rejection']:.3f} | {shares['betting']:.3f} "
                f"| {kept:.0f} |"
            )
    return "\n".join(lines)
