"""scikit-learn's own checks, all of them, none expected to fail."""

import warnings

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.generators import EstimatorGenerator

ESTIMATORS = [
    ConformalSampler(),
    ComponentSelector(),
    ConformalSampler(EstimatorGenerator(LogisticRegression()), k_max=3),
    ComponentSelector(ConformalSampler(EstimatorGenerator(LogisticRegression()), k_max=3)),
]


@pytest.fixture(autouse=True)
def _ignore_null():
    with warnings.catch_warnings():
        # the checks fit a few dozen rows of noise, for which nothing can be certified
        warnings.simplefilter("ignore", NullCalibrationWarning)
        yield


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)
