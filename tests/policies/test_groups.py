"""Guarantees within groups of prompts."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

from sklearn_clm import (
    ComponentSelector,
    NullCalibrationError,
    NullCalibrationWarning,
)
from sklearn_clm.calibration import learn_then_test
from sklearn_clm.policies import ExitPolicy, Groups, LazyJudging, ThresholdPolicy
from tests.toy import drawn, questions, toy_sampler

N = 300
X, Y = questions(N)
NAMES = [f"group {i % 3}" for i in range(N)]
NEW, _ = questions(30, first=1000)
NEW_NAMES = [f"group {i % 3}" for i in range(1000, 1030)]


def sampler(log=None, **options):
    return toy_sampler(log=log, **{"policy": ThresholdPolicy(n_lambdas=6)} | options)


def group_of(prompt):
    return f"group {int(prompt.split()[-1]) % 3}"


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(X, Y, groups=NAMES)


@pytest.mark.parametrize("guarantee", ["each", "all"])
def test_tests_are_those_of_the_function_of_arrays(fitted, guarantee):
    data = fitted.calibration_data_
    one = sampler(groups=Groups(guarantee=guarantee)).calibrate(data, groups=NAMES)
    assert list(one.groups_) == sorted(set(NAMES))
    # one path, from the prompts that nobody tests
    order = np.random.default_rng(0).permutation(N)  # the split of random_state=0
    tested = np.sort(order[N // 3 :])
    for name, rule in one.groups_.items():
        part = data.take([i for i in tested if NAMES[i] == name])
        delta = 0.05 if guarantee == "each" else 0.05 / 3
        wanted = learn_then_test(part, 0.4, delta, frontier=one.frontier_)
        assert rule.lambda_hat == wanted.lambda_hat
        np.testing.assert_array_equal(rule.result.p_values, wanted.p_values)
        assert rule.result.delta == wanted.delta
    assert len({tuple(rule.result.n_errors) for rule in one.groups_.values()}) == 3


@pytest.mark.parametrize("options", [{}, {"policy": ExitPolicy()}], ids=["thresholds", "exit"])
def test_sets_are_those_of_the_rule_of_their_group(options, tmp_path):
    one = sampler(**options).fit(X, Y, groups=np.array(NAMES))
    sets = one.predict(NEW, groups=NEW_NAMES)
    assert [part.group for part in sets] == NEW_NAMES
    assert sets.guaranteed
    assert sets.to_frame()["group"].tolist() == NEW_NAMES
    assert f"; group {NEW_NAMES[0]!r}" in str(sets[0])
    part = [i for i, name in enumerate(NEW_NAMES) if name == "group 1"]
    alone = one.predict([NEW[i] for i in part], groups=["group 1"] * len(part))
    assert list(alone) == [sets[i] for i in part]
    if options:
        levels = {rule.level for rule in one.groups_.values()}
        assert len(levels) > 1
        assert one.exit_level_ not in levels
    one.save_calibration(tmp_path / "file.json")
    loaded = sampler(**options).load_calibration(tmp_path / "file.json")
    assert loaded.predict(NEW, groups=NEW_NAMES) == sets
    assert pickle.loads(pickle.dumps(one)).predict(NEW, groups=NEW_NAMES) == sets
    assert one.fit_transform(X, Y, groups=NAMES) == one.transform(X, groups=NAMES)


def test_own_data_are_known_again_with_their_groups():
    one = sampler()
    data = one.collect(X, Y, groups=NAMES)
    one.calibrate(sampler().collect(*questions(N, first=5000)))
    assert not hasattr(one, "groups_")
    for own in (data, data.truncate(5)):
        assert list(one.calibrate(own).groups_) == NAMES[:3]
    # a part of them is known by its groups alone
    part = data.take(np.arange(200))
    assert not hasattr(one.calibrate(part), "groups_")
    assert list(one.calibrate(part, groups=np.array(NAMES[:200])).groups_) == NAMES[:3]


def test_a_callable_tells_the_groups(fitted, tmp_path):
    told = sampler(groups=Groups(group_of))
    assert told.fit(X, Y).predict(NEW) == fitted.predict(NEW, groups=NEW_NAMES)
    data = told.calibration_data_
    assert told.calibrate(data).predict(NEW).guaranteed
    with pytest.raises(ValueError, match="groups must"):
        told.predict(NEW, groups=NEW_NAMES)
    with pytest.raises(ValueError, match="groups must"):
        told.calibrate(data.take(np.arange(200)))
    told.save_calibration(tmp_path / "file.json")
    loaded = sampler(groups=Groups(group_of)).load_calibration(tmp_path / "file.json")
    assert loaded.predict(NEW) == told.predict(NEW)
    with pytest.raises(ValueError, match="groups"):
        sampler().load_calibration(tmp_path / "file.json")
    selector = ComponentSelector(told, alpha=0.6, component_score="support").fit(X, Y)
    assert len(selector.predict(NEW)) == len(NEW)


def test_unknown_groups(fitted):
    names = ["group 1", "group 7"]
    with pytest.raises(ValueError, match=r"groups must.*'group 7'"):
        fitted.predict(NEW[:2], groups=names)
    data = fitted.calibration_data_
    pooled = sampler(groups=Groups(unknown="pooled")).calibrate(data, groups=NAMES)
    alone = sampler().calibrate(data)
    sets = pooled.predict(NEW[:2], groups=names)
    assert [one.group for one in sets] == ["group 1", None]
    assert pooled.lambda_hat_ == alone.lambda_hat_
    assert sets[1].responses == alone.predict(NEW[1:2])[0].responses
    both = Groups(unknown="pooled", guarantee="all")
    shared = sampler(groups=both).calibrate(data, groups=NAMES)
    assert shared.result_.delta == shared.groups_["group 0"].result.delta == 0.05 / 4


def test_of_many_small_groups_a_few_are_told_in_full(fitted):
    data, names = fitted.calibration_data_, [f"group {i % 100}" for i in range(N)]
    counted = r"are lacking\. So are 95 more, 100 of 100 in all\."
    with pytest.warns(NullCalibrationWarning, match=counted) as caught:
        sampler().calibrate(data, groups=names)
    assert str(caught[0].message).count("Group 'group ") == 5
    pooled = Groups(by=None, unknown="pooled")
    with pytest.warns(NullCalibrationWarning, match="more, "):
        sampler(groups=pooled, epsilon=0.03).calibrate(data, groups=names)


def test_small_groups_are_null_and_say_what_they_lack(fitted):
    names = ["rare" if i < 9 else "common" for i in range(N)]
    data = fitted.calibration_data_
    lacks = r"Group 'rare' is null: .* lacking"
    with pytest.warns(NullCalibrationWarning, match=lacks):
        one = sampler().calibrate(data, groups=names)
    assert one.groups_["common"].certified
    assert not one.groups_["rare"].certified
    sets = one.predict(NEW[:2], groups=["rare", "common"])
    assert (sets[0].guaranteed, len(sets[0]), sets[1].guaranteed) == (False, 5, True)
    with pytest.raises(NullCalibrationError, match=lacks):
        sampler(on_null="raise").calibrate(data, groups=names)
    with pytest.warns(NullCalibrationWarning, match="is null"):
        none = sampler().calibrate(data.take(np.arange(8)), groups=names[:8])
    assert not none.groups_["rare"].certified
    with pytest.warns(NullCalibrationWarning, match="Group 'common' is null: no exit level is"):
        sampler(policy=ExitPolicy(), epsilon=0.02, delta=0.2).calibrate(data, groups=names)


@pytest.mark.parametrize(
    "policy", [ThresholdPolicy(excess_weight=0.0), ExitPolicy()], ids=["thresholds", "exit"]
)
def test_lazy_judging_certifies_the_same_in_each_group(policy):
    options = {"policy": policy}
    full = sampler(**options).fit(X, Y, groups=NAMES)
    judging = LazyJudging(optimization_judgements=None)
    lazy = sampler(judging=judging, **options).fit(X, Y, groups=NAMES)
    assert lazy.n_judgements_ < full.n_judgements_
    sets = full.predict(NEW, groups=NEW_NAMES)
    assert lazy.predict(NEW, groups=NEW_NAMES) == sets
    assert lazy.fit(X, Y, groups=NAMES).predict(NEW, groups=NEW_NAMES) == sets


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_groups_through_pipelines_and_searches():
    prompts, references, names = X[:120], Y[:120], NAMES[:120]
    with config_context(enable_metadata_routing=True):
        one = (
            sampler(k_max=3, policy=ThresholdPolicy(n_lambdas=3))
            .set_fit_request(groups=True)
            .set_predict_request(groups=True)
        )
        pipeline = make_pipeline(clone(one)).fit(prompts, references, groups=names)
        sets = pipeline.predict(NEW, groups=NEW_NAMES)
        assert [part.group for part in sets] == NEW_NAMES
        one.set_score_request(groups=True)
        search = GridSearchCV(one, {"epsilon": [0.5, 0.6]}, cv=2, error_score="raise")
        search.fit(prompts, references, groups=names)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert set(search.best_estimator_.groups_) == set(names)
        scores = cross_validate(
            one, prompts, references, cv=2, params={"groups": names}, error_score="raise"
        )
        assert np.isfinite(scores["test_score"]).all()
        one.set_transform_request(groups=True)
        alone = ComponentSelector(alpha=0.6, component_score="support")
        for request in (alone.set_fit_request, alone.set_predict_request):
            request(groups=False)
        selecting = make_pipeline(one, alone)
        parts = selecting.fit(prompts, references, groups=names).predict(NEW, groups=NEW_NAMES)
        assert [part.prediction_set.group for part in parts] == NEW_NAMES
    plain = make_pipeline(sampler(k_max=3, policy=ThresholdPolicy(n_lambdas=3))).fit(
        prompts, references, conformalsampler__groups=names
    )
    assert plain.predict(NEW, groups=NEW_NAMES) == sets


def test_groups_where_there_are_none(fitted, tmp_path):
    log = tmp_path / "draws"
    data = fitted.calibration_data_
    alone = sampler().calibrate(data.take(np.arange(200)))
    strange = sampler().calibrate(data, groups=[(name,) for name in NAMES])
    marginal = sampler(groups=Groups(guarantee="all"), policy=ExitPolicy(guarantee="marginal"))
    for call in (
        lambda: sampler(str(log), groups=Groups()).fit(X, Y),
        lambda: fitted.predict(NEW),
        lambda: alone.predict(NEW, groups=NEW_NAMES),
        lambda: marginal.fit(X, Y, groups=NAMES),
        lambda: strange.save_calibration(tmp_path / "file.json"),
    ):
        with pytest.raises(ValueError, match="groups must"):
            call()
    assert drawn(log) == []
    assert not hasattr(alone, "groups_")
