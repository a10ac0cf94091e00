import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.scoring import ClassifierScore, likelihood, quality_matrix


def draws(*rows):
    return [[Generation(response) for response in row] for row in rows]


@settings(max_examples=60, deadline=None)
@given(st.floats(max_value=0.0, allow_nan=False), st.integers(1, 4000))
def test_likelihood_is_equation_of_the_paper(logprob, n_tokens):
    generation = Generation("y", logprob=logprob, n_tokens=n_tokens)
    with warnings.catch_warnings(action="error"):
        quality = likelihood("x", generation)
    assert quality == pytest.approx(math.exp(logprob / ((5 + n_tokens) ** 0.6 / 6**0.6)), rel=1e-12)
    assert 0.0 <= quality <= 1.0
    assert quality_matrix("likelihood", ["x"], [[generation]])[0, 0] == quality


@pytest.mark.parametrize(
    ("logprob", "n_tokens", "expected"),
    [
        (math.log(0.25), 1, 0.25),  # one token is not normalised
        (-1e6, 1, 0.0),
        (-9999.0, 1, 0.0),
        (-math.inf, 9, 0.0),
        (0.004, 1, 1.0),  # rounding in low precision
        (0.0, 0, 0.0),  # nothing is not certain
        (-math.inf, 0, 0.0),
    ],
)
def test_likelihood_at_its_ends(logprob, n_tokens, expected):
    assert likelihood("x", Generation("y", logprob, n_tokens)) == pytest.approx(expected)


def test_likelihood_of_many_draws_from_a_start():
    rows = [
        [Generation("y", logprob=-0.5 * (i + j), n_tokens=j + 1) for j in range(4)]
        for i in range(3)
    ]
    whole = quality_matrix("likelihood", ["a", "b", "c"], rows)
    assert whole.shape == (3, 4)
    assert whole[2, 3] == likelihood("c", rows[2][3])
    assert_array_equal(quality_matrix(likelihood, ["a", "b", "c"], rows, start=2), whole[:, 2:])


@pytest.mark.parametrize(
    "fields",
    [
        *({}, {"logprob": -1.0}, {"n_tokens": 3}, {"logprob": -1.0, "n_tokens": -1}),
        *({"logprob": value, "n_tokens": 3} for value in (math.nan, 3.5, math.inf)),
    ],
)
def test_missing_logprob_names_the_alternatives(fields):
    rows = [[Generation("a", logprob=-1.0, n_tokens=1), Generation("b", **fields)]]
    with pytest.raises(ValueError, match=r"log-probability .* number of tokens") as error:
        quality_matrix("likelihood", ["what?"], rows)
    for wanted in ("draw 1 of prompt 0 ('what?')", "self_consistency", "p_true", "callable"):
        assert wanted in str(error.value)


def test_a_callable_that_fails_names_what_it_was_given():
    with pytest.raises(TypeError) as raised:
        quality_matrix(lambda draw: 1.0, ["what?"], draws(["four"]))
    (note,) = raised.value.__notes__
    assert "quality <lambda> was given 'what?' and Generation(response='four'" in note


def test_callable_sees_prompt_and_generation():
    def score(prompt, generation):
        return len(prompt) + 10 * len(generation.response)

    rows = draws(["a", "bb"], ["ccc", "d"])
    assert_array_equal(quality_matrix(score, ["x", "yy"], rows), [[11, 21], [32, 12]])
    assert_array_equal(quality_matrix(score, ["x", "yy"], rows, start=1, n_jobs=2), [[21], [12]])


@pytest.fixture(scope="module")
def classifier():
    texts = ["good one", "good two", "bad one", "bad two"]
    return make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, [1, 1, 0, 0])


def test_classifier_gives_the_probability_of_its_second_class(classifier):
    rows = draws(["good", "bad"], ["two", "good good"])
    quality = quality_matrix(classifier, ["x", "y"], rows)
    expected = classifier.predict_proba(["good", "bad", "two", "good good"])[:, 1]
    assert_allclose(quality, expected.reshape(2, 2), atol=2.5e-4)
    assert quality[0, 0] > 0.5 > quality[0, 1]
    assert_array_equal(quality_matrix(classifier, ["x", "y"], rows, start=1), quality[:, 1:])


def test_classifier_may_see_the_prompt(classifier):
    quality = ClassifierScore(classifier, lambda prompt, draw: f"{prompt} {draw.response}")
    values = quality_matrix(quality, ["good", "bad"], draws(["one"], ["one"]))[:, 0]
    expected = classifier.predict_proba(["good one", "bad one"])[:, 1]
    assert_allclose(values, expected, atol=2.5e-4)


class Certain:
    def __init__(self, row):
        self.row = row

    def predict_proba(self, rows):
        return [self.row] * len(rows)


@pytest.mark.parametrize(
    ("row", "expected"), [((0.0, 1.0), 1.0), ((1.0, 0.0), 0.0), ((0.5, 0.5), 0.5)]
)
def test_classifier_may_be_certain(row, expected):
    assert quality_matrix(Certain(row), ["x"], draws(["a"]))[0, 0] == expected


@pytest.mark.parametrize("row", [(0.0, 0.0), (-0.1, 1.1)])
def test_classifier_gives_probabilities(row):
    with pytest.raises(ValueError, match="quality Certain"):
        quality_matrix(Certain(row), ["x"], draws(["a"]))


def test_probabilities_near_one_are_told_apart():
    first, second = (
        quality_matrix(Certain((rest, 1.0 - rest)), ["x"], draws(["a"]))[0, 0]
        for rest in (1e-9, 1e-10)
    )
    assert first < second < 1.0


@pytest.mark.parametrize(
    ("prompts", "rows", "start", "name"),
    [
        (["x", "y"], [["a"]], 0, "prompts"),
        (["x", "y"], [["a"], ["a", "b"]], 0, "generations"),
        (["x"], [["a"]], 2, "start"),
    ],
)
def test_bad_shapes_are_named(prompts, rows, start, name):
    with pytest.raises(ValueError, match=name):
        quality_matrix("likelihood", prompts, draws(*rows), start=start)


class WithoutLogprobs(BaseGenerator):
    gives_logprobs = False

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        raise AssertionError("nothing is drawn")


class OfTokens:
    needs_logprobs = True

    def score_draws(self, prompts, generations, start):
        raise AssertionError("nothing is scored")


@pytest.mark.parametrize("quality", ["likelihood", likelihood, OfTokens()])
def test_what_needs_log_probabilities_is_refused_before_a_draw(quality):
    sampler = ConformalSampler(WithoutLogprobs(), quality=quality)
    with pytest.raises(ValueError, match="needs log-probabilities, and generator"):
        sampler.fit(["a", "b"], ["x", "y"])
