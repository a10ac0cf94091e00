"""What a fit notices and says: earlier steps, nulls of searches, scores that will not do."""

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
from sklearn_clm.generators import EstimatorGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import ThresholdPolicy
from tests.reports import ReportModel, cases
from tests.toy import ToyModel, questions

X, Y = questions(120)


def sampler(**changes):
    return ConformalSampler(ToyModel(), **{"k_max": 5, "epsilon": 0.4, "random_state": 0} | changes)


def test_supervised_steps_before_the_sampler_are_noticed():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(120, 30)), rng.integers(2, size=120)
    generator = EstimatorGenerator(LogisticRegression())
    last = ConformalSampler(generator, k_max=2, epsilon=0.5, random_state=0)
    with pytest.warns(UserWarning, match="selectkbest"):
        make_pipeline(SelectKBest(f_classif, k=3), last).fit(rows, labels)
    inside = EstimatorGenerator(make_pipeline(SelectKBest(f_classif, k=3), LogisticRegression()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", NullCalibrationWarning)
        make_pipeline(StandardScaler(), last).fit(rows, labels)
        clone(last).set_params(generator=inside).fit(rows, labels)


def test_each_null_calibration_of_a_search_is_warned_of():
    search = GridSearchCV(sampler(), {"epsilon": [0.05]}, cv=2, refit=False)
    for use in (
        lambda: cross_validate(sampler(epsilon=0.05), X[:60], Y[:60], cv=2),
        lambda: search.fit(X[:60], Y[:60]),
    ):
        with pytest.warns(NullCalibrationWarning) as caught:
            use()
        found = [str(each.message) for each in caught if each.category is NullCalibrationWarning]
        assert len(found) == 2
        assert all(message.startswith("Calibration is null") for message in found)


def test_a_threshold_out_of_reach_is_noticed():
    # the first draw stops, and a support of two is then never seen
    first = sampler(epsilon=0.6, k_max=6)
    choosy = ComponentSelector(first, alpha=0.3, component_score="support", admission="exact_match")
    with pytest.warns(UserWarning, match="^gamma_hat_="):
        choosy.fit(X, Y)
    with pytest.warns(UserWarning, match="groups_"):
        choosy.fit(X, Y, groups=np.arange(len(X)) % 2)
    remark = CalibrationReport.from_estimator(choosy).warnings[-1]
    assert f"the lowest of them {min(choosy.groups_.values()):.4g}, is hardly ever" in remark
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        reports = ConformalSampler(ReportModel(), k_max=5, epsilon=0.5, random_state=0)
        reports.set_params(policy=ThresholdPolicy(set_score="sum"))
        ComponentSelector(reports, alpha=0.4, admission="exact_match").fit(*cases(120))


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
    first = sampler(epsilon=0.5, k_max=6, policy=ThresholdPolicy(set_score="first_k")).fit(X, Y)
    choosy = ComponentSelector(first, alpha=0.7, admission="exact_match")
    choosy.set_params(component_score=Agreement(share=True))
    with pytest.warns(UserWarning, match="^component_score rises"):
        choosy.fit(X, Y)
    said = CalibrationReport.from_estimator(choosy).warnings
    assert any(each.startswith("component_score rises") for each in said)
    for score in (Agreement(share=False), "support", "span_likelihood", "random"):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "component_score rises", UserWarning)
            choosy.set_params(component_score=score).fit(X, Y)
        assert choosy.gamma_hat_ < np.inf


@pytest.mark.parametrize(
    "make",
    [
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
    last = ConformalSampler(EstimatorGenerator(LogisticRegression()), k_max=2, epsilon=0.5)
    last.set_params(random_state=0)
    with pytest.warns(UserWarning, match="selectkbest|selectKBest|steps"):
        make(SelectKBest(f_classif, k=2), last).fit(rows, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", NullCalibrationWarning)
        make(StandardScaler(), last).fit(rows, labels)


class Unkeyed:
    """Answers with the number of draws that it has made."""

    n = 0

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self.n += len(prompts) * n_samples
        return [[str(self.n + j) for j in range(n_samples)] for _ in prompts]


class Keyed:
    """A generator of no class of scikit-learn's that is keyed."""

    sample = staticmethod(ToyModel().sample)


def test_a_generator_that_is_not_keyed_is_noticed():
    unkeyed = sampler(quality="self_consistency").set_params(generator=Unkeyed())
    with pytest.warns(UserWarning, match="Unkeyed"):
        unkeyed.collect(X[:10], Y[:10])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler().set_params(generator=Keyed()).collect(X[:10], Y[:10])
