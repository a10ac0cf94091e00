"""One nested level that decides when to stop and what to return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import HasMethods, Interval

from sklearn_clm.calibration import (
    CalibrationData,
    ExitModel,
    LabelTable,
    critical_count,
    exit_level,
    fit_exit_model,
    judge_in_falling_order,
    smallest_epsilon,
)
from sklearn_clm.calibration._data import (
    RandomState,
    check_collected,
    prompt_digests,
    refuse_common_prompts,
    split_positions,
)
from sklearn_clm.calibration._exit_policy import (
    ARRIVAL_FEATURES,
    TEXT_FEATURES,
    Classifier,
    ConstantClassifier,
    ScoreScale,
)
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.policies._judging import LazyJudging, Verdicts, classifier_factory

__all__ = ["ExitPolicy", "ExitResult", "calibrate_exit", "model_from_json", "model_to_json"]


class ExitPolicy(BaseEstimator):
    """One nested level in place of three thresholds, learnt from the optimisation part.

    After each draw a classifier gives the probability that each distinct text is admissible, and
    another one the chance that a first admissible text arrives within the next draws. A single
    level then decides what is in the set and when sampling ends: when it is sure, and also when
    it is hopeless. See :mod:`sklearn_clm.calibration` for the definition and the proof.

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
        calibrate its level.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import ExitPolicy
    >>> sampler = ConformalSampler(policy=ExitPolicy(look_ahead=2))
    >>> sampler.set_params(policy__look_ahead=3).policy
    ExitPolicy(look_ahead=3)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
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
            :func:`~sklearn_clm.calibration.equal_texts`.
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
            late = np.where(arrived > 0, np.maximum(samples - arrived, 0), 0) / samples
            return float(
                size_weight * np.mean(sizes)
                + excess_weight * np.mean(late)
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
        return self

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
        if self.same_text is None:
            return first
        texts = np.array(first)
        for j in range(1, first.shape[1]):
            new = first[:, j] == j
            for earlier in range(j - 1, -1, -1):
                # the earliest text that is similar enough; clusters do not chain
                own = texts[:, earlier] == earlier
                alike = similarity[:, j, earlier].astype(np.float64) > self.same_text
                texts[:, j] = np.where(new & own & alike, earlier, texts[:, j])
            repeated = ~new
            texts[repeated, j] = texts[repeated, first[repeated, j]]
        return texts

    def __sklearn_clone__(self) -> Self:
        # a policy that was fitted on other data stays so, as a frozen estimator does
        copy = type(self)(**self.get_params(deep=False))
        if self.estimator is not None:
            copy.estimator = clone(self.estimator)
        if hasattr(self, "model_"):
            copy.model_ = self.model_
        return copy


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
    n_judgements : int or None
        With lazy judging: how many responses of the calibration part were judged.
    """

    model: ExitModel
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
    n_judgements: int | None = None


def calibrate_exit(
    policy: ExitPolicy,
    data: CalibrationData,
    *,
    epsilon: float,
    delta: float,
    guarantee: str,
    weights: Weights,
    optimization_fraction: float,
    random_state: RandomState,
    judging: LazyJudging | None = None,
    verdicts: Verdicts | None = None,
) -> ExitResult:
    """Learn an exit policy and calibrate its level.

    Parameters
    ----------
    policy : ExitPolicy
        A policy that is fitted on other data is used as it is; all prompts then calibrate.
    data : CalibrationData
        The draws.
    epsilon, delta : float
        Tolerated risk, and tolerated probability of exceeding it.
    guarantee : {"pac", "marginal"}
        Whether the risk is bounded with confidence 1 - delta over the calibration prompts, or on
        average over calibration and new prompts together.
    weights : mapping
        `size_weight`, `excess_weight` and `draw_weight`.
    optimization_fraction : float
        Part of the prompts that the policy is learnt from.
    random_state : int, Generator, RandomState or None
        Source of the split.
    judging : LazyJudging, default=None
        How labels are asked for; None where `data` has them all.
    verdicts : Verdicts, default=None
        Whom to ask.

    Returns
    -------
    ExitResult
        Null where its level is -inf.
    """
    everyone = np.arange(data.n_prompts)
    nobody = everyone[:0]
    learnt = getattr(policy, "model_", None)
    if learnt is not None and learnt.k_max != data.k_max:
        raise ValueError(
            f"policy must be fitted with k_max={data.k_max} draws, got one fitted with "
            f"{learnt.k_max} instead."
        )
    if learnt is not None:
        refuse_common_prompts("a fitted policy", learnt.seen, data)
    optimization, calibration = (
        split_positions(data.n_prompts, optimization_fraction, random_state)
        if learnt is None
        else (nobody, everyone)
    )
    if learnt is None:
        part = data.take(optimization)
        labels = part.labels
        if judging is not None and verdicts is not None:
            table = LabelTable(part.first, verdicts.of_rows(optimization), labels)
            estimated = judging.labels(part, part.first, table)
            labels = table.labels
            if not (labels >= 0).any():
                labels = estimated.astype(np.int8)
        learnt = (
            ExitPolicy(**policy.get_params(deep=False))
            .fit(part, part.first, labels=labels, epsilon=epsilon, **weights)
            .model_
        )
    part = data.take(calibration)
    n = part.n_prompts
    texts = policy.texts(part.similarity, part.first)
    tau, exits = learnt.scores(part.quality, part.similarity, texts)
    if guarantee == "pac":
        allowed = int(critical_count(n, epsilon, delta))
    else:
        allowed = int(np.floor((n + 1) * epsilon)) - 1
    # a repetition is judged by the response that stands for its text
    shown = texts == np.arange(part.k_max)
    table = LabelTable(
        texts,
        _unasked if verdicts is None else verdicts.of_rows(calibration),
        np.where(shown, part.labels, -1),
    )
    level = exit_level(judge_in_falling_order(tau, allowed, table), allowed)
    hopeless = ~np.any(shown & (table.labels != 0), axis=1)
    settled = verdicts is None or level == -np.inf
    n_errors = int(hopeless.sum())
    smallest = (
        float(smallest_epsilon(n_errors, n, delta))
        if guarantee == "pac"
        else min((n_errors + 1) / (n + 1), 1.0)
    )
    return ExitResult(
        learnt,
        policy.same_text,
        data.texts is not None,
        level,
        guarantee,
        float(epsilon),
        float(delta),
        allowed,
        len(optimization),
        n,
        float(np.sum(tau >= level, axis=1).mean()),
        float(1 + np.sum(exits[:, :-1] >= level, axis=1).mean()),
        smallest if settled else np.nan,
        None if verdicts is None else table.n_judgements,
    )


def _unasked(prompts: np.ndarray, draws: np.ndarray) -> list[bool]:
    raise ValueError("data must have a label for each draw where there is nobody to ask.")


class _Linear:
    """A logistic model from a file."""

    def __init__(self, coefficients: list[float], intercept: float) -> None:
        self.coef_ = np.array([coefficients], dtype=np.float64)
        self.intercept_ = np.array([intercept], dtype=np.float64)

    def fit(self, X: np.ndarray, y: np.ndarray) -> "_Linear":
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        share = 1.0 / (1.0 + np.exp(-(X @ self.coef_[0] + self.intercept_[0])))
        return np.stack((1.0 - share, share), axis=1)


def model_to_json(model: ExitModel) -> dict[str, Any]:
    """An exit model as JSON values; logistic models only.

    Parameters
    ----------
    model : ExitModel
        The model.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        If its classifiers are of another kind, which a JSON file cannot hold.
    """

    def of(classifier: Any) -> dict[str, Any]:
        if isinstance(classifier, ConstantClassifier):
            return {"probability": float(classifier.probability)}
        if np.shape(getattr(classifier, "coef_", ())) in ((1, 5), (1, 6)):
            return {
                "coefficients": [float(value) for value in classifier.coef_[0]],
                "intercept": float(np.ravel(classifier.intercept_)[0]),
            }
        raise ValueError(
            "the policy's estimator must be a logistic regression for a JSON file, got "
            f"{type(classifier).__name__} instead; pickle the sampler."
        )

    return {
        "text": of(model.text_classifier),
        "arrival": of(model.arrival_classifier),
        "quality": [_threshold(value) for value in model.quality_scale.knots],
        "similarity": [_threshold(value) for value in model.similarity_scale.knots],
        "rho": float(model.rho),
        "k_max": int(model.k_max),
    }


def model_from_json(content: Mapping[str, Any]) -> ExitModel:
    """The exit model that :func:`model_to_json` wrote.

    Parameters
    ----------
    content : mapping
        The JSON values.

    Returns
    -------
    ExitModel
    """

    def of(part: Mapping[str, Any], features: Sequence[str]) -> Classifier:
        if "probability" in part:
            return ConstantClassifier(float(part["probability"]))
        coefficients = np.array([float(value) for value in part["coefficients"]])
        if coefficients.shape != (len(features),) or not np.isfinite(coefficients).all():
            raise ValueError(f"coefficients must be {len(features)} finite numbers")
        return _Linear(coefficients.tolist(), float(part["intercept"]))

    def scale(values: Sequence[float | str]) -> ScoreScale:
        knots = np.array([float(value) for value in values])
        if not len(knots) or np.isnan(knots).any() or np.any(knots[1:] < knots[:-1]):
            raise ValueError("quantiles of scores must be ascending numbers")
        return ScoreScale(knots)

    rho = float(content["rho"])
    if not 0.0 < rho < np.inf:
        raise ValueError(f"rho must be a positive number, got {rho!r} instead")
    return ExitModel(
        of(content["text"], TEXT_FEATURES),
        of(content["arrival"], ARRIVAL_FEATURES),
        scale(content["quality"]),
        scale(content["similarity"]),
        rho,
        int(content["k_max"]),
    )


def _threshold(value: float) -> float | str:
    # JSON has no infinities
    return float(value) if np.isfinite(value) else str(float(value))
