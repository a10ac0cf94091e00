"""Component scores: what each of them is, and what Proposition 4.4 asks of all of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_clm.generators import Generation
from sklearn_clm.scoring import ClassifierScore, SpanLikelihood, Support, rouge_l
from sklearn_clm.scoring._components import (
    component_scores,
    distinct_components,
    get_component_score,
)
from sklearn_clm.scoring._splitters import component_spans

SENTENCES = ["The heart is large.", "The heart is very large.", "No effusion.", "Clear lungs."]


def spans_of(draws):
    return [[component_spans("sentence", draw.response) for draw in row] for row in draws]


def scored(score, *texts, prompt="prompt"):
    draws = [[Generation(text) for text in texts]]
    return component_scores(score, [prompt], draws, spans_of(draws))[0]


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (
            Generation(
                "One two. Three.",
                token_logprobs=(-1.0, -2.0, -0.5, -3.0, -1.0),
                # the third token makes the period and the space after it, of both sentences
                token_spans=((0, 3), (3, 7), (7, 9), (9, 15), (15, 15)),
            ),
            [math.exp(-3.5 / (8 / 6) ** 0.6), math.exp(-3.0)],
        ),
        (Generation("One. Two.", None, None, (-1.0,), ((0, 4),)), [math.exp(-1.0), 0.0]),
        # a response that is one component
        (Generation(3.5, logprob=-1.0, n_tokens=1), [math.exp(-1)]),
        (Generation(" One alone. ", logprob=-1.0, n_tokens=4), [math.exp(-1 / (9 / 6) ** 0.6)]),
    ],
)
def test_span_likelihood_is_that_of_the_tokens_of_the_component_in_context(draw, expected):
    (scores,) = component_scores(SpanLikelihood(), ["p"], [[draw]], spans_of([[draw]]))[0]
    assert scores == pytest.approx(expected, abs=1e-15)


def test_span_likelihood_without_tokens():
    with pytest.raises(ValueError, match="token_logprobs"):
        scored(SpanLikelihood(), "One. Two.")


@pytest.mark.parametrize("value", [3.5, math.inf, math.nan])
def test_span_likelihood_refuses_impossible_log_probabilities(value):
    draws = [[Generation("One."), Generation("Two.", value, 1, (value,), ((0, 4),))]]
    with pytest.raises(ValueError, match="token_logprobs"):
        SpanLikelihood().score_components(["p"], draws, [[[], [(0, 4)]]])
    sentinel = Generation("Two.", -9999.0, 1, (-9999.0,), ((0, 4),))
    assert SpanLikelihood().score_components(["p"], [[sentinel]], [[[(0, 4)]]]) == [[[0.0]]]


def test_support_counts_samples_not_occurrences():
    counts = scored(Support(), "No effusion. No effusion.", "no effusion", "Clear lungs.", "")
    assert [row.tolist() for row in counts] == [[2, 2], [2], [1], []]


def test_support_with_other_similarities():
    texts = ("The heart is large.", "The heart is very large.")
    assert scored(Support(), *texts)[0] == [1]
    assert scored(Support(threshold=0.8), *texts)[0] == [2]
    assert scored(Support(rouge_l, threshold=0.8), *texts)[0] == [2]

    class SameStart:
        def pairwise(self, a, b=None):
            return [[float(x[:3] == y[:3]) for y in (b or a)] for x in a]

    assert scored(Support(SameStart()), *texts)[0] == [2]
    draws = [[Generation(1.5), Generation(1.5), Generation(2.0)]]
    counts = component_scores(Support(), ["p"], draws, spans_of(draws))[0]
    assert np.concatenate(counts).tolist() == [2, 2, 1]


SETS = st.lists(st.lists(st.sampled_from(SENTENCES), max_size=3).map(" ".join), max_size=6)


@settings(max_examples=60, deadline=None)
@given(SETS, st.data())
def test_scores_never_fall_when_samples_are_added(texts, data):
    """What Proposition 4.4 needs: a subset never scores a component higher."""
    rng = np.random.default_rng(0)

    def likelihood_like(text):
        spans = component_spans("sentence", text)
        return Generation(text, None, None, tuple(-rng.random(len(spans))), tuple(spans))

    draws = [likelihood_like(text) for text in texts]
    kept = data.draw(st.lists(st.sampled_from(range(len(draws))), unique=True)) if draws else []
    for score in (SpanLikelihood(), Support()):
        best = [best_scores(score, [draws[j] for j in of]) for of in (range(len(draws)), kept)]
        assert all(value <= best[0][component] for component, value in best[1].items())


def best_scores(score, draws):
    spans = spans_of([draws])
    scores = component_scores(score, ["p"], [draws], spans)
    responses = [draw.response for draw in draws]
    found = distinct_components(responses, range(len(draws)), spans[0], scores[0])
    return dict(zip(found.components, found.scores))


def test_repeats_are_one_component_with_the_maximum():
    spans = [[(0, 2), (3, 5)], [(0, 2)], [(1, 3)]]
    found = distinct_components(
        ["a. b.", "a.", " a."], [4, 7, 9], spans, [np.array([0.3, 0.2]), [0.9], [0.1]]
    )
    assert found.components == ["a.", "b."]
    assert found.scores.tolist() == [0.9, 0.2]
    assert [[place.draw for place in row] for row in found.occurrences] == [[4, 7, 9], [4]]
    assert found.occurrences[0][2].span == (1, 3)
    numbers = distinct_components([1, 1.0, 2], range(3), [[None]] * 3, [[0.1], [0.4], [0.2]])
    assert numbers.components == [1, 2]
    assert numbers.scores.tolist() == [0.4, 0.2]


def test_classifier():
    texts, good = ["clear lungs", "no effusion", "purple lungs", "green heart"], [1, 1, 0, 0]
    classifier = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, good)
    rows = scored(get_component_score(classifier), "Clear lungs. Green heart.", "Clear lungs.")
    assert rows[0][0] == rows[1][0] > 0.5 > rows[0][1]
    assert rows[0][0] == pytest.approx(classifier.predict_proba(["Clear lungs."])[0, 1], abs=3e-4)
    with_prompt = ClassifierScore(classifier, lambda prompt, part: f"{prompt} {part}")
    assert scored(with_prompt, "It is.", prompt="green")[0] < 0.5
    assert [len(row) for row in scored(ClassifierScore(classifier), "", "")] == [0, 0]
    three = LogisticRegression().fit([[0], [1], [2]], [0, 1, 2])
    by_length = ClassifierScore(three, lambda prompt, part: [len(part)])
    with pytest.raises(ValueError, match=r"component_score .*\(1, 3\)"):
        scored(by_length, "No effusion.")
    with pytest.raises(ValueError, match=r"component_score .* below inf"):
        scored(get_component_score(lambda *_: math.inf), "No effusion.")


def test_callable_is_asked_once_for_each_component():
    asked = []

    def length(prompt, component):
        asked.append(component)
        return len(component)

    rows = scored(get_component_score(length), "No effusion. Clear lungs.", "No effusion.")
    assert [list(row) for row in rows] == [[12, 12], [12]]
    assert asked == ["No effusion.", "Clear lungs."]


def test_names():
    assert isinstance(get_component_score("span_likelihood"), SpanLikelihood)
    support = Support(threshold=0.5)
    assert get_component_score(support) is support
    for wrong, error in ((LogisticRegression(), ValueError), (Support, TypeError), (3, TypeError)):
        with pytest.raises(error, match="component_score must be"):
            get_component_score(wrong)


def test_support_counts_rejected_draws_and_other_scores_do_not_see_them():
    draws = [[Generation(text) for text in ("It is big.", "It is big!", "No.")]]
    spans = spans_of(draws)
    (counts,) = component_scores(Support(), ["Q"], draws, spans, members=[[0, 2]])
    assert [row.tolist() for row in counts] == [[2.0], [1.0]]
    asked = []
    score = get_component_score(lambda prompt, component: asked.append(component) or 1.0)
    (ones,) = component_scores(score, ["Q"], draws, spans, members=[np.array([2])])
    assert [row.tolist() for row in ones] == [[1.0]]
    assert asked == ["No."]
