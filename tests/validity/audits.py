"""People audit a model that judges: its verdicts are people's, confused in a known way.

Sets are those of thresholds on arrays, and what is certified must have the risk *by people* that
the population says.
"""

from functools import cache, partial
from types import SimpleNamespace

import numpy as np
from scipy.stats import binom

from sklearn_clm.calibration import Claim, binomial_p_value, two_phase_p_value
from sklearn_clm.calibration._rows import Part
from sklearn_clm.calibration._table import Table
from sklearn_clm.calibration._two_phase import _Design
from sklearn_clm.policies import AuditedJudging, ThresholdPolicy
from sklearn_clm.policies._audited import Audit
from sklearn_clm.policies._base import Terms
from sklearn_clm.policies._verdicts import Verdicts

from .procedures import N_LAMBDAS, Setting, accepted_at_stop
from .worlds import World, make_world

__all__ = ["AUDIT_MUTATIONS", "AUDIT_PROCEDURES", "JUDGES", "N_AUDITS"]

N_AUDITS = 40


def _confused(truth: np.ndarray, lenient: object, strict: object) -> np.ndarray:
    """Verdicts that admit a share of what is wrong, and refuse a share of what is right."""
    chance = np.random.default_rng(0).random(truth.shape)
    return np.where(truth, chance >= strict, chance < lenient)


def _hardly_any(truth: np.ndarray) -> np.ndarray:
    return truth.mean(axis=1, keepdims=True) < 0.2


#: Verdicts of a model on all draws of a population, from those of people.
JUDGES = {
    "known confusion": partial(_confused, lenient=0.05, strict=0.05),
    "lenient": partial(_confused, lenient=0.3, strict=0.0),
    "strict": partial(_confused, lenient=0.0, strict=0.3),
    "led by difficulty": lambda truth: _confused(truth, 0.3 * _hardly_any(truth), 0.0),
    "drifting": partial(_confused, lenient=0.0, strict=0.0),  # at first
}


@cache
def _by_model(world: str, judge: str) -> np.ndarray:
    return JUDGES[judge](make_world(world).population.admissible)


class _People(Verdicts):
    """Verdicts that an array holds."""

    def __init__(self, truth: np.ndarray) -> None:
        self.labels = np.full(truth.shape, -1, dtype=np.int8)
        self.truth, self.n_judgements, self.by_model = truth, 0, None

    @property
    def of_people(self) -> bool:
        return False

    def ask(self, prompts, draws):
        self.labels[prompts, draws] = self.truth[prompts, draws]
        return self.truth[prompts, draws]

    def __call__(self, prompts, draws):
        return iter(self.ask(prompts, draws).tolist())


def audits(
    world: World,
    judge: str,
    setting: Setting,
    rng: np.random.Generator,
    *,
    design: str = "two-phase",
    audit: type[Audit] = Audit,
) -> bool | None:
    """Is the risk by people of what an audit certifies too high?"""
    chosen = world.draw(setting.n, rng)
    truth, by_model = world.population.admissible[chosen], _by_model(world.name, judge)[chosen]
    if judge == "drifting":  # more and more lenient from one prompt to the next
        by_model |= rng.random(truth.shape) < np.linspace(0.0, 0.4, setting.n)[:, np.newaxis]
    table = Table(world.population.take(chosen).with_labels(by_model))
    seen, tested = np.split(rng.permutation(setting.n), [setting.n // 3])
    policy = ThresholdPolicy(n_lambdas=N_LAMBDAS)
    judging = AuditedJudging(len, n_audits=N_AUDITS, design=design)
    people = audit(judging, _People(truth), int(rng.integers(2**31)))
    terms = Terms(setting.epsilon, setting.delta, [truth.shape[1]], None, None, people)
    path = policy.search(table, np.sort(seen), terms)
    part = Part(np.sort(tested), np.sort(seen), setting.delta)
    claim = Claim(setting.epsilon, setting.delta)
    rule = policy.test(path, table, part, terms, claim).rule
    if not rule.certified:
        return None
    population = world.population
    accepted = accepted_at_stop(population, rule.lambda_hat, "max")
    risk = 1 - (accepted & population.admissible).any(axis=1).mean()
    return bool(risk > setting.epsilon)


class _Broken(Audit):
    """An audit whose test is made otherwise: by ``p_value(refused, said, level)``."""

    def test(self, steps, claim):
        step, _ = self._chosen(steps, N_AUDITS)
        order = self._order(steps)
        refused, pairs_of = steps.seen_by_model(step)
        if self.p_value(steps, step, order, refused, pairs_of) > steps.part.delta:
            return SimpleNamespace(rule=SimpleNamespace(certified=False))
        lambdas = steps.path.configuration(step)
        return SimpleNamespace(rule=SimpleNamespace(certified=True, lambda_hat=lambdas))

    def said(self, steps, prompts, draws):
        return self.verdicts.ask(prompts, draws)


class RefusedOnesAudited(_Broken):
    """Audits are drawn among all prompts; a refused one counts as audited, with no rejection."""

    def p_value(self, steps, step, order, refused, pairs_of):
        audited, others = np.split(order, [N_AUDITS])
        _, prompts, draws = pairs_of(audited)
        missed = int(np.sum(~self.said(steps, prompts, draws) & ~refused[audited]))
        n_refused = refused[others].sum()
        return two_phase_p_value(n_refused, len(order), missed, N_AUDITS, steps.level)


@cache
def _rejected(n_prompts: int, n_audited: int, level: float, delta: float) -> np.ndarray:
    """For each number of refusals the most rejections with which the test still certifies."""
    return _Design(n_prompts, n_audited, level).rejected(delta)


class NumberAfterTheRefusals(_Broken):
    """People audit as many as certify most often at epsilon, given how many are refused."""

    def p_value(self, steps, step, order, refused, pairs_of):
        n, k, delta = len(order), int(refused.sum()), steps.part.delta
        share = steps.refusals[step] / len(steps.part.searched)
        rejected = max(steps.level - share, 0.0) / (1 - share)
        numbers = np.arange(3, n - k + 1)
        most = np.array(
            [[*_rejected(n, m, steps.level, delta), *[-1] * n][k] for m in numbers.tolist()]
        )
        number = int(numbers[binom.cdf(most, numbers, rejected).argmax()])
        _, prompts, draws = pairs_of(order[~refused[order]][:number])
        n_missed = int(np.sum(~self.said(steps, prompts, draws)))
        return two_phase_p_value(k, n, n_missed, number, steps.level)


class DesignAfterTheVerdicts(_Broken):
    """Two phases, then people alone on other prompts, and the design that certifies is told."""

    def p_value(self, steps, step, order, refused, pairs_of):
        _, prompts, draws = pairs_of(order[~refused[order]][:N_AUDITS])
        n_missed = int(np.sum(~self.said(steps, prompts, draws)))
        counts = int(refused.sum()), len(order), n_missed, N_AUDITS
        judged = order[-N_AUDITS:]
        members, _ = steps.members(step)
        right = self.verdicts.truth[steps.part.rows[judged]] & members[judged]
        alone = binomial_p_value(int(np.sum(~right.any(axis=1))), N_AUDITS, steps.level)
        return min(two_phase_p_value(*counts, steps.level), alone)


class WitnessAfterTheAudit(_Broken):
    """Where people reject a witness, one that they admit takes its place."""

    def p_value(self, steps, step, order, refused, pairs_of):
        return two_phase_p_value(refused.sum(), len(order), 0, N_AUDITS, steps.level)


AUDIT_PROCEDURES = {
    "audits": audits,
    "audits_by_people": partial(audits, design="people"),
    "audits_auto": partial(audits, design="auto"),
}

#: World, judge, calibrations that notice it, and the broken procedure. Where all draws of a prompt
#: are alike the risk is a + (1 - a) b itself.
AUDIT_MUTATIONS = {
    "audits of refused prompts counted": ("mixed", "strict", 60, RefusedOnesAudited),
    "witness chosen after the audit": ("mixed", "lenient", 60, WitnessAfterTheAudit),
    "number of audits chosen after the refusals": (
        "all_duplicates",
        "led by difficulty",
        1000,
        NumberAfterTheRefusals,
    ),
    "design chosen after the verdicts": ("all_duplicates", "lenient", 600, DesignAfterTheVerdicts),
}
