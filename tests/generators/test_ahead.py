"""Draws ahead of need on a local model: which are made, what they cost, and when they end.

The time of a step is a function of its rows here, so that every number is the same on any machine.
"""

import functools
import itertools
import random
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.caching import DrawMemory
from sklearn_clm.generators import CascadeGenerator, DrawQueue, TransformersGenerator
from sklearn_clm.generators.base import answer_queue

pytest.importorskip("transformers")

from sklearn_clm.generators.transformers import _ahead, _engine
from sklearn_clm.generators.transformers._ahead import (
    N_RECENT,
    N_REMEMBERED,
    AheadPlan,
    StepTimes,
    cheapest_count,
)
from tests.generators.test_transformers import prompts_for, responses
from tests.toy import together

K = 12
# draws of different length, so that rows of a prompt end at different steps
OPTIONS = {"max_new_tokens": 8, "stop": ["e", "o"]}
# seconds of a step with n rows; a second row needs other, dearer matrix products in the last
PRICES = {
    "rows cost nothing": lambda n: 1.0,
    "a row costs little": lambda n: 0.95 + 0.05 * n,
    "a row costs a seventh": lambda n: 0.85 + 0.15 * n,
    "a row costs half of a step": lambda n: 0.5 + 0.5 * n,
    "time is rows": lambda n: 1.0 * n,
    "a second row is dear": lambda n: np.interp(n, [1, 2, 4, 8, 64], [1, 1.7, 1.5, 1.7, 7.5]),
}


def shares(decided, continued):
    """Chances where a share of the prompts wants another draw each time."""
    return tuple(continued ** np.arange(K - decided))


class Clocked:
    """A generator whose steps take a time that is a function of their rows."""

    def __init__(self, monkeypatch, path, seconds, **options):
        self.generator = TransformersGenerator(path, **OPTIONS, **options)
        self.generator.sample(["one"], 1)
        checkpoint = self.generator._load()
        forward = checkpoint._forward[1]
        step = forward.step
        self.time = 0.0
        self.sizes = []  # of each step, since the beginning
        self.rows = []  # of each step: prompt and draw

        def timed(batch, rows):
            self.time += seconds(len(rows))
            self.sizes.append(len(rows))
            self.rows.append([(row.index, row.draw) for row in rows])
            return step(batch, rows)

        monkeypatch.setattr(forward, "step", timed)
        monkeypatch.setattr(checkpoint, "step_times", StepTimes())
        monkeypatch.setattr(_engine, "clock_of", lambda device: lambda: self.time)

    def predict(self, prompts, needs, chances):
        """Draws until each prompt has those that it needs, and the time that this takes."""
        self.draws = {}
        self.closed_at = {}  # number of steps when a prompt was closed
        self.rows.clear()
        before = self.time
        arrived = Counter()

        def decide(news):
            wanted = []
            for i, draws in news:
                arrived[i] += len(draws)
                is_done = arrived[i] >= needs[i]
                if is_done:
                    self.closed_at[i] = len(self.rows)
                wanted.append(int(needs[i]) if is_done else arrived[i] + 1)
            return wanted

        queue = DrawQueue(
            prompts,
            K,
            decide=decide,
            on_draw=lambda i, j, draw: self.draws.update({(i, j): draw}),
            chances=chances,
        )
        answer_queue(self.generator, queue)
        assert queue.n_under_way == 0
        return self.time - before


def without(prompt, decided):
    """Chances by which nothing is drawn ahead."""
    return (1.0,)


def needs_of(seed, continued):
    """How many draws each of 25 prompts needs."""
    return np.minimum(np.random.default_rng(seed).geometric(1 - continued, 25), K)


def total(clocked, needs, chances):
    """Time of all prompts, one after the other."""
    return sum(
        clocked.predict([prompt], [need], chances)
        for prompt, need in zip(prompts_for("llama", 25), needs)
    )


@functools.cache
def steps_of_extremes(path, continued):
    """Rows of each step without draws ahead, and where all draws are made at once.

    At any price these are the same: no plan is made.
    """
    with pytest.MonkeyPatch.context() as patch:
        clocked = Clocked(patch, path, PRICES["time is rows"])
        clocked.sizes.clear()
        total(clocked, needs_of(0, continued), without)
        one_after_the_other = clocked.sizes.copy()
        clocked.sizes.clear()
        for prompt in prompts_for("llama", 25):
            clocked.generator.sample([prompt], K)
        return one_after_the_other, clocked.sizes


@pytest.mark.parametrize("continued", [0.3, 0.9])
@pytest.mark.parametrize("price", PRICES)
def test_one_prompt_at_a_time_takes_no_longer_than_either_extreme(
    llama_path, monkeypatch, price, continued
):
    seconds = PRICES[price]
    one_after_the_other, all_at_once = (
        sum(map(seconds, sizes)) for sizes in steps_of_extremes(llama_path, continued)
    )
    # a service that was just started: what rows cost is found out on the way
    clocked = Clocked(monkeypatch, llama_path, seconds)
    ours = total(clocked, needs_of(0, continued), lambda i, decided: shares(decided, continued))
    # the steps of one draw, in which a second row is tried
    tried = 8 * (seconds(2) - seconds(1))
    assert ours <= one_after_the_other + tried
    assert ours <= 1.1 * all_at_once


@pytest.mark.parametrize("continued", [0.3, 0.9])
@pytest.mark.parametrize("price", PRICES)
def test_many_prompts_take_no_longer_than_without_draws_ahead(
    llama_path, monkeypatch, price, continued
):
    prompts, needs = prompts_for("llama", 25), needs_of(1, continued)
    clocked = Clocked(monkeypatch, llama_path, PRICES[price], batch_size=16)
    without_ahead = clocked.predict(prompts, needs, without)
    ours = clocked.predict(prompts, needs, lambda i, decided: shares(decided, continued))
    assert ours <= 1.03 * without_ahead


def test_half_of_the_draws_take_little_more_than_half_of_the_time(llama_path, monkeypatch):
    prompts = prompts_for("llama", 60)
    needs = np.random.default_rng(2).integers(1, K + 1, 60)
    clocked = Clocked(monkeypatch, llama_path, PRICES["a row costs little"], batch_size=16)
    clocked.generator.sample(prompts, K)
    everything, clocked.time = clocked.time, 0.0
    ours = clocked.predict(prompts, needs, lambda i, decided: tuple(1 - np.arange(K - decided) / K))
    assert ours <= 0.65 * everything * (needs.mean() / K) / 0.5


def test_what_is_drawn_ahead_changes_no_draw(llama_path, monkeypatch):
    prompts = prompts_for("llama", 10)
    needs = np.random.default_rng(3).integers(1, K + 1, 10)
    expected = responses(TransformersGenerator(llama_path, **OPTIONS).sample(prompts, K))
    counts = set()
    for price, batch_size in itertools.product(PRICES, (3, 64)):
        clocked = Clocked(monkeypatch, llama_path, PRICES[price], batch_size=batch_size)
        before = clocked.generator.n_begun_draws_
        clocked.predict(prompts, needs, lambda i, decided: shares(decided, 0.8))
        counts.add(clocked.generator.n_begun_draws_ - before)
        assert all((i, j) in clocked.draws for i, need in enumerate(needs) for j in range(need))
        assert all(draw.response == expected[i][j] for (i, j), draw in clocked.draws.items())
        monkeypatch.undo()
    assert len(counts) > 2  # what was made ahead did differ


def test_no_draw_of_chance_zero_is_made(llama_path, monkeypatch):
    clocked = Clocked(monkeypatch, llama_path, PRICES["rows cost nothing"])
    prompts = prompts_for("llama", 6)
    chances = (1.0, 0.9, 0.8, 0.7, 0.6)
    for _ in range(2):
        clocked.predict(prompts, [3] * 6, lambda i, decided: chances[decided:])
        rows = {row for step in clocked.rows for row in step} | clocked.draws.keys()
        assert {draw for _, draw in rows} <= set(range(5))
    # what rows cost is known now: all others are worth it
    assert {draw for _, draw in rows} == set(range(5))


@pytest.mark.parametrize("batch_size", [4, 64])
def test_rows_of_a_closed_prompt_leave_at_once(llama_path, monkeypatch, batch_size):
    clocked = Clocked(monkeypatch, llama_path, PRICES["rows cost nothing"], batch_size=batch_size)
    generator = clocked.generator
    prompts = prompts_for("llama", 8)
    needs = np.random.default_rng(4).integers(1, 6, 8)
    for _ in range(2):
        n_begun, n_given_up = generator.n_begun_draws_, generator.n_given_up_draws_
        clocked.predict(prompts, needs, lambda i, decided: shares(decided, 0.9))
        for i, n_steps in clocked.closed_at.items():
            assert not any(index == i for step in clocked.rows[n_steps:] for index, _ in step)
        n_begun = generator.n_begun_draws_ - n_begun
        n_given_up = generator.n_given_up_draws_ - n_given_up
        assert n_begun - n_given_up == len(clocked.draws) >= needs.sum()
    if batch_size == 64:
        assert n_given_up > 0


def test_a_draw_that_a_memory_gave_up_can_be_had_later(llama_path, monkeypatch):
    clocked = Clocked(monkeypatch, llama_path, PRICES["rows cost nothing"], batch_size=8)
    generator = clocked.generator
    prompt, other = prompts_for("llama", 2)
    memory = DrawMemory()
    # the first closes while draws ahead are under way; the last one, of another group, wants them
    needs = [1, 4, K]
    seen = Counter()
    draws = {}

    def decide(news):
        for i, new in news:
            seen[i] += len(new)
        return [needs[i] if seen[i] >= needs[i] else seen[i] + 1 for i, _ in news]

    for prompts in ([prompt, other, prompt], [prompt, prompt, other, prompt]):
        needs[:] = [1, 4, K, K][: len(prompts)]
        seen.clear()
        draws.clear()
        memory.clear()
        queue = DrawQueue(
            prompts,
            K,
            decide=decide,
            on_draw=lambda i, j, draw: draws.update({(i, j): draw.response}),
            chances=lambda i, decided: shares(decided, 0.9),
        )
        memory.serve(generator, queue)
        expected = responses(generator.sample([*prompts], K))
        for i, need in enumerate(needs[: len(prompts)]):
            assert [draws[i, j] for j in range(need)] == expected[i][:need]
        assert not memory._under_way or not any(
            one.makers or one.waiting for one in memory._under_way.values()
        )


def test_rows_of_a_closed_prompt_leave_a_cascade(llama_path, gpt2_path, monkeypatch):
    clocked = Clocked(monkeypatch, llama_path, PRICES["rows cost nothing"])
    cheap = clocked.generator
    dear = TransformersGenerator(gpt2_path, **OPTIONS)
    cascade = CascadeGenerator([cheap, dear], n_draws=(2, K - 2), prices=(1, 5))
    prompts = prompts_for("llama", 4)
    expected = responses(cascade.sample(prompts, K))
    calls = Counter()
    draws = {}

    def decide(news):  # wants all draws at first, and changes its mind at the third
        for i, new in news:
            calls[i] += len(new)
        return [K if calls[i] < 3 else 0 for i, _ in news]

    on_draw = lambda i, j, draw: draws.update({(i, j): draw.response})  # noqa: E731
    queue = DrawQueue(prompts, K, decide=decide, on_draw=on_draw)
    answer_queue(cascade, queue)
    assert queue.n_under_way == 0
    assert all(response == expected[i][j] for (i, j), response in draws.items())
    assert dear.n_given_up_draws_ > 0


def test_open_prompts_are_asked_for_only_where_draws_arrived(llama_path, monkeypatch):
    clocked = Clocked(monkeypatch, llama_path, PRICES["time is rows"], batch_size=8)
    asked = Counter()
    is_open = DrawQueue.is_open
    monkeypatch.setattr(
        DrawQueue, "is_open", lambda queue, i: asked.update([i]) or is_open(queue, i)
    )
    prompts = prompts_for("llama", 60)
    clocked.predict(prompts, [3] * 60, without)
    # once for each draw, and as many times again while the last prompts leave the batch
    assert asked.total() <= 2 * 3 * 60


# the plan


def cost_of(rounds, chances, seconds):
    """Expected cost of making so many draws at a time, one round after the other."""
    starts = np.cumsum([0, *rounds[:-1]])
    return sum(chances[start] * seconds(np.array(m)) for start, m in zip(starts, rounds))


def rounds_of(n):
    """All ways to make n draws in rounds."""
    if not n:
        yield ()
    for m in range(1, n + 1):
        yield from ((m, *others) for others in rounds_of(n - m))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n=st.integers(1, 7))
def test_the_plan_for_one_prompt_is_the_best_of_all_rounds(data, n):
    ratios = data.draw(st.lists(st.floats(0.05, 1.0), min_size=n - 1, max_size=n - 1))
    chances = np.cumprod([1.0, *ratios])
    table = data.draw(st.lists(st.floats(0.1, 10.0), min_size=n, max_size=n))

    def seconds(n_rows):
        return np.interp(n_rows, np.arange(1, n + 1), table)

    costs = {rounds: cost_of(rounds, chances, seconds) for rounds in rounds_of(n)}
    first = cheapest_count(chances, 1, seconds)
    least = min(costs.values())
    assert min(costs[rounds] for rounds in costs if rounds[0] == first) <= least * (1 + 1e-9)


def test_the_plan_for_many_prompts():
    chances = 0.8 ** np.arange(20)

    def seconds(n_rows):
        return 0.9 + 0.1 * n_rows

    counts = [cheapest_count(chances, n, seconds) for n in (1, 4, 16, 64, 1000)]
    # the more prompts share a step, the less is gained by draws that may be in vain
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 5
    assert counts[-1] == 1


def test_times_are_the_least_of_late():
    times = StepTimes()
    for seconds in (0.5, 0.2, *[0.4] * (N_RECENT - 1)):
        times.add(3, seconds)
    assert times.least == {3: 0.2}
    times.add(3, 0.4)
    assert times.least == {3: 0.4}
    version = times.version
    times.add(3, 0.38)  # about the same: plans need not be made anew
    assert times.version == version
    for _ in range(2 * N_REMEMBERED):
        times.add(1, 0.1)
    assert times.least == {1: 0.1}
    assert times.version > version


def test_threads_share_times(monkeypatch):
    monkeypatch.setattr(_ahead, "N_REMEMBERED", 20)
    times = StepTimes()

    def add(seed):
        rng = random.Random(seed)
        for _ in range(20_000):
            times.add(rng.randint(1, 300), rng.random())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        together([functools.partial(add, seed) for seed in range(4)])
    finally:
        sys.setswitchinterval(interval)
    assert times.least


def test_batches_grow_by_twice_while_it_is_unknown_what_rows_cost():
    times = StepTimes()
    plan = AheadPlan(times, 64)
    chances = (1.0,) * K
    assert plan.n_at_once(chances, 1) == 1
    counts = []
    for _ in range(5):
        counts.append(plan.n_at_once(chances, 1))
        times.add(counts[-1], 0.1)
    assert counts == [1, 2, 4, 8, K]
    assert plan.n_at_once(chances, 3) == 8  # of three prompts
    # rows turn out to be dear, and few are hoped to be cheap until it is known
    times = StepTimes()
    times.add(8, 8.0)
    times.add(4, 3.9)
    assert AheadPlan(times, 64).n_at_once((1.0, 0.5, 0.25, 0.125), 1) == 1


def test_a_request_whose_draws_others_make_waits_for_them(llama_path):
    memory, may_go_on = DrawMemory(), threading.Event()
    generator = TransformersGenerator(llama_path, **OPTIONS)
    generator.sample(["first"], 2)  # what rows cost is known
    (draws,) = generator.sample(["one"], 3)
    seen = []

    class Other:
        def sample(self, prompts, n_samples, *, start=0, seed=0):
            may_go_on.wait(60)
            return [draws[start : start + n_samples]]

    def decide(arrived):
        for _, news in arrived:
            seen.extend(news)
        return [3]

    maker = threading.Thread(
        target=lambda: memory.serve(Other(), DrawQueue(["one"], 1), fingerprint="one")
    )
    maker.start()
    while not any(under_way.makers for under_way in memory._under_way.values()):
        time.sleep(0.01)
    threading.Timer(0.5, may_go_on.set).start()
    memory.serve(generator, DrawQueue(["one"], K, decide=decide), fingerprint="one")
    maker.join()
    assert seen[:3] == draws
