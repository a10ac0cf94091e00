"""Draws that are asked for as earlier ones arrive: the order of arrival decides nothing."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.generators import BaseGenerator, DrawQueue, Generation, QueueGenerator, draw_stream
from sklearn_clm.generators.base import answer_queue

K = 6


def is_last(prompt, draw):
    """A rule that looks at draws one by one: it stops at a draw that has this property."""
    return draw_stream(str(prompt), 0, draw).random() < 0.3


class Rule:
    """Decides prompt by prompt; what it has decided on is what the tests compare."""

    def __init__(self, patience=0):
        self.decided = {}
        self.done = set()
        self.patience = patience

    def __call__(self, arrived):
        return [self.one(index, draws) for index, draws in arrived]

    def one(self, index, draws):
        assert index not in self.done
        assert draws
        taken = self.decided.setdefault(index, [])
        for draw in draws:
            if index in self.done:
                break
            taken.append(draw.response)
            if is_last(index, len(taken) - 1) or len(taken) == K:
                self.done.add(index)
        return len(taken) if index in self.done else len(taken) + 1 + self.patience


def wanted(n):
    """What a rule decides on where draws are made one by one."""
    rows = {}
    for index in range(n):
        stop = next((j + 1 for j in range(K) if is_last(index, j)), K)
        rows[index] = [f"{index}/{j}" for j in range(stop)]
    return rows


def drive(queue, data, *, capacity, ahead, max_prompts):
    """A generator that keeps up to `capacity` draws under way, which end in any order."""
    under_way = []
    made = set()

    def start(requests):
        for index, first, stop in requests:
            for j in range(first, stop):
                assert (index, j) not in made
                made.add((index, j))
                under_way.append((index, j))

    while True:
        if (room := capacity - len(under_way)) > 0:
            start(queue.take(room, max_prompts=max_prompts))
        if ahead and (room := capacity - len(under_way)) > 0:
            start(queue.take_ahead(room))
        assert queue.n_under_way == len(under_way) <= capacity
        if not under_way:
            return made
        index, j = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
        queue.put(index, j, Generation(f"{index}/{j}"))


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    n=st.integers(0, 5),
    capacity=st.integers(1, 12),
    ahead=st.booleans(),
    max_prompts=st.none() | st.integers(1, 4),
    patience=st.integers(0, 3),
)
def test_any_order_of_arrival_gives_the_same_decisions(
    data, n, capacity, ahead, max_prompts, patience
):
    rule, seen = Rule(patience), []
    queue = DrawQueue(
        list(range(n)), K, decide=rule, on_draw=lambda i, j, g: seen.append((i, j, g.response))
    )
    made = drive(queue, data, capacity=capacity, ahead=ahead, max_prompts=max_prompts)
    assert rule.decided == wanted(n)
    assert queue.n_put == len(made) == len(seen)
    assert {(i, j) for i, j, _ in seen} == made
    assert not any(queue.is_open(i) for i in range(n))
    if not ahead and not patience:
        assert len(made) == sum(map(len, rule.decided.values()))


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    first=st.lists(st.integers(0, K + 1), max_size=5),
    capacity=st.integers(1, 9),
    ahead=st.booleans(),
)
def test_all_draws_from_the_first_that_is_wanted(data, first, capacity, ahead):
    queue = DrawQueue(list(range(len(first))), K, first=first)
    made = drive(queue, data, capacity=capacity, ahead=ahead, max_prompts=None)
    assert made == {(i, j) for i, start in enumerate(first) for j in range(start, K)}


def test_open_prompts_come_before_new_ones():
    queue = DrawQueue(["a", "b", "c"], 2, decide=lambda arrived: [2 for _ in arrived])
    assert queue.take(1) == [(0, 0, 1)]
    assert queue.take(1) == [(1, 0, 1)]
    queue.put(0, 0, Generation("x"))
    assert queue.take(max_prompts=2) == [(0, 1, 2), (2, 0, 1)]
    assert queue.take() == []
    assert queue.n_under_way == 3


def test_draws_ahead_go_to_those_with_the_fewest_under_way():
    queue = DrawQueue(["a", "b"], 3, decide=lambda arrived: [0 for _ in arrived])
    assert len(queue.take()) == 2
    assert sorted(queue.take_ahead(3)) == [(0, 1, 3), (1, 1, 2)]
    assert queue.take_ahead(9) == [(1, 2, 3)]
    assert queue.take_ahead(9) == []
    queue.put(0, 0, Generation("x"))
    assert not queue.is_open(0)
    queue.put(0, 2, Generation("too late to be wanted, but it was paid for"))
    assert (queue.n_put, queue.n_under_way) == (2, 4)


def test_draws_ahead_are_those_most_likely_to_be_wanted():
    shares = {0: [1.0, 0.9, 0.2, 0.0], 1: [1.0, 0.5, 0.5, 0.5]}
    queue = DrawQueue(
        ["a", "b"],
        4,
        decide=lambda arrived: [9 for _ in arrived],
        chances=lambda i, decided: shares[i][decided:],
    )
    assert len(queue.take()) == 2
    assert queue.take_ahead(1, 0.3) == [(0, 1, 2)]
    assert queue.take_ahead(9, 0.3) == [(1, 1, 4)]
    assert queue.take_ahead(9, 0.3) == []
    assert queue.take_ahead(9) == [(0, 2, 3)]
    assert queue.take_ahead(9) == []  # what will never be wanted


@pytest.mark.parametrize("draw", [(0, 1), (1, 0), (2, 0), (0, -1)])
def test_draws_that_nobody_took_are_refused(draw):
    queue = DrawQueue(["a", "b"], 3, decide=lambda arrived: [0 for _ in arrived])
    queue.take(1)
    with pytest.raises(
        ValueError, match=f"draw {draw[1]} of prompt {draw[0]} must have been taken"
    ):
        queue.put(*draw, Generation("x"))
    assert (queue.n_put, queue.n_under_way) == (0, 1)
    queue.put(0, 0, Generation("x"))
    for _ in range(2):
        with pytest.raises(ValueError, match="draw 0 of prompt 0 must have been taken"):
            queue.put(0, 0, Generation("x"))
        assert not queue.is_open(0)
    assert queue.n_under_way == 0


class Counting(BaseGenerator):
    """Notes how many prompts each call of `sample` was given."""

    chunk_size = 100

    def __init__(self):
        self.sizes = []

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self.sizes.append(len(prompts))
        return [
            [Generation(f"{prompt}/{j}") for j in range(start, start + n_samples)]
            for prompt in prompts
        ]


class Busy(Counting):
    def serve(self, queue):
        while requests := queue.take(3):
            for index, start, stop in requests:
                for j in range(start, stop):
                    queue.put(index, j, Generation(f"{queue.prompts[index]}/{j}"))


@pytest.mark.parametrize("generator", [Counting(), Busy()])
@pytest.mark.parametrize("form", [list, np.array])
def test_any_generator_can_be_served(generator, form):
    assert isinstance(generator, QueueGenerator) == isinstance(generator, Busy)
    rule = Rule()
    answer_queue(generator, DrawQueue(form(range(50)), K, decide=rule))
    assert rule.decided == wanted(50)


@pytest.mark.parametrize("many", [8_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_memory_stays_flat_whatever_the_number_of_prompts(many):
    class Forgetful:
        """Stops at the third draw, and keeps nothing of those that are done."""

        def __init__(self):
            self.counts, self.n_done = {}, 0

        def __call__(self, arrived):
            for index, draws in arrived:
                count = self.counts.pop(index, 0) + len(draws)
                if count < 3:
                    self.counts[index] = count
                else:
                    self.n_done += 1
                yield 0 if count >= 3 else count + 1

    peaks = []
    for n in (5_000, many):
        rule, generator = Forgetful(), Counting()
        queue = DrawQueue(range(n), 20, decide=rule)
        tracemalloc.start()
        answer_queue(generator, queue)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert rule.n_done == n
        assert queue.n_put == 3 * n
        # what makes room is filled again at once: batches stay full to the end
        assert np.mean(np.array(generator.sizes) == 100) > 0.9
    assert peaks[1] < 1.5 * peaks[0] < 15e6
