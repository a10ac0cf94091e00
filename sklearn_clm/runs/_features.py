"""Features of prefixes, and the risk they predict.

A run is a sequence of steps, each with d scores. After k steps each score has its last value, its
least, its largest, its mean and its last change; these, but for the largest, count once as they are
and once times k, since the same score says more after more steps; and k and k^2 count.

All of them are known after the step, whatever comes later, and follow from k and four numbers of
each score, which a service keeps for each run (:func:`next_features`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from operator import is_
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_array

from sklearn_clm.calibration.exit_model import probability

N_FEATURES = 9  # of each score; two more are of the number of steps
_LARGEST = 1e100  # of a score, so that no feature overflows
_N_FOLDS = 5  # of the cross-fitting

Features = Callable[[list[Any]], Sequence[float]]
Risk = Callable[[np.ndarray], np.ndarray]  # of a failure, by rows of features


def scores_of(steps: Any, name: str, n_scores: int | None = None) -> np.ndarray:
    """Scores of T steps, (T, d)."""
    with suppress(TypeError, ValueError, OverflowError):
        given = np.asarray(steps)
        if given.dtype.kind in "biufO":  # text, dates and complex numbers would be converted, too
            scores = given.astype(np.float64).reshape(len(steps), n_scores or -1)
            if np.abs(scores).max() <= _LARGEST:  # NaN is not
                return scores + 0.0  # -0.0 becomes 0.0
    raise ValueError(
        f"{name} must be finite numbers, {n_scores or 'as many'} in each step, got {steps!r:.80} "
        "instead."
    )


def next_features(
    scores: Sequence[float], k: int, kept: list[list[float]]
) -> tuple[list[float], list[list[float]]]:
    """Features after step k, and what is kept.

    What is kept of each score is its last value, least, largest and total; before the first step
    nothing is.
    """
    if k == 1:
        kept = [[score, score, score, 0.0] for score in scores]
    features: list[float] = []
    now: list[list[float]] = []
    for score, (last, least, largest, total) in zip(scores, kept):
        least = min(least, score)
        largest = max(largest, score)
        total += score
        course = [score, least, total / k, score - last]
        # the same score says more after more steps
        course_times_k = [value * k for value in course]
        features += [*course, *course_times_k, largest]
        now.append([score, least, largest, total])
    return [*features, k, k * k], now


def features_of(run: np.ndarray) -> np.ndarray:
    """Features of all prefixes, a row each."""
    # step by step as a live run: of short runs that is no slower than by arrays
    rows = []
    kept: list[list[float]] = []
    for k, scores in enumerate(run.tolist(), start=1):
        features, kept = next_features(scores, k, kept)
        rows.append(features)
    return np.array(rows)


def features_of_runs(
    X: Any, features: Features | None, n_scores: int | None = None
) -> list[np.ndarray]:
    """Features of the prefixes of each run.

    The features of T steps with d scores have shape (T, 9 d + 2).
    """
    if features is None and hasattr(X, "dtype"):
        if X.ndim == 1 and X.dtype != object:
            raise ValueError(f"{_no_steps(X, 'X', 'runs, each ')} Reshape your data.")
        if X.ndim > 1:
            X = check_array(X, allow_nd=True)  # whose rows are runs of equal length
    if not hasattr(X, "__len__") or len(X) == 0:
        raise ValueError(f"X must be a sequence of at least one run, got {X!r:.80} instead.")
    of_runs = []
    for i, run in enumerate(X):
        if features is None and (isinstance(run, str) or not hasattr(run, "__len__")):
            raise ValueError(_no_steps(run, f"X[{i}]"))
        steps = run
        if features is not None:
            prefixes = [list(run[:k]) for k in range(1, len(run) + 1)]
            steps = [_described(features, prefix) for prefix in prefixes]
        scores = scores_of(steps, f"X[{i}]", n_scores)
        n_scores = scores.shape[1]
        of_runs.append(features_of(scores))
    return of_runs


def _no_steps(got: object, name: str, what: str = "") -> str:
    """That something else is given in the place of runs."""
    return (
        f"{name} must be {what}a sequence of steps, got {got!r:.80} instead (one run alone is "
        "[run], read_runs reads tables; fit takes runs, then outcomes)."
    )


def _described(features: Features, prefix: list[Any]) -> Sequence[float]:
    """What a function makes of a prefix."""
    steps = tuple(prefix)
    described = features(prefix)
    # a live run has one list, which must hold its steps after the next one as well
    if len(prefix) != len(steps) or not all(map(is_, prefix, steps)):
        raise ValueError(
            f"features must leave the list of steps as it is, got {prefix!r:.80} after a call with "
            f"{list(steps)!r:.80} instead."
        )
    return described


@dataclass(frozen=True)
class LinearRisk:
    """Log-odds of a failure, linear in the features."""

    coef: list[float]
    intercept: float

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """The log-odds of rows of features."""
        # term by term: a matrix product may round a row otherwise in another batch
        terms = np.cumsum(features * self.coef, axis=1)
        return np.asarray(terms[:, -1] + self.intercept)


@dataclass(frozen=True)
class ClassifierRisk:
    """The probability of a failure by a fitted classifier."""

    classifier: Any

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Probabilities for rows of features."""
        risks = probability(self.classifier, features)
        if np.isnan(risks).any():  # which no level would stop
            raise ValueError(
                "scorer must predict probabilities, got NaN for "
                f"{features[np.isnan(risks)][0].tolist()!r:.80} instead."
            )
        return risks


def learnt_risk(scorer: Any, features: list[np.ndarray], failed: np.ndarray) -> Risk:
    """The risk that a scorer predicts, from some runs.

    The default counts each run once, however long it is.
    """
    if failed.all() or not failed.any():
        return LinearRisk([0.0], 0.0)  # nothing to learn from: all prefixes are alike
    rows = np.vstack(features)
    lengths = [len(run) for run in features]
    outcomes = np.repeat(failed, lengths)
    if scorer is not None:
        return ClassifierRisk(clone(scorer).fit(rows, outcomes))
    weights = np.repeat(1.0 / np.array(lengths), lengths)
    with np.errstate(invalid="ignore"):  # of a constant, whose weighted variance may be below 0
        scaler = StandardScaler().fit(rows, sample_weight=weights)
    scaled = scaler.transform(rows)
    of_prefixes = LogisticRegression(max_iter=1000)
    of_prefixes.fit(scaled, outcomes, sample_weight=weights)
    start = np.append(of_prefixes.coef_[0], of_prefixes.intercept_)
    of_runs = _of_largest(scaled, np.cumsum(lengths), failed, start)
    # from scaled features to those that a live run has
    coef = of_runs[:-1] / scaler.scale_
    intercept = of_runs[-1] - coef @ scaler.mean_
    return LinearRisk(coef.tolist(), float(intercept))


def _of_largest(
    rows: np.ndarray, ends: np.ndarray, failed: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Weights by which the largest log-odds predict failure.

    The weights are coefficients and an intercept. A gate goes by the largest alone, so that
    prefixes that look like any other teach nothing. The logistic loss of the largest is not convex:
    `start`, learnt from all prefixes, tells where to descend. `ends` are the places in `rows`
    behind the last prefix of each run.
    """
    rows = np.column_stack((rows, np.ones(len(rows))))
    begins = np.append(0, ends[:-1])
    lengths = ends - begins
    signs = np.where(failed, 1.0, -1.0)
    is_shrunk = np.append(np.ones(len(start) - 1), 0.0)  # all but the intercept

    def loss_and_slope(weights: np.ndarray) -> tuple[float, np.ndarray]:
        risks = rows @ weights
        largest = np.maximum.reduceat(risks, begins)
        candidates = np.flatnonzero(~(risks < np.repeat(largest, lengths)))
        places = candidates[np.searchsorted(candidates, begins)]  # the first of each run
        margins = signs * risks[places]
        # the penalty of logistic regression with C = 1, |w|^2 / 2, and its slope
        shrunk = is_shrunk * weights
        loss = np.logaddexp(0.0, -margins).sum() + shrunk @ weights / 2.0
        return loss, shrunk - (signs * expit(-margins)) @ rows[places]

    return np.asarray(minimize(loss_and_slope, start, jac=True, method="L-BFGS-B").x)


def largest_risks(risk: Risk, features: list[np.ndarray]) -> np.ndarray:
    """M of runs: the largest risk over their prefixes."""
    return np.array([risk(rows).max() for rows in features])


def out_of_fold(scorer: Any, features: list[np.ndarray], failed: np.ndarray) -> np.ndarray:
    """M of runs by risks learnt from others.

    The runs stand in random order.
    """
    largest = np.empty(len(features))
    folds = np.arange(len(features)) % _N_FOLDS
    for fold in range(_N_FOLDS):
        held = folds == fold
        risk = learnt_risk(scorer, [*compress(features, ~held)], failed[~held])
        largest[held] = largest_risks(risk, [*compress(features, held)])
    return largest
