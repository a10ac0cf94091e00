"""Measures of prediction sets against their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm import ComponentSets, ConformalSampler, PredictionSet, PredictionSets
from sklearn_clm.generators import Generation
from sklearn_clm.metrics import SCORERS, set_coverage, set_loss, set_outcomes
from sklearn_clm.policies import ThresholdPolicy
from tests.toy import ToyModel, questions


@st.composite
def sampled_sets(draw):
    sets = []
    for i in range(draw(st.integers(1, 6))):
        responses = draw(st.lists(st.sampled_from(["good", "bad", "ugly"]), min_size=1, max_size=6))
        accepted = [j for j in range(len(responses)) if draw(st.booleans())]
        texts, quality = tuple(responses[j] for j in accepted), [1.0] * len(accepted)
        of_stop = len(responses), 1.0, True, True, list(map(Generation, responses))
        sets.append(PredictionSet(f"prompt {i}", texts, quality, accepted, *of_stop))
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
    assert SCORERS["neg_excess"](sampler, X, y) == pytest.approx(-outcomes.excess.mean())


def test_draws_have_a_price_in_every_score():
    X, y = questions(80)
    policy = ThresholdPolicy(size_weight=0.0, excess_weight=0.0, draw_weight=0.25)
    sampler = ConformalSampler(ToyModel(), k_max=4, epsilon=0.5, policy=policy)
    sets = sampler.set_params(random_state=0).fit(X, y).predict(X)
    price = 0.25 * sets.n_samples.mean()
    assert -sampler.score(X, y) == pytest.approx(price)
    assert SCORERS["neg_objective"](sampler, X, y) == pytest.approx(-price)


ONE = PredictionSets(
    [PredictionSet("q", ("a",), [1.0], [0], 1, 1.0, True, True, [Generation("a")])], k_max=1
)


def test_what_is_refused():
    for sets in ([["a"]], ComponentSets([])):
        with pytest.raises(TypeError, match="sets must be PredictionSets"):
            set_loss(["a"], sets)
    with pytest.raises(ValueError, match="admissions"):
        set_loss(["a", "b"], ONE, admission="exact_match")
    with pytest.raises(ValueError, match="admission must"):
        set_loss(["a"], ONE)
    assert set_loss([lambda response: True], ONE) == 0.0
    unknown = PredictionSet("Q", ("Paris",), [0.9], [1], 2, 0.9, True, True)
    with pytest.raises(ValueError, match=r"sets\[0\]"):
        set_loss(["Paris"], PredictionSets([unknown], k_max=2), admission="exact_match")
