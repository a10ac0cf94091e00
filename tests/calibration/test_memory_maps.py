import gc
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import CalibrationData, _arrays, learn_then_test
from sklearn_clm.calibration._arrays import copy_rows, mapped_array, release_pages

N_ROWS, ROW = 64, 4096  # rows of 32 KiB, several pages each


def resident_bytes(path):
    """How much of a file's memory map is in the memory of this process."""
    resident, inside = 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            if "-" in line.split(" ", 1)[0]:
                inside = line.rstrip().endswith(str(path))
            elif inside and line.startswith("Rss:"):
                resident += int(line.split()[1]) * 1024
    return resident


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "numbers.npy", np.arange(N_ROWS * ROW, dtype=float).reshape(N_ROWS, ROW))
    return tmp_path / "numbers.npy"


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux_only
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_pages_that_were_read_are_let_go(path, mode):
    array = np.load(path, mmap_mode=mode)
    total = array.sum()
    assert resident_bytes(path) >= array.nbytes
    release_pages(array[3:5])  # a view of the map is as good
    assert resident_bytes(path) == 0
    assert array.sum() == total


def test_changes_survive(path):
    for mode in ("r+", "c"):
        array = np.load(path, mmap_mode=mode)
        array[7] = -1.0
        release_pages(array)
        assert np.all(array[7] == -1.0)
    assert np.all(np.load(path)[7] == -1.0)


def test_arrays_in_memory_are_left_alone():
    array = np.arange(3.0)
    release_pages(array)
    assert_array_equal(array, [0.0, 1.0, 2.0])


@pytest.mark.parametrize("at_once", [1, 5, 1024])
def test_rows_are_copied_in_any_order(monkeypatch, path, at_once):
    monkeypatch.setattr(_arrays, "_ROWS_AT_ONCE", at_once)
    array = np.load(path, mmap_mode="r")
    positions = np.array([5, 63, 0, 5, 17, 18, 19, 20, 21, 2, 40])
    rows = copy_rows(array, positions)
    assert not isinstance(rows, np.memmap)
    assert rows.flags.owndata
    assert_array_equal(rows, np.load(path)[positions])
    assert_array_equal(copy_rows(np.load(path), positions), rows)


@linux_only
def test_what_was_copied_is_let_go_as_copying_goes_on(monkeypatch, path):
    monkeypatch.setattr(_arrays, "_ROWS_AT_ONCE", 16)
    released = []

    def release(array):
        before = resident_bytes(path)
        release_pages(array)
        released.append((before > 0, resident_bytes(path)))

    monkeypatch.setattr(_arrays, "release_pages", release)
    copy_rows(np.load(path, mmap_mode="r"), np.arange(N_ROWS))
    assert released == [(True, 0)] * (N_ROWS // 16)


def mapped_data(folder, n=900, k=4):
    rng = np.random.default_rng(0)
    quality = rng.random((n, k))
    np.save(folder / "similarity.npy", rng.random((n, k, k)))
    labels = rng.random((n, k)) < quality
    return [
        CalibrationData.from_arrays(quality, folder / "similarity.npy", labels, mmap=mmap)
        for mmap in (True, False)
    ]


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_large_parts_stay_on_disk_and_calibrate_alike(monkeypatch, tmp_path, n_jobs):
    monkeypatch.setattr(_arrays, "_CHUNK_BYTES", 1024)
    monkeypatch.setattr("sklearn_clm.calibration._engine._sums._WORTH_A_PROCESS", 1)
    mapped, in_memory = mapped_data(tmp_path)
    parts = mapped.split(1 / 3, random_state=0)
    for part, expected in zip(parts, in_memory.split(1 / 3, random_state=0)):
        assert isinstance(part.similarity, np.memmap)
        assert_array_equal(part.similarity, expected.similarity)
    assert len(list(tmp_path.iterdir())) == 3
    found, wanted = (
        learn_then_test(data, 0.5, random_state=0, n_jobs=n_jobs) for data in (mapped, in_memory)
    )
    assert found.lambda_hat == wanted.lambda_hat is not None
    assert_array_equal(found.n_errors, wanted.n_errors)
    del part, parts
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["similarity.npy"]


def test_a_map_in_a_folder_that_is_read_only_is_copied_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(_arrays, "_CHUNK_BYTES", 1024)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    part = mapped_data(tmp_path)[0].take(np.arange(100))
    assert isinstance(part.similarity, np.memmap)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_an_array_is_made_in_its_file(tmp_path):
    array = np.random.default_rng(0).random((12, 3, 3))
    with mapped_array(None, array.shape) as nothing:
        assert nothing is None
    with mapped_array(tmp_path / "array.npy", array.shape) as on_disk:
        assert isinstance(on_disk, np.memmap)
        on_disk[:] = array
        assert not (tmp_path / "array.npy").exists()
    assert_array_equal(np.load(tmp_path / "array.npy"), array)


def test_a_file_is_replaced_once_it_is_filled(tmp_path):
    path = tmp_path / "array.npy"
    np.save(path, np.zeros(3))
    with pytest.raises(ZeroDivisionError), mapped_array(path, (2,)) as on_disk:
        on_disk[0] = 1 // 0
    assert_array_equal(np.load(path), np.zeros(3))
    assert list(tmp_path.iterdir()) == [path]
