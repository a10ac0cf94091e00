"""The same numbers as other packages where the idea is the same; skipped where they lack.

MAPIE: p-values, and a confidence limit in a monitor. conditionalconformal: for disjoint groups its
guarantee is on average over calibrations, as ``guarantee="marginal"`` is here, and the same level
is found. A level with confidence 1 - delta is lower.
"""

import numpy as np
import pytest

from sklearn_clm.calibration import binomial_p_value, critical_count
from sklearn_clm.calibration._betting import RiskEProcess, confidence_sequence
from sklearn_clm.calibration._certify import ranked

EPSILONS = (0.05, 0.1, 0.3)
SIZES, EPSILON = {0: 70, 1: 33}, 0.23


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_binomial(epsilon):
    methods = pytest.importorskip("mapie.risk_control.methods")
    errors = np.arange(0, 129)
    theirs = methods.compute_hoeffding_bentkus_p_value(errors / 128, 128, epsilon, binary=True)
    # theirs is the smaller of the binomial tail and Hoeffding's bound, which is never below it
    np.testing.assert_allclose(binomial_p_value(errors, 128, epsilon), theirs[:, 0], rtol=1e-12)


def test_a_monitor_beside_theirs():
    bounds = pytest.importorskip("mapie.exchangeability_testing.bounds")
    rng = np.random.default_rng(0)
    delays = []
    for _ in range(6):
        losses = (rng.random(1_000) < 0.4).astype(float)
        low = bounds.conjugate_mixture_empirical_bernstein_bound(
            losses, v_opt=1, alpha=0.05, bound_side="lower"
        )
        theirs, ours = np.asarray(low) > 0.3, RiskEProcess(0.3).update(losses) >= 20
        delays.append([np.argmax(x) if x.any() else 1_000 for x in (theirs, ours)])
        sequence = confidence_sequence(losses.sum(), 1_000, 0.1)[0]
        assert abs(sequence - np.asarray(low)[-1]) < 0.05
    assert np.median(delays, axis=0)[1] < np.median(delays, axis=0)[0]


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
