"""Groups, shifts, losses, lazy judging, watches: wrong values, and right ones in wrong places."""

import copy
import itertools
import json
import pickle
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pytest
from sklearn_clm.policies._risks import Stop

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    SamplingRule,
    learn_then_test,
    sets_at_stop,
)
from sklearn_clm.evaluation import RiskMonitor, plan
from sklearn_clm.generators._prompts import check_prompts
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import (
    CovariateShift,
    DensityRatio,
    ExitPolicy,
    Groups,
    LazyJudging,
    Losses,
    ThresholdPolicy,
)
from sklearn_clm.scoring import get_set_score
from tests.toy import ToyModel, drawn, questions

N = 240
X, Y = questions(N)
NEW, NEW_Y = questions(300, first=10_000)
WEIGHTS = np.where(np.arange(N) % 2, 2.0, 0.8)


def sampler(log=None, **options):
    options = {"k_max": 5, "epsilon": 0.4, "random_state": 0, "n_lambdas": 6, **options}
    return ConformalSampler(ToyModel(log=log), **options)


def states(reference, component):
    return reference in component


def selector(of, **options):
    options = {"alpha": 0.3, "admission": states, "component_score": "support", **options}
    return ComponentSelector(of, random_state=0, **options)


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(X, Y)


@pytest.fixture(scope="module")
def pilot():
    return sampler().fit(*questions(120, first=2000)).calibration_data_


def report_of(estimator):
    return str(CalibrationReport.from_estimator(estimator))


# --- losses -----------------------------------------------------------------------------------


def without_stop(prompt, reference, one):
    """A set that was not stopped goes to a person."""
    return float(not one.stopped)


@pytest.mark.parametrize("k_max", [5, [1, 2, 5], [2, 5]])
def test_a_loss_sees_whether_sampling_stopped_as_predict_says_it(k_max):
    losses = Losses(without_stop, 0.3, admission=False)
    one = sampler(k_max=k_max, losses=losses, epsilon=0.9).fit(X, Y)
    assert one.lambda_hat_ is not None
    sets = one.predict(NEW)
    assert np.mean([not each.stopped for each in sets]) <= 0.36  # 300 prompts, 2 standard errors


def mean_quality(quality, accepted):
    return np.where(accepted, quality, 0.0).sum(axis=1) / np.maximum(accepted.sum(axis=1), 1)


@pytest.mark.parametrize("name", ["first_k", "first_k_reject", "max", "sum", np.mean, mean_quality])
def test_sets_of_losses_end_as_the_sampling_rule_says(name):
    rng = np.random.default_rng(0)
    data = CalibrationData(
        rng.integers(0, 5, (40, 4)) / 4, rng.random((40, 4, 4)), rng.random((40, 4)) < 0.5
    )
    score, found = get_set_score(name), set()
    for thresholds in itertools.product((0.5, np.inf), (-np.inf, 0.5), (0.25, 1.0, 2.0, np.inf)):
        for k_max in (1, 2, 4):
            configuration = Configuration(*thresholds)
            accepted, samples = sets_at_stop(data, configuration, k_max, score)
            stop = Stop(score, thresholds[2], k_max)
            for i in range(40):
                rule = SamplingRule(configuration, score, k_max, width=4)
                while not rule.done:
                    j = rule.n_samples
                    rule.update(data.quality[i, j], data.similarity[i, j])
                taken = int(samples[i])
                value = stop.score(data.quality[i], accepted[i], taken)
                assert (taken, value) == (rule.n_samples, rule.score)
                assert stop.stopped(value, taken) == rule.stopped
                found.add((rule.stopped, taken == k_max))
    assert found == {(True, True), (True, False), (False, True)}


def test_losses_are_not_remembered_from_another_set_score_or_with_other_attributes():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, prompt, reference, one):
            return min(1.0, self.factor * max(one.set_score, 0.0))

    loss = Scaled(0.05)
    one = sampler(losses=Losses({"scaled": loss}, 0.5)).fit(X, Y)
    data = one.calibration_data_
    for change in ({"set_score": "sum"}, {}):
        loss.factor = 0.4 if not change else loss.factor
        one.set_params(**change).calibrate(data)
        fresh = sampler(set_score="sum", losses=Losses({"scaled": loss}, 0.5)).fit(X, Y)
        np.testing.assert_array_equal(one.p_values_, fresh.p_values_)


def test_losses_need_not_be_hashable():
    @dataclass
    class Wrong:
        factor: float = 0.5

        def __call__(self, prompt, reference, one):
            return self.factor * float(reference not in one.responses)

    assert sampler(losses=Losses(Wrong(), 0.9)).fit(X, Y).lambda_hat_ is not None


def lacks_reference(prompt, reference, one):
    return float(reference is None)


def test_losses_are_not_given_references_that_a_pickle_has_lost():
    references = [lambda response, right=right: response == right for right in Y]
    one = sampler(losses=Losses(lacks_reference, 0.5)).fit(X, references)
    copied = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(one))))
    assert [each.responses for each in copied.predict(NEW[:5])] == [
        each.responses for each in one.predict(NEW[:5])
    ]
    with pytest.raises(ValueError, match="admissions that are functions are not in a pickle"):
        copied.calibrate(copied.calibration_data_)


def test_epsilon_has_no_part_where_admission_is_not_promised():
    never = Losses({"none": lambda prompt, reference, one: 0.0}, 0.5, admission=False)
    one = sampler(epsilon=0.01, losses=never, groups=Groups(unknown="pooled"))
    one.fit(X, Y, groups=[i % 3 for i in range(N)])
    assert all(rule.certified for rule in one.groups_.values())
    text = report_of(one)
    assert "0.01" not in text
    assert ",." not in text
    assert "a new prompt of a certified group, from that group's distribution. Nothing" in text
    with pytest.raises(ValueError, match=r"target must promise admissible .* losses\.admission"):
        RiskMonitor(one)
    always = Losses({"all": lambda prompt, reference, one: 1.0}, 0.5, admission=False)
    with pytest.warns(NullCalibrationWarning, match="levels of losses.* p-value of 1: mean all 1"):
        sampler(losses=always).fit(X, Y)


# --- groups -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (dict.fromkeys(X, "a"), TypeError, "groups must be a sequence .* got dict"),
        ({f"group {i}" for i in range(N)}, TypeError, "groups must be a sequence .* got set"),
        (frozenset(range(N)), TypeError, "groups must be a sequence .* got frozenset"),
        ([np.array([1, 2])] * N, TypeError, "groups must be hashable.* got ndarray at position 0"),
        ([Decimal("sNaN")] * N, ValueError, "groups must not be missing, got .*sNaN"),
    ],
)
def test_groups_without_an_order_or_a_truth_value(groups, error, message, tmp_path):
    log = str(tmp_path / "draws")
    with pytest.raises(error, match=message):
        sampler(log).fit(X, Y, groups=groups)
    assert drawn(log) == []


def test_groups_of_a_data_frame_say_their_shape():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"groups must have shape \(n,\), got \(240, 1\)"):
        sampler().fit(X, Y, groups=pd.DataFrame({"group": Y}))


def test_groups_that_json_does_not_have(fitted, tmp_path):
    endless = [float("inf") if i % 2 else 1.0 for i in range(N)]
    one = copy.copy(fitted).calibrate(fitted.calibration_data_, groups=endless)
    with pytest.raises(ValueError, match="groups must be text or numbers for a JSON file, got inf"):
        one.save_calibration(tmp_path / "file.json")


def test_rules_of_other_groups_are_another_calibration(fitted):
    data = fitted.calibration_data_
    names = ["a" if i < 200 else "b" for i in range(N)]
    one = sampler().calibrate(data, groups=names)
    other = sampler().calibrate(data, groups=[{"a": "b", "b": "a"}[name] for name in names])
    rules = [next(iter(each.groups_.values())).lambda_hat for each in (one, other)]
    assert rules[0] == rules[1]
    assert one.calibration_.digest != other.calibration_.digest
    assert sampler().calibrate(data, groups=names).calibration_.digest == one.calibration_.digest


# --- shift ------------------------------------------------------------------------------------


def test_a_file_of_another_shift_is_refused(fitted, tmp_path):
    shift = CovariateShift(weight_bound=2.0)
    fitted.save_calibration(tmp_path / "plain.json")
    with pytest.raises(ValueError, match="other parameters: shift is 'none' there and"):
        sampler(shift=shift).load_calibration(tmp_path / "plain.json")
    shifted = sampler(shift=shift).fit(X, Y, prompt_weight=WEIGHTS)
    shifted.save_calibration(tmp_path / "shifted.json")
    for other in (
        CovariateShift(weight_bound=4.0),
        CovariateShift(weight_bound=2.0, method="betting"),
    ):
        with pytest.raises(ValueError, match="other parameters: shift is"):
            sampler(shift=other).load_calibration(tmp_path / "shifted.json")
    for own in (shift, None):
        loaded = sampler(shift=own).load_calibration(tmp_path / "shifted.json")
        assert loaded.shift_ == shifted.shift_


@pytest.mark.parametrize(
    ("options", "old", "new", "error", "message"),
    [
        ({"n_folds": 2.5}, X, NEW, ValueError, "'n_folds' parameter of DensityRatio .* an int"),
        (
            {},
            np.ones((30, 3)),
            np.ones((30, 2)),
            ValueError,
            "old and new must have the same number of columns, got 3 and 2",
        ),
        (
            {},
            [[{"role": "user", "content": text}] for text in X],
            [[{"role": "user", "content": text}] for text in NEW],
            TypeError,
            "old must hold text or rows of numbers for classifier=None, got list",
        ),
    ],
)
def test_density_ratios_of_what_they_cannot_read(options, old, new, error, message):
    with pytest.raises(error, match=message):
        DensityRatio(**options).fit(old, new)


def test_complex_weights():
    with pytest.raises(TypeError, match="prompt_weight must be numbers, got ndarray that holds"):
        sampler(shift=CovariateShift(weight_bound=2.0)).fit(X, Y, prompt_weight=WEIGHTS + 1j)


def test_audited_prompts_are_kept_by_their_weight_as_others_are():
    monitor = RiskMonitor(0.3, share=0.3, seed=0)
    # whoever has no other identifier of a request than its prompt
    audited = check_prompts([p for i in range(8000) if monitor.should_audit(p := f"question {i}")])
    shift = CovariateShift(weight_bound=2.0)
    kept = shift.kept(np.full(len(audited), 0.5), audited.digests(), 0)
    assert abs(len(kept) / len(audited) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / len(audited))


# --- lazy judging and policies from elsewhere -------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"judging": LazyJudging(optimization_judgements=6)},
            "optimization_judgements must be at most k_max=5, got 6",
        ),
        (
            {"judging": LazyJudging(optimization_admission="nonsense")},
            "optimization_admission must be a judge: admission='nonsense' is unknown",
        ),
    ],
)
def test_judges_of_the_optimisation_part_are_looked_at_before_anything_is_drawn(
    options, message, tmp_path
):
    log = str(tmp_path / "draws")
    with pytest.raises(ValueError, match=message):
        sampler(log, **options).fit(X, Y)
    assert drawn(log) == []


def test_paths_of_other_budgets_are_refused_before_anything_is_drawn(fitted, pilot, tmp_path):
    log = str(tmp_path / "draws")
    learnt = ExitPolicy().fit(pilot, pilot.first)
    with pytest.raises(ValueError, match="policy must be fitted with k_max=4 draws, got one fit"):
        sampler(log, policy=learnt, k_max=4).fit(X, Y)
    frontier = fitted.frontier_
    with pytest.raises(ValueError, match="k_max must be 5, the largest budget of the policy's"):
        sampler(log, policy=ThresholdPolicy(frontier=frontier), k_max=4).fit(X, Y)
    for wrong in (
        {"lambdas": frontier.lambdas.astype(str)},
        {"lambdas": frontier.lambdas.tolist()},
        {"k_max": frontier.k_max.astype(float)},
    ):
        (name,) = wrong
        policy = ThresholdPolicy(frontier=replace(frontier, **wrong))
        with pytest.raises(TypeError, match=rf"frontier\.{name} must be an array of"):
            sampler(log, policy=policy).fit(X, Y)
    assert drawn(log) == []


# --- watching ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:gamma_hat_")
def test_a_selector_with_groups_is_watched_by_the_thresholds_of_its_groups(fitted, tmp_path):
    with pytest.warns(NullCalibrationWarning):
        none = selector(fitted).fit(X, Y, groups=[i % 60 for i in range(N)])
    assert none.gamma_hat_ < np.inf  # of all prompts together, for comparison
    with pytest.raises(ValueError, match="target must be certified, got a ComponentSelector"):
        RiskMonitor(none)
    one = selector(fitted).fit(X, Y, groups=[f"a {i % 2}" for i in range(N)])
    other = selector(fitted).fit(X, Y, groups=[f"b {i % 2}" for i in range(N)])
    RiskMonitor(one, path=tmp_path / "monitor.sqlite").update([0, 1])
    assert RiskMonitor(one, path=tmp_path / "monitor.sqlite").n_audited_ == 2
    with pytest.raises(ValueError, match="target is"):
        RiskMonitor(other, path=tmp_path / "monitor.sqlite")


@pytest.mark.filterwarnings("ignore:gamma_hat_")
def test_both_guarantees_at_once_are_claimed_only_where_both_have_a_confidence(fitted):
    assert "hold at once with confidence 1 - 2 delta" in report_of(selector(fitted).fit(X, Y))
    other = selector(fitted, delta=0.1).fit(X, Y)
    assert "hold at once with confidence 85 %" in report_of(other)
    marginal = sampler(policy=ExitPolicy(), guarantee="marginal").calibrate(
        fitted.calibration_data_
    )
    text = report_of(selector(marginal).fit(X, Y))
    assert "union bound" not in text
    assert "no confidence is known with which both hold at once" in text
    with pytest.warns(NullCalibrationWarning):
        null = sampler(epsilon=0.02).calibrate(fitted.calibration_data_)
    text = report_of(selector(null).fit(X, Y))
    assert "union bound" not in text
    assert "Nothing is guaranteed of the sampler's sets." in text


# --- plans ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n_trials": 2.5}, TypeError),
        ({"n_trials": "4"}, TypeError),
        ({"optimization_fraction": 0}, ValueError),
        ({"optimization_fraction": "a"}, TypeError),
        ({"epsilon": [0.1, 0.2]}, ValueError),
        ({"k_max": []}, ValueError),
        ({"k_max": "5"}, ValueError),
        ({"random_state": "a"}, TypeError),
        ({"random_state": -1}, ValueError),
        ({"draw_weight": "a"}, ValueError),
    ],
)
def test_plans_name_what_they_are_given(pilot, options, error):
    with pytest.raises(error, match=next(iter(options))):
        plan(pilot, **{"epsilon": 0.3, "sizes": [100], "n_trials": 2, **options})


def test_weights_of_objectives_are_numbers(pilot):
    with pytest.raises(ValueError, match="size_weight must be finite and at least 0, got '1'"):
        learn_then_test(pilot, 0.3, size_weight="1")


def test_plans_of_kept_prompts_say_so(pilot):
    shift = CovariateShift(weight_bound=2.0)
    kept = sampler(shift=shift).fit(X, Y, prompt_weight=WEIGHTS)
    found = plan(kept.calibration_data_, 0.3, sizes=[100], n_trials=2, random_state=0)
    share = kept.shift_.n_kept / kept.shift_.n_offered
    assert found.share_kept == share < 1.0
    assert f"collect {1 / share:.3g} times as many" in str(found)
    assert plan(pilot, 0.3, sizes=[100], n_trials=2).share_kept == 1.0
    assert json.loads(kept.calibration_data_.provenance.shift)["n_kept"] == kept.shift_.n_kept
