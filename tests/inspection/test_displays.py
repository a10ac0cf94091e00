"""Figures: what they show, on which axes, and of which estimators."""

import functools
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from sklearn_clm import ComponentSelector, NullCalibrationWarning
from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    binomial_p_value,
    clopper_pearson,
    smallest_epsilon,
)
from sklearn_clm.evaluation import RiskMonitor, run_component_trials, run_trials
from sklearn_clm.inspection import (
    AchievableBandDisplay,
    FrontierDisplay,
    RiskCurveDisplay,
    RiskMonitorDisplay,
)
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, ThresholdPolicy
from tests.evaluation.simulated import simulated_data
from tests.toy import toy_sampler

mpl.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return simulated_data(600, 6)


@pytest.fixture(scope="module")
def results(data):
    levels = np.linspace(0.0, 1.0, 41)[1:-1]
    return run_trials(data, ("first_k", "max"), levels, n_trials=5, n_lambdas=6, random_state=0)


@pytest.fixture(scope="module")
def component_data():
    rng = np.random.default_rng(0)
    scores = rng.random((500, 4))
    return ComponentCalibrationData.from_arrays(scores, rng.random((500, 4)) < scores**0.2)


sampling = functools.partial(toy_sampler, k_max=6, epsilon=0.3)


@pytest.fixture(scope="module")
def sampler(data):
    return sampling().calibrate(data)


@pytest.fixture(scope="module")
def selector(component_data):
    selector = ComponentSelector(alpha=0.4, delta=0.1, component_score="support")
    return selector.calibrate(component_data)


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def names_of_rows(display):
    return [axes.get_ylabel() for axes in display.axes_]


def test_risk_curves_have_a_row_for_each_measure(results):
    display = RiskCurveDisplay.from_trials(results)
    assert names_of_rows(display) == ["Loss", "Relative excess", "Set size / $k_{max}$"]
    assert display.axes_[-1].get_xlabel() == "ε (tolerated risk)"
    assert len(display.lines_) == 3 * 2
    # the trivial range is marked and takes little room
    first = results.levels[results.trivial.mean(axis=(0, 1)) > 0.5][0]
    assert display.trivial_level == pytest.approx(first, abs=0.05)
    assert display.ax_.get_xlim()[1] == pytest.approx(1.15 * display.trivial_level)
    # the diagonal is there to compare with
    diagonal = display.ax_.lines[0].get_xydata()
    np.testing.assert_array_equal(diagonal[:, 0], diagonal[:, 1])


def test_curves_are_means_over_trials_and_titles_have_areas(results):
    display = RiskCurveDisplay.from_trials(results, measures=["size"], methods=["max"])
    (line,) = display.lines_
    level, mean = line.get_data()
    np.testing.assert_array_equal(mean, results.mean("size")[1][: len(mean)])
    np.testing.assert_array_equal(level, results.levels[: len(level)])
    assert labels(display.ax_)[0] == "max"
    assert display.ax_.get_title("left") == f"AUC: max {results.auc('size')[1].mean():#.3g}"
    for name in ("measure", "method"):
        with pytest.raises(ValueError, match=name):
            RiskCurveDisplay.from_trials(results, **{f"{name}s": ["unknown"]})


def curves_of(results, loss):
    """The same with one trial of other methods."""
    return replace(
        results,
        methods=tuple(map(str, range(len(loss)))),
        levels=np.linspace(0, 1, loss.shape[1]),
        measures={"loss": loss[:, np.newaxis]},
        null=np.isnan(loss)[:, np.newaxis],
        trivial=np.zeros((len(loss), 1, loss.shape[1]), dtype=bool),
    )


def test_what_vanishes_is_said(data, results):
    levels = np.linspace(0, 1, 101)
    late = np.where(levels < 0.3, np.nan, levels)
    display = RiskCurveDisplay.from_trials(curves_of(results, late[np.newaxis]))
    title = display.ax_.get_legend().get_title().get_text()
    assert "all of its splits certify" in title
    loss = np.stack([levels, np.full(101, np.nan)])  # a curve that nobody could see
    display = RiskCurveDisplay.from_trials(curves_of(results, loss), measures=["loss"])
    assert "1 (nowhere)" in labels(display.ax_)
    none = run_trials(data, ["max"], [0.02, 0.03], n_trials=2, n_lambdas=3, random_state=0)
    display = RiskCurveDisplay.from_trials(none)
    title = display.ax_.get_legend().get_title().get_text()
    assert " ".join(title.split()).endswith(none.why_no_area())
    assert display.trivial_level is None


def test_figures_draw_on_given_axes(results, sampler):
    figure, axes = plt.subplots(3, 2)
    display = RiskCurveDisplay.from_trials(results, ax=axes[:, 1])
    assert display.figure_ is figure
    assert list(display.axes_) == list(axes[:, 1])
    assert FrontierDisplay.from_estimator(sampler, ax=axes[0]).ax_ is axes[0, 0]
    for one, wrong in ((display, axes[0, 0]), (FrontierDisplay.from_estimator(sampler), axes[0:3])):
        with pytest.raises(ValueError, match="ax"):
            one.plot(ax=wrong)


def test_curves_from_estimators_are_those_of_the_protocol(sampler, selector, component_data):
    options = {"n_trials": 3, "random_state": 0}
    display = RiskCurveDisplay.from_estimator(sampler, epsilons=[0.1, 0.35, 0.6], **options)
    assert display.methods == ("max",)
    many = RiskCurveDisplay.from_estimator(sampler, methods=["max", "sum"], n_trials=2)
    assert many.methods == ("max", "sum")
    options["alphas"] = np.linspace(0.2, 0.9, 8)
    pipeline = Pipeline([("sampler", sampler), ("selector", selector)])
    display = RiskCurveDisplay.from_estimator(pipeline, **options)
    same = run_component_trials({"support": component_data}, delta=0.1, **options)
    wanted = RiskCurveDisplay.from_trials(same)
    assert names_of_rows(display) == ["Loss", "Components selected", "Recall"]
    assert display.axes_[-1].get_xlabel() == "α (tolerated risk)"
    assert "support" in labels(display.ax_)
    for axes, other in zip(display.axes_, wanted.axes_, strict=True):
        assert axes.get_title("left") == other.get_title("left")
        for line, expected in zip(axes.lines, other.lines, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), expected.get_ydata())


def test_lines_differ_without_colour(results):
    loss = np.tile(np.linspace(0, 1, 5), (7, 1))
    display = RiskCurveDisplay.from_trials(curves_of(results, loss), measures=["loss"])
    lines = display.lines_
    assert len({line.get_marker() for line in lines}) == 7
    assert len({(str(line.get_linestyle()), line.get_marker()) for line in lines}) == 7
    assert len({line.get_color() for line in lines}) == 7
    grey = [float(np.dot(mpl.colors.to_rgb(li.get_color()), (0.299, 0.587, 0.114))) for li in lines]
    assert max(grey) < 0.75  # none is faint on white


def test_frontier_shows_the_sequence_of_tests(sampler, data):
    display = FrontierDisplay.from_estimator(sampler)
    result = sampler.result_
    legend = labels(display.ax_)
    assert f"valid ({len(result.valid_lambdas)})" in legend
    assert {"first failure, tests stop", r"$\hat{\lambda}$"} < set(legend)
    assert display.axes_[1].get_yscale() == "log"
    border = round(display.critical_loss * result.n_calibration)
    assert binomial_p_value(border, result.n_calibration, 0.3) <= 0.05
    assert binomial_p_value(border + 1, result.n_calibration, 0.3) > 0.05
    with pytest.warns(NullCalibrationWarning):
        null = sampling(epsilon=0.03).calibrate(data)
    display = FrontierDisplay.from_estimator(null)
    assert {r"$\hat{\lambda}$", "valid (0)"}.isdisjoint(labels(display.ax_))
    assert "first failure, tests stop" in labels(display.ax_)


def test_no_line_says_which_loss_passes_where_tests_count_different_prompts(data):
    policy = ThresholdPolicy(n_lambdas=6, abstain=True)
    sampler = sampling(epsilon=0.5, policy=policy).calibrate(data)
    result = sampler.result_
    assert len(set(result.n_counted.tolist())) > 1
    display = FrontierDisplay.from_estimator(sampler)
    assert np.isnan(display.critical_loss)
    assert not any("largest loss" in label for label in labels(display.axes_[0]))


def test_one_costly_rule_squeezes_no_others(sampler):
    result = sampler.result_
    for costly, scale in ((4.0, "linear"), (90.0, "symlog")):
        size = np.linspace(3.0, 1.0, len(result.frontier))
        size[0] = costly
        changed = replace(result, risks=replace(result.risks, size=size))
        weights = {"size_weight": 1.0, "excess_weight": 0.0, "draw_weight": 0.0}
        display = FrontierDisplay(result=changed, weights=weights)
        axes = display.plot().ax_
        assert axes.get_xscale() == scale
        low, high = axes.get_xlim()
        assert sum(low <= one <= high for one in axes.get_xticks()) > 2


def test_achievable_band(data, sampler):
    display = AchievableBandDisplay.from_estimator(sampler)
    found = np.logical_or.accumulate(data.admissible, axis=1)
    np.testing.assert_allclose(display.error, 1.0 - found.mean(axis=0))
    low, high = clopper_pearson(display.n_errors, 600)
    segments = display.ax_.containers[0][2][0].get_segments()
    np.testing.assert_allclose([one[:, 1] for one in segments], np.column_stack([low, high]))
    assert (display.reachable > display.error).all()
    assert display.n_calibration == sampler.result_.n_calibration == 400
    legend = " ".join(labels(display.ax_))
    assert f"achievable, not trivial: {display.error[-1]:.3f} to {display.error[0]:.3f}" in legend
    assert "smallest $\\epsilon$ within reach, n = 400" in legend
    assert len(display.ax_.patches) == 2  # what is trivial, and what is achievable
    display = AchievableBandDisplay.from_data(data, optimization_fraction=0.5, epsilon=0.2)
    errors = int(np.ceil(display.error[2] * 300))
    assert display.reachable[2] == smallest_epsilon(errors, 300, 0.05)
    # 21 / 75 * 50 is 14, and more than 14 in floating point
    rows = np.arange(75)[:, np.newaxis]
    few = CalibrationData(rows / 75, np.zeros((75, 1, 1)), rows >= 21)
    assert AchievableBandDisplay.from_data(few).reachable[0] == smallest_epsilon(14, 50, 0.05)


@pytest.mark.parametrize("risk", [0.1, 0.5])
def test_monitor_shows_wealth_and_limits(risk):
    monitor = RiskMonitor(0.3).update(np.random.default_rng(0).random(900) < risk)
    display = RiskMonitorDisplay.from_monitor(monitor)
    wealth, limits = display.axes_
    np.testing.assert_array_equal(wealth.lines[0].get_ydata(), np.maximum(monitor.e_values_, 1e-3))
    assert limits.lines[0].get_ydata()[-1] == monitor.risk_
    assert limits.lines[0].get_color() != wealth.lines[0].get_color()
    low, high = monitor.risk_interval_
    band = limits.collections[0].get_paths()[0].vertices[:, 1]
    assert {round(float(y), 9) for y in band} >= {round(low, 9), round(high, 9)}
    alarmed = f"alarm after {monitor.alarm_at_} outcomes" in labels(wealth)
    assert alarmed == monitor.alarm_ == (risk > 0.3)
    with pytest.raises(ValueError, match="monitor"):
        RiskMonitorDisplay.from_monitor(RiskMonitor(0.3))


def test_figures_are_of_estimators_that_have_something_to_show(data, sampler, selector):
    with pytest.raises(TypeError, match="ConformalSampler"):
        FrontierDisplay.from_estimator(selector)
    with pytest.raises(NotFittedError):
        RiskCurveDisplay.from_estimator(ComponentSelector())
    with pytest.warns(NullCalibrationWarning):
        few = sampling(epsilon=0.05).calibrate(data.take(range(10)))
    for without in (few, sampling(policy=ExitPolicy()).calibrate(data)):
        with pytest.raises(ValueError, match="estimator"):
            FrontierDisplay.from_estimator(without)
    answers = sampling(policy=AnswerPolicy(alpha=0.4)).calibrate(data)
    with pytest.raises(ValueError, match="AnswerPolicy"):
        RiskCurveDisplay.from_estimator(answers)
