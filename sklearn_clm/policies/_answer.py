"""One answer where it is likely to be right."""

from dataclasses import replace
from functools import partial
from numbers import Real
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from sklearn_clm._exceptions import naming_parameters
from sklearn_clm.calibration import CalibrationData, Claim, prompts_needed
from sklearn_clm.calibration.answer import AnswerSteps, LearntAnswers, search_answers
from sklearn_clm.calibration.checks import check_level
from sklearn_clm.calibration.claim import Promise
from sklearn_clm.calibration.data import check_data, prompt_digests
from sklearn_clm.calibration.outcome import Outcome
from sklearn_clm.calibration.risk import Risk, WrongAnswers
from sklearn_clm.calibration.rows import Part
from sklearn_clm.calibration.surface import Weights
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tests import BettingTest, BinomialTest
from sklearn_clm.calibration.tiers import Tiers, check_tiers
from sklearn_clm.calibration.vote import (
    SINGLE_VOTE,
    PlainAnswers,
    PlainModel,
    PlainScore,
    PlainSteps,
    fewest_answers,
    votes_of,
)
from sklearn_clm.policies._answer_levels import AnswerLevel, PlainLevel
from sklearn_clm.policies._asking import bounding
from sklearn_clm.policies._classifiers import classifier_factory, degree_two, one_thread
from sklearn_clm.policies._exit import share_that_teaches
from sklearn_clm.policies.base import Policy
from sklearn_clm.policies.judging import Judging
from sklearn_clm.policies.rules import Rule, Rules

_ENOUGH_FOR_BOTH = 250  # prompts: of fewer a part teaches too little, and shares of delta cost much
_DELTA_OF_LEARNT = 3 / 4  # the vote, which all prompts test, has the rest
_TEACHING_SHARE = 3 / 25  # of the prompts ...
_ENOUGH_TO_TEACH = 36  # ... and of few so many: more would answer less than if they tested


class VoteAndLearnt(NamedTuple):
    """A vote and what was learnt, to share delta."""

    vote: PlainAnswers
    learnt: LearntAnswers

    @classmethod
    def sharing_delta(cls, vote: PlainAnswers, learnt: LearntAnswers) -> Self:
        """Both, the vote with what `learnt` leaves of delta."""
        return cls(replace(vote, share_of_delta=1.0 - learnt.share_of_delta), learnt)

    @property
    def vote_alone(self) -> PlainAnswers:
        """The vote with all of delta."""
        return replace(self.vote, share_of_delta=1.0)

    @property
    def tells_losses(self) -> bool:
        """Whether it says what each step is expected to err."""
        return False  # of a vote no prompt has told

    @property
    def k_max(self) -> int:
        """Number of draws of both."""
        return self.vote.k_max

    @property
    def seen(self) -> np.ndarray | None:
        """Digests of the prompts that taught, if other data."""
        return self.learnt.seen


OneAnswers: TypeAlias = LearntAnswers | PlainAnswers
AnyAnswers: TypeAlias = OneAnswers | VoteAndLearnt


class AnswerPolicy(Policy[AnyAnswers, AnswerSteps | PlainSteps, BinomialTest]):
    """One answer where it is likely right; others are escalated.

    The answer is the text that most draws give, or the one that a classifier finds likeliest to be
    admissible, where that reaches a level; a prompt without an answer is *escalated*, to a dearer
    model or to a person: its set is empty. With confidence 1 - delta at most a share `alpha` of the
    answers is wrong, and ``claim.answered`` says how many prompts are answered. `epsilon` has no
    part in it. See ``sklearn_clm/calibration/answer.py`` and ``vote.py`` there for the proofs; for
    a vote whose answers are wrong more often the more votes they have, nothing is proved, but exact
    sums over many such cases stay within delta.

    Parameters
    ----------
    alpha : float, default=0.1
        Tolerated share of wrong answers among the prompts that are answered, in (0, 1).
    score : {"auto", "vote", "quality", "learnt"}, default="auto"
        What makes a text the answer. "vote": the number of draws that give it, and of the next
        text; "quality": the sampler's quality of its best draw. Both need no learning: all prompts
        calibrate. "learnt": the probability that a classifier learns on the optimisation part.
        "auto" takes the vote where texts repeat; of 250 prompts or more it tests what is learnt,
        too, with three quarters of delta, the vote with the rest, and takes what answers more.
        A cascade learns.
    same_text : float, default=None
        Similarity above which a response votes for an earlier text. None: only equal ones do.
    estimator : classifier with ``predict_proba``, default=None
        Gives the probability that a text is admissible, from the features of an
        :class:`ExitPolicy`. None is a logistic regression of degree 2, in which all texts of a
        prompt together weigh as much as one.
    draw_price : float or "auto", default="auto"
        How many answers a draw costs, >= 0. At 0, which "auto" is but for a cascade or where it
        learns without labels, answers alone count: what is learnt takes all draws, and a vote ends
        when no further draw can change it. At a price, what is learnt answers as soon as it is
        sure, by less doubt after few draws, and gives up early. "auto" saves draws of a cascade
        where that costs few answers.

    Attributes
    ----------
    answers_ : LearntAnswers, PlainAnswers or VoteAndLearnt
        What :meth:`fit` learnt or chose: it is used as it is, and all prompts calibrate.

    Notes
    -----
    ``sets.answered`` tells the prompts that are answered, and ``sets.escalated`` holds the others:
    all of them where nothing can be certified, with sets of all draws. ``score`` is the share
    answered. Where draws of calibration prompts end early, ``claim.answered`` is None, and what
    they do not decide counts as a wrong answer (``sklearn_clm/calibration/_holes.py``).

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import AnswerPolicy
    >>> sampler = ConformalSampler(policy=AnswerPolicy(alpha=0.05))
    >>> sampler.set_params(policy__alpha=0.1).policy
    AnswerPolicy()
    """

    rule: ClassVar[type[Rule]] = AnswerLevel
    _learnt_as: ClassVar[str] = "answers_"
    risk: Risk = WrongAnswers()
    guarantee: Literal["pac", "marginal"] = "pac"
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "score": [StrOptions({"auto", "vote", "quality", "learnt"})],
        "same_text": [None, Interval(Real, None, None, closed="neither")],
        "estimator": [None, HasMethods(["fit", "predict_proba"])],
        "draw_price": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
    }

    @naming_parameters
    def __init__(
        self,
        alpha: float = 0.1,
        *,
        score: Literal["auto", "vote", "quality", "learnt"] = "auto",
        same_text: float | None = None,
        estimator: BaseEstimator | None = None,
        draw_price: float | Literal["auto"] = "auto",
    ) -> None:
        self.alpha = alpha
        self.score = score
        self.same_text = same_text
        self.estimator = estimator
        self.draw_price = draw_price

    @property
    def weights(self) -> Weights:
        """Those with which ``score`` is the share answered."""
        return {"size_weight": -1.0, "excess_weight": 0.0, "draw_weight": 0.0}

    def promise(self, epsilon: float) -> Promise:
        # epsilon is a share of all prompts, alpha one of those that are answered
        return super().promise(self.alpha)

    @property
    def early_ends(self) -> Literal["none", "own", "any"]:  # type: ignore[override]
        """Which draws may end early."""
        # a vote is the same whatever other prompts have shown
        return "any" if isinstance(self.learnt, PlainAnswers) else "own"

    @property
    def learns(self) -> bool:
        # no label shapes these scores: all prompts test
        return super().learns and self.score not in ("vote", "quality")

    def searched_share(self, n_prompts: int) -> float:
        return share_that_teaches(n_prompts, _TEACHING_SHARE, _ENOUGH_TO_TEACH)

    def calibrate(self, table: Table, parts: list[Part], claim: Claim, judging: Judging) -> Rules:
        too_few_left = len(parts[-1].rows) < claim.fewest_prompts
        if too_few_left and self.learnt is None and self._may_vote(table.k_max, table.tiers):
            # too few to learn from some of them and test the others: all test a vote. That is
            # valid: it needs no search, and their number says that they are too few, not labels
            parts = [part._replace(rows=part.all_rows, searched=np.arange(0)) for part in parts]
        if table.has_holes:
            self._refuse_holes(table, parts[-1].searched, claim.delta)
        return super().calibrate(table, parts, claim, judging)

    def _refuse_holes(self, table: Table, rows: np.ndarray, delta: float) -> None:
        """Refuse draws that end before they tell what is tested."""
        if self.score == "quality":
            raise ValueError(
                "score must be 'vote', or 'learnt', where draws end early, since levels of quality "
                "are those that the prompts reach with all draws, got 'quality' instead."
            )
        if self.learnt is not None or not len(rows) or not self._may_vote(table.k_max, table.tiers):
            return
        repeat = votes_of(table.part(rows), self._plain_model(table.k_max, None)) > SINGLE_VOTE
        may_repeat = repeat | table.is_hole(rows)
        n = table.data.n_prompts
        if self._enough(repeat, n, delta) != self._enough(may_repeat, n, delta):
            raise ValueError(
                "score must be 'vote', or 'learnt', where so many draws are missing that they do "
                "not tell whether texts repeat, got 'auto' instead."
            )

    def _enough(self, repeat: np.ndarray, n: int, delta: float) -> bool:
        """Whether of n prompts, where these `repeat`, enough have votes."""
        return bool(repeat.sum() * n >= fewest_answers(self.alpha, delta) * len(repeat))

    def search(self, table: Table, rows: np.ndarray, claim: Claim, judging: Judging) -> AnyAnswers:
        k_max = table.k_max
        tiers = table.tiers
        n = table.data.n_prompts
        plain = self._plain_model(k_max, tiers)
        if not len(rows):
            return PlainAnswers(plain)
        # an audit tests one of both, and no part of the prompts chooses the step of a vote
        part = table.part(rows)
        may_vote = self._may_vote(k_max, tiers) and not judging.audits
        if may_vote:
            # the draws of these prompts tell whether texts repeat; no label does
            may_vote = self._enough(votes_of(part, plain) > SINGLE_VOTE, n, claim.delta)
            if may_vote and n < _ENOUGH_FOR_BOTH:
                return PlainAnswers(plain, least=SINGLE_VOTE)
        # a vote is tested on all n prompts, what is learnt on those that taught nothing
        labels, _ = judging.labels(table, rows, table.texts[rows])
        labelled = part.with_labels(labels)
        learnt = self._learnt(labelled, n - len(rows), claim.delta, tiers, beside_vote=may_vote)
        if not may_vote:
            return learnt
        return VoteAndLearnt.sharing_delta(PlainAnswers(plain, least=SINGLE_VOTE), learnt)

    def fit(
        self, data: CalibrationData, *, delta: float = 0.05, tiers: Tiers | None = None
    ) -> Self:
        """Learn answers from other prompts, with labels or without.

        All prompts that are calibrated later then test it.

        Parameters
        ----------
        data : CalibrationData
            Draws of prompts that will not calibrate: ``sampler.collect(prompts, None)``.
        delta : float, default=0.05
            Level of the tests to come, which are expected to have as many prompts.
        tiers : Tiers, default=None
            Prices of the draws: ``generator.tiers`` of a :class:`CascadeGenerator`.

        Returns
        -------
        AnswerPolicy
            Itself.
        """
        self._validate_params()
        check_data(data, labels=False)
        check_level(delta, "delta")
        check_tiers(tiers, data.k_max)
        plain = self._plain_model(data.k_max, tiers)
        n = data.n_prompts
        seen = prompt_digests(data.take(data.order()))
        self.answers_: AnyAnswers
        may_vote = self._may_vote(data.k_max, tiers)
        # a vote needs no labels, and what is learnt without them knows no more
        is_unlabeled = not np.any(data.labels >= 0)
        if (may_vote and is_unlabeled) or self.score in ("vote", "quality"):
            self.answers_ = PlainAnswers(plain, seen=seen)
            return self
        learnt = replace(self._learnt(data, n, delta, tiers, beside_vote=may_vote), seen=seen)
        vote = PlainAnswers(plain, seen=seen)
        self.answers_ = VoteAndLearnt.sharing_delta(vote, learnt) if may_vote else learnt
        return self

    def _plain_model(self, k_max: int, tiers: Tiers | None) -> PlainModel:
        """The score that needs no learning."""
        score: PlainScore = "quality" if self.score == "quality" else "vote"
        return PlainModel(score, k_max, self.same_text, tiers)

    def _may_vote(self, k_max: int, tiers: Tiers | None) -> bool:
        """Whether a vote may stand in for what is learnt."""
        return self.score == "auto" and tiers is None and k_max > 1

    def _learnt(
        self,
        data: CalibrationData,
        n: int,
        delta: float,
        tiers: Tiers | None,
        *,
        beside_vote: bool = False,
    ) -> LearntAnswers:
        """What prompts tell n others, which test it."""
        data = data.take(data.order())  # folds, and rounded sums, go by the order of rows
        if self.estimator is not None:
            new_classifier = classifier_factory(self.estimator)
        else:
            # a prompt has a row for each text after each draw; they tell as much as one or two
            draws = np.arange(data.k_max)
            n_rows = np.mean((data.first == draws) @ (data.k_max - draws))
            new_classifier = partial(degree_two, C=1.0 / n_rows)
        # draws that only agree look surer than they are: the surest are those that agree early
        unlabeled = not np.any(data.labels >= 0)
        draw_price: float | None = None if tiers is not None or unlabeled else 0.0
        if not isinstance(self.draw_price, str):
            draw_price = float(self.draw_price)
        with one_thread():
            return search_answers(
                data,
                new_classifier,
                n,
                self.alpha,
                delta,
                tiers,
                draw_price=draw_price,
                share_of_delta=_DELTA_OF_LEARNT if beside_vote else 1.0,
            )

    def path_on(
        self, learnt: AnyAnswers, table: Table, part: Part, rows: np.ndarray
    ) -> AnswerSteps | PlainSteps:
        # two come one after the other (`_tests_of`), and audits refuse them
        answers = cast(OneAnswers, learnt)
        delta = part.delta * answers.share_of_delta
        if isinstance(answers, PlainAnswers):
            return PlainSteps(table, rows, answers, fewest_answers(self.alpha, delta))
        start = answers.start(len(part.rows), self.alpha, delta)
        return AnswerSteps(table, rows, answers.after(start))

    def test_of(self, path: AnswerSteps | PlainSteps, claim: Claim) -> BinomialTest:
        delta = claim.delta * path.answers.share_of_delta
        return BinomialTest(path, self.risk, claim.level, delta)

    def certify(
        self,
        path: AnswerSteps | PlainSteps,
        test: BinomialTest,
        other_tests: list[BettingTest],
        part: Part,
    ) -> Outcome:
        outcome = super().certify(path, test, other_tests, part)
        # missing draws may hide where the sequence begins: a step before it certifies nothing
        if outcome.step is not None and outcome.step < path.first_certifiable:
            return replace(outcome, step=None)
        return outcome

    def rule_for(self, learnt: AnyAnswers, table: Table, part: Part, claim: Claim) -> Rule:
        planned = self._tests_of(learnt, part)
        if len(planned) == 1:
            answers, tested = planned[0]
            return super().rule_for(answers, table, tested, claim)

        # while one is tested, people are told that the other may ask for any text
        n_judged_before = table.n_judgements
        rules = []
        with bounding(table.judge, part.all_rows, partial(self._unjudged, table, part.all_rows)):
            for answers, tested in planned:
                rules.append(super().rule_for(answers, table, tested, claim))
        better = max(rules, key=self._worth)  # of equals the first, the vote
        if not table.is_lazy or better.outcome is None:
            return better
        # the verdicts of both tests were needed to choose
        n_judged = table.n_judgements - n_judged_before
        return better.having(outcome=replace(better.outcome, n_judgements=n_judged))

    def _tests_of(self, learnt: AnyAnswers, part: Part) -> list[tuple[OneAnswers, Part]]:
        """Which answers are tested, and on which prompts.

        Each knows its share of delta (``calibration/vote.py``).
        """
        if isinstance(learnt, LearntAnswers):
            return [(learnt, part)]
        # no label has chosen a vote: those that taught test it, too
        everybody = part._replace(rows=part.all_rows)
        if isinstance(learnt, PlainAnswers):
            return [(learnt, everybody)]
        # a group may be small, and so may all prompts where others taught
        if len(everybody.rows) < _ENOUGH_FOR_BOTH:
            return [(learnt.vote_alone, everybody)]
        return [(learnt.vote, everybody), (learnt.learnt, part)]

    def _worth(self, rule: Rule) -> float:
        """Share answered, less the price of draws."""
        if not rule.certified or rule.outcome is None:
            return -np.inf
        price = 0.0 if isinstance(self.draw_price, str) else float(self.draw_price)
        # open prompts are not known to be answered
        return float(rule.outcome.sizes.mean() - price * rule.outcome.draws.mean())

    def learnt_of(self, path: AnswerSteps | PlainSteps) -> AnyAnswers:
        return path.answers

    def rule_at(
        self, path: AnswerSteps | PlainSteps, outcome: Outcome, claim: Claim
    ) -> AnswerLevel:
        claim = replace(claim, answered=outcome.size if outcome.stops_known else None)
        knows_texts = path.table.knows_texts
        if isinstance(path, PlainSteps):
            return PlainLevel(claim, path.answers.model, knows_texts, float(path.levels[0]))
        learnt = path.answers
        return AnswerLevel(
            claim,
            learnt.model,
            knows_texts,
            float(learnt.levels[0]),
            patience=learnt.patience,
            cut=learnt.cut,
        )

    def advice(self, path: AnswerSteps | PlainSteps, outcome: Outcome, claim: Claim) -> str:
        m = outcome.n_counted
        allowed = outcome.n_errors_allowed
        needed = prompts_needed(self.alpha, claim.delta * path.answers.share_of_delta)
        where = "At the first level that was tested"
        tolerated = f"; it takes {needed} answers at least, even if none is wrong"
        if m >= needed:
            tolerated = f"; at most {allowed} may be"
        if allowed is not None and outcome.n_errors <= allowed:
            where = "At the last level that passed"
            tolerated = ", which is few enough, but missing draws hide with which level tests begin"
        return f"{where}, {outcome.errors.words} answers are wrong{tolerated}."
