"""Scores that are computed twice: in the batch of calibration, and one by one in use.

A reward is linear in embeddings of short answers, which many prompts share. Calibration computes it
as one product with all of them, where linear algebra adds in an order of its own; in use one answer
comes after the other, on a processor that adds from left to right. The two differ in their last
digits. Other calibrations hold single or half precision alone. The risk is that of what is used.
"""

import functools
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    component_learn_then_test,
    critical_count,
    learn_then_test,
)
from sklearn_clm.calibration.between import SAME
from sklearn_clm.calibration.certify import nth_largest_by_asking
from sklearn_clm.calibration.exit_model import ExitModel, fit_exit_model
from sklearn_clm.calibration.exit_policy import ExitEntries
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.calibration.table import Table
from tests.calibration.tables import exit_scores_of

from .procedures import N_LAMBDAS, Setting
from .worlds import World, make_world, named

N_EMBEDDING = 384
N_ANSWERS = 6
_VARIANTS = 8  # rewards
_BATCH = 4096
_N_SEEN = 60  # prompts that teach an exit policy


class Scored(NamedTuple):
    """The draws of a world with the reward of a variant, in a batch and alone."""

    answers: np.ndarray  # (n, K): 0 is right
    together: CalibrationData
    alone: CalibrationData


@functools.lru_cache(maxsize=_VARIANTS)
def _rewards(variant: int) -> tuple[np.ndarray, np.ndarray]:
    """Reward of each answer among copies of all in a batch, and alone."""
    rng = np.random.default_rng(variant)
    weights = rng.normal(size=N_EMBEDDING)
    wanted = np.array([1.0, 1.5, 0.6, 0.3, -0.2, -0.9])
    embeddings = rng.normal(size=(N_ANSWERS, N_EMBEDDING))
    embeddings += np.outer(wanted - embeddings @ weights, weights) / (weights @ weights)
    together = embeddings[np.arange(_BATCH) % N_ANSWERS] @ weights
    alone = np.cumsum(embeddings * weights, axis=1)[:, -1]
    return together, alone


@functools.lru_cache(maxsize=2 * _VARIANTS)
def _scored(world: str, variant: int) -> Scored:
    population = make_world(world).population
    rng = np.random.default_rng([variant, 1])
    labels = population.admissible
    # the wrong answer that scores more than the right one is rare
    wrong = rng.choice(np.arange(1, N_ANSWERS), labels.shape, p=[0.04, 0.26, 0.3, 0.2, 0.2])
    answers = np.where(labels, 0, wrong)
    together, alone = _rewards(variant)
    # each draw stands somewhere in the batch
    places = answers + N_ANSWERS * rng.integers(_BATCH // N_ANSWERS, size=labels.shape)
    similarity = (answers[:, :, np.newaxis] == answers[:, np.newaxis, :]).astype(np.float64)
    texts = similarity.argmax(axis=2)
    return Scored(
        answers,
        CalibrationData(together[places], similarity, labels, texts=texts),
        CalibrationData(alone[answers], similarity, labels, texts=texts),
    )


def _risk(data: CalibrationData, result, set_score) -> float:
    """Largest risk of what is certified, with other scores of the same draws."""
    lambdas, k_max = result.valid_lambdas, result.frontier.k_max[: result.n_valid]
    risks = evaluate_configurations(data, lambdas, set_score=set_score, k_max=k_max)
    return float(risks.n_errors.max() / data.n_prompts)


def _thresholds_fail(seen, used, world, set_score, setting, rng) -> bool | None:
    data = seen.take(world.draw(setting.n, rng))
    options = {"set_score": set_score, "n_lambdas": N_LAMBDAS}
    seed = int(rng.integers(2**31))
    result = learn_then_test(data, setting.epsilon, setting.delta, random_state=seed, **options)
    if result.lambda_hat is None:
        return None
    return _risk(used, result, set_score) > setting.epsilon


def scores_of_a_batch(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Thresholds of scores in a batch, used on scores of draws alone."""
    scored = _scored(world.name, int(rng.integers(_VARIANTS)))
    return _thresholds_fail(scored.together, scored.alone, world, set_score, setting, rng)


def arrays_of_lower_precision(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Thresholds of arrays in single or half precision, used on double precision."""
    exact = _scored(world.name, int(rng.integers(_VARIANTS))).alone
    kept = np.float16 if rng.random() < 0.5 else np.float32
    rounded = CalibrationData(
        exact.quality.astype(kept), exact.similarity.astype(kept), exact.admissible
    )
    return _thresholds_fail(rounded, exact, world, set_score, setting, rng)


@functools.lru_cache(maxsize=2)
def _tenths(world: str) -> tuple[CalibrationData, CalibrationData]:
    """The draws of a world with scores of 0.1 and, rarely, 0.3: in half precision, and exactly."""
    population = make_world(world).population
    rare = np.random.default_rng(0).random(population.quality.shape) < 0.1
    quality = np.where(rare, 0.3, 0.1)
    halves, exact = (
        CalibrationData(one, np.zeros_like(population.similarity), population.admissible)
        for one in (quality.astype(np.float16), quality)
    )
    return halves, exact


def sums_in_half_precision(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Thresholds on sums of scores in half precision, used on sums in double precision."""
    return _thresholds_fail(*_tenths(world.name), world, "sum", setting, rng)


def risk_at_three_tenths(world: str) -> float:
    """Risk of stopping at 0.3, which three tenths reach exactly, and as halves do not."""
    stop = [(np.inf, -np.inf, (3 * float(np.float16(0.1)) + float(np.float16(0.3))) / 2)]
    return float(evaluate_configurations(_tenths(world)[1], stop, set_score="sum").loss[0])


@functools.lru_cache(maxsize=2 * _VARIANTS)
def _exit_scores(world: str, variant: int, stand: str) -> tuple[ExitModel, np.ndarray]:
    """A policy learnt from scores in a batch, and V of scores alone.

    `stand` names where the steps of its scales do: what is broken has a cache of its own.
    """
    scored = _scored(world, variant)
    seen = scored.together.take(np.random.default_rng(variant).integers(3000, size=_N_SEEN))
    model = fit_exit_model(
        seen.with_labels(seen.labels), new_classifier=LogisticRegression, epsilon=0.3, look_ahead=2
    )
    tau, _ = exit_scores_of(model, scored.alone)
    return model, np.where(scored.alone.admissible, tau, -np.inf).max(axis=1)


def exit_levels_of_a_batch(
    world: World, set_score, setting: Setting, rng, *, stand="between"
) -> bool | None:
    """An exit policy and its level of scores in a batch, used on draws alone."""
    variant = int(rng.integers(_VARIANTS))
    model, scores = _exit_scores(world.name, variant, stand)
    data = _scored(world.name, variant).together.take(world.draw(setting.n, rng))
    entries = ExitEntries(Table(data), np.arange(setting.n), model)
    allowed = int(critical_count(setting.n, setting.epsilon, setting.delta))
    level = entries.below(nth_largest_by_asking(entries, setting.n - allowed))
    return None if level == -np.inf else bool(np.mean(scores < level) > setting.epsilon)


def components_of_a_batch(world: World, set_score, setting: Setting, rng) -> bool | None:
    """gamma-hat of rewards in a batch, used on rewards of answers alone; a part is an answer."""
    variant = int(rng.integers(_VARIANTS))
    scored, chosen = _scored(world.name, variant), world.draw(setting.n, rng)
    _, alone = _rewards(variant)
    part = scored.together.take(chosen)
    first = part.texts == np.arange(part.k_max)
    offsets = np.concatenate(([0], np.cumsum(first.sum(axis=1))))
    data = ComponentCalibrationData(part.quality[first], part.admissible[first], offsets)
    gamma = component_learn_then_test(data, setting.epsilon, setting.delta).gamma_hat
    if gamma == np.inf:
        return None
    wrong = np.any((alone[scored.answers] >= gamma) & (scored.answers > 0), axis=1)
    return bool(wrong.mean() > setting.epsilon)


_SHARES = np.array([0.3, 0.5, 0.2])  # of answers that are better than the usual one, it, and worse
_ERRORS = np.array([0.02, 0.3, 0.8])
_MARGINS = np.array([0.7, 0.0, -0.6])


def margins_of_a_batch(world: World, set_score, setting: Setting, rng) -> bool | None:
    """gamma-hat of rewards less that of the usual answer, used on exact ones.

    Half of the parts are that answer: their margin is 0, but for the last digits of 3.3 - 3.3.
    """
    answers = rng.choice(len(_SHARES), size=setting.n, p=_SHARES)
    wrong = rng.random(setting.n) < _ERRORS[answers]
    of_this_batch, usual = rng.integers(-4, 5), 3.3
    last_digits = (of_this_batch + rng.integers(-2, 3, size=setting.n)) * np.spacing(usual)
    together = (usual + _MARGINS[answers] + last_digits) - usual
    data = ComponentCalibrationData(together, ~wrong, np.arange(setting.n + 1))
    gamma = component_learn_then_test(data, setting.epsilon, setting.delta).gamma_hat
    if gamma == np.inf:
        return None
    return bool(np.sum((_SHARES * _ERRORS)[gamma <= _MARGINS]) > setting.epsilon)


def usual_error() -> float:
    """Risk of selecting what scores as much as the usual answer."""
    return float(np.sum((_SHARES * _ERRORS)[_MARGINS >= 0.0]))


def rare_error(world: str) -> float:
    """Risk of selecting what scores as much as the right answer: a rare wrong one scores more."""
    answers = _scored(world, 0).answers
    return float(np.any(answers == 1, axis=1).mean())


def on_the_scores(
    scores: np.ndarray, at: np.ndarray | float | None = None, same: float = SAME
) -> np.ndarray:
    """Broken: thresholds that stand on scores."""
    return np.sort(scores[np.isfinite(scores)]) if at is None else np.asarray(at)


def room_by_size(ordered: np.ndarray, values: np.ndarray, same: float) -> np.ndarray:
    """Broken: scores about zero are told apart by 1e-6 of their own size."""
    return same * np.abs(values)


PRECISION_PROCEDURES = named(
    scores_of_a_batch,
    arrays_of_lower_precision,
    sums_in_half_precision,
    exit_levels_of_a_batch,
    components_of_a_batch,
    margins_of_a_batch,
)
