"""A generator that knows no model: it draws the references it was fitted on.

A scikit-learn classifier as a generator: it draws classes from predict_proba."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_clm.generators._base import BaseGenerator
from sklearn_clm.generators._draws import Generation, draw_stream, prompt_bytes
from sklearn_clm.generators._fingerprint import digest_of

__all__ = ["EstimatorGenerator", "ResamplingGenerator"]


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


class ResamplingGenerator(BaseGenerator):
    """Draw references of other prompts at random: the baseline that any model must beat.

    Like :class:`sklearn.dummy.DummyClassifier` it looks at no prompt. Each draw takes one of the
    training prompts uniformly at random and returns its reference (any one of them, uniformly,
    where it has several).

    Attributes
    ----------
    responses_ : list
        The distinct references.
    log_frequencies_ : ndarray of shape (len(responses_),)
        Natural logarithm of the probability of each; the `logprob` of a draw.

    Examples
    --------
    >>> from sklearn_clm.generators import ResamplingGenerator
    >>> generator = ResamplingGenerator().fit(["a", "b", "c"], ["yes", "no", "yes"])
    >>> [draw.response for draw in generator.sample(["d"], 4, seed=0)[0]]
    ['yes', 'yes', 'yes', 'no']
    """

    def fit(self, prompts: Sequence[Any], references: Sequence[Any]) -> "ResamplingGenerator":
        """Learn the references.

        Parameters
        ----------
        prompts : sequence of length n
            Ignored.
        references : sequence of length n
            A reference, or a list of references, for each prompt.

        Returns
        -------
        ResamplingGenerator
            Itself.

        Raises
        ------
        ValueError
            If there are no references, or if they are callables A_i, which cannot be drawn.
        """
        weights: Counter[Any] = Counter()
        for reference in references:
            options = _options(reference)
            for option in options:
                weights[option] += 1.0 / len(options)  # type: ignore[assignment]
        if not weights:
            raise ValueError("ResamplingGenerator needs at least 1 reference to draw, got none.")
        self.responses_ = list(weights)
        counts = np.array([weights[response] for response in self.responses_])
        self._cumulative = np.cumsum(counts) / counts.sum()
        self.log_frequencies_ = np.log(counts / counts.sum())
        return self

    def sample(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        """Draw references.

        Parameters
        ----------
        prompts, n_samples, start, seed
            As in :meth:`BaseGenerator.sample`. The prompt keys the draws, and is ignored
            otherwise.

        Returns
        -------
        list of lists of Generation
            With `logprob`, the log frequency of the response, and one token.
        """
        check_is_fitted(self)
        draws = range(start, start + n_samples)
        return [[self._draw(prompt, seed, draw) for draw in draws] for prompt in prompts]

    def fingerprint(self) -> str:
        """Hexadecimal digest of the class and, once fitted, of what it draws."""
        fitted = [self.responses_, self.log_frequencies_] if hasattr(self, "responses_") else []
        return digest(type(self), self.get_params(deep=False), fitted)

    def _draw(self, prompt: Any, seed: int, draw: int) -> Generation:
        k = invert(self._cumulative, draw_stream(prompt, seed, draw).random())
        response, logprob = self.responses_[k], float(self.log_frequencies_[k])
        return Generation(
            response,
            logprob,
            1,
            token_logprobs=(logprob,),
            token_spans=((0, len(response)),) if isinstance(response, str) else None,
            finish_reason="stop",
        )


def _options(reference: Any) -> list[Any]:
    if callable(reference):
        raise ValueError(
            "ResamplingGenerator draws references, but admissions (y) holds callables; pass "
            "references, or another generator."
        )
    if isinstance(reference, (set, frozenset)):
        return sorted(reference, key=repr)  # a set has another order in every process
    options = list(reference) if isinstance(reference, (list, tuple)) else [reference]
    for option in options:
        if not isinstance(option, Hashable):
            raise ValueError(
                "ResamplingGenerator draws references that are text, numbers or other hashable "
                f"objects, got {type(option).__name__} {option!r:.60}."
            )
    return options


def digest(cls: type, params: dict[str, Any], fitted: Any) -> str:
    """Fingerprint of a generator together with what it learnt."""
    return digest_of(cls, {**params, "fitted state": fitted})


def invert(cumulative: np.ndarray, uniform: float) -> int:
    """Index that a uniform number picks from cumulative probabilities."""
    return min(int(np.searchsorted(cumulative, uniform, side="right")), len(cumulative) - 1)
