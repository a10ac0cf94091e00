import sys

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    binomial_p_value,
    smallest_epsilon,
)
from sklearn_clm.evaluation import RiskMonitor, run_component_trials, run_trials
from sklearn_clm.inspection import (
    AchievableBandDisplay,
    ComponentCurveDisplay,
    FrontierDisplay,
    GroupLossDisplay,
    PromptGainDisplay,
    RiskCurveDisplay,
    RiskMonitorDisplay,
)
from sklearn_clm.policies import ExitPolicy, ThresholdPolicy
from tests.evaluation.simulated import simulated_data
from tests.toy import ToyModel

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
    return run_trials(
        data, ("first_k", "max"), np.linspace(0.0, 1.0, 41), n_trials=5, n_lambdas=6, random_state=0
    )


@pytest.fixture(scope="module")
def component_data():
    rng = np.random.default_rng(0)
    scores = rng.random((500, 4))
    return ComponentCalibrationData.from_arrays(scores, rng.random((500, 4)) < scores**0.2)


@pytest.fixture(scope="module")
def sampler(data):
    return ConformalSampler(ToyModel(), k_max=6, epsilon=0.3, random_state=0).calibrate(data)


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_risk_curves_have_a_row_for_each_measure(results):
    display = RiskCurveDisplay.from_trials(results)
    assert [axes.get_ylabel() for axes in display.axes_] == [
        "Loss",
        "Relative excess",
        "Set size / $k_{max}$",
    ]
    assert display.axes_[-1].get_xlabel() == "ε (tolerated risk)"
    assert len(display.lines_) == 3 * 2
    assert display.figure_ is display.axes_[0].figure


def test_curves_are_means_over_trials_and_legends_have_areas(results):
    display = RiskCurveDisplay.from_trials(results, measures=["size"], methods=["max"])
    (line,) = display.lines_
    level, mean = line.get_data()
    np.testing.assert_array_equal(mean, results.mean("size")[1][: len(mean)])
    np.testing.assert_array_equal(level, results.levels[: len(level)])
    area = results.auc("size")[1].mean()
    assert labels(display.axes_[0])[0] == "max"
    assert display.axes_[0].get_title("left") == f"AUC: max {area:#.3g}"


def test_the_trivial_range_is_marked_and_takes_little_room(results):
    display = RiskCurveDisplay.from_trials(results)
    first = results.first_1_error.mean()
    assert display.trivial_level == pytest.approx(first, abs=0.05)
    assert display.axes_[0].get_xlim()[1] == pytest.approx(1.15 * display.trivial_level)
    # the diagonal is there to compare with
    diagonal = display.axes_[0].lines[0].get_xydata()
    np.testing.assert_array_equal(diagonal[:, 0], diagonal[:, 1])


def test_axes_begin_where_levels_can_be_reached():
    levels = np.linspace(0, 1, 101)
    for first, left in ((0.0, 0.0), (0.3, 0.0), (0.8, 0.7)):
        mean = np.where(levels < first - 1e-9, np.nan, levels)[np.newaxis]
        curves = {"levels": levels, "methods": ["a"], "auc": {"loss": np.array([0.5])}}
        display = RiskCurveDisplay(**curves, mean={"loss": mean}, std={"loss": 0 * mean}).plot()
        assert display.axes_[0].get_xlim() == pytest.approx((left, 1.0))
        np.testing.assert_allclose(display.axes_[0].lines[0].get_xdata(), [left, 1.0])


def test_without_usable_levels_the_legend_says_so(data):
    results = run_trials(data, ["max"], [0.02, 0.03], n_trials=2, n_lambdas=3, random_state=0)
    display = RiskCurveDisplay.from_trials(results)
    title = display.axes_[0].get_legend().get_title().get_text()
    assert " ".join(title.split()).endswith(results.why_no_area())
    assert display.trivial_level is None
    for axes in display.axes_:
        assert any("worth having" in text.get_text() for text in axes.texts)


def test_rows_with_curves_are_not_called_empty(results):
    for axes in RiskCurveDisplay.from_trials(results).axes_:
        assert not any("worth having" in text.get_text() for text in axes.texts)


def test_curves_draw_on_given_axes(results):
    figure, axes = plt.subplots(3, 2)
    display = RiskCurveDisplay.from_trials(results, ax=axes[:, 1])
    assert display.figure_ is figure
    assert list(display.axes_) == list(axes[:, 1])
    one = RiskCurveDisplay.from_trials(results, measures=["loss"], ax=axes[0, 0])
    assert one.axes_[0] is axes[0, 0]
    with pytest.raises(ValueError, match="ax"):
        RiskCurveDisplay.from_trials(results, ax=axes[0, 0])


def test_unknown_measure_or_method(results):
    with pytest.raises(ValueError, match="measure"):
        RiskCurveDisplay.from_trials(results, measures=["speed"])
    with pytest.raises(ValueError, match="method"):
        RiskCurveDisplay.from_trials(results, methods=["sum"])


def test_curves_from_a_sampler(sampler):
    display = RiskCurveDisplay.from_estimator(
        sampler, epsilons=np.linspace(0.1, 0.6, 11), n_trials=3, random_state=0
    )
    assert display.methods == ("max",)
    many = RiskCurveDisplay.from_estimator(sampler, methods=["max", "sum"], n_trials=2)
    assert many.methods == ("max", "sum")


def test_component_curves(component_data):
    noise = ComponentCalibrationData(
        np.random.default_rng(1).random(2000), component_data.admissible, component_data.offsets
    )
    results = run_component_trials(
        {"span_likelihood": component_data, "random": noise}, n_trials=4, random_state=0
    )
    display = ComponentCurveDisplay.from_trials(results)
    assert [axes.get_ylabel() for axes in display.axes_] == [
        "Loss",
        "Components selected",
        "Recall",
    ]
    assert display.axes_[-1].get_xlabel() == "α (tolerated risk)"
    assert set(results.methods) < set(labels(display.axes_[0]))


def test_component_curves_of_a_fitted_selector(component_data):
    selector = ComponentSelector(alpha=0.4, delta=0.1, component_score="support")
    with pytest.raises(NotFittedError):
        ComponentCurveDisplay.from_estimator(selector)
    selector.calibrate(component_data)
    options = {"alphas": np.linspace(0.2, 1.0, 9), "n_trials": 4, "random_state": 3}
    display = ComponentCurveDisplay.from_estimator(selector, **options)
    same = run_component_trials({"support": component_data}, delta=0.1, **options)
    wanted = ComponentCurveDisplay.from_trials(same)
    assert len(display.axes_) == len(wanted.axes_)
    for axes, other in zip(display.axes_, wanted.axes_):
        assert axes.get_title("left") == other.get_title("left")
        for line, expected in zip(axes.lines, other.lines, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), expected.get_ydata())


def test_lines_differ_without_colour():
    levels, names = np.linspace(0, 1, 5), [str(i) for i in range(7)]
    curves = {"loss": np.tile(levels, (7, 1))}
    display = RiskCurveDisplay(
        levels=levels, methods=names, mean=curves, std=curves, auc={"loss": np.ones(7)}
    ).plot()
    lines = display.lines_
    assert len({line.get_marker() for line in lines}) == 7
    assert len({(str(line.get_linestyle()), line.get_marker()) for line in lines}) == 7
    assert len({line.get_color() for line in lines}) == 7
    grey = [float(np.dot(mpl.colors.to_rgb(li.get_color()), (0.299, 0.587, 0.114))) for li in lines]
    assert max(grey) < 0.75  # none is faint on white


def test_frontier_shows_the_sequence_of_tests(sampler):
    display = FrontierDisplay.from_estimator(sampler)
    result = sampler.result_
    assert tuple(result.frontier.lambdas[display.selected]) == result.lambda_hat
    legend = labels(display.axes_[0])
    assert f"valid ({len(result.valid_lambdas)})" in legend
    assert "first failure, tests stop" in legend
    assert r"$\hat{\lambda}$" in legend
    assert display.axes_[0].get_xlabel().startswith("Objective of Eq. 7")
    assert display.axes_[1].get_ylabel().startswith("p-value")
    assert display.axes_[1].get_yscale() == "log"


def test_critical_loss_is_the_border_of_the_tests(sampler):
    display = FrontierDisplay.from_estimator(sampler)
    border = round(display.critical_loss * display.n_calibration)
    assert binomial_p_value(border, display.n_calibration, 0.3) <= 0.05
    assert binomial_p_value(border + 1, display.n_calibration, 0.3) > 0.05


def test_frontier_of_a_null_result(data):
    with pytest.warns(NullCalibrationWarning):
        null = ConformalSampler(ToyModel(), k_max=6, epsilon=0.03, random_state=0).calibrate(data)
    display = FrontierDisplay.from_estimator(null)
    assert display.selected is None
    assert display.n_valid == 0
    assert "first failure, tests stop" in labels(display.axes_[0])


def test_frontier_on_one_given_axes(sampler):
    _, ax = plt.subplots()
    display = FrontierDisplay.from_estimator(sampler, ax=ax)
    assert list(display.axes_) == [ax]
    with pytest.raises(ValueError, match="ax"):
        display.plot(ax=plt.subplots(3)[1])


def test_frontier_needs_tests(data):
    with pytest.warns(NullCalibrationWarning):
        few = ConformalSampler(ToyModel(), k_max=6, epsilon=0.05, random_state=0).calibrate(
            data.take(range(10))
        )
    with pytest.raises(ValueError, match="estimator"):
        FrontierDisplay.from_estimator(few)


def test_one_costly_rule_squeezes_no_others():
    for costly, scale in ((4.0, "linear"), (90.0, "symlog")):
        objective, loss = np.array([costly, 3.0, 2.0, 1.0]), np.array([0.1, 0.12, 0.2, 0.5])
        display = FrontierDisplay(
            objective=objective,
            loss=loss,
            optimization_objective=objective,
            optimization_loss=loss,
            p_values=loss,
            n_valid=2,
            selected=1,
            epsilon=0.3,
            delta=0.05,
            n_calibration=100,
        )
        assert display.plot().ax_.get_xscale() == scale


def test_an_exit_policy_has_no_frontier(data):
    exits = ConformalSampler(ToyModel(), k_max=6, epsilon=0.3, policy=ExitPolicy(), random_state=0)
    with pytest.raises(ValueError, match="estimator"):
        FrontierDisplay.from_estimator(exits.calibrate(data))


def test_achievable_band(data, sampler):
    display = AchievableBandDisplay.from_estimator(sampler)
    found = np.logical_or.accumulate(data.admissible, axis=1)
    np.testing.assert_allclose(display.error, 1.0 - found.mean(axis=0))
    assert (display.low < display.error).all()
    assert (display.error < display.high).all()
    assert (display.reachable > display.error).all()
    assert display.n_calibration == sampler.result_.n_calibration
    legend = " ".join(labels(display.ax_))
    assert f"achievable, not trivial: {display.error[-1]:.3f} to {display.error[0]:.3f}" in legend
    assert "smallest $\\epsilon$ within reach, n = 400" in legend
    assert display.ax_.get_xlabel() == "k (budget of draws)"


def test_reachable_epsilon_is_the_inverted_test(data):
    display = AchievableBandDisplay.from_data(data, optimization_fraction=0.5, epsilon=0.2)
    errors = int(np.ceil(display.error[2] * 300))
    assert display.reachable[2] == smallest_epsilon(errors, 300, 0.05)


def test_reachable_epsilon_counts_in_whole_numbers():
    # 21 / 75 * 50 is 14, and more than 14 in floating point
    admissible = np.arange(75)[:, np.newaxis] >= 21
    display = AchievableBandDisplay.from_data(admissible)
    assert display.n_calibration == 50
    assert display.reachable[0] == smallest_epsilon(14, 50, 0.05)


def test_band_of_bad_data():
    with pytest.raises(ValueError, match="data"):
        AchievableBandDisplay.from_data(np.ones(3))


def test_missing_matplotlib_is_explained(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'sklearn-clm\[plot\]'"):
        RiskCurveDisplay.from_trials(results)


@pytest.mark.parametrize("risk", [0.1, 0.5])
def test_monitor_shows_wealth_and_limits(risk):
    monitor = RiskMonitor(0.3).update(np.random.default_rng(0).random(900) < risk)
    display = RiskMonitorDisplay.from_monitor(monitor)
    wealth, limits = display.axes_
    np.testing.assert_array_equal(wealth.lines[0].get_ydata(), np.maximum(monitor.e_values_, 1e-3))
    assert limits.lines[0].get_ydata()[-1] == monitor.risk_
    low, high = monitor.risk_interval_
    band = limits.collections[0].get_paths()[0].vertices[:, 1]
    assert {round(float(y), 9) for y in band} >= {round(low, 9), round(high, 9)}
    alarmed = f"alarm after {monitor.alarm_at_} outcomes" in labels(wealth)
    assert alarmed == monitor.alarm_ == (risk > 0.3)
    assert display.alarm_at == monitor.alarm_at_


def test_monitor_on_given_axes():
    monitor = RiskMonitor(0.3).update([True])
    _, axes = plt.subplots()
    assert RiskMonitorDisplay.from_monitor(monitor, ax=axes).axes_.tolist() == [axes]
    with pytest.raises(ValueError, match="monitor"):
        RiskMonitorDisplay.from_monitor(RiskMonitor(0.3))


@pytest.mark.parametrize("display", [FrontierDisplay, RiskCurveDisplay, GroupLossDisplay])
def test_figures_of_samplers_refuse_selectors(display, component_data):
    selector = ComponentSelector(alpha=0.4, component_score="support").calibrate(component_data)
    with pytest.raises(TypeError, match="ConformalSampler"):
        display.from_estimator(selector)


def test_figures_of_selectors_refuse_samplers_and_take_pipelines(sampler, component_data):
    with pytest.raises(TypeError, match="ComponentSelector"):
        ComponentCurveDisplay.from_estimator(sampler)
    selector = ComponentSelector(alpha=0.4, component_score="support").calibrate(component_data)
    pipeline = Pipeline([("sampler", sampler), ("selector", selector)])
    display = ComponentCurveDisplay.from_estimator(pipeline, alphas=[0.4, 0.6], n_trials=2)
    assert "support" in labels(display.axes_[0])


@pytest.mark.parametrize(("n_errors", "n"), [(0, 60), (1, 113), (3, 113), (30, 300)])
def test_what_more_prompts_bring_is_the_binomial_bound(n_errors, n):
    display = PromptGainDisplay(n_errors=n_errors, n_calibration=n, delta=0.05, level=0.12).plot()
    sizes, levels = display.ax_.lines[0].get_data()
    # no level can be certified below that of no error at all
    assert np.all(levels >= 1.0 - 0.05 ** (1.0 / sizes) - 1e-9)
    assert np.all(np.diff(levels) < 0.0)
    whole = np.isclose((sizes * n_errors / n) % 1.0, 0.0)
    assert np.allclose(levels[whole], display.smallest(sizes[whole]), atol=1e-6)
    assert np.all(levels <= display.smallest(sizes) + 1e-6)


def test_losses_of_groups_are_those_of_their_calibration_prompts(sampler):
    rng, hard = np.random.default_rng(0), np.arange(600) % 2 == 0
    admissible = np.where(hard[:, None], 0.4, 0.9) > rng.random((600, 4))
    quality = rng.random((600, 4)) * 0.6 + 0.4 * admissible
    data = CalibrationData(quality, np.zeros((600, 4, 4)), admissible)
    policy = ThresholdPolicy(n_lambdas=6, size_weight=2.0)
    one = ConformalSampler(ToyModel(), k_max=4, epsilon=0.2, policy=policy, random_state=0)
    one.calibrate(data, groups=np.where(hard, "hard", "easy"))
    display = GroupLossDisplay.from_estimator(one)
    assert display.groups == ["hard", "easy"]
    sizes = [one.groups_[name].result.n_calibration for name in display.groups]
    assert display.n_prompts.tolist() == sizes
    assert np.all(display.grouped / display.n_prompts <= 0.2)
    result = one.result_
    assert display.pooled.sum() == result.n_errors[result.position]
    assert display.failed_by_pooling == ["hard"]
    assert display.ax_.get_yticklabels()[0].get_text().startswith("hard (n=")
    with pytest.raises(ValueError, match="groups"):
        GroupLossDisplay.from_estimator(sampler)
