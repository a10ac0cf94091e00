"""ExitPolicy: one nested level stops sampling and chooses members."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from sklearn_clm._exceptions import naming_parameters
from sklearn_clm.calibration import CalibrationData, Claim
from sklearn_clm.calibration._holes import completed
from sklearn_clm.calibration._texts import same_text_of, texts_of_draws
from sklearn_clm.calibration.checks import check_level
from sklearn_clm.calibration.data import check_data, prompt_digests
from sklearn_clm.calibration.exit_model import (
    ExitModel,
    fit_exit_model,
    impute_labels,
)
from sklearn_clm.calibration.exit_policy import ExitEntries, ExitRule, LevelPath
from sklearn_clm.calibration.outcome import Outcome, SafestStep
from sklearn_clm.calibration.rows import Part
from sklearn_clm.calibration.set_scores import SetScoreLike
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tests import BettingTest, NestedTest
from sklearn_clm.calibration.tiers import Tiers, check_tiers
from sklearn_clm.calibration.vote import PlainRule
from sklearn_clm.policies._classifiers import classifier_factory
from sklearn_clm.policies._exit_files import model_from_json, model_to_json
from sklearn_clm.policies.base import Policy
from sklearn_clm.policies.batched import BatchedExit, DrawScores
from sklearn_clm.policies.judging import Judging
from sklearn_clm.policies.rules import Expected, Fact, Rule, SetCounts, SetRule

_TEACHING_SHARE = 1 / 5  # of the prompts ...
_ENOUGH_PROMPTS = 60  # ... and of few so many, to learn from


@dataclass(frozen=True)
class LevelRule(SetRule):
    """An exit policy at a certified level."""

    claim: Claim
    model: ExitModel = field(repr=False)
    equal_texts: bool  # not where data do not tell which responses are equal
    level: float  # u-hat
    outcome: Outcome | None = field(default=None, repr=False)
    shares_of_draws: tuple[float, ...] = field(default=(), compare=False, repr=False)
    tested: SetCounts | None = field(default=None, compare=False, repr=False)

    kind: ClassVar[str] = "exit level"
    heading: ClassVar[str] = "Exit policy"
    lambda_hat: ClassVar[None] = None  # type: ignore[misc]
    advice_on_holes: ClassVar[str] = " Where draws end early thresholds often do (ThresholdPolicy)."

    @property
    def k_max(self) -> int:  # type: ignore[override]
        return self.model.k_max

    @property
    def words(self) -> str:
        return f"level {self.level:.6g}"

    @property
    def keeps_all(self) -> bool:
        # below all chances everything is kept, draws that lack as well
        return self.level < 0.0

    @property
    def costs(self) -> tuple[float, float]:
        outcome = self.outcome
        return (np.nan, np.nan) if outcome is None else (outcome.size, outcome.samples)

    def facts(self, set_score: str) -> list[Fact]:
        use = "keep a text, and go on sampling, as long as the policy gives at least this"
        rows = [("level u-hat", f"{self.level:.6g}", use)]
        if self.model.same_text is not None:
            alike = "similarity above which a response counts as an earlier one"
            rows.append(("same text", f"{self.model.same_text:.4g}", alike))
        if self.outcome is not None and self.outcome.audit is None:
            allowed = str(self.outcome.n_errors_allowed)
            rows.append(("errors allowed", allowed, "among the calibration prompts"))
        return rows + self.costs_of_tiers()

    def costs_of_tiers(self) -> list[Fact]:
        """What draws of each tier cost the calibration prompts."""
        tiers = self.model.tiers
        if tiers is None or not self.shares_of_draws:
            return []
        tier_of_draw = tiers.of_draw[: self.k_max]  # a budget may end within a tier
        # the mean number of draws is the sum over k of the shares that took draw k
        share_taking = np.array(self.shares_of_draws)
        rows = []
        total_price = 0.0
        for tier, price in enumerate(tiers.prices):
            is_of_tier = tier_of_draw == tier
            mean_draws = float(np.sum(share_taking[is_of_tier]))
            total_price += price * mean_draws
            use = f"for a prompt, of at most {int(np.sum(is_of_tier))}, at {price:g} each"
            rows.append((f"draws of generator {tier + 1}", f"{mean_draws:.3g}", use))
        most_of_all = f"for a prompt, of at most {tiers.price_of(self.k_max):g}"
        return [*rows, ("price", f"{total_price:.3g}", most_of_all)]

    def expected(self, data: CalibrationData, set_score: SetScoreLike) -> Expected | None:
        outcome = self.outcome
        if outcome is None or not outcome.stops_known:
            return None
        return Expected(outcome.errors, {"size": outcome.sizes, "draws": outcome.draws})

    def batched(self, scores: DrawScores) -> BatchedExit:
        return BatchedExit(self, scores)

    def shown(self, data: CalibrationData, set_score: SetScoreLike) -> np.ndarray:
        rows = np.arange(data.n_prompts)
        return ExitEntries(Table(data), rows, self.model).tau >= self.level

    def stopping(self) -> ExitRule | PlainRule:
        """What decides on one prompt, before its first draw."""
        return ExitRule(self.level, self.model.rho, self.k_max)

    def content(self) -> dict[str, Any]:
        return {
            "level": float(self.level),
            "equal_texts": self.equal_texts,
            "model": model_to_json(self.model),
        }

    @classmethod
    def of_content(cls, claim: Claim, content: dict[str, Any], k_max: int) -> Self:
        return cls(
            claim,
            model_from_json(content["model"], k_max),
            bool(content["equal_texts"]),
            float(content["level"]),
        )


def share_that_teaches(n_prompts: int, share: float, n_enough: int) -> float:
    """Share of prompts that teach: of few prompts more."""
    # beyond a few, a prompt that finds the level saves more than one that teaches
    return min(max(share, n_enough / n_prompts), 1 / 3)


class ExitPolicy(Policy[ExitModel, LevelPath, NestedTest]):
    """One nested level, learnt, in place of three thresholds.

    After each draw classifiers give the probability that each distinct text is admissible, that it
    is so and none ranked above it, and that a first admissible text arrives within the next draws.
    A single level then decides what is in the set and when sampling ends: when it is sure, and also
    when it is hopeless.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``, default=None
        Cloned for all probabilities. None is a logistic regression. Its features are the share of a
        text among the draws, its quality and similarity to other draws, both against those of other
        texts, and the number of draws.
    guarantee : {"pac", "marginal"}, default="pac"
        "pac" holds with confidence 1 - delta; "marginal" on average over calibration prompts and
        new prompts together, a weaker promise with smaller sets, in which calibrations that certify
        nothing count as right.
    look_ahead : int, default=4
        How many draws ahead an admissible text is waited for, >= 1.
    same_text : float, "auto" or None, default="auto"
        Similarity above which a response counts as a repetition of an earlier text, whose first
        response is shown and judged. "auto" learns from labels above which similarity they agree,
        and takes none where they do not. None: only equal responses are one text.
    draw_price : float or "auto", default="auto"
        Price of a draw, >= 0, where that of a response shown is 1; of a cascade that of a draw of
        price 1. It shapes the policy, never the guarantee. "auto" is 0.1, and 0.25 for a cascade.

    Attributes
    ----------
    model_ : ExitModel
        What was learnt by :meth:`fit`: it is used as it is, and all prompts calibrate.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import ExitPolicy
    >>> sampler = ConformalSampler(policy=ExitPolicy(look_ahead=2))
    >>> sampler.set_params(policy__look_ahead=3).policy
    ExitPolicy(look_ahead=3)
    """

    rule: ClassVar[type[Rule]] = LevelRule
    early_ends: Literal["none", "own", "any"] = "own"
    _learnt_as: ClassVar[str] = "model_"
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "estimator": [None, HasMethods(["fit", "predict_proba"])],
        "guarantee": [StrOptions({"pac", "marginal"})],
        "look_ahead": [Interval(Integral, 1, None, closed="left")],
        "same_text": [None, StrOptions({"auto"}), Interval(Real, None, None, closed="neither")],
        "draw_price": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
    }

    @naming_parameters
    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        guarantee: Literal["pac", "marginal"] = "pac",
        look_ahead: int = 4,
        same_text: float | str | None = "auto",
        draw_price: float | str = "auto",
    ) -> None:
        self.estimator = estimator
        self.guarantee = guarantee
        self.look_ahead = look_ahead
        self.same_text = same_text
        self.draw_price = draw_price

    def fit(
        self, data: CalibrationData, *, epsilon: float = 0.3, tiers: Tiers | None = None
    ) -> Self:
        """Learn the probabilities from draws, with labels or without.

        Parameters
        ----------
        data : CalibrationData
            Draws of prompts that will not calibrate. Where some labels are unknown, these are
            estimated, as with lazy judging. Where none is known, the last draw of each prompt
            stands for its reference, which tells nothing where texts do not repeat.
        epsilon : float, default=0.3
            Risk for which the balance of both probabilities is chosen, in (0, 1).
        tiers : Tiers, default=None
            Prices of the draws: ``generator.tiers`` of a :class:`CascadeGenerator`.

        Returns
        -------
        ExitPolicy
            Itself.
        """
        self._validate_params()
        check_data(data, draws=False, labels=False)
        check_level(epsilon, "epsilon")
        if data.n_made < data.quality.size:
            data = completed(data)
        check_tiers(tiers, data.k_max)
        data = data.take(data.order())  # folds, and rounded sums, go by the order of rows

        # values of "auto": prices of a cascade are relative to its cheapest draws
        draw_price = self.draw_price
        if isinstance(draw_price, str):
            draw_price = 0.1 if tiers is None else 0.25
        labels = data.labels
        same_text = self.same_text
        if isinstance(same_text, str):
            same_text = same_text_of(data.similarity, data.first, labels)

        # near copies are one text, whose labels are known or estimated; where there is no label at
        # all, the model takes last draws for references
        texts = texts_of_draws(data.similarity, data.first, same_text)
        some_are_judged = bool(np.any(labels >= 0))
        if some_are_judged and np.any(labels < 0):
            estimator = classifier_factory(self.estimator)
            labels = impute_labels(data, texts, labels, estimator).astype(np.int8)
        learnt = data.with_labels(labels)
        learnt.texts = texts
        model = fit_exit_model(
            learnt,
            new_classifier=classifier_factory(self.estimator, solver="newton-cholesky"),
            epsilon=epsilon,
            look_ahead=self.look_ahead,
            draw_price=draw_price,
            tiers=tiers,
        )
        self.model_ = replace(model, same_text=same_text, seen=prompt_digests(data))
        return self

    def refuse(self, k_max: int | Sequence[int], judging: str | Judging = "all") -> None:
        super().refuse(k_max, judging)
        risk = self.risk
        # the level is the V of one witness, of every prompt alike: the proof knows no other
        if not risk.one_witness_decides or not risk.counts_all or risk.has_costs:
            raise TypeError(
                f"risk must be that of misses for an exit level, got {type(risk).__name__} instead."
            )

    def texts(self, table: Table, rows: np.ndarray) -> np.ndarray:
        """First draw of each text, near duplicates counted as one."""
        threshold = self.same_text if self.learnt is None else self.model_.same_text
        # "auto" is learnt from labels: until there are some, equal responses alone are one text
        same_text = None if isinstance(threshold, str) else threshold
        return texts_of_draws(table.data.similarity[rows], table.texts[rows], same_text)

    def searched_share(self, n_prompts: int) -> float:
        return share_that_teaches(n_prompts, _TEACHING_SHARE, _ENOUGH_PROMPTS)

    def search(self, table: Table, rows: np.ndarray, claim: Claim, judging: Judging) -> ExitModel:
        # those that were judged: `fit` estimates the others once it knows which texts are copies
        _, labels = judging.labels(table, rows, self.texts(table, rows))
        # the parameter object stays as the user gave it
        learner = ExitPolicy(**self.get_params(deep=False))
        part = table.part(rows).with_labels(labels)
        return learner.fit(part, epsilon=claim.level, tiers=table.tiers).model_

    def path_on(self, learnt: ExitModel, table: Table, part: Part, rows: np.ndarray) -> LevelPath:
        # its steps join as they are asked for: at first the level that the test finds
        return LevelPath(table, rows, learnt)

    def learnt_of(self, path: LevelPath) -> ExitModel:
        return path.model  # of which people find the level anew

    def test_of(self, path: LevelPath, claim: Claim) -> NestedTest:
        return NestedTest(path.entries, claim.level, claim.delta, self.guarantee)

    def certify(
        self, path: LevelPath, test: NestedTest, other_tests: list[BettingTest], part: Part
    ) -> Outcome:
        # any level in the gap below u-hat decides the same on these prompts, and errs no more
        level = path.entries.below(test.highest())
        step = path.step_at(level)
        passed = level > -np.inf
        path.finish(step)

        # a prompt without an admissible text errs at every level: how many there are tells the
        # smallest risk that could have been certified; where a level has passed lazily, too few
        # labels are known to count them
        safest = None
        smallest = np.nan
        if not path.table.is_lazy or not passed:
            entries = path.entries
            # lazily, a text that was not judged may be right: only prompts all of whose texts were
            # judged wrong are counted
            errs_always = entries.hopeless if path.table.is_lazy else entries.without_witness
            n_err_always = int(errs_always.sum())
            smallest = test.smallest_level(n_err_always)
            if not path.table.has_holes:
                safest = SafestStep(n_err_always)
        return Outcome.at(
            path,
            self.risk,
            step,
            passed=passed,
            n_errors_allowed=test.n_allowed,
            safest=safest,
            smallest_level=smallest,
        )

    def rule_at(self, path: LevelPath, outcome: Outcome, claim: Claim) -> LevelRule:
        return LevelRule(claim, path.model, path.table.knows_texts, path.levels[0])
