"""Shifted prompts, and losses between 0 and 1, along a path that is fixed beforehand.

The path returns the first k draws, k = K, ..., 1. It is known without any data, so that what is
tried is the p-value alone, and epsilon can be put just under the risk of any of its steps.
"""

from functools import lru_cache, partial

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from sklearn_clm.calibration import (
    betting_p_value,
    binomial_p_value,
    fixed_sequence_test,
    keep_by_weight,
    weighted_betting_p_value,
)
from sklearn_clm.calibration.rows import mixed
from tests.calibration.hoeffding_bentkus import hoeffding_bentkus_p_value

from .procedures import Setting, groups_of
from .worlds import K_MAX, World, make_world, named

#: Relative frequency of hard and easy prompts after the shift; the first is also the bound B.
HARD, EASY = 2.0, 0.5
#: Tolerated share of wrong draws where two risks are tested together.
SHARE = 0.75


@lru_cache(maxsize=16)
def path_losses(world: str) -> tuple[np.ndarray, np.ndarray]:
    """Misses, and shares of wrong draws, of all prompts along the path: two arrays (n, K)."""
    admissible = make_world(world).population.admissible
    found = np.logical_or.accumulate(admissible, axis=1)
    wrong = np.cumsum(~admissible, axis=1) / np.arange(1, admissible.shape[1] + 1)
    return (~found)[:, ::-1].astype(np.float64), wrong[:, ::-1]


@lru_cache(maxsize=16)
def prompt_weights(world: str) -> np.ndarray:
    """Density of the new prompts relative to the population: hard ones become more frequent."""
    return np.where(groups_of(make_world(world)) == 1, HARD, EASY)


def path_risks(world: str, *, shifted: bool, shares: bool = False) -> np.ndarray:
    """True risk of each step of the path, of new prompts or of those of the population."""
    weights = prompt_weights(world) if shifted else None
    return np.average(path_losses(world)[int(shares)], axis=0, weights=weights)


def _failed(p_values: np.ndarray, exceeds: np.ndarray, delta: float) -> bool | None:
    certified = fixed_sequence_test(p_values, delta)
    return bool(np.any(certified & exceeds)) if certified.any() else None


def weights_rejection(world: World, set_score, setting: Setting, rng, *, weigh=None):
    """Keep prompts by their weight, then the exact binomial test: is the new risk too high?"""
    chosen = world.draw(setting.n, rng)
    weights = (weigh or _known)(world, chosen, rng)
    keys = rng.integers(2**62, size=setting.n)
    kept = keep_by_weight(weights, HARD, keys, seed=0)
    if not kept.any():
        return None
    errors = path_losses(world.name)[0][chosen[kept]].astype(bool).sum(axis=0)
    p_values = np.asarray(binomial_p_value(errors, int(kept.sum()), setting.epsilon))
    risks = path_risks(world.name, shifted=True)
    return _failed(p_values, risks > setting.epsilon, setting.delta)


def weights_betting(world: World, set_score, setting: Setting, rng, *, weigh=None):
    """All prompts, and bets on weighted losses."""
    chosen = world.draw(setting.n, rng)
    weights = (weigh or _known)(world, chosen, rng)
    losses = path_losses(world.name)[0][chosen]
    p_values = np.array(
        [weighted_betting_p_value(one, weights, setting.epsilon, bound=HARD) for one in losses.T]
    )
    risks = path_risks(world.name, shifted=True)
    return _failed(p_values, risks > setting.epsilon, setting.delta)


def _known(world: World, chosen: np.ndarray, rng) -> np.ndarray:
    return prompt_weights(world.name)[chosen]


def ignored(world: World, chosen: np.ndarray, rng) -> np.ndarray:
    """Broken: no weights."""
    return np.ones(len(chosen))


def learnt_on_the_calibration_part(world: World, chosen: np.ndarray, rng) -> np.ndarray:
    """Broken: a classifier between the prompts that calibrate and new ones, which it remembers."""
    truth = prompt_weights(world.name)
    new = rng.choice(len(truth), size=len(chosen), p=truth / truth.sum())
    # one column tells hard prompts, the others nothing
    columns = [
        np.column_stack((truth[rows] + rng.normal(0.0, 0.3, len(rows)), rng.random((len(rows), 5))))
        for rows in (chosen, new)
    ]
    is_new = np.repeat([0, 1], len(chosen))
    tree = DecisionTreeClassifier(min_samples_leaf=3, random_state=0)
    share = tree.fit(np.concatenate(columns), is_new).predict_proba(columns[0])[:, 1]
    return np.minimum(share / np.maximum(1.0 - share, 1e-9), HARD)


def as_drawn(world: World, chosen: np.ndarray) -> np.ndarray:
    return chosen


def by_outcome(world: World, chosen: np.ndarray) -> np.ndarray:
    """The worst first, by the share of wrong draws in the middle of the path."""
    wrong = path_losses(world.name)[1][chosen, K_MAX // 2]
    return chosen[np.argsort(-wrong, kind="stable")]


def by_topic(world: World, chosen: np.ndarray) -> np.ndarray:
    """The hard prompts last."""
    return chosen[np.argsort(groups_of(world)[chosen], kind="stable")]


def betting(sample: np.ndarray, epsilon: float, chosen: np.ndarray) -> np.ndarray:
    """In an order by digests."""
    return betting_p_value(sample, epsilon, keys=mixed(chosen.astype(np.uint64)))


def bet_by_position(sample: np.ndarray, epsilon: float, chosen: np.ndarray) -> np.ndarray:
    """Broken: in a fixed permutation of the rows, which stand sorted."""
    return betting_p_value(sample, epsilon)


def hoeffding_bentkus(sample: np.ndarray, epsilon: float, chosen: np.ndarray) -> np.ndarray:
    return hoeffding_bentkus_p_value(sample, epsilon)


def losses(
    world: World, set_score, setting: Setting, rng, *, p_value, order=as_drawn
) -> bool | None:
    """Is the true share of wrong draws above epsilon for a certified step?"""
    chosen = order(world, world.draw(setting.n, rng))
    sample = path_losses(world.name)[1][chosen]
    p_values = p_value(sample, setting.epsilon, chosen)
    risks = path_risks(world.name, shifted=False, shares=True)
    return _failed(p_values, risks > setting.epsilon, setting.delta)


def two_risks(world: World, set_score, setting: Setting, rng, combine=np.maximum) -> bool | None:
    """Is one of two risks of a certified step too high? The larger p-value of each step counts."""
    chosen = world.draw(setting.n, rng)
    missed, wrong = (array[chosen] for array in path_losses(world.name))
    errors = missed.astype(bool).sum(axis=0)
    p_values = combine(
        np.asarray(binomial_p_value(errors, setting.n, setting.epsilon)),
        betting(wrong, SHARE, chosen),
    )
    exceeds = path_risks(world.name, shifted=False) > setting.epsilon
    exceeds |= path_risks(world.name, shifted=False, shares=True) > SHARE
    return _failed(p_values, exceeds, setting.delta)


def ordered_by_loss(sample: np.ndarray, epsilon: float, chosen: np.ndarray) -> np.ndarray:
    """Broken: bets in the order of the losses, the smallest first."""
    ordered = np.sort(sample, axis=0)
    # undoes the permutation of the test
    places = np.argsort(np.random.default_rng(0).permutation(len(sample)))
    return betting_p_value(ordered[places], epsilon)


DEPLOYMENT_PROCEDURES = named(weights_rejection, weights_betting, two_risks) | {
    "losses_betting": partial(losses, p_value=betting),
    "losses_betting_by_outcome": partial(losses, p_value=betting, order=by_outcome),
    "losses_betting_by_topic": partial(losses, p_value=betting, order=by_topic),
    "losses_hoeffding_bentkus": partial(losses, p_value=hoeffding_bentkus),
}
DEPLOYMENT_MUTATIONS = {
    "weights ignored, rejection": ("weights_rejection", partial(weights_rejection, weigh=ignored)),
    "weights ignored, betting": ("weights_betting", partial(weights_betting, weigh=ignored)),
    "weights learnt on the calibration part": (
        "weights_rejection",
        partial(weights_rejection, weigh=learnt_on_the_calibration_part),
    ),
    "betting order chosen after the losses": (
        "losses_betting",
        partial(losses, p_value=ordered_by_loss),
    ),
    "bet by position": (
        "losses_betting_by_outcome",
        partial(losses, p_value=bet_by_position, order=by_outcome),
    ),
    "the smaller p-value of two risks": ("two_risks", partial(two_risks, combine=np.minimum)),
}
