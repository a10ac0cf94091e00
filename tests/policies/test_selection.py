"""Selections: the rule of a threshold, and what is said where there is none."""

import warnings

import numpy as np
import pytest

from sklearn_clm import (
    ComponentSelector,
    ConformalSampler,
    NullCalibrationError,
    NullCalibrationWarning,
)
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import ThresholdPolicy
from tests.reports import ReportModel, cases

X, Y = cases(100)


NEW, NEW_Y = cases(60, first=1000)


OPTIONS = {"alpha": 0.3, "admission": "exact_match"}


def sampler(log=None, **changes):
    policy = ThresholdPolicy(set_score="sum")
    options = {"k_max": 6, "epsilon": 0.4, "policy": policy, "random_state": 0} | changes
    return ConformalSampler(ReportModel(log), **options)


@pytest.fixture(scope="module")
def selector():
    return ComponentSelector(sampler(), **OPTIONS).fit(X, Y)


def test_null_gives_empty_selections_and_a_warning():
    parts = {"component_score": lambda *of: 0.5, "admission": lambda *of: False}
    wrong = ComponentSelector(sampler(), alpha=0.1, **parts)
    with pytest.warns(NullCalibrationWarning, match="alpha.*beforehand"):
        wrong.fit(X, Y)
    assert wrong.gamma_hat_ == np.inf
    sets = wrong.predict(NEW[:5])
    assert sets.sizes.tolist() == [0] * 5
    assert not sets.guaranteed
    assert wrong.score(NEW[:5]) == 0
    assert "no trusted component" in sets._repr_html_()
    with pytest.raises(NullCalibrationError):
        wrong.set_params(on_null="raise").fit(X, Y)


def test_too_few_prompts_for_any_test():
    with warnings.catch_warnings(action="ignore", category=NullCalibrationWarning):
        few = sampler().fit(X[:8], Y[:8])
    with pytest.warns(NullCalibrationWarning, match="is 8, .* fewer than 9"):
        selector = ComponentSelector(few, **OPTIONS).fit(X[:8], Y[:8])
    assert selector.gamma_hat_ == np.inf
    assert selector.p_values_.size == 0
    assert selector.predict(NEW[:2]).sizes.tolist() == [0, 0]


def test_reports_bound_the_errors_of_components_that_were_judged_lazily():
    lazy = ComponentSelector(sampler(), judging="lazy", admission=lambda reference, part: True)
    report = CalibrationReport.from_estimator(lazy.fit(X, Y)).to_markdown()
    assert "| error | at most " in report
