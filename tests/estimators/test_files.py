"""Fitted samplers in files: a pickle, and the calibration alone as JSON."""

import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from sklearn_clm import (
    ComponentSelector,
    ConformalSampler,
    NullCalibrationError,
    NullCalibrationWarning,
)
from sklearn_clm.caching import CachedAdmission, CachedGenerator, CachedScore
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import EstimatorGenerator
from sklearn_clm.policies import ThresholdPolicy
from sklearn_clm.scoring import rouge_l
from tests.robustness.hostile import sealed
from tests.toy import ToyModel, questions, toy_sampler

NEW, _ = questions(30, first=4000)


def weight(prompt, generation):
    return float(len(generation.response))


@pytest.fixture(scope="module")
def fitted():
    return toy_sampler().fit(*questions(120))


@pytest.fixture(scope="module")
def fitted_classifier():
    X = np.random.default_rng(0).normal(size=(160, 3))
    sampler = ConformalSampler(EstimatorGenerator(LogisticRegression()), k_max=3, random_state=0)
    return sampler.fit(X, (X[:, 0] > 0).astype(int)), X


def test_round_trips_of_a_trained_generator(fitted_classifier):
    sampler, X = fitted_classifier
    copy = pickle.loads(pickle.dumps(sampler))
    assert copy.predict(X) == sampler.predict(X)
    assert copy.generator_.fingerprint() == sampler.generator_.fingerprint()


def test_calibration_file(fitted, tmp_path):
    path = tmp_path / "x.json"
    fitted.save_calibration(path)
    assert path.stat().st_size < 3000 + 16 * 120  # 16 characters for each prompt
    content = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["epsilon"] == 0.4
    (rule,) = content["rules"]
    assert (rule["kind"], rule["k_max"], rule["group"]) == ("thresholds", 5, None)
    assert content["provenance"]["seed"] == 0
    assert content["provenance"]["quality"] == "likelihood"
    assert set(content["versions"]) == {"sklearn_clm"}
    loaded = toy_sampler().load_calibration(path)
    assert loaded.lambda_hat_ == fitted.lambda_hat_
    draws = fitted.predict(questions(200)[0]).n_samples  # some of the prompts have calibrated
    expected = np.mean(draws[:, None] > np.arange(5), axis=0)
    assert loaded.calibration_.rule.shares_of_draws == pytest.approx(expected, abs=0.2)
    assert loaded.predict(NEW) == fitted.predict(NEW)
    assert loaded.score(*questions(20)) == fitted.score(*questions(20))
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("set_score", ["first_k", "sum"])
def test_infinities_and_null(set_score, tmp_path):
    first = toy_sampler(policy=ThresholdPolicy(set_score=set_score)).fit(*questions(120))
    first.save_calibration(tmp_path / "x.json")
    loaded = toy_sampler(policy=ThresholdPolicy(set_score=set_score)).load_calibration(
        tmp_path / "x.json"
    )
    assert loaded.lambda_hat_ == first.lambda_hat_
    if set_score == "first_k":
        assert loaded.lambda_hat_.similarity == math.inf
        assert loaded.lambda_hat_.quality == -math.inf
    with pytest.warns(NullCalibrationWarning):
        null = toy_sampler(epsilon=0.001).fit(*questions(60))
    null.save_calibration(tmp_path / "null.json")
    with pytest.warns(NullCalibrationWarning, match=r"null\.json'"):
        loaded = toy_sampler(epsilon=0.001).load_calibration(tmp_path / "null.json")
    assert loaded.lambda_hat_ is None
    strict = toy_sampler(epsilon=0.001, on_null="raise")
    with pytest.raises(NullCalibrationError, match=r"null\.json'"):
        strict.load_calibration(tmp_path / "null.json")
    assert not hasattr(strict, "calibration_")
    assert loaded.predict(NEW) == null.predict(NEW)


def test_caches_change_nothing(fitted, tmp_path):
    fitted.save_calibration(tmp_path / "x.json")
    cached = toy_sampler(admission=CachedAdmission("exact_match"), similarity=rouge_l)
    cached.set_params(generator=CachedGenerator(ToyModel()))
    with pytest.raises(ValueError, match="similarity"):
        cached.load_calibration(tmp_path / "x.json")
    cached.set_params(similarity="rouge_l").load_calibration(tmp_path / "x.json")
    assert cached.predict(NEW) == fitted.predict(NEW)
    first = toy_sampler(quality=weight).fit(*questions(120))
    first.save_calibration(tmp_path / "y.json")
    second = toy_sampler(quality=CachedScore(weight)).load_calibration(tmp_path / "y.json")
    assert second.predict(NEW) == first.predict(NEW)


def test_a_generator_is_trained_before_a_file_is_loaded(fitted_classifier, tmp_path):
    sampler, _ = fitted_classifier
    sampler.save_calibration(tmp_path / "x.json")
    with pytest.raises(NotFittedError, match="call fit, or collect, first"):
        clone(sampler).load_calibration(tmp_path / "x.json")


@pytest.mark.parametrize(
    "changes", [{"lambda_hat": {"similarity": 0.1}}, {"kind": "something else"}]
)
def test_rules_that_cannot_be(fitted, tmp_path, changes):
    path = tmp_path / "x.json"
    fitted.save_calibration(path)
    content = json.loads(path.read_text())
    content["rules"][0] |= changes
    path.write_text(sealed(content))
    with pytest.raises(ValueError, match="not an intact file"):
        toy_sampler().load_calibration(path)


def test_files_of_the_other_estimator_are_named_as_such(fitted, tmp_path):
    fitted.save_calibration(tmp_path / "sampler.json")
    parts = {"component_score": "support", "splitter": str.splitlines}
    selector = ComponentSelector(fitted, alpha=0.9, **parts)
    with pytest.raises(ValueError, match="component_calibration"):
        selector.load_calibration(tmp_path / "sampler.json")
    selector.fit(*questions(120)).save_calibration(tmp_path / "selector.json")
    with pytest.raises(ValueError, match="component_calibration"):
        toy_sampler().load_calibration(tmp_path / "selector.json")


def test_a_selector_that_selects_nothing_is_loaded_with_a_warning(fitted, tmp_path):
    options = {"alpha": 1e-6, "component_score": "support"}
    with pytest.warns(NullCalibrationWarning):
        null = ComponentSelector(fitted, **options).fit(*questions(20))
    null.save_calibration(tmp_path / "null.json")
    with pytest.warns(NullCalibrationWarning, match="certifies nothing"):
        ComponentSelector(fitted, **options).load_calibration(tmp_path / "null.json")


def test_a_generator_that_was_trained_before_is_taken_with_its_calibration(tmp_path):
    X, y = load_digits(return_X_y=True)
    options = {"k_max": 4, "epsilon": 0.3, "random_state": 0}
    fitted = ConformalSampler(EstimatorGenerator(GaussianNB(var_smoothing=0.1)), **options)
    fitted.fit(X[:600], y[:600]).save_calibration(tmp_path / "calibration.json")
    fitted.calibration_data_.save(tmp_path / "data.npz")
    trained = pickle.loads(pickle.dumps(fitted.generator_))
    expected = fitted.predict(X[1000:1020])
    for generator in (trained, FrozenEstimator(trained)):
        loaded = ConformalSampler(generator, **options)
        loaded.load_calibration(tmp_path / "calibration.json")
        data = CalibrationData.load(tmp_path / "data.npz")
        anew = ConformalSampler(generator, **options).calibrate(data)
        for one in (loaded, anew):
            assert one.predict(X[1000:1020]) == expected
            assert not one.predict(X[1000:1020])[0].claim.unknown
    trained.fit(X[:300], y[:300])
    with pytest.raises(NotFittedError, match="needs the generator with its training"):
        ConformalSampler(trained, **options).load_calibration(tmp_path / "calibration.json")


def test_columns_in_another_order_are_refused_after_a_load(tmp_path):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["a", "b"])
    generator = EstimatorGenerator(GaussianNB())
    fitted = ConformalSampler(generator, k_max=2, random_state=0).fit(X, X["a"] > 0)
    fitted.save_calibration(tmp_path / "calibration.json")
    trained = ConformalSampler(fitted.generator_, k_max=2, random_state=0)
    trained.load_calibration(tmp_path / "calibration.json")
    assert trained.predict(X) == fitted.predict(X)
    for given in (trained.predict, lambda X: ComponentSelector(fitted).fit_transform(X, X["a"])):
        with pytest.raises(ValueError, match="feature names should match"):
            given(X[["b", "a"]])


@pytest.mark.parametrize("key", ["rules", "epsilon", "provenance", "versions", "digest"])
def test_a_change_by_hand_is_noticed(fitted, tmp_path, key):
    path, options = tmp_path / "x.json", {"alpha": 0.5, "component_score": "support"}
    selector = ComponentSelector(fitted, **options).fit(*questions(120))
    for one in (fitted, selector):
        one.save_calibration(path)
        content = json.loads(path.read_text())
        content.pop(key if key in content else "alpha")
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match="not an intact file"):
            one.load_calibration(path)


def length(prompt, generation, *, weight=0.5):
    """A quality of the user's own."""

    def shorter(text):
        return text if len(text) < 80 else f"{text[:77]!s:>10}..."

    return weight * len(shorter(generation.response))


class Judge:
    """A judge of the user's own."""

    def __init__(self, *, strip):
        self.strip = strip

    def __call__(self, reference, response):
        return reference == (response.strip() if self.strip else response)


def test_a_calibration_is_the_same_under_every_python(tmp_path):
    options = {"quality": length, "admission": Judge(strip=True)}
    toy_sampler(epsilon=0.5, **options).fit(*questions(60)).save_calibration(tmp_path / "a.json")
    scores = json.loads((tmp_path / "a.json").read_text())["provenance"]
    # as Python 3.11, 3.12 and 3.13 write them
    assert scores["quality"] == "length:98c647f55f9c260e1f0bbab168f60f68"
    assert scores["admission"] == "Judge:1f285c8288bfc59b7dbf3b630ffdf36a"
