"""Classifiers that policies learn with."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from sklearn.base import BaseEstimator, clone
from threadpoolctl import threadpool_limits

from sklearn_clm.calibration.exit_model import Learner

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

# the lock of each process: a fork would wait for its parent's for ever
_TURN: dict[int, AbstractContextManager[bool]] = {}


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of linear algebra, faster for small matrices.

    Where other programs, or a quota, leave no core for the other threads, each step would wait for
    them. The limit holds for the process, so that fits in several threads take turns.
    """
    turn = _TURN.setdefault(os.getpid(), RLock())
    with turn, threadpool_limits(1, user_api="blas"):
        yield


def classifier_factory(
    estimator: BaseEstimator | None, solver: str = "lbfgs"
) -> Callable[[], Learner]:
    """A function that returns unfitted classifiers; default logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return lambda: LogisticRegression(solver=solver) if estimator is None else clone(estimator)


def degree_two(C: float = 1.0) -> "Pipeline":
    """A logistic regression on features and their products."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    # no scaler: features lie between 0 and 1, but for the number of draws
    linear = LogisticRegression(C=C, solver="newton-cholesky")
    return make_pipeline(PolynomialFeatures(2), linear)
