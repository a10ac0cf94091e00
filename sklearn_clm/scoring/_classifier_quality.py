"""Quality of a response as the probability that a fitted classifier gives it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator

from sklearn_clm.generators import Generation
from sklearn_clm.scoring._results import as_scores, name_of

__all__ = ["ClassifierQuality", "ClassifierScore"]

# linear algebra rounds a row differently in batches of different sizes, and short answers are
# shared by many prompts: a threshold that is one of their scores must not miss all of them
_LOGIT_DECIMALS = 3


class ClassifierScore(BaseEstimator):
    """What a fitted binary classifier says of rows, each made of a prompt and one thing more."""

    def __init__(self, classifier: Any, features: Callable[[Any, Any], Any] | None = None) -> None:
        self.classifier = classifier
        self.features = features

    def _probabilities(self, rows: list[Any], argument: str) -> np.ndarray:
        """Probability of the positive class, for each row."""
        if not rows:
            return np.empty(0)
        values = self.classifier.predict_proba(rows)
        bad, good = as_scores(values, (len(rows), 2), argument, self.classifier).T
        wrong = (bad < 0.0) | (good < 0.0) | (bad + good == 0.0)
        if wrong.any():
            k = int(np.argmax(wrong))
            raise ValueError(
                f"{argument} {name_of(self.classifier)} returned {bad[k]} and {good[k]} in row "
                f"{k}; wanted two probabilities."
            )
        # the smaller of the two is what tells probabilities near 0 and near 1 apart
        with np.errstate(divide="ignore"):
            log_odds = np.log(good) - np.log(bad)
        return np.asarray(expit(np.round(log_odds, _LOGIT_DECIMALS)))


class ClassifierQuality(ClassifierScore):
    """Probability of the positive class of a fitted binary classifier.

    The classifier must have been trained on other prompts than those that calibrate.

    Parameters
    ----------
    classifier : fitted classifier with ``predict_proba``
        Two classes; the second one of its ``classes_`` means a good response.
    features : callable (prompt, generation) -> object, or None, default=None
        Makes one row of the classifier's input from one draw. None gives it the responses
        themselves, as a list: what a pipeline that starts with a text vectoriser takes. Give a
        callable where the prompt matters, such as
        ``lambda prompt, generation: f"{prompt} {generation.response}"``.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import quality_matrix
    >>> texts, good = ["a cat sat", "a dog ran", "lorem ipsum", "dolor sit"], [1, 1, 0, 0]
    >>> classifier = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, good)
    >>> draws = [[Generation("a cat ran"), Generation("lorem dolor")]]
    >>> quality_matrix(classifier, ["Q: ?"], draws).round(1)
    array([[0.7, 0.3]])
    """

    def score_draws(
        self,
        prompts: Sequence[Any],
        generations: Sequence[Sequence[Generation]],
        start: int = 0,
    ) -> np.ndarray:
        """Quality of the draws from `start` on.

        Parameters
        ----------
        prompts : sequence of length n
            The prompts.
        generations : sequence of n sequences of K Generation
            The draws so far, in draw order.
        start : int, default=0
            First draw to score.

        Returns
        -------
        ndarray of shape (n, K - start)
            Probabilities of the positive class, in [0, 1]; their log-odds are rounded to three
            decimals, so that the batch which a draw is in does not matter.

        Raises
        ------
        ValueError
            If the classifier does not give two probabilities for each draw.
        """
        rows = [
            generation.response if self.features is None else self.features(prompt, generation)
            for prompt, row in zip(prompts, generations)
            for generation in row[start:]
        ]
        if not rows:
            return np.zeros((len(prompts), 0))
        return self._probabilities(rows, "quality").reshape(len(prompts), -1)
