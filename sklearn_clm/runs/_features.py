"""Features of prefixes, and the risk they predict.

A run is a sequence of steps, each with d scores. After k steps each score has its last value, its
least, its largest, its mean and its last change; these, but for the largest, count once as they are
and once times k, since the same score says more after more steps; and k and k^2 count.

All of them are known after the step, whatever comes later, and follow from six numbers that a
service keeps for each run (:class:`PrefixState`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler


@dataclass
class PrefixState:
    """What is kept of a run while it goes on.

    Each list has a value for each of the d scores of a step.
    """

    n_steps: int
    last: list[float]
    least: list[float]
    largest: list[float]
    total: list[float]
    change: list[float]

    @classmethod
    def begun(cls, n_scores: int) -> "PrefixState":
        """The state before the first step."""
        none = [0.0] * n_scores
        return cls(0, [*none], [np.inf] * n_scores, [-np.inf] * n_scores, [*none], [*none])

    def update(self, scores: Sequence[float]) -> list[float]:
        """Take a step; return the features of the prefix."""
        k = self.n_steps = self.n_steps + 1
        features: list[float] = []
        for i, score in enumerate(scores):
            self.change[i] = score - self.last[i] if k > 1 else 0.0
            self.last[i] = score
            self.least[i] = min(self.least[i], score)
            self.largest[i] = max(self.largest[i], score)
            self.total[i] += score
            mean = self.total[i] / k
            change, least = self.change[i], self.least[i]
            features += [score, least, mean, change]
            features += [score * k, least * k, mean * k, change * k, self.largest[i]]
        features += [k, k * k]
        return features


def features_of(run: np.ndarray) -> np.ndarray:
    """Features of all prefixes, a row each."""
    k = np.arange(1.0, len(run) + 1)[:, np.newaxis]
    least = np.minimum.accumulate(run)
    mean = np.cumsum(run, axis=0) / k
    change = np.diff(run, axis=0, prepend=run[:1])
    largest = np.maximum.accumulate(run)
    # the order of PrefixState.update: all features of a score stand together
    plain = np.stack([run, least, mean, change], axis=2)
    of_scores = np.concatenate(
        [plain, plain * k[:, :, np.newaxis], largest[:, :, np.newaxis]], axis=2
    )
    return np.hstack([of_scores.reshape(len(run), -1), k, k * k])


@dataclass(frozen=True)
class LinearRisk:
    """Log-odds of a failure, linear in the features."""

    coef: tuple[float, ...]
    intercept: float

    @classmethod
    def learnt(cls, features: list[np.ndarray], failed: np.ndarray) -> "LinearRisk":
        """Logistic regression in which each run counts once."""
        rows = np.vstack(features)
        lengths = [len(one) for one in features]
        weights = np.repeat(1.0 / np.array(lengths), lengths)
        outcomes = np.repeat(failed, lengths)
        if len(np.unique(outcomes)) < 2:
            return cls((0.0,) * rows.shape[1], 0.0)  # nothing to learn from
        scaler = StandardScaler().fit(rows, sample_weight=weights)
        model = LogisticRegression(max_iter=1000)
        model.fit(scaler.transform(rows), outcomes, sample_weight=weights)
        coef = model.coef_[0] / scaler.scale_
        intercept = float(model.intercept_[0] - coef @ scaler.mean_)
        return cls(tuple(coef.tolist()), intercept)

    def of(self, features: np.ndarray) -> np.ndarray:
        """The log-odds of rows of features."""
        return np.asarray(features @ np.array(self.coef) + self.intercept)

    def of_one(self, features: Sequence[float]) -> float:
        """The log-odds of one prefix, without arrays."""
        return self.intercept + sum(c * value for c, value in zip(self.coef, features))


@dataclass(frozen=True)
class ScoreRisk:
    """Minus the first score of a step: nothing is learnt."""

    def of(self, features: np.ndarray) -> np.ndarray:
        """Minus the first feature, which is the score."""
        return np.asarray(-features[:, 0])

    def of_one(self, features: Sequence[float]) -> float:
        """The same for one prefix."""
        return -features[0]


@dataclass(frozen=True)
class ClassifierRisk:
    """The probability of a failure by a fitted classifier."""

    classifier: Any

    def of(self, features: np.ndarray) -> np.ndarray:
        """Probabilities for rows of features."""
        (failure,) = np.flatnonzero(self.classifier.classes_)
        return np.asarray(self.classifier.predict_proba(features)[:, failure])

    def of_one(self, features: Sequence[float]) -> float:
        """The probability for one prefix."""
        return float(self.of(np.array([features]))[0])


Risk = LinearRisk | ScoreRisk | ClassifierRisk
