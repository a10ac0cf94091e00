import re
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    Provenance,
    binomial_p_value,
    smallest_epsilon,
)
from sklearn_clm.calibration._surface import evaluate_configurations
from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.inspection import AchievableBandDisplay, CalibrationReport
from sklearn_clm.policies import ThresholdPolicy
from tests.evaluation.simulated import simulated_data


class Words(BaseGenerator):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[Generation("word")] * n_samples for _ in prompts]


def calibrated(data, epsilon=0.3, k_max=None, quality="likelihood", **thresholds):
    sampler = ConformalSampler(Words(), k_max=k_max or data.k_max, epsilon=epsilon, random_state=0)
    sampler.set_params(quality=quality, policy=ThresholdPolicy(**thresholds))
    return sampler.calibrate(data)


@pytest.fixture(scope="module")
def data():
    return simulated_data(900, 6)


@pytest.fixture(scope="module")
def sampler(data):
    return calibrated(data, set_score="sum")


def report_of(estimator):
    return CalibrationReport.from_estimator(estimator)


def section(report, heading):
    return next(part for part in report.sections if part.heading == heading)


def cells(report, heading):
    return {row[0]: row[1:] for row in section(report, heading).table[1:]}


def test_the_guarantee_in_words(sampler):
    text = section(report_of(sampler), "Guarantee").paragraphs[0]
    assert "With confidence 95 % over the calibration prompts" in text
    assert "with probability at least 70 %" in text


def test_nothing_to_warn_of(data):
    assert report_of(calibrated(data, epsilon=0.38, set_score="sum")).warnings == ()


def test_split_and_thresholds(sampler):
    report = report_of(sampler)
    assert cells(report, "Data") == {
        "prompts": ("900",),
        "optimisation part, finds the frontier": ("300",),
        "calibration part, tests it": ("600",),
        "draws for each prompt": ("6",),
        "seed of the draws": ("0",),
    }
    shown = cells(report, "Thresholds (lambda-hat)")
    assert shown["quality"][0] == f"{sampler.lambda_hat_.quality:.6g}"
    assert "set score sum" in shown["set_score"][1]


def test_tests_show_what_decided(sampler):
    rows = section(report_of(sampler), "Frontier and tests").table[1:]
    by_role = {row[-1]: row for row in rows}
    result = sampler.result_
    n_valid = len(result.valid_lambdas)
    assert by_role["failed"][0] == str(n_valid + 1)
    assert float(by_role["failed"][4]) > 0.05
    chosen = int(by_role["chosen"][0]) - 1
    assert tuple(result.frontier.lambdas[chosen]) == result.lambda_hat
    assert by_role["chosen"][3] == f"{result.n_errors[chosen]} of 600"


def test_expectations_are_those_of_the_configuration(sampler, data):
    shown = cells(report_of(sampler), "What to expect of predict")
    risks = evaluate_configurations(data, [sampler.lambda_hat_], set_score="sum")
    assert float(shown["error"][0]) == pytest.approx(risks.loss[0], abs=1e-4)
    for name, mean in (("size", risks.size), ("draws", risks.samples), ("excess", risks.excess)):
        assert float(shown[name][0]) == pytest.approx(mean[0], rel=1e-3)
        low, high = map(float, shown[name][1].split(" to "))
        assert low < mean[0] < high


def test_interval_of_the_mean_covers(data):
    # the mean of another large sample from the same source lies in nearly all intervals
    truth = simulated_data(20_000, 6, seed=99)
    inside = []
    for seed in range(25):
        sampler = calibrated(simulated_data(300, 6, seed=seed), set_score="first_k", n_lambdas=3)
        low, high = map(
            float, cells(report_of(sampler), "What to expect of predict")["draws"][1].split(" to ")
        )
        risks = evaluate_configurations(truth, [sampler.lambda_hat_], set_score="first_k")
        inside.append(low - 1e-3 <= risks.samples[0] <= high + 1e-3)
    assert np.mean(inside) >= 0.8


def test_band_and_more_prompts(sampler, data):
    report = report_of(sampler)
    band = cells(report, "Achievable band of epsilon")
    high = 1.0 - data.admissible[:, 0].mean()
    assert float(band["always one draw"][0]) == pytest.approx(high, abs=1e-4)
    result = sampler.result_
    rows = section(report, "What more prompts would gain").table[1:]
    assert float(rows[0][2]) == pytest.approx(result.smallest_epsilon, abs=1e-4)
    gained = [float(row[2]) for row in rows]
    assert gained == sorted(gained, reverse=True)
    assert gained[1] == pytest.approx(
        smallest_epsilon(2 * result.n_errors[0], 1200, 0.05), abs=1e-4
    )
    assert gained[-1] == pytest.approx(result.n_errors[0] / 600, abs=1e-4)


def test_what_to_do_in_use(sampler):
    text = CalibrationReport.from_estimator(sampler).to_markdown()
    in_use = text[text.index("In use") :]
    assert "sklearn_clm.evaluation.plan" in in_use
    assert f"The risk is above {sampler.epsilon:g}, or an event" in in_use
    assert "Do not calibrate on the audited prompts alone" in in_use


def test_null(data):
    with pytest.warns(NullCalibrationWarning):
        sampler = calibrated(data, epsilon=0.02)
    report = report_of(sampler)
    assert section(report, "Guarantee").paragraphs[0].startswith("None.")
    low = 1.0 - data.admissible.any(axis=1).mean()
    assert "epsilon = 0.02 is out of reach: even all 6 draws err" in report.warnings[0]
    # rounded up, so that the epsilon that is named does work
    (smallest,) = re.findall(r"have worked is (0\.\d+)\.", report.warnings[1])
    assert 0 <= float(smallest) - sampler.result_.smallest_epsilon < 1e-4
    assert not [part for part in report.sections if part.heading.startswith("Thresholds")]
    shown = cells(report, "What to expect of predict")
    assert shown["size"][0] == shown["draws"][0] == "6"
    assert float(shown["error"][0]) == pytest.approx(low, abs=1e-4)
    assert "failed: none passed." in section(report, "Frontier and tests").paragraphs[0]


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_draws_that_do_not_differ(data, epsilon):
    first = data.admissible[:, :1]
    same = CalibrationData(
        data.quality[:, [0] * 4],
        np.ones((900, 4, 4)),
        first[:, [0] * 4],
        texts=np.zeros((900, 4), dtype=int),
    )
    with warnings.catch_warnings(record=True) as caught:
        texts = report_of(calibrated(same, epsilon=epsilon)).warnings
    assert all("the other draws found nothing more" in str(one.message) for one in caught)
    assert any("The 4 draws of a prompt never differ" in text for text in texts)
    assert any("Draw at a temperature above 0" in text for text in texts)
    assert not any("k_max" in text for text in texts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NullCalibrationWarning)
        texts = report_of(calibrated(same.truncate(1), epsilon=epsilon)).warnings
    assert not any("never differ" in text for text in texts)


def test_more_draws_are_advised_where_they_help(data):
    with pytest.warns(NullCalibrationWarning):
        text = report_of(calibrated(data, epsilon=0.02)).warnings[0]
    assert "Raise epsilon or k_max" in text
    labels = np.repeat(data.admissible[:, :2], [1, 5], axis=1)  # all after the second are alike
    other = CalibrationData(data.quality, data.similarity, labels)
    with pytest.warns(NullCalibrationWarning):
        text = report_of(calibrated(other, epsilon=0.02)).warnings[0]
    assert "More draws will hardly help" in text


def test_too_few_prompts_to_test_at_all(data):
    with pytest.warns(NullCalibrationWarning):
        report = report_of(calibrated(data.take(range(12)), epsilon=0.1))
    assert "no p-value can reach delta=0.05" in report.warnings[-1]
    assert "Frontier and tests" not in report.to_markdown()


def test_warning_of_a_trivial_epsilon(data):
    assert (
        "epsilon = 0.6 is trivial: the first draw"
        in report_of(calibrated(data, epsilon=0.6)).warnings[0]
    )


def test_warning_of_small_n():
    with pytest.warns(NullCalibrationWarning):
        sampler = calibrated(simulated_data(45, 6, seed=3), epsilon=0.14, n_lambdas=5)
    warnings = [text for text in report_of(sampler).warnings if text.startswith("Small n")]
    assert "with 30 calibration prompts" in warnings[0]
    assert f"epsilon >= {smallest_epsilon(0, 30, 0.05):.3g}" in warnings[0]


def test_warning_of_null_near_by(data):
    epsilon = calibrated(data).result_.smallest_epsilon + 1e-6
    sampler = calibrated(data, epsilon=epsilon)
    assert sampler.lambda_hat_ is not None
    (warning,) = [t for t in report_of(sampler).warnings if t.startswith("Null is near by")]
    # by simulation: how often do 600 prompts with this error rate fail?
    rate = sampler.result_.n_errors[0] / 600
    errors = np.random.default_rng(0).binomial(600, rate, size=4000)
    failing = np.mean(binomial_p_value(errors, 600, epsilon) > 0.05)
    claimed = float(re.search(r"about ([\d.]+) %", warning).group(1)) / 100
    assert claimed == pytest.approx(failing, abs=0.03)


def test_warning_of_an_exhausted_budget():
    # quality tells nothing and sets stop at nothing reachable: all draws are made
    rng = np.random.default_rng(0)
    admissible = np.zeros((300, 4), dtype=bool)
    admissible[:, 3] = True
    data = CalibrationData(rng.random((300, 4)), np.zeros((300, 4, 4)), admissible)
    report = report_of(calibrated(data, set_score="max", epsilon=0.2))
    assert any(text.startswith("The budget is exhausted often") for text in report.warnings)


class Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_well_formed_and_escaped(data):
    def bold(quality):
        return float(np.max(quality))

    bold.__name__ = "<b>|max"
    report = report_of(calibrated(data.take(range(90)), set_score=bold, n_lambdas=2))
    parser = Balanced()
    text = report._repr_html_()
    parser.feed(text)
    assert not parser.open
    assert "<b>" not in text
    assert "<b>|max" in "".join(parser.text)
    assert "\\<b\\>\\|max" in report.to_markdown()


def test_references_of_other_prompts_are_suspected(data):
    labels = np.zeros_like(data.labels)
    labels[:10] = data.labels[:10]
    with pytest.warns(NullCalibrationWarning):
        sampler = calibrated(data.with_labels(labels))
    assert "Hardly any prompt has an admissible draw: check" in report_of(sampler).warnings[0]


def test_tests_of_several_budgets_are_told_apart(data):
    several = calibrated(data, k_max=[2, 4, 6])
    frontier = several.frontier_
    header, *rows = section(report_of(several), "Frontier and tests").table
    place = header.index("k_max")
    shown = [row for row in rows if row[0].isdigit()]
    assert [row[place] for row in shown] == [str(frontier.k_max[int(row[0]) - 1]) for row in shown]
    assert len({row[place] for row in shown}) > 1
    assert "k_max" not in section(report_of(calibrated(data)), "Frontier and tests").table[0]


def test_markdown_tables_are_regular(sampler):
    for line in report_of(sampler).to_markdown().splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
    assert str(report_of(sampler)) == report_of(sampler)._repr_markdown_()


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_save(sampler, tmp_path, name):
    sections = report_of(sampler).sections
    without_pictures = [replace(one, display=None) for one in sections]
    CalibrationReport(tuple(without_pictures)).save(tmp_path / name)
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert "Calibration report" in text
    assert text.startswith("# " if name.endswith(".md") else "<!DOCTYPE html>")


def test_save_refuses_other_suffixes(sampler, tmp_path):
    with pytest.raises(ValueError, match="path"):
        report_of(sampler).save(tmp_path / "report.pdf")


def test_report_needs_calibration_data(sampler, tmp_path):
    with pytest.raises(NotFittedError, match="no calibration data"):
        report_of(ConformalSampler(Words()))
    sampler.save_calibration(tmp_path / "calibration.json")
    loaded = ConformalSampler(Words(), k_max=6, epsilon=0.3, random_state=0)
    loaded.set_params(policy=ThresholdPolicy(set_score="sum"))
    with pytest.raises(NotFittedError, match="file"):
        report_of(loaded.load_calibration(tmp_path / "calibration.json"))


def test_report_of_a_pipeline_and_of_what_is_none(sampler):
    pipeline = Pipeline([("scale", StandardScaler()), ("sets", sampler)])
    assert report_of(pipeline).sections == report_of(sampler).sections
    with pytest.raises(TypeError, match="estimator"):
        report_of(Pipeline([("scale", StandardScaler())]))


def test_repr_is_short(sampler):
    shown = repr(report_of(sampler))
    assert shown.startswith("<CalibrationReport: Guarantee")
    assert len(shown) < 300


def test_how_many_prompts_the_means_are_over(sampler):
    assert "Means over the 900 prompts" in str(report_of(sampler))


def test_bare_arrays_are_of_unknown_provenance(sampler, data):
    text = section(report_of(sampler), "Guarantee").paragraphs[-1]
    assert "(provenance unknown)" in text
    # of which a file says a part
    known = CalibrationData(
        data.quality,
        data.similarity,
        data.admissible,
        provenance=Provenance(quality="likelihood", similarity="rouge_l", admission="exact_match"),
    )
    record = report_of(calibrated(known, quality="likelihood"))
    text = section(record, "Guarantee").paragraphs[-1]
    assert "with which generator, seed they were collected" in text


def test_left_out_tests_are_counted(sampler):
    _, *rows = section(report_of(sampler), "Frontier and tests").table
    shown = sum(row[0] != "..." for row in rows)
    left_out = sum(int(row[1].strip("()").split()[0]) for row in rows if row[0] == "...")
    assert left_out > 0
    assert shown + left_out == len(sampler.frontier_)


def test_one_configuration_is_singular():
    rng = np.random.default_rng(0)
    data = CalibrationData(rng.random((90, 1)), np.ones((90, 1, 1)), np.ones((90, 1), dtype=bool))
    assert "1 configurations" not in str(report_of(calibrated(data, n_lambdas=1)))
    assert "1 draws" not in str(report_of(calibrated(data, n_lambdas=1)))


def test_null_message_report_and_display_name_one_epsilon(data):
    with pytest.warns(NullCalibrationWarning) as caught:
        sampler = calibrated(data.take(range(400)), epsilon=0.03)
    named = float(re.search(r"would have worked is (0\.\d+)\.", str(caught[0].message)).group(1))
    report = report_of(sampler)
    shown = float(section(report, "What more prompts would gain").table[1][2])
    warned = float(re.search(r"have worked is (0\.\d+)\.", "".join(report.warnings)).group(1))
    display = AchievableBandDisplay.from_estimator(sampler)
    plt.close(display.figure_)
    exact = sampler.result_.smallest_epsilon
    assert named == shown == warned == np.ceil(display.reachable[-1] * 1e4) / 1e4
    assert display.reachable[-1] == exact


def test_html_shows_pictures(sampler):
    text = report_of(sampler).to_html()
    assert text.count('src="data:image/png;base64,') == 3
    assert text.count("http") == 0
    assert "![" not in report_of(sampler).to_markdown()


def test_html_without_matplotlib_has_no_pictures(sampler, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "<img" not in report_of(sampler).to_html()


@pytest.fixture(scope="module")
def components():
    rng = np.random.default_rng(0)
    scores = rng.random((300, 4))
    return ComponentCalibrationData.from_arrays(scores, rng.random((300, 4)) < scores**0.2)


def test_report_of_a_selector(components):
    selector = ComponentSelector(alpha=0.3, component_score="support").calibrate(components)
    report = report_of(selector)
    guarantee = section(report, "Guarantee").paragraphs[0]
    assert "all components selected for a new prompt" in guarantee
    assert "probability at least 70 %" in guarantee
    rows = {row[-1]: row for row in section(report, "Tests of thresholds").table[1:]}
    assert float(rows["chosen"][1]) == pytest.approx(selector.gamma_hat_, rel=1e-5)
    assert float(rows["chosen"][4]) <= 0.05 < float(rows["failed"][4])
    chosen = components.scores >= selector.gamma_hat_
    shown = cells(report, "What to expect of predict")
    assert float(shown["components selected"][0]) == pytest.approx(chosen.sum() / 300, rel=1e-3)
    wrong = set(components.prompt_index[chosen & ~components.admissible])
    assert float(shown["error"][0]) == pytest.approx(len(wrong) / 300, abs=1e-4)
    parser = Balanced()
    parser.feed(report.to_html())
    assert not parser.open


def test_report_of_a_null_selector(components):
    hopeless = ComponentCalibrationData(
        np.full(1200, 0.5), np.zeros(1200, dtype=bool), components.offsets
    )
    with pytest.warns(NullCalibrationWarning):
        selector = ComponentSelector(alpha=0.1, component_score="support").calibrate(hopeless)
    report = report_of(selector)
    assert "every selection is empty" in section(report, "Guarantee").paragraphs[0]
    assert any("is null" in text for text in report.warnings)
    with pytest.warns(NullCalibrationWarning):
        selector = ComponentSelector(alpha=0.1).calibrate(components.take(range(8)))
    assert "there are 8 calibration prompts" in report_of(selector).warnings[0]
    with pytest.raises(NotFittedError, match="no calibration data"):
        report_of(ComponentSelector())
