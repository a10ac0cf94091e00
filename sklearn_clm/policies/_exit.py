"""One nested level that decides when to stop and what to return."""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils._param_validation import HasMethods, Interval

from sklearn_clm.calibration import (
    CalibrationData,
    ExitModel,
    fit_exit_model,
)

__all__ = ["ExitPolicy", "classifier_factory"]


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
    draw_price : float, default=0.1
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
        draw_price: float = 0.1,
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
        price = draw_weight + self.draw_price

        def cost(sizes: np.ndarray, samples: np.ndarray, arrived: np.ndarray) -> float:
            late = np.where(arrived > 0, np.maximum(samples - arrived, 0), 0) / samples
            return float(
                size_weight * np.mean(sizes)
                + excess_weight * np.mean(late)
                + price * np.mean(samples)
            )

        self.model_: ExitModel = fit_exit_model(
            data.quality,
            data.similarity,
            self.texts(data.similarity, first),
            data.admissible.astype(np.int8) if labels is None else labels,
            new_classifier=classifier_factory(self.estimator),
            epsilon=epsilon,
            look_ahead=self.look_ahead,
            cost=cost,
            random_state=random_state,
        )
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


def classifier_factory(estimator: BaseEstimator | None) -> Callable[[], Any]:
    """What gives unfitted copies of a classifier; None is a logistic regression."""

    def new() -> Any:
        return LogisticRegression(C=1.0) if estimator is None else clone(estimator)

    return new
