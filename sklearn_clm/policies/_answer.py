"""One answer where it is likely to be right."""

from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval

from sklearn_clm._exceptions import naming_parameters
from sklearn_clm.calibration import CalibrationData, Claim, critical_count
from sklearn_clm.calibration._answer import (
    AnswerPath,
    AnswerRule,
    Answers,
    search_answers,
)
from sklearn_clm.calibration._certify import count_passed, settle
from sklearn_clm.calibration._claim import nothing_passed, percent
from sklearn_clm.calibration._data import check_data, prompt_digests
from sklearn_clm.calibration._rows import Part
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.calibration._table import DrawEntries, Table
from sklearn_clm.calibration._tiers import Tiers, check_tiers
from sklearn_clm.policies._asking import bounding
from sklearn_clm.policies._base import Policy
from sklearn_clm.policies._exit import (
    LevelResult,
    LevelRule,
    degree_two,
    filled_table,
    share_that_teaches,
)
from sklearn_clm.policies._judging import Judging, classifier_factory, one_thread
from sklearn_clm.policies._rules import Everything, Row, Rule


@dataclass(frozen=True)
class AnswerLevel(LevelRule):
    """Answers at a certified level; fields as in LevelRule."""

    patience: tuple[float, ...] = ()  # how many times doubt counts after each number of draws
    cut: float = 0.0  # below it a prompt is hopeless after the last draw

    kind: ClassVar[str] = "answer level"
    heading: ClassVar[str] = "Answers"

    @property
    def words(self) -> str:
        share = "" if self.result is None else f", {percent(self.result.size)} answered"
        return f"level {self.level:.6g}{share}"

    @property
    def costs(self) -> tuple[float, float]:
        # an empty set is no mistake here, and the share answered no price
        return np.nan, super().costs[1]

    @property
    def errors(self) -> tuple[str, int, int]:
        found: Any = self.result
        return *found.errors_of_choice, int(found.sizes.sum())  # of the answers

    def facts(self, set_score: str) -> list[Row]:
        found = self.result
        level, most = self.level, self.patience[0]
        at_first = f"{1 - (1 - level) / most:.6g}"
        rows = [
            (
                "level",
                f"{level:.6g}",
                "answers that the model believes to be right with this probability, after "
                f"{self.k_max} draws",
            ),
            ("after one draw", at_first, f"the same then, where doubt counts {most:g} times"),
        ]
        if found is not None:
            bound, wrong, n = self.errors
            tolerated = f"at most {found.n_errors_allowed} are tolerated"
            rows.append(("wrong answers", f"{bound}{wrong} of {n}", tolerated))
        return rows + self.costs_of_tiers()

    def outcomes(self, data: CalibrationData, set_score: SetScoreLike) -> None:
        return None

    def members(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        no_other = np.empty(0)
        path = AnswerPath(self.model, self.patience, 0, no_other, no_other, no_other, self.cut)
        answers = Answers(filled_table(data), np.arange(data.n_prompts), path, self.level)
        answered, _ = answers.at(self.level)
        members = np.zeros(data.quality.shape, dtype=bool)
        members[answered.rows, answered.draws] = True
        return members

    def stopping(self) -> AnswerRule:
        return AnswerRule(self.level, self.patience, self.cut)

    def content(self) -> dict[str, Any]:
        return {**super().content(), "patience": list(self.patience), "hopeless": self.cut}

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: int) -> Self:
        patience, cut = tuple(map(float, content["patience"])), float(content["hopeless"])
        return replace(super().of_content(claim, content, k_max), patience=patience, cut=cut)


class AnswerPolicy(Policy):
    """One answer where it is likely right; others are escalated.

    After each draw a classifier gives the probability that each text is admissible. The first text
    that reaches a level is the answer, and drawing stops; a prompt without one is *escalated*, to a
    dearer model or to a person: its set is empty. With confidence 1 - delta at most a share `alpha`
    of the answers is wrong, and ``claim.answered`` says how many prompts are answered. `epsilon`
    has no part in it. See ``sklearn_clm/calibration/_answer.py`` for the proof.

    Parameters
    ----------
    alpha : float, default=0.1
        Tolerated share of wrong answers among the prompts that are answered, in (0, 1).
    estimator : classifier with ``predict_proba``, default=None
        Gives the probability that a text is admissible, from the features of an
        :class:`ExitPolicy`. None is a logistic regression of degree 2, in which all texts of a
        prompt together weigh as much as one.

    Attributes
    ----------
    path_ : AnswerPath
        What :meth:`fit` learnt: it is used as it is, and all prompts calibrate.

    Notes
    -----
    ``sets.answered`` tells the prompts that are answered, and ``sets.escalated`` holds the others:
    all of them where nothing can be certified, with sets of all draws. ``score`` is the share
    answered. A larger `alpha` may answer fewer prompts, by fewer draws: more of them are given up
    early.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import AnswerPolicy
    >>> sampler = ConformalSampler(policy=AnswerPolicy(alpha=0.05))
    >>> sampler.set_params(policy__alpha=0.1).policy
    AnswerPolicy()
    """

    rule: ClassVar[type[Rule]] = AnswerLevel
    _learnt_as: ClassVar[str] = "path_"
    guarantee: Literal["pac", "marginal"] = "pac"
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "estimator": [None, HasMethods(["fit", "predict_proba"])],
    }

    @naming_parameters
    def __init__(self, alpha: float = 0.1, *, estimator: BaseEstimator | None = None) -> None:
        self.alpha = alpha
        self.estimator = estimator

    @property
    def described(self) -> dict[str, object]:
        return {**super().described, "alpha": float(self.alpha)}

    @property
    def weights(self) -> Weights:
        """Those with which ``score`` is the share answered."""
        return {"size_weight": -1.0, "excess_weight": 0.0, "draw_weight": 0.0}

    def promise(self, epsilon: float) -> dict[str, Any]:
        return {**super().promise(self.alpha), "about": "answers"}

    def searched_share(self, n_prompts: int) -> float:
        return share_that_teaches(n_prompts)

    def search(self, table: Table, rows: np.ndarray, claim: Claim, judging: Judging) -> AnswerPath:
        labels, _ = judging.labels(table, rows, table.texts[rows])
        part, n = table.part(rows).with_labels(labels), table.data.n_prompts - len(rows)
        return self._learnt(part, n, claim.delta, table.tiers)

    def fit(
        self, data: CalibrationData, *, delta: float = 0.05, tiers: Tiers | None = None
    ) -> Self:
        """Learn the path from other prompts, with labels or without.

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
        check_tiers(tiers, data.k_max)
        path = self._learnt(data, data.n_prompts, delta, tiers)
        self.path_ = replace(path, seen=prompt_digests(data))
        return self

    def _learnt(
        self, data: CalibrationData, n: int, delta: float, tiers: Tiers | None
    ) -> AnswerPath:
        """What prompts tell for a calibration with n others."""
        data = data.take(data.order())  # folds, and rounded sums, go by the order of rows
        if self.estimator is not None:
            new_classifier = classifier_factory(self.estimator)
        else:
            # a prompt has a row for each text after each draw; they tell as much as one or two
            draws = np.arange(data.k_max)
            n_rows = np.mean((data.first == draws) @ (data.k_max - draws))
            new_classifier = partial(degree_two, C=1.0 / n_rows)
        with one_thread():
            return search_answers(data, new_classifier, n, self.alpha, delta, tiers)

    def test(self, path: AnswerPath, table: Table, part: Part, claim: Claim) -> Rule:
        n, judged_before = len(part.rows), table.n_judgements
        levels = path.levels[path.start(n, self.alpha, part.delta) :]
        answers = Answers(table, part.rows, path, levels[0])

        def passes(j: int) -> bool:
            answered, _ = answers.at(levels[j])
            m = answered.n_prompts
            allowed = int(critical_count(m, self.alpha, part.delta)) if m else -1
            return allowed >= 0 and settle(answered, m - allowed) > -np.inf

        with bounding(table.judge, part.rows, lambda: self._unjudged(table, part.rows)):
            passed = count_passed(passes, len(levels))
        level = float(levels[max(passed - 1, 0)])
        answered, draws = answers.at(level)
        # only those that are answered were tested, perhaps the popular ones
        claim = claim.tested_on(answered.rows, table.data.prompts)
        if not passed:
            why = _why_nothing(answered, table, claim, n)
            return Everything(claim.nullified(why), table.k_max)
        result = LevelResult(
            level=level,
            n_errors_allowed=int(critical_count(answered.n_prompts, self.alpha, part.delta)),
            n_optimization=len(part.searched),
            n_errors=int(np.sum(answered.labels != 1)),
            sizes=np.isin(part.rows, answered.rows).astype(np.intp),
            draws=draws,
            n_judgements=table.n_judgements - judged_before if table.is_lazy else None,
        )
        claim = replace(claim, answered=result.size)
        own = {"patience": path.patience, "cut": path.cut}
        return AnswerLevel.of(claim, path.model, table, part, result, **own)


def _why_nothing(answered: DrawEntries, table: Table, claim: Claim, n: int) -> str:
    known, wrong = "at least " if table.is_lazy else "", int(np.sum(answered.labels == 0))
    m, needed = answered.n_prompts, claim.fewest_prompts
    lacking = f"; it takes {needed} answers at least, even if none is wrong"
    if m >= needed:
        lacking = f"; at most {critical_count(m, claim.level, claim.delta)} may be"
    advice = f"At the level that was most likely to pass, {known}{wrong} of {m} answers are wrong"
    return nothing_passed(claim, n, "level of answers", np.nan, advice=f"{advice}{lacking}.")
