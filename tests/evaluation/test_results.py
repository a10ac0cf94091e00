import dataclasses

import numpy as np
import pytest

from sklearn_clm.evaluation import ComponentTrialResults, PairedDifference, TrialResults
from sklearn_clm.metrics import normalized_auc


def results(n_trials=4):
    """Two methods, five epsilons; method "a" is null at the first, "b" at the first two."""
    epsilons = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    shape = (2, n_trials, 5)
    rng = np.random.default_rng(0)
    null = np.zeros(shape, dtype=bool)
    null[0, :, 0] = True
    null[1, :, :2] = True
    trivial = np.zeros((1, n_trials, 5), dtype=bool)
    trivial[:, 0, 4] = True
    measures = {name: np.where(null, np.nan, rng.random(shape)) for name in ("loss", "excess")}
    measures["size"] = np.where(null, np.nan, 1.0 + 3.0 * rng.random(shape))
    return TrialResults(
        methods=("a", "b"),
        levels=epsilons,
        delta=0.05,
        null=null,
        trivial=trivial,
        **measures,
        draws=2.0 * measures["size"],
        lambdas=np.where(null[..., None], np.nan, [0.5, np.inf, -np.inf]),
        budgets=np.where(null, 0, 8),
        first_1_error=np.full(n_trials, 0.5),
        first_k_error=np.full(n_trials, 0.12),
        k_max=8,
        n_frontier=10,
        n_testing=20,
        n_test=70,
    )


def test_usable_levels_are_achievable_and_not_trivial_in_every_trial():
    r = results()
    assert r.usable(common=False).tolist() == [
        [False, True, True, True, False],
        [False, False, True, True, False],
    ]
    assert r.usable().tolist() == [[False, False, True, True, False]] * 2


def test_auc_is_over_the_usable_levels():
    r = results()
    common = r.auc("size")
    assert common.shape == (2, 4)
    assert common[0, 1] == pytest.approx(r.size[0, 1, 2:4].mean())
    assert common[0, 2] == pytest.approx(float(normalized_auc([0.3, 0.4], r.size[0, 2, 2:4])))


def test_auc_without_a_usable_level_is_nan():
    r = results()
    assert r.why_no_area() is None
    none = dataclasses.replace(r, trivial=np.ones((1, 4, 5), dtype=bool))
    assert np.isnan(none.auc("loss")).all()
    assert np.isnan(none.compare("a", "b", "loss").mean)
    trivial = np.zeros((1, 4, 5), dtype=bool)
    trivial[:, 3, 2:] = True
    reason = dataclasses.replace(r, trivial=trivial).why_no_area()
    assert "every trial" in reason
    assert reason.count("0.3") == 2
    never = dataclasses.replace(r, null=np.ones_like(r.null), trivial=np.zeros_like(trivial))
    assert never.why_no_area().count("nan") == 2


def test_mean_and_std_need_enough_trials():
    r = results()
    null = r.null.copy()
    null[0, 0, 1] = True
    loss = np.where(null, np.nan, r.loss)
    r = dataclasses.replace(r, null=null, loss=loss)
    assert np.isnan(r.mean("loss")[0, :2]).all()
    assert r.mean("loss", min_share=0.5)[0, 1] == pytest.approx(loss[0, 1:, 1].mean())
    assert r.std("loss")[1, 3] == pytest.approx(loss[1, :, 3].std())


def test_compare_pairs_trials():
    r = results()
    at_level = r.compare("a", "b", "draws", level=0.3)
    np.testing.assert_array_equal(at_level.differences, r.draws[0, :, 2] - r.draws[1, :, 2])
    whole = r.compare("a", "b", "draws")
    np.testing.assert_allclose(whole.differences, r.auc("draws")[0] - r.auc("draws")[1])
    low, high = whole.interval
    assert low <= whole.mean <= high
    assert r.compare("b", "a", "draws").mean == pytest.approx(-whole.mean)


def test_interval_holds_the_share_of_trials_it_claims():
    difference = PairedDifference("loss", "a", "b", np.arange(201.0))
    assert difference.interval == pytest.approx((5.0, 195.0))
    assert str(difference) == "loss, a - b: 100 [5, 195] (95 % of 201 trials)"


def test_summary_has_areas_or_differences():
    r = results()
    areas = r.summary()
    assert list(areas.index) == ["a", "b"]
    assert areas.loc["a", ("loss", "mean")] == r.auc("loss")[0].mean()
    assert areas.loc["b", ("draws", "std")] == r.auc("draws")[1].std()
    pair = r.compare("b", "a", "draws")
    assert r.summary("a").loc["b", "draws"].tolist() == [pair.mean, *pair.interval]


def test_to_frame_is_long():
    r = results()
    frame = r.to_frame()
    assert len(frame) == 2 * 4 * 5
    row = frame[(frame.method == "b") & (frame.trial == 3) & (frame.epsilon == 0.4)].iloc[0]
    assert row["size"] == r.size[1, 3, 3] == 8 * row["relative_size"]
    assert row["draws"] == 8 * row["relative_draws"]
    assert row["lambda_quality"] == np.inf
    assert not row["null"]
    assert frame[frame.null]["loss"].isna().all()


@pytest.mark.parametrize("kind", ["sampling", "components"])
def test_round_trip_without_pickle(kind, tmp_path):
    r = results()
    if kind == "components":
        r = ComponentTrialResults(
            ("a", "b"), r.levels, 0.05, r.null, r.null, r.loss, r.size, r.excess, r.draws, 30, 70
        )
    r.save(tmp_path / "trials.npz")
    with np.load(tmp_path / "trials.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file)
    assert [path.name for path in tmp_path.iterdir()] == ["trials.npz"]
    loaded = type(r).load(tmp_path / "trials.npz")
    for field in dataclasses.fields(r):
        np.testing.assert_array_equal(getattr(loaded, field.name), getattr(r, field.name))
        assert type(getattr(loaded, field.name)) is type(getattr(r, field.name))
    assert repr(loaded) == repr(r)


def test_load_refuses_other_files(tmp_path):
    results().save(tmp_path / "trials.npz")
    with pytest.raises(ValueError, match="TrialResults"):
        ComponentTrialResults.load(tmp_path / "trials.npz")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    np.save(tmp_path / "array.npy", np.ones(3))
    for name in ("other.npz", "array.npy"):
        with pytest.raises(ValueError, match=name):
            TrialResults.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        TrialResults.load(tmp_path / "missing.npz")


def test_bad_arguments_are_named():
    r = results()
    with pytest.raises(ValueError, match="measure"):
        r.mean("speed")
    with pytest.raises(ValueError, match="method"):
        r.compare("a", "c", "loss")
    with pytest.raises(ValueError, match=r"level.* 0\.3\."):
        r.compare("a", "b", "loss", level=0.33)
