"""Rules: what prediction runs. Thresholds, an exit level, or everything."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import joblib
import numpy as np

from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration import CalibrationData, Claim, Configuration, LearnThenTestResult
from sklearn_clm.calibration._exit_model import ConstantClassifier, ExitModel
from sklearn_clm.calibration._path import sets_at_stop
from sklearn_clm.calibration._rule import relative_excess
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.generators import Generation
from sklearn_clm.policies._open_sets import (
    DrawScores,
    ExitSets,
    OpenSets,
    Progress,
    ThresholdSets,
)

Row: TypeAlias = tuple[str, str, str]
"""What, its value, and its use."""


class Outcomes(NamedTuple):
    """What a rule gave n prompts that calibrated.

    Parameters
    ----------
    errors : tuple of (str, int)
        Sets without an admissible response, after "at most " where some were not judged.
    size, draws : ndarray of int, shape (n,)
        Members of each set; draws made for it.
    excess : ndarray of shape (n,), or None
        Share of the draws made after the first admissible one, where labels tell.
    """

    errors: tuple[str, int]
    size: np.ndarray
    draws: np.ndarray
    excess: np.ndarray | None = None

    @classmethod
    def of_thresholds(
        cls, data: CalibrationData, lambdas: Configuration, k_max: int, set_score: SetScoreLike
    ) -> "Outcomes | None":
        """Those of Algorithm 1; None where labels are unknown."""
        if data.unknown is not None:
            return None
        accepted, draws = sets_at_stop(data, lambdas, k_max, set_score)
        right = data.admissible[:, :k_max]
        first = np.where(right.any(axis=1), right.argmax(axis=1) + 1, 0)
        wrong = ~np.any(accepted & data.admissible, axis=1)
        return cls(
            ("", int(wrong.sum())), accepted.sum(axis=1), draws, relative_excess(draws, first)
        )


@dataclass(frozen=True)
class LevelResult:
    """What calibrating an exit level found.

    Parameters
    ----------
    level : float
        u-hat; -inf where none is certified.
    n_errors_allowed : int
        c, the most errors among the calibration prompts; negative where none is allowed.
    n_optimization, n_calibration : int
        Numbers of prompts in the two parts.
    size, samples : float
        Mean set size and mean number of draws of the calibration prompts at the level.
    smallest_epsilon : float
        The smallest epsilon at which these prompts calibrate; NaN where too few labels are known.
        Where nothing is certified lazily it is a bound: none below would have worked.
    n_errors : int
        Calibration prompts whose set at the level has no admissible response.
        With lazy judging, those in whose set none is known: the most that there can be.
    n_hopeless : int or None
        Calibration prompts with no admissible draw at all; None where too few labels are known.
    sizes, draws : ndarray of int
        Set size and number of draws of each calibration prompt at the level.
    n_judgements : int or None
        With lazy judging: how many responses of the calibration part were judged.
    """

    level: float
    n_errors_allowed: int
    n_optimization: int
    n_calibration: int
    size: float
    samples: float
    smallest_epsilon: float
    n_errors: int
    n_hopeless: int | None
    sizes: np.ndarray = field(compare=False, repr=False)
    draws: np.ndarray = field(compare=False, repr=False)
    n_judgements: int | None

    parts: ClassVar[tuple[str, str]] = ("learns the policy", "finds its level")

    @property
    def errors_of_choice(self) -> tuple[str, int]:
        """Errors at the level, after "at most " where not all texts were judged."""
        return "" if self.n_judgements is None else "at most ", self.n_errors

    @property
    def errors_of_safest(self) -> int | None:
        """Errors of the set of all texts, where labels tell."""
        return self.n_hopeless


@dataclass(frozen=True)
class ThresholdRule:
    """Algorithm 1 with certified thresholds.

    Parameters
    ----------
    lambda_hat : Configuration
        The chosen thresholds.
    k_max : int
        The budget chosen with them.
    result : LearnThenTestResult or None
        The tests; None for a calibration from a file.
    means : mapping of str to float
        With other losses: mean of each on the calibration part.
    """

    lambda_hat: Configuration
    k_max: int
    result: LearnThenTestResult | None = field(default=None, repr=False)
    means: dict[str, float] = field(default_factory=dict)

    certified: ClassVar[bool] = True
    heading: ClassVar[str] = "Thresholds (lambda-hat)"

    @property
    def words(self) -> str:
        """The rule in few words."""
        values = ", ".join(f"{value:.4g}" for value in self.lambda_hat)
        return f"similarity, quality, set score {values}"

    @property
    def decisive(self) -> list[object]:
        """All that decides which draws are made and which are returned."""
        return [*map(float, self.lambda_hat), self.k_max]

    @property
    def costs(self) -> tuple[float, float]:
        """Mean set size and mean draws of the calibration prompts; NaN where not known."""
        if self.result is None:
            return np.nan, np.nan
        risks, chosen = self.result.risks, self.result.position or 0
        return float(risks.size[chosen]), float(risks.samples[chosen])

    def facts(self, set_score: str) -> list[Row]:
        """What it consists of; `set_score` is the name of F."""
        l1, l2, l3 = self.lambda_hat
        return [
            ("similarity", f"{l1:.6g}", "reject a draw more similar than this to an accepted one"),
            ("quality", f"{l2:.6g}", "reject a draw of lower quality than this"),
            ("set_score", f"{l3:.6g}", f"stop once the set score {set_score} is at least this"),
            ("k_max", str(self.k_max), "stop after this many draws in any case"),
        ]

    def outcomes(self, data: CalibrationData, set_score: SetScoreLike) -> Outcomes | None:
        """What it gives the prompts that calibrated; None where labels do not tell."""
        return Outcomes.of_thresholds(data, self.lambda_hat, self.k_max, set_score)

    def open_sets(self, scores: DrawScores, claim: Claim, progress: Progress) -> OpenSets[Any]:
        """The sets of prompts before their first draw."""
        return ThresholdSets(self.lambda_hat, self.k_max, scores, claim, progress)


@dataclass(frozen=True)
class LevelRule:
    """An exit policy at a certified level.

    Parameters
    ----------
    model : ExitModel
        What was learnt on the optimisation part.
    same_text : float or None
        Similarity above which a response repeats an earlier text.
    equal_texts : bool
        Whether equal responses are one text: not where data do not tell which responses are equal.
    level : float
        u-hat.
    result : LevelResult or None
        What calibration found; None for a calibration from a file.
    """

    model: ExitModel = field(repr=False)
    same_text: float | None
    equal_texts: bool
    level: float
    result: LevelResult | None = field(default=None, repr=False)

    certified: ClassVar[bool] = True
    heading: ClassVar[str] = "Exit policy"
    lambda_hat: ClassVar[None] = None
    means: ClassVar[dict[str, float]] = {}

    @property
    def words(self) -> str:
        return f"level {self.level:.6g}"

    @property
    def costs(self) -> tuple[float, float]:
        found = self.result
        return (np.nan, np.nan) if found is None else (found.size, found.samples)

    def facts(self, set_score: str) -> list[Row]:
        use = "keep a text, and go on sampling, as long as the policy gives at least this"
        rows = [("level u-hat", f"{self.level:.6g}", use)]
        if self.result is not None:
            allowed = str(self.result.n_errors_allowed)
            rows.append(("errors allowed", allowed, "among the calibration prompts"))
        return rows

    def outcomes(self, data: CalibrationData, set_score: SetScoreLike) -> Outcomes | None:
        found = self.result
        if found is None:
            return None
        return Outcomes(found.errors_of_choice, found.sizes, found.draws)

    @property
    def k_max(self) -> int:
        return self.model.k_max

    @property
    def decisive(self) -> list[object]:
        return [self.level, self.same_text, self.equal_texts, model_content(self.model)]

    def open_sets(self, scores: DrawScores, claim: Claim, progress: Progress) -> OpenSets[Any]:
        return ExitSets(
            self.model, self.level, self.same_text, self.equal_texts, scores, claim, progress
        )


def model_content(model: ExitModel) -> dict[str, Any]:
    """An exit model as values for JSON; of classifiers that are not linear a hash alone."""
    return {
        "text": _classifier_content(model.text_classifier),
        "arrival": _classifier_content(model.arrival_classifier),
        "quality": model.quality_scale.knots.tolist(),
        "similarity": model.similarity_scale.knots.tolist(),
        "rho": model.rho,
        "k_max": model.k_max,
    }


def _classifier_content(classifier: Any) -> dict[str, Any]:
    if isinstance(classifier, ConstantClassifier):
        return {"probability": float(classifier.probability)}
    if np.shape(getattr(classifier, "coef_", ())) in ((1, 5), (1, 6)):
        return {
            "coefficients": classifier.coef_[0].tolist(),
            "intercept": float(np.ravel(classifier.intercept_)[0]),
        }
    return {"other": type(classifier).__name__, "hash": joblib.hash(classifier)}


@dataclass(frozen=True)
class Everything:
    """All draws, of which nothing is claimed: the rule where nothing is certified.

    Parameters
    ----------
    k_max : int
        The budget.
    result : LearnThenTestResult, LevelResult or None
        What was tested in vain; None where there were too few prompts for any test.
    """

    k_max: int
    result: LearnThenTestResult | LevelResult | None = field(default=None, repr=False)

    certified: ClassVar[bool] = False
    heading: ClassVar[str] = "Everything"
    words: ClassVar[str] = "all draws"
    lambda_hat: ClassVar[None] = None
    means: ClassVar[dict[str, float]] = {}

    @property
    def decisive(self) -> list[object]:
        return [self.k_max]

    @property
    def costs(self) -> tuple[float, float]:
        return float(self.k_max), float(self.k_max)

    def facts(self, set_score: str) -> list[Row]:
        return []

    def outcomes(self, data: CalibrationData, set_score: SetScoreLike) -> Outcomes | None:
        everything = Configuration(np.inf, -np.inf, np.inf)
        return Outcomes.of_thresholds(data, everything, self.k_max, set_score)

    def open_sets(self, scores: DrawScores, claim: Claim, progress: Progress) -> OpenSets[Any]:
        return ThresholdSets(None, self.k_max, scores, claim, progress)


class Certified(NamedTuple):
    """A rule, and what may be said of the sets that it makes."""

    rule: ThresholdRule | LevelRule | Everything
    claim: Claim


class SetsByRule:
    """The sets of many prompts, each by one of several rules.

    `of_prompt` says which of the parts each prompt belongs to, None that there is one alone;
    `progress` shows the number of draws.
    """

    def __init__(
        self, parts: list[OpenSets[Any]], of_prompt: Sequence[int] | None, progress: Progress
    ) -> None:
        self._parts, self._of_prompt, self._progress = parts, of_prompt, progress
        self._n_drawn = 0
        for part in parts:
            part.closed = parts[0].closed

    @property
    def sets(self) -> list[PredictionSet]:
        """The sets, once all are closed."""
        return [one for one in self._parts[0].closed if one is not None]

    def decide(self, arrived: list[tuple[int, list[Generation]]]) -> list[int]:
        """How many draws of each of these prompts are wanted, now that more have arrived."""
        if self._of_prompt is None:
            return self._parts[0].decide(arrived)
        wanted: dict[int, int] = {}
        for p, part in enumerate(self._parts):
            own = [(i, draws) for i, draws in arrived if self._of_prompt[i] == p]
            if own:
                wanted.update(zip((i for i, _ in own), part.decide(own), strict=True))
        return [wanted[i] for i, _ in arrived]

    def count_draw(self, i: int, draw: int, generation: Generation) -> None:
        """Show one draw more."""
        self._n_drawn += 1
        if not self._progress.disable:
            self._progress.set_postfix(draws=self._n_drawn, refresh=False)


Rules: TypeAlias = dict[Hashable | None, Certified]
"""The rule of each group; None is that of all prompts together."""
