"""A scikit-learn classifier as a generator: it draws classes from predict_proba."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_clm.generators._base import BaseGenerator
from sklearn_clm.generators._generation import Generation
from sklearn_clm.generators._keys import draw_stream, prompt_bytes
from sklearn_clm.generators._resampling import digest, invert

__all__ = ["EstimatorGenerator"]


def _is_trained_here(generator: "EstimatorGenerator") -> bool:
    return type(generator.estimator).__name__ != "FrozenEstimator"


class EstimatorGenerator(BaseGenerator):
    """Draw classes from the probabilities of a scikit-learn classifier.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``
        The estimators of this package clone it and fit it on a part of the data that calibration
        never sees. Wrapped in :class:`sklearn.frozen.FrozenEstimator` it is used as it is, and no
        data is set aside.
    batch_size : int, default=1
        Prompts given to ``predict_proba`` at once. With 1 a draw does not depend on the other
        prompts in any bit. Larger batches are faster, but linear algebra may then round a
        probability differently from batch to batch.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)
        The classes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clm.generators import EstimatorGenerator
    >>> X, y = load_iris(return_X_y=True)
    >>> generator = EstimatorGenerator(LogisticRegression(max_iter=1000)).fit(X[::2], y[::2])
    >>> [draw.response for draw in generator.sample(X[[1]], 3)[0]]
    [0, 0, 0]
    """

    def __init__(self, estimator: BaseEstimator, *, batch_size: int = 1) -> None:
        self.estimator = estimator
        self.batch_size = batch_size

    @available_if(_is_trained_here)
    def fit(self, prompts: Sequence[Any], references: Sequence[Any]) -> "EstimatorGenerator":
        """Fit a clone of the classifier.

        Parameters
        ----------
        prompts : sequence of length n, or array of shape (n, d)
            What the classifier takes as X.
        references : sequence of length n
            The class of each prompt. If there is but one class, it is drawn always, and no
            classifier is fitted.

        Returns
        -------
        EstimatorGenerator
            Itself.

        Raises
        ------
        ValueError
            If `references` holds anything but one class for each prompt.
        """
        for i, reference in enumerate(references):
            if callable(reference) or isinstance(reference, (list, tuple, set, dict)):
                raise ValueError(
                    "EstimatorGenerator needs one class per prompt as reference, but admissions "
                    f"(y) holds a {type(reference).__name__} at position {i}."
                )
        classes = np.unique(np.asarray(references))
        if len(classes) == 1:
            self.estimator_ = None
            self.classes_ = classes
            return self
        fitted = clone(self.estimator).fit(prompts, np.asarray(references))
        self.estimator_ = fitted
        self.classes_ = np.asarray(fitted.classes_)
        return self

    def sample(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        """Draw classes.

        Parameters
        ----------
        prompts, n_samples, start, seed
            As in :meth:`BaseGenerator.sample`.

        Returns
        -------
        list of lists of Generation
            With `logprob`, the log-probability of the class, and one token.
        """
        if _is_trained_here(self):
            check_is_fitted(self)
            estimator, classes = self.estimator_, self.classes_
        else:
            estimator, classes = self.estimator, np.asarray(self.estimator.classes_)
        labels = classes.tolist()
        rows = []
        for first in range(0, len(prompts), self.batch_size):
            batch = prompts[first : first + self.batch_size]
            if estimator is None:
                probabilities = np.ones((len(batch), 1))
            else:
                probabilities = np.asarray(estimator.predict_proba(batch), dtype=np.float64)
            for prompt, row in zip(batch, probabilities):
                rows.append(_draws_of_row(prompt, row, labels, n_samples, start, seed))
        return rows

    def fingerprint(self) -> str:
        """Hexadecimal digest of the parameters and, once fitted, of the fitted classifier."""
        fitted = [self.estimator_, self.classes_] if hasattr(self, "classes_") else []
        # the batch size is no part of the distribution
        return digest(type(self), {"estimator": self.estimator}, fitted)


def _draws_of_row(
    prompt: Any, probabilities: np.ndarray, labels: list[Any], n_samples: int, start: int, seed: int
) -> list[Generation]:
    key = prompt_bytes(prompt)
    cumulative = np.cumsum(probabilities)
    cumulative /= cumulative[-1]
    with np.errstate(divide="ignore"):
        log_probabilities = np.log(probabilities)
    draws = []
    for draw in range(start, start + n_samples):
        k = invert(cumulative, draw_stream(key, seed, draw).random())
        logprob = float(log_probabilities[k])
        draws.append(
            Generation(labels[k], logprob, 1, token_logprobs=(logprob,), finish_reason="stop")
        )
    return draws
