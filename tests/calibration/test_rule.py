import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.calibration import CalibrationData, Configuration, SamplingRule, learn_then_test
from sklearn_clm.calibration._set_scores import get_set_score
from sklearn_clm.calibration._surface import evaluate_configurations

KEEP_ALL = Configuration(math.inf, -math.inf, 0.9)


def make_rule(configuration=KEEP_ALL, set_score="max", **options):
    return SamplingRule(configuration, get_set_score(set_score), **options)


def test_before_the_first_draw():
    rule = make_rule(k_max=2)
    assert (rule.accepted, rule.n_samples, rule.score) == ([], 0, -math.inf)
    assert rule.stopped is False
    assert rule.done is False


def test_the_budget_stops_without_confidence():
    rule = make_rule(k_max=2)
    assert rule.update(0.1, []) is False
    assert rule.update(0.2, [0.0]) is True
    assert rule.done
    assert rule.stopped is False
    assert rule.score == 0.2


def test_an_empty_set_is_never_confident():
    rule = make_rule(Configuration(math.inf, 0.5, -math.inf), k_max=3)
    assert [rule.update(0.4, [0.0] * j) for j in range(2)] == [False, False]
    assert rule.score == -math.inf
    assert rule.update(0.5, [0.0, 0.0])
    assert rule.stopped is True
    assert rule.accepted == [2]


@pytest.mark.parametrize("confident", [False, True])
def test_no_draw_after_the_end(confident):
    rule = make_rule(k_max=1)
    rule.update(1.0 if confident else 0.0, [])
    assert rule.stopped is confident
    with pytest.raises(RuntimeError, match=r"^the sampling rule has stopped; it takes no further"):
        rule.update(1.0, [0.0])
    assert rule.n_samples == 1


def test_no_budget():
    with pytest.raises(ValueError, match="k_max must be at least 1, got 0"):
        make_rule(k_max=0)


@pytest.mark.parametrize(("width", "wanted"), [(None, 3), (5, 5)])
def test_vectorised_scores_see_arrays_as_wide_as_in_calibration(width, wanted):
    shapes = []

    def total(quality, accepted):
        shapes.append((quality.shape, accepted.shape))
        return (quality * accepted).sum(axis=1)

    rule = make_rule(set_score=total, k_max=3, width=width)
    rule.update(0.25, [])
    assert rule.score == 0.25
    assert shapes == [((1, wanted), (1, wanted))]


@st.composite
def discrete_scores(draw):
    n, k = draw(st.integers(8, 20)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = np.arange(12) / draw(st.sampled_from([10.0, 7.0, 3.0]))
    return rng.choice(values, (n, k)), rng.choice(values, (n, k, k)), rng.random((n, k)) < 0.7


@settings(max_examples=60, deadline=None)
@given(scores=discrete_scores(), set_score=st.sampled_from(["first_k_reject", "max", "sum"]))
def test_predict_falls_on_the_side_of_a_threshold_that_calibration_counted(scores, set_score):
    """Ties with thresholds are the rule here."""
    data = CalibrationData(*scores)
    result = learn_then_test(data, 0.9, 0.4, set_score=set_score, random_state=0, n_lambdas=3)
    for lambdas in result.frontier.lambdas:
        counted = evaluate_configurations(data, [lambdas], set_score=set_score)
        size = samples = 0
        for i in range(data.n_prompts):
            rule = SamplingRule(Configuration(*lambdas), get_set_score(set_score), data.k_max)
            while not rule.done:
                rule.update(data.quality[i, rule.n_samples], data.similarity[i, rule.n_samples])
            size, samples = size + len(rule.accepted), samples + rule.n_samples
        assert size == round(counted.size[0] * data.n_prompts)
        assert samples == round(counted.samples[0] * data.n_prompts)


def test_no_threshold_is_rounded_to_the_precision_of_a_score():
    rule = make_rule(Configuration(math.inf, 0.1, math.inf), k_max=2)
    rule.update(np.float32(0.1) - np.float32(1e-8), [])  # 0.0999999940395...
    rule.update(np.float32(0.1), [0.0])
    assert rule.accepted == [1]
