"""A service that answers a queue: no rounds, no idle requests, the same sets in any order."""

import random
import signal
import threading
import time

import pytest

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import DrawQueue, OpenAIGenerator, ServiceError
from sklearn_clm.generators._concurrent import _Calls
from sklearn_clm.generators.draws import draw_seed

PROMPTS = [f"question {i}" for i in range(12)]


def generator_for(server, **params):
    params = {"timeout": 60.0, "max_retries": 0, "logprobs": False, **params}
    return OpenAIGenerator("tiny", base_url=server.url, api_key="sk-test", **params)


def prompt_of(request):
    return request["messages"][-1]["content"]


class FirstLongAnswer:
    """Ask for draws until one of them has three words or more, and note what arrives."""

    def __init__(self, prompts, n_draws, **params):
        self.n_draws = n_draws
        self.draws = [[] for _ in prompts]
        self.arrived = []
        self.queue = DrawQueue(
            prompts, n_draws, decide=self.decide, on_draw=lambda *draw: self.arrived.append(draw)
        )

    def decide(self, arrived):
        for i, draws in arrived:
            self.draws[i] += draws
            done = any(len(draw.response.split()) >= 3 for draw in draws)
            yield 0 if done else len(self.draws[i]) + 1


def random_delays(seed):
    lengths, lock = random.Random(seed), threading.Lock()

    def delay(request):
        with lock:
            seconds = lengths.uniform(0.0, 0.03)
        threading.Event().wait(seconds)

    return delay


@pytest.mark.parametrize("seed", range(3))
def test_draws_are_the_same_in_any_order_and_only_those_wanted_are_made(server, seed):
    reference = FirstLongAnswer(PROMPTS, 6)
    generator_for(server, max_concurrency=1).serve(reference.queue)
    n_requests = len(server.requests)
    assert n_requests == sum(map(len, reference.draws)) == len(reference.arrived)
    assert len({len(row) for row in reference.draws}) > 2
    server.delay = random_delays(seed)
    shuffled = random.Random(seed).sample(PROMPTS, len(PROMPTS))
    rule = FirstLongAnswer(shuffled, 6)
    generator_for(server, max_concurrency=5).serve(rule.queue)
    assert dict(zip(shuffled, rule.draws)) == dict(zip(PROMPTS, reference.draws))
    assert len(server.requests) == 2 * n_requests
    assert [i for i, *_ in rule.arrived] != [i for i, *_ in reference.arrived]


def test_nothing_waits_for_the_slowest(server):
    """One answer is held back until every other prompt has all of its draws."""
    others_done = threading.Event()
    held = []

    def delay(request):
        if prompt_of(request) == PROMPTS[3] and not held:
            held.append(False)
            held[0] = others_done.wait(30.0)

    server.delay = delay
    counts = [0] * len(PROMPTS)

    def on_draw(i, draw, generation):
        counts[i] += 1
        if sum(counts) - counts[3] == 5 * (len(PROMPTS) - 1):
            others_done.set()

    queue = DrawQueue(PROMPTS, 5, on_draw=on_draw)
    queue_by_one = DrawQueue(
        PROMPTS, 5, on_draw=on_draw, decide=lambda arrived: [counts[i] + 1 for i, _ in arrived]
    )
    for one in (queue, queue_by_one):
        counts[:] = [0] * len(PROMPTS)
        others_done.clear()
        held.clear()
        generator_for(server, max_concurrency=3).serve(one)
        assert held == [True]
        assert counts == [5] * len(PROMPTS)


@pytest.mark.parametrize(("options", "n_at_a_time"), [({"draw_ahead": True}, 4), ({}, 1)])
def test_idle_requests_draw_ahead_for_open_prompts(server, tmp_path, options, n_at_a_time):
    """Each answer waits for the rest, and those that nobody needs for the end."""
    full, over = threading.Event(), threading.Event()
    needed = [draw_seed("only one", 0, draw) for draw in range(3)]

    def delay(request):
        if server.n_at_a_time == n_at_a_time:
            full.set()
        assert full.wait(30.0)
        if request["seed"] not in needed:
            assert over.wait(30.0)

    server.delay = delay
    used = []
    generator = generator_for(server, max_concurrency=4, **options)
    cached = CachedGenerator(generator, tmp_path / "draws.sqlite")
    cached.serve(DrawQueue(["only one"], 20, decide=first_three(used)))
    over.set()
    assert server.most_at_a_time == n_at_a_time
    wait_for_requests()
    n_asked = len(server.requests)
    assert (n_asked == 3) if n_at_a_time == 1 else (3 < n_asked <= 3 + 3)
    # what arrived in time is kept, and is what any other order of drawing gives
    kept = cached.sample(["only one"], 3)[0]
    # no draw is paid twice: a draw has a seed of its own, and a given-up request may arrive late
    seeds = [request["seed"] for request in server.requests]
    assert len(set(seeds)) == len(seeds)
    assert kept == generator_for(server).sample(["only one"], 3)[0]
    assert used[:3] == kept[:3]


def wait_for_requests():
    """Wait until no thread makes requests any more."""
    deadline, named = time.monotonic() + 20.0, f"({_Calls._run.__name__})"
    while left := [one for one in threading.enumerate() if named in one.name]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def first_three(used):
    """A rule that wants three draws of its only prompt, one after the other."""

    def decide(arrived):
        for _, draws in arrived:
            used.extend(draws)
            yield len(used) + 1 if len(used) < 3 else 0

    return decide


@pytest.mark.parametrize("prompts", [["a"], ["a", "a"]])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
def test_draws_made_ahead_in_vain_neither_hold_up_nor_fail(server, tmp_path, prompts, fails, wrap):
    reference = FirstLongAnswer(prompts, 20)
    generator_for(server, max_concurrency=1).serve(reference.queue)
    needed = [request["seed"] for request in server.requests]
    idle, over = threading.Event(), threading.Event()

    def delay(request):
        if request["seed"] in needed:
            assert idle.wait(20.0)
        else:
            idle.set()
            if fails:
                raise ConnectionError
            over.wait(20.0)

    server.delay = delay
    rule = FirstLongAnswer(prompts, 20)
    generator = generator_for(server, max_concurrency=len(needed) + 2, draw_ahead=True)
    path = tmp_path / "draws.sqlite"
    (CachedGenerator(generator, path) if wrap else generator).serve(rule.queue)
    assert not over.is_set()
    assert rule.draws == reference.draws
    over.set()
    wait_for_requests()


def test_a_draw_made_ahead_that_failed_is_an_error_once_it_is_needed(server):
    generator_for(server).serve(DrawQueue(["a"], 20, decide=first_three([])))
    *_, third = (request["seed"] for request in server.requests)
    failed = threading.Event()

    def delay(request):
        if request["seed"] == third:
            failed.set()
            raise ConnectionError
        failed.wait(20.0)

    server.delay = delay
    used = []
    generator = generator_for(server, max_concurrency=4, draw_ahead=True)
    with pytest.raises(ServiceError, match="cannot be reached"):
        generator.serve(DrawQueue(["a"], 20, decide=first_three(used)))
    assert len(used) == 2


@pytest.mark.usefixtures("keyboard_interrupts")
def test_an_interrupt_while_a_draw_is_handed_on_loses_no_answer(server):
    arrived = {}

    def on_draw(prompt, draw, generation):
        arrived[prompt, draw] = generation
        if len(arrived) == 20:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        generator_for(server, max_concurrency=8).serve(DrawQueue(["a"], 100, on_draw=on_draw))
    assert len(arrived) == len(server.requests)


def test_nothing_wanted_costs_nothing(server):
    generator_for(server, logprobs=True).serve(DrawQueue([], 3))
    generator_for(server).serve(DrawQueue(["a"], 3, first=[3]))
    assert server.requests == []
