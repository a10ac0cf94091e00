"""A model judges everything, people audit a few witnesses, and the guarantee is about people.

1. On the optimisation part the path of thresholds is searched by the model's labels, and one of its
   configurations is chosen, with the design of the audit. Both are fixed before a label of the
   calibration part is looked at.
2. On the calibration part the model judges the sets of that configuration. The witness of a prompt
   is the member of highest quality among those that it admits.
3. *Two phases*: n prompts with a witness are drawn at random, and people judge the witness.
   :func:`~sklearn_clm.calibration.two_phase_p_value` tests the risk by their standard.
   *People alone*: n prompts are drawn at random, and people judge members of their sets until the
   exact binomial test is decided.

One configuration is tested, so that nothing is corrected for, and no audit serves two tests.
"""

from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_clm.calibration import (
    Claim,
    LearnThenTestResult,
    critical_count,
    prompts_needed,
    two_phase_p_value,
    two_phase_power,
    two_phase_smallest_epsilon,
)
from sklearn_clm.calibration._claim import nothing_passed
from sklearn_clm.calibration._learn_then_test import AchievableEpsilon, certify_frontier
from sklearn_clm.calibration._path import Columns
from sklearn_clm.calibration._rows import Part
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration._set_scores import SetScore, get_set_score
from sklearn_clm.calibration._table import Table
from sklearn_clm.calibration._tests import AdmissionTest
from sklearn_clm.policies._base import Terms
from sklearn_clm.policies._rules import Certified, Everything
from sklearn_clm.policies._thresholds import ThresholdPolicy, ThresholdRule
from sklearn_clm.policies._verdicts import Verdicts, bounding
from sklearn_clm.scoring._admission import get_admission
from sklearn_clm.scoring._protocols import Admission

_ENOUGH_POWER = 0.8
_N_QUANTILES = 9  # of the posterior of a configuration's share of refusals


class AuditedJudging(BaseEstimator):
    """The sampler's admission, a model, judges all draws; people audit some, and are the standard.

    The guarantee is that a set holds a response that *people* admit. Their verdicts enter the test;
    those of the model only say which rule is tested and which responses people are shown. The model
    may be wrong in any way: the worse it is, the less is certified. For thresholds, without other
    losses.

    Parameters
    ----------
    people : str or callable
        Who audits: a :class:`sklearn_clm.caching.HumanJudge`, which is shown the prompts and raises
        :class:`~sklearn_clm.caching.VerdictsWanted` for all verdicts that are lacking, or any other
        admission, ``people(reference, response) -> bool``.
    n_audits : int, default=100
        How many prompts people audit, of each group where there are groups. It is fixed before the
        labels are known: more audits after a failure are another test on the same prompts.
    design : {"auto", "two-phase", "people"}, default="auto"
        Two phases show people one response of each of `n_audits` prompts, of which the model admits
        one. With "people" the model has no part in the test: people judge the sets of `n_audits`
        prompts, several responses of some. "auto" takes what has more power by `rejected` and by
        the model's labels of the optimisation part; the more lenient the model, the sooner people
        alone are better.
    rejected : float, default=0.02
        Share of the responses admitted by the model that people are expected to reject, from a
        pilot on other prompts (:func:`sklearn_clm.evaluation.plan_audits`). The choice of the rule
        and of the design rests on it, no guarantee does.

    Notes
    -----
    *Which rule is tested.* Each configuration of the path has an expected power: that of the test
    at `rejected` and at its share of prompts that the model refuses, averaged over the posterior
    (uniform prior) of that share given the optimisation part. The last configuration, the cheapest,
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
        "design": [StrOptions({"auto", "two-phase", "people"})],
        "rejected": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        people: str | Admission,
        *,
        n_audits: int = 100,
        design: Literal["auto", "two-phase", "people"] = "auto",
        rejected: float = 0.02,
    ) -> None:
        self.people = people
        self.n_audits = n_audits
        self.design = design
        self.rejected = rejected

    def refuse(self, epsilon: float, delta: float) -> None:
        """Refuse an unknown judge, and too few audits, before draws are paid for."""
        get_admission(self.people)
        if self.n_audits < (needed := prompts_needed(epsilon, delta)):
            raise ValueError(
                f"n_audits must be at least {needed}, since fewer certify nothing at "
                f"epsilon={epsilon:g}, delta={delta:g}, got {self.n_audits} instead."
            )


@dataclass(frozen=True)
class AuditResult(LearnThenTestResult):
    """What two phases found; `n_errors` are the prompts that the model refuses.

    Of the audited prompts, `rows`, people judged one draw each and rejected `n_missed`.
    """

    n_missed: int = 0
    rows: np.ndarray = field(default_factory=lambda: np.arange(0), repr=False)
    draws: np.ndarray = field(default_factory=lambda: np.arange(0), repr=False)
    verdicts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool), repr=False)


@dataclass(frozen=True)
class Audit:
    """An audit by people, whom `verdicts` asks; `seed` is that of the random choice of prompts."""

    judging: AuditedJudging
    verdicts: Verdicts
    seed: int

    def test(
        self,
        policy: ThresholdPolicy,
        path: Frontier,
        table: Table,
        part: Part,
        terms: Terms,
        claim: Claim,
    ) -> Certified:
        """Test one configuration of a path by people's standard."""
        score = get_set_score(policy.set_score)
        step, design = self._chosen(path, table, part, terms, score)
        chosen = path.ordered(np.array([step]))
        if self.verdicts.of_people:
            self.verdicts.forget()  # they may have changed their minds
        labels = self.verdicts.labels[:, : table.k_max]
        by_people = Table(table.filled().with_labels(labels), judge=self.verdicts)
        if design == "people":
            n_audits = self._n_audits(part)
            rows = np.sort(part.rows[self._order(table, part.rows)[:n_audits]])
            columns = Columns(by_people, rows, chosen, score)
            test = AdmissionTest(columns, terms.epsilon, part.delta)
            weights = policy.weights
            with bounding(self.verdicts, rows, test.may_ask):
                result = certify_frontier(columns, test, weights=weights, select="last")
            audit = (
                f"People judged responses to {n_audits} calibration prompts that were drawn at "
                "random."
            )
        else:
            columns = Columns(table, part.rows, chosen, score)
            result, audit = self._two_phases(columns, by_people, part, terms)
        result = replace(result, n_optimization=len(part.searched))
        if result.lambda_hat is None or result.k_max_hat is None:
            why = nothing_passed(
                claim,
                len(part.rows),
                "configuration",
                result.smallest_epsilon,
                exact=result.n_judgements is None,
                advice=audit,
            )
            return Certified(Everything(terms.budgets[-1], result), claim.nullified(why))
        rule = ThresholdRule(result.lambda_hat, result.k_max_hat, result)
        return Certified(rule, replace(claim, audit=audit))

    def _chosen(
        self, path: Frontier, table: Table, part: Part, terms: Terms, score: SetScore
    ) -> tuple[int, str]:
        """The configuration that is tested, and the design, from the optimisation part alone."""
        n_seen, n_audits = len(part.searched), self._n_audits(part)
        if n_seen:
            refused = Columns(table, part.searched, path, score).risks.n_errors[:, np.newaxis]
            at = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
            shares = betaincinv(refused + 1.0, n_seen - refused + 1.0, at)
        else:
            shares = path.loss[:, np.newaxis]
        rejected, n_prompts = self.judging.rejected, len(part.rows)
        allowed = int(critical_count(n_audits, terms.epsilon, part.delta))
        powers = {
            "two-phase": two_phase_power(
                shares, rejected, n_prompts, n_audits, terms.epsilon, part.delta
            ),
            "people": binom.cdf(allowed, n_audits, shares + (1.0 - shares) * rejected),
        }
        if self.judging.design != "auto":
            powers = {self.judging.design: powers[self.judging.design]}
        expected = {design: power.mean(axis=1) for design, power in powers.items()}
        best = np.max(list(expected.values()), axis=0)
        # the last is the cheapest
        step = int(np.flatnonzero(best >= min(_ENOUGH_POWER, best.max()))[-1])
        return step, max(expected, key=lambda design: expected[design][step])

    def _n_audits(self, part: Part) -> int:
        return min(self.judging.n_audits, len(part.rows))

    def _order(self, table: Table, rows: np.ndarray) -> np.ndarray:
        """A random order of the prompts at `rows`, the same however they were given."""
        digests = table.data.prompts
        first = (
            np.arange(len(rows)) if digests is None else np.argsort(digests[rows], kind="stable")
        )
        return np.asarray(first[np.random.default_rng(self.seed).permutation(len(rows))])

    def _two_phases(
        self, columns: Columns, by_people: Table, part: Part, terms: Terms
    ) -> tuple[LearnThenTestResult, str]:
        n_prompts, n_audits = len(part.rows), self._n_audits(part)
        table, chosen = columns.table, columns.frontier
        admitted = columns[0].accepted & (table.labels[part.rows] == 1)
        by_quality = np.argsort(-table.data.quality[part.rows], axis=1, kind="stable")
        place = np.take_along_axis(admitted, by_quality, axis=1).argmax(axis=1)
        witness = by_quality[np.arange(n_prompts), place]
        order = self._order(table, part.rows)
        audited = order[admitted.any(axis=1)[order]][:n_audits]
        rows, draws = part.rows[audited], witness[audited]
        unknown = by_people.labels_at(rows, draws) < 0

        def left() -> np.ndarray:
            texts = np.zeros((len(rows), table.k_max), dtype=bool)
            texts[np.arange(len(rows)), table.texts[rows, draws]] = unknown
            return texts

        with bounding(self.verdicts, rows, left):
            if unknown.any():
                by_people.ask(rows[unknown], draws[unknown])
        verdicts = by_people.labels_at(rows, draws) == 1
        counts = int(columns.risks.n_errors[0]), n_prompts, int(np.sum(~verdicts)), n_audits
        p_value = two_phase_p_value(*counts, terms.epsilon)
        passes = p_value <= part.delta
        result = AuditResult(
            frontier=chosen,
            n_valid=int(passes),
            position=0 if passes else None,
            n_errors=columns.risks.n_errors,
            p_values=np.array([p_value]),
            exact=np.ones(1, dtype=bool),
            n_optimization=0,
            n_calibration=n_prompts,
            epsilon=terms.epsilon,
            delta=part.delta,
            smallest_epsilon=two_phase_smallest_epsilon(*counts, part.delta),
            achievable_epsilon=AchievableEpsilon(np.nan, np.nan),
            risks=columns.risks,
            provenance=table.data.provenance,
            n_missed=counts[2],
            rows=rows,
            draws=draws,
            verdicts=verdicts,
        )
        return result, (
            f"The admission refuses {counts[0]} of {n_prompts} calibration prompts; of the others "
            f"people judged {len(rows)} that were drawn at random, by one response that it admits, "
            f"and rejected {counts[2]}."
        )
