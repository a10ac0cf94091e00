"""A model judges, people audit, the guarantee is about people.

1. The part that shapes (the optimisation part; of components a third of the prompts) chooses one
   rule by the model's labels, and the design of the audit. Both are fixed before a label of the
   prompts that calibrate is looked at.
2. On these the model judges what the rule gives, and *refuses* some prompts. The others are
   *admitted*.
3. *Two phases*: n admitted prompts are drawn at random, and people judge what they were admitted
   for (``calibration/_two_phase.py``). *Betting*: one after the other, until the risk is certified
   or out of reach (``calibration/_betting.py``). *People alone*: n prompts are drawn at random, and
   the usual test is made on these, with people for its judge.

*Responses.* A prompt is refused where the model admits no member of its set, and admitted for one
of those that it admits, the witness: that of highest quality, or that on which an exit policy
relies most. If people admit the witness, the set holds a response that they admit. With a the
probability of refusal and b that of a rejected witness the risk is therefore at most
a + (1 - a) b. A level of an exit policy is such a rule, too.

*Components.* A selection is right where people admit *all* of it. A prompt is refused where the
model holds any selected component for wrong, and admitted for all that are selected. With b the
probability that people reject any of these, the risk is again at most a + (1 - a) b: a refused
prompt counts as an error. Here one admitted component is witness to nothing. If people judged one
that was picked beforehand, the others might be wrong each time, and b would be 0 at a risk of 1.
One *rejected* component is a witness, of the error. So people judge the whole selection of an
audited prompt, and the first that they reject settles it. A selection of nothing is right without
a verdict.

One rule is tested, so that nothing is corrected for, and no audit serves two tests.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_clm.caching import VerdictsWanted
from sklearn_clm.calibration import (
    Claim,
    ComponentCalibrationData,
    ComponentThreshold,
    LearnThenTestResult,
    critical_count,
    prompts_needed,
    two_phase_p_value,
    two_phase_power,
    two_phase_smallest_epsilon,
)
from sklearn_clm.calibration._betting import audit_p_values, audit_power, fewest_audits
from sklearn_clm.calibration._between import middles_below
from sklearn_clm.calibration._claim import nothing_passed
from sklearn_clm.calibration._components import ComponentEntries
from sklearn_clm.calibration._data import split_of
from sklearn_clm.calibration._exit_model import ExitModel
from sklearn_clm.calibration._exit_policy import ExitEntries
from sklearn_clm.calibration._learn_then_test import AchievableEpsilon
from sklearn_clm.calibration._path import Columns
from sklearn_clm.calibration._rows import Part, RandomState
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration._set_scores import get_set_score
from sklearn_clm.calibration._table import Table
from sklearn_clm.calibration._two_phase import AuditRecord, smallest_level
from sklearn_clm.policies._asking import CollectedJudge
from sklearn_clm.policies._base import Policy
from sklearn_clm.policies._exit import ExitPolicy, LevelResult, LevelRule
from sklearn_clm.policies._judging import Judging
from sklearn_clm.policies._rules import Everything, Rule
from sklearn_clm.policies._selection import SelectionRule, labelled, threshold_of_part
from sklearn_clm.policies._thresholds import ThresholdPolicy, ThresholdRule
from sklearn_clm.scoring._admission import get_admission
from sklearn_clm.scoring._protocols import Admission

_SHAPING = 1 / 3  # of the prompts choose among thresholds of components
_ENOUGH_POWER = 0.8
_QUANTILES = (np.arange(9) + 0.5) / 9  # of the posterior of a rule's share of refusals
_N_PILOT = 50  # prompts on which `rejected` is supposed to rest

Pairs: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What people judge: which of some prompts each pair belongs to, and its place in the verdicts."""
Pairing: TypeAlias = Callable[[np.ndarray], Pairs]


class AuditedJudging(BaseEstimator, Judging):
    """A model judges everything; people, who are the standard, audit.

    The model is the estimator's `admission`. The guarantee is that a set holds a response that
    *people* admit, or that all selected components are such. Their verdicts enter the test; those
    of the model only say which rule is tested and what people are shown. The model may be wrong in
    any way: the worse it is, the less is certified. For thresholds and exit policies, without other
    losses, and for a :class:`sklearn_clm.ComponentSelector`, of which a third of the prompts then
    chooses the threshold.

    Parameters
    ----------
    people : str or callable
        Who audits: a :class:`sklearn_clm.caching.HumanJudge`, which is shown the prompts and raises
        :class:`~sklearn_clm.caching.VerdictsWanted` for all verdicts that are lacking, or any other
        admission, ``people(reference, response) -> bool``.
    n_audits : int, default=100
        How many prompts people audit, with "betting" at most; of each group where there are groups.
        The fewest that certify often certify the set of all draws alone; more give smaller sets,
        up to the number of prompts that the model admits: audits that lack one count as rejected.
        It is fixed before the labels are known: after a failure more are another test.
    design : {"auto", "two-phase", "betting", "people"}, default="auto"
        Two phases show people one response of each of `n_audits` prompts, of which the model admits
        one, or all components that are selected. "betting" does so until the verdicts certify the
        risk, or cannot: fewer verdicts on average, at less power than two phases of `n_audits`.
        With "people" the model has no part in the test: people judge the sets of `n_audits`
        prompts, and ``result_`` is that of the usual test on these, its ``audit`` None. "auto"
        takes two phases or people alone, what has more power by `rejected` and by the model's
        labels of the part that shapes.
    rejected : float, default=0.02
        Share of the prompts admitted by the model that people are expected to reject, from a
        pilot on other prompts (:func:`sklearn_clm.evaluation.plan_audits`). The choice of the rule
        and of the design rests on it, no guarantee does.

    Notes
    -----
    *Which rule is tested.* Each configuration, level, or threshold of components has an expected
    power, averaged over what the part that shapes leaves open of the share that the model refuses,
    and a pilot of 50 of `rejected`. Of all but the first rule, one more prompt counts as refused,
    since these were found as the best of many. The last, which is the cheapest, or selects most,
    whose expected power is at least .8 is tested; if there is none, the one of largest power.

    ``fit`` asks the model anew each time that people are waited for: call ``collect`` once and then
    ``calibrate``, or keep its labels by :class:`sklearn_clm.caching.CachedAdmission`.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import AuditedJudging
    >>> judging = AuditedJudging(lambda reference, response: response == reference, n_audits=60)
    >>> ConformalSampler(admission="rouge_l", judging=judging).get_params()["judging__n_audits"]
    60
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "people": [str, callable],
        "n_audits": [Interval(Integral, 1, None, closed="left")],
        "design": [StrOptions({"auto", "two-phase", "betting", "people"})],
        "rejected": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        people: str | Admission,
        *,
        n_audits: int = 100,
        design: Literal["auto", "two-phase", "betting", "people"] = "auto",
        rejected: float = 0.02,
    ) -> None:
        self.people = people
        self.n_audits = n_audits
        self.design = design
        self.rejected = rejected

    def refuse(self, level: float, delta: float) -> None:
        get_admission(self.people, "people")
        fewest = fewest_audits if self.design == "betting" else prompts_needed
        if self.n_audits < (needed := fewest(level, delta)):
            raise ValueError(
                f"n_audits must be at least {needed}, since fewer certify nothing at "
                f"epsilon={level:g}, tested at delta={delta:g}, got {self.n_audits} instead."
            )

    def refuse_policy(self, policy: Policy, k_max: int) -> None:
        # some prompts have to choose the level
        exits = isinstance(policy, ExitPolicy) and policy.guarantee == "pac"
        if not isinstance(policy, ThresholdPolicy) and not (exits and policy.path is None):
            raise ValueError(
                "policy must be one of thresholds, or a pac ExitPolicy that is not fitted yet, "
                f"where people audit, got {policy!r:.60} instead."
            )

    def split(
        self,
        data: ComponentCalibrationData,
        random_state: RandomState,
        ties: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        if data.n_prompts == 1:
            return super().split(data, random_state, ties)
        return split_of(data, _SHAPING, random_state, ties)

    def of(self, collection: Any) -> "Audit":
        return Audit(self, collection.audited_by(self.people), collection.source.seed)


class Steps(ABC):
    """Rules of which an audit tests one, the safest first.

    `what` is their name. Of the searched prompts the model refuses `refusals`, one for each step.
    """

    what: ClassVar[str]
    level: float  # tolerated risk
    part: Part
    refusals: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Quantiles of the share that the model refuses, (steps, m)."""
        n, others = len(self.part.searched), np.arange(len(self.refusals)) > 0
        # those that look best of many are refused more often elsewhere; the first is always there
        refusals = np.minimum(self.refusals + others, n)[:, np.newaxis]
        return np.asarray(betaincinv(refusals + 0.5, n - refusals + 0.5, _QUANTILES))

    @abstractmethod
    def seen_by_model(self, step: int) -> tuple[np.ndarray, Pairing]:
        """Which tested prompts the model refuses, and what it admits.

        The latter of prompts by position: people have to admit all of that."""

    @abstractmethod
    def by_people(self, step: int, part: Part, claim: Claim) -> Any:
        """The usual test of a part, judged by people."""

    @abstractmethod
    def rule(self, step: int, claim: Claim, tests: dict[str, Any], smallest: float) -> Any:
        """The rule of a step, with its claim and tests."""


class SetSteps(Steps):
    """Rules that make sets of responses."""

    def __init__(
        self, policy: Any, path: Any, table: Table, part: Part, claim: Claim, people: CollectedJudge
    ) -> None:
        self.policy, self.path, self.table, self.part = policy, path, table, part
        self.people, self.level = people, claim.level

    @abstractmethod
    def members(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Members of the tested sets, and their preference, (n, K)."""

    def only(self, step: int) -> Any:
        """A path of this step alone."""
        return self.path

    def seen_by_model(self, step: int) -> tuple[np.ndarray, Pairing]:
        rows, (members, preference) = self.part.rows, self.members(step)
        admitted = members & (self.table.labels[rows] == 1)
        order = np.argsort(-preference, axis=1, kind="stable")
        place = np.take_along_axis(admitted, order, axis=1).argmax(axis=1)
        witness = order[np.arange(len(rows)), place]

        def pairs(at: np.ndarray) -> Pairs:
            return np.arange(len(at)), rows[at], self.table.texts[rows[at], witness[at]]

        return ~admitted.any(axis=1), pairs

    def by_people(self, step: int, part: Part, claim: Claim) -> Any:
        labels = self.people.labels[:, : self.table.k_max]
        table = Table(self.table.filled().with_labels(labels), judge=self.people)
        tested = claim.tested_on(part.rows, table.data.prompts)
        return self.policy.test(self.only(step), table, part, tested)


class ThresholdSteps(SetSteps):
    """The configurations of a path, from which an audit chooses."""

    what: ClassVar[str] = "configuration"
    path: Frontier

    @cached_property
    def refusals(self) -> np.ndarray:  # type: ignore[override]
        return self._columns(self.path, self.part.searched).risks.n_errors

    @property
    def shares(self) -> np.ndarray:
        # a path from other data brings its own losses
        return super().shares if len(self.part.searched) else self.path.loss[:, np.newaxis]

    def only(self, step: int) -> Frontier:
        return self.path.ordered(np.array([step]))

    def members(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.part.rows
        return self._columns(self.only(step), rows)[0].accepted, self.table.data.quality[rows]

    def rule(self, step: int, claim: Claim, tests: dict[str, Any], smallest: float) -> Rule:
        columns = self._columns(self.only(step), self.part.rows)
        result = LearnThenTestResult(
            frontier=columns.frontier,
            n_optimization=len(self.part.searched),
            epsilon=self.level,
            smallest_epsilon=smallest,
            achievable_epsilon=AchievableEpsilon(np.nan, np.nan),
            risks=columns.risks,
            provenance=self.table.data.provenance,
            **tests,
        )
        if not claim.holds:
            return Everything(claim, self.table.k_max, result)
        return ThresholdRule.of(claim, result, columns, {})

    def _columns(self, path: Frontier, rows: np.ndarray) -> Columns:
        return Columns(self.table, rows, path, get_set_score(self.policy.set_score))


class LevelSteps(SetSteps):
    """Levels of an exit policy, from which an audit chooses."""

    what: ClassVar[str] = "exit level"
    path: ExitModel

    @cached_property
    def levels(self) -> np.ndarray:
        """From the lowest, at which all texts are returned."""
        every = self._seen.tau[self._seen.tau > -np.inf]
        if not len(every):  # of a group that was not searched
            return np.zeros(1)
        observed = np.append(self._v[self._v > -np.inf], every.min())
        return np.unique(middles_below(np.append(every, self._seen.exits), observed))

    @property
    def refusals(self) -> np.ndarray:  # type: ignore[override]
        return np.searchsorted(np.sort(self._v), self.levels, side="left")

    @cached_property
    def _seen(self) -> ExitEntries:
        return ExitEntries(self.table, self.part.searched, self.path)

    @cached_property
    def _v(self) -> np.ndarray:
        return self._seen.largest(self._seen.labels == 1)

    @cached_property
    def _tested(self) -> ExitEntries:
        return ExitEntries(self.table, self.part.rows, self.path)

    def members(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        return self._tested.tau >= self.levels[step], self._tested.tau

    def rule(self, step: int, claim: Claim, tests: dict[str, Any], smallest: float) -> Rule:
        found = LevelResult.at(
            float(self.levels[step]),
            self._tested,
            n_optimization=len(self.part.searched),
            smallest_epsilon=smallest,
            n_errors=int(tests["n_errors"][0]),
            audit=tests["audit"],
        )
        if not claim.holds:
            return Everything(claim, self.table.k_max, replace(found, level=-np.inf))
        return LevelRule.of(claim, self.path, self.table, self.part, found)


class ComponentSteps(Steps):
    """Thresholds on components, from which an audit chooses."""

    what: ClassVar[str] = "threshold"

    def __init__(
        self, data: ComponentCalibrationData, part: Part, alpha: float, people: CollectedJudge
    ) -> None:
        self.data, self.part, self.level, self.people = data, part, alpha, people
        self.thresholds, self.refusals = np.array([np.inf]), np.zeros(1, dtype=np.intp)
        if np.isin(data.prompt_index, part.searched).any():  # or else none is selected
            seen = ComponentEntries(data.take(part.searched))
            self.refusals = seen.n_at_least(seen.labels == 0)
            self.thresholds = seen.thresholds[::-1]

    def seen_by_model(self, step: int) -> tuple[np.ndarray, Pairing]:
        data, rows, of_prompt = self.data, self.part.rows, self.data.prompt_index
        selected = data.scores >= self.thresholds[step]

        def pairs(at: np.ndarray) -> Pairs:
            place = np.full(data.n_prompts, -1)
            place[rows[at]] = np.arange(len(at))
            shown = np.flatnonzero(selected & (place[of_prompt] >= 0))
            return place[of_prompt[shown]], shown, np.zeros_like(shown)

        return np.isin(rows, of_prompt[selected & (data.labels == 0)]), pairs

    def by_people(self, step: int, part: Part, claim: Claim) -> SelectionRule:
        unknown = self.data.with_labels(np.full(self.data.n_components, -1))
        said = labelled(unknown, self.people, self.level, [part])
        return threshold_of_part(said, part, claim.tested_on(part.rows, said.prompts))

    def rule(
        self, step: int, claim: Claim, tests: dict[str, Any], smallest: float
    ) -> SelectionRule:
        gamma, tested = self.thresholds[step], self.data.take(self.part.rows)
        result = ComponentThreshold(
            thresholds=np.array([gamma]),
            n_components=np.array([np.sum(tested.scores >= gamma) / tested.n_prompts]),
            alpha=self.level,
            smallest_alpha=smallest,
            achievable_alpha=(np.nan, np.nan),
            provenance=self.data.provenance,
            **tests,
        )
        return SelectionRule(claim, result.gamma_hat, result)


@dataclass(frozen=True)
class Audit(Judging):
    """An audit by people, whom `verdicts` asks."""

    audits: ClassVar[bool] = True

    judging: AuditedJudging
    verdicts: CollectedJudge
    seed: int  # of the random choice of prompts

    def test(self, policy: Policy, path: Any, table: Table, part: Part, claim: Claim) -> Any:
        steps = ThresholdSteps if isinstance(policy, ThresholdPolicy) else LevelSteps
        return self.certify(steps(policy, path, table, part, claim, self.verdicts), claim)

    def certify(self, steps: Steps, claim: Claim) -> Any:
        """Test one of the steps by people's standard."""
        try:
            return self._certified(steps, claim)
        except VerdictsWanted as error:
            # how many the groups that follow want is not known
            at_most = error.n_at_most if steps.part.group is None else None
            raise VerdictsWanted(error.wanted, at_most, error.later) from None

    def _certified(self, steps: Steps, claim: Claim) -> Any:
        part, n_prompts = steps.part, len(steps.part.rows)
        n_audits = min(self.judging.n_audits, n_prompts)
        step, design = self._chosen(steps, n_audits)
        # chosen; only now are labels of tested prompts looked at
        order = np.random.default_rng(self.seed).permutation(n_prompts)
        if self.verdicts.of_people:
            self.verdicts.forget()  # they may have changed their minds
        if design == "people":
            rows = part.rows[np.sort(order[:n_audits])]
            return self._with_words(
                steps.by_people(step, part._replace(rows=rows), claim),
                f"People judged what {n_audits} calibration prompts were given, which were drawn "
                "at random.",
            )
        refused, pairs_of = steps.seen_by_model(step)
        n_refused = int(refused.sum())
        if design == "betting":
            blocks = np.array_split(order, n_audits)
            audited, p_value, smallest = self._by_betting(steps, blocks, refused, pairs_of)
            how = f", at most {n_audits} one after the other in a random order, p = {p_value:.2g},"
        else:
            audited = order[~refused[order]][:n_audits]
            n_missed = len(self._rejected(pairs_of(audited)))
            counts = n_refused, n_prompts, n_missed, n_audits
            p_value = two_phase_p_value(*counts, steps.level)
            smallest = two_phase_smallest_epsilon(*counts, part.delta)
            how = " that were drawn at random,"
            if lacking := n_audits - len(audited):
                how += f" and {lacking} lacked one and count as rejected,"
        owner, prompts, draws = pairs_of(audited)
        said = self.verdicts.labels[prompts, draws] == 1
        n_missed = len(np.unique(owner[~said]))
        counts, passes = (n_refused, n_prompts, n_missed, n_audits), p_value <= part.delta
        tests = {
            "n_valid": int(passes),
            "position": 0 if passes else None,
            "n_errors": np.array([n_refused]),
            "p_values": np.array([p_value]),
            "exact": np.ones(1, dtype=bool),
            "n_calibration": n_prompts,
            "delta": part.delta,
            "audit": AuditRecord(*counts, part.rows[audited], prompts, draws, said),
        }
        if not passes:
            exact = design != "betting"  # or else a bound, by verdicts that were not made
            null = nothing_passed(claim, n_prompts, steps.what, smallest, exact=exact)
            claim = claim.nullified(null)
        return self._with_words(
            steps.rule(step, claim, tests, smallest),
            f"The admission refuses {n_refused} of {n_prompts} calibration prompts; of the others "
            f"people audited {len(audited)}{how} by {len(said)} verdicts on what it admits, and "
            f"rejected {n_missed}.",
        )

    def _by_betting(
        self, steps: Steps, blocks: list[np.ndarray], refused: np.ndarray, pairs_of: Pairing
    ) -> tuple[np.ndarray, float, float]:
        """Who was audited, the p-value, and the smallest risk certified."""
        level, delta = steps.level, steps.part.delta
        losses = np.array([refused[block].mean() for block in blocks])  # if none is rejected
        first = np.array([block[refused[block].argmin()] for block in blocks])
        with_one = np.flatnonzero(losses < 1.0)  # that is admitted
        done, audited = 0, with_one[:0]
        while (stop := int(np.argmax(audit_p_values(losses, level, delta) <= delta))) > done:
            done, audited = stop, with_one[with_one < stop]
            rejected = self._rejected(pairs_of(first[audited]), pairs_of(first[with_one]))
            losses[audited[rejected]] = 1.0
        p_value = float(audit_p_values(losses, level, delta)[done])
        seen = done if p_value <= delta else -1
        smallest = smallest_level(lambda one: audit_p_values(losses, one, delta)[seen] <= delta)
        return first[audited], p_value, smallest

    @staticmethod
    def _with_words(rule: Any, words: str) -> Any:
        return replace(rule, claim=replace(rule.claim.advised(words), audit=words))

    def _chosen(self, steps: Steps, n_audits: int) -> tuple[int, str]:
        """The tested step and design, from the optimisation part alone."""
        part, rejected, n_prompts = steps.part, self.judging.rejected, len(steps.part.rows)
        # many thresholds of components have equal refusals
        shares, step_of = np.unique(steps.shares, axis=0, return_inverse=True)
        of_pilot = rejected * _N_PILOT, (1.0 - rejected) * _N_PILOT
        missed = betaincinv(of_pilot[0] + 0.5, of_pilot[1] + 0.5, _QUANTILES)
        counts = n_prompts, n_audits, steps.level, part.delta
        allowed = int(critical_count(n_audits, steps.level, part.delta))
        power_of: dict[str, Callable[[float], np.ndarray]] = {
            "two-phase": lambda b: two_phase_power(shares, b, *counts),
            "people": lambda b: binom.cdf(allowed, n_audits, shares + (1.0 - shares) * b),
            "betting": lambda b: audit_power(shares, b, *counts)[0],
        }
        design = self.judging.design
        expected = {
            one: np.mean([power_of[one](b) for b in missed], axis=(0, 2))[step_of.reshape(-1)]
            for one in (("two-phase", "people") if design == "auto" else (design,))
        }
        best = np.max(list(expected.values()), axis=0)
        # the last is the cheapest; where no power is enough, the safest of the best is tested
        enough = np.flatnonzero(best >= _ENOUGH_POWER)
        step = int(enough[-1] if len(enough) else best.argmax())
        return step, max(expected, key=lambda design: expected[design][step])

    def _rejected(self, pairs: Pairs, later: Pairs | None = None) -> np.ndarray:
        """Prompts of which people reject a pair, asked at once.

        They may be asked for `later` pairs as well, by default for these alone.
        """
        labels = self.verdicts.labels
        owner, *asked = pairs
        left, now = np.zeros((2, *labels.shape), dtype=bool)
        now[*asked] = labels[*asked] < 0
        _, *others = later or pairs
        left[*others] = labels[*others] < 0
        with self.verdicts.bounding(np.arange(len(labels)), lambda: left):
            self.verdicts.ask(*np.nonzero(now))
        return np.unique(owner[labels[*asked] != 1])
