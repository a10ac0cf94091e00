"""The mean fraction of wrong components: from arrays, through the selector, and what it refuses."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from sklearn_clm import ComponentSelector, ConformalSampler, PredictionSets
from sklearn_clm.calibration import (
    ComponentCalibrationData,
    betting_p_value,
    component_fraction_test,
    component_learn_then_test,
    fixed_sequence_test,
    hoeffding_bentkus_p_value,
    wrong_fractions,
)
from sklearn_clm.calibration._component_fractions import path_part
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.inspection import CalibrationReport, PromptGainDisplay
from sklearn_clm.metrics import component_loss
from sklearn_clm.policies import ExitPolicy, WrongFraction
from tests.reports import ReportModel, cases

X, Y = cases(200)
NEW, NEW_Y = cases(60, first=3000)
OPTIONS = {"alpha": 0.15, "admission": "exact_match"}


def sampler(**changes):
    options = {"k_max": 6, "epsilon": 0.4, "set_score": "sum", "random_state": 0} | changes
    return ConformalSampler(ReportModel(), **options)


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(*cases(120, first=1000))


@pytest.fixture(scope="module")
def selector(fitted):
    return ComponentSelector(fitted, loss="fraction", **OPTIONS).fit(X, Y)


def some_data(n=300, seed=0, width=8):
    rng = np.random.default_rng(seed)
    scores = rng.random((n, width)).round(2)
    scores[rng.random(scores.shape) < 0.3] = np.nan
    return ComponentCalibrationData.from_arrays(scores, rng.random(scores.shape) < scores)


def fraction_at(data, gamma):
    parts = [slice(*data.offsets[i : i + 2]) for i in range(data.n_prompts)]
    wrong = [~data.admissible[part][data.scores[part] >= gamma] for part in parts]
    return np.array([one.mean() if one.size else 0.0 for one in wrong])


def test_fractions_are_those_of_the_definition():
    data, gammas = some_data(), [np.inf, 0.9, 0.5, 0.123, -np.inf]
    expected = np.stack([fraction_at(data, gamma) for gamma in gammas], axis=1)
    np.testing.assert_allclose(wrong_fractions(data, gammas), expected, rtol=1e-15)
    # neither monotone in the threshold, nor safe for a subset
    assert (np.diff(expected, axis=1) < 0).any()
    assert (np.diff(expected, axis=1) > 0).any()


@pytest.mark.parametrize("p_value", ["betting", "hoeffding_bentkus"])
def test_the_tests_are_those_of_a_path_fixed_beforehand(p_value):
    data, gammas = some_data(), np.linspace(0.8, 0.01, 50)
    found = component_fraction_test(data, 0.25, 0.1, p_value=p_value, thresholds=gammas)
    losses = wrong_fractions(data, gammas)
    test = betting_p_value if p_value == "betting" else hoeffding_bentkus_p_value
    np.testing.assert_array_equal(found.p_values, test(losses, 0.25))
    assert found.gamma_hat == gammas[fixed_sequence_test(found.p_values, 0.1)][-1] < 0.8
    np.testing.assert_allclose(found.losses, losses.mean(axis=0))
    assert found.n_calibration == 300
    # the smallest alpha that is named is certified, and hardly a smaller one
    options = {"p_value": p_value, "thresholds": gammas}
    level = found.smallest_alpha
    assert component_fraction_test(data, level + 1e-6, 0.1, **options).gamma_hat < np.inf
    assert component_fraction_test(data, level - 1e-6, 0.1, **options).gamma_hat == np.inf


def test_labels_of_the_path_part_take_no_part():
    data = some_data()
    found = component_fraction_test(data, 0.25)
    assert found.n_calibration == 240
    assert len(found.thresholds) <= 100
    path, tested = path_part(300)
    assert sorted([*path, *tested]) == list(range(300))
    of_path = np.isin(data.prompt_index, path)
    for labels in (np.where(of_path, -1, data.labels), data.admissible ^ of_path):
        other = component_fraction_test(data.with_labels(labels), 0.25)
        np.testing.assert_array_equal(other.p_values, found.p_values)
    one = data.prompt_index == tested[0]
    assert one.any()
    message = "must have a label for each component of the prompts that are tested"
    with pytest.raises(ValueError, match=message):
        component_fraction_test(data.with_labels(np.where(one, -1, data.labels)), 0.25)


@pytest.mark.parametrize("p_value", ["betting", "hoeffding_bentkus"])
def test_the_true_fraction_is_rarely_above_alpha(p_value):
    """50 calibrations where the truth is known, at a level that some thresholds just exceed."""
    truth = some_data(n=4000, seed=1)
    grid = np.linspace(0.99, 0.0, 100)
    risks = wrong_fractions(truth, grid).mean(axis=0)
    alpha, delta, rng = float(risks[60]) - 0.002, 0.1, np.random.default_rng(2)
    failed = found = 0
    for _ in range(50):
        data = truth.take(rng.integers(4000, size=120))
        gamma = component_fraction_test(data, alpha, delta, p_value=p_value).gamma_hat
        found += gamma < np.inf
        failed += gamma < np.inf and wrong_fractions(truth, [gamma]).mean() > alpha
    assert failed <= binom.ppf(0.9999, 50, delta)
    assert found > 35


def test_more_is_selected_than_where_any_wrong_one_counts():
    data = some_data(n=600)
    fraction = component_fraction_test(data, 0.2)
    assert fraction.gamma_hat < component_learn_then_test(data, 0.2).gamma_hat


def test_bad_arrays_are_refused():
    data = some_data()
    for options, message in (
        ({"alpha": 1.0}, "alpha must"),
        ({"alpha": [0.1, 0.2]}, "alpha must be a single number"),
        ({"delta": 0.0}, "delta must"),
        ({"p_value": "binomial"}, "p_value must be 'betting' or 'hoeffding_bentkus'"),
        ({"path_fraction": 1.0}, "fraction must lie strictly between 0 and 1"),
        ({"thresholds": [0.1, 0.2]}, "thresholds must be distinct numbers from the largest down"),
        ({"thresholds": [np.nan]}, "thresholds must be distinct numbers"),
        ({"alpha": 0.001}, "data must leave at least 2995 prompts for the tests"),
    ):
        with pytest.raises(ValueError, match=message):
            component_fraction_test(data, **{"alpha": 0.2, **options})
    with pytest.raises(TypeError, match="data must be ComponentCalibrationData, got list"):
        component_fraction_test([], 0.2)


def test_without_any_component_nothing_is_certified():
    empty = ComponentCalibrationData(np.empty(0), np.empty(0, dtype=bool), np.zeros(61, dtype=int))
    found = component_fraction_test(empty, 0.2)
    assert found.gamma_hat == np.inf
    assert len(found.thresholds) == 0


def test_the_selector_calibrates_the_sets_of_its_sampler(selector, fitted):
    data = selector.calibration_data_
    sets = fitted.predict(X)
    assert data.provenance.sampler == sets.provenance.sampler == fitted.calibration_.digest
    members = [{sentence for response in one for sentence in response.split(". ")} for one in sets]
    assert [min(len(m), 1) for m in members] == np.minimum(np.diff(data.offsets), 1).tolist()
    assert 0 < selector.gamma_hat_ < np.inf
    # a fifth of the prompts is not judged
    assert selector.result_.n_calibration == 160
    assert selector.n_judgements_ == np.sum(data.labels >= 0) < data.n_components
    expected = component_fraction_test(data, 0.15)
    assert expected.gamma_hat == selector.gamma_hat_
    again = ComponentSelector(fitted, loss=WrongFraction(), **OPTIONS)
    assert again.fit(sets, Y).gamma_hat_ == selector.gamma_hat_
    arrays = ComponentSelector(fitted, loss="fraction", **OPTIONS).calibrate(data)
    assert arrays.predict(NEW) == selector.predict(NEW)


def test_half_of_the_prompts_fit_a_sampler_that_is_not_fitted():
    own = ComponentSelector(sampler(), loss="fraction", **OPTIONS).fit(X, Y)
    assert len(own.calibration_indices_) == 100 == own.calibration_data_.n_prompts
    seen = own.sampler_.calibration_data_.prompts
    assert len(seen) == 100
    other = ComponentSelector(own.sampler_, loss="fraction", **OPTIONS)
    with pytest.warns(UserWarning, match="200 prompts, 100 of which trained or calibrated the"):
        other.fit(X, Y)
    assert other.calibration_indices_.tolist() == own.calibration_indices_.tolist()
    assert other.gamma_hat_ == own.gamma_hat_
    same = ComponentSelector(sampler(), loss="fraction", **OPTIONS)
    assert same.fit_transform(X, Y) == own.predict(X)


def test_what_it_says_of_itself(selector, fitted, tmp_path):
    sets = selector.predict(NEW)
    assert all(one.loss == "fraction" for one in sets)
    for text in (repr(sets), str(sets), sets._repr_html_(), str(sets[0])):
        assert "a fraction of the components may be wrong" in text
        assert "trusted" not in text
    assert sets.to_frame()["loss"].eq("fraction").all()
    report = CalibrationReport.from_estimator(selector)
    text = report.to_markdown() if hasattr(report, "to_markdown") else str(report)
    assert "the fraction of wrong components among those selected" in text
    assert "15 % on average" in text
    assert "mean fraction wrong" in text
    assert "What more prompts would gain" not in text
    with pytest.raises(ValueError, match="must have a 0/1 loss"):
        PromptGainDisplay.from_estimator(selector)
    assert RiskMonitor(selector).epsilon == 0.15
    path = tmp_path / "selector.json"
    selector.save_calibration(path)
    loaded = ComponentSelector(fitted, loss="fraction", **OPTIONS).load_calibration(path)
    assert loaded.predict(NEW) == sets
    assert pickle.loads(pickle.dumps(selector)).predict(NEW) == sets
    with pytest.raises(ValueError, match="other parameters: loss is 'fraction' there and 'any'"):
        ComponentSelector(fitted, **OPTIONS).load_calibration(path)
    other = sampler(epsilon=0.5).fit(*cases(120, first=1000))
    with pytest.raises(ValueError, match="other draws: sampler is"):
        ComponentSelector(other, loss="fraction", **OPTIONS).load_calibration(path)


def test_sets_of_another_calibration_are_refused(selector):
    other = sampler(epsilon=0.5).fit(*cases(120, first=1000))
    message = "must go with the calibration of the sampler whose sets were tested"
    with pytest.raises(ValueError, match=message):
        selector.predict(other.predict(NEW))
    # sets that do not know their calibration are marked
    known = selector.sampler_.predict(NEW)
    bare = selector.predict(PredictionSets(list(known), known.k_max))
    assert not bare.provenance_known
    assert selector.predict(known).provenance_known
    # the same sampler, calibrated again
    mine = sampler().fit(*cases(120, first=1000))
    own = ComponentSelector(mine, loss="fraction", **OPTIONS).fit(X, Y)
    assert own.predict(NEW) == selector.predict(NEW)
    mine.set_params(epsilon=0.5).calibrate(mine.calibration_data_)
    with pytest.raises(ValueError, match=message):
        own.predict(NEW)
    with pytest.raises(ValueError, match=message):
        own.calibrate(own.calibration_data_)


def test_the_digest_of_a_calibration_covers_all_of_an_exit_policy(tmp_path):
    made = sampler(policy=ExitPolicy()).fit(*cases(120, first=1000))
    record = made.calibration_
    made.save_calibration(tmp_path / "exit.json")
    again = sampler(policy=ExitPolicy()).load_calibration(tmp_path / "exit.json")
    assert again.calibration_.digest == record.digest
    rule = record.rule
    model = replace(rule.model, rho=rule.model.rho + 0.1)
    for other in (replace(rule, same_text=0.5), replace(rule, model=model)):
        assert replace(record, rule=other).digest != record.digest


def test_misuse_is_refused(selector, fitted):
    fraction = ComponentSelector(loss="fraction", **OPTIONS)
    with pytest.raises(ValueError, match="X holds sets of the prompts that their sampler was fitt"):
        make_pipeline(sampler(), fraction).fit(X, Y)
    with pytest.raises(ValueError, match="all of which trained or calibrated the sampler"):
        clone(fraction).set_params(sampler=fitted).fit(*cases(120, first=1000))
    with pytest.raises(ValueError, match="judging must be 'all' where loss is a fraction"):
        clone(fraction).set_params(sampler=fitted, judging="lazy").fit(X, Y)
    with pytest.raises(ValueError, match="The 'loss' parameter"):
        clone(fraction).set_params(sampler=fitted, loss="share").fit(X, Y)
    with pytest.raises(ValueError, match="'p_value' parameter of WrongFraction"):
        clone(fraction).set_params(loss=WrongFraction(p_value="binomial")).fit(X, Y)
    with pytest.raises(ValueError, match="components of all draws where loss='any', got"):
        ComponentSelector(fitted, **OPTIONS).calibrate(selector.calibration_data_)
    every = ComponentSelector(fitted, **OPTIONS).collect(X, Y)
    with pytest.raises(ValueError, match="the sets of a sampler where loss='fraction', got"):
        clone(fraction).set_params(sampler=fitted).calibrate(every)


def test_too_few_prompts_and_too_small_an_alpha_are_null(fitted):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        few = ComponentSelector(fitted, loss="fraction", **OPTIONS).fit(X[:20], Y[:20])
        small = ComponentSelector(fitted, loss="fraction", admission="exact_match", alpha=0.02)
        small.fit(X, Y)
    texts = " ".join(str(one.message) for one in caught)
    assert "there are n_samples=16 calibration prompts" in texts
    assert "The smallest alpha that would have worked" in texts
    assert few.gamma_hat_ == small.gamma_hat_ == np.inf
    assert component_loss(NEW_Y, few.predict(NEW)) == 0.0
    assert "Null" in str(CalibrationReport.from_estimator(small))


def test_all_rows_of_a_prompt_stand_on_one_side():
    X_twice, Y_twice = list(X) * 2, list(Y) * 2
    with pytest.warns(UserWarning, match="prompts repeat"):
        own = ComponentSelector(sampler(), loss="fraction", **OPTIONS).fit(X_twice, Y_twice)
    of_sampler, of_components = (
        own.sampler_.calibration_data_.prompts,
        own.calibration_.data.prompts,
    )
    assert len(of_sampler) == len(of_components) == 200
    assert not np.isin(of_sampler, of_components).any()
    data = some_data(43).take(np.repeat(np.arange(43), 7))
    known = replace(data, prompts=np.repeat(np.arange(43, dtype=np.uint64), 7))
    assert component_fraction_test(data, 0.6).n_calibration == 241
    assert component_fraction_test(known, 0.6).n_calibration == 238  # 34 whole prompts


def test_data_know_their_prompts_in_a_file(tmp_path):
    data = some_data(40)
    known = replace(data, prompts=np.arange(40, dtype=np.uint64)[::-1])
    known.take([3, 1]).with_labels(known.take([3, 1]).labels).save(tmp_path / "data.npz")
    assert ComponentCalibrationData.load(tmp_path / "data.npz").prompts.tolist() == [36, 38]
    with pytest.raises(ValueError, match="prompts"):
        replace(data, prompts=np.arange(39, dtype=np.uint64))
