import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from sklearn_clm.calibration import betting_p_value, binomial_p_value
from tests.calibration.hoeffding_bentkus import hoeffding_bentkus_p_value

P_VALUES = [betting_p_value, hoeffding_bentkus_p_value]


def worlds(epsilon, n, repetitions, rng):
    """Losses of mean epsilon, the boundary of the hypothesis, of several shapes."""
    shape = (n, repetitions)
    return {
        "zero or one": (rng.random(shape) < epsilon).astype(float),
        "beta": rng.beta(4 * epsilon, 4 * (1 - epsilon), shape),
        "nearly constant": np.clip(epsilon + 0.05 * (rng.random(shape) - 0.5), 0, 1),
        "rare and large": np.where(rng.random(shape) < epsilon / 0.9, 0.9, 0.0),
    }


@pytest.mark.parametrize("p_value", P_VALUES)
@pytest.mark.parametrize("epsilon", [0.05, 0.3])
@pytest.mark.parametrize("n", [20, 300])
def test_p_values_are_superuniform(p_value, epsilon, n):
    rng = np.random.default_rng(0)
    for name, losses in worlds(epsilon, n, 4_000, rng).items():
        p = p_value(losses, epsilon)
        for level in (0.02, 0.1, 0.3):
            wrong = int(np.sum(p <= level))
            assert binom.sf(wrong - 1, len(p), level) > 1e-4, (name, level, wrong)


def test_an_order_chosen_after_the_losses_breaks_the_guarantee():
    rng = np.random.default_rng(0)
    losses = worlds(0.3, 100, 1_000, rng)["beta"]
    arranged = np.empty_like(losses)
    arranged[np.random.default_rng(0).permutation(100)] = np.sort(losses, axis=0)
    chosen = betting_p_value(arranged, 0.3, seed=0)
    assert binom.sf(int(np.sum(chosen <= 0.1)) - 1, 1_000, 0.1) < 1e-6


def test_betting_has_more_power_where_losses_vary_little():
    rng = np.random.default_rng(0)
    losses = np.clip(0.2 + 0.1 * (rng.random((200, 300)) - 0.5), 0, 1)
    power = {p: np.mean(p(losses, 0.25) <= 0.05) for p in P_VALUES}
    coins = rng.random(losses.shape) < losses
    bernoulli = np.mean(binomial_p_value(coins.sum(axis=0), 200, 0.25) <= 0.05)
    assert power[betting_p_value] > 0.95
    assert power[betting_p_value] > power[hoeffding_bentkus_p_value] + 0.2
    assert power[betting_p_value] > bernoulli + 0.2


def test_betting_against_its_definition():
    losses = np.random.default_rng(1).random(30)
    epsilon, ordered = 0.6, losses[np.random.default_rng(7).permutation(30)]
    wealth = best = 1.0
    for t, loss in enumerate(ordered):
        before = ordered[:t]
        mean = (epsilon + before.sum()) / (t + 1)
        means = [(epsilon + ordered[:s].sum()) / (s + 1) for s in range(t)]
        variance = (0.25 + np.sum((before - means) ** 2)) / (t + 1)
        gain = epsilon - mean
        stake = min(max(gain / (variance + gain**2), 0.0), 0.5 / (1 - epsilon))
        wealth *= 1 + stake * (epsilon - loss)
        best = max(best, wealth)
    assert_allclose(betting_p_value(losses, epsilon, seed=7), 1 / best, rtol=1e-12)


def test_hoeffding_bentkus_against_its_definition():
    losses = np.full(50, 0.1)
    h = 0.1 * math.log(0.1 / 0.3) + 0.9 * math.log(0.9 / 0.7)
    expected = min(math.exp(-50 * h), math.e * binom.cdf(5, 50, 0.3))
    assert_allclose(hoeffding_bentkus_p_value(losses, 0.3), expected, rtol=1e-9)
    assert hoeffding_bentkus_p_value(np.ones(5), 0.3) == 1.0


@pytest.mark.parametrize("p_value", P_VALUES)
def test_columns_are_configurations(p_value):
    losses = np.random.default_rng(0).random((40, 3))
    together = p_value(losses, 0.6)
    assert together.shape == (3,)
    assert_allclose(together, [p_value(column, 0.6) for column in losses.T])
