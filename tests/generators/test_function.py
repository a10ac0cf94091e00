"""A function as a generator: what it may return, how it is called, what is not lost."""

import asyncio
import contextlib
import contextvars
import os
import random
import signal
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import (
    BaseGenerator,
    DrawQueue,
    FunctionGenerator,
    Generation,
    QueueGenerator,
    check_keyed,
)
from sklearn_clm.generators.draws import draw_seed
from tests.toy import n_stored

PROMPTS = [f"question {i}" for i in range(12)]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr("sklearn_clm.generators._concurrent._FIRST_PAUSE", 0.01)


def coin(prompt, seed):
    return random.Random(f"{prompt} {seed}").choice(["heads", "tails"])


async def async_coin(prompt, seed):
    await asyncio.sleep(0.001)
    return coin(prompt, seed)


class Counting:
    """Answers that count the calls and how many there are at a time, as a session would.

    The first calls wait until there are `n_together` of them.
    """

    def __init__(self, seconds=0.0, n_together=1):
        self.seconds, self.lock = seconds, threading.Lock()
        self.n_together, self.are_together = n_together, threading.Event()
        self.n_calls = self.n_now = self.n_most = 0

    def __call__(self, prompt):
        with self.lock:
            self.n_calls += 1
            self.n_now += 1
            self.n_most = max(self.n_most, self.n_now)
            number = self.n_calls
            if self.n_now == self.n_together:
                self.are_together.set()
        self.are_together.wait(60)
        time.sleep(self.seconds)
        with self.lock:
            self.n_now -= 1
        return f"answer {number}"


def responses(generator, prompts=PROMPTS, n_samples=5, **named):
    return [
        [draw.response for draw in row] for row in generator.sample(prompts, n_samples, **named)
    ]


@pytest.mark.parametrize("ask", [coin, async_coin])
def test_a_function_of_a_seed_is_keyed(ask):
    generator = FunctionGenerator(ask, max_concurrency=3)
    assert isinstance(generator, QueueGenerator)
    assert check_keyed(generator, PROMPTS[0])
    rows = responses(generator, seed=4)
    assert responses(generator, PROMPTS[::-1], seed=4)[::-1] == rows
    assert [row[2:] for row in rows] == responses(generator, n_samples=3, start=2, seed=4)
    assert rows != responses(generator, seed=5)
    assert len({tuple(row) for row in rows}) > 1


@pytest.mark.parametrize(
    ("said", "draw"),
    [
        ("Paris", Generation("Paris")),
        (("Paris", -0.5), Generation("Paris", logprob=-0.5)),
        (Generation("Paris", -0.5, 1), Generation("Paris", -0.5, 1)),
    ],
)
def test_what_a_function_may_return(said, draw):
    async def later(prompt):
        return said

    for ask in (lambda prompt: said, later, lambda prompt: later(prompt)):
        assert FunctionGenerator(ask).sample(["Who?"], 2) == [[draw, draw]]


@pytest.mark.parametrize("said", [None, 3, {"text": "Paris"}, ["Paris"], ("a", "b", "c")])
def test_what_a_function_may_not_return(said):
    with pytest.raises((TypeError, ValueError), match="ask"):
        FunctionGenerator(lambda prompt: said).sample(["Who?"], 2)


def test_calls_run_in_parallel_and_no_draw_is_made_in_vain():
    ask = Counting(0.02, n_together=4)
    FunctionGenerator(ask, max_concurrency=4).sample(PROMPTS, 3)
    assert (ask.n_calls, ask.n_most) == (36, 4)
    ask.n_calls = 0
    wanted = [1 + i % 4 for i in range(12)]
    queue = DrawQueue(PROMPTS, 5, decide=lambda arrived: [wanted[i] for i, _ in arrived])
    FunctionGenerator(ask, max_concurrency=4).serve(queue)
    assert ask.n_calls == sum(wanted)


def test_failed_calls_are_repeated_as_told(caplog):
    failures = {}

    def ask(prompt):
        failures[prompt] = failures.get(prompt, 0) + 1
        if failures[prompt] <= 2:
            raise ConnectionError("gone")
        return "yes"

    assert responses(FunctionGenerator(ask, max_retries=2), n_samples=1) == [["yes"]] * 12
    failures.clear()
    caplog.clear()  # whatever level an earlier test has set
    with (
        caplog.at_level("INFO", "sklearn_clm"),
        pytest.raises(ConnectionError, match="gone") as raised,
    ):
        FunctionGenerator(ask, max_retries=1, max_concurrency=1).sample(PROMPTS[:1], 1)
    assert failures == {PROMPTS[0]: 2}
    assert PROMPTS[0] in raised.value.__notes__[0]
    assert caplog.text.count(f"for the prompt '{PROMPTS[0]}', attempt") == 2


def test_a_function_that_takes_no_prompt_alone_is_refused_at_once():
    with pytest.raises(TypeError, match=r"ask must take a prompt alone.*context"):
        FunctionGenerator(lambda prompt, context: 1 / 0).sample(PROMPTS, 1)


def test_a_prompt_that_a_filter_refuses_counts_as_a_miss():
    def ask(prompt, seed):
        try:
            if prompt in PROMPTS[:2]:
                raise ValueError("content filter")
            return "yes"
        except ValueError:
            return ""

    sampler = ConformalSampler(FunctionGenerator(ask), k_max=2, quality=lambda *of: 1.0)
    data = sampler.collect(PROMPTS, ["yes"] * 12)
    assert data.admissible.any(axis=1).tolist() == [False] * 2 + [True] * 10


def test_draws_under_way_are_handed_in_before_an_error():
    begun, failed, kept = threading.Event(), threading.Event(), []

    def ask(prompt):
        if prompt == PROMPTS[0]:
            begun.wait(60)
            failed.set()
            raise ValueError("refused")
        begun.set()
        failed.wait(60)
        return "late"

    queue = DrawQueue(PROMPTS, 1, on_draw=lambda *draw: kept.append(draw))
    with pytest.raises(ValueError, match="refused"):
        FunctionGenerator(ask, max_concurrency=4, max_retries=0).serve(queue)
    assert 1 <= len(kept) <= 4


@pytest.mark.usefixtures("keyboard_interrupts")
def test_an_interrupt_loses_no_draw(tmp_path):
    count, once = Counting(0.01), threading.Lock()

    def ask(prompt):
        if count.n_calls >= 20 and once.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGINT)
        return count(prompt)

    cached = CachedGenerator(FunctionGenerator(ask), tmp_path / "draws.sqlite", key="ask")
    with pytest.raises(KeyboardInterrupt):
        cached.sample(PROMPTS, 5)
    assert n_stored(cached) == count.n_calls < 60
    rows = cached.sample(PROMPTS, 5)
    assert count.n_calls == 60 == len({draw.response for row in rows for draw in row})


def test_it_works_where_an_event_loop_is_running():
    async def notebook():
        return responses(FunctionGenerator(async_coin))

    assert asyncio.run(notebook()) == responses(FunctionGenerator(async_coin))


def test_an_async_client_stays_in_one_event_loop():
    loops = set()

    async def ask(prompt):
        loops.add(id(asyncio.get_running_loop()))
        return "yes"

    for _ in range(2):
        FunctionGenerator(ask).sample(PROMPTS, 2)
    assert len(loops) == 1


def test_its_fingerprint_is_that_of_the_function():
    assert (
        FunctionGenerator(coin).fingerprint()
        == FunctionGenerator(coin, max_concurrency=2, max_retries=9).fingerprint()
    )
    assert FunctionGenerator(coin).fingerprint() != FunctionGenerator(async_coin).fingerprint()


def test_a_cache_keeps_what_no_key_gives(tmp_path):
    ask = Counting()
    generator = FunctionGenerator(ask)
    assert not check_keyed(generator, PROMPTS[0])
    cached = CachedGenerator(generator, tmp_path / "draws.sqlite", key="my model")
    rows = responses(cached)
    again = CachedGenerator(
        FunctionGenerator(Counting()), tmp_path / "draws.sqlite", key="my model"
    )
    assert responses(again) == rows


def test_a_bare_function_is_told_to_be_wrapped():
    for model in (coin, "gpt2", 3):
        with pytest.raises(TypeError, match=r"FunctionGenerator\(ask\)"):
            ConformalSampler(model).fit(PROMPTS, PROMPTS)


def test_an_async_sample_says_so():
    class Late(BaseGenerator):
        async def sample(self, prompts, n_samples, *, start=0, seed=0):
            return [["yes"] * n_samples for _ in prompts]

    with pytest.raises(TypeError, match="async"):
        ConformalSampler(Late(), quality="self_consistency").fit(PROMPTS, PROMPTS)


@pytest.mark.usefixtures("keyboard_interrupts")
def test_an_interrupt_does_not_wait_for_what_hangs(monkeypatch):
    monkeypatch.setattr("sklearn_clm.generators._concurrent._GRACE_SECONDS", 0.1)
    is_let_go, returned = threading.Event(), threading.Event()

    def ask(prompt):
        os.kill(os.getpid(), signal.SIGINT)
        is_let_go.wait(60)
        returned.set()
        return "late"

    with pytest.raises(KeyboardInterrupt):
        FunctionGenerator(ask, max_concurrency=1).sample(PROMPTS, 1)
    assert not returned.is_set()
    is_let_go.set()


def test_the_next_call_waits_for_a_thread_that_nobody_needs():
    """Draws made ahead keep both threads busy when their prompt is decided."""
    decided = threading.Event()

    def ask(prompt, seed):
        if prompt == "first" and seed != draw_seed("first", 0, 0):
            decided.wait(60)
        return prompt

    def decide(arrived):
        for i, _ in arrived:
            if i == 0:
                threading.Timer(0.1, decided.set).start()
            yield 0

    arrived = []
    generator = FunctionGenerator(ask, max_concurrency=2, draw_ahead=1.0)
    queue = DrawQueue(
        ["first", "second"], 9, decide=decide, on_draw=lambda i, *_: arrived.append(i)
    )
    generator.serve(queue)
    assert {0, 1} <= set(arrived)


class Hanging:
    """Hangs at some prompts until it is let go, and notes which calls were cancelled."""

    def __init__(self, hangs=lambda prompt, n_calls: prompt.startswith("hangs")):
        self.hangs, self.let_go = hangs, threading.Event()
        self.n_calls, self.n_cancelled, self.n_late = {}, 0, 0

    def is_to_hang(self, prompt):
        self.n_calls[prompt] = self.n_calls.get(prompt, 0) + 1
        return self.hangs(prompt, self.n_calls[prompt])

    def plain(self, prompt):
        if self.is_to_hang(prompt):
            self.let_go.wait(120)
            self.n_late += 1
            return "late"
        return "in time"

    async def in_loop(self, prompt):
        if self.is_to_hang(prompt):
            try:
                await asyncio.sleep(120)
            except asyncio.CancelledError:
                self.n_cancelled += 1
                raise
        return "in time"


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def hanging():
    calls = Hanging()
    yield calls
    calls.let_go.set()


@pytest.mark.parametrize("name", ["plain", "in_loop"])
def test_calls_that_hang_are_given_up_and_free_their_slots(hanging, name):
    generator = FunctionGenerator(
        getattr(hanging, name), timeout=0.5, max_concurrency=2, max_retries=1
    )
    prompts = [f"hangs {i}" for i in range(4)]

    def ask(prompt):
        with pytest.raises(TimeoutError) as raised:
            generator.sample([prompt], 1)
        return raised.value

    def ask_innocently():
        # where the machine is as slow as that, an innocent call is given up, too
        while True:
            with contextlib.suppress(TimeoutError):
                return responses(generator, ["innocent"], 2)

    with ThreadPoolExecutor(4) as pool:
        errors = [pool.submit(ask, prompt) for prompt in prompts]
        assert ask_innocently() == [["in time"] * 2]
    for prompt, error in zip(prompts, errors, strict=True):
        assert f"within timeout=0.5 seconds, got no answer for the prompt '{prompt}'" in str(
            error.result()
        )
        assert "at attempt 2 (max_retries is 1)" in error.result().__notes__[0]
    assert hanging.n_calls.pop("innocent") >= 2
    assert hanging.n_calls == dict.fromkeys(prompts, 2)
    wait_until(lambda: hanging.n_cancelled == (8 if name == "in_loop" else 0))


@pytest.mark.parametrize("name", ["plain", "in_loop"])
def test_a_call_that_is_made_again_answers_in_place_of_the_late_one(hanging, name):
    hanging.hangs = lambda prompt, n_calls: n_calls == 1
    generator = FunctionGenerator(getattr(hanging, name), timeout=0.5, max_retries=9)
    kept = []
    queue = DrawQueue(["a"], 3, on_draw=lambda *draw: kept.append(draw[2].response))
    generator.serve(queue)
    hanging.let_go.set()
    wait_until(lambda: hanging.n_late + hanging.n_cancelled == 1)
    assert kept == ["in time"] * 3
    assert hanging.n_calls["a"] >= 4


def test_a_time_out_of_the_function_itself_is_its_own_error():
    def ask(prompt):
        raise TimeoutError("the service's own")

    for timeout in (None, 60.0):
        with pytest.raises(TimeoutError, match="the service's own"):
            FunctionGenerator(ask, timeout=timeout, max_retries=0).sample(["a"], 1)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_call_has_the_variables_of_its_caller(timeout):
    trace = contextvars.ContextVar("trace")
    trace.set("of the request")

    async def later(prompt):
        return trace.get()

    for ask in (lambda prompt: trace.get(), later):
        assert responses(FunctionGenerator(ask, timeout=timeout), ["a"], 1) == [["of the request"]]


@pytest.mark.parametrize("error", [asyncio.CancelledError, CancelledError])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_cancelled_error_of_the_function_is_a_failed_call(error, timeout):
    def ask(prompt):
        raise error("of a client")

    async def later(prompt):
        raise error("of a client")

    for function in (ask, later):
        with pytest.raises(RuntimeError, match="ask must raise no CancelledError") as raised:
            FunctionGenerator(function, timeout=timeout, max_retries=1).sample(["a"], 1)
        assert "at attempt 2" in raised.value.__notes__[0]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_function_that_exits_leaves_the_loop_to_later_calls(error):
    async def leaving(prompt):
        raise error

    async def answering(prompt):
        return "yes"

    # a limit, so that the test fails, and does not hang, where the loop has ended
    with pytest.raises(RuntimeError, match=f"ask must raise no {error.__name__}"):
        FunctionGenerator(leaving, max_retries=0, timeout=60.0).sample(["a"], 1)
    later = FunctionGenerator(answering, max_retries=0, timeout=60.0)
    assert responses(later, ["a"], 1) == [["yes"]]


def test_what_is_drawn_ahead_in_vain_is_cancelled_in_the_loop(hanging):
    hanging.hangs = lambda prompt, n_calls: n_calls > 1
    generator = FunctionGenerator(hanging.in_loop, draw_ahead=1.0, max_concurrency=3)
    generator.serve(DrawQueue(["a"], 3, decide=lambda arrived: [0 for _ in arrived]))
    wait_until(lambda: hanging.n_cancelled == hanging.n_calls["a"] - 1)
