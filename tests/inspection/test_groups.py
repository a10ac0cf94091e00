"""Groups, shifts and other losses in displays and reports."""

import warnings

import numpy as np
import pytest

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData, smallest_epsilon
from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.inspection import CalibrationReport, GroupLossDisplay, PromptGainDisplay
from sklearn_clm.policies import CovariateShift, ExitPolicy, Groups, Losses, ThresholdPolicy
from tests.toy import ToyModel, questions


class Never(BaseGenerator):
    """Is asked for nothing."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[Generation("")] * n_samples for _ in prompts]


def world(n=600, seed=0):
    """Half of the prompts are hard."""
    rng = np.random.default_rng(seed)
    hard = np.arange(n) % 2 == 0
    admissible = np.where(hard[:, None], 0.4, 0.9) > rng.random((n, 4))
    quality = rng.random((n, 4)) * 0.6 + 0.4 * admissible
    data = CalibrationData(quality, np.zeros((n, 4, 4)), admissible)
    return data, np.where(hard, "hard", "easy")


def few(n_lambdas=6, **options):
    return ThresholdPolicy(n_lambdas=n_lambdas, **options)


def sampler(policy=None, **options):
    options = {"k_max": 4, "epsilon": 0.2, "random_state": 0, **options}
    return ConformalSampler(Never(), policy=policy or few(), **options)


def test_losses_of_groups_are_those_of_their_calibration_prompts():
    pytest.importorskip("matplotlib")
    data, names = world()
    one = sampler(few(size_weight=2.0)).calibrate(data, groups=names)
    display = GroupLossDisplay.from_estimator(one)
    assert display.groups == ["hard", "easy"]
    for g, name in enumerate(display.groups):
        result = one.groups_[name].result
        assert display.n_prompts[g] == result.n_calibration
        assert display.grouped[g] / display.n_prompts[g] <= 0.2
    assert display.pooled.sum() == pytest.approx(
        one.result_.risks.loss[_position(one)] * one.result_.n_calibration
    )
    assert display.failed_by_pooling == ["hard"]
    assert len(display.ax_.get_yticklabels()) == 2
    assert display.ax_.get_yticklabels()[0].get_text().startswith("hard (n=")
    with pytest.raises(ValueError, match="estimator"):
        GroupLossDisplay.from_estimator(sampler().calibrate(data))


def _position(one):
    same = np.all(one.frontier_.lambdas == np.asarray(one.lambda_hat_), axis=1)
    return int(np.flatnonzero(same)[0])


def test_reports_say_what_holds_within_groups_and_under_shift():
    data, names = world()
    shift = CovariateShift(weight_bound=2.0, estimated=True)
    one = sampler(shift=shift, groups=Groups(guarantee="all"))
    one.calibrate(data, groups=names, prompt_weight=np.where(names == "hard", 0.5, 1.5))
    text = str(CalibrationReport.from_estimator(one))
    for part in (
        "of a certified group, from the distribution that the weights describe,",
        "all hold together",
        "With confidence 95 %",
        "approximate: weights are estimated",
        "effective number of prompts",
        "prompts offered",
    ):
        assert part in text
    assert "from the same distribution" not in text


@pytest.mark.parametrize("admission", [True, False])
def test_reports_say_which_losses_are_kept(admission):
    def wrong(prompt, reference, one):
        return sum(response != reference for response in one) / max(len(one), 1)

    losses = Losses({"wrong": wrong}, 0.7, admission=admission)
    one = ConformalSampler(ToyModel(), k_max=3, epsilon=0.5, losses=losses)
    one.set_params(policy=few(3), random_state=0).fit(*questions(120))
    text = str(CalibrationReport.from_estimator(one))
    assert "mean of each loss below is at most its level" in text
    assert ("Nothing is said of admissible responses" in text) is not admission
    assert "Other losses" in text


@pytest.mark.parametrize("policy", [few(), ExitPolicy()])
def test_reports_show_the_rule_of_each_group(policy):
    data, names = world(300)
    one = sampler(policy=policy, epsilon=0.3)
    report = CalibrationReport.from_estimator(one.calibrate(data, groups=names))
    (table,) = (part.table for part in report.sections if part.heading == "Groups")
    for name, _, rule, errors, interval, _, _, smallest in table[1:]:
        found = one.groups_[name]
        count, n = map(int, errors.split(" of "))
        assert count / n <= 0.3
        assert rule.startswith(found.words)
        low, high = map(float, interval.split(" to "))
        assert low < count / n < high
        assert 0 <= float(smallest) - found.result.smallest_epsilon < 1e-4
    assert "nothing is said of all at once" in str(report)
    assert "What to expect of predict" not in str(report)  # by a rule that nobody gets
    one.set_params(groups=Groups(unknown="pooled")).calibrate(data, groups=names)
    assert "What to expect of predict" in str(CalibrationReport.from_estimator(one))


@pytest.mark.parametrize("policy", [few(), ExitPolicy()])
def test_reports_say_what_each_group_will_get(policy):
    data, names = world(300)
    names[-2:] = "rare"
    one = sampler(policy=policy, epsilon=0.15)
    with pytest.warns(NullCalibrationWarning, match="2 calibration prompts"):
        report = CalibrationReport.from_estimator(one.calibrate(data, groups=names))
    (table,) = (part.table for part in report.sections if part.heading == "Groups")
    rows = {row[0]: dict(zip(table[0], row)) for row in table[1:]}
    result = one.groups_["easy"].result
    if isinstance(policy, ThresholdPolicy):
        costs = result.risks.size[result.position], result.risks.samples[result.position]
    else:
        costs = result.sizes.mean(), result.draws.mean()
    easy = float(rows["easy"]["size"]), float(rows["easy"]["draws"])
    assert easy == pytest.approx(costs, rel=1e-3)
    assert easy[1] < 4
    for name in ("hard", "rare"):
        assert (rows[name]["size"], rows[name]["draws"]) == ("4", "4")
    assert rows["rare"]["errors"].startswith("there are 2 calibration prompts")
    assert report.warnings[0] == (
        "Nothing is guaranteed for prompts of 2 of 3 groups, which get all 4 draws: 'hard', 'rare'."
    )


def test_reports_warn_of_null_groups_of_components():
    names = np.repeat(["easy", "hard", "rare"], [150, 140, 10])
    hard = np.repeat((names == "hard")[:, np.newaxis], 3, axis=1)
    scores = np.where(hard, 0.5, np.random.default_rng(0).random((300, 3)))
    data = ComponentCalibrationData.from_arrays(scores, ~hard)
    selector = ComponentSelector(alpha=0.2, component_score="support")
    with pytest.warns(NullCalibrationWarning):
        selector.calibrate(data, groups=names)
    assert CalibrationReport.from_estimator(selector).warnings[0] == (
        "Nothing is guaranteed for prompts of 2 of 3 groups, which get empty selections: 'hard', "
        "'rare'."
    )


def test_warnings_of_samplers_say_what_is_about_unknown_groups_alone():
    data, names = world()
    one = sampler(epsilon=0.08, groups=Groups(unknown="pooled", guarantee="all"))
    with pytest.warns(NullCalibrationWarning):
        one.calibrate(data, groups=names)
    assert one.lambda_hat_ is None
    assert one.groups_["easy"].lambda_hat is not None
    found = CalibrationReport.from_estimator(one).warnings
    (null,) = (text for text in found if text.startswith("The rule for all prompts is null"))
    assert null.endswith(OF_UNKNOWN)
    assert not found[0].endswith(OF_UNKNOWN)  # of a group that is null
    small, names = world(150)
    one.set_params(epsilon=0.075)
    with pytest.warns(NullCalibrationWarning):
        one.calibrate(small, groups=names)
    (text,) = (
        text
        for text in CalibrationReport.from_estimator(one).warnings
        if text.startswith("Small n")
    )
    least = smallest_epsilon(0, one.result_.n_calibration, 0.05 / 3)
    assert f"epsilon >= {least:.3g}" in text


def components(seed=0, n=400):
    """Scores of one group mean less than those of the other, and a third group is never right."""
    rng = np.random.default_rng(seed)
    names = np.repeat(["easy", "hard", "wrong", "rare"], [n // 2, n // 4, n // 4 - 5, 5])
    rng.shuffle(names)
    scores = np.where((names == "wrong")[:, np.newaxis], 1.0, rng.random((n, 5)))
    power = np.select([names == "easy", names == "hard"], [0.1, 2.0], 0.1)
    right = (rng.random((n, 5)) < scores ** power[:, np.newaxis]) & (names != "wrong")[:, None]
    return scores, right, names


def own_numbers(scores, right, names, gamma, name):
    """Prompts, share with an error and mean number selected, one by one."""
    found = []
    for i in range(len(names)):
        if names[i] == name:
            taken = [bool(right[i, j]) for j in range(5) if scores[i, j] >= gamma]
            found.append((not all(taken), len(taken)))
    return len(found), *np.mean(found, axis=0)


POOLED_SECTIONS = {
    "Threshold (gamma-hat)",
    "Tests of thresholds",
    "Achievable band of alpha",
    "What to expect of predict",
    "What more prompts would gain",
}
OF_UNKNOWN = "This is about prompts of unknown groups, and only these."


def test_reports_of_selectors_say_what_each_group_will_get():
    scores, right, names = components()
    data = ComponentCalibrationData.from_arrays(scores, right)
    one = ComponentSelector(alpha=0.3, component_score="support")
    with pytest.warns(NullCalibrationWarning):
        report = CalibrationReport.from_estimator(one.calibrate(data, groups=names))
    (table,) = (part.table for part in report.sections if part.heading == "Groups")
    rows = {row[0]: dict(zip(table[0], row, strict=True)) for row in table[1:]}
    assert len({one.groups_["easy"], one.groups_["hard"], one.gamma_hat_}) == 3
    for name in ("easy", "hard"):
        n, error, selected = own_numbers(scores, right, names, one.groups_[name], name)
        shown = rows[name]
        assert shown[""] == "certified"
        assert float(shown["rule"].split()[1]) == pytest.approx(one.groups_[name], abs=1e-4)
        assert shown["errors"] == f"{round(error * n)} of {n}"
        assert float(shown["components selected"]) == pytest.approx(selected, abs=1e-3)
        low, high = map(float, shown["95 % interval"].split(" to "))
        assert low < error < high
        smallest = one.calibration_.results[name].smallest_alpha
        assert 0 <= float(shown["smallest alpha"]) - smallest < 1e-4
    for name in ("wrong", "rare"):
        assert (rows[name][""], rows[name]["rule"]) == ("null", "")
        assert rows[name]["components selected"] == "0"
    n_wrong = own_numbers(scores, right, names, 0.0, "wrong")[0]
    assert rows["wrong"]["errors"] == f"0 of {n_wrong}"
    assert "are lacking" in rows["rare"]["errors"]


def test_reports_of_selectors_leave_out_a_threshold_that_nobody_gets():
    scores, right, names = components()
    data = ComponentCalibrationData.from_arrays(scores, right)
    # null for all prompts together, and for groups that are never right
    one = ComponentSelector(alpha=0.2, component_score="support")
    with pytest.warns(NullCalibrationWarning):
        report = CalibrationReport.from_estimator(one.calibrate(data, groups=names))
    assert one.gamma_hat_ == np.inf > one.groups_["easy"]
    assert not POOLED_SECTIONS & {part.heading for part in report.sections}
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith("Nothing is guaranteed for prompts of")
    one.set_params(groups=Groups(unknown="pooled"))
    with pytest.warns(NullCalibrationWarning):
        report = CalibrationReport.from_estimator(one.calibrate(data, groups=names))
    assert [text.endswith(OF_UNKNOWN) for text in report.warnings] == [False, True]
    assert report.warnings[1].startswith("The rule for all prompts is null")
    shown = {part.heading: part for part in report.sections}
    assert not set(shown) >= POOLED_SECTIONS  # there is no threshold
    one.set_params(alpha=0.6, groups=Groups(unknown="pooled", guarantee="all"))
    with pytest.warns(NullCalibrationWarning):
        report = CalibrationReport.from_estimator(one.calibrate(data, groups=names))
    told = {part.heading: part for part in report.sections}
    assert set(told) > POOLED_SECTIONS
    assert "and only these, get the rule for all" in told["Groups"].paragraphs[0]
    chosen = np.count_nonzero(scores >= one.gamma_hat_, axis=1)
    expected = {row[0]: row[1] for row in told["What to expect of predict"].table}
    assert float(expected["components selected"]) == pytest.approx(chosen.mean(), rel=1e-3)
    # at the level of each of five claims
    smallest = float(told["What more prompts would gain"].table[1][2])
    assert 0 <= smallest - one.result_.smallest_alpha < 1e-4
    # without groups nothing is said of them
    one.set_params(groups=None).calibrate(data)
    assert OF_UNKNOWN not in str(CalibrationReport.from_estimator(one))


def test_what_more_prompts_bring_is_not_shown_of_a_rule_that_nobody_gets():
    pytest.importorskip("matplotlib")
    data, names = world(300)
    parts = ComponentCalibrationData.from_arrays(*components()[:2])
    groups = components()[2]
    for estimator, given in (
        (sampler(epsilon=0.3), (data, names)),
        (ComponentSelector(alpha=0.6, component_score="support"), (parts, groups)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NullCalibrationWarning)
            estimator.calibrate(given[0], groups=given[1])
        with pytest.raises(ValueError, match="estimator"):
            PromptGainDisplay.from_estimator(estimator)
        estimator.set_params(groups=Groups(unknown="pooled", guarantee="all"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NullCalibrationWarning)
            estimator.calibrate(given[0], groups=given[1])
        display = PromptGainDisplay.from_estimator(estimator)
        assert display.delta == estimator.result_.delta == 0.05 / (len(set(given[1])) + 1)


def test_sets_of_unknown_groups_say_that_nothing_holds_within_them():
    prompts, right = questions(120)
    one = ConformalSampler(ToyModel(), k_max=3, epsilon=0.6, random_state=0)
    one.set_params(policy=few(3), groups=Groups(unknown="pooled"))
    one.fit(prompts, right, groups=["a", "b"] * 60)
    sets = one.predict(["item 500", "item 501"], groups=["a", "new"])
    words = "unknown group: guaranteed over all prompts together, not within it"
    assert [words in str(each) for each in sets] == [False, True]
    assert words in sets[1]._repr_html_()
    assert words in sets._repr_html_()
    assert "new" not in one.groups_


@pytest.mark.parametrize("policy", [few(), ExitPolicy()])
def test_coverage_given_for_epsilon_warns(policy):
    data, _ = world(300)
    policy = few(25) if isinstance(policy, ThresholdPolicy) else policy
    one = sampler(policy=policy, epsilon=0.9)
    with pytest.warns(UserWarning, match=r"epsilon=0\.9"):
        one.calibrate(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.set_params(epsilon=0.5).calibrate(data)
    with pytest.warns(UserWarning, match=r"epsilon=0\.52 is trivial"):
        one.set_params(epsilon=0.52).calibrate(data)
