"""From a fitted sampler to prediction sets."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sklearn_clm._calibrating import draw_budgets
from sklearn_clm._drawing import draw_until_done, progress_bar, take
from sklearn_clm._prediction_sets import PredictionSet, PredictionSets
from sklearn_clm.calibration import Configuration, SamplingRule
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import get_set_score, quality_matrix, similarity_tensor
from sklearn_clm.scoring._quality import bind_quality

__all__ = ["sample_sets", "sets_of_fitted_prompts"]

_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.inf)


def sample_sets(sampler: Any, prompts: Any) -> list[PredictionSet]:
    """Run Algorithm 1 on every prompt, drawing as little as it asks for."""
    rules = [_new_rule(sampler) for _ in range(len(prompts))]
    score = bind_quality(sampler.quality, sampler.generator_)
    rejects_similarity = any(rule.configuration.similarity < np.inf for rule in rules)

    def scores(
        chunk: Any, draws: list[list[Generation]], start: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        n_jobs = sampler.n_jobs
        quality = quality_matrix(score, chunk, draws, start=start, n_jobs=n_jobs)
        if not rejects_similarity:
            return quality, None
        responses = [[draw.response for draw in row] for row in draws]
        return quality, similarity_tensor(sampler.similarity, responses, start=start, n_jobs=n_jobs)

    null = sampler.lambda_hat_ is None
    with progress_bar(sampler.verbose) as progress:
        draws, qualities = draw_until_done(
            sampler.generator_,
            prompts,
            rules,
            seed=sampler.seed_,
            scores=scores,
            draws_per_round=sampler.k_max_ if null else sampler.draws_per_round,
            progress=progress,
        )
    return [
        _as_set(sampler, *parts) for parts in zip(prompts, rules, draws, qualities, strict=True)
    ]


def sets_of_fitted_prompts(sampler: Any, prompts: Any) -> PredictionSets:
    """Sets of the prompts given to fit, from the draws that fit made of them."""
    n, data = len(prompts), sampler.calibration_data_
    mask = np.zeros(n, dtype=bool)
    mask[sampler.calibration_indices_] = True
    sets: list[Any] = [None] * n
    known: list[Sequence[Generation]] = [()] * n
    for row, i in enumerate(sampler.calibration_indices_):
        known[i] = sampler.calibration_draws_[row]
        rule = _new_rule(sampler)
        while not rule.done:
            draw = rule.n_samples
            rule.update(float(data.quality[row, draw]), data.similarity[row, draw])
        sets[i] = _as_set(sampler, prompts[i], rule, known[i], data.quality[row])
    others = np.flatnonzero(~mask)
    for i, one in zip(others, sample_sets(sampler, take(prompts, others)), strict=True):
        sets[i] = one
    return PredictionSets(
        sets, sampler.k_max_, sampler=sampler, calibration_draws=known, calibration_mask=mask
    )


def _new_rule(sampler: Any) -> SamplingRule:
    configuration = _ACCEPT_ALL if sampler.lambda_hat_ is None else sampler.lambda_hat_
    # a budget that was chosen among several: calibration saw the draws of the largest
    width = max(sampler.k_max_, draw_budgets(sampler.k_max)[-1])
    return SamplingRule(configuration, get_set_score(sampler.set_score), sampler.k_max_, width)


def _as_set(
    sampler: Any, prompt: Any, rule: SamplingRule, draws: Sequence[Generation], quality: Any
) -> PredictionSet:
    return PredictionSet(
        prompt=prompt,
        responses=tuple(draws[j].response for j in rule.accepted),
        quality=np.array([quality[j] for j in rule.accepted], dtype=np.float64),
        indices=np.array(rule.accepted, dtype=np.intp),
        n_samples=rule.n_samples,
        set_score=rule.score,
        stopped=rule.stopped,
        guaranteed=sampler.lambda_hat_ is not None,
        generations=tuple(draws[: rule.n_samples]),
    )
