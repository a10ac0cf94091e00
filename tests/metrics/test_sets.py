"""Measures of prediction sets against their definitions."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier

from sklearn_clm import ComponentSets, ConformalSampler, PredictionSet, PredictionSets
from sklearn_clm.generators import EstimatorGenerator, Generation
from sklearn_clm.metrics import (
    SCORERS,
    normalized_auc,
    set_coverage,
    set_excess,
    set_loss,
    set_objective,
    set_outcomes,
    set_samples,
    set_size,
)
from tests.toy import ToyModel, questions


@st.composite
def sampled_sets(draw):
    sets = []
    for i in range(draw(st.integers(1, 6))):
        responses = draw(st.lists(st.sampled_from(["good", "bad", "ugly"]), min_size=1, max_size=6))
        accepted = [j for j in range(len(responses)) if draw(st.booleans())]
        sets.append(
            PredictionSet(
                f"prompt {i}",
                tuple(responses[j] for j in accepted),
                [1.0] * len(accepted),
                accepted,
                len(responses),
                1.0,
                True,
                True,
                [Generation(response) for response in responses],
            )
        )
    return PredictionSets(sets, k_max=6)


@settings(max_examples=60, deadline=None)
@given(sets=sampled_sets())
def test_outcomes_are_those_of_the_definitions(sets):
    loss, excess = [], []
    for one in sets:
        hits = [j for j, draw in enumerate(one.generations, 1) if draw.response == "good"]
        loss.append("good" not in one.responses)
        excess.append(max(one.n_samples - hits[0], 0) / one.n_samples if hits else 0.0)
    references = ["good"] * len(sets)
    outcomes = set_outcomes(references, sets, admission="exact_match")
    assert outcomes.loss.tolist() == loss
    assert outcomes.excess.tolist() == excess
    assert outcomes.size.tolist() == [len(one) for one in sets]
    assert outcomes.samples.tolist() == [one.n_samples for one in sets]
    kind = {"admission": "exact_match"}
    assert set_loss(references, sets, **kind) == pytest.approx(np.mean(loss))
    assert set_loss(references, sets, average=False, **kind).tolist() == loss
    assert set_coverage(references, sets, **kind) == pytest.approx(1 - np.mean(loss))
    assert set_excess(references, sets, average=False, **kind).tolist() == excess
    assert set_size(sets) == pytest.approx(np.mean(outcomes.size))
    assert set_samples(sets, average=False).tolist() == outcomes.samples.tolist()
    assert set_objective(
        references, sets, size_weight=2.0, excess_weight=3.0, **kind
    ) == pytest.approx(2 * np.mean(outcomes.size) + 3 * np.mean(excess))


@settings(max_examples=40, deadline=None)
@given(sets=sampled_sets())
def test_no_draw_is_judged_in_vain(sets):
    for one in sets:
        judged = []

        def admits(response, judged=judged):
            judged.append(response)
            return response == "good"

        single = PredictionSets([one], k_max=6)
        set_outcomes([admits], single)
        drawn = [draw.response for draw in one.generations]
        first = drawn.index("good") if "good" in drawn else len(drawn)
        needed = set(range(first + 1)) | set(one.indices.tolist())
        assert len(judged) <= len(needed)


def test_agrees_with_the_calibration_data():
    X, y = questions(80)
    sampler = ConformalSampler(ToyModel(), k_max=4, epsilon=0.5, random_state=0).fit(X, y)
    outcomes = set_outcomes(y, sampler.predict(X))
    assert -sampler.score(X, y) == pytest.approx(
        0.5 * outcomes.size.mean() + 0.5 * outcomes.excess.mean()
    )


def test_draws_have_a_price_in_every_score():
    X, y = questions(80)
    sampler = ConformalSampler(
        ToyModel(), k_max=4, epsilon=0.5, size_weight=0.0, excess_weight=0.0, draw_weight=0.25
    )
    sets = sampler.set_params(random_state=0).fit(X, y).predict(X)
    price = 0.25 * sets.n_samples.mean()
    assert -sampler.score(X, y) == pytest.approx(price)
    assert set_objective(y, sets) == pytest.approx(price)
    assert SCORERS["neg_objective"](sampler, X, y) == pytest.approx(-price)
    assert set_objective(y, sets, draw_weight=1.0) == pytest.approx(4 * price)


ONE = PredictionSets(
    [PredictionSet("q", ("a",), [1.0], [0], 1, 1.0, True, True, [Generation("a")])], k_max=1
)


def test_what_is_refused():
    with pytest.raises(TypeError, match="sets must be PredictionSets, got list"):
        set_outcomes(["a"], [["a"]])
    with pytest.raises(TypeError, match="sets must be PredictionSets, got list"):
        set_objective(["a"], [["a"]])
    with pytest.raises(TypeError, match=r"got ComponentSets, for which there are .*COMPONENT_SC"):
        set_loss(["a"], ComponentSets([]))
    with pytest.raises(ValueError, match=r"prompts \(X\) holds 1 and admissions \(y\) 2 entries"):
        set_loss(["a", "b"], ONE, admission="exact_match")
    with pytest.raises(ValueError, match="admission must be given"):
        set_loss(["a"], ONE)
    assert set_loss([lambda response: True], ONE) == 0.0


def test_references_of_another_type_than_all_responses_are_warned_of():
    X, y = np.arange(160.0).reshape(-1, 1) % 7, np.arange(160) % 2
    sampler = ConformalSampler(
        EstimatorGenerator(DummyClassifier()), k_max=4, epsilon=0.5, random_state=0
    ).fit(X, y)
    sets = sampler.predict(X[:40])
    texts = y.astype(str)
    match = "References are of type str and responses of type int, .* for 40 of 40 prompts"
    with pytest.warns(UserWarning, match=match) as caught:
        assert set_coverage(texts[:40], sets) == 0.0
    assert [each.filename for each in caught] == [__file__]
    with pytest.warns(UserWarning, match=match):
        sampler.score(X[:40], texts[:40])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set_coverage(y[:40], sets) > 0.5


def test_sets_without_guarantee_have_no_objective():
    one = PredictionSet("q", ("a",), [1.0], [0], 1, 1.0, False, False, [Generation("a")])
    assert set_objective(["a"], PredictionSets([one], k_max=1)) == np.inf


def test_normalized_auc_of_a_flat_curve():
    assert normalized_auc([0.1, 0.15, 0.4], [2.0, 2.0, 2.0]) == pytest.approx(2.0)


def test_sets_that_do_not_know_their_draws_are_not_judged():
    one = PredictionSet("Q", ("Paris",), [0.9], [1], 2, 0.9, True, True)
    with pytest.raises(ValueError, match=r"sets\[0\] knows 0 of its 2 draws; wanted"):
        set_loss(["Paris"], PredictionSets([one], k_max=2), admission="exact_match")
