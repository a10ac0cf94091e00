"""Right values in the wrong place, and bad ones, of policies, judges, monitors and workers."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm import __main__ as cli
from sklearn_clm.caching import HumanJudge, JudgedPrompt, WantedVerdict
from sklearn_clm.calibration import (
    ComponentCalibrationData,
    LabelTable,
    component_fraction_test,
    component_learn_then_test,
    learn_then_test,
    learn_then_test_groups,
    learn_then_test_lazily,
    search_frontier,
)
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.generators import ParallelGenerator
from sklearn_clm.policies import ExitPolicy, ThresholdPolicy
from tests.toy import ToyModel, questions

X, Y = questions(120)


def sampler(**options):
    return ConformalSampler(
        ToyModel(), **{"k_max": 4, "epsilon": 0.45, "random_state": 0, **options}
    )


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(X, Y)


def test_sets_in_place_of_prompts(fitted):
    sets = fitted.predict(X[:3])
    uses = (
        lambda: fitted.predict(sets),
        lambda: sampler().fit(sets, Y[:3]),
        lambda: RiskMonitor(0.3).update([0, 0, 0], prompts=sets),
        lambda: fitted.predict(np.array([["two", "columns"]] * 3)),
    )
    for use in uses:
        with pytest.raises((ValueError, TypeError), match=r"prompts \(X\)|sets"):
            use()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"first": None}, r"first must have shape \(120, 4\)"),
        ({"first": np.zeros((3, 4), dtype=int)}, r"first must have shape .* of shape \(3, 4\)"),
        ({"labels": np.ones((120, 3))}, r"labels must have shape \(120, 4\)"),
        ({"data": "data.npz"}, "data must be CalibrationData, got str"),
    ],
)
def test_an_exit_policy_says_what_it_learns_from(fitted, arguments, message):
    data = fitted.calibration_data_
    with pytest.raises((ValueError, TypeError), match=message):
        ExitPolicy().fit(**{"data": data, "first": data.first, **arguments})


@pytest.mark.parametrize(("n_lambdas", "n_budgets"), [(0, 0), (2, None)])
def test_a_frontier_holds_configurations_and_their_budgets(fitted, n_lambdas, n_budgets):
    given = fitted.frontier_
    frontier = replace(given, lambdas=given.lambdas[:n_lambdas], k_max=given.k_max[:n_budgets])
    with pytest.raises(ValueError, match=f"frontier must hold .* got {n_lambdas} and"):
        sampler(policy=ThresholdPolicy(frontier=frontier)).calibrate(fitted.calibration_data_)


def mistaken(use):
    """What is said of a delta or an epsilon."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use()
    assert {each.filename for each in caught} <= {__file__, cli.__file__}
    said = [str(each.message) for each in caught]
    return sorted(text.split()[0] for text in said if "for a co" in text)


def test_a_confidence_for_delta_and_a_coverage_for_epsilon_are_noticed(fitted, tmp_path):
    data, table = fitted.calibration_data_, fitted.calibration_data_.admissible
    searched, rest = data.rows(slice(40)), data.rows(slice(40, 120))
    frontier = search_frontier(searched)
    rng = np.random.default_rng(0)
    scores = rng.random((100, 4))
    components = ComponentCalibrationData.from_arrays(scores, rng.random((100, 4)) < scores)
    whole = LabelTable(rest.first, lambda i, j: table[40:][i, j])
    tests = (
        lambda **levels: sampler(**levels).fit(X, Y),
        lambda **levels: sampler(policy=ExitPolicy(), **levels).calibrate(data),
        lambda **levels: learn_then_test(data, random_state=0, **levels),
        lambda **levels: learn_then_test(rest, frontier=frontier, **levels),
        lambda **levels: learn_then_test_groups(data, ["one"] * 120, random_state=0, **levels),
    )
    for test in tests:
        right = {"epsilon": 0.35, "delta": 0.05}
        assert mistaken(lambda test=test, right=right: test(**right)) == []
        for wrong in ({"epsilon": 0.95}, {"delta": 0.95}, {"epsilon": 0.95, "delta": 0.95}):
            said = mistaken(lambda test=test, wrong=wrong, right=right: test(**right | wrong))
            assert said == sorted(f"{name}=0.95" for name in wrong)
    for test in (
        lambda **levels: component_learn_then_test(components, 0.3, **levels),
        lambda **levels: component_fraction_test(components, 0.3, **levels),
        lambda **levels: learn_then_test_lazily(rest, frontier, 0.35, table=whole, **levels),
        lambda **levels: ComponentSelector(fitted, admission="exact_match", **levels).fit(X, Y),
    ):
        assert mistaken(lambda test=test: test(delta=0.05)) == []
        assert mistaken(lambda test=test: test(delta=0.95)) == ["delta=0.95"]
    data.save(tmp_path / "data.npz")
    arguments = ["calibrate", "--data", str(tmp_path / "data.npz"), "--quiet", "--epsilon", "0.9"]
    arguments += ["--output", str(tmp_path / "out"), "--delta", "0.9"]
    assert mistaken(lambda: cli.main(arguments)) == ["delta=0.9", "epsilon=0.9"]
    # levels of a whole curve, and a delta that has no part
    assert mistaken(lambda: learn_then_test(data, [0.5, 0.95], random_state=0)) == []
    average = sampler(policy=ExitPolicy(), guarantee="marginal", delta=0.95)
    assert mistaken(lambda: average.calibrate(data)) == []


def test_a_monitor_watches_what_was_certified_and_nothing_else(fitted, tmp_path):
    with pytest.warns(NullCalibrationWarning):
        null = sampler(epsilon=0.02).fit(X, Y)
    with pytest.raises(ValueError, match="must be certified, got a ConformalSampler"):
        RiskMonitor(null)
    choosy = ComponentSelector(fitted, alpha=0.01, admission="exact_match")
    with pytest.warns(NullCalibrationWarning):
        choosy.fit(X, Y)
    with pytest.raises(ValueError, match="must be certified, got a ComponentSelector"):
        RiskMonitor(choosy)
    first, other = (sampler(policy=ExitPolicy(), random_state=seed) for seed in (0, 1))
    data = first.fit(X, Y).calibration_data_
    assert other.calibrate(data).exit_level_ != first.exit_level_
    RiskMonitor(first, path=tmp_path / "monitor.sqlite").update([0, 1])
    with pytest.raises(ValueError, match="monitor"):
        RiskMonitor(other, path=tmp_path / "monitor.sqlite")
    on_average = sampler(policy=ExitPolicy(), guarantee="marginal").calibrate(data)
    assert "on average over calibrations" in str(RiskMonitor(on_average))
    assert "on average" not in str(RiskMonitor(first))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_jobs": 0}, "'n_jobs' .* Got 0"),
        ({"n_jobs": "all"}, "'n_jobs' .* Got 'all'"),
        ({"chunk_size": 0}, "'chunk_size' .* Got 0"),
    ],
)
def test_options_of_workers_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ParallelGenerator(ToyModel(), **options).sample(X[:2], 1)
    with pytest.raises(ValueError, match=message):
        sampler().set_params(generator=ParallelGenerator(ToyModel(), **options)).fit(X, Y)


def test_verdicts_are_on_pairs_by_people_with_names(tmp_path):
    pair = WantedVerdict(JudgedPrompt("2+2?"), "4")
    judge = HumanJudge(tmp_path / "verdicts.sqlite")
    with pytest.raises(TypeError, match="pair must be a WantedVerdict, got '4'"):
        judge.record("4", True)
    with pytest.raises(TypeError, match="judge must be a str or None, got 3"):
        judge.record(pair, True, judge=3)
    with pytest.raises(TypeError, match="question must be a str, got None"):
        HumanJudge(tmp_path / "verdicts.sqlite", question=None)("2+2?", "4")
    assert judge.verdicts([pair]) == [None]
