import dataclasses

import numpy as np
import pytest

from sklearn_clm.evaluation import TrialResults
from sklearn_clm.metrics import normalized_auc


def results(n_trials=4):
    """Two methods, five epsilons; method "a" is null at the first, "b" at the first two."""
    rng = np.random.default_rng(0)
    null, trivial = np.zeros((2, 2, n_trials, 5), dtype=bool)
    null[0, :, 0] = null[1, :, :2] = True
    trivial[:, 0, 4] = True
    names = ("loss", "excess", "size", "draws")
    measures = {name: np.where(null, np.nan, rng.random(null.shape)) for name in names}
    return TrialResults(
        methods=("a", "b"),
        level_name="epsilon",
        levels=np.array([0.1, 0.2, 0.3, 0.4, 0.5]),
        delta=0.05,
        null=null,
        trivial=trivial,
        measures=measures,
        thresholds={"quality": np.where(null, np.nan, np.inf)},
    )


def test_areas_are_over_levels_that_are_achievable_and_not_trivial_in_every_trial():
    r = results()
    assert r.usable.tolist() == [
        [False, True, True, True, False],
        [False, False, True, True, False],
    ]
    areas, size = r.auc("size"), r.measures["size"]
    assert areas.shape == (2, 4)
    assert areas[0, 1] == pytest.approx(size[0, 1, 2:4].mean())
    assert areas[0, 2] == pytest.approx(float(normalized_auc([0.3, 0.4], size[0, 2, 2:4])))


def test_without_a_usable_level_there_is_no_area_but_a_reason():
    r = results()
    assert r.why_no_area() is None
    none = dataclasses.replace(r, trivial=np.ones_like(r.trivial))
    assert np.isnan(none.auc("loss")).all()
    assert np.isnan(none.compare("a", "b", "loss")).all()
    trivial = np.zeros_like(r.trivial)
    trivial[:, 3, 2:] = True
    reason = dataclasses.replace(r, trivial=trivial).why_no_area()
    assert "every trial" in reason
    assert reason.count("0.3") == 2
    never = dataclasses.replace(r, null=np.ones_like(r.null), trivial=np.zeros_like(trivial))
    assert never.why_no_area().count("nan") == 2


def test_means_are_of_levels_where_no_trial_is_null():
    r = results()
    r.null[0, 0, 1] = True
    # a selection that is empty has a loss
    loss = r.measures["loss"] = np.nan_to_num(r.measures["loss"])
    mean, std = r.mean("loss"), r.std("loss")
    assert np.isnan(mean[0, :2]).all()
    assert mean[0, 2] == pytest.approx(loss[0, :, 2].mean())
    assert std[1, 3] == pytest.approx(loss[1, :, 3].std())


def test_comparisons_pair_trials():
    r = results()
    draws = r.measures["draws"]
    at_level = r.compare("a", "b", "draws", level=0.3)
    np.testing.assert_array_equal(at_level, draws[0, :, 2] - draws[1, :, 2])
    whole = r.compare("a", "b", "draws")
    np.testing.assert_allclose(whole, r.auc("draws")[0] - r.auc("draws")[1])
    areas, differences = r.summary(), r.summary("b")
    assert areas.loc["a", ("loss", "mean")] == r.auc("loss")[0].mean()
    assert areas.loc["b", ("draws", "std")] == r.auc("draws")[1].std()
    low, high = np.quantile(whole, [0.025, 0.975])
    assert differences.loc["a", "draws"].tolist() == [whole.mean(), low, high]


def test_the_frame_is_long():
    r = results()
    frame = r.to_frame()
    assert len(frame) == 2 * 4 * 5
    row = frame[(frame.method == "b") & (frame.trial == 3) & (frame.epsilon == 0.4)].iloc[0]
    assert row["size"] == r.measures["size"][1, 3, 3]
    assert row["threshold_quality"] == np.inf
    assert not row["null"]
    assert frame[frame.null]["loss"].isna().all()


def test_bad_arguments_are_named():
    r = results()
    with pytest.raises(ValueError, match="measure"):
        r.mean("speed")
    with pytest.raises(ValueError, match="method"):
        r.compare("a", "c", "loss")
    with pytest.raises(ValueError, match="level"):
        r.compare("a", "b", "loss", level=0.33)
