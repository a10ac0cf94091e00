"""Rules: what prediction runs. Thresholds, an exit level, or everything, which is null."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import joblib
import numpy as np

from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration import (
    Claim,
    Configuration,
    ExitModel,
    LearnThenTestResult,
)
from sklearn_clm.calibration._exit_model import ConstantClassifier
from sklearn_clm.generators import Generation
from sklearn_clm.policies._open_sets import (
    DrawScores,
    ExitSets,
    OpenSets,
    Progress,
    ThresholdSets,
)

AnyOpenSets: TypeAlias = OpenSets  # type: ignore[type-arg]


class Rule(Protocol):
    """How sampling stops and what is returned."""

    @property
    def k_max(self) -> int:
        """The budget in force."""

    @property
    def decisive(self) -> list[object]:
        """All that decides which draws are made and which are returned."""

    def open_sets(self, scores: DrawScores, claim: Claim, progress: Progress) -> AnyOpenSets:
        """The sets of prompts before their first draw."""


@dataclass(frozen=True)
class LevelResult:
    """What calibrating an exit level found.

    Parameters
    ----------
    level : float
        u-hat; -inf for null.
    n_errors_allowed : int
        c, the most errors among the calibration prompts; negative where none is allowed.
    n_optimization, n_calibration : int
        Numbers of prompts in the two parts.
    size, samples : float
        Mean set size and mean number of draws of the calibration prompts at the level.
    smallest_epsilon : float
        The smallest epsilon at which these prompts calibrate; NaN where too few labels are known.
    n_errors : int or None
        Calibration prompts whose set at the level has no admissible response; None from a file.
        With lazy judging, those in whose set none is known: the most that there can be.
    n_hopeless : int or None
        Calibration prompts with no admissible draw at all; None where too few labels are known.
    sizes, draws : ndarray of int or None
        Set size and number of draws of each calibration prompt at the level; None from a file.
    n_judgements : int or None
        With lazy judging: how many responses of the calibration part were judged.
    """

    level: float
    n_errors_allowed: int
    n_optimization: int
    n_calibration: int
    size: float
    samples: float
    smallest_epsilon: float = np.nan
    n_errors: int | None = None
    n_hopeless: int | None = None
    sizes: np.ndarray | None = field(default=None, compare=False, repr=False)
    draws: np.ndarray | None = field(default=None, compare=False, repr=False)
    n_judgements: int | None = None


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

    @property
    def decisive(self) -> list[object]:
        return [*map(float, self.lambda_hat), self.k_max]

    def open_sets(self, scores: DrawScores, claim: Claim, progress: Progress) -> AnyOpenSets:
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
    lambda_hat: ClassVar[None] = None

    @property
    def k_max(self) -> int:
        return self.model.k_max

    @property
    def decisive(self) -> list[object]:
        return [self.level, self.same_text, self.equal_texts, model_facts(self.model)]

    def open_sets(self, scores: DrawScores, claim: Claim, progress: Progress) -> AnyOpenSets:
        return ExitSets(
            self.model, self.level, self.same_text, self.equal_texts, scores, claim, progress
        )


def model_facts(model: ExitModel) -> list[object]:
    """What tells an exit model from others."""
    facts: list[object] = [model.rho, model.k_max]
    facts += [scale.knots.tolist() for scale in (model.quality_scale, model.similarity_scale)]
    for classifier in (model.text_classifier, model.arrival_classifier):
        if isinstance(classifier, ConstantClassifier):
            facts.append(classifier.probability)
        elif hasattr(classifier, "coef_"):
            linear: Any = classifier
            facts.append([*np.ravel(linear.coef_).tolist(), *np.ravel(linear.intercept_).tolist()])
        else:
            facts.append(joblib.hash(classifier))
    return facts


@dataclass(frozen=True)
class Everything:
    """All draws, of which nothing is claimed: the rule of a null calibration.

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
    lambda_hat: ClassVar[None] = None

    @property
    def decisive(self) -> list[object]:
        return [self.k_max]

    def open_sets(self, scores: DrawScores, claim: Claim, progress: Progress) -> AnyOpenSets:
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
        self, parts: list[AnyOpenSets], of_prompt: Sequence[int] | None, progress: Progress
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
