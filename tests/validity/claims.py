"""Claims: components that rest on others, of which some may be wrong.

In each draw of a world most components rest on an earlier one. Their scores are those of the
package, and so is what is calibrated; the true risk is that of the population.
"""

import math
from dataclasses import replace
from functools import cache, partial

import numpy as np

from sklearn_clm.calibration import Claim, component_learn_then_test, critical_count
from sklearn_clm.calibration.certify import nth_largest_by_asking
from sklearn_clm.calibration.components import ComponentEntries
from sklearn_clm.calibration.rows import Part
from sklearn_clm.policies import AuditedJudging
from sklearn_clm.policies._audited import Audit
from sklearn_clm.policies.selection import ComponentSelection
from sklearn_clm.scoring import Claim as Statement
from sklearn_clm.scoring._splitters import least_on_the_way_up

from .audits import N_AUDITS, _People, unsearched
from .procedures import Setting, component_risk, components, components_of, groups_of
from .worlds import World, make_world


def parents_of(scores: np.ndarray) -> np.ndarray:
    """Of each component of each draw an earlier one of the draw on which it rests, or -1."""
    rng = np.random.default_rng(3)
    parents = np.full(scores.shape, -1)
    for c in range(1, scores.shape[2]):
        other = rng.integers(c, size=scores.shape[:2])
        present = ~np.isnan(np.take_along_axis(scores, other[..., np.newaxis], axis=2)[..., 0])
        rests = present & (rng.random(present.shape) < 0.7)
        parents[:, :, c] = np.where(rests, other, -1)
    return parents


@cache
def claims_in(name: str) -> World:
    """The world with scores of claims: in each draw the least on the way up."""
    world = make_world(name)
    scores = world.component_scores.copy()
    parents = parents_of(scores)
    for row, above in zip(scores.reshape(-1, 6), parents.reshape(-1, 6)):
        claims = [Statement(str(c), parents=(p,) if p >= 0 else ()) for c, p in enumerate(above)]
        row[:] = np.where(np.isnan(row), np.nan, least_on_the_way_up(claims, np.nan_to_num(row)))
    return replace(world, component_scores=scores)


def claims(
    world: World, _, setting: Setting, rng, *, max_wrong=0, ignored=None, combine=np.fmax.reduce
):
    """Are more than `max_wrong` claims of a selection wrong too often?

    Parents that are `ignored` "in selections" or "in V" are a mistake: too many claims are kept, or
    too few.
    """
    of_claims = claims_in(world.name)
    calibrated = world if ignored == "in V" else of_claims
    selected = world if ignored == "in selections" else of_claims
    return components(calibrated, _, setting, rng, combine, max_wrong=max_wrong, selected=selected)


def lazy_claims(world: World, _, setting: Setting, rng, *, max_wrong=1):
    """The same, judged from the highest score down until the threshold is known."""
    of_claims = claims_in(world.name)
    full = components_of(of_claims, of_claims.draw(setting.n, rng))
    unknown = full.with_labels(np.full(full.n_components, -1))
    entries = ComponentEntries(unknown, lambda which: full.admissible[which], max_wrong=max_wrong)
    nth_largest_by_asking(
        entries, int(critical_count(setting.n, setting.epsilon, setting.delta)) + 1
    )
    known = full.with_labels(entries.labels)
    levels = setting.epsilon, setting.delta
    gamma = component_learn_then_test(known, *levels, max_wrong=max_wrong).gamma_hat
    assert gamma == component_learn_then_test(full, *levels, max_wrong=max_wrong).gamma_hat
    return _too_often_wrong(of_claims, gamma, setting, max_wrong)


def claims_of_a_group(world: World, _, setting: Setting, rng, *, max_wrong=1):
    """The claim on the hard group alone."""
    of_claims = claims_in(world.name)
    hard = groups_of(of_claims) == 1
    positions = of_claims.draw(2 * setting.n, rng)
    data = components_of(of_claims, positions[hard[positions]])
    if data.n_prompts < setting.n // 4:
        return None
    levels = setting.epsilon, setting.delta
    gamma = component_learn_then_test(data, *levels, max_wrong=max_wrong).gamma_hat
    return _too_often_wrong(of_claims, gamma, setting, max_wrong, hard)


@unsearched
def audited_claims(world: World, _, setting: Setting, rng, *, max_wrong=1):
    """The same by people who audit a lenient model."""
    of_claims = claims_in(world.name)
    data = components_of(of_claims, of_claims.draw(setting.n, rng))
    truth = data.admissible
    by_model = data.with_labels(truth | (rng.random(len(truth)) < 0.2))
    seen, tested = map(np.sort, np.split(rng.permutation(setting.n), [setting.n // 3]))
    judging = AuditedJudging(len, n_audits=N_AUDITS, design="two-phase", rejected=0.1)
    seed = int(rng.integers(2**31))
    audit = Audit(judging, _People(truth.reshape(-1, 1)), seed, data.digests)
    claim = Claim(setting.epsilon, setting.delta, about="components", max_wrong=max_wrong)
    selection = ComponentSelection(by_model, max_wrong)
    rule = audit.rule_for(selection, None, None, Part(tested, seen, setting.delta), claim)
    gamma = rule.gamma_hat if rule.certified else math.inf
    return _too_often_wrong(of_claims, gamma, setting, max_wrong)


def _too_often_wrong(world: World, gamma, setting: Setting, max_wrong, chosen=None):
    """Whether selections of all draws err too often, among some prompts."""
    if math.isinf(gamma):
        return None
    everything = np.ones(world.population.admissible.shape, dtype=bool)
    risk = component_risk(world, gamma, everything, max_wrong=max_wrong, chosen=chosen)
    return risk > setting.epsilon


CLAIM_PROCEDURES = {
    "claims": claims,
    "claims_but_1": partial(claims, max_wrong=1),
    "claims_but_3": partial(claims, max_wrong=3),
    "lazy_claims": lazy_claims,
    "audited_claims": audited_claims,
    "claims_of_a_group": claims_of_a_group,
}

#: Those whose V hardly repeats, so that the share of failures is known, and not only bounded.
EXACT_PROCEDURES = ("claims_but_1", "lazy_claims")

#: A level within reach for each, since a selection of all claims errs more often.
CLAIM_LEVELS = {
    "claims": 0.5,
    "claims_but_1": 0.3,
    "claims_but_3": 0.03,
    "lazy_claims": 0.3,
    "audited_claims": 0.4,
    "claims_of_a_group": 0.3,
}
