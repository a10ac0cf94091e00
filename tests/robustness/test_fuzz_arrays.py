"""Archives of arrays from anywhere: nothing but our own errors comes out, and no code runs."""

import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sklearn_clm.__main__ import main
from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData
from sklearn_clm.evaluation import run_component_trials, run_trials
from tests.robustness import hostile

quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
rng = np.random.default_rng(0)
DATA = CalibrationData(rng.random((60, 2)), rng.random((60, 2, 2)), rng.random((60, 2)) < 0.8)
COMPONENTS = ComponentCalibrationData.from_arrays(rng.random((60, 2)), rng.random((60, 2)) < 0.8)
THINGS = {
    "calibration data": DATA,
    "component data": COMPONENTS,
    "trials": run_trials(DATA, ["max"], [0.5], n_trials=2, n_lambdas=2, random_state=0),
    "component trials": run_component_trials(
        {"scores": COMPONENTS}, [0.5], n_trials=2, random_state=0
    ),
}


@pytest.fixture(scope="module", params=THINGS, ids=THINGS.keys())
def saved(request, tmp_path_factory):
    thing = THINGS[request.param]
    path = tmp_path_factory.mktemp("saved") / "file.npz"
    thing.save(path)
    return type(thing), path


def load(cls, path):
    """What loads does so whole; what does not says so, and names the file."""
    loaded = hostile.outcome(lambda: cls.load(path), naming=path.name)
    assert loaded is None or isinstance(loaded, cls)
    return loaded


@quick
@given(data=st.data())
def test_damaged_archives(saved, data, tmp_path):
    cls, path = saved
    bad = tmp_path / "bad.npz"
    bad.write_bytes(data.draw(hostile.damaged(path.read_bytes())))
    load(cls, bad)


@pytest.mark.parametrize("forgery", hostile.FORGERIES.values(), ids=hostile.FORGERIES.keys())
def test_forged_members(saved, forgery, tmp_path):
    cls, path = saved
    members = hostile.members_of(path)
    bad = tmp_path / "bad.npz"
    for name in members:
        bad.write_bytes(hostile.npz(**{**members, name: forgery}))
        load(cls, bad)


def test_missing_members(saved, tmp_path):
    cls, path = saved
    members = hostile.members_of(path)
    bad = tmp_path / "bad.npz"
    for name in members:
        bad.write_bytes(hostile.npz(**{n: m for n, m in members.items() if n != name}))
        assert load(cls, bad) is None
    bad.write_bytes(hostile.npz())
    assert load(cls, bad) is None


def test_pickles_are_refused_unread(saved, tmp_path):
    cls, path = saved
    members = hostile.members_of(path)
    marker = tmp_path / "marker"
    mine = hostile.npy(np.array([hostile.Landmine(marker)], dtype=object))
    bad = tmp_path / "bad.npz"
    for name in members:
        bad.write_bytes(hostile.npz(**{**members, name: mine}))
        assert load(cls, bad) is None
    bad.write_bytes(mine)
    assert load(cls, bad) is None
    assert not marker.exists()


@pytest.mark.parametrize("mmap", [False, True])
@quick
@given(data=st.data())
def test_damaged_arrays(mmap, data, tmp_path):
    bad = tmp_path / "similarity.npy"
    intact = hostile.npy(DATA.similarity)
    bad.write_bytes(data.draw(hostile.damaged(intact)))
    hostile.outcome(
        lambda: CalibrationData.from_arrays(DATA.quality, bad, DATA.admissible, mmap=mmap),
        naming="similarity",
    )


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # NumPy's, on its way
@pytest.mark.parametrize("mmap", [False, True])
def test_forged_arrays(mmap, tmp_path):
    bad, marker = tmp_path / "bad.npy", tmp_path / "marker"
    forgeries = {
        **hostile.FORGERIES,
        "pickle": hostile.npy(np.array([hostile.Landmine(marker)], dtype=object)),
        "archive": hostile.npz(quality=DATA.quality),
    }
    for name, forgery in forgeries.items():
        bad.write_bytes(forgery)
        for arrays in (
            (bad, DATA.similarity, DATA.admissible),
            (DATA.quality, bad, DATA.admissible),
            (DATA.quality, DATA.similarity, bad),
        ):
            load = functools.partial(CalibrationData.from_arrays, *arrays, mmap=mmap)
            assert hostile.outcome(load) is None, name
    assert not marker.exists()


@settings(quick, max_examples=25)
@given(data=st.data())
def test_the_command_line_ends_in_one_line(data, tmp_path, capsys):
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    DATA.save(good)
    bad.write_bytes(data.draw(hostile.damaged(good.read_bytes())))
    status = main(
        ["calibrate", "--data", str(bad), "--output", str(tmp_path / "out.json"), "--quiet"]
    )
    errors = capsys.readouterr().err
    assert status in (0, 1, 2)
    assert errors.count("\n") == (status != 0)
