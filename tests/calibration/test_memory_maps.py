import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import _arrays
from sklearn_clm.calibration._arrays import copy_rows, release_pages

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
    monkeypatch.setattr(_arrays, "_ROWS_AT_ONCE", 4)
    released = []

    def release(array):
        before = resident_bytes(path)
        release_pages(array)
        released.append((before > 0, resident_bytes(path)))

    monkeypatch.setattr(_arrays, "release_pages", release)
    copy_rows(np.load(path, mmap_mode="r"), np.arange(N_ROWS))
    assert released == [(True, 0)] * (N_ROWS // 4)
