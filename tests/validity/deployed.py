"""Groups, shift, other losses and fractions of wrong components, as the estimators take them.

Draws are texts of a world, see :mod:`estimators`; ``fit`` gets groups or weights of prompts.
What is certified must then have the risk that the arrays say.
"""

import re
import warnings
from functools import partial

import numpy as np

from sklearn_clm import ComponentSelector
from sklearn_clm.calibration import component_fraction_test
from sklearn_clm.generators import Generation
from sklearn_clm.policies import CovariateShift, Groups, Losses

from .deployment import HARD, prompt_weights
from .estimators import WorldGenerator, WorldLookup, place, sample_of, sampler_for, table_of
from .procedures import Setting, accepted_at_stop, components_of, groups_of
from .worlds import World

__all__ = ["DEPLOYED_PROCEDURES", "fractions_of_all_draws", "sampler_groups_each"]


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
    rules = {group: sampler.groups_.get(group) for group in watched}
    known = {group: rule for group, rule in rules.items() if rule is not None and rule.certified}
    if not known:
        return None
    return any(
        _loss(world, rule, set_score)[of_prompt == group].mean() > setting.epsilon
        for group, rule in known.items()
    )


def sampler_groups_each(world: World, set_score, setting: Setting, rng) -> bool | None:
    """The same for the claim on the hard group alone."""
    return sampler_groups_all(world, set_score, setting, rng, guarantee="each", watched=(1,))


def sampler_shift(world: World, set_score, setting: Setting, rng, *, method) -> bool | None:
    """``fit(X, y, prompt_weight=...)``: is the risk of new prompts too high?"""
    prompts, references, seed = sample_of(world, setting, rng)
    weights = prompt_weights(world.name)
    sampler = sampler_for(world, set_score, setting, seed)
    sampler.set_params(shift=CovariateShift(weight_bound=HARD, method=method))
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


def sampler_losses(world: World, set_score, setting: Setting, rng, *, p_value) -> bool | None:
    """``ConformalSampler(losses=...)``: is the true share of wrong members too high?"""
    prompts, references, seed = sample_of(world, setting, rng)
    sampler = sampler_for(world, set_score, setting, seed)
    losses = Losses(
        {"wrong": ShareOfWrong(world.name, "admissible")},
        setting.epsilon,
        admission=False,
        p_value=p_value,
    )
    _quietly(sampler.set_params(losses=losses).fit, prompts, references)
    rule = sampler.calibration_.rule
    if not rule.certified:
        return None
    return bool(_loss(world, rule, set_score, shares=True).mean() > setting.epsilon)


class SentenceGenerator(WorldGenerator):
    """Draws of a world whose texts name the components that they hold."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        scores = table_of(self.world, "component_scores")
        return [
            [
                Generation(
                    f"{i}:{j} "
                    + " ".join(f"{i}/{j}/{c}" for c in np.flatnonzero(~np.isnan(scores[int(i), j])))
                )
                for j in range(start, start + n_samples)
            ]
            for i in prompts
        ]


def sentences(text: str) -> list[tuple[int, int]]:
    """Where the components of a text stand."""
    return [match.span() for match in re.finditer(r"\d+/\d+/\d+", text)]


class SentenceScore(WorldLookup):
    """Scores of components, or whether they are right."""

    def __call__(self, _, component):
        value = table_of(self.world, self.kind)[tuple(map(int, component.split("/")))]
        return not value if self.kind == "component_errors" else float(value)


def selector_fractions(world: World, set_score, setting: Setting, rng) -> bool | None:
    """``ComponentSelector(loss="fraction")`` with a sampler that it fits on half of the prompts."""
    prompts, references, seed = sample_of(world, setting, rng)
    sampler = sampler_for(world, set_score, setting._replace(epsilon=0.5), seed)
    sampler.set_params(generator=SentenceGenerator(world.name))
    selector = ComponentSelector(
        sampler,
        alpha=setting.epsilon,
        delta=setting.delta,
        loss="fraction",
        splitter=sentences,
        component_score=SentenceScore(world.name, "component_scores"),
        admission=SentenceScore(world.name, "component_errors"),
        random_state=seed,
    )
    _quietly(selector.fit, prompts, references)
    if selector.gamma_hat_ == np.inf:
        return None
    rule = selector.sampler_.calibration_.rule
    accepted = np.ones(world.population.admissible.shape, dtype=bool)
    if rule.certified:
        accepted = accepted_at_stop(world.population, rule.lambda_hat, set_score)
    chosen = (world.component_scores >= selector.gamma_hat_) & accepted[:, :, np.newaxis]
    wrong = (chosen & world.component_errors).sum(axis=(1, 2))
    fractions = wrong / np.maximum(chosen.sum(axis=(1, 2)), 1)
    return bool(fractions.mean() > setting.epsilon)


def worst_draw(world: World) -> np.ndarray:
    """Of each prompt the draw with the largest share of wrong components: a rule like any other."""
    present = ~np.isnan(world.component_scores)
    shares = (world.component_errors & present).sum(axis=2) / np.maximum(present.sum(axis=2), 1)
    return shares.argmax(axis=1)


def fractions(
    world: World, set_score, setting: Setting, rng, *, of_sets=True, p_value="betting"
) -> bool | None:
    """Is the true fraction of wrong components above alpha, in sets of the worst draw alone?"""
    everyone, worst = np.arange(world.population.n_prompts), worst_draw(world)
    hidden = np.full(world.component_scores.shape, np.nan)
    hidden[everyone, worst] = world.component_scores[everyone, worst]
    sets = World(world.name, world.population, hidden, world.component_errors)
    chosen = world.draw(setting.n, rng)
    data = components_of(sets if of_sets else world, chosen)
    gamma = component_fraction_test(data, setting.epsilon, setting.delta, p_value=p_value).gamma_hat
    if gamma == np.inf:
        return None
    with np.errstate(invalid="ignore"):
        selected = hidden[everyone, worst] >= gamma
    wrong = (selected & world.component_errors[:, 0]).sum(axis=1)
    return bool((wrong / np.maximum(selected.sum(axis=1), 1)).mean() > setting.epsilon)


def fractions_hoeffding_bentkus(world: World, set_score, setting: Setting, rng) -> bool | None:
    """The same by the Hoeffding-Bentkus bound."""
    return fractions(world, set_score, setting, rng, p_value="hoeffding_bentkus")


#: Broken: fractions of all draws say nothing of sets that hold some of them.
fractions_of_all_draws = partial(fractions, of_sets=False)


def _quietly(call, *arguments, **options) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(*arguments, **options)


DEPLOYED_PROCEDURES = {
    "sampler_groups_each": sampler_groups_each,
    "sampler_groups_all": sampler_groups_all,
    "sampler_shift_rejection": partial(sampler_shift, method="rejection"),
    "sampler_shift_betting": partial(sampler_shift, method="betting"),
    "sampler_losses_betting": partial(sampler_losses, p_value="betting"),
    "sampler_losses_hoeffding_bentkus": partial(sampler_losses, p_value="hoeffding_bentkus"),
    "selector_fractions": selector_fractions,
    "fractions": fractions,
    "fractions_hoeffding_bentkus": fractions_hoeffding_bentkus,
}
