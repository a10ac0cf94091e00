"""Groups, shift and other losses, as the estimators take them.

Draws are texts of a world, see :mod:`estimators`; ``fit`` gets groups or weights of prompts.
What is certified must then have the risk that the arrays say.
"""

import warnings
from functools import partial

import numpy as np

from sklearn_clm.policies import CovariateShift, Groups, Losses

from .deployment import HARD, prompt_weights
from .estimators import WorldLookup, place, sample_of, sampler_for, table_of
from .procedures import Setting, accepted_at_stop, groups_of
from .worlds import World, named


def _loss(world: World, rule, set_score, *, shares: bool = False) -> np.ndarray:
    """Whether the set of each prompt misses, or the share of its members that are wrong."""
    accepted = accepted_at_stop(world.population, rule.lambda_hat, set_score)
    admissible = world.population.admissible
    if not shares:
        return ~(accepted & admissible).any(axis=1)
    return (accepted & ~admissible).sum(axis=1) / np.maximum(accepted.sum(axis=1), 1)


def sampler_groups_all(
    world: World, set_score, setting: Setting, rng, *, guarantee="all", watched=(0, 1)
) -> bool | None:
    """``fit(X, y, groups=...)``: is the risk within some group too high?"""
    prompts, references, seed = sample_of(world, setting, rng)
    of_prompt = groups_of(world)
    groups = of_prompt[list(map(int, prompts))]
    sampler = sampler_for(world, set_score, setting, seed)
    sampler.set_params(groups=Groups(guarantee=guarantee))
    _quietly(sampler.fit, prompts, references, groups=groups)
    rules = sampler.calibration_.by_group
    known = {name: rule for name, rule in rules.items() if name in watched and rule.certified}
    if not known:
        return None
    return any(
        _loss(world, rule, set_score)[of_prompt == group].mean() > setting.epsilon
        for group, rule in known.items()
    )


def sampler_shift(world: World, set_score, setting: Setting, rng) -> bool | None:
    """``fit(X, y, prompt_weight=...)``: is the risk of new prompts too high?"""
    prompts, references, seed = sample_of(world, setting, rng)
    weights = prompt_weights(world.name)
    sampler = sampler_for(world, set_score, setting, seed)
    sampler.set_params(shift=CovariateShift(weight_bound=HARD))
    _quietly(sampler.fit, prompts, references, prompt_weight=weights[list(map(int, prompts))])
    rule = sampler.calibration_.rule
    if not rule.certified:
        return None
    risk = np.average(_loss(world, rule, set_score), weights=weights)
    return bool(risk > setting.epsilon)


class ShareOfWrong(WorldLookup):
    """Share of the members of a set that are not admissible."""

    def __call__(self, prompt, reference, one) -> float:
        table = table_of(self.world, self.kind)
        return sum(not table[place(text)] for text in one) / max(len(one), 1)


def sampler_losses(world: World, set_score, setting: Setting, rng) -> bool | None:
    """``ConformalSampler(losses=...)``: is the true share of wrong members too high?"""
    prompts, references, seed = sample_of(world, setting, rng)
    sampler = sampler_for(world, set_score, setting, seed)
    shares = {"wrong": ShareOfWrong(world.name, "admissible")}
    losses = Losses(shares, {"wrong": setting.epsilon})
    _quietly(sampler.set_params(losses=losses, epsilon=0.99).fit, prompts, references)
    rule = sampler.calibration_.rule
    if not rule.certified:
        return None
    return bool(_loss(world, rule, set_score, shares=True).mean() > setting.epsilon)


def _quietly(call, *arguments, **options) -> None:
    with warnings.catch_warnings(action="ignore"):
        call(*arguments, **options)


DEPLOYED_PROCEDURES = named(sampler_groups_all, sampler_shift, sampler_losses) | {
    # the claim on the hard group alone
    "sampler_groups_each": partial(sampler_groups_all, guarantee="each", watched=(1,)),
}
