"""One nested level that decides when to stop and what to return."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import HasMethods, Interval

from sklearn_clm.caching import VerdictsWanted
from sklearn_clm.calibration import (
    CalibrationData,
    ExitModel,
    critical_count,
    exit_level,
    fit_exit_model,
    judge_in_falling_order,
    relative_excess,
    smallest_epsilon,
    texts_for_exit,
)
from sklearn_clm.calibration._data import (
    check_collected,
    prompt_digests,
    refuse_common_prompts,
    refuse_missing_draws,
)
from sklearn_clm.calibration._exit_policy import ExitScores
from sklearn_clm.calibration._lazy_judging import text_of_draw, texts_of_draws
from sklearn_clm.calibration._learn_then_test import doubts_of_admission
from sklearn_clm.generators._fingerprint import digest_of
from sklearn_clm.policies._base import Policy, Request, ThresholdRule
from sklearn_clm.policies._judging import classifier_factory
from sklearn_clm.policies._sampling import AnyOpenSets, DrawScores, ExitSets, Marks

_MANY_MERGED = 0.05  # of the prompts


class ExitPolicy(Policy[ExitModel]):
    """One nested level in place of three thresholds, learnt from the optimisation part.

    After each draw a classifier gives the probability that each distinct text is admissible and
    none of higher quality is, and another one the chance that a first admissible text arrives
    within the next draws. A single level then decides what is in the set and when sampling ends:
    when it is sure, and also when it is hopeless. See :mod:`sklearn_clm.calibration` for the
    definition and the proof.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``, default=None
        Cloned for both probabilities. None is a logistic regression with ``C=1``. Its features
        are the share of a text among the draws, how far that is above the next text's, its
        largest quality and the share of texts of higher quality, its mean similarity to other
        draws, and the number of draws.
    look_ahead : int, default=4
        How many draws ahead an admissible text is waited for, >= 1.
    same_text : float, default=None
        Responses whose similarity to the first response of an earlier text is above this count as
        repetitions of that text: they share its features, and the set shows its first response,
        by whose label it is judged. None: only equal responses are one text.
    draw_price : float, default=0.05
        Price of a draw against that of a member of the set, >= 0, when the balance of the two
        probabilities is chosen on the optimisation part. It is added to the sampler's
        `draw_weight`, and shapes the policy alone, never the guarantee.

    Attributes
    ----------
    model_ : ExitModel
        What was learnt. A policy that is fitted on other data is used as it is, and all prompts
        calibrate its level; it is refused where its parameters were changed since.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import ExitPolicy
    >>> sampler = ConformalSampler(policy=ExitPolicy(look_ahead=2))
    >>> sampler.set_params(policy__look_ahead=3).policy
    ExitPolicy(look_ahead=3)
    """

    kind: ClassVar[str] = "an exit policy"
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "estimator": [None, HasMethods(["fit", "predict_proba"])],
        "look_ahead": [Interval(Integral, 1, None, closed="left")],
        "same_text": [None, Interval(Real, None, None, closed="neither")],
        "draw_price": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        look_ahead: int = 4,
        same_text: float | None = None,
        draw_price: float = 0.05,
    ) -> None:
        self.estimator = estimator
        self.look_ahead = look_ahead
        self.same_text = same_text
        self.draw_price = draw_price

    def fit(
        self,
        data: CalibrationData,
        first: np.ndarray,
        *,
        labels: np.ndarray | None = None,
        epsilon: float = 0.3,
        size_weight: float = 0.5,
        excess_weight: float = 0.5,
        draw_weight: float = 0.0,
        random_state: int = 0,
    ) -> Self:
        """Learn the probabilities from labelled draws.

        Parameters
        ----------
        data : CalibrationData
            Draws of prompts that will not calibrate.
        first : ndarray of int, shape (n, K)
            Draw in which each draw's text occurs first, see
            :func:`sklearn_clm.calibration.equal_texts`.
        labels : ndarray of int8, shape (n, K), default=None
            1, 0, or -1 for unknown. None are the labels of `data`.
        epsilon : float, default=0.3
            Risk for which the balance of both probabilities is chosen, in (0, 1).
        size_weight, excess_weight, draw_weight : float
            Weights of the mean set size, the mean excess and the mean number of draws.
        random_state : int, default=0
            Seed of the folds.

        Returns
        -------
        ExitPolicy
            Itself.
        """
        self._validate_params()
        check_collected(data)
        refuse_missing_draws(data)
        shape = (data.n_prompts, data.k_max)
        labels = data.labels if labels is None else labels
        for name, array in (("first", first), ("labels", labels)):
            if np.shape(array) != shape:
                raise ValueError(
                    f"{name} must have shape {shape} like the draws of data, got "
                    f"{type(array).__name__} of shape {np.shape(array)} instead."
                )
        price = draw_weight + self.draw_price

        def cost(sizes: np.ndarray, samples: np.ndarray, arrived: np.ndarray) -> float:
            return float(
                size_weight * np.mean(sizes)
                + excess_weight * np.mean(relative_excess(samples, arrived))
                + price * np.mean(samples)
            )

        model: ExitModel = fit_exit_model(
            data.quality,
            data.similarity,
            self.texts(data.similarity, first),
            labels,
            new_classifier=classifier_factory(self.estimator),
            epsilon=epsilon,
            look_ahead=self.look_ahead,
            cost=cost,
            random_state=random_state,
        )
        self.model_ = replace(model, seen=prompt_digests(data))
        self._fitted_with = self._parameters()
        return self

    def _parameters(self) -> dict[str, str]:
        """Digests of the parameters, by name."""
        params = self.get_params(deep=False)
        # what the estimator itself has learnt is not looked at
        params["estimator"] = clone(self.estimator, safe=False)
        return {name: digest_of(type(self), {name: value}) for name, value in params.items()}

    def texts(self, similarity: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Draw in which each draw's text occurs first, near duplicates counted as one.

        Parameters
        ----------
        similarity : ndarray of shape (n, K, K)
        first : ndarray of int, shape (n, K)
            The same for equal responses.

        Returns
        -------
        ndarray of int, shape (n, K)
        """
        return texts_of_draws(similarity, first, self.same_text)

    @property
    def path(self) -> ExitModel | None:
        """What was learnt on other data."""
        return getattr(self, "model_", None)

    def refuse(self, k_max: int | Sequence[int], guarantee: str, risks: str | None) -> None:
        if risks is not None:
            raise ValueError(
                f"policy must be one of thresholds with {risks}, got an exit policy instead: its "
                "level is an order statistic of admissible texts, which knows no other loss and "
                "no weights."
            )
        if np.size(k_max) > 1:
            raise ValueError(
                f"k_max must be one integer with an exit policy, got {k_max!r} instead."
            )
        if self.path is not None and self.path.k_max != np.max(k_max):
            raise ValueError(
                f"policy must be fitted with k_max={np.max(k_max)} draws, got one fitted with "
                f"{self.path.k_max} instead."
            )
        if hasattr(self, "_fitted_with"):
            now = self._parameters()
            changed = [name for name, then in self._fitted_with.items() if now[name] != then]
            if changed:
                raise ValueError(
                    "policy must have the parameters that it was fitted with, got another "
                    f"{' and '.join(changed)} instead; fit it again, or give an ExitPolicy that "
                    "is not fitted, which the sampler fits on prompts of its own."
                )

    def refuse_path(self, path: ExitModel, data: CalibrationData, request: Request) -> None:
        refuse_common_prompts("a fitted policy", path.seen, data)

    def search(self, part: CalibrationData, rows: np.ndarray, request: Request) -> ExitModel:
        labels = part.labels
        if request.judging is not None:
            texts = self.texts(part.similarity, part.first)
            shown = texts == np.arange(part.k_max)
            table = request.search_table(texts, np.where(shown, labels, -1), rows)
            estimated = request.judging.labels(part, texts, table)
            labels = table.labels
            if not (labels >= 0).any():
                labels = estimated.astype(np.int8)
        learner = ExitPolicy(**self.get_params(deep=False))
        learner.fit(part, part.first, labels=labels, epsilon=request.epsilon, **request.weights)
        return learner.model_

    def test(
        self,
        data: CalibrationData,
        seen: np.ndarray,
        rows: np.ndarray,
        path: ExitModel,
        request: Request,
    ) -> "ExitResult":
        drawn = request.drawn(data, rows)
        part = data.take(rows) if drawn is None else drawn.data
        n, epsilon, delta = part.n_prompts, request.epsilon, request.delta
        scores, last = ExitScores(path, n), np.full(n, np.inf)
        texts = np.tile(np.arange(part.k_max), (n, 1))
        first = part.first

        def advance(prompts: np.ndarray) -> None:
            """Make the next draw of each of some prompts, where it is missing, and look at it."""
            k = scores.n_draws[prompts]
            if drawn is not None and part.n_draws is not None:
                drawn.draw(prompts[part.n_draws[prompts] <= k])
            for draw in np.unique(k):
                rows = prompts[k == draw]
                quality, similarity = part.quality[rows, draw], part.similarity[rows, draw]
                texts[rows, draw] = text_of_draw(
                    texts[rows, :draw], first[rows, draw], similarity, self.same_text
                )
                scores.update(rows, quality, similarity, texts[rows, draw])
            last[prompts] = scores.last[prompts]

        if drawn is None:
            for _ in range(part.k_max):
                advance(np.arange(n))
        pac = request.guarantee == "pac"
        allowed = errors_allowed(n, epsilon, delta, request.guarantee)
        # a repetition is judged by the response that stands for its text
        labels = np.where(texts == np.arange(part.k_max), request.labels(data, rows), -1)
        table = request.table(texts, labels, rows)
        try:
            witnessed = judge_in_falling_order(scores.tau, allowed, table, exits=last, draw=advance)
        except VerdictsWanted as error:
            # what further draws can reach is at most the last exit
            unknown = (texts == np.arange(part.k_max)) & (scores.tau == -np.inf)
            reached = np.where(unknown, last[:, np.newaxis], scores.tau)
            left = texts_for_exit(reached, allowed, table)
            raise request.wanted(error, left, rows) from None
        level = exit_level(witnessed, allowed)
        shown = texts == np.arange(part.k_max)
        # as many draws as predict would make, which the mean size and draws are of
        while level > -np.inf and len(waiting := np.flatnonzero(last >= level)):
            advance(waiting)
        smallest, hopeless = np.nan, None
        if request.verdicts is None or level == -np.inf:
            hopeless = int(np.sum(~np.any(shown & (table.labels != 0), axis=1)))
            smallest = min((hopeless + 1) / (n + 1), 1.0)
            if pac:
                smallest = float(smallest_epsilon(hopeless, n, delta))
        inside = scores.tau >= level
        right = np.any(inside & (table.labels == 1), axis=1)
        if level == -np.inf and request.verdicts is None:
            right = part.admissible.any(axis=1)  # predict returns all draws, like texts or not
        sizes, draws = inside.sum(axis=1), 1 + np.sum(scores.exits[:, :-1] >= level, axis=1)
        return ExitResult(
            model=path,
            same_text=self.same_text,
            equal_texts=data.texts is not None,
            level=level,
            guarantee=request.guarantee,
            epsilon=float(epsilon),
            delta=float(delta),
            n_errors_allowed=allowed,
            n_optimization=len(seen),
            n_calibration=n,
            size=float(sizes.mean()),
            samples=float(draws.mean()),
            smallest_epsilon=smallest,
            n_errors=n - int(right.sum()),
            n_hopeless=hopeless,
            sizes=sizes,
            draws=draws,
            n_judgements=None if request.verdicts is None else table.n_judgements,
        )

    def __sklearn_clone__(self) -> Self:
        # a policy that was fitted on other data stays so, as a frozen estimator does
        copy = type(self)(**self.get_params(deep=False))
        if self.estimator is not None:
            copy.estimator = clone(self.estimator)
        if hasattr(self, "_fitted_with"):
            copy.model_, copy._fitted_with = self.model_, self._fitted_with
        return copy


def errors_allowed(n: int, epsilon: float, delta: float, guarantee: str) -> int:
    """With how many errors among n calibration prompts a level is certified; -1 is none."""
    if guarantee == "pac":
        return int(critical_count(n, epsilon, delta))
    return int(np.floor((n + 1) * epsilon)) - 1


@dataclass(frozen=True)
class ExitResult:
    """What calibrating an exit policy found.

    Parameters
    ----------
    model : ExitModel
        What was learnt on the optimisation part.
    same_text : float or None
        Similarity above which a response repeats an earlier text.
    equal_texts : bool
        Whether equal responses are one text: not where data do not tell which responses are equal.
    level : float
        u-hat; -inf for null.
    guarantee : {"pac", "marginal"}
        What the level promises.
    epsilon, delta : float
        Tolerated risk, and tolerated probability of exceeding it, which has no part in a marginal
        guarantee.
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

    model: ExitModel = field(repr=False)
    same_text: float | None
    equal_texts: bool
    level: float
    guarantee: str
    epsilon: float
    delta: float
    n_errors_allowed: int
    n_optimization: int
    n_calibration: int
    size: float
    samples: float
    smallest_epsilon: float
    n_errors: int | None = None
    n_hopeless: int | None = None
    sizes: np.ndarray | None = field(default=None, compare=False, repr=False)
    draws: np.ndarray | None = field(default=None, compare=False, repr=False)
    n_judgements: int | None = None

    kind: ClassVar[str] = "an exit policy"

    @property
    def k_max(self) -> int:
        """The budget in force."""
        return self.model.k_max

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed; False for null."""
        return self.level > -np.inf

    def why_null(self, subject: str = "Calibration") -> str | None:
        """Why nothing is certified, and what would help.

        Parameters
        ----------
        subject : str
            What is null.

        Returns
        -------
        str or None
            None if something is certified.
        """
        if self.certified:
            return None
        smallest = math.ceil(self.smallest_epsilon * 1e4) / 1e4
        delta = f", delta={self.delta:g}" if self.guarantee == "pac" else ""
        hopeless = self.n_hopeless or 0
        # lazily, what was not judged may be right
        lazily = self.n_judgements is not None
        lacking = hopeless if lazily or self.n_errors is None else self.n_errors
        doubts = doubts_of_admission(lacking / self.n_calibration)
        if hopeless - lacking > _MANY_MERGED * self.n_calibration:
            doubts = (
                f"For {hopeless - lacking} prompts a draw is admissible, but same_text="
                f"{self.same_text:g} takes it for the same text as an earlier one that is not: "
                "give a similarity that tells them apart, a larger same_text, or None."
            )
        return (
            f"{subject} is null: no exit level is certified at epsilon={self.epsilon:g}{delta} "
            f"with {self.n_calibration} calibration prompts. The smallest epsilon that would have "
            f"worked is {smallest:g}."
            f"{f' {doubts}' if doubts else ''}"
        )

    def open_sets(self, scores: DrawScores, marks: Marks) -> AnyOpenSets:
        """The sets of prompts before their first draw.

        Parameters
        ----------
        scores : DrawScores
            Scores of their draws.
        marks : Marks
            What each set says of itself.

        Returns
        -------
        OpenSets
            All draws where nothing is certified.
        """
        if not self.certified:
            return ThresholdRule(None, self.k_max).open_sets(scores, marks)
        return ExitSets(self.model, self.level, self.same_text, self.equal_texts, scores, marks)
