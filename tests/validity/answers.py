"""Answers in the study's worlds: is the share of wrong ones above alpha?

The epsilon of a setting is alpha here.
"""

import functools
from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration import CalibrationData, Claim, critical_count
from sklearn_clm.calibration.answer import AnswerSteps, LearntAnswers
from sklearn_clm.calibration.certify import count_passed
from sklearn_clm.calibration.rows import Part
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.vote import PlainModel, votes_of
from sklearn_clm.policies import AnswerPolicy
from sklearn_clm.policies.judging import judging_of
from tests.calibration.tables import lazy_table

from .policies import N_OPTIMIZATION, texts_of
from .procedures import Setting
from .worlds import World, make_world, named


class _Learnt(NamedTuple):
    """What was learnt, and the text with which each level answers each prompt of a world."""

    answers: LearntAnswers
    texts: np.ndarray  # (levels, prompts), -1 where nothing is answered


@functools.lru_cache(maxsize=64)
def _learnt(name: str, variant: int, setting: Setting, kind: str) -> _Learnt:
    world, rng = make_world(name), np.random.default_rng([variant, 3])
    data = world.population.take(world.draw(N_OPTIMIZATION, rng))
    labels = data.labels if kind == "labeled" else np.full(data.labels.shape, -1, dtype=np.int8)
    data = _with_texts(name, data).with_labels(labels)
    policy = AnswerPolicy(setting.epsilon, score="learnt")
    learnt = policy._learnt(data, setting.n, setting.delta, None)
    everybody = _population(name)
    every = AnswerSteps(Table(everybody), np.arange(everybody.n_prompts), learnt)
    texts = np.full((len(learnt.levels), everybody.n_prompts), -1)
    for j in range(len(learnt.levels)):
        found = every.members(j)
        texts[j, found.rows] = found.draws
    return _Learnt(learnt, texts)


@functools.cache
def _population(name: str) -> CalibrationData:
    population = make_world(name).population
    return _with_texts(name, population.take(np.arange(population.n_prompts)))


def _with_texts(name: str, data: CalibrationData) -> CalibrationData:
    """The same, equal draws of a prompt taken for one text."""
    data.texts = texts_of(name, data, "unlabeled")
    return data


def _errs(texts: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Whether each level answers each prompt, and wrongly: (2, levels, prompts)."""
    answered = texts >= 0
    return np.stack((answered, answered & ~right[np.arange(len(right)), texts]))


def _in_order(passes: np.ndarray, start: int) -> int | None:
    """The last level that passes from the start on, before one fails."""
    n_passed = count_passed(lambda j: passes[start + j], len(passes) - start)
    return start + n_passed - 1 if n_passed else None


def answers(
    world: World, set_score, setting: Setting, rng, *, kind: str = "labeled"
) -> bool | None:
    """Are more than alpha of the answers at the calibrated level wrong?

    One calibration in ten asks for labels and draws lazily, and must find the level of all labels.
    """
    n, alpha, delta = setting.n, setting.epsilon, setting.delta
    learnt, texts = _learnt(world.name, int(rng.integers(4)), setting, kind)
    chosen, right = world.draw(n, rng), _population(world.name).admissible
    last = _in_order(*_tested(learnt, texts[:, chosen], right[chosen], setting))
    if rng.random() < 0.1:
        table = lazy_table(_population(world.name).take(chosen), draws=False)
        part, claim = Part(np.arange(n), np.arange(0), delta), Claim(alpha, delta)
        found = AnswerPolicy(alpha).rule_for(learnt, table, part, claim)
        level = found.level if found.claim.holds else None
        if level != (None if last is None else learnt.levels[last]):
            raise AssertionError(f"lazily the level is {level}, which is not that of all labels")
    if last is None:
        return None
    m, errors = _errs(texts[[last]], right).sum(axis=2)
    return bool(errors[0] > alpha * m[0])


def _tested(learnt: LearntAnswers, texts: np.ndarray, right: np.ndarray, setting: Setting):
    """Which levels pass, and the first that is tested."""
    n, alpha, delta = setting.n, setting.epsilon, setting.delta
    m, errors = _errs(texts, right).sum(axis=2)
    passes = (m > 0) & (errors <= critical_count(np.maximum(m, 1), alpha, delta))
    return passes, learnt.start(n, alpha, delta)


def coin_answers(
    world: World, set_score, setting: Setting, rng, *, choose=_in_order
) -> bool | None:
    """Is a level certified where the answers of each are wrong just above alpha?"""
    learnt, texts = _learnt(world.name, int(rng.integers(4)), setting, "labeled")
    chosen, k_max = world.draw(setting.n, rng), world.population.k_max
    right = rng.random((setting.n, k_max)) > setting.epsilon + 0.002
    found = choose(*_tested(learnt, texts[:, chosen], right, setting))
    return None if found is None else True


def _largest_passing(passes: np.ndarray, start: int) -> int | None:
    """Broken: the most selective of all levels that pass."""
    return int(passes.argmax()) if passes.any() else None


def _start_of_calibration(passes: np.ndarray, start: int) -> int | None:
    """Broken: the sequence starts where the calibration part passes."""
    return _in_order(passes, int(passes.argmax()))


class _StartByLabels(AnswerPolicy):
    """Broken: the sequence of votes starts where the labels pass."""

    def path_on(self, learnt, table, part, rows):
        steps = super().path_on(learnt, table, part, rows)
        test = self.test_of(steps, Claim(self.alpha, part.delta))
        passed = [test.passes(step) for step in range(len(steps))]
        steps.levels = steps.levels[int(np.argmax(passed)) :]
        return steps


@functools.cache
def _risks(name: str, alpha: float, order: str) -> np.ndarray:
    """How often each prompt's answer is wrong: just above alpha at all levels, or down to one.

    "level": at all of them. With "rising" risk the votes of half of the prompts are wrong just
    above alpha, and those of more votes less often.
    """
    population = _population(name)
    votes = votes_of(population, PlainModel("vote", population.k_max))
    above = (votes[:, np.newaxis] < votes).mean(axis=1)
    reached = (votes[:, np.newaxis] <= votes).mean(axis=1)
    half = reached[np.abs(reached - 0.5).argmin()]
    place = (above + reached) / 2
    # so steep that the surest prompts certify something
    slope = {"level": 0.0, "rising": 4 * alpha}[order]
    return np.clip(alpha + 0.002 + slope * (place - place[reached <= half].mean()), 0.0, 1.0)


def coin_votes(
    world: World,
    set_score,
    setting: Setting,
    rng,
    *,
    score="vote",
    policy=AnswerPolicy,
    order="level",
) -> bool | None:
    """Is a vote certified at a level where answers are wrong just above alpha?

    Right and wrong prompts are drawn anew, by their votes at most, so that of "auto" those of the
    optimisation part choose by luck alone.
    """
    n, alpha, delta = setting.n, setting.epsilon, setting.delta
    chosen = world.draw(n, rng)
    risks = _risks(world.name, alpha, order)
    right = rng.random((n, 1)) > risks[chosen, np.newaxis]
    population = _population(world.name)
    labels = np.broadcast_to(right, (n, population.k_max)).astype(np.int8)
    data = population.take(chosen).with_labels(labels)
    data.prompts = np.arange(n, dtype=np.uint64)
    own = policy(alpha, score=score)
    searched, tested = own.split(data, "auto", int(rng.integers(2**31)))
    parts, claim = [Part(tested, searched, delta)], Claim(alpha, delta, about="answers")
    rule = own.calibrate(Table(data), parts, claim, judging_of("all"))[None]
    if not rule.claim.holds:
        return None
    answered = rule.shown(population, set_score).any(axis=1)
    return bool(risks[answered].mean() > alpha)


#: A vote, or what is learnt, whichever answers more.
CHOICES = {
    "coin_choices": functools.partial(coin_votes, score="auto"),
    "choices_of_rising_risk": functools.partial(coin_votes, score="auto", order="rising"),
}

ANSWER_PROCEDURES = named(answers, coin_answers, coin_votes) | {
    **CHOICES,
    # by a path that was learnt from prompts without labels
    "unlabeled_answers": functools.partial(answers, kind="unlabeled"),
}

VOTE_MUTATIONS = {
    "a vote starts where the labels pass": functools.partial(coin_votes, policy=_StartByLabels),
}

ANSWER_MUTATIONS = {
    "the most selective level of answers that passes": _largest_passing,
    "answers start where the calibration part passes": _start_of_calibration,
}
