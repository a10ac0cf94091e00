"""Groups and weights of prompts where components are selected."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

from sklearn_clm import ComponentSelector, NullCalibrationError, NullCalibrationWarning
from sklearn_clm.calibration import component_learn_then_test
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import CovariateShift, Groups, ThresholdPolicy
from tests.reports import ReportModel, cases
from tests.toy import toy_sampler

N = 120
X, Y = cases(N)
NAMES = [f"ward {i % 3}" for i in range(N)]
NEW, _ = cases(12, first=1000)
NEW_NAMES = [f"ward {i % 3}" for i in range(12)]
WEIGHTS = np.where(np.arange(N) % 2 == 0, 1.5, 0.5)


def ward(prompt):
    return f"ward {int(prompt.split()[-1]) % 3}"


def weight_of(prompt):
    return 0.5 if int(prompt.split()[-1]) % 2 else 1.5


def sampler(log=None, **changes):
    options = {"k_max": 3, "epsilon": 0.5, "policy": ThresholdPolicy(n_lambdas=3)} | changes
    return toy_sampler(ReportModel(log), **options)


def selector(given=None, **changes):
    options = {"alpha": 0.3, "admission": "exact_match"} | changes
    return ComponentSelector(sampler() if given is None else given, **options)


@pytest.fixture(scope="module")
def fitted():
    return selector().fit(X, Y, groups=NAMES)


@pytest.mark.parametrize("guarantee", ["each", "all"])
@pytest.mark.parametrize("unknown", ["error", "pooled"])
def test_each_group_is_tested_on_its_own_prompts(fitted, guarantee, unknown):
    data, groups = fitted.calibration_data_, Groups(guarantee=guarantee, unknown=unknown)
    one = selector(groups=groups).calibrate(data, groups=NAMES)
    level = 0.05 if guarantee == "each" else 0.05 / (3 + (unknown == "pooled"))
    for g in range(3):
        part = data.take(np.flatnonzero(np.arange(N) % 3 == g))
        wanted = component_learn_then_test(part, 0.3, level)
        assert one.groups_[f"ward {g}"] == wanted.gamma_hat
        np.testing.assert_array_equal(
            one.calibration_.rules[f"ward {g}"].rule.result.p_values, wanted.p_values
        )
    pooled = component_learn_then_test(data, 0.3, level if unknown == "pooled" else 0.05)
    assert one.gamma_hat_ == pooled.gamma_hat
    assert len({*one.groups_.values(), one.gamma_hat_}) > 2


def test_components_are_selected_by_the_threshold_of_their_group(fitted, tmp_path):
    sets = fitted.predict(NEW, groups=NEW_NAMES)
    assert [one.group for one in sets] == NEW_NAMES
    assert sets.guaranteed
    assert sets.to_frame()["group"].isin(NEW_NAMES).all()
    assert "group 'ward 0'" in str(sets[0])
    for one in sets:
        assert one.scores.min(initial=np.inf) >= fitted.groups_[one.group]
    part = [i for i, name in enumerate(NEW_NAMES) if name == "ward 1"]
    alone = fitted.predict([NEW[i] for i in part], groups=["ward 1"] * len(part))
    assert list(alone) == [sets[i] for i in part]
    made = fitted.sampler_.predict(NEW)
    assert fitted.predict(made, groups=NEW_NAMES) == fitted.transform(NEW, groups=NEW_NAMES) == sets
    assert fitted.score(NEW, groups=NEW_NAMES) == sets.sizes.mean()
    assert pickle.loads(pickle.dumps(fitted)).predict(NEW, groups=NEW_NAMES) == sets
    again = clone(fitted).fit_transform(X, Y, groups=NAMES)
    assert again == fitted.predict(X, groups=NAMES)
    fitted.save_calibration(tmp_path / "file.json")
    loaded = selector(fitted.sampler_).load_calibration(tmp_path / "file.json")
    assert loaded.predict(NEW, groups=NEW_NAMES) == sets
    with pytest.raises(ValueError, match="groups"):
        selector(groups=Groups(ward)).load_calibration(tmp_path / "file.json")
    text = CalibrationReport.from_estimator(fitted).to_markdown()
    assert "one such claim for each group" in text
    assert f"{fitted.groups_['ward 2']:.4g}" in text


def test_a_callable_tells_the_groups_and_the_sampler_has_its_own(fitted):
    told = selector(groups=Groups(ward)).fit(X, Y)
    assert told.groups_ == fitted.groups_
    new = [f"case {3000 + i}" for i in range(6)]  # 3000 is a multiple of 3
    assert told.predict(new) == fitted.predict(new, groups=NEW_NAMES[:6])
    with pytest.raises(ValueError, match="groups must"):
        told.predict(new, groups=NEW_NAMES[:6])
    both = selector(sampler(groups=Groups(), epsilon=0.6)).fit(X, Y, groups=NAMES)
    assert set(both.sampler_.groups_) == set(both.groups_)
    sets = both.predict(NEW, groups=NEW_NAMES)
    assert [(one.group, one.prediction_set.group) for one in sets] == [
        (name, name) for name in NEW_NAMES
    ]
    # and a selector for all prompts together, after a sampler with groups
    alone = selector(both.sampler_).calibrate(both.calibration_data_)
    sets = alone.predict(NEW, groups=NEW_NAMES)
    assert {one.group for one in sets} == {None}


def test_unknown_and_small_groups(fitted):
    data = fitted.calibration_data_
    with pytest.raises(ValueError, match=r"groups must.*'attic'"):
        fitted.predict(NEW[:1], groups=["attic"])
    pooled = selector(fitted.sampler_, groups=Groups(unknown="pooled"))
    pooled.calibrate(data, groups=NAMES)
    sets = pooled.predict(NEW, groups=["attic"] * 12)
    assert {one.group for one in sets} == {None}
    assert min(one.scores.min(initial=np.inf) for one in sets) >= pooled.gamma_hat_
    names = ["rare" if i < 5 else "common" for i in range(N)]
    lacks = r"Group 'rare' is null: there are 5 .* 4 are lacking"
    one = selector(fitted.sampler_)
    with pytest.warns(NullCalibrationWarning, match=lacks):
        one.calibrate(data, groups=names)
    assert one.groups_["rare"] == np.inf
    assert one.calibration_.rules["rare"].rule.result is None
    rare, common = one.predict(NEW[:2], groups=["rare", "common"])
    assert (rare.guaranteed, len(rare), common.guaranteed) == (False, 0, True)
    with pytest.raises(NullCalibrationError, match=lacks):
        selector(on_null="raise").calibrate(data, groups=names)


def test_lazy_judging_finds_the_threshold_of_each_group(fitted):
    lazy = selector(judging="lazy").fit(X, Y, groups=NAMES)
    assert lazy.groups_ == fitted.groups_
    assert lazy.gamma_hat_ == fitted.gamma_hat_
    assert lazy.n_judgements_ < fitted.n_judgements_


@pytest.mark.parametrize("admission", ["exact_match", lambda reference, component: True])
def test_reports_bound_the_errors_of_groups_that_were_judged_lazily(admission):
    one = selector(judging="lazy", admission=admission).fit(X, Y, groups=NAMES)
    data = one.calibration_data_
    (table,) = (
        part.table
        for part in CalibrationReport.from_estimator(one).sections
        if part.heading == "Groups"
    )
    for g, row in enumerate(table[1:]):
        shown, name = dict(zip(table[0], row, strict=True)), f"ward {g}"
        inside = (data.scores >= one.groups_[name]) & (data.prompt_index % 3 == g)
        fewest, most = (
            len({*data.prompt_index[inside & wrong]})
            for wrong in (data.labels == 0, data.labels != 1)
        )
        assert shown["group"] == name
        assert float(shown["components selected"]) == pytest.approx(inside.sum() / (N / 3), 1e-3)
        if admission == "exact_match":
            assert shown["errors"] == f"{fewest} of {N // 3}"
            assert fewest == most > 0
        else:  # judging ended where too few prompts were left to fail a test
            assert (shown["errors"], shown["95 % interval"]) == (f"at most {most} of {N // 3}", "")
            assert most > fewest == 0


def test_weights_keep_the_same_prompts_for_components():
    shift = CovariateShift(weight_bound=1.5, estimated=True)
    joint = selector(sampler(shift=shift)).fit(X, Y, prompt_weight=WEIGHTS)
    kept = joint.calibration_indices_
    assert set(np.flatnonzero(WEIGHTS == 1.5)) <= set(kept)
    assert 5 < np.sum(WEIGHTS[kept] == 0.5) < 35
    assert joint.shift_ == joint.sampler_.shift_
    assert all(one.claim.approximate for one in joint.predict(NEW))
    assert "weights are estimated" in CalibrationReport.from_estimator(joint).to_markdown()
    # a sampler that comes fitted weights the prompts of the selector as well
    after = selector(joint.sampler_).fit(X, Y, prompt_weight=WEIGHTS)
    assert np.array_equal(after.calibration_indices_, kept)
    assert after.gamma_hat_ == joint.gamma_hat_
    given = joint.sampler_.predict(X)
    assert selector(joint.sampler_).fit(given, Y, prompt_weight=WEIGHTS).gamma_hat_ == (
        joint.gamma_hat_
    )
    told = sampler(shift=CovariateShift(weight_of, weight_bound=1.5)).fit(*cases(N, first=500))
    other = selector(told).fit(X, Y)
    assert np.array_equal(other.calibration_indices_, kept)
    assert (other.shift_.n_offered, other.shift_.n_kept) == (N, len(kept))


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_groups_and_weights_through_pipelines_and_searches():
    with config_context(enable_metadata_routing=True):
        one = selector(alpha=0.5).set_fit_request(groups=True).set_score_request(groups=True)
        few, few_y, names = X[:40], Y[:40], NAMES[:40]
        search = GridSearchCV(one, {"alpha": [0.6]}, cv=2, error_score="raise")
        search.fit(few, few_y, groups=names)
        assert set(search.best_estimator_.groups_) == set(names)
        scores = cross_validate(one, few, few_y, cv=2, params={"groups": names})
        assert np.isfinite(scores["test_score"]).all()
        shift = CovariateShift(weight_bound=1.5)
        pipeline = make_pipeline(
            sampler(shift=shift).set_fit_request(prompt_weight=True, groups=False),
            ComponentSelector(admission="exact_match")
            .set_fit_request(groups=True, prompt_weight=False)
            .set_predict_request(groups=True),
        )
        pipeline[0].set_transform_request(groups=False)
        pipeline.fit(X, Y, groups=NAMES, prompt_weight=WEIGHTS)
        sets = pipeline.predict(NEW, groups=NEW_NAMES)
        assert [part.group for part in sets] == NEW_NAMES
    joint = selector(sampler(shift=shift)).fit(X, Y, groups=NAMES, prompt_weight=WEIGHTS)
    assert joint.groups_ == pipeline[-1].groups_
    assert joint.predict(NEW, groups=NEW_NAMES) == sets


def test_groups_and_weights_where_there_are_none(fitted):
    alone = selector(fitted.sampler_).calibrate(fitted.calibration_data_.take(np.arange(60)))
    for call in (
        lambda: selector(groups=Groups()).fit(X, Y),
        lambda: fitted.predict(NEW),
        lambda: alone.predict(NEW, groups=NEW_NAMES),
    ):
        with pytest.raises(ValueError, match="groups must"):
            call()
    assert not hasattr(alone, "groups_")
    with pytest.raises(ValueError, match="shift must"):
        selector().fit(X, Y, prompt_weight=WEIGHTS)
    shifted = sampler(shift=CovariateShift(weight_bound=1.5))
    sets = shifted.fit_transform(X, Y, prompt_weight=WEIGHTS)
    for of, given in ((fitted.sampler_, X), (None, sets)):
        with pytest.raises(ValueError, match="prompt_weight must"):
            ComponentSelector(of).fit(given, Y, prompt_weight=WEIGHTS)
