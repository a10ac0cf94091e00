"""The same p-values as MAPIE where the bound is the same; skipped where it is not installed."""

import numpy as np
import pytest

from sklearn_clm.calibration import binomial_p_value
from sklearn_clm.calibration._betting import RiskEProcess, confidence_sequence
from tests.calibration.hoeffding_bentkus import hoeffding_bentkus_p_value

EPSILONS = (0.05, 0.1, 0.3)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_hoeffding_bentkus(epsilon):
    methods = pytest.importorskip("mapie.risk_control.methods")
    rng = np.random.default_rng(0)
    # eighths, so that no sum is rounded
    losses = rng.integers(0, 9, (200, 30)) / 8 * rng.uniform(0, 0.6, 30).round(1)
    losses = np.round(losses * 8) / 8
    theirs = methods.compute_hoeffding_bentkus_p_value(losses.mean(axis=0), 200, epsilon)[:, 0]
    # the smaller of two bounds may exceed 1 there
    expected = np.minimum(theirs, 1.0)
    np.testing.assert_allclose(hoeffding_bentkus_p_value(losses, epsilon), expected, rtol=1e-12)


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
