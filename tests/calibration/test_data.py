import itertools
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import CalibrationData, _arrays
from tests.calibration.strategies import calibration_data


def make(n=8, k=4, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    similarity = rng.random((n, k, k)).astype(dtype)
    return CalibrationData(rng.random((n, k)), similarity, rng.random((n, k)) < 0.5)


def assert_same(a, b):
    for name in ("quality", "similarity", "admissible"):
        first, second = getattr(a, name), getattr(b, name)
        assert first.dtype == second.dtype
        assert_array_equal(first, second)


@settings(max_examples=40, deadline=None)
@given(data=calibration_data())
def test_save_and_load_give_the_same_bits(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("data") / "calibration.npz"
    data.save(path)
    assert_same(CalibrationData.load(path), data)


def test_save_replaces_a_file_only_when_complete(tmp_path, monkeypatch):
    path = tmp_path / "calibration.npz"
    make(seed=1).save(path)

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        make(seed=2).save(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["calibration.npz"]
    assert_same(CalibrationData.load(path), make(seed=1))


def test_load_of_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        CalibrationData.load(tmp_path / "nothing.npz")


class Trap:
    """Makes a directory when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("member", ["format", "quality", "similarity", "admissible"])
def test_load_never_unpickles(tmp_path, member):
    path, sprung = tmp_path / "pickle.npz", tmp_path / "sprung"
    arrays = {
        "format": np.array("sklearn_clm.CalibrationData/1"),
        "quality": np.ones((1, 1)),
        "similarity": np.ones((1, 1, 1)),
        "admissible": np.ones((1, 1)),
    }
    np.savez(path, **{**arrays, member: np.array([Trap(sprung)], dtype=object)})
    with pytest.raises(ValueError, match=r"written by CalibrationData\.save: Object arrays cannot"):
        CalibrationData.load(path)
    assert not sprung.exists()


def test_files_of_arrays_are_never_unpickled(tmp_path):
    path, sprung = tmp_path / "pickle.npy", tmp_path / "sprung"
    np.save(path, np.array([[Trap(sprung)]], dtype=object))
    with pytest.raises(ValueError, match=r"scores: .*is not an intact \.npy file of numbers"):
        CalibrationData.from_arrays(path, np.ones((1, 1, 1)), np.ones((1, 1)))
    assert not sprung.exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "not written in the format"),
        ({"format": np.array("other/7")}, "not written in the format"),
        (
            {
                "format": np.array("other/7"),
                "quality": np.ones((1, 1)),
                "similarity": np.ones((1, 1, 1)),
                "admissible": np.ones((1, 1)),
            },
            r"it was not written in the format sklearn_clm\.CalibrationData/1",
        ),
        (
            {
                "format": np.array("sklearn_clm.CalibrationData/1"),
                "quality": np.array([["good"]]),
                "similarity": np.ones((1, 1, 1)),
                "admissible": np.ones((1, 1)),
            },
            "quality must be an array of numbers",
        ),
        (
            {
                "format": np.array("sklearn_clm.CalibrationData/1"),
                "quality": np.full((1, 1), np.nan),
                "similarity": np.ones((1, 1, 1)),
                "admissible": np.ones((1, 1)),
            },
            "quality must not be NaN",
        ),
    ],
)
def test_load_of_a_foreign_archive(tmp_path, arrays, message):
    path = tmp_path / "foreign.npz"
    if arrays:
        np.savez(path, **arrays)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("notes.txt", "nothing here")
    with pytest.raises(ValueError, match=message):
        CalibrationData.load(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive at all", b"\x93NUMPY\x01\x00"])
def test_load_of_other_bytes(tmp_path, content):
    path = tmp_path / "bytes.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"it is not a \.npz archive"):
        CalibrationData.load(path)


@settings(max_examples=100, deadline=None)
@given(draw=st.data())
def test_damage_raises_a_value_error_or_nothing(tmp_path_factory, draw):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    make(n=3, k=2).save(path)
    content = bytearray(path.read_bytes())
    if draw.draw(st.booleans()):
        content = content[: draw.draw(st.integers(0, len(content) - 1))]
    for _ in range(draw.draw(st.integers(0, 8))):
        if content:
            content[draw.draw(st.integers(0, len(content) - 1))] = draw.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    message = ""
    try:
        CalibrationData.load(path)
    except ValueError as error:
        message = str(error)
    assert message == "" or "not an intact file written by CalibrationData.save" in message


def test_from_arrays_reads_files_and_maps_memory(tmp_path):
    data = make(dtype=np.float32)
    for name, array in (
        ("scores", data.quality),
        ("diversity", data.similarity),
        ("labels", data.admissible.astype(int)),
    ):
        np.save(tmp_path / f"{name}.npy", array)
    paths = [tmp_path / f"{name}.npy" for name in ("scores", "diversity", "labels")]
    assert_same(CalibrationData.from_arrays(*paths), data)
    assert not isinstance(CalibrationData.from_arrays(*paths).similarity, np.memmap)
    mapped = CalibrationData.from_arrays(*paths, mmap=True)
    assert isinstance(mapped.similarity, np.memmap)
    assert not isinstance(mapped.quality, np.memmap)
    assert_same(mapped.take([2, 0]), data.take([2, 0]))
    assert_same(CalibrationData.from_arrays(data.quality, data.similarity, data.admissible), data)


def test_no_similarities_are_zeros():
    with pytest.raises(
        TypeError, match=r"similarity must be .* got None .* np\.zeros\(\(n, K, K\)"
    ):
        CalibrationData.from_arrays([[0.5, 0.1]], None, [[1, 0]])


def test_from_arrays_of_bad_files(tmp_path):
    text, archive = tmp_path / "text.npy", tmp_path / "archive.npz"
    text.write_text("0.1 0.2")
    np.savez(archive, a=np.ones(3))
    data = make()
    with pytest.raises(ValueError, match=r"scores: .*text\.npy' is not an intact \.npy file"):
        CalibrationData.from_arrays(text, data.similarity, data.admissible)
    with pytest.raises(ValueError, match=r"^similarity: .*text\.npy' is not an intact \.npy file"):
        CalibrationData.from_arrays(data.quality, text, data.admissible)
    with pytest.raises(ValueError, match=r"labels: .*archive\.npz' is not an intact"):
        CalibrationData.from_arrays(data.quality, data.similarity, archive)
    with pytest.raises(FileNotFoundError):
        CalibrationData.from_arrays(tmp_path / "none.npy", data.similarity, data.admissible)


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
    again = data.split(fraction, random_state=seed)
    assert_same(parts[0], again[0])


def test_split_takes_every_kind_of_random_state():
    data = make(n=30)
    for state in (np.random.default_rng(0), np.random.RandomState(0), np.random.SeedSequence(0)):
        assert data.split(0.5, state)[0].n_prompts == 15


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
    with pytest.raises(ValueError, match="distinct prompts"):
        data.split(1 / 3, random_state)


def test_prompts_that_differ_are_split_like_rows_without_digests():
    data, known = make(n=30), make(n=30)
    known.prompts = np.random.default_rng(5).integers(2**63, size=30, dtype=np.uint64)
    order = np.random.default_rng(4).permutation(30)
    for each in (data, known):
        first, second = each.split(0.4, 4)
        assert_array_equal(first.quality, data.quality[np.sort(order[:12])])
        assert_array_equal(second.quality, data.quality[np.sort(order[12:])])


@pytest.mark.parametrize("random_state", ["seven", -1, 0.5])
def test_split_refuses_what_gives_no_permutation(random_state):
    wanted = rf"random_state must be a number >= 0, a generator or None, got {random_state!r}\.$"
    with pytest.raises(ValueError, match=wanted):
        make().split(0.5, random_state)


def test_split_is_uniform():
    data = CalibrationData(np.arange(6.0)[:, None], np.zeros((6, 1, 1)), np.ones((6, 1)))
    counts = np.zeros(6)
    for seed in range(2_000):
        counts[data.split(1 / 3, seed)[0].quality[:, 0].astype(int)] += 1
    # each prompt is in the first part with probability 1/3: within 4.5 standard deviations
    assert np.all(np.abs(counts - 2_000 / 3) < 4.5 * np.sqrt(2_000 * 2 / 9))


def test_take_and_truncate():
    data = make(n=5, k=4)
    taken = data.take([4, 0, 0])
    assert_array_equal(taken.quality, data.quality[[4, 0, 0]])
    assert_array_equal(taken.similarity, data.similarity[[4, 0, 0]])
    mask = np.array([True, False, False, True, False])
    assert_array_equal(data.take(mask).admissible, data.admissible[mask])
    short = data.truncate(3)
    assert (short.n_prompts, short.k_max) == (5, 3)
    assert_array_equal(short.similarity, data.similarity[:, :3, :3])


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([], ValueError, "indices must"),
        (np.empty(0, dtype=int), ValueError, "indices must"),
        (np.zeros(8, dtype=bool), ValueError, "indices must"),
        ([[0]], ValueError, "indices must"),
        ([0.5], ValueError, "indices must"),
        ([True, False], IndexError, "size of axis is 8"),
        ([8], IndexError, "out of bounds"),
    ],
)
def test_bad_indices(indices, error, message):
    with pytest.raises(error, match=message):
        make().take(indices)


@pytest.mark.parametrize("k", [0, 5, -1])
def test_bad_truncation(k):
    with pytest.raises(ValueError, match=f"k must lie between 1 and 4, got {k}"):
        make().truncate(k)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, np.nan])
def test_bad_fraction(fraction):
    with pytest.raises(ValueError, match="fraction must lie strictly between 0 and 1"):
        make().split(fraction)


def test_one_prompt_cannot_be_split():
    with pytest.raises(ValueError, match="a split needs at least 2 prompts, got 1"):
        make(n=1).split(0.5)


def test_numbers_are_held_exactly():
    data = CalibrationData(
        [[1, -np.inf], [np.inf, 3]], np.zeros((2, 2, 2), dtype=np.float16), [[1.0, 0.0], [0, 1]]
    )
    assert data.quality.dtype == np.float64
    assert data.similarity.dtype == np.float32
    assert data.admissible.tolist() == [[True, False], [False, True]]
    assert make(dtype=np.float64).similarity.dtype == np.float64
    # single precision is doubled where it is cheap, so that any threshold can be compared
    assert CalibrationData(np.ones((2, 3), dtype=np.float32), *good[1:]).quality.dtype == np.float64


def test_only_the_similarities_to_earlier_draws_are_checked():
    similarity = np.full((2, 3, 3), np.nan)
    similarity[:, *np.tril_indices(3, -1)] = 0.5
    CalibrationData(np.ones((2, 3)), similarity, np.ones((2, 3)))
    similarity[1, 2, 0] = np.nan
    with pytest.raises(ValueError, match="must not be NaN, but is for prompt 1, draws 2 and 0"):
        CalibrationData(np.ones((2, 3)), similarity, np.ones((2, 3)))


@pytest.mark.parametrize("chunk_bytes", [1, 3 * 3 * 8 * 4, 2**20])
def test_a_missing_similarity_is_found_wherever_it_is(monkeypatch, chunk_bytes):
    monkeypatch.setattr(_arrays, "_CHUNK_BYTES", chunk_bytes)
    for i, later, earlier in itertools.product(range(9), range(3), range(3)):
        similarity = np.zeros((9, 3, 3))
        similarity[i, later, earlier] = np.nan
        if later <= earlier:
            CalibrationData(np.ones((9, 3)), similarity, np.ones((9, 3)))
            continue
        with pytest.raises(ValueError, match=f"for prompt {i}, draws {later} and {earlier}"):
            CalibrationData(np.ones((9, 3)), similarity, np.ones((9, 3)))


def test_similarities_are_not_copied():
    for dtype in (np.float32, np.float64):
        similarity = np.zeros((2, 3, 3), dtype=dtype)
        data = CalibrationData(np.ones((2, 3)), similarity, np.ones((2, 3)))
        assert np.shares_memory(data.similarity, similarity)
        assert data.similarity.dtype == dtype
    large = np.full((2, 3, 3), 2**24 + 1)  # an integer that single precision has not
    kept = CalibrationData(good[0], large, good[2]).similarity
    assert kept.dtype == np.float64
    assert np.all(kept == np.float64(2**24 + 1))


good = (np.ones((2, 3)), np.zeros((2, 3, 3)), np.ones((2, 3)))


@pytest.mark.parametrize(
    ("position", "value", "error", "message"),
    [
        (0, [[1.0], [1.0, 2.0]], ValueError, "quality must .* rows of different lengths"),
        (2, [[1], [1, 0]], ValueError, "admissible must .* rows of different lengths"),
        (0, np.ones(3), ValueError, r"quality must have 2 dimensions, got shape \(3,\)"),
        (0, np.ones((0, 3)), ValueError, r"at least one prompt and one draw, got shape \(0, 3\)"),
        (0, [["a", "b", "c"]] * 2, TypeError, "quality must be an array of numbers"),
        (
            0,
            [[1, 2, np.nan]] * 2,
            ValueError,
            "quality must not be NaN, but is for prompt 0, draw 2",
        ),
        (1, np.ones((2, 3)), ValueError, r"similarity must have 3 dimensions, got shape \(2, 3\)"),
        (1, np.ones((2, 3, 2)), ValueError, r"must have shape \(2, 3, 3\) .* got \(2, 3, 2\)"),
        (1, np.full((2, 3, 3), None), TypeError, "similarity must be an array of numbers"),
        (2, np.ones((2, 2)), ValueError, r"admissible must have shape \(2, 3\)"),
        (2, np.full((2, 3), 0.5), ValueError, "must hold booleans or 0 and 1, got .*0.5"),
        (2, np.full((2, 3), np.nan), ValueError, "must hold booleans or 0 and 1, got .*nan"),
        (2, [[1, 0, 0.5], [0.25, 1, 0]], ValueError, "booleans or 0 and 1, got .*0.5"),
        (2, [[1, 0, 1], [0, 2, 3]], ValueError, "booleans or 0 and 1, got .*2"),
        (2, [["yes"] * 3] * 2, TypeError, "admissible must hold booleans or 0 and 1, got dtype"),
    ],
)
def test_bad_arrays(position, value, error, message):
    arrays = list(good)
    arrays[position] = value
    with pytest.raises(error, match=message):
        CalibrationData(*arrays)


def test_a_symlink_is_followed_and_a_pipe_written_to(tmp_path):
    target, link, pipe = (tmp_path / name for name in ("target.npz", "link.npz", "pipe"))
    make(seed=1).save(target)
    link.symlink_to(target)
    make(seed=2).save(link)
    assert link.is_symlink()
    assert_same(CalibrationData.load(target), make(seed=2))
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDWR)
    make(seed=3).save(pipe)
    assert pipe.is_fifo()
    tmp_path.joinpath("copy.npz").write_bytes(os.read(reading, 100_000))
    os.close(reading)
    assert_same(CalibrationData.load(tmp_path / "copy.npz"), make(seed=3))


def test_threads_that_save_to_one_path_leave_one_whole_file(tmp_path):
    path = tmp_path / "calibration.npz"
    data = [make(n=200, seed=seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: data[k % 4].save(path), range(40)))
    loaded = CalibrationData.load(path)
    assert any(np.array_equal(loaded.quality, one.quality) for one in data)
    assert os.listdir(tmp_path) == ["calibration.npz"]


def test_what_is_written_is_on_the_disk_before_it_replaces(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (calls.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), replace(*names)))
    make().save(tmp_path / "calibration.npz")
    assert calls == ["fsync", "replace"]
