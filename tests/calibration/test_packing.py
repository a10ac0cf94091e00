import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.calibration._engine import Packing

sizes = {"k": st.integers(1, 200), "n_prompts": st.integers(1, 10**9)}


@settings(max_examples=200, deadline=None)
@given(**sizes)
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
    for errors in (0, 1, m - 1, m):
        for size in (0, 1, m * k - 1, m * k):
            for samples in (m, m * k - 1, m * k):
                excess = m * unit - errors
                packed = np.array(
                    [errors + size * packing.size_unit + samples * packing.samples_unit]
                ) + 1j * np.array([excess])
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
    np.testing.assert_allclose(packing.excess(admissible) / packing.unit, exact, rtol=0, atol=1e-12)
    assert_array_equal(packing.excess(~np.ones((1, 64), dtype=bool)), np.zeros((1, 64)))
