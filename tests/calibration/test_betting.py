"""Betting: p-values of bounded losses, e-processes and confidence sequences."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import binom

from sklearn_clm.calibration import (
    betting_p_value,
    binomial_p_value,
    weighted_betting_p_value,
)
from sklearn_clm.calibration.betting import (
    RiskEProcess,
    _audit_stake,
    audit_p_values,
    confidence_sequence,
    fewest_audits,
)
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


def test_positions_have_no_part_in_bets_by_keys():
    rng = np.random.default_rng(0)
    losses, weights = rng.random((60, 3)).round(1), rng.random(60)
    keys = rng.integers(30, size=60)  # most of them repeat, with other losses
    order = rng.permutation(60)
    p = betting_p_value(losses, 0.6, keys=keys)
    assert np.array_equal(p, betting_p_value(losses[order], 0.6, keys=keys[order]))
    assert not np.array_equal(p, betting_p_value(losses, 0.6, keys=keys, seed=1))
    assert p.tolist() == [betting_p_value(column, 0.6, keys=keys) for column in losses.T]
    given, sorted_ = (
        weighted_betting_p_value(losses[at, 0], weights[at], 0.7, bound=1.0, keys=keys[at])
        for at in (slice(None), order)
    )
    assert given == sorted_


@pytest.mark.parametrize("copies", [1, 40])
def test_sorted_tables_certify_falsely_no_more_often_than_delta(copies):
    """Losses of mean .3 are no certificate of .29, however the rows stand."""
    rng, n, n_worlds, delta = np.random.default_rng(0), 196, 1_000, 0.05
    found = dict.fromkeys(("as drawn", "by outcome", "by topic", "rising"), 0)
    for _ in range(n_worlds):
        # a third are of a topic that errs more; few prompts may come again and again
        prompts = rng.integers(2**62 if copies == 1 else n // copies, size=n)
        topic = rng.random(n) < 1 / 3
        losses = (rng.random(n) < np.where(topic, 0.8, 0.05)).astype(float)
        orders = np.arange(n), np.argsort(-losses), np.argsort(topic), np.argsort(losses)
        for name, order in zip(found, orders):
            p = betting_p_value(losses[order], 0.29, keys=prompts[order].astype(np.uint64))
            found[name] += p <= delta
    assert max(found.values()) == min(found.values())
    assert binom.sf(found["as drawn"] - 1, n_worlds, delta) > 1e-4


def test_numbers_of_sorted_rows_make_no_fixed_order():
    """One order for each number of rows would bet on the same places of each table."""
    delta, chances = 0.05, []
    for n in range(100, 300, 10):
        falsely = 0.0
        for n_wrong in range(int(0.3 * n)):
            losses = np.arange(n) < n_wrong
            p = betting_p_value(losses, 0.29, keys=np.arange(n))
            falsely += binom.pmf(n_wrong, n, 0.3) * (p <= delta)
        chances.append(falsely)
    # over the seeds, of which a number of rows is another
    assert np.mean(chances) <= delta
    assert max(chances) <= 2 * delta


@pytest.mark.parametrize("a", [0.0, 0.05, 0.1, 0.15])
def test_audits_that_stop_at_their_best_moment_keep_their_level(a):
    """On the boundary a + (1 - a) b = epsilon."""
    epsilon, n_runs = 0.15, 4_000
    rng, b = np.random.default_rng(0), (epsilon - a) / (1 - a)
    refused = rng.binomial(5, a, (n_runs, 60)) / 5
    losses = np.where(rng.random(refused.shape) < b, 1.0, refused)
    for level in (0.02, 0.1, 0.3):
        best = np.array([audit_p_values(one, epsilon, level).min() for one in losses])
        assert binom.sf(np.sum(best <= level) - 1, n_runs, level) > 1e-4


@pytest.mark.parametrize("n", [30, 300])
def test_p_values_of_audits_are_those_of_the_product_and_fall_with_epsilon(n):
    losses, epsilon = np.random.default_rng(0).random(n) * 0.3, 0.2
    stake = min(math.sqrt(2 * math.log(20) / (0.07 * n)), 0.8 / (1 - epsilon))
    wealth = np.cumprod(np.append(1.0, 1 + stake * (epsilon - losses)))
    assert_allclose(audit_p_values(losses, epsilon, 0.05), 1 / np.maximum.accumulate(wealth))
    of_levels = [audit_p_values(losses, one, 0.05) for one in np.linspace(0.01, 0.99, 50)]
    assert np.all(np.diff(of_levels, axis=0) <= 0)


@pytest.mark.parametrize("n", [3, 9, 30])
def test_factors_of_audits_rise_with_epsilon_where_their_stake_does(n):
    """For each loss, also one above epsilon, of which a larger stake loses more."""
    losses = np.linspace(0.0, 1.0, 41)
    levels = np.linspace(0.001, 0.999, 500)
    stakes = np.array([_audit_stake(n, level, 0.05) for level in levels])
    assert np.ptp(stakes) > 0  # the limit does decide somewhere
    factors = 1.0 + stakes[:, np.newaxis] * (levels[:, np.newaxis] - losses)
    assert np.all(np.diff(factors, axis=0) >= -1e-12)


@settings(max_examples=100, deadline=None)
@given(epsilon=st.floats(1e-3, 0.99), delta=st.floats(1e-3, 0.9))
def test_the_fewest_audits_certify_and_fewer_never_do(epsilon, delta):
    n = fewest_audits(epsilon, delta)
    assert audit_p_values(np.zeros(n), epsilon, delta)[-1] <= delta * (1 + 1e-9)
    assert n == 1 or audit_p_values(np.zeros(n - 1), epsilon, delta)[-1] > delta


@pytest.mark.parametrize("p_value", P_VALUES)
def test_columns_are_configurations(p_value):
    losses = np.random.default_rng(0).random((40, 3))
    together = p_value(losses, 0.6)
    assert together.shape == (3,)
    assert_allclose(together, [p_value(column, 0.6) for column in losses.T])


def may_be(count, runs, level):
    """Whether so many of the runs are within what events of probability `level` do."""
    return binom.sf(count - 1, runs, level) > 1e-4


def outcomes(risk, n, runs, seed):
    return (np.random.default_rng(seed).random((n, runs)) < risk).astype(float)


def plain_mixture(losses, epsilon, stakes, combine=np.mean):
    """The e-process by its definition: one product for each stake and each start."""
    starts = range(1, len(losses) + 1)
    reserve = [math.log(2) / math.log(t + 2) for t in (0, *starts)]
    result = []
    for t in starts:
        of_stakes = [
            sum(
                (reserve[s - 1] - reserve[s])
                * np.prod([1 + b * (x - epsilon) for x in losses[s - 1 : t]])
                for s in range(1, t + 1)
            )
            for b in stakes
        ]
        result.append(reserve[t] + combine(of_stakes))
    return np.array(result)


def test_the_e_process_is_the_mixture_of_its_definition():
    stakes = np.geomspace(0.005, 0.8, 14) / 0.3
    losses = np.random.default_rng(0).random(40)
    process = RiskEProcess(0.3)
    parts = [process.update(part) for part in (losses[:7], losses[7:7], losses[7:])]
    np.testing.assert_allclose(np.concatenate(parts), plain_mixture(losses, 0.3, stakes))
    together = RiskEProcess(0.3).update(np.column_stack((losses, losses[::-1])))
    np.testing.assert_allclose(together[:, 0], np.concatenate(parts))


def test_long_runs_stay_finite():
    process = RiskEProcess(0.1)
    assert np.isfinite(process.update(np.ones(5_000))).all()
    assert process.update(np.zeros(5_000))[-1] < 1e290


def test_the_confidence_sequence_covers_at_all_times():
    times = np.unique(np.geomspace(1, 5_000, 30).astype(int))
    for risk in (0.05, 0.4):
        totals = np.cumsum(outcomes(risk, 5_000, 200, 5), axis=0)[times - 1]
        low, high = confidence_sequence(totals, times[:, np.newaxis], 0.1)
        assert may_be(int(np.sum((low > risk).any(axis=0))), 200, 0.05)
        assert may_be(int(np.sum((high < risk).any(axis=0))), 200, 0.05)
        assert (high - low)[-1].max() < 0.07


def test_the_confidence_sequence_inverts_the_product():
    stakes = np.geomspace(0.005, 0.8, 14)

    def wealth(total, n, m):
        return np.mean((1 - stakes) ** (n - total) * (1 - stakes + stakes / m) ** total)

    low, high = confidence_sequence([12, 0.7], [40, 3])
    for total, n, limit in ((12, 40, low[0]), (0.7, 3, low[1]), (28, 40, 1 - high[0])):
        assert wealth(total, n, limit) == pytest.approx(40)
    assert confidence_sequence(0, 0) == (0.0, 1.0)
    assert confidence_sequence(0, 50)[0] == 0.0
    assert confidence_sequence(50, 50)[1] == 1.0


def test_fractions_need_no_more_than_their_sum():
    losses = np.random.default_rng(6).random(300)
    low, high = confidence_sequence(np.cumsum(losses)[[9, 299]], [10, 300])
    assert np.all(low < 0.5)
    assert np.all(high > 0.5)
