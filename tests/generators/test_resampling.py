"""Draws of references that were seen in training."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_clm.generators import ResamplingGenerator
from sklearn_clm.generators._classifiers import invert


def test_draws_follow_the_frequencies_of_the_references():
    references = ["a"] * 6 + ["b"] * 3 + ["c"]
    generator = ResamplingGenerator().fit(references, references)
    prompts = [f"prompt {i}" for i in range(500)]
    draws = [draw for row in generator.sample(prompts, 4) for draw in row]
    counts = [sum(draw.response == response for draw in draws) for response in "abc"]
    assert chisquare(counts, 2000 * np.array([0.6, 0.3, 0.1])).pvalue > 1e-3
    for draw in draws[:50]:
        assert draw.logprob == pytest.approx(np.log({"a": 0.6, "b": 0.3, "c": 0.1}[draw.response]))
        assert (draw.n_tokens, draw.token_logprobs) == (1, (draw.logprob,))


def test_several_references_share_the_weight_of_their_prompt():
    generator = ResamplingGenerator().fit([1, 2], [["a", "b"], "a"])
    weights = dict(zip(generator.responses_, np.exp(generator.log_frequencies_)))
    assert weights == pytest.approx({"a": 0.75, "b": 0.25})
    of_sets = ResamplingGenerator().fit([1], [{"z", "y", "x"}])
    assert of_sets.responses_ == ["x", "y", "z"]


@settings(max_examples=30, deadline=None)
@given(
    prompts=st.lists(st.text(max_size=5), min_size=1, max_size=5),
    start=st.integers(0, 5),
    n_samples=st.integers(0, 5),
    seed=st.integers(0, 3),
)
def test_draws_are_keyed(prompts, start, n_samples, seed):
    generator = ResamplingGenerator().fit(range(9), list("aabbbcdef"))
    whole = [generator.sample([prompt], 10, seed=seed)[0] for prompt in prompts]
    part = generator.sample(prompts, n_samples, start=start, seed=seed)
    assert part == [row[start : start + n_samples] for row in whole]


def test_prompts_and_seeds_have_draws_of_their_own():
    generator = ResamplingGenerator().fit(range(50), [str(i) for i in range(50)])
    rows = generator.sample(["a", "b"], 10) + generator.sample(["a"], 10, seed=1)
    assert len({tuple(draw.response for draw in row) for row in rows}) == 3


def test_fingerprint_tells_what_was_learnt():
    first = ResamplingGenerator().fit([1, 2], ["a", "b"])
    same = pickle.loads(pickle.dumps(ResamplingGenerator().fit([3, 4], ["a", "b"])))
    other = ResamplingGenerator().fit([1, 2], ["a", "c"])
    assert first.fingerprint() == same.fingerprint()
    assert len({first.fingerprint(), other.fingerprint(), clone(first).fingerprint()}) == 3


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([], "at least 1 reference"),
        ([str.isupper], "admissions .*isupper"),
        ([{"a": 1}], "admissions .*'a': 1"),
        ([np.zeros(3)], "admissions .*array"),
    ],
)
def test_bad_references(references, message):
    with pytest.raises(ValueError, match=message):
        ResamplingGenerator().fit(list(range(len(references))), references)


def test_sampling_before_fitting():
    with pytest.raises(NotFittedError):
        ResamplingGenerator().sample(["a"], 1)


@given(
    weights=st.lists(st.sampled_from([0.0, 1e-9, 0.3, 1.0, 7.0]), min_size=1, max_size=6),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_inversion_never_picks_what_has_no_probability(weights, uniform):
    if not sum(weights):
        return
    cumulative = np.cumsum(weights) / np.sum(weights)
    cumulative /= cumulative[-1]
    assert weights[invert(cumulative, uniform)] > 0
