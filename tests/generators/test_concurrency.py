"""Concurrent requests: what arrives, what stops them, what is not lost."""

import os
import signal
import threading
import time
from collections import deque

import pytest

from sklearn_clm.generators._concurrent import run_concurrently


def arriving(jobs, work, *arguments):
    """Results, as they are delivered."""
    delivered = deque()
    for _ in run_concurrently(jobs, work, delivered.append, *arguments):
        while delivered:
            yield delivered.popleft()


def test_all_results_arrive():
    def work(job, stopping):
        yield job
        yield -job

    results = list(arriving(range(1, 100), work, 5))
    assert sorted(results) == sorted([*range(1, 100), *range(-99, 0)])
    assert list(arriving([], work, 3)) == []


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
        for result in arriving(iter(["slow", "bad", "never"]), work, 2):
            results.append(result)
            if result == "bad begun":
                late.set()

    with pytest.raises(ConnectionError, match="gone"):
        fetch()
    assert "slow done" in results
    assert "never begun" not in results


def test_what_is_not_needed_is_neither_waited_for_nor_an_error(caplog):
    caplog.set_level("INFO", logger="sklearn_clm")
    never = threading.Event()

    def work(job, stopping):
        if job == "idle":
            never.wait(20)
        if job == "bad":
            raise ConnectionError("gone")
        yield job

    jobs = ["idle", "bad", "one", "two"]
    is_needed = ("one", "two").__contains__
    assert list(arriving(iter(jobs), work, 2, is_needed)) == ["one", "two"]
    assert not never.is_set()
    never.set()
    assert "not to be needed failed: gone" in caplog.text


def test_the_next_job_waits_for_a_thread_that_nobody_needs():
    go_on = threading.Event()

    def jobs():
        yield "idle"
        go_on.set()
        yield "one"

    def work(job, stopping):
        go_on.wait(20)
        yield job

    assert "one" in list(arriving(jobs(), work, 1, "one".__eq__))


@pytest.mark.parametrize("before", [1, 2])
def test_an_error_counts_once_its_job_is_needed(before):
    needed = {"first"}

    def jobs():
        yield from ["early", "first"][:: 1 if before == 1 else -1]
        needed.add("early")
        yield None

    def work(job, stopping):
        yield job
        if job == "early":
            raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        list(arriving(jobs(), work, before, needed.__contains__))


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
        for result in arriving(range(1, 100), work, 1):
            results.append(result)  # noqa: PERF402

    interrupted_while(begun, go_on)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert results == [1]


@pytest.mark.usefixtures("keyboard_interrupts")
def test_an_interrupt_does_not_wait_for_what_hangs(monkeypatch):
    monkeypatch.setattr("sklearn_clm.generators._concurrent._GRACE_SECONDS", 0.1)
    begun, unused, never = threading.Event(), threading.Event(), threading.Event()

    def work(job, stopping):
        begun.set()
        never.wait(20)
        yield job

    interrupted_while(begun, unused)
    with pytest.raises(KeyboardInterrupt):
        list(arriving(range(1, 9), work, 2))
    assert not never.is_set()
    never.set()


def test_few_results_are_made_that_nobody_fetches():
    made = []

    def work(job, stopping):
        made.append(job)
        yield job

    results = arriving(range(1, 1000), work, 3)
    next(results)
    time.sleep(0.2)
    assert len(made) <= 1 + 2 * 3 + 3
    results.close()
    time.sleep(0.7)
    n_made = len(made)
    time.sleep(0.2)
    assert len(made) == n_made
