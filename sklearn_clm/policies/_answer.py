"""One answer where it is likely to be right."""

from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval

from sklearn_clm._exceptions import naming_parameters
from sklearn_clm.calibration import CalibrationData, Claim
from sklearn_clm.calibration._answer import AnswerPath, AnswerRule, AnswerSteps, search_answers
from sklearn_clm.calibration._claim import percent
from sklearn_clm.calibration._data import check_data, prompt_digests
from sklearn_clm.calibration._outcome import Outcome
from sklearn_clm.calibration._risk import Risk, WrongAnswers
from sklearn_clm.calibration._rows import Part
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.calibration._table import Table
from sklearn_clm.calibration._tiers import Tiers, check_tiers
from sklearn_clm.policies._base import Policy
from sklearn_clm.policies._exit import LevelRule, degree_two, filled_table, share_that_teaches
from sklearn_clm.policies._judging import Judging, classifier_factory, one_thread
from sklearn_clm.policies._rules import Row, Rule


@dataclass(frozen=True)
class AnswerLevel(LevelRule):
    """Answers at a certified level; fields as in LevelRule."""

    patience: tuple[float, ...] = ()  # how many times doubt counts after each number of draws
    cut: float = 0.0  # below it a prompt is hopeless after the last draw

    kind: ClassVar[str] = "answer level"
    heading: ClassVar[str] = "Answers"

    @property
    def words(self) -> str:
        share = "" if self.outcome is None else f", {percent(self.outcome.size)} answered"
        return f"level {self.level:.6g}{share}"

    @property
    def costs(self) -> tuple[float, float]:
        # an empty set is no mistake here, and the share answered no price
        return np.nan, super().costs[1]

    def facts(self, set_score: str) -> list[Row]:
        found = self.outcome
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
            wrong = f"{found.bound}{found.n_errors} of {found.n_counted}"
            tolerated = f"at most {found.n_errors_allowed} are tolerated"
            rows.append(("wrong answers", wrong, tolerated))
        return rows + self.costs_of_tiers()

    def expected(self, data: CalibrationData, set_score: SetScoreLike) -> None:
        return None

    def members(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        level, unknown = np.array([self.level]), np.array([np.nan])
        path = AnswerPath(self.model, self.patience, 0, level, unknown, unknown, self.cut)
        answers = AnswerSteps(filled_table(data), np.arange(data.n_prompts), path)
        answered = answers.members(0)
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
    risk: Risk = WrongAnswers()
    path_tells_losses: ClassVar[bool] = True
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
        return super().promise(self.alpha)

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
        self.path_ = self._learnt(data, data.n_prompts, delta, tiers)
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
            path = search_answers(data, new_classifier, n, self.alpha, delta, tiers)
        return replace(path, seen=prompt_digests(data))

    def path_on(
        self, learnt: AnswerPath, table: Table, part: Part, rows: np.ndarray
    ) -> AnswerSteps:
        start = learnt.start(len(part.rows), self.alpha, part.delta)
        return AnswerSteps(table, rows, learnt.after(start))

    def learnt_of(self, path: AnswerSteps) -> AnswerPath:
        return path.path

    def rule_at(self, path: AnswerSteps, outcome: Outcome, claim: Claim) -> AnswerLevel:
        claim = replace(claim, answered=outcome.size)
        level, learnt = float(path.path.levels[0]), path.path
        return AnswerLevel(
            claim,
            learnt.model,
            path.table.knows_texts,
            level,
            patience=learnt.patience,
            cut=learnt.cut,
        )

    def advice(self, path: AnswerSteps, outcome: Outcome, claim: Claim) -> str:
        known = "at least " if path.table.is_lazy else ""
        m, needed = outcome.n_counted, claim.fewest_prompts
        lacking = f"; it takes {needed} answers at least, even if none is wrong"
        if m >= needed:
            lacking = f"; at most {outcome.n_errors_allowed} may be"
        most_likely = "At the level that was most likely to pass"
        return f"{most_likely}, {known}{outcome.n_errors} of {m} answers are wrong{lacking}."
