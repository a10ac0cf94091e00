"""Reports say which guarantee holds, and what was judged."""

import pytest

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import ExitPolicy
from tests.toy import ToyModel, questions


def report(n=200, references=None, **options):
    prompts, right = questions(n)
    options = {"k_max": 5, "epsilon": 0.4, "random_state": 0, **options}
    sampler = ConformalSampler(ToyModel(), **options)
    sampler.fit(prompts, right if references is None else references)
    return CalibrationReport.from_estimator(sampler).to_markdown()


def test_exit_policies_and_both_guarantees():
    text = report(policy=ExitPolicy())
    assert "With confidence 95 % over the calibration prompts" in text
    assert "## Exit policy" in text
    assert "level u-hat" in text
    text = report(policy=ExitPolicy(), guarantee="marginal")
    assert "marginal guarantee" in text
    assert "With confidence" not in text


def test_lazy_judging_shows_bounds_and_judgements():
    text = report(judging="lazy")
    assert "at most" in text
    assert "## Judgements" in text
    assert "Labels were asked for until each decision was forced" in text


def test_null_reports():
    with pytest.warns(NullCalibrationWarning):
        text = report(references=["none"] * 200, policy=ExitPolicy(), judging="lazy")
    assert "No level could be certified" in text
    with pytest.warns(NullCalibrationWarning):
        text = report(references=["none"] * 200, judging="lazy")
    assert "No configuration could be certified" in text
