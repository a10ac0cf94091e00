"""Weights of prompts, and groups that were judged lazily, where components are selected."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline

from sklearn_clm import ComponentSelector
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import CovariateShift, Groups, ThresholdPolicy
from tests.reports import ReportModel, cases
from tests.toy import toy_sampler

N = 120
X, Y = cases(N)
NAMES = [f"ward {i % 3}" for i in range(N)]
NEW, _ = cases(12, first=1000)
NEW_NAMES = [f"ward {i % 3}" for i in range(12)]
WEIGHTS = np.where(np.arange(N) % 2 == 0, 1.5, 0.5)


def sampler(log=None, **changes):
    options = {"k_max": 3, "epsilon": 0.5, "policy": ThresholdPolicy(n_lambdas=3)} | changes
    return toy_sampler(ReportModel(log), **options)


def selector(given=None, **changes):
    options = {"alpha": 0.3, "admission": "exact_match"} | changes
    return ComponentSelector(sampler() if given is None else given, **options)


@pytest.fixture(scope="module")
def fitted():
    return selector().fit(X, Y, groups=NAMES)


def test_reports_bound_the_errors_of_components_that_were_judged_lazily():
    one = selector(judging="lazy", admission=lambda reference, component: True).fit(X, Y)
    text = CalibrationReport.from_estimator(one).to_markdown()
    assert "| error | at most " in text


def test_weights_keep_the_same_prompts_for_components():
    shift = CovariateShift(weight_bound=1.5, estimated=True)
    joint = selector(sampler(shift=shift)).fit(X, Y, prompt_weight=WEIGHTS)
    kept = joint.calibration_indices_
    assert set(np.flatnonzero(WEIGHTS == 1.5)) <= set(kept)
    assert 5 < np.sum(WEIGHTS[kept] == 0.5) < 35
    assert joint.shift_ == joint.sampler_.shift_
    assert all(one.claim.approximate for one in joint.predict(NEW))
    assert "weights are estimated" in CalibrationReport.from_estimator(joint).to_markdown()
    with pytest.raises(ValueError, match="sampler must not be fitted yet"):
        selector(joint.sampler_).fit(X, Y)


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_groups_and_weights_through_pipelines():
    with config_context(enable_metadata_routing=True):
        shift = CovariateShift(weight_bound=1.5)
        pipeline = make_pipeline(
            sampler(shift=shift).set_fit_request(prompt_weight=True, groups=False),
            ComponentSelector(admission="exact_match")
            .set_fit_request(groups=True, prompt_weight=False)
            .set_predict_request(groups=True),
        )
        pipeline[0].set_transform_request(groups=False)
        pipeline.fit(X, Y, groups=NAMES, prompt_weight=WEIGHTS)
        sets = pipeline.predict(NEW, groups=NEW_NAMES)
        assert [part.group for part in sets] == NEW_NAMES
    joint = selector(sampler(shift=shift)).fit(X, Y, groups=NAMES, prompt_weight=WEIGHTS)
    assert joint.groups_ == pipeline[-1].groups_
    assert joint.predict(NEW, groups=NEW_NAMES) == sets


def test_weights_where_there_are_none(fitted):
    with pytest.raises(ValueError, match="shift must"):
        selector().fit(X, Y, prompt_weight=WEIGHTS)
    shifted = sampler(shift=CovariateShift(weight_bound=1.5))
    sets = shifted.fit_transform(X, Y, prompt_weight=WEIGHTS)
    for of, given in ((fitted.sampler_, X), (None, sets)):
        with pytest.raises(ValueError, match="prompt_weight must"):
            ComponentSelector(of).fit(given, Y, prompt_weight=WEIGHTS)


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_nothing_is_said_of_sets_of_groups_where_none_is_certified():
    each = sampler(groups=Groups(lambda prompt: prompt))
    sets = each.fit(X, Y).calibration_
    assert sets.claim.holds
    assert not sets.certified
    told = selector(each).fit(X, Y).calibration_.conditions()[-1]
    assert "without any guarantee" in told
    assert "without any guarantee" in str(sets)
