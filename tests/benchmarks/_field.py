"""What other methods do on the same arrays, written for the comparison alone.

Each follows its paper's description: sampling as long as a set score is low, then filters on
diversity and on quality, each calibrated on its own part of the prompts (SCOPE-Gen, ICLR 2025, with
its set score "max", and its penalties and shares of epsilon); and one conformal budget of draws for
all prompts (the first stage of SAFER, 2025). The oracle is nobody's method: it knows the labels.
"""

from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration import CalibrationData, smallest_epsilon

__all__ = ["Deployed", "fixed_budget", "oracle", "scope_gen"]

_PER_DRAW = 0.1  # what a draw adds to the scores of sampling and diversity


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
    exit_size : float
        Size of an exit policy's sets with at most the same loss and draws; NaN where it needs more.
    """

    loss: float
    size: float
    draws: float
    judgements: float
    calibration_draws: float
    null: bool
    exit_size: float = np.nan


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
    data: CalibrationData,
    test: CalibrationData,
    epsilon: float,
    rng: np.random.Generator,
    filters: tuple[str, ...],
) -> Deployed:
    """Sampling, then filters, each calibrated on its own part at its share of epsilon.

    Sampling and both filters take draws in an order of their own, as long as a score that rises
    with their number is at most a conformal quantile. A filter is calibrated on the prompts of its
    part that the stages before have covered. Coverages multiply to 1 - epsilon, and sampling gets
    most; the guarantee is marginal. Prompts over budget are errors of the first stage. With one
    filter, on quality, equal texts are shown and judged once, as the authors do for exact answers.
    """
    once = "diversity" not in filters
    kept, kept_new = np.full(data.quality.shape, True), np.full(test.quality.shape, True)
    parts = np.array_split(rng.permutation(data.n_prompts), 1 + len(filters))
    shares = [(5 - len(filters)) / 5, *[1 / 5] * len(filters)]
    judged = np.zeros(data.n_prompts)
    for stage, part, share in zip(("sampling", *filters), parts, shares):
        scores, scores_new = _STAGES[stage](data, kept), _STAGES[stage](test, kept_new)
        found = np.where(kept & data.admissible, scores, np.inf).min(axis=1)
        asked = kept & (data.first == np.arange(data.k_max)) if once else kept
        last = np.minimum(_arrival(kept & data.admissible), data.k_max)
        judged[part] = np.sum(asked & (np.arange(data.k_max) < last[:, np.newaxis]), axis=1)[part]
        if stage != "sampling":
            part = part[np.any(kept & data.admissible, axis=1)[part]]
        level = _conformal_quantile(found[part], 1.0 - (1.0 - epsilon) ** share)
        kept, kept_new = kept & (scores <= level), kept_new & (scores_new <= level)
        if stage == "sampling":
            null = not np.isfinite(level)
            # a draw is made if it may still be kept, whatever its quality
            drawn, drawn_new = (
                1 + np.sum(s[:, :-1] + _PER_DRAW <= level + 1e-9, axis=1)
                for s in (scores, scores_new)
            )
            drawn[part] = last[part]
    judgements, draws = float(judged.mean()), float(drawn.mean())
    if null:
        return Deployed(np.nan, np.nan, np.nan, judgements, draws, True)
    shown = _texts_of(test, kept_new) if once else kept_new
    loss = float(np.mean(~np.any(shown & test.admissible, axis=1)))
    size = float(shown.sum(axis=1).mean())
    return Deployed(loss, size, float(drawn_new.mean()), judgements, draws, False)


def oracle(data: CalibrationData, epsilon: float) -> Deployed:
    """Labels known: the first admissible draw alone, but for the dearest prompts an empty set."""
    arrival = np.sort(_arrival(data.admissible))
    n_missed = int(epsilon * len(arrival))
    served = arrival[: len(arrival) - n_missed]
    draws = (served.sum() + n_missed) / len(arrival)
    size = len(served) / len(arrival)
    return Deployed(1.0 - size, size, float(draws), np.nan, np.nan, False)


def _arrival(admissible: np.ndarray) -> np.ndarray:
    """First admissible draw, from 1; K + 1 where there is none."""
    k_max = admissible.shape[1]
    return np.where(admissible.any(axis=1), admissible.argmax(axis=1) + 1, k_max + 1)


def _sampling(data: CalibrationData, kept: np.ndarray) -> np.ndarray:
    """Largest quality so far, and a price for each draw."""
    running = np.maximum.accumulate(data.quality, axis=1)
    return running + _PER_DRAW * np.arange(1, data.k_max + 1)


def _by_quality(data: CalibrationData, kept: np.ndarray) -> np.ndarray:
    """From the best draw on."""
    quality = np.where(kept, data.quality, -np.inf)
    order = np.argsort(-quality, axis=1, kind="stable")
    rank = np.argsort(order, axis=1) + 1
    return np.where(kept, 0.5 * rank - data.quality, np.inf)


def _by_distance(data: CalibrationData, kept: np.ndarray) -> np.ndarray:
    """From the first draw on, each time the one farthest from those before it."""
    n, k_max = kept.shape
    lower = np.tril(np.asarray(data.similarity, dtype=np.float64), -1)
    similarity = lower + np.swapaxes(lower, 1, 2)
    nearest = np.full((n, k_max), -np.inf)  # largest similarity to those before it
    scores = np.full((n, k_max), np.inf)
    chosen, rows, left = kept.argmax(axis=1), np.arange(n), kept.copy()
    for rank in range(1, k_max + 1):
        some = rows[left.any(axis=1)]
        at = chosen[some]
        scores[some, at] = -1.0 if rank == 1 else nearest[some, at] + _PER_DRAW * rank
        left[some, at] = False
        nearest = np.maximum(nearest, similarity[rows, chosen])
        chosen = np.where(left, nearest, np.inf).argmin(axis=1)
    return scores


def _texts_of(data: CalibrationData, kept: np.ndarray) -> np.ndarray:
    """The first draw of each text that is kept."""
    shown = np.zeros_like(kept)
    prompts, draws = np.nonzero(kept)
    shown[prompts, data.first[prompts, draws]] = True
    return shown


def _conformal_quantile(scores: np.ndarray, level: float) -> float:
    """The ceil((n + 1)(1 - level))-th smallest score; +inf where there are too few."""
    rank = int(np.ceil((len(scores) + 1) * (1.0 - level)))
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else np.inf


_STAGES = {"sampling": _sampling, "diversity": _by_distance, "quality": _by_quality}
