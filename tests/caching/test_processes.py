"""Processes that share a cache, or are killed while they write to it."""

import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
from functools import partial

import pytest
from stress.kills import PROMPTS, Slow, run, stored

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import Generation
from tests.toy import n_stored, together

# processes that are forked need not import the package again
PROCESSES = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
FEW = PROMPTS[:12]


@pytest.mark.slow
def test_killed_processes_lose_no_draw(tmp_path):
    draws = run(3, tmp_path / "draws.sqlite")
    assert len(draws) > 3


def draw_lucky(path, out):
    rows = CachedGenerator(Slow(lucky=True), path).sample(FEW, 8)
    out.write_text(json.dumps([[generation.response for generation in row] for row in rows]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_processes_that_share_a_file_agree(tmp_path):
    path = tmp_path / "draws.sqlite"
    outs = [tmp_path / f"out-{k}.json" for k in range(2)]
    processes = [PROCESSES.Process(target=draw_lucky, args=(path, out)) for out in outs]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    first, second = (json.loads(out.read_text()) for out in outs)
    assert first == second
    assert len(stored(path)) == len(FEW) * 8
    third = CachedGenerator(Slow(lucky=True), path).sample(FEW, 8)
    assert [[generation.response for generation in row] for row in third] == first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_a_connection_of_its_own(tmp_path):
    path = tmp_path / "draws.sqlite"
    cached = CachedGenerator(Slow(), path)
    rows = cached.sample(FEW[:3], 2)
    child = os.fork()
    if child == 0:
        try:
            cached.sample(FEW, 2)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert cached.sample(FEW[:3], 2) == rows
    assert n_stored(cached) == 24


def count_elsewhere(path):
    """Number of draws that another process sees in a file, which it opens and closes."""
    code = (
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); "
        "print(file.execute('SELECT count(*) FROM entries').fetchone()[0]); file.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_threads_that_open_a_file_together_keep_it_locked(tmp_path):
    """Otherwise a process that closes the file deletes the log that this one writes to."""
    for trial in range(4):
        path = tmp_path / f"{trial}.sqlite"
        CachedGenerator(Slow(), path).sample(["before"], 1)
        cached = [CachedGenerator(Slow(), path) for _ in range(12)]
        together([partial(one.sample, [f"prompt {k}"], 1) for k, one in enumerate(cached)])
        count_elsewhere(path)
        cached[0].sample([f"later {k}" for k in range(5)], 2)
        assert count_elsewhere(path) == 1 + 12 + 10


def test_an_interrupt_leaves_no_transaction_open(tmp_path, interrupted_after):
    class Instant(Slow):
        def serve(self, queue):
            for i, start, stop in queue.take():
                for j in range(start, stop):
                    queue.put(i, j, Generation("at once"))

    path, errors = tmp_path / "draws.sqlite", []
    cached = CachedGenerator(Instant(), path, key="fast")
    cached.sample(["first"], 1)
    other = sqlite3.connect(path, timeout=0.0, isolation_level=None)
    try:
        for trial in range(200):
            try:
                with interrupted_after(0.007 + trial * 1e-5):
                    cached.sample([f"{trial}"], 1000)
            except KeyboardInterrupt as error:
                errors.append(error)  # an interactive session holds its last error, too
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
    finally:
        other.close()
    assert len(errors) > 100
