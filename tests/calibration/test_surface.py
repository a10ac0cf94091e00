"""The surface equals the sequential rule, in whatever way it is computed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_clm.calibration import risk_surface
from sklearn_clm.calibration._engine import Packing
from sklearn_clm.calibration.set_scores import SetScore
from sklearn_clm.calibration.surface import evaluate_configurations
from tests.calibration import oracle
from tests.calibration.strategies import calibration_data, random_data, thresholds


def last_member(quality):
    return float(quality[-1])


def sometimes_nan(quality, n_samples):
    return np.nan if len(quality) % 2 else float(np.min(quality))


SOMETIMES_NAN = SetScore("sometimes_nan", sometimes_nan)


def largest_times_size(quality, accepted):
    """Not monotone where qualities are negative, and free of rounding that depends on the form."""
    with np.errstate(invalid="ignore"):
        return np.max(np.where(accepted, quality, -np.inf), axis=1) * accepted.sum(axis=1)


SET_SCORES = {name: name for name in ("first_k", "first_k_reject", "max", "sum")}


SET_SCORES |= {"callable": last_member, "NaN": SOMETIMES_NAN, "vectorised": largest_times_size}


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


def simulate(n, k):
    return random_data(n, k, share=0.3)


@pytest.mark.parametrize("set_score", ["max", SOMETIMES_NAN])
def test_many_thresholds_that_are_observed_values(set_score):
    data = simulate(4, 4)
    other = np.linspace(-0.1, 1.1, 300)
    observed = np.unique(np.concatenate((data.quality.ravel(), other)))
    similar = np.unique(np.concatenate((data.similarity.ravel(), other)))
    for grid in (([0.6], [0.2], observed), ([0.6], observed, [0.5]), (similar, [0.2], [0.5])):
        assert_surface_equals_oracle(data, *grid, set_score)


def test_order_and_duplicates_of_thresholds_are_kept():
    data = simulate(30, 4)
    l1, l2, l3 = [0.9, 0.1, 0.9], [0.5, 0.0, 0.5], [1.0, 0.2, 1.0, -np.inf]
    assert_surface_equals_oracle(data, l1, l2, l3, "sum")


def test_a_plain_callable_sees_each_accepted_prefix_of_a_prompt_once():
    calls = []

    def smallest(quality):
        calls.append(tuple(quality))
        return float(np.min(quality))

    data = simulate(20, 6)
    risk_surface(data, [0.2, 0.5, 0.8], [0.1, 0.4, 0.7], [0.3, 0.6], set_score=smallest)
    assert len(calls) == len(set(calls))


@settings(max_examples=50, deadline=None)
@given(k=st.integers(1, 28), seed=st.integers(0, 100))
def test_excess_is_the_share_of_draws_after_the_first_admissible_one(k, seed):
    rng = np.random.default_rng(seed)
    admissible = rng.random((7, k)) < rng.random()
    packing = Packing(k, 10**6)
    excess = packing.excess(admissible)
    assert packing.unit % math.lcm(*range(1, k + 1)) == 0
    for row, units in zip(admissible.tolist(), excess.tolist()):
        first = row.index(True) + 1 if any(row) else k
        late = [max(0, stop - first) * packing.unit // stop for stop in range(1, k + 1)]
        assert units == late
