"""Votes: the start by draws, and the count of a vote that labels chose."""

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import critical_count
from sklearn_clm.calibration._vote import count_of_chosen, fewest_answers

DELTA = 0.05


def chance_of_two_false_levels(n, alpha, shares, risks):
    """Exact chance that one of two levels, both of too high a risk, is the start and passes.

    `shares` of all prompts reach the higher level and the lower one.
    """
    (high, low), (r_high, r_low) = shares, risks
    between = (r_low * low - r_high * high) / (
        low - high
    )  # risk of those that reach only the lower
    if not 0 <= between <= 1:
        return 0.0
    fewest, m = fewest_answers(alpha, DELTA), np.arange(n + 1)
    allowed = np.array([-1, *critical_count(m[1:], alpha, DELTA)])
    reach_high = binom.pmf(m, n, high)
    total = np.sum((reach_high * binom.cdf(allowed, m, r_high))[fewest:])
    for at_high in range(fewest):
        more = np.arange(fewest - at_high, n - at_high + 1)
        chance = binom.pmf(more, n - at_high, min((low - high) / (1 - high), 1.0))
        errors = np.arange(at_high + 1)
        left = allowed[at_high + more][:, np.newaxis] - errors
        passes = binom.cdf(left, more[:, np.newaxis], between)
        passes = passes @ binom.pmf(errors, at_high, r_high)
        total += reach_high[at_high] * (chance @ passes)
    return float(total)


@pytest.mark.parametrize(("n", "alpha"), [(60, 0.2), (120, 0.1), (200, 0.1), (300, 0.2)])
def test_a_start_by_draws_is_harmless_where_the_surest_are_the_worst(n, alpha):
    share = fewest_answers(alpha, DELTA) / n
    worst = max(
        chance_of_two_false_levels(n, alpha, (high, min(high * more, 1.0)), (alpha * worse, alpha))
        for high in share * np.array([0.7, 0.85, 1.0, 1.15, 1.3])
        for more in (1.1, 1.3, 2.0, 3.0)
        for worse in (1.0, 1.02, 1.1, 1.3, 1.8)
    )
    assert 0.01 < worst <= DELTA


@pytest.mark.parametrize("instead", [0.01, 0.025])
@pytest.mark.parametrize(
    ("m", "n_chose", "alpha"), [(250, 50, 0.1), (120, 30, 0.05), (60, 20, 0.2)]
)
def test_whoever_chooses_claims_too_much_rarely(m, n_chose, alpha, instead):
    allowed = count_of_chosen(m, n_chose, alpha, DELTA, instead)
    assert allowed <= critical_count(m, alpha, DELTA)
    errors = np.arange(n_chose + 1)
    chance = binom.pmf(errors, n_chose, alpha)
    # the worst choice: the vote where it is likelier to pass than what was learnt
    worst = [
        chance @ np.maximum(binom.cdf(c - errors, m - n_chose, alpha), instead)
        for c in (allowed, allowed + 1)
    ]
    assert worst[0] <= DELTA < worst[1]


def test_a_vote_that_nobody_chose_has_the_critical_count():
    for m in (14, 60, 250):
        assert count_of_chosen(m, 0, 0.2, DELTA, 0.0) == critical_count(m, 0.2, DELTA)
