"""Certified levels of answers, as rules."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from sklearn_clm.calibration import CalibrationData, Claim
from sklearn_clm.calibration.answer import AnswerRule, AnswerSteps, LearntAnswers
from sklearn_clm.calibration.set_scores import SetScoreLike
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.vote import (
    PlainAnswers,
    PlainModel,
    PlainRule,
    PlainSteps,
    votes_in_words,
)
from sklearn_clm.calibration.words import percent
from sklearn_clm.policies._exit import LevelRule
from sklearn_clm.policies._exit_files import tiers_of
from sklearn_clm.policies.rules import Fact


@dataclass(frozen=True)
class AnswerLevel(LevelRule):
    """Answers at a certified level; fields as in LevelRule."""

    patience: tuple[float, ...] = ()  # how many times doubt counts after each number of draws
    cut: float = 0.0  # below it a prompt is hopeless after the last draw

    kind: ClassVar[str] = "answer level"
    heading: ClassVar[str] = "Answers"

    @property
    def words(self) -> str:
        return f"level {self.level:.6g}{self._share_in_words}"

    @property
    def keeps_all(self) -> bool:
        return False  # an answer is one draw

    @property
    def _share_in_words(self) -> str:
        if self.outcome is None:
            return ""
        # open prompts may be answered, or not
        bound = "" if self.outcome.stops_known else "at least "
        return f", {bound}{percent(self.outcome.sizes.mean())} answered"

    @property
    def costs(self) -> tuple[float, float]:
        # an empty set is no mistake here, and the share answered no price
        return np.nan, super().costs[1]

    def facts(self, set_score: str) -> list[Fact]:
        outcome = self.outcome
        level = self.level
        most = self.patience[0]
        at_first = f"{1 - (1 - level) / most:.6g}"
        chance = "least chance to be right, by the model's belief (no promise), of an answer after"
        rows = [
            ("level", f"{level:.6g}", f"{chance} {self.k_max} draws"),
            ("after one draw", at_first, f"{chance} one draw: an early answer must be surer"),
        ]
        if outcome is not None:
            tolerated = f"at most {outcome.n_errors_allowed} are tolerated"
            rows.append(("wrong answers", outcome.errors.words, tolerated))
        return rows + self.costs_of_tiers()

    def expected(self, data: CalibrationData, set_score: SetScoreLike) -> None:
        return None

    def shown(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        # shares and risks choose levels; here the level is given
        level = np.array([self.level])
        unknown = np.array([np.nan])
        learnt = LearntAnswers(self.model, self.patience, 0, level, unknown, unknown, self.cut)
        path = AnswerSteps(Table(data), np.arange(data.n_prompts), learnt)
        answered = path.members(0)
        members = np.zeros(data.quality.shape, dtype=bool)
        members[answered.rows, answered.draws] = True
        return members

    def stopping(self) -> AnswerRule | PlainRule:
        return AnswerRule(self.level, self.patience, self.cut)

    def content(self) -> dict[str, Any]:
        return {**super().content(), "patience": list(self.patience), "hopeless": self.cut}

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: int) -> Self:
        patience = tuple(map(float, content["patience"]))
        cut = float(content["hopeless"])
        return replace(super().of_content(claim, content, k_max), patience=patience, cut=cut)


@dataclass(frozen=True)
class PlainLevel(AnswerLevel):
    """Answers at a certified level of an unlearnt score."""

    model: PlainModel = field(repr=False)  # type: ignore[assignment]

    kind: ClassVar[str] = "plain level"

    @property
    def words(self) -> str:
        share = self._share_in_words
        if self.model.score == "vote":
            return f"{votes_in_words(self.level, self.k_max)}{share}"
        return f"quality {self.level:.6g}{share}"

    def facts(self, set_score: str) -> list[Fact]:
        outcome = self.outcome
        model = self.model
        if model.score == "vote":
            votes = votes_in_words(self.level, self.k_max)
            rows = [("level", votes, "answers that so many draws give")]
            if model.same_text is not None:
                alike = "similarity above which a response counts as an earlier one"
                rows.append(("same text", f"{model.same_text:.4g}", alike))
        else:
            rows = [("level", f"{self.level:.6g}", "answers of at least this quality")]
        if outcome is not None:
            tolerated = f"at most {outcome.n_errors_allowed} are tolerated"
            rows.append(("wrong answers", outcome.errors.words, tolerated))
        return rows + self.costs_of_tiers()

    def shown(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        rows = np.arange(data.n_prompts)
        path = PlainSteps(Table(data), rows, PlainAnswers(self.model), 1)
        members = np.zeros(data.quality.shape, dtype=bool)
        members[rows, path.texts[:, -1]] = path.sure[:, -1] >= self.level
        return members

    def stopping(self) -> PlainRule:
        return PlainRule(self.level, self.model)

    def content(self) -> dict[str, Any]:
        model = self.model
        return {
            "level": float(self.level),
            "equal_texts": self.equal_texts,
            "score": model.score,
            "same_text": model.same_text,
            "tiers": model.tiers and asdict(model.tiers),
        }

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: int) -> Self:
        score = content["score"]
        if score not in ("vote", "quality"):
            raise ValueError(f"{score!r:.40} is no score of answers")
        same_text = content["same_text"]
        tiers = tiers_of(content["tiers"])
        same_text = None if same_text is None else float(same_text)
        model = PlainModel(score, k_max, same_text, tiers)
        return cls(claim, model, bool(content["equal_texts"]), float(content["level"]))
