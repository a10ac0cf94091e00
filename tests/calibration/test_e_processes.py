import math

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import binomial_p_value
from sklearn_clm.calibration._betting import (
    RiskEProcess,
    confidence_sequence,
)

RUNS, ALPHA = 2_000, 0.05


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


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_false_alarms_over_ten_thousand_steps_are_at_most_alpha(epsilon):
    # the best moment to stop is the largest e-value
    best = RiskEProcess(epsilon).update(outcomes(epsilon, 10_000, RUNS, 1)).max(axis=0)
    for level in (0.01, 0.05, 0.2):
        assert may_be(int(np.sum(best >= 1 / level)), RUNS, level)


def test_optional_stopping_stays_within_alpha_where_repeated_tests_do_not():
    losses = outcomes(0.3, 500, 1_000, 2)
    best = RiskEProcess(0.3).update(losses).max(axis=0)
    assert may_be(int(np.sum(best >= 1 / ALPHA)), 1_000, ALPHA)
    # a test of fixed size, repeated after each outcome and stopped at its best moment
    n = np.arange(1, 501)[:, np.newaxis]
    successes = np.cumsum(1 - losses, axis=0).astype(int)
    repeated = binomial_p_value(successes, n, 0.7).min(axis=0)
    assert not may_be(int(np.sum(repeated <= ALPHA)), 1_000, ALPHA)


def test_stakes_chosen_after_the_outcomes_are_noticed():
    losses = outcomes(0.3, 300, 500, 3)
    stakes = np.geomspace(0.005, 0.8, 14) / 0.3
    # the best stake in hindsight, of each process with the one start at 1
    wealth = np.exp(np.cumsum(np.log1p(stakes[:, np.newaxis, np.newaxis] * (losses - 0.3)), axis=1))
    alarms = int(np.sum(wealth.max(axis=(0, 1)) >= 1 / ALPHA))
    assert not may_be(alarms, 500, ALPHA)
    # the mixture that was fixed beforehand, on the same outcomes
    assert may_be(int(np.sum(wealth.mean(axis=0).max(axis=0) >= 1 / ALPHA)), 500, ALPHA)


def test_late_rises_are_found_as_well():
    risk = np.where(np.arange(5_000) < 3_000, 0.2, 0.4)[:, np.newaxis]
    losses = outcomes(risk, 5_000, 200, 4)
    alarm = np.argmax(RiskEProcess(0.3).update(losses) >= 1 / ALPHA, axis=0) + 1
    assert 3_000 < np.median(alarm) < 4_000


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
