"""Draws kept in memory: what is known is not asked for again."""

import copy
import functools
import gc
import multiprocessing
import pickle
import random
import threading
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.caching import CachedGenerator, DrawMemory
from sklearn_clm.generators import (
    BaseGenerator,
    DrawQueue,
    FunctionGenerator,
    Generation,
    draw_stream,
)
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


class Slow(Serving):
    """Takes its time, draws ahead, and fails at some draws."""

    def __init__(self, temperature=1.0, capacity=3, fails=()):
        super().__init__(temperature, capacity)
        self.fails = fails
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def draw(self, prompt, seed, j):
        self.may_go_on.wait(60)
        if (prompt, j) in self.fails:
            raise self.error(f"no draw {j} of {prompt}")
        return super().draw(prompt, seed, j)


class Each(Counting):
    """Makes the draws of one prompt in each call of `sample`, slowly."""

    chunk_size = 1

    def draw(self, prompt, seed, j):
        time.sleep(0.001)
        return super().draw(prompt, seed, j)


def begin(call):
    """Begin a call in a thread; what waits for its result, or raises its error."""
    outcome = []

    def run():
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(120)
        assert not thread.is_alive(), "it waits for ever"
        ((value, error),) = outcome
        if error is not None:
            raise error
        return value

    return result


@pytest.mark.parametrize("make", [Counting, Each, Serving])
def test_what_several_want_at_once_is_made_once(make):
    memory, generator = DrawMemory(), make()
    calls = [lambda: sample(memory, generator, PROMPTS * 2, 10)] * 8
    for rows in together(calls):
        assert rows == rows_of(PROMPTS * 2, 10)
    assert len(generator.asked) == len(set(generator.asked)) == 50


def waiting(memory):
    (under_way,) = memory._under_way.values()
    return sum(map(len, under_way.waiting.values()))


def n_makers(memory):
    (under_way,) = memory._under_way.values()
    return len(under_way.makers)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_error_is_that_of_all_who_wait_for_the_prompt():
    memory, generator = DrawMemory(), Slow(fails=[("a", 1)])
    generator.may_go_on.clear()
    results = [begin(lambda: sample(memory, generator, ["a"], 1, start=1)) for _ in range(5)]
    wait_until(lambda: memory._under_way and waiting(memory) == 4)
    generator.may_go_on.set()
    for result in results:
        with pytest.raises(RuntimeError, match="no draw 1 of a"):
            result()
    assert len(generator.asked) == 1
    generator.fails = ()  # and it is asked again later
    assert sample(memory, generator, ["a"], 2) == rows_of(["a"], 2)


def test_an_error_at_another_prompt_is_nobody_elses():
    """Another request makes what the one that failed was to make."""
    memory, generator = DrawMemory(), Slow(fails=[("b", 0)], capacity=4)
    generator.may_go_on.clear()
    failing = begin(lambda: sample(memory, generator, ["a", "c", "b"], 1))
    wait_until(lambda: len(generator.asked) == 1)  # the last one is made first
    other = begin(lambda: sample(memory, generator, ["c", "a"], 1))
    wait_until(lambda: waiting(memory) == 2)
    generator.may_go_on.set()
    with pytest.raises(RuntimeError, match="no draw 0 of b"):
        failing()
    assert other() == rows_of(["c", "a"], 1)


@pytest.mark.parametrize("place", ["decide", "on_draw"])
def test_an_error_of_the_callers_functions_is_nobody_elses(place):
    memory, generator = DrawMemory(), Slow()
    generator.may_go_on.clear()
    queue = DrawQueue(["a"], 2, **{place: lambda *given: [1 / 0]})
    failing = begin(lambda: memory.serve(generator, queue))
    wait_until(lambda: generator.asked)
    other = begin(lambda: sample(memory, generator, ["a"], 2))
    wait_until(lambda: waiting(memory) >= 1)
    generator.may_go_on.set()
    with pytest.raises(ZeroDivisionError):
        failing()
    assert other() == rows_of(["a"], 2)


def test_an_interrupt_leaves_its_draws_to_those_who_wait():
    memory, interrupted, others = DrawMemory(), Slow(fails=[("a", 0)]), Slow()
    interrupted.error = KeyboardInterrupt
    interrupted.may_go_on.clear()
    first = begin(lambda: sample(memory, interrupted, ["a"], 1))
    wait_until(lambda: interrupted.asked)
    results = [begin(lambda: sample(memory, others, ["a"], 1)) for _ in range(3)]
    wait_until(lambda: waiting(memory) == 3)
    interrupted.may_go_on.set()
    with pytest.raises(KeyboardInterrupt):
        first()
    assert [result() for result in results] == [rows_of(["a"], 1)] * 3
    assert len(others.asked) == 1


def test_a_copy_of_a_prompt_has_the_draw_that_was_given_up_for_the_other():
    """Draw 1 is made ahead for one copy, and given up while another request makes draw 0."""
    memory, n_calls, may_go_on = DrawMemory(), [], threading.Event()
    seen = {0: [], 1: []}

    def ask(prompt):
        n_calls.append(prompt)
        may_go_on.wait(60)
        return prompt

    def decide(arrived):
        for i, draws in arrived:
            seen[i] += draws
        return [2 if i else 1 for i, _ in arrived]

    first = FunctionGenerator(ask)
    other = begin(lambda: memory.serve(first, DrawQueue(["a"], 1), fingerprint="one"))
    wait_until(lambda: len(n_calls) == 1)
    ahead = FunctionGenerator(ask, max_concurrency=1, draw_ahead=1.0)
    queue = DrawQueue(
        ["a", "a"], 3, decide=decide, chances=lambda i, decided: [1.0, float(not i), 0.0]
    )
    copies = begin(lambda: memory.serve(ahead, queue, fingerprint="one"))
    wait_until(lambda: len(n_calls) == 2 and n_makers(memory) == 1)
    may_go_on.set()
    copies()
    other()
    assert {i: len(draws) for i, draws in seen.items()} == {0: 1, 1: 2}


def keyed(prompt, seed):
    time.sleep(0.0005)
    return f"{prompt} {seed}"


@pytest.mark.parametrize("max_bytes", [2**30, 2_000])
def test_any_crowd_has_its_draws(max_bytes):
    """Requests that want much of the same, ahead and in rules, some of which fail on the way."""
    rng = random.Random(max_bytes)
    memory = DrawMemory(max_bytes=max_bytes)
    expected = dict(zip("abcdefgh", FunctionGenerator(keyed).sample([*"abcdefgh"], 9)))

    def crowd(seed):
        rng = random.Random(seed)
        for _ in range(12):
            prompts = rng.choices("abcdefgh", k=rng.choice([1, 1, 3, 6]))
            counts = [rng.randint(1, 9) for _ in prompts]
            rows = [[] for _ in prompts]
            fails_at = rng.choice([None, None, None, rng.randint(1, 9)])

            def decide(arrived, rows=rows, counts=counts, fails_at=fails_at):
                for i, draws in arrived:
                    rows[i] += draws
                    if len(rows[i]) == fails_at:
                        raise ZeroDivisionError
                    yield counts[i] if len(rows[i]) >= counts[i] else len(rows[i]) + 1

            generator = FunctionGenerator(
                keyed, max_concurrency=rng.choice([1, 2, 4]), draw_ahead=rng.choice([0.0, 0.5])
            )
            queue = DrawQueue(prompts, 9, decide=decide)
            try:
                memory.serve(generator, queue)
            except ZeroDivisionError:
                assert fails_at is not None
                continue
            for prompt, row, count in zip(prompts, rows, counts, strict=True):
                assert row[:count] == expected[prompt][:count]

    results = [begin(functools.partial(crowd, rng.random())) for _ in range(8)]
    for result in results:
        result()
    (under_way,) = memory._under_way.values()
    assert under_way.makers == {}
    assert not any(under_way.waiting.values())


def in_child(memory, generator, sending):
    sending.send(sample(memory, generator, ["a"], 2))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="needs processes by fork"
)
def test_a_forked_process_makes_its_own_draws():
    memory, generator = DrawMemory(), Slow()
    generator.may_go_on.clear()
    parent = begin(lambda: sample(memory, generator, ["a"], 2))
    wait_until(lambda: generator.asked)
    processes = multiprocessing.get_context("fork")
    receiving, sending = processes.Pipe(duplex=False)
    child = processes.Process(target=in_child, args=(memory, Serving(), sending), daemon=True)
    child.start()
    assert receiving.poll(60), "the child waits for a thread of its parent"
    assert receiving.recv() == rows_of(["a"], 2)
    child.join(60)
    generator.may_go_on.set()
    assert parent() == rows_of(["a"], 2)
