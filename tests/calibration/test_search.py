import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import CalibrationData, _search, pareto_frontier
from sklearn_clm.calibration._search import observed_quantiles, threshold_grid
from sklearn_clm.calibration.between import middles_above, middles_below
from tests.calibration.strategies import calibration_data, random_data


def lowest(quality):
    return float(np.min(quality))


@pytest.mark.parametrize("set_score", ["max", "sum", lowest])
@settings(max_examples=60, deadline=None)
@given(data=calibration_data(), n_lambdas=st.integers(1, 6))
def test_thresholds_are_middles_of_gaps_between_infinities(set_score, data, n_lambdas):
    l1, l2, l3 = threshold_grid(data, set_score=set_score, n_lambdas=n_lambdas)
    lower = data.similarity[:, *np.tril_indices(data.k_max, -1)].astype(np.float64)
    middles = middles_above(lower), middles_below(data.quality)
    for thresholds, between in zip((l1, l2), middles):
        assert thresholds[0] == -np.inf
        assert thresholds[-1] == np.inf
        assert np.all(np.diff(thresholds) > 0)
        assert len(thresholds) == 2 + min(n_lambdas, len(np.unique(between)))
        assert np.isin(thresholds[1:-1], between).all()
    assert (l3[0], l3[-1]) == (-np.inf, np.inf)
    assert len(l3) <= n_lambdas + 2
    if set_score == "max":  # quality and set score are one number there
        assert not np.isin(l3[1:-1], data.quality).any()


@pytest.mark.parametrize("k", [1, 2, 7])
def test_counting_set_scores(k):
    data = random_data(9, k)
    l1, l2, l3 = threshold_grid(data, set_score="first_k")
    assert (l1.tolist(), l2.tolist(), l3.tolist()) == ([np.inf], [-np.inf], list(range(1, k + 1)))
    l1, l2, l3 = threshold_grid(data, set_score="first_k_reject")
    assert len(l1) == 2 + min(25, 9 * k * (k - 1) // 2)
    assert (l2.tolist(), l3.tolist()) == ([-np.inf], list(range(1, k + 1)))


def test_a_function_of_the_same_name_does_not_count_draws():
    def first_k(quality):
        return float(quality[-1])

    data = CalibrationData([[0.2, 0.9]], np.zeros((1, 2, 2)), [[False, True]])
    assert_array_equal(
        threshold_grid(data, set_score=first_k)[2], [-np.inf, (0.2 - 0.7 / 2), 0.55, np.inf]
    )


def test_set_scores_are_observed_with_and_without_rejection():
    # eight copies of one draw: under rejection the sum never passes 0.25
    quality, truth = np.full((20, 8), 0.25), np.ones((20, 8))
    data = CalibrationData(quality, np.ones((20, 8, 8)), truth)
    l3 = threshold_grid(data, set_score="sum")[2]
    assert_array_equal(l3[1:-1], 0.25 * np.arange(1, 9) - 0.125)
    data = CalibrationData(quality, np.random.default_rng(0).random((20, 8, 8)), truth)
    assert threshold_grid(data, set_score="sum")[2][-2] == 7.5 * 0.25


def test_quantiles_follow_the_distribution():
    values = np.arange(1_000) ** 2.0
    chosen = observed_quantiles(values, 25)
    assert len(chosen) == 25
    ranks = np.searchsorted(values, chosen)
    assert_array_equal(ranks, np.arange(20, 1_000, 40))
    # the middles of three thirds
    assert_array_equal(observed_quantiles(np.arange(10.0), 3), [1.0, 5.0, 8.0])

    # ties do not use up the places, and infinite or missing values take none
    chosen = observed_quantiles(np.concatenate((np.zeros(10_000), np.linspace(0.1, 1, 50))), 25)
    assert (len(chosen), chosen[0]) == (25, 0.0)
    assert np.all(np.diff(chosen[1:]) < 0.1)
    assert_array_equal(observed_quantiles(np.array([np.nan, np.inf, 1.0, -np.inf]), 5), [1.0])
    assert observed_quantiles(np.array([np.nan]), 5).shape == (0,)


def test_large_data_are_thinned_out(monkeypatch):
    data = random_data(300, 3)
    monkeypatch.setattr(_search, "_MAX_SETS", 90)
    seen = set()

    def smallest(quality):
        seen.update(quality.tolist())
        return float(np.min(quality))

    threshold_grid(data, set_score=smallest)
    # 12 pairs of thresholds, so every 40th prompt gives 90 sets
    assert seen == set(data.quality[::40].ravel().tolist())


cost = st.one_of(st.integers(0, 4).map(float), st.just(np.inf))


@settings(max_examples=200, deadline=None)
@given(points=st.lists(st.tuples(cost, cost), max_size=25))
def test_frontier_is_what_no_point_beats(points):
    frontier = pareto_frontier(np.reshape(points, (-1, 2))).tolist()

    def beaten(i):
        return any(q[0] <= points[i][0] and q[1] <= points[i][1] and q != points[i] for q in points)

    unbeaten = {points[i]: i for i in reversed(range(len(points))) if not beaten(i)}
    # the first of equal points, by ascending first cost
    assert frontier == [unbeaten[point] for point in sorted(unbeaten)]
