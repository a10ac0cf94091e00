"""The exit policy, lazy judging and the marginal guarantee in the study's worlds."""

import functools

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sklearn_clm.calibration import (
    CalibrationData,
    ExitModel,
    LabelTable,
    critical_count,
    exit_level,
    fit_exit_model,
    judge_in_falling_order,
)

from .procedures import Setting
from .worlds import World, make_world

__all__ = ["POLICY_PROCEDURES", "exit_policy", "marginal", "meaningless_policy", "texts_of"]

N_OPTIMIZATION = 60


def texts_of(world: str, data: CalibrationData) -> np.ndarray:
    """Draw in which each draw's text occurs first: one text a prompt where all are duplicates."""
    own = np.broadcast_to(np.arange(data.k_max), data.quality.shape)
    return np.zeros_like(own) if world == "all_duplicates" else own


def _learnt(world: World, rng: np.random.Generator, meaningless: bool = False) -> ExitModel:
    data = world.population.take(world.draw(N_OPTIMIZATION, rng))
    first = texts_of(world.name, data)
    labels = data.admissible
    if meaningless:
        labels = np.take_along_axis(rng.random(labels.shape) < 0.5, first, axis=1)
    return _fitted(data, first, labels, LogisticRegression)


def _fitted(data: CalibrationData, first: np.ndarray, labels: np.ndarray, new_classifier):
    return fit_exit_model(
        data.quality,
        data.similarity,
        first,
        labels.astype(np.int8),
        new_classifier=new_classifier,
        epsilon=0.3,
        look_ahead=2,
    )


@functools.lru_cache(maxsize=64)
def _population_scores(name: str, variant: int, meaningless: bool) -> tuple[np.ndarray, np.ndarray]:
    """tau of every text of a world under one of a few policies, and the scores V.

    The risk given the policy is what is bounded, so that a few policies, each calibrated many
    times, show what many policies would.
    """
    world = make_world(name)
    model = _learnt(world, np.random.default_rng([variant, meaningless]), meaningless)
    data = world.population
    tau, _ = model.scores(data.quality, data.similarity, texts_of(name, data))
    return tau, np.where(data.admissible, tau, -np.inf).max(axis=1)


def exit_policy(
    world: World,
    set_score,
    setting: Setting,
    rng,
    *,
    meaningless: bool = False,
    n_errors=critical_count,
    judge=judge_in_falling_order,
) -> bool | None:
    """Is the true risk at the calibrated level above epsilon? Labels are revealed lazily."""
    tau, scores = _population_scores(world.name, int(rng.integers(4)), meaningless)
    chosen = world.draw(setting.n, rng)
    truth = world.population.admissible[chosen]
    first = texts_of(world.name, world.population)[chosen]
    table = LabelTable(first, lambda prompts, draws: truth[prompts, draws])
    allowed = int(n_errors(setting.n, setting.epsilon, setting.delta))
    level = exit_level(judge(tau[chosen], allowed, table), allowed)
    if level == -np.inf:
        return None
    return bool(np.mean(scores < level) > setting.epsilon)


def meaningless_policy(world: World, set_score, setting: Setting, rng) -> bool | None:
    """The same with a policy that learnt labels without meaning."""
    return exit_policy(world, set_score, setting, rng, meaningless=True)


def learnt_on_the_calibration_part(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Broken: the prompts that calibrate the level have taught a policy that remembers them."""
    chosen = world.draw(setting.n, rng)
    data = world.population.take(chosen)
    model = _fitted(data, texts_of(world.name, data), data.admissible, DecisionTreeClassifier)
    first = texts_of(world.name, world.population)
    tau, _ = model.scores(world.population.quality, world.population.similarity, first)
    scores = np.where(world.population.admissible, tau, -np.inf).max(axis=1)
    allowed = int(critical_count(setting.n, setting.epsilon, setting.delta))
    level = exit_level(scores[chosen], allowed)
    return None if level == -np.inf else bool(np.mean(scores < level) > setting.epsilon)


def stop_at_the_first_failure(tau: np.ndarray, n_errors: int, table: LabelTable) -> np.ndarray:
    """Broken: a prompt whose most promising text is inadmissible counts as settled at the top."""
    best = tau.argmax(axis=1)
    rows = np.arange(len(tau))
    table.ask(rows, best)
    return np.where(table.labels[rows, best] == 1, tau[rows, best], np.inf)


def marginal(world: World, set_score, setting: Setting, rng) -> bool:
    """Is a new prompt missed, where its mean over calibrations must not exceed epsilon?"""
    _, scores = _population_scores(world.name, int(rng.integers(4)), False)
    sample = scores[world.draw(setting.n, rng)]
    level = exit_level(sample, int(np.floor((setting.n + 1) * setting.epsilon)) - 1)
    return bool(scores[world.draw(1, rng)[0]] < level)


POLICY_PROCEDURES = {
    procedure.__name__: procedure for procedure in (exit_policy, meaningless_policy, marginal)
}
