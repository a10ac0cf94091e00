import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_clm.calibration import CalibrationData, evaluate_configurations, risk_surface
from tests.calibration import oracle
from tests.calibration.strategies import calibration_data, thresholds


def geometric_mean(quality):
    with np.errstate(all="ignore"):
        return np.exp(np.mean(np.log(np.abs(quality))))


def sometimes_nan(quality):
    return np.nan if len(quality) % 2 else float(np.min(quality))


def mean_of_members(quality, accepted):
    with np.errstate(all="ignore"):
        return np.sum(np.where(accepted, quality, 0.0), axis=1) / np.sum(accepted, axis=1)


SET_SCORES = {
    "first_k": "first_k",
    "first_k_reject": "first_k_reject",
    "max": "max",
    "sum": "sum",
    "callable": geometric_mean,
    "callable, NaN": sometimes_nan,
    "vectorised": mean_of_members,
}


def assert_surface_equals_oracle(data, l1, l2, l3, set_score, **options):
    surface = risk_surface(data, l1, l2, l3, set_score=set_score, **options)
    expected = oracle.surface(data, l1, l2, l3, set_score)
    assert_array_equal(surface.n_errors, expected.n_errors)
    assert_array_equal(surface.loss, expected.n_errors / data.n_prompts)
    for name in ("size", "samples", "excess"):
        assert_allclose(getattr(surface, name), getattr(expected, name), rtol=0, atol=1e-12)


@pytest.mark.parametrize("set_score", SET_SCORES.values(), ids=SET_SCORES.keys())
@settings(max_examples=60, deadline=None)
@given(data=calibration_data(), l1=thresholds(), l2=thresholds(), l3=thresholds())
def test_surface_equals_the_sequential_rule(set_score, data, l1, l2, l3):
    assert_surface_equals_oracle(data, l1, l2, l3, set_score)


@pytest.mark.parametrize("k_max", [1, 8, 9, 16, 17, 22, 23, 32, 33, 54, 55, 63, 64, 65, 130])
@pytest.mark.parametrize("set_score", ["first_k_reject", "sum", mean_of_members])
def test_every_width_of_the_bit_sets(k_max, set_score):
    rng = np.random.default_rng(k_max)
    data = CalibrationData(
        rng.random((5, k_max)),
        rng.random((5, k_max, k_max)) ** 4,
        rng.random((5, k_max)) < 2 / k_max,
    )
    l3 = [1.0, 3.0, k_max / 2, np.inf] if set_score == "first_k_reject" else [0.5, 3.0, np.inf]
    assert_surface_equals_oracle(
        data, [-np.inf, 0.1, 0.5, 0.9, np.inf], [-np.inf, 0.2, 0.6], l3, set_score
    )


@pytest.mark.parametrize("set_score", SET_SCORES.values(), ids=SET_SCORES.keys())
@settings(max_examples=40, deadline=None)
@given(data=calibration_data(), draw=st.data())
def test_evaluation_of_a_list_equals_the_sequential_rule(set_score, data, draw):
    values = thresholds(max_size=3)
    l1, l2, l3 = (draw.draw(values) for _ in range(3))
    triple = st.tuples(st.sampled_from(l1), st.sampled_from(l2), st.sampled_from(l3))
    lambdas = draw.draw(st.lists(triple, min_size=1, max_size=8))
    budgets = [draw.draw(st.integers(1, data.k_max)) for _ in lambdas]
    risks = evaluate_configurations(data, lambdas, set_score=set_score, k_max=budgets)
    expected = [oracle.outcome(data, t, set_score, k) for t, k in zip(lambdas, budgets)]
    assert_array_equal(risks.n_errors, [outcome.n_errors for outcome in expected])
    for name in ("size", "samples", "excess"):
        wanted = [getattr(outcome, name) for outcome in expected]
        assert_allclose(getattr(risks, name), wanted, rtol=0, atol=1e-12)
