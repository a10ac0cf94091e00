"""The expensive half of fit: training a generator, drawing, scoring, judging."""

import copy
import hashlib
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from sklearn_clm._calibrating import draw_budgets, is_own, scores_of_collection
from sklearn_clm._drawing import complete_draws, progress_bar, take
from sklearn_clm._prompts import CheckedPrompts
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import Generation, ResamplingGenerator, prompt_bytes
from sklearn_clm.generators._base import fingerprint
from sklearn_clm.scoring import (
    admission_matrix,
    get_admission,
    get_quality,
    get_set_score,
    get_similarity,
    likelihood,
    quality_matrix,
    similarity_tensor,
)
from sklearn_clm.scoring._quality import bind_quality

__all__ = ["N_JOBS", "collect", "generator_for", "prompt_digests", "untrained_generator"]

# values of the parameter n_jobs; joblib refuses 0 only after draws have been paid for
N_JOBS = [
    Interval(Integral, None, -1, closed="right"),
    Interval(Integral, 1, None, closed="left"),
    None,
]


def collect(sampler: Any, checked: CheckedPrompts, admissions: list[Any]) -> dict[str, Any]:
    """Fitted attributes that do not depend on calibration, by name."""
    check_scores(sampler, sampler.generator)
    generator, seed, indices = _trained_generator(sampler, checked, admissions)
    training = np.setdiff1d(np.arange(len(checked)), indices)
    prompts = take(checked.prompts, indices)
    admissions = [admissions[i] for i in indices]
    draws = _draw_all(sampler, generator, prompts, seed)
    responses = [[draw.response for draw in row] for row in draws]
    _refuse_all_empty(generator, responses)
    n_jobs = sampler.n_jobs
    data = CalibrationData(
        quality_matrix(bind_quality(sampler.quality, generator), prompts, draws, n_jobs=n_jobs),
        similarity_tensor(sampler.similarity, responses, n_jobs=n_jobs),
        admission_matrix(sampler.admission, admissions, responses, n_jobs=n_jobs),
    )
    if hasattr(generator, "fingerprint") or hasattr(generator, "get_params"):
        # of another one, all attributes would count, be they mere counters
        data.provenance = replace(data.provenance, generator=fingerprint(generator))
    return {
        "_collected_with": scores_of_collection(sampler),
        "generator_": generator,
        "seed_": seed,
        "_trained_on": np.unique(prompt_digests(take(checked.prompts, training))),
        "calibration_indices_": indices,
        "calibration_draws_": draws,
        "calibration_data_": data,
    }


def generator_for(sampler: Any, data: CalibrationData) -> dict[str, Any]:
    """Generator and seed of data from elsewhere, for a sampler that has none, or another one."""
    generator = getattr(sampler, "generator_", None)
    if generator is not None:
        if is_own(sampler, data):
            return {}
        now = _copy_of(sampler.generator)
        if hasattr(now, "fit") or fingerprint(now) == fingerprint(generator):
            _refuse_other_draws(data, generator)
            return {}
    found = untrained_generator(sampler)
    _refuse_other_draws(data, found["generator_"])
    return found


def _refuse_other_draws(data: CalibrationData, generator: Any) -> None:
    if data.provenance.generator not in (None, fingerprint(generator)):
        raise ValueError(
            f"data was collected from another generator than the {type(generator).__name__} that "
            "predict would draw from, be it that this one has other parameters or was trained "
            "anew; wanted data collected from this one. Call collect, or fit, again."
        )


def untrained_generator(sampler: Any) -> dict[str, Any]:
    """Generator and seed of a sampler that has seen no prompts."""
    generator = _copy_of(sampler.generator)
    if hasattr(generator, "fit"):
        hint = (
            " It stands for generator=None: give the generator that the data came from, or, for "
            "thresholds alone, call sklearn_clm.calibration.learn_then_test."
        )
        raise NotFittedError(
            f"{type(generator).__name__} is fitted on prompts and references, which this "
            f"{type(sampler).__name__} has not seen: call fit, or collect, first."
            f"{hint if sampler.generator is None else ''}"
        )
    check_scores(sampler, generator)
    return {
        "generator_": generator,
        "seed_": _seed_of_draws(sampler.random_state),
        "_trained_on": np.empty(0, dtype=np.uint64),
    }


def check_scores(sampler: Any, generator: Any) -> None:
    """Refuse what can be known to fail before anything is paid for."""
    get_set_score(sampler.set_score)
    get_similarity(sampler.similarity)
    get_admission(sampler.admission)
    quality = get_quality(sampler.quality)
    if quality is likelihood and not getattr(generator, "gives_logprobs", True):
        raise ValueError(
            f"quality='likelihood' needs log-probabilities, which {type(generator).__name__} does "
            "not give; wanted another quality, such as 'self_consistency' or a callable "
            "(prompt, generation) -> float, or a generator that gives log-probabilities."
        )


def _trained_generator(
    sampler: Any, checked: CheckedPrompts, admissions: list[Any]
) -> tuple[Any, int, np.ndarray]:
    """The generator, the seed of its draws, and the prompts left for calibration."""
    generator, seed = _copy_of(sampler.generator), _seed_of_draws(sampler.random_state)
    n = len(checked)
    if not hasattr(generator, "fit"):
        return generator, seed, np.arange(n)
    n_train = min(max(round(sampler.training_fraction * n), 1), n - 1)
    if n_train < 1:
        raise ValueError(
            f"{type(generator).__name__} is fitted on a part of the prompts that calibration never "
            f"sees, which takes at least 2 prompts; got n_samples={n}."
        )
    order = _rng_of_training_split(sampler.random_state).permutation(n)
    train, rest = np.sort(order[:n_train]), np.sort(order[n_train:])
    generator.fit(take(checked.prompts, train), [admissions[i] for i in train])
    return generator, seed, rest


def _draw_all(sampler: Any, generator: Any, prompts: Any, seed: int) -> list[list[Generation]]:
    n_samples = draw_budgets(sampler.k_max)[-1]
    # what a failed attempt paid for is taken up, whatever it failed at
    key = _key_of_draws(generator, prompts, seed)
    kept_key, kept = getattr(sampler, "_paid_draws", None) or (None, [])
    draws: list[list[Generation]] = kept if kept_key == key else [[] for _ in range(len(prompts))]
    sampler._paid_draws = (key, draws)
    with progress_bar(sampler.verbose, len(prompts) * n_samples) as progress:
        progress.update(sum(len(row[:n_samples]) for row in draws))
        complete_draws(generator, prompts, draws, n_samples, seed=seed, progress=progress)
    return [row[:n_samples] for row in draws]


def _key_of_draws(generator: Any, prompts: Any, seed: int) -> bytes:
    digest = hashlib.blake2b(f"{fingerprint(generator)} {seed}".encode())
    for prompt in prompts:
        digest.update(prompt_bytes(prompt))
    return digest.digest()


def prompt_digests(prompts: Any) -> np.ndarray:
    """Numbers that tell prompts from each other."""
    digests = (hashlib.blake2b(prompt_bytes(one), digest_size=8).digest() for one in prompts)
    return np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)


def _copy_of(generator: Any) -> Any:
    if generator is None:
        return ResamplingGenerator()
    if hasattr(generator, "get_params"):
        return clone(generator)
    # a generator of foreign make may hold a model, which a deep copy would double; but one that
    # is trained must not be trained again under an estimator that was calibrated with it
    return copy.deepcopy(generator) if hasattr(generator, "fit") else generator


def _seed_of_draws(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def _rng_of_training_split(random_state: Any) -> Any:
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return check_random_state(random_state)
    # apart from the stream that splits the rest for calibration
    return np.random.default_rng([int(random_state), 1])


def _refuse_all_empty(generator: Any, responses: list[list[Any]]) -> None:
    if all(isinstance(text, str) and not text.strip() for row in responses for text in row):
        raise ValueError(
            f"{type(generator).__name__} returned empty responses for all {len(responses)} "
            "prompts; wanted text. Look at its stop strings and at the length it may generate."
        )
