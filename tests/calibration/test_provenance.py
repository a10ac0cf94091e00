import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData, Provenance

KNOWN = Provenance(
    generator="g",
    seed=2**70,
    quality="likelihood",
    similarity="rouge_l",
    admission="exact_match",
    splitter="sentence",
    component_score="span",
    k_max=4,
)


def draws(provenance=None):
    rng = np.random.default_rng(0)
    return CalibrationData(rng.random((9, 4)), rng.random((9, 4, 4)), np.ones((9, 4)), provenance)


def components(provenance=None):
    scores = np.array([0.1, 0.2, 0.3])
    return ComponentCalibrationData(scores, np.ones(3, dtype=bool), np.array([0, 1, 3]), provenance)


def test_draws_carry_their_provenance(tmp_path):
    data = draws(KNOWN)
    assert data.provenance == KNOWN
    for part in (data.take([2, 0]), data.rows(slice(1, 3)), *data.split(0.5, 0)):
        assert part.provenance == KNOWN
    assert data.truncate(3).provenance == replace(KNOWN, k_max=3)
    data.save(tmp_path / "data.npz")
    assert CalibrationData.load(tmp_path / "data.npz").provenance == KNOWN
    arrays = (data.quality, data.similarity, data.admissible)
    assert CalibrationData.from_arrays(*arrays, provenance=KNOWN).provenance == KNOWN


def test_components_carry_their_provenance(tmp_path):
    data = components(KNOWN)
    assert data.provenance == KNOWN
    assert data.take([1]).provenance == KNOWN
    data.save(tmp_path / "data.npz")
    assert ComponentCalibrationData.load(tmp_path / "data.npz").provenance == KNOWN
    ragged = ComponentCalibrationData.from_arrays([[0.5], []], [[1], []], provenance=KNOWN)
    assert ragged.provenance == KNOWN


def test_bare_arrays_are_of_unknown_provenance():
    missing = ("generator", "seed", "quality", "similarity", "admission")
    assert draws().provenance == Provenance(k_max=4)
    assert draws().provenance.unknown == missing
    assert components().provenance.unknown == (*missing, "k_max")
    assert KNOWN.unknown == ()


@pytest.mark.parametrize("make", [draws, components])
def test_old_files_load_with_unknown_provenance(tmp_path, make):
    data = make()
    data.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as archive:
        members = {name: archive[name] for name in archive.files if name != "provenance"}
    members["format"] = np.array(f"sklearn_clm.{type(data).__name__}/1")
    np.savez(tmp_path / "old.npz", **members)
    loaded = type(data).load(tmp_path / "old.npz")
    assert loaded.provenance == data.provenance
    assert loaded.provenance.generator is None


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "[]",
        '{"generator": 3}',
        '{"seed": "0"}',
        '{"seed": true}',
        '{"k_max": 0}',
        '{"k_max": 5}',
        '{"judge": "me"}',
        None,
    ],
)
def test_a_damaged_provenance_is_refused(tmp_path, text):
    draws().save(tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz") as archive:
        members = {name: archive[name] for name in archive.files if name != "provenance"}
    if text is not None:
        members["provenance"] = np.array(text)
    np.savez(tmp_path / "damaged.npz", **members)
    with pytest.raises(ValueError, match=r"not an intact file .*provenance"):
        CalibrationData.load(tmp_path / "damaged.npz")


def test_differences_name_fields_known_in_both():
    assert KNOWN.differences(KNOWN) == ()
    assert KNOWN.differences(Provenance()) == Provenance().differences(KNOWN) == ()
    other = replace(KNOWN, seed=1, admission=None, k_max=5)
    assert KNOWN.differences(other) == other.differences(KNOWN) == ("seed", "k_max")


def test_files_that_name_a_precision_load(tmp_path):
    data = draws(KNOWN)
    data.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as archive:
        members = dict(archive)
    known = json.loads(str(members["provenance"])) | {"precision": "float32"}
    np.savez(tmp_path / "old.npz", **members | {"provenance": np.array(json.dumps(known))})
    assert CalibrationData.load(tmp_path / "old.npz").provenance == KNOWN


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_scores_are_the_numbers_that_were_given(dtype):
    scores = np.array([[0.1, 0.3], [1.0, 2.0]]).astype(dtype)
    data = CalibrationData(scores, np.zeros((2, 2, 2)), np.ones((2, 2)))
    assert data.quality.dtype == np.float64
    assert_array_equal(data.quality, scores)


def test_bad_provenance():
    with pytest.raises(TypeError, match="provenance must be a Provenance or None, got str"):
        draws("float64")
    with pytest.raises(ValueError, match=r"k_max must be the number of draws .* 4, got 5 instead"):
        draws(Provenance(k_max=5))
    with pytest.raises(TypeError, match="generator must be a str or None, got 3 instead"):
        Provenance(generator=3)


def test_provenance_is_immutable():
    with pytest.raises(AttributeError):
        KNOWN.seed = 1  # type: ignore[misc]
    assert_array_equal(draws(KNOWN).take([0]).quality, draws().take([0]).quality)
