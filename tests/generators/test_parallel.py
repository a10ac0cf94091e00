"""Draws of several workers: those of one process, and none lost."""

import contextlib
import os
import signal
import sqlite3
import time

import joblib
import numpy as np
import pytest
from joblib.parallel import ThreadingBackend
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import (
    BaseGenerator,
    DrawQueue,
    EstimatorGenerator,
    Generation,
    ParallelGenerator,
    draw_stream,
)
from tests.toy import dask_workers

PROMPTS = [f"item {i}" for i in range(40)]


class Logged(BaseGenerator):
    """Notes in a file which process made which draw, and when it loaded its model."""

    def __init__(self, log=None, killer=None, pause=0.0, store=None):
        self.log = log
        self.killer = killer
        self.pause = pause
        self.store = store  # of the cache around it

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        if not hasattr(self, "_model"):
            self._model = "loaded"
            self._note("loads")
        rows = []
        for prompt in prompts:
            time.sleep(self.pause)
            if self.killer is not None and prompt == "item 20" and os.path.exists(self.killer):
                os.unlink(self.killer)
                if self.store is not None:
                    wait_for_a_draw_in(self.store)
                os.kill(os.getpid(), signal.SIGKILL)
            rows.append([])
            for draw in range(start, start + n_samples):
                self._note(f"{prompt}/{draw}")
                value = draw_stream(prompt, seed, draw).random()
                rows[-1].append(Generation(f"{prompt} {value!r}", logprob=-value))
        return rows

    def _note(self, what):
        if self.log is not None:
            with open(self.log, "a") as file:
                file.write(f"{os.getpid()} {what}\n")

    def __getstate__(self):
        state = dict(super().__getstate__())
        state.pop("_model", None)  # named models are loaded where they are used
        return state

    def fingerprint(self):
        return "logged"


def wait_for_a_draw_in(store):
    deadline = time.monotonic() + 60
    with contextlib.closing(sqlite3.connect(store)) as file:
        while not file.execute("SELECT count(*) FROM entries").fetchone()[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def notes(log):
    return [line.split(" ", 1) for line in log.read_text().splitlines()]


def test_draws_are_those_of_one_process(tmp_path):
    log = tmp_path / "log"
    parallel = ParallelGenerator(Logged(log), n_jobs=2, chunk_size=5)
    expected = Logged().sample(PROMPTS, 3, start=2, seed=4)
    assert parallel.sample(PROMPTS, 3, start=2, seed=4) == expected
    processes = {process for process, _ in notes(log)}
    assert str(os.getpid()) not in processes
    assert 1 <= len(processes) <= 2
    loads = [process for process, what in notes(log) if what == "loads"]
    assert len(loads) == len(set(loads))
    assert parallel.sample([], 3) == []
    assert ParallelGenerator(Logged(), n_jobs=1).sample(PROMPTS, 3, start=2, seed=4) == expected


class Together(ThreadingBackend):
    """Returns the results of a call together, as Ray's workers do."""

    supports_return_generator = False


def test_workers_may_return_results_together():
    with joblib.parallel_config(backend=Together(), n_jobs=2):
        rows = ParallelGenerator(Logged(), chunk_size=2).sample(PROMPTS, 2)
    assert rows == Logged().sample(PROMPTS, 2)


def test_a_queue_is_served_by_all_workers():
    def rule(arrived):
        for index, draws in arrived:
            counts[index] = counts.get(index, 0) + len(draws)
            yield 0 if counts[index] > index % 3 else counts[index] + 1

    counts, seen = {}, {}
    queue = DrawQueue(
        PROMPTS, 4, seed=1, decide=rule, on_draw=lambda i, j, g: seen.__setitem__((i, j), g)
    )
    ParallelGenerator(Logged(), n_jobs=2).serve(queue)
    expected = Logged().sample(PROMPTS, 4, seed=1)
    assert seen == {(i, j): expected[i][j] for i in range(40) for j in range(i % 3 + 1)}


def test_rows_of_numbers_and_training():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    labels = (rows[:, 0] > 0).astype(int)
    alone = EstimatorGenerator(GaussianNB()).fit(rows, labels)
    parallel = ParallelGenerator(EstimatorGenerator(GaussianNB()), n_jobs=2).fit(rows, labels)
    assert parallel.sample(rows, 2) == alone.sample(rows, 2)
    assert parallel.fingerprint() == alone.fingerprint()
    assert clone(parallel).fingerprint() != alone.fingerprint()
    assert parallel.gives_labels
    assert parallel.gives_logprobs
    assert not hasattr(ParallelGenerator(Logged()), "fit")


def test_generators_of_a_notebook_reach_the_workers():
    namespace = {"__name__": "__main__"}
    source = """
from sklearn_clm.generators import BaseGenerator, Generation
class Local(BaseGenerator):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[Generation(p + SUFFIX)] * n_samples for p in prompts]
SUFFIX = "!"
"""
    exec(source, namespace)
    rows = ParallelGenerator(namespace["Local"](), n_jobs=2).sample(["a", "b"], 1)
    assert [row[0].response for row in rows] == ["a!", "b!"]


class Failing(Logged):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        if "item 39" in prompts:
            raise ValueError("no answer to item 39")
        return super().sample(prompts, n_samples, start=start, seed=seed)


def test_errors_of_the_generator_come_through_as_they_are():
    parallel = ParallelGenerator(Failing(), n_jobs=2, chunk_size=2)
    with pytest.raises(ValueError, match="no answer to item 39"):
        parallel.sample(PROMPTS, 1)


def test_threads_can_be_the_workers():
    with joblib.parallel_config(backend="threading", n_jobs=2):
        rows = ParallelGenerator(Logged()).sample(PROMPTS, 2)
    assert rows == Logged().sample(PROMPTS, 2)


# a dead worker ends the processes that all tests share: no test but these makes them anew
@pytest.mark.slow
def test_a_cache_keeps_what_arrived_before_a_worker_died(tmp_path):
    log, killer = tmp_path / "log", tmp_path / "killer"
    killer.touch()
    store = tmp_path / "draws.sqlite"
    inner = ParallelGenerator(Logged(log, killer, store=store), n_jobs=2, chunk_size=2)
    with pytest.raises(RuntimeError, match="worker"):
        CachedGenerator(inner, store).sample(PROMPTS, 2)
    log.unlink()
    again = CachedGenerator(ParallelGenerator(Logged(log), n_jobs=1), store)
    assert again.sample(PROMPTS, 2) == Logged().sample(PROMPTS, 2)
    assert 0 < sum(what != "loads" for _, what in notes(log)) < 80


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_goes_on(tmp_path):
    log, killer = tmp_path / "log", tmp_path / "killer"
    killer.touch()
    with dask_workers(processes=True):
        parallel = ParallelGenerator(Logged(log, killer, pause=0.02), chunk_size=2)
        rows = parallel.sample(PROMPTS, 2)
    assert rows == Logged().sample(PROMPTS, 2)
    assert not killer.exists()
    assert len({process for process, _ in notes(log)}) >= 2
