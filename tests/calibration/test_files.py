"""Files are written at once or not at all."""

import os

import numpy as np
import pytest
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


def test_save_replaces_a_file_only_when_complete(tmp_path, monkeypatch):
    path, calls = tmp_path / "calibration.npz", []
    fsync, replace_ = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (calls.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), replace_(*names)))
    make(seed=1).save(path)
    assert calls == ["fsync", "replace"]  # on the disk before it replaces

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        make(seed=2).save(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["calibration.npz"]
    assert_same(CalibrationData.load(path), make(seed=1))


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
