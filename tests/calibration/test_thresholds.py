"""One path of thresholds, tested for any risk."""

import numpy as np
import pytest

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.risk import MISSES, MissesIfAny, Risk
from sklearn_clm.calibration.set_scores import get_set_score
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tests import BinomialTest, counts_at
from sklearn_clm.calibration.thresholds import ThresholdPath

K = 4


class FewerThanTwoOfThresholds(Risk):
    about = "two responses of thresholds"
    promise = "the set for {who} holds two admissible responses"
    n_settling = 2


@pytest.fixture(scope="module")
def path():
    rng = np.random.default_rng(0)
    admissible = rng.random((90, K)) < 0.6
    data = CalibrationData(rng.random((90, K)) + admissible, rng.random((90, K, K)), admissible)
    lambdas = np.array([[np.inf, -np.inf, np.inf], [np.inf, 0.9, np.inf], [np.inf, 1.6, 1.7]])
    frontier = Frontier(lambdas, np.full(3, K), np.zeros(3), np.zeros(3))
    return ThresholdPath(Table(data), np.arange(90), frontier, get_set_score("max"))


@pytest.mark.parametrize("risk", [MISSES, MissesIfAny(), FewerThanTwoOfThresholds()])
def test_errors_are_those_of_the_risk_that_is_tested(path, risk):
    # one path for all of them, so that nothing kept for one risk is taken for another
    test = BinomialTest(path, risk, 0.3, 0.1)
    for step in range(len(path)):
        is_counted = counts_at(path, risk, step)
        is_right = risk.right(path[step].shown, path.table.data.admissible)
        n_errors = int(np.sum(is_counted & ~is_right))
        assert test.errors(step) == (n_errors, n_errors)
        assert test.n_counted(step) == is_counted.sum()


def test_a_risk_for_which_other_prompts_count_is_refused(path):
    class WhereThereAreThree(MissesIfAny):
        about = "three responses"

        def counts(self, sizes):
            return sizes >= 3

    with pytest.raises(TypeError, match=r"WhereThereAreThree\.counts must say"):
        BinomialTest(path, WhereThereAreThree(), 0.3, 0.1).errors(0)
