"""A model judges, people audit, the guarantee is about people.

1. The part that shapes (the optimisation part; of components a third of the prompts) chooses one
   rule by the model's labels, and the design of the audit. Both are fixed before a label of the
   prompts that calibrate is looked at.
2. On these the model judges what the rule gives, and *refuses* some prompts. The others are
   *admitted*.
3. *Two phases*: n admitted prompts are drawn at random, and people judge what they were admitted
   for (``calibration/_two_phase.py``). *Betting*: one after the other, until the risk is certified
   or out of reach (``calibration/betting.py``). *People alone*: n prompts are drawn at random, and
   the usual test is made on these, with people for its judge.

*Responses.* A prompt is refused where the model admits no member of its set, and admitted for one
of those that it admits, the witness: that of highest quality, or that on which an exit policy
relies most. If people admit the witness, the set holds a response that they admit. With a the
probability of refusal and b that of a rejected witness the risk is therefore at most
a + (1 - a) b. A level of an exit policy is such a rule, too.

*Components.* A selection is right where people admit *all* of it (or, with ``max_wrong=m``, all but
m: then read "more than m" for "any" below). A prompt is refused where the
model holds any selected component for wrong, and admitted for all that are selected. With b the
probability that people reject any of these, the risk is again at most a + (1 - a) b: a refused
prompt counts as an error. Here one admitted component is witness to nothing. If people judged one
that was picked beforehand, the others might be wrong each time, and b would be 0 at a risk of 1.
One *rejected* component is a witness, of the error. So people judge the whole selection of an
audited prompt, and the first that they reject settles it. A selection of nothing is right without
a verdict.

One rule is tested, so that nothing is corrected for, and no audit serves two tests.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_clm.caching import VerdictsWanted
from sklearn_clm.calibration import (
    Claim,
    ComponentCalibrationData,
    critical_count,
    prompts_needed,
    two_phase_power,
)
from sklearn_clm.calibration._two_phase import AuditRecord
from sklearn_clm.calibration.betting import audit_power, fewest_audits
from sklearn_clm.calibration.claim import nothing_passed
from sklearn_clm.calibration.data import split_of
from sklearn_clm.calibration.outcome import Audited
from sklearn_clm.calibration.path import Path
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.calibration.rows import Part, RandomState, random_stream
from sklearn_clm.calibration.tests import (
    AuditBettingTest,
    TwoPhaseTest,
    counts_at,
    errors_at,
    n_counted_at,
)
from sklearn_clm.policies._asking import CollectedDraws, CollectedJudge
from sklearn_clm.policies.base import Policy
from sklearn_clm.policies.judging import Auditable, Judging, LearntT, PathT, TableT
from sklearn_clm.policies.rules import Rule
from sklearn_clm.scoring.admission import get_admission
from sklearn_clm.scoring.protocols import Admission

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
    any way: the worse it is, the less is certified. For every policy with ``guarantee="pac"``, but
    for answers by a vote or by quality, without other losses, and for a
    :class:`sklearn_clm.ComponentSelector`, of which a third of the prompts then chooses the
    threshold.

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

    people: str | Admission
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
                f"level {level:g}, tested at delta={delta:g}, got {self.n_audits} instead."
            )

    def refuse_policy(self, policy: Policy[Any, Any, Any], k_max: int) -> None:
        # people are shown one witness of a prompt, or all members of its set
        if policy.risk.settled_by == 1 and policy.risk.n_settling > 1:
            raise ValueError(
                "policy must have a risk of which one witness decides where people audit, got "
                f"{type(policy.risk).__name__} instead."
            )
        # some prompts have to choose the step
        if policy.guarantee != "pac" or not policy.tells_losses:
            raise ValueError(
                "policy must have guarantee='pac' and expect what each step errs (tells_losses) "
                "where people audit, such as an ExitPolicy that is not fitted yet or an "
                f"AnswerPolicy with score='learnt', got {policy!r:.60} instead."
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

    def for_collection(self, collection: CollectedDraws) -> "Audit":
        verdicts = collection.audited_by(self.people)
        return Audit(self, verdicts, collection.seed, collection.data.digests)


@dataclass(frozen=True)
class _TestedStep:
    """The step that is tested, and its audit."""

    policy: Auditable[Any, Any, Any]
    path: Path
    step: int
    part: Part
    claim: Claim
    order: np.ndarray  # positions of the prompts that count, in a random order
    n_audits: int  # how many of these people audit, at most


class _Finding(NamedTuple):
    """What an audit found by a model and people."""

    audited: np.ndarray  # positions of the prompts that people audited
    p_value: float
    smallest_level: float  # level at which it certifies
    how: str  # how the audited prompts were taken, in words


class Audit(Judging):
    """An audit by people, whom `verdicts` asks.

    `seed`, and the `digests` of all prompts, make the random choice of prompts.
    """

    audits: ClassVar[bool] = True

    def __init__(
        self, judging: AuditedJudging, verdicts: CollectedJudge, seed: int, digests: np.ndarray
    ) -> None:
        self.judging = judging
        self.verdicts = verdicts
        self.seed = seed
        self.digests = digests

    def rule_for(
        self,
        policy: Auditable[LearntT, TableT, PathT],
        learnt: LearntT,
        table: TableT,
        part: Part,
        claim: Claim,
    ) -> Rule:
        """Test one step of a policy by people's standard."""
        shaping = policy.path_on(learnt, table, part, part.searched).laid_out()
        step, design = self._chosen(shaping, policy.risk, part, claim)

        # chosen; only now are labels of tested prompts looked at
        path = shaping.on(part.rows)
        is_counted = counts_at(path, policy.risk, step)
        # drawn without regard to verdicts: step 2 of the proof in `_two_phase.py`
        shuffled = random_stream(self.digests[part.rows], self.seed).permutation(len(part.rows))
        order = shuffled[is_counted[shuffled]]
        if self.verdicts.of_people:
            self.verdicts.forget()  # they may have changed their minds

        # a group may have fewer prompts than are to be audited
        n_audits = min(self.judging.n_audits, len(order))
        tested = _TestedStep(policy, path, step, part, claim, order, n_audits)
        try:
            if design == "people":
                return self._by_people_alone(tested)
            return self._by_model_and_people(tested, design)
        except VerdictsWanted as error:
            # of groups, nobody knows how many verdicts those that follow will want
            at_most = error.n_at_most if part.group is None else None
            raise VerdictsWanted(error.wanted, at_most, error.later) from None

    def _by_people_alone(self, tested: _TestedStep) -> Rule:
        """The usual test of a step, on random prompts."""
        rows = tested.part.rows[np.sort(tested.order[: tested.n_audits])]
        audited_part = tested.part._replace(rows=rows)
        return self._with_words(
            tested.policy.by_people(
                self.verdicts, tested.path, tested.step, audited_part, tested.claim
            ),
            f"People judged what {tested.n_audits} calibration prompts were given, which were "
            "drawn at random.",
        )

    def _by_model_and_people(self, tested: _TestedStep, design: str) -> Rule:
        """The test of a step by two phases or betting."""
        risk = tested.policy.risk
        claim = tested.claim
        n_prompts = len(tested.order)
        refused, pairs_of = seen_by_model(tested.path, tested.step, risk)
        n_refused = int(refused[tested.order].sum())
        audited_by = self._by_betting if design == "betting" else self._in_two_phases
        finding = audited_by(tested, refused, pairs_of)

        # what people were shown, and said
        owner, prompts, draws = pairs_of(finding.audited)
        verdicts = self.verdicts.labels[prompts, draws] == 1
        n_missed = len(_rejected_of(risk, owner[~verdicts]))
        record = AuditRecord(
            n_refused=n_refused,
            n_prompts=n_prompts,
            n_missed=n_missed,
            n_planned=tested.n_audits,
            rows=tested.part.rows[finding.audited],
            prompts=prompts,
            draws=draws,
            verdicts=verdicts,
        )
        if finding.p_value > claim.delta:
            exact = design != "betting"  # or else a bound, by verdicts that were not made
            what = tested.path.what
            null = nothing_passed(claim, n_prompts, what, finding.smallest_level, exact=exact)
            claim = claim.nullified(null)
        n_searched = len(tested.part.searched)
        audit = Audited(record, finding.p_value, claim.delta, finding.smallest_level, n_searched)
        return self._with_words(
            tested.policy.audited(tested.path, tested.step, audit, claim, tested.part),
            f"The admission refuses {n_refused} of {n_prompts} calibration prompts; of the others "
            f"people audited {len(finding.audited)}{finding.how} by {len(verdicts)} verdicts on "
            f"what it admits, and rejected {n_missed}.",
        )

    def _in_two_phases(
        self, tested: _TestedStep, refused: np.ndarray, pairs_of: Pairing
    ) -> _Finding:
        """People audit a fixed number of admitted prompts."""
        n_audits = tested.n_audits
        claim = tested.claim
        n_refused = int(refused[tested.order].sum())
        audited = tested.order[~refused[tested.order]][:n_audits]
        n_missed = len(self._rejected(tested.policy.risk, pairs_of(audited)))
        test = TwoPhaseTest(
            n_refused, len(tested.order), n_missed, n_audits, claim.level, claim.delta
        )
        how = " that were drawn at random,"
        if lacking := n_audits - len(audited):
            how += f" and {lacking} lacked one and count as rejected,"
        return _Finding(audited, test.p_value, test.smallest_level, how)

    def _by_betting(self, tested: _TestedStep, refused: np.ndarray, pairs_of: Pairing) -> _Finding:
        """People audit one admitted prompt of each block, in turn."""
        claim = tested.claim
        blocks = np.array_split(tested.order, tested.n_audits)
        losses = np.array([refused[block].mean() for block in blocks])
        # people are shown one admitted prompt of each block, in which there is any: the first
        shown_of = np.array([block[refused[block].argmin()] for block in blocks])
        can_be_audited = np.flatnonzero(losses < 1.0)
        may_be_wanted = pairs_of(shown_of[can_be_audited])
        test = AuditBettingTest(losses, claim.level, claim.delta)
        n_blocks = 0
        audited = can_be_audited[:0]
        # all verdicts that certify if none is a rejection are asked for at once; each rejection
        # moves the end away, and where it can no longer be reached nobody is asked again
        while (needed := test.blocks_needed()) > n_blocks:
            n_blocks = needed
            audited = can_be_audited[can_be_audited < n_blocks]
            wanted_now = pairs_of(shown_of[audited])
            rejected = self._rejected(tested.policy.risk, wanted_now, may_be_wanted)
            test.reject(audited[rejected])
        p_value = test.p_value(n_blocks)
        # after a failure it is a bound: witnesses that nobody was asked about count as admitted
        smallest = test.smallest_level(n_blocks if p_value <= claim.delta else -1)
        how = (
            f", at most {tested.n_audits} one after the other in a random order, p = {p_value:.2g},"
        )
        return _Finding(shown_of[audited], p_value, smallest, how)

    @staticmethod
    def _with_words(rule: Rule, words: str) -> Rule:
        claim = replace(rule.claim.advised(words), audit=words)
        return rule.having(claim=claim)

    def _chosen(self, path: Path, risk: Risk, part: Part, claim: Claim) -> tuple[int, str]:
        """The tested step and design, from other prompts alone."""
        designs = [self.judging.design]
        if self.judging.design == "auto":
            designs = ["two-phase", "people"]

        # power is dear to compute: of steps with equal numbers, as many thresholds of components
        # have, it is computed once
        shares_refused, n_prompts_of_step = _expected_refusals(path, risk, len(part.rows))
        of_steps = np.column_stack((n_prompts_of_step, shares_refused))
        cases, case_of_step = np.unique(of_steps, axis=0, return_inverse=True)
        case_of_step = case_of_step.reshape(-1)
        n_prompts_of_case = cases[:, 0]
        shares_of_case = cases[:, 1:]
        power_of: dict[str, np.ndarray] = {}
        for design in designs:
            power_of_case = np.empty(len(cases))
            for n_prompts in np.unique(n_prompts_of_case).astype(int):
                same = n_prompts_of_case == n_prompts
                shares = shares_of_case[same]
                power_of_case[same] = self._power(design, shares, n_prompts, claim)
            power_of[design] = power_of_case[case_of_step]

        # steps go from the safest to the cheapest: the last of enough power is tested, or else the
        # first of the greatest
        best_power = np.max(list(power_of.values()), axis=0)
        enough = np.flatnonzero(best_power >= _ENOUGH_POWER)
        step = int(enough[-1] if len(enough) else best_power.argmax())
        return step, max(power_of, key=lambda design: power_of[design][step])

    def _power(self, design: str, shares: np.ndarray, n_prompts: int, claim: Claim) -> np.ndarray:
        """Expected power of a design, for each row of shares.

        The columns of `shares`, (rows, q), are quantiles of the share that the model refuses.
        """
        epsilon = claim.level
        delta = claim.delta
        n_audits = min(self.judging.n_audits, n_prompts)
        if not n_audits:
            return np.zeros(len(shares))

        # what a pilot leaves open of the share that people reject (Jeffreys' prior)
        rejected = self.judging.rejected
        n_rejected = rejected * _N_PILOT
        n_admitted = (1.0 - rejected) * _N_PILOT
        shares_rejected = betaincinv(n_rejected + 0.5, n_admitted + 0.5, _QUANTILES)

        n_allowed = int(critical_count(n_audits, epsilon, delta))
        powers = []
        for b in shares_rejected:
            if design == "two-phase":
                power = two_phase_power(shares, b, n_prompts, n_audits, epsilon, delta)
            elif design == "betting":
                power, _ = audit_power(shares, b, n_prompts, n_audits, epsilon, delta)
            else:
                # people alone: the set errs where the model refuses it, or admits and is wrong
                risk = shares + (1.0 - shares) * b
                power = binom.cdf(n_allowed, n_audits, risk)
            powers.append(power)
        # the mean over both unknown shares: (quantiles of b, rows, quantiles of a)
        return np.asarray(np.mean(powers, axis=(0, 2)))

    def _rejected(self, risk: Risk, pairs: Pairs, later: Pairs | None = None) -> np.ndarray:
        """Prompts of which people reject a pair, asked at once.

        People may be asked for `later` pairs as well, by default for these alone.
        """
        labels = self.verdicts.labels
        owner, prompts, draws = pairs
        # as a table, so that a pair that two prompts share is asked about once
        wanted_now = np.zeros(labels.shape, dtype=bool)
        wanted_now[prompts, draws] = labels[prompts, draws] < 0
        _, later_prompts, later_draws = pairs if later is None else later
        may_be_wanted = np.zeros(labels.shape, dtype=bool)
        may_be_wanted[later_prompts, later_draws] = labels[later_prompts, later_draws] < 0
        unknown_prompts, unknown_draws = np.nonzero(wanted_now)
        # people are told how many verdicts this audit can still want
        with self.verdicts.bounding(np.arange(len(labels)), lambda: may_be_wanted):
            self.verdicts.ask(unknown_prompts, unknown_draws)
        is_rejected = labels[prompts, draws] != 1
        return _rejected_of(risk, owner[is_rejected])


def _rejected_of(risk: Risk, owner: np.ndarray) -> np.ndarray:
    """Prompts of which people reject more than is tolerated."""
    prompts, counts = np.unique(owner, return_counts=True)
    return prompts[counts >= risk.n_settling]


def _expected_refusals(path: Path, risk: Risk, n_tested: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares that the model refuses, and how many prompts count.

    For each step, quantiles of the former, (steps, q), and the latter of the tested prompts.
    """
    n_steps = len(path)
    if not len(path.rows):
        # a path from other data brings its own losses; a group that was not searched has none
        losses = path.expected_losses()
        if losses is not None:
            shares = losses[:, np.newaxis]
        else:
            shares = betaincinv(0.5, 0.5, np.tile(_QUANTILES, (n_steps, 1)))
        return shares, np.full(n_steps, n_tested)

    tally = path.tally(risk)
    if tally is None:
        n_errors = np.zeros(n_steps, dtype=np.intp)
        n_counted = np.zeros(n_steps, dtype=np.intp)
        for step in range(n_steps):
            # the most errors, since what is still open may be refused
            _, n_errors[step] = errors_at(path, risk, step)
            n_counted[step] = n_counted_at(path, risk, step)
    else:
        n_errors, n_counted = tally

    # those that look best of many are refused more often elsewhere; the first is always there
    was_chosen = np.arange(n_steps) > 0
    n_refused = np.minimum(n_errors + was_chosen, n_counted)[:, np.newaxis]
    n_admitted = n_counted[:, np.newaxis] - n_refused
    # what these prompts leave open of the share (Jeffreys' prior)
    shares = np.asarray(betaincinv(n_refused + 0.5, n_admitted + 0.5, _QUANTILES))
    share_counted = n_counted / len(path.rows)
    return shares, np.round(share_counted * n_tested).astype(np.intp)


def seen_by_model(path: Path, step: int, risk: Risk) -> tuple[np.ndarray, Pairing]:
    """Prompts that the model refuses, and what people are shown.

    The second is a function: of some other prompts, by position, it gives the pairs that people
    have to admit, which are the witness of each, or its whole selection.
    """
    members = path.members(step).for_risk(risk)
    rows, draws = members.places
    if risk.settled_by == 1:
        witnesses = members.heads(members.labels == 1)

        def witness_of(prompts: np.ndarray) -> Pairs:
            entries = witnesses[prompts]
            return np.arange(len(prompts)), rows[entries], draws[entries]

        return witnesses < 0, witness_of

    def all_of(prompts: np.ndarray) -> Pairs:
        place_of_prompt = np.full(members.n_prompts, -1)
        place_of_prompt[prompts] = np.arange(len(prompts))
        place_of_entry = place_of_prompt[members.owner]
        entries = np.flatnonzero(place_of_entry >= 0)
        return place_of_entry[entries], rows[entries], draws[entries]

    # V is finite where the model holds more than the tolerated number of members for wrong
    refused = members.deciding(members.labels == 0) > -np.inf
    return refused, all_of
