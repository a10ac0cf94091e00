"""Rows as drawn, sorted by outcome, and sorted by topic; with a seed and without one.

Tables come sorted, and a split by positions is then no random one. Epsilon is put just under the
risk of all draws, so that whatever is certified is an error.
"""

import warnings
from functools import partial
from itertools import product

import numpy as np

from sklearn_clm.calibration import CalibrationData, learn_then_test
from sklearn_clm.calibration.rows import mixed
from sklearn_clm.policies import ExitPolicy

from .deployment import as_drawn, by_outcome, by_topic
from .estimators import sampler_for
from .procedures import N_LAMBDAS, Setting
from .worlds import World


def _certified_wrongly(world: World, setting: Setting, certified: bool) -> bool | None:
    missed = 1 - world.population.admissible.any(axis=1).mean()
    return bool(missed > setting.epsilon) if certified else None


def _sample(world: World, setting: Setting, rng, order) -> CalibrationData:
    """Rows in an order; of every other sample the prompts are known."""
    chosen = order(world, world.draw(setting.n, rng))
    data = world.population.take(chosen)
    if rng.random() < 0.5:
        data.prompts = mixed(chosen.astype(np.uint64))
    return data


def split_thresholds(
    world: World, set_score, setting: Setting, rng, *, order, random_state
) -> bool | None:
    """Are thresholds certified that err more often?"""
    data = _sample(world, setting, rng, order)
    options = {"set_score": set_score, "n_lambdas": N_LAMBDAS, "random_state": random_state}
    found = learn_then_test(data, setting.epsilon, setting.delta, **options)
    return _certified_wrongly(world, setting, found.lambda_hat is not None)


def split_exit_levels(
    world: World, set_score, setting: Setting, rng, *, order, random_state
) -> bool | None:
    """Is a level of an exit policy certified that errs more often?"""
    sampler = sampler_for(world, "max", setting, random_state).set_params(policy=ExitPolicy())
    with warnings.catch_warnings(action="ignore"):
        record = sampler.calibrate(_sample(world, setting, rng, order)).calibration_
    return _certified_wrongly(world, setting, record.certified)


ORDERS, SEEDS = (as_drawn, by_outcome, by_topic), (None, 42)


def _in_each_order(procedure):
    return {
        f"{procedure.__name__}_{order.__name__}_seed_{seed}": partial(
            procedure, order=order, random_state=seed
        )
        for order, seed in product(ORDERS, SEEDS)
    }


THRESHOLDS_IN_ORDERS = _in_each_order(split_thresholds)
LEVELS_IN_ORDERS = _in_each_order(split_exit_levels)
ORDER_PROCEDURES = THRESHOLDS_IN_ORDERS | LEVELS_IN_ORDERS
