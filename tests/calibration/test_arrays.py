"""Arrays in files, with what they were collected with."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData, Provenance
from tests.calibration.strategies import calibration_data, random_data

PARTS = {"quality": "likelihood", "similarity": "rouge_l", "admission": "exact_match"}


PARTS |= {"splitter": "sentence", "component_score": "span"}


KNOWN = Provenance(generator="g", seed=2**70, k_max=4, **PARTS)


def make(n=8, k=4, **options):
    return random_data(n, k, **options)


def components(provenance=None):
    offsets = np.array([0, 1, 3])
    return ComponentCalibrationData([0.1, 0.2, 0.3], np.ones(3), offsets, provenance)


def assert_same(a, b):
    for name in ("quality", "similarity", "labels"):
        first, second = getattr(a, name), getattr(b, name)
        assert first.dtype == second.dtype
        assert_array_equal(first, second)


@settings(max_examples=40, deadline=None)
@given(data=calibration_data())
def test_save_and_load_give_the_same_bits(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("data") / "calibration.npz"
    data.save(path)
    assert_same(CalibrationData.load(path), data)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": np.array("other/7")},
        {"format": None},
        {"quality": np.array([["good"]])},
        {"quality": np.full((8, 4), np.nan)},
        {"provenance": None},
        {"admissible": np.ones((8, 4), dtype=bool)},
        {"digest": None},
        *({"provenance": np.array(text)} for text in ("nothing", "[]", '{"judge": "me"}')),
    ],
)
def test_load_of_a_foreign_archive(tmp_path, changes):
    path = tmp_path / "foreign.npz"
    make().save(path)
    with np.load(path) as archive:
        members = {**archive, **changes}
    np.savez(path, **{name: one for name, one in members.items() if one is not None})
    for kind in (CalibrationData, ComponentCalibrationData):
        with pytest.raises(ValueError, match=rf"written by {kind.__name__}\.save: "):
            kind.load(path)


@pytest.mark.parametrize("make_data", [lambda known: make(provenance=known), components])
def test_provenance_is_carried_along(tmp_path, make_data):
    data = make_data(KNOWN)
    data.save(tmp_path / "data.npz")
    for one in (data, data.take([1]), type(data).load(tmp_path / "data.npz")):
        assert one.provenance == KNOWN
    assert data.with_labels(data.labels).provenance == replace(KNOWN, admission=None)


def test_what_another_version_did_not_know_either_keeps_no_data_from_being_read(tmp_path):
    data = make(provenance=replace(KNOWN))
    vars(data.provenance)["machine"] = None
    data.save(tmp_path / "data.npz")
    assert CalibrationData.load(tmp_path / "data.npz").provenance == KNOWN


def test_provenance_of_parts_and_of_bare_arrays():
    data = make(provenance=KNOWN)
    for part in (data.take(slice(1, 3)), *data.split(0.5, 0)):
        assert part.provenance == KNOWN
    assert data.truncate(3).provenance == replace(KNOWN, k_max=3)
    arrays = (data.quality, data.similarity, data.admissible)
    assert CalibrationData.from_arrays(*arrays, provenance=KNOWN).provenance == KNOWN
    ragged = ComponentCalibrationData.from_arrays([[0.5], []], [[1], []], provenance=KNOWN)
    assert ragged.provenance == KNOWN
    missing = ("generator", "seed", "quality", "similarity", "admission")
    assert make().provenance == Provenance(k_max=4)
    assert make().provenance.unknown == missing
    assert components().provenance.unknown == (*missing, "k_max")
    assert KNOWN.unknown == ()
    assert make(provenance=Provenance(k_max=5)).provenance.k_max == 4  # the arrays say it

    # what differs is known in both
    assert KNOWN.differences(KNOWN) == ()
    assert KNOWN.differences(Provenance()) == Provenance().differences(KNOWN) == ()
    other = replace(KNOWN, seed=1, admission=None, k_max=5)
    assert KNOWN.differences(other) == other.differences(KNOWN) == ("seed", "k_max")
