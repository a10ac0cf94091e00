"""Guarantees within groups of prompts, of sets and of components."""

import functools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

from sklearn_clm import ComponentSelector, NullCalibrationError, NullCalibrationWarning
from sklearn_clm.calibration import component_learn_then_test, learn_then_test
from sklearn_clm.calibration.data import split_of
from sklearn_clm.policies import CovariateShift, ExitPolicy, Groups, LazyJudging, ThresholdPolicy
from tests.reports import ReportModel, cases
from tests.toy import questions, toy_sampler

N = 300
NAMES = [f"ward {i % 3}" for i in range(N)]
FIRST_NEW = 999  # a multiple of 3
EXIT = {"policy": ExitPolicy()}


def ward(prompt):
    return f"ward {int(prompt.split()[-1]) % 3}"


def sampler(log=None, **options):
    return toy_sampler(log=log, **{"policy": ThresholdPolicy(n_lambdas=6)} | options)


def selector(given=None, **options):
    few = {"k_max": 3, "epsilon": 0.5, "policy": ThresholdPolicy(n_lambdas=3)}
    given = toy_sampler(ReportModel(), **few) if given is None else given
    return ComponentSelector(given, **{"alpha": 0.3, "admission": "exact_match"} | options)


@functools.cache
def kind_of(name):
    """How an estimator is made, its data, and one that is fitted with groups."""
    of_sets = name != "selector"
    make = {"selector": selector, "exit": functools.partial(sampler, **EXIT)}.get(name, sampler)
    X, Y = (questions if of_sets else cases)(N)
    new, _ = (questions if of_sets else cases)(30, first=FIRST_NEW)
    fitted = make().fit(X, Y, groups=np.array(NAMES))
    # the draws of a selector's sampler are those of the fitted one
    again = make if of_sets else functools.partial(selector, fitted.sampler_)
    return SimpleNamespace(make=make, again=again, X=X, Y=Y, new=new, fitted=fitted)


@pytest.fixture(params=["sampler", "selector"])
def kind(request):
    return kind_of(request.param)


@pytest.mark.parametrize("guarantee", ["each", "all"])
def test_tests_are_those_of_the_function_of_arrays(guarantee):
    data = kind_of("sampler").fitted.calibration_data_
    one = sampler(groups=Groups(guarantee=guarantee)).calibrate(data, groups=NAMES)
    assert list(one.groups_) == sorted(set(NAMES))
    # one path, from the prompts that nobody tests
    _, tested = split_of(data, 1 / 3, 0)
    for name, rule in one.groups_.items():
        part = data.take([i for i in tested if NAMES[i] == name])
        delta = 0.05 if guarantee == "each" else 0.05 / 3
        wanted = learn_then_test(part, 0.4, delta, frontier=one.frontier_)
        assert rule.lambda_hat == wanted.lambda_hat
        np.testing.assert_array_equal(rule.outcome.tests.p_values, wanted.p_values)
        assert rule.outcome.tests.delta == wanted.delta
    assert len({tuple(rule.outcome.tests.n_errors) for rule in one.groups_.values()}) == 3


@pytest.mark.parametrize("guarantee", ["each", "all"])
def test_thresholds_of_components_are_those_of_the_function_of_arrays(guarantee):
    known = kind_of("selector")
    data, groups = known.fitted.calibration_data_, Groups(guarantee=guarantee)
    one = known.again(groups=groups).calibrate(data, groups=NAMES)
    level = 0.05 if guarantee == "each" else 0.05 / 3
    for g in range(3):
        part = data.take(np.flatnonzero(np.arange(N) % 3 == g))
        wanted = component_learn_then_test(part, 0.3, level)
        assert one.groups_[f"ward {g}"] == wanted.gamma_hat
        found = one.calibration_.rules[f"ward {g}"].outcome.tests
        np.testing.assert_array_equal(found.p_values, wanted.p_values)
    pooled = component_learn_then_test(data, 0.3, 0.05)
    assert one.gamma_hat_ == pooled.gamma_hat
    assert len({*one.groups_.values(), one.gamma_hat_}) > 2


@pytest.mark.parametrize("name", ["sampler", "exit", "selector"])
def test_what_is_predicted_is_by_the_rule_of_the_group(name, tmp_path):
    known = kind_of(name)
    one, new, names = known.fitted, known.new, NAMES[:30]
    sets = one.predict(new, groups=names)
    assert [part.group for part in sets] == names
    assert sets.guaranteed
    assert sets.to_frame()["group"].isin(names).all()
    assert "group 'ward 0'" in str(sets[0])
    part = [i for i, name in enumerate(names) if name == "ward 1"]
    alone = one.predict([new[i] for i in part], groups=["ward 1"] * len(part))
    assert list(alone) == [sets[i] for i in part]
    one.save_calibration(tmp_path / "file.json")
    loaded = known.again().load_calibration(tmp_path / "file.json")
    for other in (loaded, pickle.loads(pickle.dumps(one))):
        assert other.predict(new, groups=names) == sets
    with pytest.raises(ValueError, match="groups"):
        known.again(groups=Groups(ward)).load_calibration(tmp_path / "file.json")
    again = clone(one).fit_transform(known.X, known.Y, groups=NAMES)
    assert again == one.transform(known.X, groups=NAMES)
    if name == "selector":
        assert all(each.scores.min(initial=np.inf) >= one.groups_[each.group] for each in sets)
        assert one.predict(one.sampler_.predict(new), groups=names) == sets
        assert one.score(new, groups=names) == sets.sizes.mean()
    if name == "exit":
        levels = {rule.level for rule in one.groups_.values()}
        assert len(levels) > 1


def test_own_data_are_known_again_with_their_groups():
    one, (X, Y) = sampler(), questions(N)
    data = one.collect(X, Y, groups=NAMES)
    one.calibrate(sampler().collect(*questions(N, first=5000)))
    assert not hasattr(one, "groups_")
    for own in (data, data.truncate(5)):
        assert list(one.calibrate(own).groups_) == NAMES[:3]
    # a part of them is known by its groups alone
    part = data.take(np.arange(200))
    assert not hasattr(one.calibrate(part), "groups_")
    assert list(one.calibrate(part, groups=np.array(NAMES[:200])).groups_) == NAMES[:3]


def test_a_callable_tells_the_groups(kind, tmp_path):
    told = kind.make(groups=Groups(ward)).fit(kind.X, kind.Y)
    assert told.predict(kind.new) == kind.fitted.predict(kind.new, groups=NAMES[:30])
    data = told.calibration_data_
    assert told.calibrate(data).predict(kind.new).guaranteed
    for call in (
        lambda: told.predict(kind.new, groups=NAMES[:30]),
        lambda: told.calibrate(data.take(np.arange(200))),
    ):
        with pytest.raises(ValueError, match="groups must"):
            call()
    told = kind.make(groups=Groups(ward)).fit(kind.X, kind.Y)
    told.save_calibration(tmp_path / "file.json")
    with pytest.raises(ValueError, match="groups"):
        kind.again().load_calibration(tmp_path / "file.json")


def test_a_sampler_and_a_selector_have_groups_of_their_own():
    known = kind_of("selector")
    inner = toy_sampler(ReportModel(), k_max=3, epsilon=0.6, groups=Groups())
    both = selector(inner).fit(known.X, known.Y, groups=NAMES)
    assert set(both.sampler_.groups_) == set(both.groups_)
    sets = both.predict(known.new, groups=NAMES[:30])
    assert [(one.group, one.prediction_set.group) for one in sets] == [
        (name, name) for name in NAMES[:30]
    ]
    # and a selector for all prompts together, after a sampler with groups
    alone = selector(both.sampler_).calibrate(both.calibration_data_)
    assert {one.group for one in alone.predict(known.new, groups=NAMES[:30])} == {None}


def test_unknown_groups(kind):
    names = ["ward 1", "attic"]
    with pytest.raises(ValueError, match=r"groups must.*'attic'"):
        kind.fitted.predict(kind.new[:2], groups=names)


def test_of_many_small_groups_a_few_are_told_in_full():
    data = kind_of("sampler").fitted.calibration_data_
    names = [f"group {i % 100}" for i in range(N)]
    counted = r"with fewer than \d+\..*\nSo are 95 more, 100 of 100 in all\."
    with pytest.warns(NullCalibrationWarning, match=counted) as caught:
        sampler().calibrate(data, groups=names)
    assert str(caught[0].message).count("Group 'group ") == 5


def test_small_groups_are_null_and_say_what_they_lack(kind):
    names, data = ["rare" if i < 5 else "common" for i in range(N)], kind.fitted.calibration_data_
    lacks = r"Group 'rare' is null: .* with fewer than"
    with pytest.warns(NullCalibrationWarning, match=lacks):
        one = kind.again().calibrate(data, groups=names)
    rare, common = one.predict(kind.new[:2], groups=["rare", "common"])
    size = 0 if kind.make is selector else 5
    rest = rare if kind.make is selector else rare.accepted
    assert (rare.guaranteed, len(rest), common.guaranteed) == (False, size, True)
    # what is promised is that of a certified group, with the delta of all
    claim = one.calibration_.claim
    assert (claim.holds, claim.group, claim.delta) == (True, None, one.delta)
    assert claim.sentence().startswith("For each certified group on its own: with confidence")
    assert "Nothing is certified for 1 of 2 groups: 'rare'." in str(one.calibration_)
    assert "group 'rare'" in rare.to_dict()["guarantee"]
    with pytest.raises(NullCalibrationError, match=lacks):
        kind.again(on_null="raise").calibrate(data, groups=names)
    with pytest.warns(NullCalibrationWarning, match="is null"):
        none = kind.again().calibrate(data.take(np.arange(8)), groups=names[:8])
    assert not none.predict(kind.new[:1], groups=["rare"]).guaranteed
    if kind.make is sampler:
        with pytest.warns(NullCalibrationWarning, match="Group 'common' is null: no exit level is"):
            sampler(**EXIT, epsilon=0.02, delta=0.2).calibrate(data, groups=names)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sampler", {"policy": ThresholdPolicy(excess_weight=0.0)}),
        ("sampler", EXIT),
        ("selector", {}),
    ],
    ids=["thresholds", "exit", "components"],
)
def test_lazy_judging_certifies_the_same_in_each_group(name, options):
    known, judging = kind_of(name), "lazy"
    if name == "sampler":
        judging = LazyJudging(optimization_judgements=None)
    full = known.make(**options).fit(known.X, known.Y, groups=NAMES)
    lazy = known.make(judging=judging, **options).fit(known.X, known.Y, groups=NAMES)
    assert lazy.n_judgements_ < full.n_judgements_
    # all prompts together are tested where that costs no verdict
    assert full.calibration_.rule.outcome is not None
    assert lazy.calibration_.rule.outcome is None
    sets = full.predict(known.new, groups=NAMES[:30])
    assert lazy.predict(known.new, groups=NAMES[:30]) == sets
    lazy.fit(known.X, known.Y, groups=NAMES)
    assert lazy.predict(known.new, groups=NAMES[:30]) == sets


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_groups_through_pipelines_and_searches(kind):
    prompts, references, names = kind.X[:120], kind.Y[:120], NAMES[:120]
    level = "alpha" if kind.make is selector else "epsilon"
    with config_context(enable_metadata_routing=True):
        one = kind.make().set_fit_request(groups=True).set_predict_request(groups=True)
        one.set_score_request(groups=True)
        pipeline = make_pipeline(clone(one)).fit(prompts, references, groups=names)
        sets = pipeline.predict(kind.new, groups=NAMES[:30])
        assert [part.group for part in sets] == NAMES[:30]
        search = GridSearchCV(one, {level: [0.5, 0.6]}, cv=2, error_score="raise")
        search.fit(prompts, references, groups=names)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert set(search.best_estimator_.groups_) == set(names)
        scores = cross_validate(
            one, prompts, references, cv=2, params={"groups": names}, error_score="raise"
        )
        assert np.isfinite(scores["test_score"]).all()
    step = type(one).__name__.lower()
    plain = make_pipeline(kind.make()).fit(prompts, references, **{f"{step}__groups": names})
    assert plain.predict(kind.new, groups=NAMES[:30]) == sets


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_groups_of_the_first_step_alone():
    known = kind_of("sampler")
    with config_context(enable_metadata_routing=True):
        first = sampler(k_max=3).set_fit_request(groups=True).set_transform_request(groups=True)
        last = ComponentSelector(alpha=0.6, component_score="support")
        for request in (last.set_fit_request, last.set_predict_request):
            request(groups=False)
        selecting = make_pipeline(first, last).fit(known.X, known.Y, groups=NAMES)
        parts = selecting.predict(known.new, groups=NAMES[:30])
    assert [part.prediction_set.group for part in parts] == NAMES[:30]


def test_groups_where_there_are_none(kind, tmp_path):
    data = kind.fitted.calibration_data_
    alone = kind.again().calibrate(data.take(np.arange(200)))
    strange, endless = (
        kind.again().calibrate(data, groups=names)
        for names in ([(name,) for name in NAMES], [i % 3 or np.inf for i in range(N)])
    )
    marginal = sampler(groups=Groups(guarantee="all"), policy=ExitPolicy(guarantee="marginal"))
    for call in (
        lambda: kind.make(groups=Groups()).fit(kind.X, kind.Y),
        lambda: kind.fitted.predict(kind.new),
        lambda: alone.predict(kind.new, groups=NAMES[:30]),
        lambda: strange.save_calibration(tmp_path / "file.json"),
        lambda: endless.save_calibration(tmp_path / "file.json"),
        lambda: marginal.fit(*questions(N), groups=NAMES),
    ):
        with pytest.raises(ValueError, match="groups must"):
            call()
    assert not hasattr(alone, "groups_")


def test_an_error_of_a_function_says_of_which_prompt_it_is():
    X, Y = questions(N)

    def not_of_the_third(prompt):
        return 1 / (prompt != X[3])

    for name, option in {
        "groups": {"groups": Groups(not_of_the_third)},
        "weight": {"shift": CovariateShift(not_of_the_third, weight_bound=2.0)},
    }.items():
        with pytest.raises(ZeroDivisionError) as raised:
            sampler(**option).fit(X, Y)
        assert raised.value.__notes__ == [f"{name} was given {X[3]!r}."]


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_nothing_is_said_of_sets_of_groups_where_none_is_certified():
    X, Y = cases(120)
    of_each = toy_sampler(ReportModel(), k_max=3, epsilon=0.5, groups=Groups(lambda prompt: prompt))
    sets = of_each.fit(X, Y).calibration_
    assert sets.rule.certified
    assert not sets.certified
    told = selector(of_each).fit(X, Y).calibration_.conditions()[-1]
    assert "without any guarantee" in told
    assert str(sets).startswith("Nothing could be certified, so predict returns")
