"""Votes: the start by draws."""

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import critical_count
from sklearn_clm.calibration.vote import fewest_answers

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
