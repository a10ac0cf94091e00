"""Simulated worlds whose risks are known exactly.

A world is a finite population of prompts, each with the scores and labels of its K draws. A
calibration set is an i.i.d. sample from the population, with replacement; the true risk of a
configuration is then its plain average over the population: no second simulation, no error bar.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sklearn_clm.calibration import CalibrationData

N_PROMPTS = 3000
K_MAX = 8


@dataclass(frozen=True)
class World:
    """A population of prompts.

    Parameters
    ----------
    name : str
        Its name in tables.
    population : CalibrationData
        Scores and labels of all prompts.
    topic : ndarray of shape (n,)
        By which a table may be sorted: whether a prompt is of the topic whose draws are rarely
        admissible.
    component_scores, component_errors : ndarray of shape (n, K, n_components)
        Confidence in each component of each draw, and whether the component is inadmissible.
        Component c of every draw of a prompt is the same sentence; NaN where a draw lacks it.
    """

    name: str
    population: CalibrationData
    topic: np.ndarray
    component_scores: np.ndarray
    component_errors: np.ndarray

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Positions of `n` prompts drawn i.i.d. from the population."""
        return rng.integers(self.population.n_prompts, size=n)


def _success_rates(rng, n):
    """Easy and hard prompts mixed: most succeed often, some hardly ever."""
    hard = rng.random(n) < 0.4
    return np.where(hard, rng.beta(1, 14, n), rng.beta(8, 4, n))


def _labels(rng, n, rates=None):
    rates = _success_rates(rng, n) if rates is None else rates
    return rng.random((n, K_MAX)) < rates[:, np.newaxis]


def _same_answer_similarity(rng, labels):
    """Right answers agree; wrong ones fall on four distractors; different answers overlap a bit."""
    answer = np.where(labels, 0, rng.integers(1, 5, labels.shape))
    same = answer[:, :, np.newaxis] == answer[:, np.newaxis, :]
    return np.where(same, 1.0, rng.uniform(0.0, 0.7, same.shape))


def _informative_quality(rng, labels):
    return np.where(labels, rng.beta(4, 2, labels.shape), rng.beta(2, 4, labels.shape))


def mixed(rng, n):
    labels = _labels(rng, n)
    return _informative_quality(rng, labels), _same_answer_similarity(rng, labels), labels


def useless_quality(rng, n):
    labels = _labels(rng, n)
    return rng.random(labels.shape), _same_answer_similarity(rng, labels), labels


def adversarial_quality(rng, n):
    labels = _labels(rng, n)
    return _informative_quality(rng, ~labels), _same_answer_similarity(rng, labels), labels


def admissible_look_duplicate(rng, n):
    labels = _labels(rng, n)
    similarity = np.where(labels[:, :, np.newaxis], 1.0, rng.uniform(0.0, 0.3, (n, K_MAX, K_MAX)))
    return _informative_quality(rng, labels), similarity, labels


def heavy_ties(rng, n):
    labels = _labels(rng, n)
    quality = np.round(_informative_quality(rng, labels) * 3) / 3
    return quality, np.round(_same_answer_similarity(rng, labels) * 2) / 2, labels


def infinite_scores(rng, n):
    quality, similarity, labels = mixed(rng, n)
    quality[rng.random(quality.shape) < 0.1] = 0.0
    quality[rng.random(quality.shape) < 0.05] = np.inf
    return quality, similarity, labels


def all_duplicates(rng, n):
    labels = np.repeat(_labels(rng, n)[:, :1], K_MAX, axis=1)
    quality = np.repeat(_informative_quality(rng, labels)[:, :1], K_MAX, axis=1)
    return quality, np.ones((n, K_MAX, K_MAX)), labels


def never_admissible(rng, n):
    labels = np.zeros((n, K_MAX), dtype=bool)
    return rng.random(labels.shape), rng.random((n, K_MAX, K_MAX)), labels


def always_admissible(rng, n):
    labels = np.ones((n, K_MAX), dtype=bool)
    return rng.random(labels.shape), rng.random((n, K_MAX, K_MAX)), labels


def rival_draws(rng, n):
    """Draw j scores j for every prompt, so lambda_2 picks one draw, and each is right as often."""
    labels = np.stack([rng.permutation(n) >= 0.3 * n for _ in range(K_MAX)], axis=1)
    quality = np.broadcast_to(np.arange(1.0, K_MAX + 1), labels.shape)
    return quality, np.zeros((n, K_MAX, K_MAX)), labels


def wrong_on_one_topic(rng, n):
    """All draws of a prompt are alike: of the first third four in five are wrong, else few."""
    wrong = rng.random(n) < np.where(np.arange(n) < n // 3, 0.8, 0.05)
    labels = np.repeat(~wrong[:, np.newaxis], K_MAX, axis=1)
    return rng.random(labels.shape), np.ones((n, K_MAX, K_MAX)), labels


def named(*functions: Callable) -> dict[str, Callable]:
    """Functions by their names."""
    return {one.__name__: one for one in functions}


WORLDS = named(
    *(mixed, useless_quality, adversarial_quality, admissible_look_duplicate, heavy_ties),
    *(infinite_scores, all_duplicates, never_admissible, always_admissible, rival_draws),
)

#: A world for orders of rows alone, after the others, whose populations so stay as they are.
ALL_WORLDS = {**dict(sorted(WORLDS.items())), "wrong_on_one_topic": wrong_on_one_topic}


def _components(rng, labels):
    """Six sentences a prompt, each in a part of its draws, scored anew in each.

    A sentence is right or wrong for its prompt, whichever draw it stands in. Scores tell right
    from wrong only roughly, and vary between the draws that repeat the sentence.
    """
    n = len(labels)
    wrong = rng.random((n, 1, 6)) < 0.25
    score = rng.normal(np.where(wrong, -0.8, 0.8), 1.0, (n, K_MAX, 6))
    score[rng.random(score.shape) < 0.5] = np.nan
    return score, np.broadcast_to(wrong, score.shape)


@functools.lru_cache(maxsize=16)
def make_world(name: str, seed: int = 0) -> World:
    """World of the given name, its population fixed by the seed."""
    rng = np.random.default_rng([seed, list(ALL_WORLDS).index(name)])
    quality, similarity, labels = ALL_WORLDS[name](rng, N_PROMPTS)
    scores, errors = _components(rng, labels)
    topic = labels.mean(axis=1) < 0.5
    if name == "wrong_on_one_topic":
        topic = np.arange(N_PROMPTS) < N_PROMPTS // 3
    return World(name, CalibrationData(quality, similarity, labels), topic, scores, errors)
