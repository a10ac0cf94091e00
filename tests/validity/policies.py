"""The exit policy, lazy judging and the marginal guarantee in the study's worlds."""

import functools
from dataclasses import replace

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sklearn_clm.calibration import (
    CalibrationData,
    critical_count,
    learn_then_test,
    search_frontier,
)
from sklearn_clm.calibration._learn_then_test import certify_frontier
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration._texts import texts_of_draws
from sklearn_clm.calibration.certify import nth_largest, nth_largest_by_asking
from sklearn_clm.calibration.exit_model import (
    ExitModel,
    _best_rho,
    exit_scores,
    fit_exit_model,
)
from sklearn_clm.calibration.risk import MISSES
from sklearn_clm.calibration.set_scores import get_set_score
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.calibration.table import DrawEntries, Table
from sklearn_clm.calibration.tests import BinomialTest
from sklearn_clm.calibration.thresholds import ThresholdPath
from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.policies import LazyJudging
from tests.calibration.tables import exit_scores_of, lazy_table

from .procedures import N_LAMBDAS, Setting
from .worlds import World, make_world, named

N_OPTIMIZATION = 60
TIERS = Tiers((5, 3), (1.0, 25.0))
_SAME_TEXT = {"unlabeled": 0.99, "near_copies": 0.5}


def texts_of(world: str, data: CalibrationData, kind: str = "labeled") -> np.ndarray:
    """Draw in which each draw's text occurs first: one text a prompt where all are duplicates.

    Without labels like responses are one text, so that something can be learnt; near copies are
    one whatever their labels, and judged by the first.
    """
    own = np.tile(np.arange(data.k_max), (data.n_prompts, 1))
    if kind in _SAME_TEXT:
        return texts_of_draws(data.similarity, own, _SAME_TEXT[kind])
    return np.zeros_like(own) if world == "all_duplicates" else own


def _table(data: CalibrationData, first: np.ndarray, draws: bool = True) -> Table:
    """The same prompts without labels, and without draws where none is to be made yet."""
    data.texts = first
    return lazy_table(data, draws=draws)


def _texts(tau: np.ndarray, table: Table) -> DrawEntries:
    """The texts of a table, with their scores."""
    owner, draws = np.indices(tau.shape).reshape(2, -1)
    return DrawEntries(table, owner, draws, owner, len(tau), scores=tau.reshape(-1))


def _learnt(world: World, rng: np.random.Generator, kind: str) -> ExitModel:
    data = world.population.take(world.draw(N_OPTIMIZATION, rng))
    first = texts_of(world.name, data, kind)
    labels = data.admissible
    if kind == "unlabeled":
        labels = np.full(labels.shape, -1)
    elif kind == "meaningless":
        labels = np.take_along_axis(rng.random(labels.shape) < 0.5, first, axis=1)
    tiers = TIERS if kind == "cascade" else None
    return _fitted(data, first, labels, LogisticRegression, tiers)


def _fitted(data: CalibrationData, first, labels, new_classifier, tiers: Tiers | None = None):
    learnt = data.with_labels(labels.astype(np.int8))
    learnt.texts = first
    return fit_exit_model(
        learnt, new_classifier=new_classifier, epsilon=0.3, look_ahead=2, tiers=tiers
    )


@functools.lru_cache(maxsize=64)
def _population_scores(name: str, variant: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """tau of every text of a world under one of a few policies, and the scores V.

    The risk given the policy is what is bounded, so that a few policies, each calibrated many
    times, show what many policies would.
    """
    world = make_world(name)
    model = _learnt(world, np.random.default_rng([variant, *kind.encode()]), kind)
    data = world.population
    tau, _ = exit_scores_of(model, data, texts_of(name, data, kind))
    return tau, np.where(data.admissible, tau, -np.inf).max(axis=1)


def _fails(
    found: np.ndarray, scores: np.ndarray, setting: Setting, n_errors=critical_count
) -> bool | None:
    """Is the true risk at the level that these scores give above epsilon?"""
    level = nth_largest(found, setting.n - int(n_errors(setting.n, setting.epsilon, setting.delta)))
    return None if level == -np.inf else bool(np.mean(scores < level) > setting.epsilon)


def exit_policy(
    world: World,
    set_score,
    setting: Setting,
    rng,
    *,
    kind: str = "labeled",
    n_errors=critical_count,
    judge=None,
) -> bool | None:
    """Is the true risk at the calibrated level above epsilon?

    One calibration in ten asks for labels lazily, and must find the level of all labels.
    """
    tau, scores = _population_scores(world.name, int(rng.integers(4)), kind)
    chosen = world.draw(setting.n, rng)
    found = scores[chosen]
    if judge is not None or rng.random() < 0.1:
        data = world.population.take(chosen)
        table = _table(data, texts_of(world.name, data, kind))
        rank = setting.n - int(n_errors(setting.n, setting.epsilon, setting.delta))
        if judge is not None:
            found = judge(tau[chosen], table)
        elif nth_largest_by_asking(_texts(tau[chosen], table), rank) != nth_largest(found, rank):
            raise AssertionError("lazy judging does not find the level of all labels")
    return _fails(found, scores, setting, n_errors)


def copies_by_any_label(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Broken: a text counts as admissible where any of its copies is, though the first is shown."""
    tau, scores = _population_scores(world.name, int(rng.integers(4)), "near_copies")
    chosen = world.draw(setting.n, rng)
    data = world.population.take(chosen)
    first = texts_of(world.name, data, "near_copies")
    same = first[:, :, np.newaxis] == first[:, np.newaxis, :]
    right = np.any(same & data.admissible[:, np.newaxis, :], axis=2)
    found = np.where(right, tau[chosen], -np.inf).max(axis=1)
    return _fails(found, scores, setting)


def tested_without_labels(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Broken: what stands for labels where there are none enters the test, too."""
    tau, scores = _population_scores(world.name, int(rng.integers(4)), "unlabeled")
    chosen = world.draw(setting.n, rng)
    first = texts_of(world.name, world.population.take(chosen), "unlabeled")
    found = np.where(first == first[:, -1:], tau[chosen], -np.inf).max(axis=1)
    return _fails(found, scores, setting)


def learnt_on_the_calibration_part(
    world: World, set_score, setting: Setting, rng, *, tiers: Tiers | None = None
) -> bool | None:
    """Broken: the prompts that calibrate the level have taught a policy that remembers them."""
    chosen = world.draw(setting.n, rng)
    data = world.population.take(chosen)
    tree = functools.partial(DecisionTreeClassifier, random_state=0)
    model = _fitted(data, texts_of(world.name, data), data.admissible, tree, tiers)
    first = texts_of(world.name, world.population)
    tau, _ = exit_scores_of(model, world.population, first)
    scores = np.where(world.population.admissible, tau, -np.inf).max(axis=1)
    return _fails(scores[chosen], scores, setting)


@functools.lru_cache(maxsize=64)
def _one_draw_each(rho: float | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities in a world where rho decides which one draw is shown, and the scores V."""
    data = make_world("rival_draws").population
    n, k_max = data.quality.shape
    text = np.broadcast_to(np.where(np.eye(k_max), 0.5, 0.0), (n, k_max, k_max))
    arrival = np.broadcast_to(np.geomspace(9.0, 0.015, k_max), (n, k_max))
    tau, _ = exit_scores(text, arrival, 1.0 if rho is None else rho)
    return text, arrival, np.where(data.admissible, tau, -np.inf).max(axis=1)


def rho_of_the_calibration_part(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Broken: the prompts that calibrate the level have chosen the cheapest rho at that level."""
    chosen, no_price = world.draw(setting.n, rng), np.zeros(world.population.k_max)
    text, arrival, _ = _one_draw_each(None)
    allowed = int(critical_count(setting.n, setting.epsilon, setting.delta))
    labels, share = world.population.admissible[chosen], (allowed + 0.5) / setting.n
    rho = _best_rho(text[chosen], arrival[chosen], labels, share, no_price)
    scores = _one_draw_each(rho)[2]
    return _fails(scores[chosen], scores, setting)


def skip_by_the_level(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Broken: a prompt whose first text does not reach the level skips the rest of the tier."""
    tau, scores = _population_scores(world.name, int(rng.integers(4)), "cascade")
    chosen = world.draw(setting.n, rng)
    allowed = int(critical_count(setting.n, setting.epsilon, setting.delta))
    level = nth_largest(scores[chosen], setting.n - allowed)
    right = world.population.admissible.copy()
    right[:, 1 : TIERS.n_draws[0]] &= tau[:, :1] >= level
    used = np.where(right, tau, -np.inf).max(axis=1)
    return None if level == -np.inf else bool(np.mean(used < level) > setting.epsilon)


def stop_at_the_first_failure(tau: np.ndarray, table: Table) -> np.ndarray:
    """Broken: a prompt whose most promising text is inadmissible counts as settled at the top."""
    best = tau.argmax(axis=1)
    rows = np.arange(len(tau))
    table.ask(rows, best)
    return np.where(table.labels[rows, best] == 1, tau[rows, best], np.inf)


@functools.lru_cache(maxsize=64)
def _frontier(name: str, variant: int) -> tuple[Frontier, np.ndarray]:
    """One of a few frontiers from prompts of which three draws are judged, with its true risks."""
    world, rng = make_world(name), np.random.default_rng([variant, 2])
    data = world.population.take(world.draw(N_OPTIMIZATION, rng))
    first = texts_of(name, data)
    judging = LazyJudging(optimization_judgements=3)
    labels, _ = judging.labels(_table(data, first), np.arange(N_OPTIMIZATION), first)
    frontier = search_frontier(data.with_labels(labels), set_score="max", n_lambdas=N_LAMBDAS)
    risks = evaluate_configurations(
        world.population, frontier.lambdas, set_score="max", k_max=frontier.k_max
    )
    # a prompt that is drawn twice is two independent prompts here
    return replace(frontier, seen=None), risks.loss


def lazy_thresholds(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Is a configuration that lazy judging certifies wrong? Each calibration asks anew.

    Every other one draws lazily, too. One in ten must certify what all labels certify.
    """
    frontier, risks = _frontier(world.name, int(rng.integers(4)))
    chosen = world.draw(setting.n, rng)
    data = world.population.take(chosen)
    draws = rng.random() >= 0.5
    table = _table(data, texts_of(world.name, world.population)[chosen], draws)
    columns = ThresholdPath(table, np.arange(setting.n), frontier, get_set_score("max"))
    test = BinomialTest(columns, MISSES, setting.epsilon, setting.delta)
    weights = {"size_weight": 0.5, "excess_weight": 0.0, "draw_weight": 0.0}
    found = certify_frontier(test, searched=np.arange(0), weights=weights, select="last")
    n_certified = len(found.valid_lambdas)
    if rng.random() < 0.1:
        full = learn_then_test(data, setting.epsilon, setting.delta, frontier=frontier)
        if len(full.valid_lambdas) != n_certified:
            raise AssertionError(
                f"lazily {n_certified} configurations are certified, {len(full.valid_lambdas)} "
                "with all labels"
            )
    return bool(risks[:n_certified].max() > setting.epsilon) if n_certified else None


def two_labels_of_equal_texts(tau: np.ndarray, table: Table) -> np.ndarray:
    """Broken: each repetition of a text is judged anew, one verdict in ten is wrong, any counts."""
    rows, draws = np.indices(tau.shape).reshape(2, -1)
    texts = np.unique(np.column_stack((rows, table.texts[rows, draws])), axis=0)
    table.ask(*texts.T)
    said = np.where(np.random.default_rng(len(tau)).random(tau.shape) < 0.1, 1, table.labels)
    return np.where(np.any(said == 1, axis=1), tau.max(axis=1), -np.inf)


def marginal(world: World, set_score, setting: Setting, rng) -> bool:
    """Is a new prompt missed, where its mean over calibrations must not exceed epsilon?"""
    _, scores = _population_scores(world.name, int(rng.integers(4)), "labeled")
    allowed = int(np.floor((setting.n + 1) * setting.epsilon)) - 1
    level = nth_largest(scores[world.draw(setting.n, rng)], setting.n - allowed)
    return bool(scores[world.draw(1, rng)[0]] < level)


POLICY_PROCEDURES = named(exit_policy, marginal, lazy_thresholds) | {
    # labels without meaning, prompts without labels, dear later draws, copies of other labels
    "meaningless_policy": functools.partial(exit_policy, kind="meaningless"),
    "unlabeled_policy": functools.partial(exit_policy, kind="unlabeled"),
    "cascade": functools.partial(exit_policy, kind="cascade"),
    "near_copies": functools.partial(exit_policy, kind="near_copies"),
}
