"""What is warned of and logged: earlier steps, nulls of searches, scores that will not do."""

import logging
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.generators import EstimatorGenerator, ResamplingGenerator
from sklearn_clm.policies import ThresholdPolicy
from tests.toy import questions, toy_sampler

X, Y = questions(120)


def test_each_null_calibration_of_a_search_is_warned_of():
    search = GridSearchCV(toy_sampler(), {"epsilon": [0.05]}, cv=2, refit=False)
    for use in (
        lambda: cross_validate(toy_sampler(epsilon=0.05), X[:60], Y[:60], cv=2),
        lambda: search.fit(X[:60], Y[:60]),
    ):
        with pytest.warns(NullCalibrationWarning) as caught:
            use()
        found = [str(each.message) for each in caught if each.category is NullCalibrationWarning]
        assert len(found) == 2
        assert all(message.startswith("Calibration is null") for message in found)


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
@pytest.mark.parametrize(
    ("estimator", "is_warned"),
    [
        (ConformalSampler(k_max=3), True),
        (ComponentSelector(), True),
        (ConformalSampler(ResamplingGenerator(), k_max=3), False),
    ],
)
def test_who_gives_no_generator_is_told_that_it_is_a_baseline(estimator, is_warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, ["yes", "no"] * 60)
    text = "generator is None, so that draws are references of other prompts"
    assert any(text in str(each.message) for each in caught) == is_warned


class Agreement:
    """How many draws hold a component, or which share of them."""

    def __init__(self, *, share):
        self.share = share

    def score_components(self, prompts, generations, spans):
        return [
            [
                np.array([self.of(draw.response[start:stop], draws) for start, stop in row])
                for draw, row in zip(draws, rows, strict=True)
            ]
            for draws, rows in zip(generations, spans, strict=True)
        ]

    def of(self, component, draws):
        count = sum(component in draw.response for draw in draws)
        return count / len(draws) if self.share else count


def test_a_component_score_that_falls_when_draws_are_added_is_noticed():
    first = toy_sampler(epsilon=0.5, k_max=6, policy=ThresholdPolicy(set_score="first_k")).fit(X, Y)
    choosy = ComponentSelector(first, alpha=0.7, admission="exact_match")
    choosy.set_params(component_score=Agreement(share=True))
    with pytest.warns(UserWarning, match="^component_score rises"):
        choosy.fit(X, Y)
    for score in (Agreement(share=False), "support", "span_likelihood"):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "component_score rises", UserWarning)
            choosy.set_params(component_score=score).fit(X, Y)
        assert choosy.gamma_hat_ < np.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda step, last: make_pipeline(step, last),
        lambda step, last: make_pipeline(make_pipeline(StandardScaler(), step), last),
        lambda step, last: make_pipeline(FeatureUnion([("one", step)]), last),
        lambda step, last: make_pipeline(make_column_transformer((step, [0, 1, 2])), last),
        lambda step, last: make_pipeline(step, make_pipeline(StandardScaler(), last)),
        lambda step, last: make_pipeline(
            step, ComponentSelector(last, alpha=0.7, admission="exact_match")
        ),
    ],
)
def test_supervised_steps_are_noticed_wherever_they_stand(make):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 3)), rng.integers(2, size=60)
    last = toy_sampler(EstimatorGenerator(LogisticRegression()), k_max=2, epsilon=0.5)
    with pytest.warns(UserWarning, match="selectkbest|selectKBest|steps"):
        make(SelectKBest(f_classif, k=2), last).fit(rows, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", NullCalibrationWarning)
        warnings.filterwarnings("ignore", "a single draw errs for")
        make(StandardScaler(), last).fit(rows, labels)
        inside = make_pipeline(SelectKBest(f_classif, k=2), LogisticRegression())
        clone(last).set_params(generator=EstimatorGenerator(inside)).fit(rows, labels)


def test_null_calibrations_are_logged(caplog):
    with pytest.warns(NullCalibrationWarning):
        toy_sampler(ResamplingGenerator(), k_max=2, epsilon=0.1).fit(X[:60], Y[:60])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "null calibration" in caplog.text


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_measure_on_prompts_that_calibrated_is_logged(is_loaded, caplog, tmp_path):
    sampler = toy_sampler(epsilon=0.6).fit(X[:60], Y[:60])
    if is_loaded:
        sampler.save_calibration(tmp_path / "calibration.json")
        sampler = toy_sampler(epsilon=0.6).load_calibration(tmp_path / "calibration.json")
    with caplog.at_level("INFO", "sklearn_clm"):
        sampler.predict(X[60:70])
        assert not caplog.records
        sampler.predict(X[50:70])
    assert "10 of 20 prompts calibrated" in caplog.text


def test_nothing_is_printed_without_a_handler():
    handlers = logging.getLogger("sklearn_clm").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
