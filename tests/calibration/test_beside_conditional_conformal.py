"""Levels within groups beside conditionalconformal; skipped where it is not installed.

Its guarantee for disjoint groups is on average over calibrations, as ``guarantee="marginal"`` is
here: the same level is found. A level with confidence 1 - delta is lower.
"""

import numpy as np
import pytest

from sklearn_clm.calibration import critical_count
from sklearn_clm.calibration._certify import ranked

SIZES = {0: 70, 1: 33}
EPSILON = 0.23


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    return {group: rng.beta(4 - 2 * group, 2, n) for group, n in SIZES.items()}


def theirs(scores):
    """The largest score of error that their set holds, for a new prompt of each group."""
    package = pytest.importorskip("conditionalconformal")
    groups = np.repeat(list(SIZES), list(SIZES.values()))[:, np.newaxis]
    # a prompt errs at level u where V < u, so that -V is a score as they take it
    calibrator = package.CondConf(
        lambda x, y: -y, lambda x: np.column_stack((x[:, 0] == 0, x[:, 0] == 1)).astype(float)
    )
    calibrator.setup_problem(groups, np.concatenate(list(scores.values())))
    new = {group: np.array([[group]]) for group in SIZES}
    return {
        group: -float(
            np.squeeze(calibrator.predict(1 - EPSILON, x, lambda s, x: s, -1.0, 0.0, exact=False))
        )
        for group, x in new.items()
    }


def test_the_level_on_average_is_theirs(scores):
    found = theirs(scores)
    for group, values in scores.items():
        n = len(values)
        n_errors = int((n + 1) * EPSILON) - 1
        assert ranked(values, n - n_errors) == pytest.approx(found[group], abs=1e-9)
        with_confidence = ranked(values, n - int(critical_count(n, EPSILON, 0.05)))
        assert with_confidence < found[group]
