"""Generators that learn from references."""

from abc import abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_clm.generators.base import OPEN_PROMPTS, BaseGenerator, Prompts
from sklearn_clm.generators.draws import Generation, draw_stream, prompt_bytes
from sklearn_clm.generators.identity import TRAINED_ON, digest_of
from sklearn_clm.generators.queue import DrawQueue


class _Distribution(NamedTuple):
    """Responses of a prompt with their probabilities."""

    key: bytes
    cumulative: Sequence[float]
    logs: np.ndarray
    responses: Sequence[object]

    def draw(self, seed: int, draw: int) -> Generation:
        """One draw, which is one token."""
        k = invert(self.cumulative, draw_stream(self.key, seed, draw).random())
        response = self.responses[k]
        logprob = float(self.logs[k])
        spans = ((0, len(response)),) if isinstance(response, str) else None
        return Generation(response, logprob, 1, (logprob,), spans, "stop")


class _Drawing(BaseGenerator):
    """Base of generators that know the distribution of their responses."""

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {}
    batch_size: int = OPEN_PROMPTS

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue, as in :meth:`QueueGenerator.serve`."""
        self._validate_params()
        by_index: dict[int, _Distribution] = {}
        size = int(self.batch_size)
        while requests := queue.take(max_prompts=max(size, OPEN_PROMPTS)):
            new = [index for index, _, _ in requests if index not in by_index]
            for first in range(0, len(new), size):
                batch = new[first : first + size]
                prompts = _safe_indexing(queue.prompts, batch)
                by_index.update(zip(batch, self._distributions(prompts)))
            for index, start, stop in requests:
                for j in range(start, stop):
                    queue.put(index, j, by_index[index].draw(queue.seed, j))
            # a prompt that is closed is not asked about again: memory grows with open ones alone
            by_index = {
                index: distribution
                for index, distribution in by_index.items()
                if queue.is_open(index)
            }

    @abstractmethod
    def _distributions(self, prompts: Prompts) -> list[_Distribution]:
        """The distributions of a batch of prompts."""


def _is_trained_here(generator: "EstimatorGenerator") -> bool:
    return not isinstance(generator.estimator, FrozenEstimator)


class EstimatorGenerator(_Drawing):
    """Draw classes from the probabilities of a scikit-learn classifier.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``
        The estimators of this package clone it and fit it on a part of the data that calibration
        never sees. Wrapped in :class:`sklearn.frozen.FrozenEstimator` it is used as it is, and no
        data is set aside.
    batch_size : int, default=256
        Prompts given to ``predict_proba`` at once. Smaller batches are filled up to this size, so
        that linear algebra meets arrays of one shape and rounds a prompt's probabilities alike
        whatever the other prompts are; with 1 that needs no assumption on the classifier.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)
        The classes.

    Notes
    -----
    The classifier gets an array, or a list of texts: columns of a data frame have no names there.

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

    gives_labels = True
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "batch_size": [Interval(Integral, 1, None, closed="left")]
    }

    def __init__(self, estimator: BaseEstimator, *, batch_size: int = 256) -> None:
        self.estimator = estimator
        self.batch_size = batch_size

    @available_if(_is_trained_here)
    def fit(self, prompts: Prompts, references: Sequence[object]) -> Self:
        """Fit a clone of the classifier.

        The classifier is given the prompts as X; `references` are one class for each.
        """
        for i, reference in enumerate(references):
            if callable(reference) or isinstance(reference, (list, tuple, set, dict)):
                raise ValueError(
                    "admissions (y) must be one class for each prompt, got a "
                    f"{type(reference).__name__} at position {i} instead."
                )
        # a clone: the user's classifier stays as it was given, as in scikit-learn
        labels = np.asarray(references)
        self.estimator_ = clone(self.estimator).fit(prompts, labels)
        _refuse_without_probabilities(self.estimator_)
        self.classes_ = np.asarray(self.estimator_.classes_)
        learnt = {"given": [prompts, references], "learnt": [self.estimator_, self.classes_]}
        self._trained_on = digest_of(type(self), learnt)
        return self

    def fingerprint(self) -> str:
        """Hexadecimal digest of the classifier and of its training."""
        # the batch size is no part of the distribution
        training = getattr(self, TRAINED_ON, None)
        return digest_of(type(self), {"estimator": self.estimator, "training": training})

    def _distributions(self, prompts: Prompts) -> list[_Distribution]:
        estimator: Any = self.estimator
        if _is_trained_here(self):
            check_is_fitted(self)
            estimator = self.estimator_
        _refuse_without_probabilities(estimator)
        batch = _filled_up(prompts, int(self.batch_size))
        probabilities = np.asarray(estimator.predict_proba(batch), dtype=np.float64)
        cumulative = np.cumsum(probabilities, axis=1)
        # sums of rounded probabilities end near one: a number close to it must still find a class
        cumulative /= cumulative[:, -1:]
        with np.errstate(divide="ignore"):
            logs = np.log(probabilities)
        labels = np.asarray(estimator.classes_).tolist()
        return [
            _Distribution(prompt_bytes(prompt), row, row_of_logs, labels)
            for prompt, row, row_of_logs in zip(prompts, cumulative.tolist(), logs)
        ]


def _refuse_without_probabilities(estimator: object) -> None:
    if not hasattr(estimator, "predict_proba"):
        raise TypeError(
            f"estimator must be a classifier with predict_proba, got {estimator!r:.80} "
            "instead; sklearn.calibration.CalibratedClassifierCV gives one to any classifier."
        )


def _filled_up(batch: Prompts, size: int) -> Prompts:
    """A batch with its last prompt repeated, up to `size`."""
    # copies of a prompt that is there: it is one that the classifier can take
    missing = size - len(batch)
    if isinstance(batch, np.ndarray):
        return np.concatenate([batch, np.repeat(batch[-1:], missing, axis=0)])
    batch = list(batch)
    return batch + batch[-1:] * missing


class ResamplingGenerator(_Drawing):
    """Draw references of other prompts at random, as a baseline.

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

    def fit(self, prompts: Prompts, references: Sequence[object]) -> Self:
        """Learn the references, one or several of each prompt."""
        weights: Counter[Hashable] = Counter()
        for reference in references:
            # a prompt weighs the same, however many references it has
            options = _options(reference)
            for option in options:
                weights[option] += 1.0 / len(options)  # type: ignore[assignment]
        if not weights:
            raise ValueError("ResamplingGenerator needs at least 1 reference to draw, got none.")
        self.responses_ = list(weights)
        # frequencies of references stand for the probabilities of responses
        counts = np.array([weights[response] for response in self.responses_])
        self._cumulative = np.cumsum(counts) / counts.sum()
        self.log_frequencies_ = np.log(counts / counts.sum())
        return self

    def _distributions(self, prompts: Prompts) -> list[_Distribution]:
        check_is_fitted(self)
        cumulative = self._cumulative.tolist()
        return [
            _Distribution(prompt_bytes(prompt), cumulative, self.log_frequencies_, self.responses_)
            for prompt in prompts
        ]

    def fingerprint(self) -> str:
        """Hexadecimal digest of the class and of its references."""
        fitted = [self.responses_, self.log_frequencies_] if hasattr(self, "responses_") else []
        return digest_of(type(self), {**self.get_params(deep=False), "fitted state": fitted})


def _options(reference: object) -> list[object]:
    if isinstance(reference, (set, frozenset)):
        return sorted(reference, key=repr)  # a set has another order in every process
    options = list(reference) if isinstance(reference, (list, tuple)) else [reference]
    for option in options:
        if callable(option) or not isinstance(option, Hashable):
            raise ValueError(
                "admissions (y) must be text, numbers or other hashable objects to be drawn, got "
                f"{option!r:.60} instead."
            )
    return options


def invert(cumulative: Sequence[float], uniform: float) -> int:
    """Index that a uniform number picks from cumulative probabilities."""
    # the last cumulative probability may be rounded below 1
    return min(bisect_right(cumulative, uniform), len(cumulative) - 1)
