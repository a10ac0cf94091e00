"""The surface equals the sequential rule, in whatever way it is computed."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_clm.calibration import _engine, risk_surface
from sklearn_clm.calibration._engine import Packing
from sklearn_clm.calibration._search import threshold_grid
from sklearn_clm.calibration._set_scores import SetScore
from sklearn_clm.calibration._surface import evaluate_configurations
from tests.calibration import oracle
from tests.calibration.strategies import MEASURES, calibration_data, random_data, thresholds


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


# 8, 16, 32 and 64 draws fill a word; 28 and 60 leave just the 4 bits that 15 pairs take; sizes are
# counted in the smallest integers that hold twice as much
@pytest.mark.parametrize("k_max", [1, 8, 9, 16, 17, 28, 29, 32, 33, 60, 61, 63, 64, 65, 127, 128])
@pytest.mark.parametrize("set_score", ["first_k", "first_k_reject", "sum", largest_times_size])
def test_every_width_of_the_bit_sets(k_max, set_score):
    data = random_data(3, k_max, seed=k_max, share=2 / k_max)
    data.similarity **= 4
    l3 = [0.5, 3.0, np.inf]
    if set_score in ("first_k", "first_k_reject"):
        l3 = [1.0, 3.0, k_max / 2, k_max, np.inf]
    grid = [-np.inf, 0.1, 0.5, 0.9, np.inf], [-np.inf, 0.2, 0.6], l3
    assert_surface_equals_oracle(data, *grid, set_score)


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


def assert_same_bits(first, second):
    for name in MEASURES:
        assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("k", [6, 40])
@pytest.mark.parametrize("set_score", ["sum", largest_times_size])
def test_result_does_not_depend_on_blocks(monkeypatch, k, set_score):
    data = simulate(250, k)
    grid = threshold_grid(data, set_score=set_score, n_lambdas=6)
    one = risk_surface(data, *grid, set_score=set_score)
    monkeypatch.setattr(_engine, "_BLOCK_PROMPTS", (7, 7))
    assert_same_bits(one, risk_surface(data, *grid, set_score=set_score))


def test_more_prompts_than_one_sum_can_hold():
    k, n = 40, 2_500
    assert n > Packing(k, n).max_prompts
    data = simulate(n, k)
    grid = ([0.9, np.inf], [0.2], [5.0, 15.0])
    whole, *parts = (
        risk_surface(data.take(slice(first, last)), *grid, set_score="sum")
        for first, last in [(0, n), *((start, start + 500) for start in range(0, n, 500))]
    )
    assert_array_equal(whole.n_errors, sum(part.n_errors for part in parts))
    for name in ("loss", "size", "samples", "excess"):
        mean = np.mean([getattr(part, name) for part in parts], axis=0)
        assert_allclose(getattr(whole, name), mean, rtol=1e-12)


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


@settings(max_examples=200, deadline=None)
@given(k=st.integers(1, 200), n_prompts=st.integers(1, 10**9))
def test_totals_fit_into_the_types_that_hold_them(k, n_prompts):
    packing = Packing(k, n_prompts)
    m = packing.max_prompts
    assert m >= 1
    # the largest sum of a batch, in float64: errors, size and samples in one, excess in another
    largest = m + m * k * int(packing.size_unit) + m * k * int(packing.samples_unit)
    assert largest <= 2**53
    assert m * packing.unit <= 2**53
    # the grand total, in int64
    assert n_prompts * packing.unit < 2**63


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 8, 20, 31, 64, 130])
def test_the_fullest_batch_comes_out_as_it_went_in(k):
    packing = Packing(k, 10**6)
    m, unit = packing.max_prompts, packing.unit
    sums = itertools.product((0, 1, m - 1, m), (0, 1, m * k - 1, m * k), (m, m * k - 1, m * k))
    for errors, size, samples in sums:
        excess = m * unit - errors
        counts = errors + size * packing.size_unit + samples * packing.samples_unit
        packed = np.array([complex(counts, excess)])
        assert packing.unpack(packed)[:, 0].tolist() == [errors, size, samples, excess]


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


def test_many_draws_are_rounded_to_a_fine_unit():
    packing = Packing(64, 1_000)
    admissible = np.eye(64, dtype=bool)
    stop = np.arange(1, 65)
    exact = np.maximum(stop - stop[:, np.newaxis], 0) / stop
    assert_allclose(packing.excess(admissible) / packing.unit, exact, rtol=0, atol=1e-12)
    assert_array_equal(packing.excess(~np.ones((1, 64), dtype=bool)), np.zeros((1, 64)))
