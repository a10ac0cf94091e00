"""Whatever goes wrong in an estimator is named, half-fits nothing and loses no draw."""

import warnings
from threading import Lock

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.caching import CachedGenerator
from tests.robustness import bad_estimators as bad
from tests.toy import ToyModel, drawn

X, Y = bad.X, bad.Y


def sampler(log=None, **params):
    generator = params.pop("generator", None) or ToyModel(log=log)
    return ConformalSampler(generator, k_max=4, epsilon=0.5, random_state=0).set_params(**params)


def selector(log=None, **params):
    return ComponentSelector(
        sampler(log), alpha=0.6, component_score="support", random_state=0
    ).set_params(**params)


def refused(call, error, *shown):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error) as caught:
            call()
    for text in shown:
        assert text in str(caught.value)


def assert_unfitted(estimator):
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    with pytest.raises(NotFittedError):
        estimator.predict(X[:2])
    assert not [name for name in vars(estimator) if name.endswith("_")]


def ids(rows):
    return [f"{row[0]}-{row[-1]}" for row in rows]


WRONG = (ValueError, TypeError)


@pytest.mark.parametrize(
    ("parameter", "value", "shown"), bad.SAMPLER_PARAMETERS, ids=ids(bad.SAMPLER_PARAMETERS)
)
def test_parameters_of_the_sampler(parameter, value, shown, tmp_path):
    log = str(tmp_path / "draws")
    new = sampler(log).set_params(**{parameter: value})
    for call in (lambda: new.fit(X, Y), lambda: new.collect(X, Y)):
        refused(call, WRONG, parameter, shown)
        assert_unfitted(new)
    assert not drawn(log)
    if parameter != "training_fraction":
        refused(lambda: new.calibrate(bad.DATA), WRONG, parameter, shown)
        assert_unfitted(new)

    fitted = sampler().fit(X, Y)
    before, good = fitted.predict(X), getattr(fitted, parameter)
    refused(lambda: fitted.set_params(**{parameter: value}).fit(X, Y), WRONG, parameter)
    assert fitted.set_params(**{parameter: good}).predict(X) == before


@pytest.mark.parametrize(
    ("parameter", "value", "shown"), bad.SELECTOR_PARAMETERS, ids=ids(bad.SELECTOR_PARAMETERS)
)
def test_parameters_of_the_selector(parameter, value, shown, tmp_path):
    log = str(tmp_path / "draws")
    new = selector(log).set_params(**{parameter: value})
    refused(lambda: new.fit(X, Y), WRONG, parameter, shown)
    assert_unfitted(new)
    assert not drawn(log)

    fitted = selector().fit(X, Y)
    before, good = fitted.predict(X), getattr(fitted, parameter)
    refused(lambda: fitted.set_params(**{parameter: value}).fit(X, Y), WRONG, parameter)
    assert fitted.set_params(**{parameter: good}).predict(X) == before


@pytest.mark.parametrize("make", [sampler, selector])
@pytest.mark.parametrize(
    ("argument", "prompts", "admissions", "shown"), bad.INPUTS, ids=ids(bad.INPUTS)
)
def test_prompts_and_admissions(make, argument, prompts, admissions, shown, tmp_path):
    log = str(tmp_path / "draws")
    new = make(log)
    refused(lambda: new.fit(prompts, admissions), WRONG, argument, shown)
    assert_unfitted(new)
    assert not drawn(log)
    fitted = make().fit(X, Y)
    before = fitted.predict(X)
    refused(lambda: fitted.fit(prompts, admissions), WRONG, argument, shown)
    assert fitted.predict(X) == before


@pytest.mark.parametrize("make", [sampler, selector])
@pytest.mark.parametrize(
    ("argument", "prompts", "shown"), bad.PREDICT_INPUTS, ids=ids(bad.PREDICT_INPUTS)
)
def test_prompts_to_predict(make, argument, prompts, shown, tmp_path):
    log = str(tmp_path / "draws")
    fitted = make(log).fit(X, Y)
    before, n_drawn = fitted.predict(X), len(drawn(log))
    refused(lambda: fitted.predict(prompts), WRONG, argument, shown)
    refused(lambda: fitted.transform(prompts), WRONG, argument, shown)
    refused(lambda: fitted.score(prompts, Y[:2]), WRONG, argument, shown)
    assert len(drawn(log)) == n_drawn
    assert fitted.predict(X) == before


@pytest.mark.parametrize(
    ("argument", "prompts", "admissions", "shown"),
    [row for row in bad.INPUTS if row[-1] != "object"],
    ids=[row[0] + "-" + row[-1] for row in bad.INPUTS if row[-1] != "object"],
)
def test_prompts_and_admissions_to_score(argument, prompts, admissions, shown, tmp_path):
    log = str(tmp_path / "draws")
    fitted = sampler(log).fit(X, Y)
    n_drawn = len(drawn(log))
    refused(lambda: fitted.score(prompts, admissions), WRONG, argument, shown)
    assert len(drawn(log)) == n_drawn


@pytest.mark.parametrize(("data", "shown"), bad.CALIBRATE_INPUTS, ids=lambda v: str(v)[:12])
def test_data_to_calibrate_on(data, shown):
    new = sampler()
    refused(lambda: new.calibrate(data), WRONG, shown)
    assert_unfitted(new)
    fitted = sampler().fit(X, Y)
    before = fitted.predict(X)
    refused(lambda: fitted.calibrate(data), WRONG, shown)
    assert fitted.predict(X) == before


def test_components_to_calibrate_on():
    new = selector()
    for data, shown in ((None, "NoneType"), (bad.DATA, "CalibrationData")):
        refused(lambda: new.calibrate(data), TypeError, "data must be", shown)  # noqa: B023
        assert_unfitted(new)


@pytest.mark.parametrize(
    ("change", "error", "shown"), [row[1:] for row in bad.GENERATORS], ids=ids(bad.GENERATORS)
)
def test_generators_that_misbehave(change, error, shown, tmp_path):
    """Of 30 prompts, 10 were drawn whole; none of these 40 draws is made again."""
    log, path = str(tmp_path / "draws"), tmp_path / "cache.sqlite"
    cached = CachedGenerator(bad.Misbehaving(change, log), path, key="toy")
    new = sampler(generator=cached)
    name = "generator" if error is ConnectionError else "generator Misbehaving"
    refused(lambda: new.fit(X, Y), error, name, shown)
    assert_unfitted(new)
    kept = CachedGenerator(ToyModel(log=log), path, key="toy")
    assert kept.stats()["n_stored"] >= 40
    n_kept, n_drawn = kept.stats()["n_stored"], len(drawn(log))
    fitted = sampler(generator=kept).fit(X, Y)
    assert len(drawn(log)) - n_drawn == 30 * 4 - n_kept
    wanted = sampler().fit(X, Y).calibration_data_
    assert fitted.calibration_data_.quality.tolist() == wanted.quality.tolist()


@pytest.mark.parametrize(("parameter", "value", "error", "shown"), bad.CALLED, ids=ids(bad.CALLED))
def test_functions_that_misbehave(parameter, value, error, shown, tmp_path):
    log, path = str(tmp_path / "draws"), tmp_path / "cache.sqlite"
    new = sampler(generator=CachedGenerator(ToyModel(log=log), path)).set_params(
        **{parameter: value}
    )
    name = parameter if error is not ZeroDivisionError else ""
    refused(lambda: new.fit(X, Y), error, name, shown)
    with pytest.raises(NotFittedError):
        check_is_fitted(new)
    n_stored = CachedGenerator(ToyModel(log=log), path).stats()["n_stored"]
    assert n_stored == (0 if isinstance(value, LogisticRegression) else 30 * 4)
    good = getattr(sampler(), parameter)
    new.set_params(**{parameter: good}).fit(X, Y)
    assert len(drawn(log)) == 30 * 4
    before = new.predict(X)
    refused(lambda: new.set_params(**{parameter: value}).fit(X, Y), error, shown)
    new.set_params(**{parameter: good})
    if parameter == "set_score":  # only calibration asks it, and an earlier one is forgotten then
        refused(lambda: new.predict(X), NotFittedError)
        new.calibrate(new.collect(X, Y))
        assert len(drawn(log)) == 30 * 4
    assert new.predict(X) == before


@pytest.mark.parametrize(
    ("parameter", "value", "error", "shown"), bad.SELECTOR_CALLED, ids=ids(bad.SELECTOR_CALLED)
)
def test_functions_of_the_selector_that_misbehave(parameter, value, error, shown, tmp_path):
    log = str(tmp_path / "draws")
    new = selector(log).set_params(**{parameter: value})
    name = parameter if error is not ZeroDivisionError else ""
    refused(lambda: new.fit(X, Y), error, name, shown)
    with pytest.raises(NotFittedError):
        check_is_fitted(new)
    n_drawn = len(drawn(log))
    good = getattr(selector(), parameter)
    new.set_params(**{parameter: good}).fit(X, Y)
    assert len(drawn(log)) == n_drawn
    before = new.predict(X)
    refused(lambda: new.set_params(**{parameter: value}).fit(X, Y), error, shown)
    assert new.set_params(**{parameter: good}).predict(X) == before


def test_a_set_score_that_misbehaves_only_in_prediction():
    misbehaves = Lock()  # which tells no fingerprint
    fitted = sampler(set_score=lambda quality: "high" if misbehaves.locked() else max(quality)).fit(
        X, Y
    )
    before = fitted.predict(X)
    misbehaves.acquire()
    refused(lambda: fitted.predict(X), TypeError, "set_score", "'high'")
    misbehaves.release()
    assert fitted.predict(X) == before


@pytest.mark.parametrize("make", [sampler, selector])
def test_nothing_works_before_fit(make):
    new = make()
    for call in (new.predict, new.transform, lambda prompts: new.score(prompts, Y[:2])):
        refused(lambda: call(X[:2]), NotFittedError, type(new).__name__)  # noqa: B023
    if make is sampler:
        refused(lambda: new.save_calibration("calibration.json"), NotFittedError)


def test_rows_of_other_columns():
    rows = np.arange(60.0).reshape(30, 2)
    fitted = ConformalSampler(epsilon=0.6, random_state=0).fit(rows, [1, 2, 1] * 10)
    for other, shown in ((rows[:, :1], "1 feature"), (np.ones((2, 3)), "3 features")):
        refused(lambda: fitted.predict(other), ValueError, "X", shown)  # noqa: B023
    refused(lambda: fitted.predict(X), ValueError, "prompts", "objects such as text")
