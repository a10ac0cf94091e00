"""Draws kept in memory: what is known is not asked for again."""

import copy
import functools
import gc
import pickle
import threading
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.caching import CachedGenerator, DrawMemory
from sklearn_clm.generators import BaseGenerator, DrawQueue, Generation, draw_stream
from tests.toy import Streaming, together


class Counting(Streaming):
    """Counts by itself what it was asked."""

    def __init__(self, temperature=1.0, fail_after=None, error=RuntimeError):
        super().__init__(temperature, fail_after, error)
        self.asked = []

    def fingerprint(self):
        return f"temperature {self.temperature}"


class Serving(Counting):
    """Answers a queue one draw at a time, with a few under way, ahead of need where idle."""

    def __init__(self, temperature=1.0, capacity=3):
        super().__init__(temperature)
        self.capacity = capacity

    def serve(self, queue):
        under_way = []
        while True:
            room = self.capacity - len(under_way)
            taken = queue.take(room)
            room -= sum(request.stop - request.start for request in taken)
            if room and not taken:
                taken = queue.take_ahead(room)
            assert len({request.prompt for request in taken}) == len(taken)
            under_way += [(i, j) for i, start, stop in taken for j in range(start, stop)]
            assert queue.n_under_way >= len(under_way)
            under_way = [(i, j) for i, j in under_way if queue.is_open(i)]
            if not under_way:
                if not taken:
                    return
                continue
            i, j = under_way.pop(-1)
            self.asked.append((queue.prompts[i], queue.seed, j))
            queue.put(i, j, self.draw(queue.prompts[i], queue.seed, j))


PROMPTS = ["a", "b", "a", "c", "d", "e"]


def sample(memory, generator, prompts, n_samples, *, start=0, seed=0):
    class Remembered(BaseGenerator):
        def serve(self, queue):
            memory.serve(generator, queue)

    return Remembered().sample(prompts, n_samples, start=start, seed=seed)


def rows_of(prompts, n, start=0, seed=0):
    return [[Streaming().draw(p, seed, j) for j in range(start, start + n)] for p in prompts]


# prompts, number of draws, the first one and the seed
CALLS = st.tuples(
    st.lists(st.sampled_from("abcdef"), max_size=5), *(st.integers(0, most) for most in (4, 6, 1))
)


@pytest.mark.parametrize("kind", ["memory", "memory of one that serves", "cache"])
@given(calls=st.lists(CALLS, max_size=6))
@settings(max_examples=50, deadline=None)
def test_any_sequence_of_calls_asks_for_each_draw_once(kind, calls):
    generator = Serving() if "serves" in kind else Counting()
    ask = functools.partial(sample, DrawMemory(), generator)
    if kind == "cache":
        ask = CachedGenerator(generator).sample
    for prompts, n_samples, start, seed in calls:
        rows = ask(prompts, n_samples, start=start, seed=seed)
        assert rows == rows_of(prompts, n_samples, start, seed)
    assert len(generator.asked) == len(set(generator.asked))


@pytest.mark.parametrize("capacity", [None, 1, 2, 5, 40])
@pytest.mark.parametrize("n_known", [0, 2])
def test_a_rule_sees_the_same_draws_whatever_is_known(capacity, n_known):
    """Each prompt stops at its first draw above a threshold; nothing is asked for twice."""
    prompts = [f"prompt {i % 30}" for i in range(40)]

    def run(serve):
        seen = {}

        def decide(arrived):
            counts = []
            for i, draws in arrived:
                mine = seen.setdefault(i, [])
                for generation in draws:
                    if not mine or -mine[-1].logprob < 0.8:
                        mine.append(generation)
                stopped = -mine[-1].logprob >= 0.8
                counts.append(len(mine) if stopped else len(mine) + 1)
            return counts

        queue = DrawQueue(prompts, 8, decide=decide)
        serve(queue)
        return seen

    generator = Counting() if capacity is None else Serving(capacity=capacity)
    memory = DrawMemory()
    sample(memory, generator, prompts[::3], n_known)
    seen = run(lambda queue: memory.serve(generator, queue))
    expected = run(lambda queue: DrawMemory().serve(Counting(), queue))
    assert seen == expected
    assert set(seen) == set(range(40))
    assert len(generator.asked) == len(set(generator.asked))


def test_generators_seeds_and_prompts_do_not_share_draws():
    memory = DrawMemory()
    cold, hot = Counting(), Counting(temperature=2.0)
    sample(memory, cold, ["1"], 2)
    assert sample(memory, hot, ["1"], 2)[0][0] == hot.draw("1", 0, 0)
    sample(memory, cold, ["1"], 2, seed=1)
    sample(memory, cold, [1], 2)
    assert len(cold.asked) == 6
    sample(memory, cold, ["1"], 3, seed=1)
    sample(memory, cold, ["1"], 1, start=1)
    assert len(cold.asked) == 7
    same = Counting(temperature=2.0)
    sample(memory, same, ["1"], 1)
    assert same.asked == []


class Opaque:
    """Holds a lock, so that no fingerprint tells one from another."""

    def __init__(self, lock):
        self.lock = lock

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[Generation("one")] * n_samples for _ in prompts]


def test_a_generator_that_nothing_tells_from_others_needs_a_name():
    memory, queue, opaque = DrawMemory(), DrawQueue(["a"], 1), Opaque(threading.Lock())
    with pytest.raises(ValueError, match="key="):
        memory.serve(opaque, queue)
    with pytest.raises(ValueError, match="key="):
        CachedGenerator(opaque).sample(["a"], 1)
    memory.serve(opaque, queue, fingerprint="one")
    assert queue.n_put == 1
    assert CachedGenerator(opaque, key="one").sample(["a"], 1) == [[Generation("one")]]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_arrived_is_kept_when_the_generator_fails(error):
    memory, failing = DrawMemory(), Counting(fail_after=5, error=error)
    with pytest.raises(error):
        sample(memory, failing, ["a", "b"], 4)
    generator = Counting()
    assert sample(memory, generator, ["a", "b"], 4) == rows_of(["a", "b"], 4)
    assert len(generator.asked) == 3


def test_prompts_that_cannot_be_keyed_are_refused_before_anything_is_drawn():
    generator = Counting()
    with pytest.raises(TypeError, match=r"prompts holds a .*object, which has no stable"):
        sample(DrawMemory(), generator, ["a", object()], 2)
    assert generator.asked == []


class Typical(BaseGenerator):
    """8 tokens and 20 characters."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[self.draw(p, j) for j in range(start, start + n_samples)] for p in prompts]

    def draw(self, prompt, j):
        values = draw_stream(prompt, 0, j).random(8)
        spans = tuple((min(3 * k, 20), min(3 * k + 3, 20)) for k in range(8))
        return Generation(f"{prompt:<18}{j:2}", -sum(values), 8, tuple(-values), spans, "stop")


@pytest.mark.parametrize(("n_prompts", "n_samples"), [(100, 20), (400, 2)])
def test_a_draw_takes_a_kilobyte(n_prompts, n_samples):
    memory, prompts = DrawMemory(), [f"{i}" for i in range(n_prompts)]
    sample(memory, Typical(), ["warm up"], 1)
    gc.collect()
    tracemalloc.start()
    for first in range(0, n_prompts, 100):
        sample(memory, Typical(), prompts[first : first + 100], n_samples)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / (n_prompts * n_samples) <= 1_600
    assert 0.6 * used < memory.n_bytes < 1.6 * used


def test_least_recently_used_prompts_go_first():
    generator, memory = Counting(), DrawMemory(max_bytes=10_000)
    prompts = [f"{i}" for i in range(20)]
    for prompt in prompts:
        sample(memory, generator, ["kept", prompt], 2)
    assert memory.n_bytes <= 10_000
    assert len(generator.asked) == 42
    sample(memory, generator, ["kept", *prompts[-2:]], 2)
    assert len(generator.asked) == 42
    assert sample(memory, generator, prompts[:10], 2) == rows_of(prompts[:10], 2)
    assert len(generator.asked) == 62
    nothing = DrawMemory(max_bytes=0)
    assert sample(nothing, generator, PROMPTS, 2) == rows_of(PROMPTS, 2)
    assert nothing.n_bytes == 0
    with pytest.raises(ValueError, match="max_bytes"):
        DrawMemory(max_bytes=-1)


def test_clear_forgets():
    generator, memory = Counting(), DrawMemory()
    sample(memory, generator, PROMPTS, 2)
    memory.clear()
    assert memory.n_bytes == 0
    asked = len(generator.asked)
    sample(memory, generator, PROMPTS, 2)
    assert len(generator.asked) == 2 * asked


def test_copies_and_pickles_are_empty():
    generator, memory = Counting(), DrawMemory(max_bytes=12345)
    sample(memory, generator, PROMPTS, 2)
    for twin in (pickle.loads(pickle.dumps(memory)), copy.deepcopy(memory), copy.copy(memory)):
        assert twin.max_bytes == 12345
        assert twin.n_bytes == 0


def test_threads_share_a_memory():
    memory = DrawMemory(max_bytes=20_000)
    for rows in together([lambda: sample(memory, Counting(), PROMPTS * 5, 10)] * 8):
        assert rows == rows_of(PROMPTS * 5, 10)
