"""Classifiers of policies, and the threads of linear algebra."""

from multiprocessing import get_all_start_methods, get_context
from threading import Event, Thread
from typing import ClassVar

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from sklearn_clm.policies import AnswerPolicy
from sklearn_clm.policies._classifiers import one_thread
from tests.calibration.tables import data_of


def drawn(rng, n, k):
    """Answers 0 to 5 of n prompts, of which 0 is right with a probability of their own."""
    ease = rng.beta(1.3, 0.7, (n, 1))
    chances = np.hstack((ease, (1 - ease) * rng.dirichlet(np.full(5, 0.6), n)))
    below = np.cumsum(chances, axis=1)[:, np.newaxis, :-1]
    return (rng.random((n, k, 1)) > below).sum(axis=2)


def threads_of_linear_algebra():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


class Watching(LogisticRegression):
    """Notes in how many threads it learns."""

    seen: ClassVar = set()

    def fit(self, X, y):
        self.seen.update(threads_of_linear_algebra())
        return super().fit(X, y)


def test_small_classifiers_wait_for_no_other_thread():
    answers = drawn(np.random.default_rng(0), 60, 5)
    AnswerPolicy(score="learnt", estimator=Watching()).fit(data_of(answers, answers == 0))
    assert Watching.seen == {1}


def test_fits_in_two_threads_leave_the_number_of_threads_as_it_was():
    entered, may_leave = Event(), Event()

    def other():
        with one_thread():
            entered.set()
            may_leave.wait()

    with threadpool_limits(3, user_api="blas"):
        thread = Thread(target=other)
        with one_thread():
            thread.start()
            assert not entered.wait(0.2)  # what it took for the number before would be 1
        may_leave.set()
        thread.join()
        assert threads_of_linear_algebra() == {3}


def learns_in_one_thread():
    with one_thread():
        pass


@pytest.mark.skipif("fork" not in get_all_start_methods(), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_meanwhile_waits_for_no_thread_of_its_parent():
    entered, may_leave = Event(), Event()

    def other():
        with one_thread():
            entered.set()
            may_leave.wait()

    thread = Thread(target=other)
    thread.start()
    entered.wait()
    child = get_context("fork").Process(target=learns_in_one_thread)
    child.start()
    child.join(60)
    may_leave.set()
    thread.join()
    assert child.exitcode == 0
