"""The engine: words of bits, blocks and sums, at the edges of what they hold."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_clm.calibration import _engine, risk_surface
from sklearn_clm.calibration._engine import Packing
from sklearn_clm.calibration._search import threshold_grid
from tests.calibration import oracle
from tests.calibration.strategies import MEASURES, random_data


def largest_times_size(quality, accepted):
    """Not monotone where qualities are negative, and free of rounding that depends on the form."""
    with np.errstate(invalid="ignore"):
        return np.max(np.where(accepted, quality, -np.inf), axis=1) * accepted.sum(axis=1)


def assert_surface_equals_oracle(data, l1, l2, l3, set_score, **options):
    surface = risk_surface(data, l1, l2, l3, set_score=set_score, **options)
    expected = oracle.surface(data, l1, l2, l3, set_score)
    assert_array_equal(surface.n_errors, expected.n_errors)
    assert_array_equal(surface.loss, expected.n_errors / data.n_prompts)
    for name in ("size", "samples", "excess"):
        assert_allclose(getattr(surface, name), getattr(expected, name), rtol=0, atol=1e-12)


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


def test_many_draws_are_rounded_to_a_fine_unit():
    packing = Packing(64, 1_000)
    admissible = np.eye(64, dtype=bool)
    stop = np.arange(1, 65)
    exact = np.maximum(stop - stop[:, np.newaxis], 0) / stop
    assert_allclose(packing.excess(admissible) / packing.unit, exact, rtol=0, atol=1e-12)
    assert_array_equal(packing.excess(~np.ones((1, 64), dtype=bool)), np.zeros((1, 64)))
