"""Which draws component selection calibrates on: all K of each prompt, made once."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._calibrating import calibrated_with, draw_budgets
from sklearn_clm._caller import caller_level
from sklearn_clm._collecting import _key_of_draws as key_of_draws
from sklearn_clm._collecting import prompt_digests
from sklearn_clm._drawing import complete_draws, progress_bar, take
from sklearn_clm._predicting import sets_of_fitted_prompts
from sklearn_clm._prompts import check_admissions, check_fitted_prompts, check_prompts
from sklearn_clm._results import PredictionSets, drawn_by
from sklearn_clm._sampler import ConformalSampler
from sklearn_clm.generators import Generation
from sklearn_clm.generators._base import fingerprint

__all__ = [
    "CalibrationDraws",
    "calibration_draws",
    "check_sets",
    "refuse_without_logprobs",
    "sampler_for_prompts",
    "sets_of_fit",
]


@dataclass(frozen=True)
class CalibrationDraws:
    """All K draws of the prompts that calibrate, and the sampler that they belong to."""

    sampler: Any
    prompts: Any
    draws: list[list[Generation]]
    admissions: list[Any]
    indices: np.ndarray


def is_fitted(sampler: Any) -> bool:
    """Whether there is a sampler, and it can predict."""
    if sampler is None:
        return False
    try:
        check_is_fitted(sampler)
    except NotFittedError:
        return False
    return True


def calibration_draws(selector: Any, X: Any, y: Any) -> CalibrationDraws:
    """Draws for prompts or prediction sets; those of an earlier, failed attempt are taken up."""
    if isinstance(X, PredictionSets):
        return _of_sets(selector, X, y)
    if is_fitted(selector.sampler):
        checked = check_fitted_prompts(selector.sampler, X)
        admissions = check_admissions(y, len(checked), estimator=selector)
        _warn_of_training_prompts(selector.sampler, checked.prompts)
        none: list[list[Generation]] = [[] for _ in range(len(checked))]
        draws = _completed(selector, selector.sampler, checked.prompts, none)
        everyone = np.arange(len(checked))
        return CalibrationDraws(selector.sampler, checked.prompts, draws, admissions, everyone)
    return _of_new_sampler(selector, X, y)


def refuse_without_logprobs(selector: Any, score: Any, X: Any) -> None:
    """Refuse what can be known to fail before anything is paid for."""
    sampler = getattr(X, "sampler", None) or selector.sampler
    generator = getattr(sampler, "generator_", None) or getattr(sampler, "generator", None)
    if getattr(score, "needs_logprobs", False) and not getattr(generator, "gives_logprobs", True):
        raise ValueError(
            f"component_score={selector.component_score!r} needs log-probabilities, which "
            f"{type(generator).__name__} does not give; wanted another component_score, such "
            "as 'support' or a callable (prompt, component) -> float, or a generator that "
            "gives log-probabilities."
        )


def check_sets(selector: Any, sets: PredictionSets) -> None:
    """Refuse sets of other draws than those that calibration knows."""
    budget = getattr(selector, "_n_draws", None)
    largest = max((one.n_samples for one in sets), default=0)
    if budget is not None and largest > budget:
        raise ValueError(
            f"X holds a set of {largest} draws, and calibration saw {budget} for each prompt; the "
            "guarantee does not reach beyond."
        )
    known = getattr(selector, "_drawn_by", None)
    _refuse_other_draws(sets, known, "the draws of calibration")


def _refuse_other_draws(sets: PredictionSets, known: Any, whose: str) -> None:
    found = sets._drawn_by
    if known is None or found is None:
        return
    # a sampler that is fitted anew has another generator, so that this one tells most cases
    if known[0] is found[0] and known[1] == found[1]:
        return
    sources = [(fingerprint(generator), seed) for generator, seed in (known, found)]
    if sources[0] != sources[1]:
        raise ValueError(
            "X holds sets that were drawn by another generator, or with another seed, than "
            f"{whose}: (fingerprint, seed) is {sources[1]}, wanted {sources[0]}."
        )


def _warn_of_training_prompts(sampler: Any, prompts: Any) -> None:
    trained_on = getattr(sampler, "_trained_on", ())
    known = np.isin(prompt_digests(prompts), trained_on).sum() if len(trained_on) else 0
    if known:
        warnings.warn(
            f"X holds {len(prompts)} prompts, {known} of which trained the generator of the "
            "sampler; the guarantee needs prompts that it has not seen. Pass others, or an "
            "unfitted sampler, which then leaves its training prompts out.",
            UserWarning,
            stacklevel=caller_level(),
        )


def sampler_for_prompts(selector: Any) -> Any:
    """The sampler that makes sets of prompts for a calibrated selector."""
    given = selector.sampler if is_fitted(selector.sampler) else None
    sampler = getattr(selector, "sampler_", given)
    if sampler is None:
        raise NotFittedError(
            "X holds prompts, but this ComponentSelector was calibrated on arrays and has no "
            "fitted sampler for them; wanted prediction sets, or a fitted sampler=."
        )
    return sampler


def sets_of_fit(selector: Any, X: Any) -> Any:
    """Sets of the prompts that were just fitted, where the sampler was fitted on them, too."""
    if isinstance(X, PredictionSets) or selector.sampler_ is selector.sampler:
        return X
    return sets_of_fitted_prompts(selector.sampler_, check_prompts(X).prompts)


def _of_new_sampler(selector: Any, X: Any, y: Any) -> CalibrationDraws:
    sampler = ConformalSampler() if selector.sampler is None else clone(selector.sampler)
    if sampler.random_state is None:
        sampler.set_params(random_state=selector.random_state)
    sampler._paid_draws = getattr(selector, "_paid_draws", None)
    try:
        sampler.fit(X, y)
    except BaseException:
        selector._paid_draws = getattr(sampler, "_paid_draws", None)
        if selector._paid_draws is None and hasattr(sampler, "calibration_draws_"):
            _remember(selector, sampler, X)
        raise
    _remember(selector, sampler, X)
    indices = sampler.calibration_indices_
    checked = check_prompts(X, estimator=selector)
    admissions = check_admissions(y, len(checked), estimator=selector)
    return CalibrationDraws(
        sampler,
        take(checked.prompts, indices),
        sampler.calibration_draws_,
        [admissions[i] for i in indices],
        indices,
    )


def _remember(selector: Any, sampler: Any, X: Any) -> None:
    """Keep the draws, which were paid for, should a later step fail."""
    prompts = take(check_prompts(X).prompts, sampler.calibration_indices_)
    key = key_of_draws(sampler.generator_, prompts, sampler.seed_)
    selector._paid_draws = (key, sampler.calibration_draws_)


def _of_sets(selector: Any, sets: PredictionSets, y: Any) -> CalibrationDraws:
    admissions = check_admissions(y, len(sets), estimator=selector)
    sampler = sets.sampler if sets.sampler is not None else selector.sampler
    _refuse_other_draws(sets, drawn_by(sampler), "those that their sampler makes now")
    if sets.calibration_draws is not None and sets.calibration_mask is not None:
        indices = np.flatnonzero(sets.calibration_mask)
        draws = [list(sets.calibration_draws[i]) for i in indices]
        prompts = [sets[i].prompt for i in indices]
    elif is_fitted(sampler):
        indices = np.arange(len(sets))
        prompts = [one.prompt for one in sets]
        _warn_of_training_prompts(sampler, prompts)
        draws = _completed(selector, sampler, prompts, [list(one.generations) for one in sets])
    else:
        raise ValueError(
            "X holds prediction sets that know neither all their draws nor the sampler that made "
            "them; wanted those of the fit_transform of a sampler (as in a Pipeline), a fitted "
            "sampler=, or prompts."
        )
    if not len(indices):
        raise ValueError(
            f"X holds {len(sets)} prediction sets, none of which sampling was calibrated on; "
            "wanted at least one."
        )
    return CalibrationDraws(sampler, prompts, draws, [admissions[i] for i in indices], indices)


def _completed(
    selector: Any, sampler: Any, prompts: Any, draws: list[list[Generation]]
) -> list[list[Generation]]:
    # the whole budget, even where calibration chose a smaller one: the choice was made on data
    n_samples = draw_budgets(calibrated_with(sampler, "k_max"))[-1]
    key = key_of_draws(sampler.generator_, prompts, sampler.seed_)
    kept_key, kept = getattr(selector, "_paid_draws", None) or (None, [])
    draws = kept if kept_key == key else draws
    selector._paid_draws = (key, draws)
    with progress_bar(sampler.verbose, len(prompts) * n_samples) as progress:
        progress.update(sum(len(row[:n_samples]) for row in draws))
        complete_draws(
            sampler.generator_, prompts, draws, n_samples, seed=sampler.seed_, progress=progress
        )
    return [row[:n_samples] for row in draws]
