"""Calibration data: what is checked, carried along, split, written and read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import CalibrationData
from tests.calibration.strategies import random_data


def make(n=8, k=4, **options):
    return random_data(n, k, **options)


def assert_same(a, b):
    for name in ("quality", "similarity", "labels"):
        first, second = getattr(a, name), getattr(b, name)
        assert first.dtype == second.dtype
        assert_array_equal(first, second)


def test_from_arrays_reads_files(tmp_path):
    data = make(n=90)
    paths = [tmp_path / f"{name}.npy" for name in ("scores", "diversity", "labels")]
    for path, array in zip(paths, (data.quality, data.similarity, data.admissible.astype(int))):
        np.save(path, array)
    assert_same(CalibrationData.from_arrays(*paths), data)


@pytest.mark.parametrize("content", [b"", b"0.1 0.2", b"PK", b"\x93NUMPY\x01\x00"])
def test_from_arrays_of_bad_files(tmp_path, content):
    data, bad = make(), tmp_path / "bad"
    bad.write_bytes(content)
    # and no advice to allow a pickle
    with pytest.raises(
        ValueError, match=r"bad' must be an intact \.npy file .*similarity((?!pick).)*$"
    ):
        CalibrationData.from_arrays(data.quality, bad, data.admissible)
    with pytest.raises(ValueError, match=r"bad' is not an intact file((?!pick).)*$"):
        CalibrationData.load(bad)
    with pytest.raises(FileNotFoundError):
        CalibrationData.from_arrays(data.quality, tmp_path / "none.npy", data.admissible)
    with pytest.raises(FileNotFoundError):
        CalibrationData.load(tmp_path / "none.npz")


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 40), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 100))
def test_split_is_a_partition(n, fraction, seed):
    data = make(n=n)
    parts = data.split(fraction, random_state=seed)
    assert sum(part.n_prompts for part in parts) == n
    assert abs(parts[0].n_prompts - fraction * n) <= 1.0
    assert all(part.n_prompts >= 1 for part in parts)
    together = np.concatenate([part.quality for part in parts])
    assert_array_equal(np.sort(together, axis=0), np.sort(data.quality, axis=0))
    assert_same(parts[0], data.split(fraction, random_state=seed)[0])
    for state in (np.random.default_rng(0), np.random.RandomState(0)):
        assert data.split(fraction, state)[0].n_prompts == parts[0].n_prompts
    with pytest.raises(ValueError, match="at least 2 prompts"):
        make(n=1).split(fraction)


def test_split_without_a_seed_comes_from_the_data():
    data, other = make(n=30), make(n=30)
    other.quality[0] += 0.5
    first = data.split(0.5)[0]
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002, the global state has no part in it
        assert_same(data.split(0.5)[0], first)
    assert not np.array_equal(other.split(0.5)[0].quality, first.quality)
    reversed_ = data.take(np.arange(30)[::-1])
    assert set(first.quality[:, 0]) == set(reversed_.split(0.5)[0].quality[:, 0])
    data.prompts = np.random.default_rng(0).integers(2**63, size=30, dtype=np.uint64)
    reversed_ = data.take(np.arange(30)[::-1])
    assert set(data.split(0.5)[0].prompts) == set(reversed_.split(0.5)[0].prompts)
    relabelled = data.with_labels(~data.admissible).split(0.5)[0]
    assert_array_equal(relabelled.prompts, data.split(0.5)[0].prompts)


@pytest.mark.parametrize("random_state", [0, 7, None])
def test_all_rows_of_a_prompt_stand_on_one_side(random_state):
    data = make(n=60)
    data.prompts = np.repeat(np.arange(20, dtype=np.uint64), 3)[
        np.random.default_rng(1).permutation(60)
    ]
    first, second = data.split(1 / 3, random_state)
    assert not np.isin(first.prompts, second.prompts).any()
    assert (first.n_prompts, second.n_prompts) == (21, 39)  # seven whole prompts
    data.prompts = np.zeros(60, dtype=np.uint64)
    with pytest.raises(ValueError, match="indices must"):
        data.split(1 / 3, random_state)


def test_split_is_uniform():
    data = CalibrationData(np.arange(6.0)[:, None], np.zeros((6, 1, 1)), np.ones((6, 1)))
    counts = np.zeros(6)
    for seed in range(2_000):
        counts[data.split(1 / 3, seed)[0].quality[:, 0].astype(int)] += 1
    # each prompt is in the first part with probability 1/3: within 4.5 standard deviations
    assert np.all(np.abs(counts - 2_000 / 3) < 4.5 * np.sqrt(2_000 * 2 / 9))


def test_take_and_truncate():
    data = make(n=5, k=4)
    mask = np.array([True, False, False, True, False])
    for indices in ([4, 0, 0], mask, slice(1, 3)):
        assert_array_equal(data.take(indices).quality, data.quality[indices])
        assert_array_equal(data.take(indices).similarity, data.similarity[indices])
        assert_array_equal(data.take(indices).admissible, data.admissible[indices])
    assert np.shares_memory(data.take(slice(1, 3)).similarity, data.similarity)
    short = data.truncate(3)
    assert (short.n_prompts, short.k_max) == (5, 3)
    assert_array_equal(short.similarity, data.similarity[:, :3, :3])


def test_numbers_are_held_exactly():
    for dtype in (np.float16, np.float32, np.float64, np.int64):
        scores = np.array([[0.1, 0.3], [1.0, 2.0]]).astype(dtype)
        similarity = np.zeros((2, 2, 2), dtype=dtype)
        data = CalibrationData(scores, similarity, np.ones((2, 2)))
        assert data.quality.dtype == np.float64
        assert_array_equal(data.quality, scores)
        assert_array_equal(data.similarity, similarity)
        if dtype is np.float64:  # it is not copied
            assert np.shares_memory(data.similarity, similarity)
    data = CalibrationData([[1, -np.inf], [np.inf, 3]], np.zeros((2, 2, 2)), [[1.0, 0.0], [0, 1]])
    assert data.admissible.tolist() == [[True, False], [False, True]]
    large = np.full((2, 2, 2), 2**24 + 1)  # an integer that single precision has not
    assert np.all(CalibrationData(scores, large, scores > 0).similarity == np.float64(2**24 + 1))


def test_only_similarities_to_earlier_draws_are_checked():
    similarity = np.full((9, 3, 3), np.nan)
    similarity[:, *np.tril_indices(3, -1)] = 0.5
    CalibrationData(np.ones((9, 3)), similarity, np.ones((9, 3)))
    similarity[7, 2, 0] = np.nan
    with pytest.raises(ValueError, match="similarity must"):
        CalibrationData(np.ones((9, 3)), similarity, np.ones((9, 3)))
