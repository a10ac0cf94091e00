"""Kill a process with SIGKILL while it draws, again and again, and see what is left.

Run as a script for 50 kills: ``python tests/stress/kills.py [n_kills]``. A draw that a process had
been given by its cache must be in the file when the next one starts, no draw may be there twice or
differ, and in the end the calibration must be that of a process that was never killed.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sklearn_clm
from sklearn_clm import ConformalSampler
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import BaseGenerator, Generation, draw_stream

SEED = 3
K_MAX = 10
PROMPTS = [f"prompt {i}" for i in range(150)]
REFERENCES = ["right"] * len(PROMPTS)


class Slow(BaseGenerator):
    """Takes a moment for each draw; on `lucky`, what it draws can not be drawn again."""

    def __init__(self, seconds=0.001, lucky=False):
        self.seconds = seconds
        self.lucky = lucky

    def serve(self, queue):
        while requests := queue.take():
            for i, start, stop in requests:
                for j in range(start, stop):
                    time.sleep(self.seconds)
                    queue.put(i, j, self.draw(queue.prompts[i], queue.seed, j))

    def draw(self, prompt, seed, j):
        u = draw_stream(prompt, seed, j).random()
        mark = os.urandom(4).hex() if self.lucky else ""
        return Generation("right" if u > 0.6 else f"wrong {u:.1f}{mark}", -2.0 * u, 3)


class Acknowledging(CachedGenerator):
    """Says of each draw that it was handed on: from then on it must never be lost."""

    def serve(self, queue):
        put = queue.put

        def acknowledge(i, j, generation):
            os.write(1, (json.dumps([queue.prompts[i], j, generation.response]) + "\n").encode())
            put(i, j, generation)

        queue.put = acknowledge
        super().serve(queue)


def calibrated(generator):
    sampler = ConformalSampler(generator, k_max=K_MAX, epsilon=0.2, random_state=SEED)
    return sampler.fit(PROMPTS, REFERENCES)


def child(path):
    sampler = calibrated(Acknowledging(Slow(), path))
    os.write(1, (json.dumps({"lambda_hat": list(sampler.lambda_hat_)}) + "\n").encode())


def stored(path):
    """(prompt, draw) -> response, straight from the file."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT keys.content, entries.draw, entries.value FROM entries "
            "JOIN keys ON keys.id = entries.key"
        ).fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    draws = {(json.loads(prompt), draw): json.loads(value) for prompt, draw, value in rows}
    assert len(draws) == len(rows)
    return {key: value["response"] for key, value in draws.items()}


def started(path):
    package = str(Path(sklearn_clm.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, __file__, "--child", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


def run(n_kills, path, *, seed=0, report=lambda line: None):
    """Kill `n_kills` processes, let one finish, and check all that must hold."""
    rng = random.Random(seed)
    acknowledged, before = {}, {}
    n_killed = 0
    while n_killed < n_kills:
        process = started(path)
        for _ in range(2):  # past the import, whose length says nothing
            process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().decode().split("\n")
        process.stdout.close()
        process.wait()
        n_killed += 1
        whole = [json.loads(line) for line in lines[:-1]]
        acknowledged.update({(x[0], x[1]): x[2] for x in whole if isinstance(x, list)})
        now = stored(path)
        assert {key: now[key] for key in acknowledged} == acknowledged
        assert {key: now[key] for key in before} == before
        report(f"kill {n_killed}: {len(now)} of {len(PROMPTS) * K_MAX} draws stored")
        before = now
    process = started(path)
    output = process.communicate()[0].decode().splitlines()
    assert process.returncode == 0
    assert len(stored(path)) == len(PROMPTS) * K_MAX
    uninterrupted = calibrated(Slow(seconds=0.0))
    assert np.array_equal(json.loads(output[-1])["lambda_hat"], list(uninterrupted.lambda_hat_))
    return before


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(int((sys.argv[1:] or ["50"])[0]), Path(folder) / "draws.sqlite", report=print)
        print("no draw was lost")
