"""The test of what people would say: size, power, shape and refusals."""

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import (
    binomial_p_value,
    critical_count,
    two_phase_p_value,
    two_phase_power,
    two_phase_smallest_epsilon,
)

# fmt: off
DESIGNS = [
    (300, 60, 0.15, 0.1), (500, 100, 0.1, 0.05), (40, 40, 0.3, 0.1), (100, 80, 0.2, 0.05),
    (60, 1, 0.5, 0.2), (1000, 100, 0.1, 0.1), (1000, 300, 0.05, 0.05), (2000, 150, 0.1, 0.05),
    (2000, 60, 0.3, 0.05), (200, 30, 0.2, 0.1), (200, 60, 0.1, 0.2), (150, 50, 0.25, 0.05),
    (50, 20, 0.3, 0.05), (50, 45, 0.4, 0.1), (400, 40, 0.2, 0.01), (400, 200, 0.15, 0.05),
    (800, 120, 0.08, 0.1), (120, 100, 0.6, 0.05), (30, 10, 0.5, 0.1), (3000, 100, 0.2, 0.05),
]
# fmt: on


def nulls(epsilon):
    """A thousand pairs (a, b) with a risk of at least epsilon, half of them on the boundary."""
    on = epsilon * np.linspace(0.0, 1.0, 500)
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 20_000))
    above = np.flatnonzero(a + (1 - a) * b > epsilon)[:500]
    return np.append(on, a[above]), np.append((epsilon - on) / (1 - on), b[above])


def size(design):
    n_prompts, n_audited, epsilon, delta = design
    return two_phase_power(*nulls(epsilon), n_prompts, n_audited, epsilon, delta)


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_no_null_is_certified_more_often_than_delta(design):
    assert np.max(size(design)) <= design[-1] + 1e-12


@pytest.mark.parametrize(
    ("design", "largest"), [((300, 60, 0.15, 0.1), 0.0978), ((500, 100, 0.1, 0.05), 0.0448)]
)
def test_the_size_is_near_delta(design, largest):
    assert np.max(size(design)) == pytest.approx(largest, abs=0.001)


@pytest.mark.parametrize(
    ("truth", "design", "power", "of_people"),
    [
        ((0.07, 0.01), (300, 60, 0.15, 0.1), 0.93, 0.66),
        ((0.05, 0.01), (500, 100, 0.1, 0.05), 0.69, 0.29),
    ],
)
def test_the_power_is_far_above_that_of_people_alone(truth, design, power, of_people):
    (_, n_audited, epsilon, delta), (a, b) = design, truth
    alone = binom.cdf(critical_count(n_audited, epsilon, delta), n_audited, a + (1 - a) * b)
    assert two_phase_power(a, b, *design) == pytest.approx(power, abs=0.03)
    assert alone == pytest.approx(of_people, abs=0.03)


def test_a_lenient_judge_is_no_help():
    lenient = two_phase_power(0.02, 0.08, 300, 60, 0.15, 0.1)
    alone = binom.cdf(critical_count(60, 0.15, 0.1), 60, 0.02 + 0.98 * 0.08)
    assert lenient < alone + 0.05


def table_of_p_values(n_prompts, n_audited, epsilon):
    """P-values of all counts; NaN where fewer prompts have a witness."""
    p_values = np.full((n_prompts + 1, n_audited + 1), np.nan)
    for refused in range(n_prompts + 1):
        for missed in range(min(n_audited, n_prompts - refused) + 1):
            counts = refused, n_prompts, missed, n_audited
            p_values[refused, missed] = two_phase_p_value(*counts, epsilon)
    return p_values


@pytest.mark.parametrize("design", [(60, 15, 0.3), (40, 38, 0.5)])
def test_p_values_rise_with_refusals_and_with_rejections(design):
    p_values = table_of_p_values(*design)
    for axis in (0, 1):
        steps = np.diff(p_values, axis=axis)
        assert not np.any(steps[~np.isnan(steps)] < 0)
    assert 0 < np.nanmin(p_values) < 0.01
    assert np.nanmax(p_values) == 1.0


def test_the_power_is_the_chance_of_a_p_value_of_at_most_delta():
    n_prompts, n_audited, delta, a, b = 30, 25, 0.1, 0.15, 0.1
    certified = table_of_p_values(n_prompts, n_audited, 0.5) <= delta
    refused, missed = np.nonzero(certified)
    n_left = np.minimum(n_audited, n_prompts - refused)  # fewer have a witness
    chance = binom.pmf(refused, n_prompts, a) * binom.pmf(missed, n_left, b)
    assert two_phase_power(a, b, n_prompts, n_audited, 0.5, delta) == pytest.approx(chance.sum())


def test_verdicts_that_lack_count_as_missed():
    # of 40 prompts 30 have a witness: people say nothing more where 40 audits were planned
    as_planned = two_phase_p_value(10, 40, 0, 30, 0.6)
    assert two_phase_p_value(10, 40, 0, 40, 0.6) > as_planned


def test_with_one_audit_of_a_judge_that_refuses_nothing_people_alone_decide():
    # K = 0 is what a = 0 gives surely, where the worst case is b = epsilon
    assert two_phase_p_value(0, 100, 0, 1, 0.3) == pytest.approx(
        float(binomial_p_value(0, 1, 0.3)), rel=0.02
    )


def test_arguments_broadcast():
    p_values = two_phase_p_value(np.array([[5], [12]]), 100, [0, 1, 2], 20, 0.2)
    assert p_values.shape == (2, 3)
    assert p_values[1, 2] == two_phase_p_value(12, 100, 2, 20, 0.2)
    designs = two_phase_p_value(5, [100, 200], 1, [20, 30], [0.2, 0.3])
    assert designs[1] == two_phase_p_value(5, 200, 1, 30, 0.3)


def test_the_smallest_epsilon_is_certified_and_none_below_it():
    counts = 21, 300, 1, 60
    epsilon = two_phase_smallest_epsilon(*counts, 0.05)
    assert two_phase_p_value(*counts, epsilon) <= 0.05
    for less in (1e-4, 0.01, 0.05):
        assert two_phase_p_value(*counts, epsilon - less) > 0.05
    for more in np.linspace(epsilon, 0.9, 20):
        assert two_phase_p_value(*counts, more) <= 0.05
    assert two_phase_smallest_epsilon(100, 100, 0, 10, 0.05) == 1.0
