"""Features of prefixes, and the risk they predict.

A run is a sequence of steps, each with d scores. After k steps each score has its last value, its
least, its largest, its mean and its last change; these, but for the largest, count once as they are
and once times k, since the same score says more after more steps; and k and k^2 count.

All of them are known after the step, whatever comes later, and follow from k and four numbers of
each score, which a service keeps for each run (:class:`PrefixState`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from sklearn_clm.calibration._exit_model import probability

_LARGEST = 1e100  # of a score, so that no feature overflows


def scores_of(steps: Any) -> np.ndarray | None:
    """Scores of steps, (T, d), or None."""
    try:
        scores = np.asarray(steps, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if scores.ndim == 1:
        scores = scores[:, np.newaxis]
    # NaN is not at most anything
    fits = scores.ndim == 2 and scores.size > 0 and bool((np.abs(scores) <= _LARGEST).all())
    return scores if fits else None


@dataclass
class PrefixState:
    """What is kept of a run while it goes on.

    Each list has a value for each of the d scores of a step; none before the first one.
    """

    n_steps: int = 0
    last: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    largest: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)

    def update(self, scores: Sequence[float]) -> list[float]:
        """Take a step; return the features of the prefix."""
        if self.n_steps == 0:
            self.last = [*scores]
            self.least = [*scores]
            self.largest = [*scores]
            self.total = [0.0] * len(scores)
        self.n_steps += 1
        k = self.n_steps
        features: list[float] = []
        for i, score in enumerate(scores):
            change = score - self.last[i]
            least = min(self.least[i], score)
            self.last[i] = score
            self.least[i] = least
            self.largest[i] = max(self.largest[i], score)
            self.total[i] += score
            mean = self.total[i] / k
            features += [score, least, mean, change]
            features += [score * k, least * k, mean * k, change * k, self.largest[i]]
        return [*features, k, k * k]


def features_of(run: np.ndarray) -> np.ndarray:
    """Features of all prefixes, a row each."""
    # step by step as a live run: of short runs that is no slower than by arrays
    state = PrefixState()
    n_features = 9 * run.shape[1] + 2
    rows = map(state.update, run.tolist())
    return np.fromiter(rows, np.dtype((np.float64, n_features)), len(run))


@dataclass(frozen=True)
class LinearRisk:
    """Log-odds of a failure, linear in the features."""

    coef: tuple[float, ...]
    intercept: float

    def of(self, features: np.ndarray) -> np.ndarray:
        """The log-odds of rows of features."""
        # term by term: a matrix product may round a row otherwise in another batch
        terms = np.cumsum(features * np.array(self.coef), axis=1)
        return np.asarray(terms[:, -1] + self.intercept)


@dataclass(frozen=True)
class ClassifierRisk:
    """The probability of a failure by a fitted classifier."""

    classifier: Any

    def of(self, features: np.ndarray) -> np.ndarray:
        """Probabilities for rows of features."""
        return probability(self.classifier, features)


Risk = LinearRisk | ClassifierRisk


def learnt(scorer: Any, features: list[np.ndarray], failed: np.ndarray, n_features: int) -> Risk:
    """The risk that a scorer predicts, from some runs.

    The logistic regression counts each run once, however long it is.
    """
    if isinstance(scorer, str):  # minus the score itself
        return LinearRisk((-1.0, *[0.0] * (n_features - 1)), 0.0)
    if len(np.unique(failed)) < 2:
        return LinearRisk((0.0,) * n_features, 0.0)  # nothing to learn from
    rows = np.vstack(features)
    lengths = [len(run) for run in features]
    outcomes = np.repeat(failed, lengths)
    if scorer is not None:
        return ClassifierRisk(clone(scorer).fit(rows, outcomes))
    weights = np.repeat(1.0 / np.array(lengths), lengths)
    scaler = StandardScaler().fit(rows, sample_weight=weights)
    model = LogisticRegression(max_iter=1000)
    model.fit(scaler.transform(rows), outcomes, sample_weight=weights)
    coef = model.coef_[0] / scaler.scale_
    intercept = float(model.intercept_[0] - coef @ scaler.mean_)
    return LinearRisk(tuple(coef.tolist()), intercept)
