""""""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import binomtest

from sklearn_clm.calibration import (
    CalibrationData,
    binomial_p_value,
    clopper_pearson,
    critical_count,
    prompts_needed,
    smallest_epsilon,
)
from sklearn_clm.calibration._binomial import marginal_count, marginal_prompts_needed
from sklearn_clm.calibration.words import rounded_up

probabilities = st.floats(1e-6, 1.0 - 1e-6)


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 60), epsilon=probabilities, draw=st.data())
def test_p_value_is_the_binomial_sum(n, epsilon, draw):
    n_errors = draw.draw(st.integers(0, n))
    terms = (math.comb(n, i) * epsilon**i * (1.0 - epsilon) ** (n - i) for i in range(n_errors + 1))
    assert_allclose(
        binomial_p_value(n_errors, n, epsilon), math.fsum(terms), rtol=1e-9, atol=1e-300
    )


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64])
def test_p_value_limits_and_broadcasting(dtype):
    assert binomial_p_value(5, 5, 0.3) == 1.0
    assert_allclose(binomial_p_value(0, 5, 0.3), 0.7**5, rtol=1e-14)
    p = binomial_p_value(np.arange(4, dtype=dtype), dtype(10), np.array([[0.1], [0.5]]))
    assert p.shape == (2, 4)
    assert np.all(np.diff(p, axis=1) > 0)
    assert p[1, 2] == binomial_p_value(2, 10, 0.5)
    assert isinstance(binomial_p_value(dtype(1), dtype(3), 0.5), float)


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 10**7), share=st.floats(0.0, 1.0), delta=st.floats(1e-6, 0.999))
def test_smallest_epsilon_is_rejected_and_nothing_below_it_is(n, share, delta):
    n_errors = int(share * n)
    limit = smallest_epsilon(n_errors, n, delta)
    if n_errors == n:
        assert limit == 1.0
        return
    assert 0.0 < limit <= 1.0
    if limit < 1.0:
        assert binomial_p_value(n_errors, n, limit) <= delta
    below = limit * (1.0 - 1e-6)
    assert binomial_p_value(n_errors, n, below) > delta * (1.0 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(epsilon=st.floats(1e-4, 0.999), delta=st.floats(1e-6, 0.999))
def test_prompts_needed_is_the_least_sufficient_number(epsilon, delta):
    n = prompts_needed(epsilon, delta)
    assert binomial_p_value(0, n, epsilon) <= delta
    assert n == 1 or binomial_p_value(0, n - 1, epsilon) > delta


# levels that a whole number of prompts just reaches, where logarithms are off by one
@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 40])
@pytest.mark.parametrize("delta", [0.05, 0.1, 0.3, 0.5])
def test_prompts_needed_does_not_suffer_from_rounding(n, delta):
    for epsilon in (1.0 - delta ** (1.0 / n), -math.expm1(math.log(delta) / n)):
        for level in (delta, binomial_p_value(0, n, epsilon), (1.0 - epsilon) ** n):
            least = prompts_needed(epsilon, level)
            assert least in (n, n + 1)
            reached = [binomial_p_value(0, count, epsilon) <= level for count in (n, n + 1)]
            assert reached == [least == n, True]


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 300), epsilon=probabilities, delta=st.floats(1e-6, 0.999))
def test_critical_count_decides_as_p_values_do(n, epsilon, delta):
    rejected = binomial_p_value(np.arange(n + 1), n, epsilon) <= delta
    assert critical_count(n, epsilon, delta) == rejected.sum() - 1


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 10**6), epsilon=probabilities, share=st.floats(0.0, 1.0))
def test_critical_count_is_exact_at_ties(n, epsilon, share):
    count = min(int(share * n), n - 1)
    p_value = binomial_p_value(count, n, epsilon)
    if 0.0 < p_value < 1.0 and binomial_p_value(count + 1, n, epsilon) > p_value:
        assert critical_count(n, epsilon, p_value) == count
        assert critical_count(n, epsilon, np.nextafter(p_value, 0.0)) < count


@pytest.mark.parametrize("function", [smallest_epsilon, critical_count])
def test_arrays_broadcast(function):
    first, second = np.array([[5], [50]]), 60 if function is smallest_epsilon else 0.1
    limits = function(first, second, np.array([0.05, 0.1]))
    single = [[function(m, second, level) for level in (0.05, 0.1)] for m in (5, 50)]
    assert limits.tolist() == single
    assert type(single[0][0]) is (float if function is smallest_epsilon else int)


@pytest.mark.parametrize("n", [1, 40, 10**5])
def test_clopper_pearson_is_scipys(n):
    counts = np.unique(np.array([0, 1, n // 3, n - 1, n]))
    low, high = clopper_pearson(counts, n, 0.9)
    for count, a, b in zip(counts.tolist(), low, high):
        expected = binomtest(count, n).proportion_ci(0.9, method="exact")
        assert_allclose((a, b), (expected.low, expected.high), rtol=1e-9, atol=1e-12)
    assert type(clopper_pearson(1, 3)[0]) is float


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(1e-3, 0.999), delta=probabilities, fraction=st.floats(0.01, 0.95))
def test_prompts_needed_counts_the_optimisation_part(epsilon, delta, fraction):
    needed = prompts_needed(epsilon, delta)
    total = prompts_needed(epsilon, delta, fraction)

    def n_calibration(n):
        data = CalibrationData(np.zeros((n, 1)), np.zeros((n, 1, 1)), np.zeros((n, 1)))
        return data.split(fraction, 0)[1].n_prompts

    assert n_calibration(total) >= needed
    assert total == 2 or n_calibration(total - 1) < needed


def test_marginal_counts_are_those_of_the_decimal_that_was_written():
    for n in (3, 9, 24, 49, 99, 199, 999, 12_345):
        for percents in range(1, 100):
            exact = math.floor((n + 1) * Fraction(percents, 100)) - 1
            assert marginal_count(n, percents / 100) == exact, (n, percents)


@settings(max_examples=300, deadline=None)
@given(n=st.integers(1, 3000), share=st.floats(0.0, 1.0))
def test_the_level_that_would_have_worked_does_work(n, share):
    n_errors = min(int(share * n), n - 1)
    smallest = (n_errors + 1) / (n + 1)
    assert marginal_count(n, smallest) == n_errors
    assert marginal_count(n, np.nextafter(smallest, 0.0)) == n_errors - 1
    assert marginal_count(n, rounded_up(smallest)) >= n_errors


@settings(max_examples=300, deadline=None)
@given(epsilon=st.floats(1e-4, 0.999))
def test_marginal_prompts_needed_is_the_least_sufficient_number(epsilon):
    for level in (epsilon, 1.0 / round(1.0 / epsilon) if epsilon < 0.5 else epsilon):
        n = marginal_prompts_needed(level)
        assert marginal_count(n, level) >= 0
        assert n == 1 or marginal_count(n - 1, level) < 0
