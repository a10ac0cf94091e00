"""What other methods do on the same arrays, written for the comparison alone.

Each follows its paper's description: sampling until the first admissible draw, then filters on
quality and on diversity, each calibrated on its own part of the prompts (SCOPE-Gen, ICLR 2025);
and one conformal budget of draws for all prompts (the first stage of SAFER, 2025).
"""

from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration import CalibrationData, smallest_epsilon

__all__ = ["Deployed", "fixed_budget", "scope_gen"]


class Deployed(NamedTuple):
    """A calibrated method on test prompts, and what its calibration cost.

    Parameters
    ----------
    loss, size, draws : float
        Means over the test prompts; NaN where nothing was certified.
    judgements, calibration_draws : float
        Judge calls and draws for each prompt given to calibration.
    null : bool
        Whether nothing was certified.
    """

    loss: float
    size: float
    draws: float
    judgements: float
    calibration_draws: float
    null: bool


def fixed_budget(
    data: CalibrationData, test: CalibrationData, epsilon: float, delta: float
) -> Deployed:
    """The smallest budget whose risk has an upper confidence limit of at most epsilon.

    Budgets are nested, so that they are tested from the largest down. A prompt whose K draws hold
    no admissible one is an error. Every calibration prompt is drawn from and judged until its
    first admissible draw.
    """
    n, k_max = data.admissible.shape
    arrival = _arrival(data.admissible)
    budget = None
    for k in range(k_max, 0, -1):
        if smallest_epsilon(int(np.sum(arrival > k)), n, delta) > epsilon:
            break
        budget = k
    judged = float(np.minimum(arrival, k_max).mean())
    if budget is None:
        return Deployed(np.nan, np.nan, np.nan, judged, judged, True)
    missed = float(np.mean(_arrival(test.admissible) > budget))
    return Deployed(missed, budget, budget, judged, judged, False)


def scope_gen(
    data: CalibrationData, test: CalibrationData, epsilon: float, rng: np.random.Generator
) -> Deployed:
    """Generation, then a quality filter, then a diversity filter, each at its share of epsilon.

    Sampling stops once the largest quality exceeds a quantile. Prompts over budget (none of the K
    draws admissible) count as errors of the first stage; a filter is calibrated on the prompts of
    its part that the stages before have covered. The three coverages multiply to 1 - epsilon, of
    which sampling gets most, or it could not be certified; the guarantee is marginal.
    """
    level_of_draws, level = 1.0 - (1.0 - epsilon) ** 0.7, 1.0 - (1.0 - epsilon) ** 0.15
    parts = np.array_split(rng.permutation(data.n_prompts), 3)
    arrival = _arrival(data.admissible)
    before = _running_before(data.quality)

    first = parts[0]
    scores = np.full(len(first), np.inf)
    found = arrival[first] <= data.k_max
    scores[found] = before[first[found], arrival[first[found]] - 1]
    stop_above = _conformal_quantile(scores, level_of_draws)

    generated = _generated(data.quality, stop_above)
    covered = np.any(generated & data.admissible, axis=1)
    second = parts[1][covered[parts[1]]]
    best = np.where(generated & data.admissible, data.quality, -np.inf).max(axis=1)
    least_quality = -_conformal_quantile(-best[second], level)

    kept = generated & (data.quality >= least_quality)
    distance = _distances_in_order(data, kept)
    third = parts[2][np.any(kept & data.admissible, axis=1)[parts[2]]]
    reach = np.where(kept & data.admissible, distance, -np.inf).max(axis=1)
    least_distance = -_conformal_quantile(-reach[third], level)

    generated_new = _generated(test.quality, stop_above)
    kept_new = generated_new & (test.quality >= least_quality)
    final = kept_new & (_distances_in_order(test, kept_new) >= least_distance)
    draws = generated.sum(axis=1)
    drawn = np.where(
        np.isin(np.arange(len(arrival)), first), np.minimum(arrival, data.k_max), draws
    )
    return Deployed(
        float(np.mean(~np.any(final & test.admissible, axis=1))),
        float(final.sum(axis=1).mean()),
        float(generated_new.sum(axis=1).mean()),
        float(drawn.mean()),
        float(drawn.mean()),
        not np.isfinite(stop_above),
    )


def _arrival(admissible: np.ndarray) -> np.ndarray:
    """First admissible draw, from 1; K + 1 where there is none."""
    k_max = admissible.shape[1]
    return np.where(admissible.any(axis=1), admissible.argmax(axis=1) + 1, k_max + 1)


def _running_before(quality: np.ndarray) -> np.ndarray:
    """Largest quality before each draw."""
    running = np.maximum.accumulate(quality, axis=1)
    return np.concatenate((np.full((len(quality), 1), -np.inf), running[:, :-1]), axis=1)


def _generated(quality: np.ndarray, stop_above: float) -> np.ndarray:
    """Draws taken: none after the first whose running maximum exceeds the quantile."""
    return _running_before(quality) <= stop_above


def _distances_in_order(data: CalibrationData, kept: np.ndarray) -> np.ndarray:
    """Distance of each kept draw to those chosen before it, farthest first; -inf if not kept."""
    n, k_max = kept.shape
    lower = np.tril(np.asarray(data.similarity, dtype=np.float64), -1)
    distance = 1.0 - (lower + np.swapaxes(lower, 1, 2))
    nearest = np.where(kept, np.inf, -np.inf)
    order = np.full((n, k_max), -np.inf)
    chosen = np.where(kept, data.quality, -np.inf).argmax(axis=1)
    rows = np.arange(n)
    open_draws = kept.copy()
    for _ in range(k_max):
        active = open_draws.any(axis=1)
        order[rows[active], chosen[active]] = nearest[rows[active], chosen[active]]
        open_draws[rows[active], chosen[active]] = False
        nearest = np.minimum(nearest, distance[rows, chosen])
        chosen = np.where(open_draws, nearest, -np.inf).argmax(axis=1)
    return order


def _conformal_quantile(scores: np.ndarray, level: float) -> float:
    """The ceil((n + 1)(1 - level))-th smallest score; +inf where there are too few."""
    rank = int(np.ceil((len(scores) + 1) * (1.0 - level)))
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else np.inf
