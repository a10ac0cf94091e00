"""A calibrated sampler in a service: one prompt at a time, in an event loop, in threads."""

import asyncio
import logging
import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from sklearn_clm import ComponentSelector
from sklearn_clm.generators import FunctionGenerator
from sklearn_clm.policies import AnswerPolicy, ExitPolicy
from tests.toy import ToyModel, questions, together, toy_sampler

X, Y = questions(150)
NEW, _ = questions(20, 1000)
POLICIES = [None, ExitPolicy(), AnswerPolicy(alpha=0.5)]


class Model:
    """The toy model as a function, counted, each call as slow as the slowest of its draws."""

    def __init__(self):
        self.n_calls, self.most_at_a_time, self.n_now = 0, 0, 0
        self._model, self._lock = ToyModel(), threading.Lock()
        self.wait, self.patience = None, 0.05
        self.n_together, self.are_together = 0, threading.Event()

    def wait_for_each_other(self, n_calls):
        """The next calls wait until there are so many of them."""
        self.n_together, self.are_together = n_calls, threading.Event()

    def fingerprint(self):
        return "toy"

    def ask(self, prompt, seed):
        with self._lock:
            self.n_calls += 1
            self.n_now += 1
            self.most_at_a_time = max(self.most_at_a_time, self.n_now)
            if self.n_now >= self.n_together:
                self.are_together.set()
        self.are_together.wait(60)
        if self.wait is not None:
            self.wait.wait(self.patience)
        ((draw,),) = self._model.sample([prompt], 1, seed=seed)
        with self._lock:
            self.n_now -= 1
        return draw


def fitted(policy=None, draw_ahead=0.0, max_concurrency=8, **params):
    model = Model()
    generator = FunctionGenerator(
        model.ask, max_concurrency=max_concurrency, draw_ahead=draw_ahead, max_retries=0
    )
    sampler = toy_sampler(generator, policy=policy, k_max=6, **params).fit(X, Y)
    model.n_calls = model.most_at_a_time = 0
    return sampler, model


@pytest.mark.parametrize("policy", POLICIES)
def test_an_event_loop_goes_on_and_is_told_of_each_response(policy):
    sampler, _ = fitted(policy)
    told = {i: [] for i in range(len(NEW))}
    threads = set()

    def on_accept(i, generation):
        threads.add(threading.current_thread())
        told[i].append(generation.response)

    async def serve():
        await asyncio.gather(*(sampler.apredict([prompt]) for prompt in NEW[:5]))
        return await sampler.apredict(NEW, on_accept=on_accept)

    sets = asyncio.run(serve())
    assert sets == sampler.predict(NEW)
    assert threads == {threading.main_thread()}
    assert [sorted(told[i]) for i in told] == [sorted(one.responses) for one in sets]


def test_a_selector_in_an_event_loop():
    sampler, _ = fitted()
    selector = ComponentSelector(sampler, alpha=0.5).fit(*questions(150, 200))
    assert asyncio.run(selector.apredict(NEW)) == selector.predict(NEW)


def test_an_error_reaches_who_awaits():
    sampler, _ = fitted()
    with pytest.raises((TypeError, ValueError), match="prompt"):
        asyncio.run(sampler.apredict([None]))


RAISED = []  # by the functions below, once there is one


def failing(*given):
    for error in RAISED:
        raise error("of the user")
    return 0.5


class Failing(ToyModel):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        failing()
        return super().sample(prompts, n_samples, start=start, seed=seed)


def failing_ask(prompt, seed):
    failing()
    return f"answer {prompt.split()[-1] if seed % 2 else seed}"


async def failing_async_ask(prompt, seed):
    return failing_ask(prompt, seed)


PLACES = {
    "quality": {"quality": failing},
    "similarity": {"similarity": failing, "policy": ExitPolicy()},
    "sample": {"generator": Failing()},
    "ask": {"generator": FunctionGenerator(failing_ask, max_retries=0)},
    "async ask": {"generator": FunctionGenerator(failing_async_ask, max_retries=0)},
}


@pytest.mark.parametrize(
    "error",
    [
        *(StopIteration, StopAsyncIteration, asyncio.CancelledError, CancelledError),
        *(SystemExit, KeyboardInterrupt),
    ],
)
@pytest.mark.parametrize("place", PLACES)
def test_what_means_something_to_a_task_is_an_error_to_who_awaits(place, error, monkeypatch):
    """None of them leaves the task waiting, makes it look cancelled, or ends the loop."""
    sampler = toy_sampler(**{"quality": lambda *of: 1.0} | PLACES[place]).fit(X, Y)
    monkeypatch.setattr(f"{__name__}.RAISED", [error])

    async def serve():
        with pytest.raises((RuntimeError, StopAsyncIteration)) as caught:
            await asyncio.wait_for(sampler.apredict(NEW), 60)
        assert asyncio.current_task().cancelling() == 0
        return caught.value

    raised = asyncio.run(serve())
    causes = [raised]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    # the event loop, too, has names of its own for these errors
    assert any("of the user" in str(one) or error.__name__ in str(one) for one in causes)


@pytest.mark.parametrize("policy", POLICIES[:2])
def test_draws_ahead_change_no_set_and_cost_what_was_allowed(policy):
    plain, one_by_one = fitted(policy, epsilon=0.5)
    ahead, model = fitted(policy, draw_ahead=0.3, epsilon=0.5)
    model.wait = threading.Event()
    prompts = questions(40, 2000)[0]
    for prompt in prompts:
        assert ahead.predict([prompt]) == plain.predict([prompt])
    assert one_by_one.most_at_a_time == 1
    n_needed = one_by_one.n_calls
    # at most 1 / 0.7 is expected, and these prompts are a sample
    assert n_needed <= model.n_calls <= 1.43 * n_needed + 3 * np.sqrt(n_needed)


def test_what_all_calibration_prompts_took_is_drawn_at_once():
    sampler, model = fitted(ExitPolicy(), draw_ahead=0.01)
    sure = int(np.sum(np.array(sampler.calibration_.rule.shares_of_draws) == 1.0))
    model.wait = threading.Event()
    model.wait_for_each_other(max(sure, 1))
    sampler.predict(NEW[:1])
    assert model.most_at_a_time == max(sure, 1)


@pytest.mark.parametrize("draw_ahead", [0.0, 1.0])
def test_all_calls_of_a_sampler_share_max_concurrency(draw_ahead):
    sampler, model = fitted(max_concurrency=2, draw_ahead=draw_ahead)
    model.wait, model.patience = threading.Event(), 0.005
    model.wait_for_each_other(2)
    calls = [lambda part=part: sampler.predict(part) for part in np.array_split(NEW, 6)]
    sets = [one for part in together(calls) for one in part]
    assert model.most_at_a_time == 2

    async def serve():
        return await asyncio.gather(*(sampler.apredict([prompt]) for prompt in NEW))

    sampler.memory_.clear()
    assert [answer[0] for answer in asyncio.run(serve())] == sets
    assert model.most_at_a_time == 2
    model.wait_for_each_other(5)
    sampler.set_params(generator__max_concurrency=5).fit(X, Y)
    assert model.most_at_a_time == 5


def in_threads(sampler, prompts):
    return together([lambda prompt=prompt: sampler.predict([prompt]) for prompt in prompts])


def in_a_loop(sampler, prompts):
    async def serve():
        return await asyncio.gather(*(sampler.apredict([prompt]) for prompt in prompts))

    return asyncio.run(serve())


@pytest.mark.parametrize("serve", [in_threads, in_a_loop])
@pytest.mark.parametrize("policy", POLICIES)
def test_equal_requests_at_once_pay_for_each_draw_once(serve, policy):
    sampler, model = fitted(policy)
    alone = sampler.predict(NEW[:3])
    model.n_calls = 0
    sampler.memory_.clear()
    model.wait, model.patience = threading.Event(), 0.02
    sets = serve(sampler, NEW[:3] * 17)
    assert [answer[0] for answer in sets] == [*alone] * 17
    assert model.n_calls == alone.n_samples.sum()


async def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def draws_under_way(sampler):
    (under_way,) = sampler.memory_._under_way.values()
    return under_way


@pytest.mark.parametrize("name", ["plain", "in_loop"])
def test_a_draw_outlives_the_request_that_made_it(name):
    """Whoever asked first leaves; the others have the draw, and nobody pays again."""
    calls = Calls()
    generator = FunctionGenerator(getattr(calls, name), max_retries=0)
    sampler = toy_sampler(generator, k_max=3, quality=lambda *of: 1.0, epsilon=0.5)
    sampler.fit(X, Y)
    calls.n, calls.held = 0, True

    async def serve():
        first = asyncio.create_task(sampler.apredict(NEW[:1]))
        await until(lambda: calls.n)
        others = [asyncio.create_task(sampler.apredict(NEW[:1])) for _ in range(5)]
        await until(lambda: sum(map(len, draws_under_way(sampler).waiting.values())) == 5)
        first.cancel()
        await asyncio.sleep(0.5)  # time to end a call that nobody waited for
        calls.held = False
        return [answer[0] for answer in await asyncio.wait_for(asyncio.gather(*others), 60)]

    sets = asyncio.run(serve())
    assert sets == [sampler.predict(NEW[:1])[0]] * 5
    assert calls.n == sets[0].n_samples


class Calls:
    """A function of both kinds that waits as long as it is held."""

    def __init__(self):
        self.n, self.held = 0, False

    def __deepcopy__(self, memo):
        return self

    def fingerprint(self):
        return "calls"

    def answer(self, prompt, seed):
        return f"answer {prompt.split()[-1] if seed % 2 else seed}"

    def plain(self, prompt, seed):
        self.n += 1
        while self.held:
            time.sleep(0.01)
        return self.answer(prompt, seed)

    async def in_loop(self, prompt, seed):
        self.n += 1
        while self.held:
            await asyncio.sleep(0.01)
        return self.answer(prompt, seed)


def test_slow_draws_keep_no_other_thread_of_an_event_loop_waiting():
    sampler, model = fitted()
    model.wait, model.patience = threading.Event(), 60.0

    async def serve():
        served = asyncio.gather(*(sampler.apredict(NEW[:1]) for _ in range(100)))
        await asyncio.sleep(0.01)
        # a pool would be busy with what it waits for
        await asyncio.wait_for(asyncio.to_thread(model.wait.set), model.patience / 2)
        return await served

    assert all(one == sampler.predict(NEW[:1]) for one in asyncio.run(serve()))


@pytest.mark.parametrize("max_concurrency", [1, 8])
def test_a_cancel_begins_no_draw_and_is_not_waited_for(max_concurrency):
    sampler, model = fitted(max_concurrency=max_concurrency)
    model.wait, model.patience = threading.Event(), 60.0

    async def serve():
        parts = np.array_split(NEW, 2)
        calls = [asyncio.create_task(sampler.apredict(part)) for part in parts]
        await until(lambda: model.n_calls == max_concurrency)
        for call in calls:
            call.cancel()
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError)
        assert model.n_now == max_concurrency  # they still wait
        model.wait.set()
        await until(lambda: not draws_under_way(sampler).makers)

    asyncio.run(serve())
    assert model.n_calls == max_concurrency
    n_needed = sum(one.n_samples for one in sampler.predict(NEW))
    assert model.n_calls == n_needed  # those under way were kept


HELD, N_BEGUN, N_CANCELLED = threading.Event(), [], []  # globals, which are no part of a function


async def slow_ask(prompt, seed):
    N_BEGUN.append(prompt)
    try:
        while HELD.is_set():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        N_CANCELLED.append(prompt)
        raise
    return f"answer {prompt.split()[-1] if seed % 2 else seed}"


def test_a_cancel_ends_calls_of_an_async_function():
    generator = FunctionGenerator(slow_ask, max_concurrency=2, max_retries=5)
    sampler = toy_sampler(generator, quality=lambda *of: 1.0).fit(X, Y)
    HELD.set()
    N_BEGUN.clear()
    N_CANCELLED.clear()

    async def serve():
        call = asyncio.create_task(sampler.apredict(NEW[:5]))
        await until(lambda: len(N_BEGUN) == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: len(N_CANCELLED) == 2)
        HELD.clear()
        # the slots are free at once
        return await asyncio.wait_for(sampler.apredict(NEW[5:8]), 60)

    try:
        assert len(asyncio.run(serve())) == 3
    finally:
        HELD.clear()
    assert len(N_CANCELLED) == 2


def test_an_error_of_a_callback_is_logged(caplog):
    sampler, _ = fitted()
    with caplog.at_level(logging.ERROR, "asyncio"):
        sets = asyncio.run(sampler.apredict(NEW, on_accept=lambda i, generation: 1 / 0))
    assert sets == sampler.predict(NEW)
    assert "ZeroDivisionError" in caplog.text
