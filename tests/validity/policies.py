"""The exit policy, lazy judging and the marginal guarantee in the study's worlds."""

import functools
from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    ExitModel,
    Frontier,
    LabelTable,
    critical_count,
    evaluate_configurations,
    exit_level,
    fit_exit_model,
    get_set_score,
    judge_in_falling_order,
    judge_lazily,
    learn_then_test_lazily,
    search_frontier,
    sets_at_stop,
)
from sklearn_clm.policies import LazyJudging

from .procedures import N_LAMBDAS, Setting
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
    judge=None,
) -> bool | None:
    """Is the true risk at the calibrated level above epsilon?

    One calibration in ten asks for labels lazily, and must find the level of all labels.
    """
    tau, scores = _population_scores(world.name, int(rng.integers(4)), meaningless)
    chosen = world.draw(setting.n, rng)
    allowed = int(n_errors(setting.n, setting.epsilon, setting.delta))
    level = exit_level(scores[chosen], allowed)
    if judge is not None or rng.random() < 0.1:
        truth = world.population.admissible[chosen]
        first = texts_of(world.name, world.population)[chosen]
        table = LabelTable(first, lambda prompts, draws: truth[prompts, draws])
        found = exit_level((judge or judge_in_falling_order)(tau[chosen], allowed, table), allowed)
        if judge is None and found != level:
            raise AssertionError(f"lazy judging finds the level {found}, all labels {level}")
        level = found
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


@functools.lru_cache(maxsize=64)
def _frontier(name: str, variant: int) -> tuple[Frontier, np.ndarray, list[np.ndarray]]:
    """One of a few frontiers from prompts of which three draws are judged.

    With the true risks of its configurations, and their sets of all prompts of the world: a
    prompt's set does not depend on the others, so that thousands of samples share them.
    """
    world, rng = make_world(name), np.random.default_rng([variant, 2])
    data = world.population.take(world.draw(N_OPTIMIZATION, rng))
    first = texts_of(name, data)
    table = LabelTable(first, lambda prompts, draws: data.admissible[prompts, draws])
    labels = LazyJudging(optimization_judgements=3).labels(data, first, table)
    frontier = search_frontier(data.with_labels(labels), set_score="max", n_lambdas=N_LAMBDAS)
    risks = evaluate_configurations(
        world.population, frontier.lambdas, set_score="max", k_max=frontier.k_max
    )
    sets = [
        sets_at_stop(world.population, Configuration(*thresholds), k_max, get_set_score("max"))[0]
        for thresholds, k_max in zip(frontier.lambdas.tolist(), frontier.k_max.tolist())
    ]
    return frontier, risks.loss, sets


class _SetsOfSample(Sequence):
    """The sets of some prompts under each configuration."""

    def __init__(self, sets: list[np.ndarray], chosen: np.ndarray) -> None:
        self._sets, self._chosen = sets, chosen

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, m: int) -> np.ndarray:
        return self._sets[m][self._chosen]


def lazy_thresholds(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Is a configuration that lazy judging certifies wrong? Each calibration asks anew.

    One calibration in a hundred goes through the whole function, draw by draw, and must certify
    the same.
    """
    frontier, risks, sets = _frontier(world.name, int(rng.integers(4)))
    chosen = world.draw(setting.n, rng)
    truth, quality = world.population.admissible[chosen], world.population.quality[chosen]
    first = texts_of(world.name, world.population)[chosen]

    def table() -> LabelTable:
        return LabelTable(first, lambda prompts, draws: truth[prompts, draws])

    allowed = int(critical_count(setting.n, setting.epsilon, setting.delta))
    start = int(rng.integers(len(frontier)))  # which test is decided first must not matter
    tests = judge_lazily(_SetsOfSample(sets, chosen), allowed, table(), quality, start=start)
    n_certified = sum(test.rejected for test in tests)
    if rng.random() < 0.01:
        part = world.population.take(chosen)
        part.n_draws = np.zeros(setting.n, dtype=np.intp)

        def draw(prompts: np.ndarray) -> None:
            part.n_draws[prompts] += 1

        result = learn_then_test_lazily(
            part, frontier, setting.epsilon, setting.delta, table(), set_score="max", draw=draw
        )
        if len(result.valid_lambdas) != n_certified:
            raise AssertionError(
                f"draw by draw {len(result.valid_lambdas)} configurations are certified, "
                f"{n_certified} with all draws"
            )
    return bool(risks[:n_certified].max() > setting.epsilon) if n_certified else None


def two_labels_of_equal_texts(tau: np.ndarray, n_errors: int, table: LabelTable) -> np.ndarray:
    """Broken: each repetition of a text is judged anew, one verdict in ten is wrong, any counts."""
    rows, draws = np.indices(tau.shape).reshape(2, -1)
    texts = np.unique(np.column_stack((rows, table.first[rows, draws])), axis=0)
    table.ask(*texts.T)
    said = np.where(np.random.default_rng(n_errors).random(tau.shape) < 0.1, 1, table.labels)
    return np.where(np.any(said == 1, axis=1), tau.max(axis=1), -np.inf)


def marginal(world: World, set_score, setting: Setting, rng) -> bool:
    """Is a new prompt missed, where its mean over calibrations must not exceed epsilon?"""
    _, scores = _population_scores(world.name, int(rng.integers(4)), False)
    sample = scores[world.draw(setting.n, rng)]
    level = exit_level(sample, int(np.floor((setting.n + 1) * setting.epsilon)) - 1)
    return bool(scores[world.draw(1, rng)[0]] < level)


POLICY_PROCEDURES = {
    procedure.__name__: procedure
    for procedure in (exit_policy, meaningless_policy, marginal, lazy_thresholds)
}
