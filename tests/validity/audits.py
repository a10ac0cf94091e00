"""People audit a model that judges: its verdicts are people's, confused in a known way.

Sets are those of thresholds on arrays, selections those of components, and what is certified must
have the risk *by people* that the population says.
"""

from functools import cache, partial
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from scipy.stats import binom

from sklearn_clm._estimators._verdicts import Verdicts
from sklearn_clm.calibration import (
    Claim,
    ComponentCalibrationData,
    binomial_p_value,
    tests,
    two_phase_p_value,
)
from sklearn_clm.calibration._two_phase import _Design
from sklearn_clm.calibration.rows import Part
from sklearn_clm.calibration.table import Table
from sklearn_clm.policies import AuditedJudging, ThresholdPolicy
from sklearn_clm.policies._audited import Audit, seen_by_model
from sklearn_clm.policies.selection import ComponentSelection

from .procedures import N_LAMBDAS, Setting, accepted_at_stop
from .worlds import World, make_world

N_AUDITS = 40

# a search that has no part in what is certified, and takes most of the time
unsearched = patch.object(tests, "two_phase_smallest_epsilon", new=lambda *_: np.nan)


def _confused(truth: np.ndarray, hard: np.ndarray, *, lenient=0.0, strict=0.0, to_hard=0.0):
    """Verdicts that admit a share of what is wrong, and refuse a share of what is right."""
    chance = np.random.default_rng(0).random(truth.shape)
    lenient = np.where(hard[:, np.newaxis], to_hard, lenient)
    return np.where(truth, chance >= strict, chance < lenient)


def _rarely_lenient(truth: np.ndarray, hard: np.ndarray) -> np.ndarray:
    """Verdicts that admit all that is wrong of a fifth of the prompts."""
    return truth | (np.random.default_rng(0).random((len(truth), 1)) < 0.2)


#: Verdicts of a model on all of a population, from those of people, and which prompts are hard.
JUDGES = {
    "rarely lenient": _rarely_lenient,
    "known confusion": partial(_confused, lenient=0.05, strict=0.05, to_hard=0.05),
    "lenient": partial(_confused, lenient=0.3, to_hard=0.3),
    "strict": partial(_confused, strict=0.3),
    "led by difficulty": partial(_confused, to_hard=0.3),
    "drifting": _confused,  # at first
}


def _truth(world: World, procedure: str) -> np.ndarray:
    """Whether people admit the draws of the population, or two components of each prompt."""
    of_components = "components" in procedure
    return ~world.component_errors[:, 0, :2] if of_components else world.population.admissible


def risk_of_all(world: str, procedure: str) -> float:
    """Risk of all draws, or of selecting all components."""
    truth = _truth(make_world(world), procedure)
    right = truth.all(axis=1) if "components" in procedure else truth.any(axis=1)
    return float(1 - right.mean())


@cache
def _by_model(world: str, judge: str, procedure: str) -> np.ndarray:
    made = make_world(world)
    hard = made.population.admissible.mean(axis=1) < 0.2
    return JUDGES[judge](_truth(made, procedure), hard)


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


def _drawn(world: World, judge: str, setting: Setting, rng, procedure: str):
    """Sampled prompts, verdicts of people and of a model on them, and which part they are of."""
    chosen = world.draw(setting.n, rng)
    truth = _truth(world, procedure)[chosen]
    by_model = _by_model(world.name, judge, procedure)[chosen]
    if judge == "drifting":  # more and more lenient from one prompt to the next
        by_model |= rng.random(truth.shape) < np.linspace(0.0, 0.4, setting.n)[:, np.newaxis]
    seen, tested = map(np.sort, np.split(rng.permutation(setting.n), [setting.n // 3]))
    return chosen, truth, by_model, Part(tested, seen, setting.delta)


@unsearched
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
    chosen, truth, by_model, part = _drawn(world, judge, setting, rng, "audits")
    table = Table(world.population.take(chosen).with_labels(by_model))
    policy = ThresholdPolicy(n_lambdas=N_LAMBDAS)
    judging = AuditedJudging(len, n_audits=N_AUDITS, design=design)
    people = audit(judging, _People(truth), int(rng.integers(2**31)), table.data.digests)
    claim = Claim(setting.epsilon, setting.delta)
    rule = policy.calibrate(table, [part], claim, people)[None]
    if not rule.certified:
        return None
    population = world.population
    accepted = accepted_at_stop(population, rule.lambda_hat, "max")
    risk = 1 - (accepted & population.admissible).any(axis=1).mean()
    return bool(risk > setting.epsilon)


@unsearched
def audits_of_components(
    world: World, judge: str, setting: Setting, rng: np.random.Generator, *, design="two-phase"
) -> bool | None:
    """Is a selection wrong by people too often? All components score alike: it is all or none."""
    _, truth, by_model, part = _drawn(world, judge, setting, rng, "components")
    data = ComponentCalibrationData.from_arrays(np.ones(truth.shape), by_model)
    people = _People(truth.reshape(-1, 1))
    judging = AuditedJudging(len, n_audits=N_AUDITS, design=design)
    audit = Audit(judging, people, 0, data.digests)
    claim = Claim(setting.epsilon, setting.delta, about="components")
    if not audit.rule_for(ComponentSelection(data), None, None, part, claim).certified:
        return None
    return risk_of_all(world.name, "components") > setting.epsilon


class _Broken(Audit):
    """An audit whose test is made otherwise: by ``p_value(refused, said, level)``."""

    def rule_for(self, policy, learnt, table, part, claim):
        step = 0  # all draws, whose risk is just above epsilon
        order = np.random.default_rng(self.seed).permutation(len(part.rows))
        path = policy.path_on(learnt, table, part, part.rows)
        refused, pairs_of = seen_by_model(path, step, policy.risk)
        if self.p_value(path, claim, order, refused, pairs_of) > claim.delta:
            return SimpleNamespace(certified=False, claim=claim)
        lambdas = learnt.configuration(step)
        return SimpleNamespace(certified=True, claim=claim, lambda_hat=lambdas)


class RefusedOnesAudited(_Broken):
    """Audits are drawn among all prompts; a refused one counts as audited, with no rejection."""

    def p_value(self, path, claim, order, refused, pairs_of):
        audited, others = np.split(order, [N_AUDITS])
        _, prompts, draws = pairs_of(audited)
        missed = int(np.sum(~self.verdicts.ask(prompts, draws) & ~refused[audited]))
        n_refused = refused[others].sum()
        return two_phase_p_value(n_refused, len(order), missed, N_AUDITS, claim.level)


@cache
def _rejected(n_prompts: int, n_audited: int, level: float, delta: float) -> np.ndarray:
    """For each number of refusals the most rejections with which the test still certifies."""
    return _Design(n_prompts, n_audited, level).most_missed_certified(delta)


class NumberAfterTheRefusals(_Broken):
    """People audit as many as certify most often at epsilon, given how many are refused."""

    def p_value(self, path, claim, order, refused, pairs_of):
        n, k, delta = len(order), int(refused.sum()), claim.delta
        numbers = np.arange(3, n - k + 1)
        most = np.array(
            [[*_rejected(n, m, claim.level, delta), *[-1] * n][k] for m in numbers.tolist()]
        )
        # 0.21 is the share that people reject of what a rarely lenient model admits
        number = int(numbers[binom.cdf(most, numbers, 0.21).argmax()])
        _, prompts, draws = pairs_of(order[~refused[order]][:number])
        n_missed = int(np.sum(~self.verdicts.ask(prompts, draws)))
        return two_phase_p_value(k, n, n_missed, number, claim.level)


class DesignAfterTheVerdicts(_Broken):
    """Two phases, then people alone on other prompts, and the design that certifies is told."""

    def p_value(self, path, claim, order, refused, pairs_of):
        _, prompts, draws = pairs_of(order[~refused[order]][:N_AUDITS])
        n_missed = int(np.sum(~self.verdicts.ask(prompts, draws)))
        counts = int(refused.sum()), len(order), n_missed, N_AUDITS
        judged = order[-N_AUDITS:]
        right = self.verdicts.truth[path.rows[judged]] & path[0].shown[judged]
        alone = binomial_p_value(int(np.sum(~right.any(axis=1))), N_AUDITS, claim.level)
        return min(two_phase_p_value(*counts, claim.level), alone)


class WitnessAfterTheAudit(_Broken):
    """Where people reject a witness, one that they admit takes its place."""

    def p_value(self, path, claim, order, refused, pairs_of):
        return two_phase_p_value(refused.sum(), len(order), 0, N_AUDITS, claim.level)


class FixedTestAtEachLook(_Broken):
    """People stop as soon as the two-phase test of the audits so far certifies."""

    def p_value(self, path, claim, order, refused, pairs_of):
        n, k, delta = len(order), int(refused.sum()), claim.delta
        _, prompts, draws = pairs_of(order[~refused[order]])
        missed = np.cumsum(~self.verdicts.ask(prompts, draws))
        looks = range(3, min(N_AUDITS, len(missed)) + 1)
        most = [[*_rejected(n, m, claim.level, delta), *[-1] * n][k] for m in looks]
        return 0.0 if np.any(missed[[m - 1 for m in looks]] <= most) else 1.0


AUDIT_PROCEDURES = {
    f"{kind}{name}": partial(procedure, design=design)
    for kind, procedure in (("audits", audits), ("audits_of_components", audits_of_components))
    for name, design in (
        ("", "two-phase"),
        ("_by_betting", "betting"),
        ("_by_people", "people"),
        ("_auto", "auto"),
    )
}

#: World, judge, calibrations that notice it, and the broken procedure. Where all draws of a prompt
#: are alike the risk is a + (1 - a) b itself.
AUDIT_MUTATIONS = {
    "audits of refused prompts counted": ("mixed", "strict", 60, RefusedOnesAudited),
    "witness chosen after the audit": ("mixed", "lenient", 60, WitnessAfterTheAudit),
    "number of audits chosen after the refusals": (
        "all_duplicates",
        "rarely lenient",
        1500,
        NumberAfterTheRefusals,
    ),
    "design chosen after the verdicts": ("all_duplicates", "lenient", 1000, DesignAfterTheVerdicts),
    "the test of a fixed number at each look": (
        "all_duplicates",
        "rarely lenient",
        200,
        FixedTestAtEachLook,
    ),
}
