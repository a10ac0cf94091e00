"""Doubles for the tests: a text model with a known distribution, and what goes with it."""

import bisect
import contextlib
import functools
import math
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import BaseGenerator, Generation, draw_stream

N_WRONG = 6


class ToyModel(BaseGenerator):
    """Answers "item i" with "answer i" as often as the item is easy, else with a wrong answer.

    Every draw is noted in the file `log`, so that all processes count together.
    """

    def __init__(self, temperature=1.0, skill=1.0, log=None):
        self.temperature = temperature
        self.skill = skill
        self.log = log

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        if self.log is not None:
            lines = [f"{seed}\t{j}\t{prompt}\n" for prompt in prompts for j in draws]
            with open(self.log, "a", encoding="utf-8") as file:
                file.write("".join(lines))
        return [[self._draw(prompt, seed, j) for j in draws] for prompt in prompts]

    def _draw(self, prompt, seed, draw):
        logprobs, below = chances(prompt, self.temperature, self.skill)
        k = bisect.bisect_right(below, draw_stream(prompt, seed, draw).random())
        number = prompt.split()[-1]
        text = f"answer {number}" if k == 0 else f"wrong guess {k} about {number}"
        return Generation(text, logprob=logprobs[k], n_tokens=len(text.split()))


@functools.cache
def chances(prompt, temperature, skill):
    """Log-probability of each answer, and the chance of it or an earlier one once warmed."""
    ease = draw_stream(prompt, 0, 0, salt=b"ease").random()
    right = skill * (0.15 + 0.8 * ease)
    base = np.array([right, *[(1 - right) / N_WRONG] * N_WRONG])
    below = np.cumsum(base ** (1 / temperature))
    return [math.log(chance) for chance in base.tolist()], (below / below[-1]).tolist()


class Unscored(ToyModel):
    """The same without log-probabilities."""

    gives_logprobs = False

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        rows = super().sample(prompts, n_samples, start=start, seed=seed)
        return [[Generation(draw.response) for draw in row] for row in rows]


class Trained(ToyModel):
    """The same once it is fitted, and better, the more references it has seen."""

    def fit(self, prompts, references):
        self.seen_ = list(prompts)
        self.skill_ = self.skill * len(prompts) / (len(prompts) + 15)
        return self

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        taught = ToyModel(self.temperature, self.skill_, self.log)
        return taught.sample(prompts, n_samples, start=start, seed=seed)


class Keyed(BaseGenerator):
    """Draws that carry all that a draw can carry; clones share the list of what was asked."""

    chunk_size = 3
    asked = []

    def __init__(self, temperature=1.0, template="{prompt}"):
        self.temperature = temperature
        self.template = template

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        rows = []
        for prompt in prompts:
            self.asked.extend((prompt, seed, j) for j in range(start, start + n_samples))
            rows.append([self.draw(prompt, seed, j) for j in range(start, start + n_samples)])
        return rows

    def draw(self, prompt, seed, j):
        value = draw_stream(prompt, seed, j).random() / self.temperature
        text = f"{prompt}\u2028\ud7ffé{value!r}"
        spans = ((0, 2), (2, len(text)))
        return Generation(text, -value, 2, (-value / 2, -value / 2), spans, "stop")


class Streaming(Keyed):
    """Draws arrive one by one, the last one first, and may end early."""

    def __init__(self, temperature=1.0, fail_after=None, error=RuntimeError):
        super().__init__(temperature)
        self.fail_after = fail_after
        self.error = error

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return BaseGenerator.sample(self, prompts, n_samples, start=start, seed=seed)

    def serve(self, queue):
        n = 0
        while requests := queue.take():
            wanted = ((i, j) for i, start, stop in requests for j in range(start, stop))
            for i, j in sorted(wanted, key=lambda pair: (-pair[1], pair[0])):
                if n == self.fail_after:
                    raise self.error("the service went away")
                n += 1
                prompt = queue.prompts[i]
                self.asked.append((prompt, queue.seed, j))
                queue.put(i, j, self.draw(prompt, queue.seed, j))


class Answering(BaseGenerator):
    """Says what it is told to, or what a function says; clones share the list of what was asked."""

    asked = []
    chunk_size = 1

    def __init__(self, answers=("yes",)):
        self.answers = answers

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        self.asked += [(prompt, draw, seed) for prompt in prompts for draw in draws]
        return [[self.draw(prompt, draw) for draw in draws] for prompt in prompts]

    def draw(self, prompt, draw):
        if callable(self.answers):
            said = self.answers(prompt, draw)
        else:
            said = self.answers[draw % len(self.answers)]
        return said if isinstance(said, Generation) else Generation(said)


def toy_sampler(generator=None, *, log=None, **params):
    """A sampler of the toy model."""
    params = {"k_max": 5, "epsilon": 0.4, "random_state": 0} | params
    return ConformalSampler(ToyModel(log=log) if generator is None else generator, **params)


def together(calls):
    """Run all calls at once, each in a thread of its own that waits for the others."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def run_sql(path, script):
    """Run statements on a file of SQLite, as another program would."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@contextlib.contextmanager
def dask_workers(n_workers=2, processes=False):
    """Joblib's workers are those of a cluster of dask, each with one thread."""
    distributed = pytest.importorskip("distributed")
    options = {"processes": processes, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers=n_workers, **options) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        yield


def n_stored(cache, in_all=False):
    """How many results a cache's file holds of its kind: under its own name, or under any."""
    query = (
        "SELECT count(*) FROM entries JOIN spaces ON spaces.id = entries.space "
        "WHERE kind = ? AND name = ifnull(?, name)"
    )
    kind, name = cache._space()
    return cache._shared().store.select(query, (kind, None if in_all else name))[0][0]


def questions(n, first=0):
    """Prompts and references."""
    numbers = range(first, first + n)
    return [f"item {i}" for i in numbers], [f"answer {i}" for i in numbers]


def drawn(log):
    """What was drawn: a list of (seed, draw, prompt)."""
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")) for line in file]
