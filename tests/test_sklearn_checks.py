"""scikit-learn's own checks, all of them."""

import warnings

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.generators import EstimatorGenerator

ESTIMATORS = [
    ConformalSampler(),
    ConformalSampler(EstimatorGenerator(LogisticRegression())),
    ComponentSelector(),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        # the checks fit a few dozen rows of noise, for which nothing can be certified
        warnings.simplefilter("ignore", NullCalibrationWarning)
        check(estimator)
