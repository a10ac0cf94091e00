"""What is checked of every generator, and fingerprints."""

import functools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from sklearn_clm.generators import BaseGenerator, Generation, check_keyed
from sklearn_clm.generators._base import fingerprint, sample, stream


class Echo(BaseGenerator):
    """Responds with what it was asked for; `shout` changes the distribution."""

    chunk_size = 2

    def __init__(self, shout=False, post=None):
        self.shout = shout
        self.post = post

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [
            [Generation(f"{prompt}/{draw}/{seed}") for draw in range(start, start + n_samples)]
            for prompt in prompts
        ]


class Streaming(BaseGenerator):
    def stream(self, prompts, n_samples, *, start=0, seed=0):
        for draw in reversed(range(start, start + n_samples)):
            for i, prompt in enumerate(prompts):
                yield i, draw, Generation(f"{prompt}/{draw}")


class Foreign:
    """A generator that knows nothing of this package but the method's name."""

    def __init__(self, rows):
        self.rows = rows

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return self.rows


def test_sample_and_stream_are_defined_by_each_other():
    rows = sample(Streaming(), ["a", "b"], 3, start=4)
    assert [[g.response for g in row] for row in rows] == [
        [f"{prompt}/{draw}" for draw in (4, 5, 6)] for prompt in "ab"
    ]
    assert Streaming().sample(["a", "b"], 3, start=4) == rows
    streamed = list(Echo().stream(["a", "b", "c"], 2, start=1, seed=9))
    assert [(i, j) for i, j, _ in streamed] == [(i, j) for i in range(3) for j in (1, 2)]
    assert streamed[-1][2].response == "c/2/9"


def test_no_prompts_and_no_draws():
    assert sample(Echo(), [], 3) == []
    assert sample(Echo(), ["a", "b"], 0) == [[], []]


def test_plain_strings_are_taken_as_responses():
    assert sample(Foreign([["yes", "no"]]), ["?"], 2) == [[Generation("yes"), Generation("no")]]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([["a"]], r"\[1\]"),
        ([["a", "b", "c"]], r"\[3\]"),
        ([[]], r"\[0\]"),
        ([], r"\[\]"),
        (None, "NoneType"),
        (["ab"], "'str'"),
        ([Generation("a")], "'Generation'"),
        ([["a", None]], "None as draw 4 of prompt 0"),
        ([["a", 3]], "3 as draw 4 of prompt 0"),
        ([["a", Generation(None)]], "draw 4 of prompt 0"),
        ([["a", "half \ude00"]], "draw 4 of prompt 0 .*position 5"),
    ],
)
def test_bad_draws_are_refused(rows, shown):
    with pytest.raises((TypeError, ValueError), match=shown):
        sample(Foreign(rows), ["?"], 2, start=3)


@pytest.mark.parametrize(
    ("draws", "shown"),
    [
        ([(0, 3)], "2 draws for each of 2 prompts, got 1"),
        ([(0, 3), (0, 3)], "draw 3 of prompt 0"),
        ([(7, 3)], "draw 3 of prompt 7"),
        ([(0, 5)], "draw 5 of prompt 0"),
    ],
)
def test_a_stream_of_other_draws_is_refused(draws, shown):
    class Stray(Streaming):
        def stream(self, prompts, n_samples, *, start=0, seed=0):
            for prompt, draw in draws:
                yield prompt, draw, Generation("one")

    with pytest.raises(ValueError, match=rf"Stray .*{shown}"):
        list(stream(Stray(), ["a", "b"], 2, start=3))


def test_fingerprints_follow_class_and_parameters():
    assert Echo().fingerprint() == clone(Echo()).fingerprint()
    assert Echo().fingerprint() != Echo(shout=True).fingerprint()
    assert Echo().fingerprint() != Streaming().fingerprint()
    assert fingerprint(Foreign([1])) == fingerprint(Foreign([1]))
    assert fingerprint(Foreign([1])) != fingerprint(Foreign([2]))
    # estimators that define no fingerprint are told by their parameters and by what they learnt
    untold = [LogisticRegression(C=c) for c in (1.0, 1.0, 2.0)]
    assert fingerprint(untold[0]) == fingerprint(untold[1]) != fingerprint(untold[2])
    assert fingerprint(untold[1].fit([[0.0], [1.0]], [0, 1])) != fingerprint(untold[0])


def test_a_generator_that_draws_in_no_way_is_refused():
    class Mute(BaseGenerator):
        pass

    for draw in (Mute().sample, functools.partial(sample, Mute())):
        with pytest.raises(TypeError, match=r"Mute .*sample or stream"):
            draw(["a"], 1)


def test_clones_share_what_is_no_estimator():
    model = object()
    assert clone(Echo(post=model)).post is model
    classifier = LogisticRegression(C=3.0)
    copy = clone(Echo(post=classifier)).post
    assert copy is not classifier
    assert copy.C == 3.0


def test_prompts_are_checked_at_the_door():
    for generator in (Echo(), Streaming(), Foreign([["a"]])):
        for prompts in ("why", b"why"):
            with pytest.raises(TypeError, match=r"prompts .*why"):
                sample(generator, prompts, 1)
    for prompt in ("half \ud83d", ["a chat", {"content": "half \ud83d"}]):
        with pytest.raises(ValueError, match=r"prompts\[1\] .*position 5"):
            sample(Echo(), ["fine", prompt], 1)
    for wrong in (Echo, 3):
        with pytest.raises(TypeError, match="generator must be an instance"):
            sample(wrong, ["?"], 1)


class CountsCalls(Echo):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self.n_calls = getattr(self, "n_calls", 0) + 1
        return [[Generation(f"{prompt}/{self.n_calls}")] * n_samples for prompt in prompts]


class IgnoresStart(Echo):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return super().sample(prompts, n_samples, seed=seed)


@pytest.mark.parametrize("prompt", ["a", np.array([1.0, 2.0])])
def test_generators_that_do_not_repeat_a_draw_are_found_out(prompt):
    assert check_keyed(Echo(), prompt, seed=3)
    assert check_keyed(Echo(), prompt, n_draws=1)
    assert not check_keyed(CountsCalls(), prompt)
    assert not check_keyed(IgnoresStart(), prompt)


def test_clones_share_no_list():
    generator = Echo(post=["a", {"b": [1]}, np.zeros(2)])
    copy = clone(generator)
    generator.post[1]["b"].append(2)
    generator.post[2][0] = 1.0
    assert copy.post[:2] == ["a", {"b": [1]}]
    assert copy.post[2].tolist() == [0.0, 0.0]


def test_an_unseeded_yes_or_no_is_found_out_almost_always():
    class Coin(BaseGenerator):
        def __init__(self, rng=None):
            self.rng = rng

        def sample(self, prompts, n_samples, *, start=0, seed=0):
            return [[Generation(str(self.rng.integers(2))) for _ in range(n_samples)]]

    coin = Coin(np.random.default_rng(0))
    # each call is fooled with a chance of 1 in 1,024: three times in 100 with one of 10^-4
    assert sum(check_keyed(coin, "q") for _ in range(100)) <= 3
