"""Reports: what they promise, which numbers they show, and what they warn of."""

import re
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning, __version__
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    Provenance,
    clopper_pearson,
    search_frontier,
)
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.calibration.words import percent
from sklearn_clm.evaluation.sizes import chance_to_certify
from sklearn_clm.generators import FunctionGenerator, PrecomputedGenerator
from sklearn_clm.inspection import AchievableBandDisplay, CalibrationReport
from sklearn_clm.policies import CovariateShift, ExitPolicy, Groups, Losses, ThresholdPolicy
from tests.evaluation.simulated import simulated_data
from tests.pages import Page
from tests.toy import ToyModel, questions, toy_sampler


def calibrated(data, epsilon=0.3, k_max=None, policy=None):
    k_max = data.k_max if k_max is None else k_max
    with warnings.catch_warnings(action="ignore"):
        return toy_sampler(k_max=k_max, epsilon=epsilon, policy=policy).calibrate(data)


def few(n_lambdas=6, **options):
    return ThresholdPolicy(n_lambdas=n_lambdas, **options)


def fitted(n=200, references=None, **options):
    prompts, right = questions(n)
    with warnings.catch_warnings(action="ignore", category=NullCalibrationWarning):
        return toy_sampler(**options).fit(prompts, references or right)


def report_of(estimator):
    return CalibrationReport.from_estimator(estimator)


def section(report, heading):
    return next(part for part in report.sections if part.heading == heading)


def cells(report, heading):
    return {row[0]: row[1:] for row in section(report, heading).table[1:]}


def rows_by_name(report, heading="Groups"):
    header, *rows = section(report, heading).table
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def interval(text):
    return tuple(map(float, text.split(" to ")))


@pytest.fixture(scope="module")
def data():
    return simulated_data(900, 6)


@pytest.fixture(scope="module")
def sampler(data):
    return calibrated(data, policy=ThresholdPolicy(set_score="sum"))


@pytest.fixture(scope="module")
def report(sampler):
    return report_of(sampler)


def test_guarantee_data_thresholds_and_use(report, sampler):
    guarantee = section(report, "Guarantee").paragraphs[0]
    assert "With confidence 95 % over the calibration prompts" in guarantee
    assert "with probability at least 70 %" in guarantee
    assert cells(report, "Data") == {
        "prompts": ("900",),
        "optimisation part, finds the frontier": ("300",),
        "calibration part, tests it": ("600",),
        "most draws for a prompt": ("6",),
        "seed of the draws": ("0",),
    }
    shown = cells(report, "Thresholds (lambda-hat)")
    assert shown["quality"][0] == f"{sampler.lambda_hat_.quality:.6g}"
    assert "set score sum" in shown["set_score"][1]
    assert "RiskMonitor" in " ".join(section(report, "In use").paragraphs)


def test_the_order_of_the_tests_is_named_as_it_is(report, data):
    assert "tested from the safest on" in section(report, "Frontier and tests").paragraphs[0]
    abstaining = calibrated(data, epsilon=0.5, policy=few(abstain=True))
    assert np.any(np.diff(abstaining.result_.frontier.loss) < 0)
    (text,) = section(report_of(abstaining), "Frontier and tests").paragraphs
    assert "tested in the order of the frontier" in text


def test_tests_show_what_decided_and_count_what_is_left_out(report, sampler):
    _, *rows = section(report, "Frontier and tests").table
    by_role = {row[-1]: row for row in rows}
    result = sampler.result_
    assert by_role["failed"][0] == str(len(result.valid_lambdas) + 1)
    assert float(by_role["failed"][4]) > 0.05
    chosen = int(by_role["chosen"][0]) - 1
    assert tuple(result.frontier.lambdas[chosen]) == result.lambda_hat
    assert by_role["chosen"][3] == f"{result.n_errors[chosen]} of 600"


def test_tests_of_several_budgets_are_told_apart(data, report):
    several = calibrated(data, k_max=[2, 4, 6])
    rows = rows_by_name(report_of(several), "Frontier and tests")
    shown = {i: row["k_max"] for i, row in rows.items() if i.isdigit()}
    assert shown == {i: str(several.frontier_.k_max[int(i) - 1]) for i in shown}
    assert len(set(shown.values())) > 1
    assert "k_max" not in section(report, "Frontier and tests").table[0]


def test_expectations_are_those_of_the_configuration(report, sampler, data):
    shown = cells(report, "What to expect of predict")
    assert "Means over the 900 prompts" in str(report)
    risks = evaluate_configurations(data, [sampler.lambda_hat_], set_score="sum")
    assert float(shown["error"][0]) == pytest.approx(risks.loss[0], abs=1e-4)
    for name, mean in (("size", risks.size), ("draws", risks.samples), ("excess", risks.excess)):
        assert float(shown[name][0]) == pytest.approx(mean[0], rel=1e-3)
        low, high = interval(shown[name][1])
        assert low < mean[0] < high


def test_interval_of_the_mean_covers():
    # the mean of another large sample from the same source lies in nearly all intervals
    truth = simulated_data(20_000, 6, seed=99)
    inside = []
    for seed in range(25):
        policy = ThresholdPolicy(set_score="first_k", n_lambdas=3)
        one = calibrated(simulated_data(300, 6, seed=seed), policy=policy)
        low, high = interval(cells(report_of(one), "What to expect of predict")["draws"][1])
        risks = evaluate_configurations(truth, [one.lambda_hat_], set_score="first_k")
        inside.append(low - 1e-3 <= risks.samples[0] <= high + 1e-3)
    assert np.mean(inside) >= 0.8


def test_band(report, data):
    shown = [float(row[1]) for row in section(report, "Achievable band of epsilon").table[1:]]
    wrong = ~data.admissible
    assert shown == pytest.approx([wrong[:, 0].mean(), wrong.all(axis=1).mean()], abs=1e-4)


def test_null(data):
    one = calibrated(data, epsilon=0.02)
    report = report_of(one)
    assert section(report, "Guarantee").paragraphs[0].startswith("Nothing could be certified,")
    assert "sets of all 6 draws still for 8.22 %" in report.warnings[0]
    named = np.ceil(one.result_.smallest_epsilon * 1e4) / 1e4  # so that it does work
    assert f"have worked is {named:g}." in report.warnings[0]
    assert not [part for part in report.sections if part.heading.startswith("Thresholds")]
    shown = cells(report, "What to expect of predict")
    assert shown["size"][0] == shown["draws"][0] == "6"
    low = 1.0 - data.admissible.any(axis=1).mean()
    assert float(shown["error"][0]) == pytest.approx(low, abs=1e-4)
    assert "failed: none passed." in section(report, "Frontier and tests").paragraphs[0]


def test_too_few_prompts_to_test_at_all(data):
    report = report_of(calibrated(data.take(range(12)), epsilon=0.1))
    assert "no p-value can reach delta=0.05" in report.warnings[-1]
    assert "Frontier and tests" not in report.to_markdown()


def late_draws(_):
    # quality tells nothing, and only the last draw is right: all draws are made
    rng, labels = np.random.default_rng(0), np.zeros((300, 4), dtype=bool)
    labels[:, 3] = True
    return CalibrationData(rng.random((300, 4)), np.zeros((300, 4, 4)), labels)


@pytest.mark.parametrize(
    ("change", "epsilon", "text"),
    [
        (lambda data: data, 0.5, "epsilon=0.5 promises nothing more"),
        (late_draws, 0.02, "nothing smaller than the set of all"),
    ],
)
def test_warnings(data, change, epsilon, text):
    assert any(text in one for one in report_of(calibrated(change(data), epsilon)).warnings)


def test_warnings_are_not_given_in_vain(data):
    policy = ThresholdPolicy(set_score="sum")
    assert report_of(calibrated(data, epsilon=0.38, policy=policy)).warnings == ()


def test_markdown_is_well_formed_and_escaped(data):
    def bold(quality):
        return float(np.max(quality))

    bold.__name__ = "<b>|max"
    policy = ThresholdPolicy(set_score=bold, n_lambdas=2)
    report = report_of(calibrated(data.take(range(90)), policy=policy))
    assert "\\<b\\>\\|max" in report.to_markdown()
    assert all(line[-1] == "|" for line in str(report).splitlines() if line[:1] == "|")


def test_html_shows_pictures_where_there_is_matplotlib(report, monkeypatch):
    text = report.to_html()
    assert text.count('src="data:image/png;base64,') == 2
    assert text.count("http") == 0
    assert "![" not in report.to_markdown()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "<img" not in report.to_html()
    assert report.to_html().count("where sklearn-clm[plot] is installed") == 2


def test_it_says_of_what_it_is(tmp_path):
    def ask(prompt, seed):
        return "yes" if seed % 3 else "no"

    generator = CachedGenerator(FunctionGenerator(ask), tmp_path / "draws.sqlite")
    sampler = toy_sampler(generator, quality=lambda prompt, draw: 1.0)
    sampler.fit(questions(60)[0], ["yes"] * 60)
    said = section(report_of(sampler), "Guarantee").paragraphs[1]
    assert "CachedGenerator of FunctionGenerator of test_it_says" in said
    assert "<lambda>, similarity rouge_l, admission exact_match." in said
    assert __version__ in said
    assert re.search(r"Report of 20\d\d-\d\d-\d\d", said)
    selector = ComponentSelector(sampler, alpha=0.5, component_score="support")
    selector.fit(questions(60, 100)[0], ["yes"] * 60)
    said = section(report_of(selector), "Guarantee").paragraphs[1]
    assert "of FunctionGenerator of" in said
    assert "splitter sentence, component_score support" in said
    data = selector.calibration_data_
    said = section(
        report_of(ComponentSelector(alpha=0.5, component_score="support").calibrate(data)),
        "Guarantee",
    )
    assert "the generator unknown" in said.paragraphs[1]


def test_save(report, tmp_path):
    plain = CalibrationReport(tuple(replace(one, display=None) for one in report.sections))
    for name, start in (("report.md", "# Calibration report"), ("report.html", "<!DOCTYPE html>")):
        plain.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    with pytest.raises(ValueError, match="path"):
        plain.save(tmp_path / "report.pdf")


def test_reports_are_of_calibrated_estimators_with_data(sampler, report, tmp_path):
    assert repr(report).startswith("<CalibrationReport: Guarantee")
    pipeline = Pipeline([("scale", StandardScaler()), ("sets", sampler)])
    assert report_of(pipeline).sections == report.sections
    for other in (Pipeline([("scale", StandardScaler())]), GridSearchCV(sampler, {})):
        with pytest.raises(TypeError, match="estimator"):
            report_of(other)
    for one in (ConformalSampler(ToyModel()), ComponentSelector()):
        with pytest.raises(NotFittedError, match="no calibration data"):
            report_of(one)
    sampler.save_calibration(tmp_path / "calibration.json")
    loaded = ConformalSampler(ToyModel(), k_max=6, epsilon=0.3, random_state=0)
    loaded.set_params(policy=ThresholdPolicy(set_score="sum"))
    loaded.load_calibration(tmp_path / "calibration.json")
    with pytest.raises(NotFittedError, match="file"):
        AchievableBandDisplay.from_estimator(loaded)
    same = report_of(loaded)
    headings = ["Guarantee", "Thresholds (lambda-hat)", "In use", "Symbols"]
    assert [one.heading for one in same.sections] == headings
    assert section(same, "Guarantee") == section(report, "Guarantee")


@pytest.mark.parametrize(
    ("epsilon", "n", "answer", "others"),
    [
        (0.3, 900, "Yes, with 900 prompts. Another 900 prompts would", "in 100 % of cases, since"),
        (0.12, 90, "No, with 90 prompts. Another 90 prompts would", "with the same split"),
        (0.02, 900, "No, with 900 prompts.", "as here, no number up to 100,000 would in 80 %"),
    ],
)
def test_what_matters_comes_first(data, epsilon, n, answer, others):
    one = calibrated(data.take(range(n)), epsilon)
    report = report_of(one)
    page = report.to_html()
    assert page.count("<details") == sum(part.folded for part in report.sections) >= 4
    assert page.index("What to expect") < page.index("enough?") < page.index("<details")
    # the promise stands against the errors of the calibration prompts
    summary = report.sections[0].summary
    assert (summary.held is not None) == one.calibration_.certified
    if summary.held is not None:
        error = float(cells(report, "What to expect of predict")["error"][0])
        assert summary.held == pytest.approx(1 - error, abs=1e-4)
        assert summary.promised == pytest.approx(1 - epsilon)
        assert "promised</div>" in page.partition("<h3>")[0]
    # the first picture is seen at once
    assert page.count("<details open>") == 1
    folded = page.partition("<details open>")[2].partition("</details>")[0]
    assert "<img" in folded
    assert "<img" not in page.partition("<details open>")[0]
    (text,) = section(report, "Were these prompts enough?").paragraphs
    assert text.startswith(answer)
    assert others in text
    tests = one.result_  # simulated where planning is tested
    low, high = clopper_pearson(int(tests.n_errors[0]), tests.n_calibration)
    chances = chance_to_certify(tests.n_calibration, [high, low], epsilon, 0.05)
    between = " to ".join(dict.fromkeys(map(percent, chances)))
    assert f"epsilon = {epsilon} in {between} of cases, since" in text


def test_what_is_tested_first_is_all_draws_only_where_it_is(data):
    learnt = search_frontier(data.take(range(300)), set_score="sum")
    tested = data.take(range(300, 900))
    bold = learnt.ordered(np.arange(len(learnt))[9:])
    for frontier, first in [
        (learnt, "taking all draws"),
        (bold, "the first configuration that is tested"),
    ]:
        policy = ThresholdPolicy(set_score="sum", frontier=frontier)
        report = report_of(calibrated(tested, policy=policy))
        (text,) = section(report, "Were these prompts enough?").paragraphs
        risks = evaluate_configurations(tested, frontier.lambdas[:1], set_score="sum")
        interval = clopper_pearson(int(risks.n_errors[0]), tested.n_prompts)
        said = " to ".join(map(percent, interval))
        assert f"since {first} errs for {said} of new prompts" in text


def test_bare_arrays_are_of_unknown_provenance(report, data):
    assert "(provenance unknown)" in section(report, "Guarantee").paragraphs[-1]
    # of which a file says a part
    known = Provenance(quality="likelihood", similarity="rouge_l", admission="exact_match")
    arrays = data.quality, data.similarity, data.admissible
    one = report_of(calibrated(CalibrationData(*arrays, provenance=known)))
    text = section(one, "Guarantee").paragraphs[-1]
    assert "with which generator, seed they were collected" in text


def test_exit_policies_and_both_guarantees():
    one = fitted(policy=ExitPolicy())
    text = str(report_of(one))
    for part in ("confidence 95 %", "## Exit policy", "level u-hat", "learns the policy"):
        assert part in text
    left, labels = one.calibration_.rule.outcome, one.calibration_data_.admissible
    n = left.n_calibration
    assert left.safest.n_errors <= left.n_errors <= left.n_errors_allowed
    assert (left.sizes.mean(), left.draws.mean()) == (left.size, left.samples)
    assert f"| error | {left.n_errors / n:.4f} |" in text
    assert f"| always one draw | {1 - labels[:, 0].mean():.4f} |" in text
    one = fitted(policy=ExitPolicy(guarantee="marginal"))
    text = str(report_of(one))
    assert "marginal guarantee" in text
    assert "With confidence" not in text


def odd(prompt):
    return int(prompt.split()[-1]) % 2 == 1


def test_lazy_judging_shows_bounds_and_judgements():
    text, eager = (str(report_of(fitted(judging=judging))) for judging in ("lazy", "all"))
    size, draws = (re.search(rf"\n\| {name} .*", eager).group() for name in ("size", "draws"))
    assert size in text
    assert draws in text
    assert "| judged for each prompt |" in text
    assert "at most" in text
    one = fitted(400, policy=ExitPolicy(), judging="lazy", groups=Groups(by=odd))
    for rule in one.groups_.values():
        assert rule.certified
        assert rule.outcome.n_errors <= rule.outcome.n_errors_allowed
    rows = str(report_of(one)).splitlines()
    rows = [row for row in rows if row.startswith(("| error |", "| True |", "| False |"))]
    # a bound where labels are unknown, the number itself where they are not
    bounds = [bool(rule.outcome.errors.bound.words) for rule in one.groups_.values()]
    assert ["at most" in row for row in rows] == bounds
    assert any(bounds)
    rows = str(report_of(fitted(policy=ExitPolicy()))).splitlines()
    assert not any("at most" in row for row in rows if row.startswith("| error |"))


@pytest.mark.parametrize(
    ("policy", "what"), [(ExitPolicy(), "no exit level"), (None, "no configuration")]
)
def test_null_of_lazy_judging(policy, what):
    text = str(report_of(fitted(references=["none"] * 200, policy=policy, judging="lazy")))
    assert "Nothing could be certified" in text
    assert f"{what} is certified" in text


def test_which_losses_are_kept():
    def wrong(prompt, reference, one):
        return sum(response != reference for response in one) / max(len(one), 1)

    losses = Losses({"wrong": wrong}, {"wrong": 0.7})
    text = str(report_of(fitted(120, k_max=3, epsilon=0.5, losses=losses, policy=few(3))))
    assert "mean of each loss below is at most its level" in text
    assert "Other losses" in text


def world(n=600, seed=0):
    """Half of the prompts are hard."""
    rng = np.random.default_rng(seed)
    hard = np.arange(n) % 2 == 0
    admissible = np.where(hard[:, None], 0.4, 0.9) > rng.random((n, 4))
    quality = rng.random((n, 4)) * 0.6 + 0.4 * admissible
    data = CalibrationData(quality, np.zeros((n, 4, 4)), admissible)
    return data, np.where(hard, "hard", "easy")


def test_what_holds_within_groups_and_under_shift():
    prompts, right = questions(600)
    shift = CovariateShift(lambda prompt: 1.5 if odd(prompt) else 0.5, weight_bound=2.0)
    parts = {"shift": shift.set_params(estimated=True), "groups": Groups(odd, guarantee="all")}
    text = str(report_of(toy_sampler(k_max=4, policy=few(), **parts).fit(prompts, right)))
    assert "of the group, distributed as the weights describe," in text
    for part in ("For all certified groups at once", "with confidence 95 %", "prompts offered"):
        assert part in text
    assert "approximate: weights are estimated" in text
    assert "from the same distribution" not in text


def grouped(data, names, **options):
    return toy_sampler(k_max=4, **options).calibrate(data, groups=names)


@pytest.mark.parametrize("policy", [few(), ExitPolicy()])
def test_the_rule_of_each_group(policy):
    data, names = world(300)
    one = grouped(data, names, policy=policy, epsilon=0.3)
    report = report_of(one)
    for name, row in rows_by_name(report).items():
        found = one.groups_[name]
        count, n = map(int, row["errors"].split(" of "))
        assert count / n <= 0.3
        assert row["rule"].startswith(found.words)
        low, high = interval(row["95 % interval"])
        assert low < count / n < high
        assert 0 <= float(row["smallest epsilon"]) - found.outcome.smallest_level < 1e-4
    assert "For each certified group on its own" in str(report)
    assert "What to expect of predict" not in str(report)  # by a rule that nobody gets


@pytest.mark.parametrize("policy", [few(), ExitPolicy()])
def test_what_each_group_will_get(policy):
    data, names = world(300)
    names[-2:] = "rare"
    with pytest.warns(NullCalibrationWarning, match=r"'rare' is null: the number of .* is [12],"):
        one = grouped(data, names, policy=policy, epsilon=0.15)
    report = report_of(one)
    rows = rows_by_name(report)
    costs = one.groups_["easy"].costs
    easy = float(rows["easy"]["size"]), float(rows["easy"]["draws"])
    assert easy == pytest.approx(costs, rel=1e-3)
    assert easy[1] < 4
    for name in ("hard", "rare"):
        assert (rows[name]["size"], rows[name]["draws"]) == ("", "4")  # of how many texts
    assert rows["rare"]["errors"].startswith("the number of calibration prompts is ")
    for name, text in zip(("hard", "rare"), report.warnings):
        assert text.startswith(f"Group '{name}' is null")


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    scores = rng.random((300, 4))
    return ComponentCalibrationData.from_arrays(scores, rng.random((300, 4)) < scores**0.2)


def selecting(data, names=None, alpha=0.3, **options):
    one = ComponentSelector(alpha=alpha, component_score="support", **options)
    with warnings.catch_warnings(action="ignore"):
        return one.calibrate(data, **({} if names is None else {"groups": names}))


def test_report_of_a_selector(parts):
    selector = selecting(parts)
    report = report_of(selector)
    guarantee = section(report, "Guarantee").paragraphs[0]
    assert "all components selected for a new prompt" in guarantee
    assert "probability at least 70 %" in guarantee
    rows = {row[-1]: row for row in section(report, "Tests of thresholds").table[1:]}
    assert float(rows["chosen"][1]) == pytest.approx(selector.gamma_hat_, rel=1e-5)
    assert float(rows["chosen"][4]) <= 0.05 < float(rows["failed"][4])
    chosen = parts.scores >= selector.gamma_hat_
    shown = cells(report, "What to expect of predict")
    assert float(shown["components selected"][0]) == pytest.approx(chosen.sum() / 300, rel=1e-3)
    wrong = set(parts.prompt_index[chosen & ~parts.admissible])
    assert float(shown["error"][0]) == pytest.approx(len(wrong) / 300, abs=1e-4)
    assert not Page(report.to_html()).open


@pytest.mark.parametrize("max_wrong", [0, 2])
def test_report_of_a_selector_leads_with_what_is_kept(parts, max_wrong):
    selector = selecting(parts, max_wrong=max_wrong)
    report = report_of(selector)
    chosen = (parts.scores >= selector.gamma_hat_).reshape(300, 4)
    right = parts.admissible.reshape(300, 4)
    some = right.any(axis=1)
    recall = (chosen & right)[some].sum(axis=1) / right[some].sum(axis=1)
    empty = ~chosen.any(axis=1)
    leading = {name: number for number, name in report.sections[0].summary.others[:3]}
    assert leading == {
        "components selected": f"{chosen.sum() / 300:.1f}",
        "share of the right ones": f"{recall.mean():.0%}",
        "empty selections": f"{empty.mean():.0%}",
    }
    shown = cells(report, "What to expect of predict")
    low, high = clopper_pearson(int(empty.sum()), 300)
    assert shown["empty selections"][1] == f"{low:.4g} to {high:.4g}"
    assert float(shown["share of the right ones"][0]) == pytest.approx(recall.mean(), rel=1e-3)
    wrong = (chosen & ~right).sum(axis=1) > max_wrong
    assert float(shown["error"][0]) == pytest.approx(wrong.mean(), abs=1e-4)
    levels = section(report, "Other levels").table[1:]
    kept = [float(row[2].partition(" ")[0]) for row in levels]
    assert kept == sorted(kept)
    own = selecting(parts, alpha=0.1, max_wrong=max_wrong)
    (row,) = (row for row in levels if row[0] == "0.1")
    assert float(row[1]) == pytest.approx(own.gamma_hat_, rel=1e-3)


def test_report_of_a_null_selector(parts):
    hopeless = ComponentCalibrationData(np.full(1200, 0.5), np.zeros(1200, bool), parts.offsets)
    report = report_of(selecting(hopeless, alpha=0.1))
    assert "every selection is empty" in section(report, "Guarantee").paragraphs[0]
    assert any("is null" in text for text in report.warnings)
    report = report_of(selecting(parts.take(range(8)), alpha=0.1))
    assert "calibration prompts is 8, " in report.warnings[0]


def components(seed=0, n=400):
    """Scores of one group mean less than those of the other, and a third group is never right."""
    rng = np.random.default_rng(seed)
    names = np.repeat(["easy", "hard", "wrong", "rare"], [n // 2, n // 4, n // 4 - 5, 5])
    rng.shuffle(names)
    scores = np.where((names == "wrong")[:, np.newaxis], 1.0, rng.random((n, 5)))
    power = np.select([names == "easy", names == "hard"], [0.1, 2.0], 0.1)
    right = (rng.random((n, 5)) < scores ** power[:, np.newaxis]) & (names != "wrong")[:, None]
    return ComponentCalibrationData.from_arrays(scores, right), names


def test_reports_of_selectors_say_what_each_group_will_get():
    data, names = components()
    one = selecting(data, names)
    report = report_of(one)
    rows = rows_by_name(report)
    assert len({one.groups_["easy"], one.groups_["hard"], one.gamma_hat_}) == 3
    assert "For each certified group on its own" in str(report)
    for name in ("easy", "hard"):
        own = data.take(np.flatnonzero(names == name))
        chosen = own.scores >= one.groups_[name]
        n_errors, n = len({*own.prompt_index[chosen & ~own.admissible]}), own.n_prompts
        shown = rows[name]
        assert shown[""] == "certified"
        assert float(shown["rule"].split()[1]) == pytest.approx(one.groups_[name], abs=1e-4)
        assert shown["errors"] == f"{n_errors} of {n}"
        right = own.admissible
        n_right = np.bincount(own.prompt_index[right], minlength=n)
        n_kept = np.bincount(own.prompt_index[right & chosen], minlength=n)
        means = {
            "components selected": chosen.sum() / n,
            "share of the right ones": np.mean(n_kept[n_right > 0] / n_right[n_right > 0]),
            "empty selections": 1 - len({*own.prompt_index[chosen]}) / n,
        }
        for what, mean in means.items():
            found, between = shown[f"{what} (95 % interval)"].rstrip(")").split(" (")
            assert float(found) == pytest.approx(mean, abs=1e-3)
            low, high = interval(between)
            assert low <= mean <= high
        low, high = interval(shown["95 % interval"])
        assert low < n_errors / n < high
        smallest = one.calibration_.rules[name].outcome.smallest_level
        assert 0 <= float(shown["smallest alpha"]) - smallest < 1e-4
    for name, n_selected in (("wrong", "0 (0 to 0)"), ("rare", "")):
        shown = rows[name]
        assert (shown[""], shown["rule"]) == ("null", "empty selections")
        assert shown["components selected (95 % interval)"] == n_selected
    assert rows["wrong"]["errors"] == f"0 of {np.sum(names == 'wrong')}"
    assert "with fewer than" in rows["rare"]["errors"]
    null = [f"Group {str(name)!r} is null" for name in rows if rows[name][""] == "null"]
    assert [text.split(":")[0] for text in report.warnings] == null


POOLED_SECTIONS = {"Threshold (gamma-hat)", "Tests of thresholds", "What to expect of predict"}


def test_reports_of_selectors_leave_out_a_threshold_that_nobody_gets():
    data, names = components()
    # null for all prompts together, and for groups that are never right
    one = selecting(data, names, alpha=0.2)
    assert one.gamma_hat_ == np.inf > one.groups_["easy"]
    report = report_of(one)
    assert not POOLED_SECTIONS & {part.heading for part in report.sections}
    assert len(report.warnings) == 2
    assert {part.heading for part in report_of(selecting(data)).sections} > POOLED_SECTIONS


def test_a_null_by_texts_that_are_taken_for_one_counts_errors_of_all_draws():
    rng = np.random.default_rng(0)
    prompts = [f"What is {i} + 1?" for i in range(300)]
    references = [f"The answer is {i + 1}." for i in range(300)]
    draws = [
        [f"The answer is {i + 1 + (rng.random() < 0.4) * rng.integers(1, 9)}." for _ in range(10)]
        for i in range(300)
    ]
    generator = PrecomputedGenerator(prompts, draws)
    options = {"k_max": 10, "quality": "self_consistency", "epsilon": 0.2, "random_state": 0}
    sampler = ConformalSampler(generator, policy=ExitPolicy(same_text=0.5), **options)
    with pytest.warns(NullCalibrationWarning):
        sampler.fit(prompts, references)
    missed = sum(right not in one for right, one in zip(references, sampler.predict(prompts)))
    assert missed == 0
    assert sampler.calibration_.rule.outcome.n_errors == 0


def test_a_report_of_an_estimator_is_made_by_from_estimator():
    with pytest.raises(TypeError, match=r"got ConformalSampler instead: .*from_estimator"):
        CalibrationReport(ConformalSampler())
