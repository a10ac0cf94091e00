"""What is checked of every generator, and fingerprints."""

import functools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import BaseGenerator, Generation, check_keyed
from sklearn_clm.generators.base import sample
from tests.toy import Answering, n_stored


def echo(prompt, draw):
    return f"{prompt}/{draw}"


class Foreign:
    """A generator that knows nothing of this package but the method's name."""

    def __init__(self, rows):
        self.rows = rows

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return self.rows


def test_plain_strings_are_taken_as_responses():
    assert sample(Foreign([["yes", "no"]]), ["?"], 2) == [[Generation("yes"), Generation("no")]]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([["a"]], "2 draws for each prompt, got 1"),
        ([["a", "b", "c"]], "got 3"),
        ([["a", "b"]] * 2, "1 prompts, got those of 2"),
        ([[]], "got 0"),
        ([], "got those of 0"),
        (None, "got None"),
        (["ab"], "got .*'ab'"),
        ([Generation("a")], "got .*Generation"),
        ([["a", None]], "None as draw 4"),
        ([["a", 3]], "3 as draw 4"),
        ([["a", Generation(None)]], "draw 4"),
        ([["a", "half \ude00"]], "draw 4 .*position 5"),
    ],
)
def test_bad_draws_are_refused(rows, shown):
    with pytest.raises((TypeError, ValueError), match=shown):
        sample(Foreign(rows), ["?"], 2, start=3)


def test_rows_before_a_short_one_are_kept(tmp_path):
    cached = CachedGenerator(Foreign([["a", "b"], ["c"]]), tmp_path / "s.sqlite", key="foreign")
    with pytest.raises(ValueError, match="2 draws for each prompt"):
        cached.sample(["?", "!"], 2)
    assert n_stored(cached) == 2


def test_a_generator_that_draws_in_no_way_is_refused():
    class Mute(BaseGenerator):
        pass

    for draw in (Mute().sample, functools.partial(sample, Mute())):
        with pytest.raises(TypeError, match=r"Mute .*sample"):
            draw(["a"], 1)


def test_prompts_are_checked_at_the_door():
    for generator in (Answering(), Foreign([["a"]])):
        for prompts in ("why", b"why"):
            with pytest.raises(TypeError, match=r"prompts .*why"):
                sample(generator, prompts, 1)
    for prompt in ("half \ud83d", ["a chat", {"content": "half \ud83d"}]):
        with pytest.raises(ValueError, match=r"prompts\[1\] .*position 5"):
            sample(Answering(), ["fine", prompt], 1)
    for wrong in (Answering, 3):
        with pytest.raises(TypeError, match="generator must be an instance"):
            sample(wrong, ["?"], 1)


class CountsCalls(Answering):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self.n_calls = getattr(self, "n_calls", 0) + 1
        return [[Generation(f"{prompt}/{self.n_calls}")] * n_samples for prompt in prompts]


class IgnoresStart(Answering):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return super().sample(prompts, n_samples, seed=seed)


@pytest.mark.parametrize("prompt", ["a", np.array([1.0, 2.0])])
def test_generators_that_do_not_repeat_a_draw_are_found_out(prompt):
    assert check_keyed(Answering(echo), prompt, seed=3)
    assert check_keyed(Answering(echo), prompt, n_draws=1)
    assert not check_keyed(CountsCalls(), prompt)
    assert not check_keyed(IgnoresStart(echo), prompt)


def test_clones_share_models_but_no_estimator_and_no_list():
    model, classifier = object(), LogisticRegression(C=3.0)
    generator = Answering([model, classifier, {"b": [1]}, np.zeros(2)])
    copy = clone(generator).answers
    generator.answers[2]["b"].append(2)
    generator.answers[3][0] = 1.0
    assert copy[0] is model
    assert copy[1] is not classifier
    assert copy[1].C == 3.0
    assert copy[2] == {"b": [1]}
    assert copy[3].tolist() == [0.0, 0.0]
