"""Thresholds between scores: the same decisions on what was observed, whatever the last digits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import CalibrationData, learn_then_test, search_frontier
from sklearn_clm.calibration._search import threshold_grid
from sklearn_clm.calibration.between import SAME, _room, middles_above, middles_below
from sklearn_clm.calibration.surface import evaluate_configurations
from tests.calibration import oracle

scores = st.lists(
    st.one_of(st.floats(allow_nan=False), st.sampled_from([-1.5, 0.0, 0.1, 0.1 + 1e-17, 1.0])),
    max_size=30,
).map(np.array)


@settings(max_examples=300, deadline=None)
@given(scores=scores)
def test_a_middle_decides_as_a_score_does(scores):
    """Accept q >= v, and q >= the middle below v: the same scores, but for those that are one."""
    finite = np.sort(scores[np.isfinite(scores)])
    middles = middles_below(scores)
    assert middles.shape == finite.shape
    assert np.all(np.diff(middles) >= 0)
    for v, middle in zip(finite, middles):
        assert middle <= v
        with np.errstate(over="ignore"):
            lowest = v - _room(finite, v, SAME)
        one = (finite >= lowest) & (finite <= v)
        assert_array_equal(finite >= middle, (finite >= v) | one)
    assert_array_equal(middles_above(scores), -middles_below(-scores)[::-1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rounding_to_another_precision_crosses_no_middle(dtype):
    rng = np.random.default_rng(0)
    exact = rng.normal(size=400)
    rounded = exact.astype(dtype).astype(np.float64)
    for thresholds in (middles_below(rounded), middles_above(rounded)):
        before = rounded[:, np.newaxis] >= thresholds
        assert_array_equal(exact[:, np.newaxis] >= thresholds, before)


def test_sums_in_half_precision_are_not_cut_through():
    """0.1 + 0.1 + 0.1 is 0.3, and stops where 0.3 does, though not as halves are added."""
    assert 3 * float(np.float16(0.1)) < float(np.float16(0.3))
    rng = np.random.default_rng(0)
    quality = np.where(rng.random((600, 6)) < 0.1, 0.3, 0.1)
    right = rng.random((600, 6)) < 0.4
    exact = CalibrationData(quality, np.zeros((600, 6, 6)), right)
    halves = CalibrationData(quality.astype(np.float16), exact.similarity, right)
    lambdas = search_frontier(halves.take(np.arange(200)), set_score="sum").lambdas
    seen, used = (
        evaluate_configurations(data, lambdas, set_score="sum") for data in (halves, exact)
    )
    assert_array_equal(seen.n_errors, used.n_errors)
    assert_array_equal(seen.size, used.size)
    assert len(np.unique(lambdas[:, 2])) > 3


def test_copies_of_a_score_are_not_cut_through():
    rng = np.random.default_rng(0)
    atoms = np.repeat([-2.0, 0.5, 0.7], 200)
    noisy = atoms * (1 + 1e-9 * rng.normal(size=600))
    assert len(np.unique(noisy)) > 500
    np.testing.assert_allclose(np.unique(middles_below(noisy)), [-3.25, -0.75, 0.6], rtol=1e-8)
    np.testing.assert_allclose(np.unique(middles_above(noisy)), [-0.75, 0.6, 0.8], rtol=1e-8)


@pytest.mark.parametrize("cut", [-np.inf, 0.0])
@pytest.mark.parametrize("others", [[-0.6, 0.7], [0.7], [0.7, -1e38], [-0.6, 0.7, -1e9]], ids=str)
def test_differences_that_are_zero_but_for_rounding_are_not_cut_through(others, cut):
    """A reward less that of the usual answer: 3.3 - 3.3 is what the batch has left of it."""
    rng = np.random.default_rng(0)
    zeros = (3.3 + rng.integers(-6, 7, size=400) * 2.0**-51) - 3.3
    assert len(np.unique(zeros)) > 10
    rest = np.repeat(others, 100)
    scores = np.maximum(np.concatenate((zeros, rest)), cut)
    for in_use in (-6, 0, 6):
        used = np.maximum(np.concatenate((np.full(400, in_use * 2.0**-51), rest)), cut)
        for threshold in np.concatenate((middles_below(scores), middles_above(scores))):
            assert_array_equal(used >= threshold, scores >= threshold)
    # and all others are still told apart
    assert len(np.unique(middles_below(scores))) == len({0.0, *np.maximum(others, cut).tolist()})


def test_small_scores_above_zero_keep_their_thresholds():
    """Likelihoods of long answers beside those of short ones."""
    likelihoods = np.concatenate((10.0 ** -np.arange(12, 40), [0.9]))
    assert len(np.unique(middles_below(likelihoods))) == len(likelihoods)
    with_marks = np.concatenate((np.arange(1, 20) / 10, np.arange(-20, 0) / 10, [-1e38, -1e9]))
    assert len(np.unique(middles_below(with_marks))) == len(with_marks)


def test_dense_scores_keep_their_thresholds():
    """Neighbours of a continuum may be as close as the last digits of one score."""
    values = np.linspace(0.5, 1.0, 2_000_000)
    thresholds = np.unique(middles_below(values)[40_000::80_000])
    np.testing.assert_allclose(thresholds, values[40_000::80_000], rtol=2 * SAME)
    assert len(thresholds) == 25


def noisy_data(n=240, k=5, seed=0):
    """Few distinct scores, as a reward of short answers has, and the same ones, scored anew."""
    rng = np.random.default_rng(seed)
    quality = rng.choice([-0.8, 0.1, 0.3, 0.75], (n, k), p=[0.2, 0.3, 0.3, 0.2])
    similarity = rng.choice([0.0, 0.2, 1.0], (n, k, k))
    admissible = rng.random((n, k)) < 0.4 + 0.5 * (quality > 0.2)

    def scored(noise):
        quality_now = quality * (1 + noise * rng.normal(size=quality.shape))
        similarity_now = similarity * (1 + noise * rng.normal(size=similarity.shape))
        return CalibrationData(quality_now, similarity_now, admissible)

    return scored


@pytest.mark.parametrize("set_score", ["max", "sum", "first_k_reject"])
@pytest.mark.parametrize("noise", [0.0, 1e-16, 1e-8])
def test_sets_of_scores_that_were_computed_anew_are_the_same(set_score, noise):
    scored = noisy_data()
    data, anew = scored(noise), scored(1e-8)
    frontier = search_frontier(data.take(np.arange(80)), set_score=set_score)
    assert len(frontier) > 3
    for m in range(len(frontier)):
        configuration = frontier.configuration(m)
        for i in range(80, 240, 9):
            ours, theirs = (oracle.run(one, i, configuration, set_score) for one in (data, anew))
            assert ours.accepted == theirs.accepted
            assert ours.n_samples == theirs.n_samples
    result = learn_then_test(data, [0.2, 0.3], 0.1, set_score=set_score)
    assert all(one.lambda_hat is not None for one in result)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_arrays_of_lower_precision_give_the_same_sets(dtype):
    rng = np.random.default_rng(1)
    quality, similarity = rng.random((300, 4)), rng.random((300, 4, 4))
    admissible = rng.random((300, 4)) < quality
    exact = CalibrationData(quality, similarity, admissible)
    kept = CalibrationData(quality.astype(dtype), similarity.astype(dtype), admissible)
    grid = threshold_grid(kept, set_score="max")
    for step in range(2, 26, 5):
        configuration = [thresholds[step] for thresholds in grid]
        for i in range(0, 300, 13):
            ours, theirs = (oracle.run(one, i, configuration, "max") for one in (exact, kept))
            assert ours.accepted == theirs.accepted
            assert ours.n_samples == theirs.n_samples
