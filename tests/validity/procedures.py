"""What is repeated thousands of times: calibrate on a sample, look up the true risk."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    component_learn_then_test,
    learn_then_test,
    prompts_needed,
    search_frontier,
)
from sklearn_clm.calibration.rows import parts_to_test
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.scoring import get_set_score

from .worlds import World, named

N_LAMBDAS = 8


class Setting(NamedTuple):
    """Size of the calibration set and the levels asked for."""

    n: int
    epsilon: float
    delta: float


def mean_quality(quality: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """Set score that is not monotone: a poor member lowers it."""
    total = np.where(accepted, quality, 0.0).sum(axis=1)
    return total / np.maximum(accepted.sum(axis=1), 1)


def _calibrate(data, set_score, setting, rng, **options):
    options |= {"set_score": set_score, "n_lambdas": N_LAMBDAS}
    seed = int(rng.integers(2**31))
    return learn_then_test(data, setting.epsilon, setting.delta, random_state=seed, **options)


def _worst_true_risk(result, population, set_score):
    """Largest true risk among all configurations certified: what the family-wise error is about."""
    if result.lambda_hat is None:
        return None
    lambdas, k_max = result.valid_lambdas, result.frontier.k_max[: result.n_valid]
    risks = evaluate_configurations(population, lambdas, set_score=set_score, k_max=k_max)
    return float(risks.n_errors.max() / population.n_prompts)


def response_sets(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Is any certified configuration's true risk above epsilon? None where none is certified."""
    data = world.population.take(world.draw(setting.n, rng))
    risk = _worst_true_risk(_calibrate(data, set_score, setting, rng), world.population, set_score)
    return None if risk is None else risk > setting.epsilon


def chosen_budget(world: World, set_score, setting: Setting, rng) -> bool | None:
    """The same with the budget as a fourth dimension of the search."""
    data = world.population.take(world.draw(setting.n, rng))
    result = _calibrate(data, set_score, setting, rng, k_max=[2, 4, 8])
    risk = _worst_true_risk(result, world.population, set_score)
    return None if risk is None else risk > setting.epsilon


def conservative_admission(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Calibrated with an admission that misses admissible responses, judged by the true one."""
    population = world.population
    missed = np.random.default_rng(7).random(population.admissible.shape) < 0.3
    strict = CalibrationData(
        population.quality, population.similarity, population.admissible & ~missed
    )
    result = _calibrate(strict.take(world.draw(setting.n, rng)), set_score, setting, rng)
    risk = _worst_true_risk(result, population, set_score)
    return None if risk is None else risk > setting.epsilon


def groups_of(world: World) -> np.ndarray:
    """Group of each prompt of the population: 1 for those whose draws are rarely admissible."""
    return world.topic.astype(int)


def groups_all(
    world: World, set_score, setting: Setting, rng, *, guarantee="all", watched=(0, 1), pooled=False
) -> bool | None:
    """Is the true risk within some group above epsilon for a configuration certified for it?"""
    positions, of_prompt = world.draw(setting.n, rng), groups_of(world)
    data, searched = world.population.take(positions), np.arange(setting.n // 3)
    frontier = search_frontier(data.take(searched), set_score=set_score, n_lambdas=N_LAMBDAS)
    # a prompt that is drawn twice is two independent prompts here
    frontier = replace(frontier, seen=None)
    tested, together = np.arange(len(searched), setting.n), guarantee == "all"
    parts = parts_to_test(searched, tested, setting.delta, of_prompt[positions], together=together)
    risks = []
    for part in parts:
        group = watched[0] if pooled else part.group
        if (part.group is None) != pooled or group not in watched:
            continue
        if len(part.rows) < prompts_needed(setting.epsilon, part.delta):
            continue
        options = {"set_score": set_score, "frontier": frontier}
        result = learn_then_test(data.take(part.rows), setting.epsilon, part.delta, **options)
        members = world.population.take(np.flatnonzero(of_prompt == group))
        risks.append(_worst_true_risk(result, members, set_score))
    known = [risk for risk in risks if risk is not None]
    return max(known) > setting.epsilon if known else None


def groups_each(world: World, set_score, setting: Setting, rng, *, pooled=False) -> bool | None:
    """The same for the claim on the hard group alone, each claim at its own delta."""
    return groups_all(world, set_score, setting, rng, guarantee="each", watched=(1,), pooled=pooled)


def components_of(world: World, positions: np.ndarray, combine=np.fmax.reduce):
    """Component scores and errors over all draws of some prompts, repeats taken by `combine`."""
    scores = combine(world.component_scores[positions], axis=1)
    present = ~np.isnan(scores)
    errors = world.component_errors[positions, 0]
    offsets = np.concatenate(([0], np.cumsum(present.sum(axis=1))))
    return ComponentCalibrationData(scores[present], ~errors[present], offsets)


def component_risk(
    world: World,
    gamma: float,
    accepted: np.ndarray,
    combine=np.fmax.reduce,
    max_wrong=0,
    chosen=None,
):
    """True probability that selected components of the accepted draws are inadmissible.

    More than `max_wrong` of them, for the prompts that are `chosen`, by default all.
    """
    visible = np.where(accepted[:, :, np.newaxis], world.component_scores, np.nan)
    scores = combine(visible, axis=1)
    with np.errstate(invalid="ignore"):
        wrong = ((scores >= gamma) & world.component_errors[:, 0]).sum(axis=1)
    return float(np.mean(wrong[slice(None) if chosen is None else chosen] > max_wrong))


def components(
    world: World,
    set_score,
    setting: Setting,
    rng,
    combine=np.fmax.reduce,
    max_wrong=0,
    selected=None,
):
    """Is the component threshold's true risk above alpha, in sets of any number of draws?

    The rule that picks the draws is unknown to the calibration of gamma, so the sets are the worst
    of: all draws, the first one, a random half. Scores that select are those of the world
    `selected`, by default the same.
    """
    data = components_of(world, world.draw(setting.n, rng), combine)
    levels = setting.epsilon, setting.delta
    gamma = component_learn_then_test(data, *levels, max_wrong=max_wrong).gamma_hat
    if math.isinf(gamma):
        return None
    shape = world.population.admissible.shape
    first = np.zeros(shape, dtype=bool)
    first[:, 0] = True
    sets = (np.ones(shape, dtype=bool), first, np.random.default_rng(1).random(shape) < 0.5)
    risks = [component_risk(selected or world, gamma, kept, combine, max_wrong) for kept in sets]
    return max(risks) > setting.epsilon


def both(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Both guarantees on the same data; the joint error is allowed 2 delta."""
    positions = world.draw(setting.n, rng)
    result = _calibrate(world.population.take(positions), set_score, setting, rng)
    gamma = component_learn_then_test(
        components_of(world, positions), setting.epsilon, setting.delta
    ).gamma_hat
    if result.lambda_hat is None and math.isinf(gamma):
        return None
    risk = _worst_true_risk(result, world.population, set_score)
    failed = risk is not None and risk > setting.epsilon
    if math.isinf(gamma) or failed:
        return failed
    if result.lambda_hat is None:  # then all draws are returned
        accepted = np.ones(world.population.admissible.shape, dtype=bool)
    else:
        accepted = accepted_at_stop(world.population, result.lambda_hat, set_score)
    return component_risk(world, gamma, accepted) > setting.epsilon


def accepted_at_stop(data: CalibrationData, configuration, set_score) -> np.ndarray:
    """Boolean (n, K): the members of each prompt's set, by Algorithm 1 over all prompts at once."""
    score = get_set_score(set_score)
    accepted = np.zeros(data.quality.shape, dtype=bool)
    open_prompts = np.ones(data.n_prompts, dtype=bool)
    for j in range(data.k_max):
        clash = ((data.similarity[:, j, :j] > configuration.similarity) & accepted[:, :j]).any(
            axis=1
        )
        accepted[:, j] = open_prompts & (data.quality[:, j] >= configuration.quality) & ~clash
        if score.running is not None:
            scores = score.running(data.quality, accepted)[:, j]
        else:
            scores = score.of_sets(data.quality, accepted)
        open_prompts &= ~((scores >= configuration.set_score) & accepted.any(axis=1))
    return accepted


PROCEDURES = named(
    *(response_sets, chosen_budget, conservative_admission, components, both),
    *(groups_each, groups_all),
)
