"""Concurrent requests: what arrives, what stops them, what is not lost."""

import os
import signal
import threading
import time

import pytest

from sklearn_clm.generators.openai._requests import run_concurrently


def test_all_results_arrive():
    def work(job, stopping):
        yield job
        yield -job

    results = list(run_concurrently(range(1, 100), work, 5))
    assert sorted(results) == sorted([*range(1, 100), *range(-99, 0)])
    assert list(run_concurrently([], work, 3)) == []


def test_results_under_way_arrive_before_an_error():
    late = threading.Event()

    def work(job, stopping):
        yield f"{job} begun"
        if job == "bad":
            raise ConnectionError("gone")
        late.wait(5)
        yield f"{job} done"

    results = []

    def fetch():
        for result in run_concurrently(iter(["slow", "bad", "never"]), work, 2):
            results.append(result)
            if result == "bad begun":
                late.set()

    with pytest.raises(ConnectionError, match="gone"):
        fetch()
    assert "slow done" in results
    assert "never begun" not in results


def interrupted_while(begun, then):
    """Interrupt the main thread, which waits for results, once work has begun."""

    def interrupt():
        begun.wait(5)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        then.set()

    threading.Thread(target=interrupt).start()


@pytest.mark.usefixtures("keyboard_interrupts")
def test_results_under_way_arrive_after_an_interrupt():
    begun, go_on = threading.Event(), threading.Event()

    def work(job, stopping):
        begun.set()
        go_on.wait(5)
        yield job

    results = []

    def fetch():
        for result in run_concurrently(range(1, 100), work, 1):
            results.append(result)  # noqa: PERF402

    interrupted_while(begun, go_on)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert results == [1]


@pytest.mark.usefixtures("keyboard_interrupts")
def test_an_interrupt_does_not_wait_for_what_hangs(monkeypatch):
    monkeypatch.setattr("sklearn_clm.generators.openai._requests._GRACE_SECONDS", 0.1)
    begun, unused, never = threading.Event(), threading.Event(), threading.Event()

    def work(job, stopping):
        begun.set()
        never.wait(20)
        yield job

    interrupted_while(begun, unused)
    with pytest.raises(KeyboardInterrupt):
        list(run_concurrently(range(1, 9), work, 2))
    assert not never.is_set()
    never.set()


def test_few_results_are_made_that_nobody_fetches():
    made = []

    def work(job, stopping):
        made.append(job)
        yield job

    results = run_concurrently(range(1, 1000), work, 3)
    next(results)
    time.sleep(0.2)
    assert len(made) <= 1 + 2 * 3 + 3
    results.close()
    time.sleep(0.7)
    n_made = len(made)
    time.sleep(0.2)
    assert len(made) == n_made
