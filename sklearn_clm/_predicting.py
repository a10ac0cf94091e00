"""From a fitted sampler to prediction sets."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sklearn_clm._calibrating import calibrated_with, draw_budgets
from sklearn_clm._drawing import draw_until_done, progress_bar, take
from sklearn_clm._results import PredictionSet, PredictionSets
from sklearn_clm.calibration import CalibrationData, Configuration, SamplingRule
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import get_set_score, quality_matrix, similarity_tensor
from sklearn_clm.scoring._quality import bind_quality

__all__ = ["sample_sets", "sets_of_fitted_prompts"]

# no number reaches a set score that is none: even one of +inf stops nothing
_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.nan)


def sample_sets(sampler: Any, prompts: Any) -> list[PredictionSet]:
    """Run Algorithm 1 on every prompt, drawing as little as it asks for."""
    rules = _new_rules(sampler, len(prompts))
    score = bind_quality(calibrated_with(sampler, "quality"), sampler.generator_)
    alike = calibrated_with(sampler, "similarity")
    lambda_hat = sampler.lambda_hat_
    rejects_similarity = lambda_hat is not None and lambda_hat.similarity < np.inf

    def scores(
        chunk: Any, draws: list[list[Generation]], start: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        n_jobs = sampler.n_jobs
        quality = quality_matrix(score, chunk, draws, start=start, n_jobs=n_jobs)
        if not rejects_similarity:
            return quality, None
        responses = [[draw.response for draw in row] for row in draws]
        return quality, similarity_tensor(alike, responses, start=start, n_jobs=n_jobs)

    with progress_bar(sampler.verbose) as progress:
        draws, qualities = draw_until_done(
            sampler.generator_,
            prompts,
            rules,
            seed=sampler.seed_,
            scores=scores,
            draws_per_round=sampler.draws_per_round if lambda_hat else sampler.k_max_,
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
    rules = _new_rules(sampler, len(sampler.calibration_indices_))
    for row, (i, rule) in enumerate(zip(sampler.calibration_indices_, rules)):
        known[i] = sampler.calibration_draws_[row]
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


def _new_rules(sampler: Any, n: int) -> list[SamplingRule]:
    configuration = _ACCEPT_ALL if sampler.lambda_hat_ is None else sampler.lambda_hat_
    set_score = get_set_score(calibrated_with(sampler, "set_score"))
    # a budget that was chosen among several: calibration saw the draws of the largest
    width = max(sampler.k_max_, draw_budgets(calibrated_with(sampler, "k_max"))[-1])
    data: CalibrationData | None = getattr(sampler, "calibration_data_", None)
    precision = None if data is None else data.provenance.precision
    return [
        SamplingRule(configuration, set_score, sampler.k_max_, width, precision) for _ in range(n)
    ]


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
