"""The base of policies: search on one part, test another."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import ClassVar, Generic, Literal, Protocol, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.calibration import CalibrationData, Claim, smallest_epsilon
from sklearn_clm.calibration.band import AchievableEpsilon
from sklearn_clm.calibration.claim import Promise, nothing_passed
from sklearn_clm.calibration.data import refuse_common_prompts, split_of
from sklearn_clm.calibration.outcome import Audited, Outcome, SafestStep
from sklearn_clm.calibration.path import TablePath
from sklearn_clm.calibration.risk import MISSES, Risk, check_counts
from sklearn_clm.calibration.rows import Part, RandomState
from sklearn_clm.calibration.set_scores import SetScoreLike
from sklearn_clm.calibration.surface import Weights
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tests import BettingTest, BinomialTest, Test, count_steps, counts_at
from sklearn_clm.calibration.words import ErrorCount
from sklearn_clm.policies._asking import CollectedJudge, bounding
from sklearn_clm.policies.judging import Judging
from sklearn_clm.policies.rules import (
    Everything,
    Rule,
    Rules,
    SetCounts,
    SetRule,
    rules_of_parts,
    shares_of_draws,
)

LearntT = TypeVar("LearntT")  # what the search returns
PathT = TypeVar("PathT", bound=TablePath)  # what is tested of it
TestT = TypeVar("TestT", bound=Test)


class Learnt(Protocol):
    """What was learnt on other data."""

    @property
    def tells_losses(self) -> bool:
        """Whether it says what each step is expected to err."""

    @property
    def k_max(self) -> int | np.ndarray:
        """Number of draws, or numbers of each step."""

    @property
    def seen(self) -> np.ndarray | None:
        """Digests of the prompts that taught, if known."""


class Policy(BaseEstimator, ABC, Generic[LearntT, PathT, TestT]):
    """When sampling stops, and what is returned.

    A policy writes what stands first, and may override what follows (``CONTRIBUTING.md``, "How to
    add a policy"); what asks for it stands last.
    """

    # --- every policy writes these --------------------------------------------------------------

    rule: ClassVar[type[Rule]]  # the class of rule that calibration returns
    guarantee: Literal["pac", "marginal"]
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {}

    @abstractmethod
    def search(self, table: Table, rows: np.ndarray, claim: Claim, judging: Judging) -> LearntT:
        """Search, or learn, on the optimisation prompts at `rows`."""

    @abstractmethod
    def path_on(self, learnt: LearntT, table: Table, part: Part, rows: np.ndarray) -> PathT:
        """What is tested on a part, on some prompts.

        `rows` are those of `part` where it is tested, and `part.searched` where an audit chooses
        the step that people test.
        """

    @abstractmethod
    def learnt_of(self, path: PathT) -> LearntT:
        """What :meth:`path_on` makes a path of."""

    @abstractmethod
    def rule_at(self, path: PathT, outcome: Outcome, claim: Claim) -> SetRule:
        """The rule of a path that is one certified step."""

    # --- it may override these ------------------------------------------------------------------

    risk: Risk = MISSES  # what is an error, and who counts
    # whose draws may end early: of no prompt, of each prompt by its own draws, or whatever ended
    # them
    early_ends: Literal["none", "own", "any"] = "none"
    set_score: SetScoreLike = "max"  # the score of a set that predict reports
    _learnt_as: ClassVar[str] = ""  # name of the attribute that holds what other data taught

    @property
    def weights(self) -> Weights:
        """Prices of size, excess and draws in ``score``."""
        return {"size_weight": 0.5, "excess_weight": 0.5, "draw_weight": 0.0}

    @property
    def described(self) -> dict[str, object]:
        """Values that a file must agree with; None is any."""
        return {"policy": self.rule.kind}

    def promise(self, epsilon: float) -> Promise:
        """Fields of a claim that depend on the policy."""
        return {"level": epsilon, "guarantee": self.guarantee, "about": self.risk.about}

    @property
    def learns(self) -> bool:
        """Whether prompts of the data shape what others test."""
        return self.learnt is None

    @property
    def tells_losses(self) -> bool:
        """Whether errors of steps are expected before a test."""
        return self.learns or (self.learnt is not None and self.learnt.tells_losses)

    def searched_share(self, n_prompts: int) -> float:
        """Default share of `n_prompts` prompts for the optimisation part."""
        return 1 / 3

    def refuse(self, k_max: int | Sequence[int], judging: str | Judging = "all") -> None:
        """Refuse contradicting parameters before draws are paid for."""
        # the test would notice it as well, once all draws are paid for
        if judging != "all":
            check_counts(self.risk, int(np.max(k_max)))
        # costs are summed over all labels; lazy tests stop at witnesses
        if self.risk.has_costs:
            self._refuse_unknown_labels(judging)
        if np.size(k_max) > 1:
            raise ValueError(
                f"k_max must be one integer with {type(self).__name__}, got {k_max!r} instead."
            )
        if self.learnt is not None and np.max(self.learnt.k_max) != np.max(k_max):
            raise ValueError(
                f"policy must be fitted with k_max={np.max(k_max)} draws, got one fitted with "
                f"{self.learnt.k_max} instead."
            )

    def _refuse_unknown_labels(self, judging: str | Judging) -> None:
        if judging != "all":
            raise ValueError(
                f"judging must be 'all' {self.risk.where}, got {judging!r:.60} instead."
            )

    def texts(self, table: Table, rows: np.ndarray) -> np.ndarray:
        """For each draw, the first draw with the same text."""
        return table.texts[rows]

    def test_of(self, path: PathT, claim: Claim) -> TestT:
        """The test of `risk`: by default the exact binomial."""
        # where it is another one, this is overridden, and `certify` as well
        return cast(TestT, BinomialTest(path, self.risk, claim.level, claim.delta))

    def other_tests(self, path: PathT, claim: Claim) -> list[BettingTest]:
        """Tests of other losses, which must pass as well."""
        return []

    def certify(
        self, path: PathT, test: TestT, other_tests: list[BettingTest], part: Part
    ) -> Outcome:
        """Choose the last step that passes a fixed sequence."""
        if not isinstance(test, BinomialTest):
            raise TypeError(
                f"{type(self).__name__}.certify must be overridden where test_of is, unless it "
                f"gives a BinomialTest, got a {type(test).__name__} instead."
            )
        # witnesses in the small sets of late steps settle most of the steps before
        start = test.likely_last() if path.table.is_lazy else 0
        n_passed = count_steps(path, [test, *other_tests], start)
        step = max(n_passed - 1, 0)
        if n_passed:
            # a decided test leaves stops open, which sizes and shares of draws are about
            path.finish(step)

        # the level at which the safest step passes; where not all count, another step might pass
        safest = None
        smallest = np.nan
        fewest, most = test.errors(0)
        if self.risk.counts_all and fewest == most:
            safest = SafestStep(most, f"the first {path.what} that is tested")
            smallest = float(smallest_epsilon(most, len(path.rows), test.delta))
        return Outcome.at(
            path,
            self.risk,
            step,
            passed=n_passed > 0,
            n_errors_allowed=test.n_allowed(step),
            safest=safest,
            smallest_level=smallest,
        )

    def advice(self, path: PathT, outcome: Outcome, claim: Claim) -> str:
        """What to say where no step has passed."""
        return ""

    # --- these ask for them ---------------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        # a policy that was fitted on other data stays fitted, like a frozen estimator
        copy: Self = super().__sklearn_clone__()
        if self._learnt_as in vars(self):
            setattr(copy, self._learnt_as, self.learnt)
        return copy

    @property
    def learnt(self) -> Learnt | None:
        """What was learnt on other data, if anything."""
        return getattr(self, self._learnt_as, None)

    def split(
        self,
        data: CalibrationData,
        fraction: float | str,
        random_state: RandomState,
        ties: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Prompts that search the path, and prompts that test it.

        Both are in the order of the data's digests, rows of one prompt in that of `ties`.
        """
        n = data.n_prompts
        # a path from other data leaves all prompts to test it; of a single one nothing is learnt
        if not self.learns or n == 1:
            return np.arange(0), data.order(ties)
        share = self.searched_share(n) if isinstance(fraction, str) else fraction
        return split_of(data, share, random_state, ties)

    def calibrate(self, table: Table, parts: list[Part], claim: Claim, judging: Judging) -> Rules:
        """Search on one part of the prompts, test another.

        `parts` are the groups, where there are any, and at last all prompts, of whom `claim` is
        promised where a test passes. With groups, all prompts together are tested for comparison,
        if that asks for no verdict. Nothing is certified for a group with too few prompts, nor for
        any group where the calibration part as a whole is too small.
        """
        all_prompts = parts[-1]
        if table.has_holes:
            self._refuse_early_ends(table.data, all_prompts.searched, claim, judging)
        # people who are asked for verdicts are told how many more may follow: as long as there are
        # tests to come, those on all texts
        unjudged = partial(self._unjudged, table, all_prompts.rows)
        announcing_all = partial(bounding, table.judge, all_prompts.rows, unjudged)

        # search, unless a path was learnt from other prompts
        learnt = cast(LearntT, self.learnt)
        if self.learnt is not None:
            refuse_common_prompts("policy", self.learnt.seen, table.data)
        elif len(all_prompts.rows) >= claim.fewest_prompts:
            # the search sees all draws, so that it can choose any number of them
            searchable = table.searchable(all_prompts.searched)
            # the verdicts that the search wants are about other prompts, and count besides
            with announcing_all(also=True):
                learnt = self.search(searchable, all_prompts.searched, claim, judging)

        # test; of a single part the test itself says what it may still ask for
        def test(part: Part, claim_of_part: Claim) -> Rule:
            with nullcontext() if len(parts) == 1 else announcing_all():
                return judging.rule_for(self, learnt, table, part, claim_of_part)

        all_draws = partial(Everything, k_max=table.k_max)
        # people, or a judge, are asked for what prediction uses alone
        compares = not table.is_lazy and not judging.audits
        digests = table.data.prompts
        rules = rules_of_parts(parts, claim, digests, all_draws, test, compares=compares)
        return {part.group: _explained(rules[part.group], table, part) for part in parts}

    def _refuse_early_ends(
        self, data: CalibrationData, searched: np.ndarray, claim: Claim, judging: Judging
    ) -> None:
        """Refuse draws that end early where that decides nothing.

        Where verdicts on other prompts ended them, what is learnt from the prompts at `searched`,
        or was learnt from others of the same log, is not independent of the labels that test it
        (``calibration/_holes.py``).
        """
        wants_all = ""
        if claim.losses:
            wants_all = "for losses"
        elif judging.audits:
            wants_all = "for audits by people"
        elif self.risk.has_costs:
            wants_all = self.risk.where
        elif self.early_ends == "none":
            wants_all = f"for {type(self).__name__}"
        # what early ends leave open can be counted as an error only where an error is 0 or 1
        if wants_all:
            fewest = int(data.n_draws.min())
            cut = f"calibrate with k_max={fewest}, the first draws of all, " if fewest else ""
            raise ValueError(
                f"data must hold all {data.k_max} draws of each prompt {wants_all}, got as few as "
                f"{fewest} instead: {cut}make the missing draws, or take thresholds, an exit level "
                "or answers alone, which count as errors what missing draws leave open."
            )

        learns_nothing = self.learnt is None and not len(searched)
        if data.provenance.stops is None or self.early_ends == "any" or learns_nothing:
            return
        raise ValueError(
            "data must have draws that ended whatever other prompts showed, for "
            f"{type(self).__name__}, got data of which verdicts on other prompts ended draws "
            "instead: take ThresholdPolicy(abstain=False), which certifies the set of all draws "
            "then, or let the draws of each prompt end by that prompt alone."
        )

    def _unjudged(self, table: Table, rows: np.ndarray) -> np.ndarray:
        """All texts without a label, while the path is unknown.

        No smaller number of verdicts is sure to be enough. If the text that a test comes to last
        is the first admissible one of each prompt, but for c prompts that have none, then the test
        of the largest sets is open until all are judged.
        """
        draws = np.arange(table.k_max)
        is_text = self.texts(table, rows) == draws
        labels = table.labels_at(rows[:, np.newaxis], draws[np.newaxis])
        return np.asarray(is_text & (labels < 0))

    def rule_for(self, learnt: LearntT, table: Table, part: Part, claim: Claim) -> Rule:
        """The rule that tests of a part certify."""
        path = self.path_on(learnt, table, part, part.rows)
        n_judged_before = table.n_judgements
        test = self.test_of(path, claim)
        other_tests = self.other_tests(path, claim)
        # where people judge, they are told how many verdicts this test can still want
        with bounding(table.judge, part.rows, test.may_ask):
            outcome = self.certify(path, test, other_tests, part)
        outcome = replace(outcome, n_optimization=len(part.searched), parts=path.parts)
        if table.is_lazy:
            n_judged = table.n_judgements - n_judged_before
            outcome = replace(outcome, n_judgements=n_judged)
        return self.concluded(path, outcome, claim, part)

    def concluded(self, path: PathT, outcome: Outcome, claim: Claim, part: Part) -> Rule:
        """The rule of the chosen step, or all draws."""
        claim = self._tested_on(path, outcome.step or 0, claim, part)
        if outcome.step is not None:
            return self._rule(path.only(outcome.step), outcome, claim)
        why = nothing_passed(
            claim,
            outcome.n_calibration,
            path.what,
            outcome.smallest_level,
            exact=not path.table.is_lazy,
            advice=self.advice(path, outcome, claim),
        )
        return Everything(claim.nullified(why), path.table.k_max, outcome)

    def _tested_on(self, path: PathT, step: int, claim: Claim, part: Part) -> Claim:
        """The claim, of rows that count and may err."""
        if self.risk.counts_all and path.table.at_stake is None:
            return claim
        # those that count, or may err, may be the popular prompts, which repeat more often; of a
        # vote those that taught test it, too
        untested = np.setdiff1d(part.searched, path.rows)
        if len(untested):
            untested = self._counting(path.on(untested), step)
        # whether those would count that are left out is not known: no draws of them were made
        return claim.tested_on(
            self._counting(path, step), path.table.data.prompts, untested, part.left_out
        )

    def _counting(self, path: TablePath, step: int) -> np.ndarray:
        """The rows that count at a step, and may err."""
        is_counted = counts_at(path, self.risk, step)
        if path.at_stake is not None:
            is_counted = is_counted & path.at_stake
        return path.rows[is_counted]

    def _rule(self, path: PathT, outcome: Outcome, claim: Claim) -> SetRule:
        """The rule of one step, with what it gave."""
        rule = self.rule_at(path, outcome, claim).having(outcome=outcome)
        # where draws end early, stops are unknown, and so are shares of draws
        if not outcome.stops_known:
            return rule
        digests = path.table.digests_of(path.rows)
        tested = SetCounts.of(outcome.sizes, outcome.draws, rule.k_max, digests)
        shares = shares_of_draws(outcome.draws, rule.k_max)
        return rule.having(shares_of_draws=shares, tested=tested)

    def audited(self, path: PathT, step: int, audit: Audited, claim: Claim, part: Part) -> Rule:
        """The rule of a step that was audited."""
        alone = path.only(step)
        outcome = Outcome(
            step=step if claim.holds else None,
            errors=ErrorCount(audit.record.n_refused, audit.record.n_prompts),
            rows=alone.rows,
            sizes=alone.sizes(0),
            draws=alone.draws(0),
            smallest_level=audit.smallest_level,
            n_optimization=audit.n_optimization,
            parts=path.parts,
            audit=audit.record,
        )
        claim = self._tested_on(alone, 0, claim, part)
        if not claim.holds:
            return Everything(claim, path.table.k_max, outcome)
        return self._rule(alone, outcome, claim)

    def by_people(
        self,
        people: CollectedJudge,
        path: PathT,
        step: int,
        part: Part,
        claim: Claim,
    ) -> Rule:
        """The usual test of a step, judged by people."""
        table = path.table
        # a table of its own: labels of the model must not enter this test
        labels = people.labels[:, : table.k_max]
        table_of_people = Table(table.filled().with_labels(labels), judge=people)
        # the path of this step alone is built anew, on that table and the audited prompts
        learnt = self.learnt_of(path.only(step))
        claim_of_audited = claim.tested_on(
            part.rows, table.data.prompts, part.searched, part.left_out
        )
        return self.rule_for(learnt, table_of_people, part, claim_of_audited)


def _explained(rule: Rule, table: Table, part: Part) -> Rule:
    """The rule, with advice from labels where nothing is certified."""
    claim = rule.claim
    # losses, and missing labels, explain a null otherwise
    if claim.holds or claim.losses or not table.is_filled:
        return rule
    band = AchievableEpsilon.of_labels(table.labels[part.all_rows] == 1)
    # what no set can reach explains a null best, where the risk is a share of all prompts and the
    # labels are those of the promise; that no draw at all is admissible explains every null
    is_about_band = claim.risk.has_band and claim.audit is None
    if not is_about_band and band.low < 1.0:
        return rule
    return rule.having(claim=claim.advised(band.words(table.k_max)))
