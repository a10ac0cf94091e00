"""How the estimators ask a generator for draws: all at once, or as the sampling rule wants them."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sklearn_clm.calibration import SamplingRule
from sklearn_clm.generators import Generation
from sklearn_clm.generators._base import stream

__all__ = ["complete_draws", "draw_until_done", "progress_bar", "take"]

RoundScores = Callable[
    [Sequence[Any], list[list[Generation]], int], tuple[np.ndarray, np.ndarray | None]
]


def take(prompts: Any, indices: Sequence[int] | np.ndarray) -> Any:
    """Prompts at `indices`, in the container they came in."""
    if isinstance(prompts, np.ndarray):
        return prompts[np.asarray(indices, dtype=np.intp)]
    return [prompts[i] for i in indices]


def complete_draws(
    generator: Any,
    prompts: Any,
    draws: list[list[Generation]],
    n_samples: int,
    *,
    seed: int,
    progress: Any,
) -> None:
    """Extend every prompt's draws to `n_samples`, in place.

    Where the generator fails, `draws` keeps what was made until then, and a second call asks for
    the rest alone.
    """
    by_length = defaultdict(list)
    for i, row in enumerate(draws):
        by_length[len(row)].append(i)
    for start, members in sorted(by_length.items()):
        if start >= n_samples:
            continue
        rows: list[list[Any]] = [[None] * (n_samples - start) for _ in members]
        try:
            for m, draw, generation in stream(
                generator, take(prompts, members), n_samples - start, start=start, seed=seed
            ):
                rows[m][draw - start] = generation
                _count_draw(progress, generator)
        finally:
            for i, row in zip(members, rows):
                known = next((k for k, draw in enumerate(row) if draw is None), len(row))
                draws[i].extend(row[:known])


def draw_until_done(
    generator: Any,
    prompts: Any,
    rules: list[SamplingRule],
    *,
    seed: int,
    scores: RoundScores,
    draws_per_round: int,
    progress: Any,
) -> tuple[list[list[Generation]], list[list[float]]]:
    """Draw in rounds over all prompts whose rule is not done, and tell each rule its draws.

    `scores(prompts, draws, start)` gives the quality (m, r) of the draws from `start` on and, or
    None where no rule rejects by it, their similarity (m, r, start + r) to all draws.
    """
    draws: list[list[Generation]] = [[] for _ in rules]
    qualities: list[list[float]] = [[] for _ in rules]
    open_prompts = [i for i, rule in enumerate(rules) if not rule.done]
    start = 0
    while open_prompts:
        n_samples = min(draws_per_round, max(rules[i].k_max for i in open_prompts) - start)
        chunk = take(prompts, open_prompts)
        for m, _, generation in _in_order(
            stream(generator, chunk, n_samples, start=start, seed=seed), len(chunk), n_samples
        ):
            draws[open_prompts[m]].append(generation)
            _count_draw(progress, generator)
        quality, similarity = scores(chunk, [draws[i] for i in open_prompts], start)
        for m, i in enumerate(open_prompts):
            for r in range(n_samples):
                if rules[i].done:
                    break
                row: Any = np.zeros(start + r) if similarity is None else similarity[m, r]
                rules[i].update(float(quality[m, r]), row)
                qualities[i].append(float(quality[m, r]))
        start += n_samples
        open_prompts = [i for i in open_prompts if not rules[i].done]
    # a round may have drawn past the stop; the set must not depend on the size of rounds
    return [row[: rule.n_samples] for row, rule in zip(draws, rules)], qualities


def _in_order(drawn: Any, n_prompts: int, n_samples: int) -> Any:
    if n_samples == 1:
        yield from drawn
        return
    yield from sorted(drawn, key=lambda item: item[:2])


def _count_draw(progress: Any, generator: Any) -> None:
    """One draw more on the bar, with what it all cost where the generator counts that."""
    progress.update(1)
    usage = None if progress.disable else getattr(generator, "usage_", None)
    if usage:
        progress.set_postfix(usage, refresh=False)


def progress_bar(verbose: int, total: int | None = None) -> Any:
    """Progress bar over draws."""
    from tqdm.auto import tqdm

    return tqdm(total=total, unit="draw", disable=not verbose)
