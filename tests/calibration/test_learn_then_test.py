import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    binomial_p_value,
    critical_count,
    fixed_sequence_test,
    learn_then_test,
    pareto_frontier,
    risk_surface,
    search_frontier,
    smallest_epsilon,
)
from sklearn_clm.calibration._search import threshold_grid
from sklearn_clm.calibration.surface import evaluate_configurations
from tests.calibration import oracle

SET_SCORES = ["first_k", "first_k_reject", "max", "sum"]


def simulate(n=400, k=6, seed=0):
    rng = np.random.default_rng(seed)
    ease = rng.beta(1.0, 1.0, (n, 1))
    admissible = rng.random((n, k)) < ease
    quality = np.clip(ease + 0.3 * admissible + 0.2 * rng.standard_normal((n, k)), 0.0, 1.5)
    return CalibrationData(quality, rng.random((n, k, k)), admissible)


@pytest.mark.parametrize(
    ("set_score", "k_max"),
    [
        *((name, None) for name in SET_SCORES),
        ("max", [2, 4, 6]),
        ("max", (6, 2, 4, 4)),
        ("max", np.array([2, 4, 6])),
    ],
)
def test_every_step_against_its_definition(set_score, k_max):
    data, epsilon, delta = simulate(), 0.3, 0.1
    options = {"set_score": set_score, "n_lambdas": 5}
    result = learn_then_test(
        data, epsilon, delta, random_state=3, size_weight=0.7, k_max=k_max, **options
    )
    optimization, calibration = data.split(1 / 3, random_state=3)
    assert (result.n_optimization, result.n_calibration) == (133, 267)
    # the frontier: of all budgets together, from the safest on
    l1, l2, l3 = threshold_grid(optimization, **options)
    costs = []
    for k in [6] if k_max is None else [2, 4, 6]:
        surface = risk_surface(optimization.truncate(k), l1, l2, l3, set_score=set_score)
        objective = surface.objective(0.7, 0.5)
        costs.append(np.column_stack([surface.loss.ravel(), objective.ravel()]))
    everything = [surface.loss[-1, 0, -1], objective[-1, 0, -1]]
    costs = np.concatenate(costs)
    best = costs[pareto_frontier(costs)]
    frontier = result.frontier
    tested = np.column_stack([frontier.loss, frontier.objective])
    extra, searched = np.split(tested, [len(tested) - len(best)])
    assert_array_equal(searched, best)
    assert np.all(np.diff(searched, axis=0) * [1, -1] > 0)
    # accept everything comes first, where the frontier does not begin with it
    assert frontier.lambdas[0].tolist() == [np.inf, -np.inf, l3[-1]]
    assert (frontier.k_max[0], tested[0].tolist()) == (6, everything)
    extra = extra.tolist()
    assert extra[:1] == [everything] * (everything not in searched.tolist())
    # the same without near copies, where that cost nothing here
    assert all(one[0] == everything[0] and one[1] < everything[1] for one in extra[1:])
    assert len(extra) <= 2
    # the tests, and the choice
    expected = [
        oracle.outcome(calibration, configuration, set_score, k).n_errors
        for configuration, k in zip(frontier.lambdas, frontier.k_max)
    ]
    assert_array_equal(result.n_errors, expected)
    assert_array_equal(result.p_values, binomial_p_value(np.array(expected), 267, epsilon))
    valid = fixed_sequence_test(result.p_values, delta)
    assert valid.any()
    assert_array_equal(result.valid_lambdas, frontier.lambdas[valid])
    chosen = np.flatnonzero(valid)[np.argmin(result.risks.objective(0.7, 0.5)[valid])]
    assert result.lambda_hat == Configuration(*frontier.lambdas[chosen])
    assert result.k_max_hat == frontier.k_max[chosen]
    assert (result.epsilon, result.delta) == (epsilon, delta)


# few prompts, so that the cheapest on the calibration part need not be the last of the frontier
@pytest.mark.parametrize("seed", [0, 3, 5, 9, 16])
@pytest.mark.parametrize("prices", [(1, 0, 0), (0, 1, 0), (0.02, 3, 0), (0.5, 0.5, 2)])
def test_the_cheapest_by_all_weights_is_chosen(prices, seed):
    weights = dict(zip(("size_weight", "excess_weight", "draw_weight"), prices, strict=True))
    options = {"set_score": "sum", "n_lambdas": 8, "random_state": seed, **weights}
    result = learn_then_test(simulate(n=90, seed=seed), 0.6, 0.1, **options)
    costs = np.stack([result.risks.size, result.risks.excess, result.risks.samples])
    best = int(np.argmin((np.array(prices) @ costs)[: result.n_valid]))
    assert result.lambda_hat == Configuration(*result.valid_lambdas[best])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), set_score=st.sampled_from(SET_SCORES))
def test_several_epsilons_equal_single_ones(seed, set_score):
    data = simulate(n=90, k=4, seed=seed)
    epsilons = (0.15, 0.3, 0.5)
    options = {"set_score": set_score, "random_state": seed, "n_lambdas": 3}
    together = learn_then_test(data, epsilons, **options)
    assert isinstance(together, tuple)
    for epsilon, result in zip(epsilons, together):
        single = learn_then_test(data, epsilon, **options)
        assert result.epsilon == epsilon
        assert result.lambda_hat == single.lambda_hat
        assert_array_equal(result.valid_lambdas, single.valid_lambdas)
        assert_array_equal(result.p_values, single.p_values)
        assert result.frontier is together[0].frontier


def test_a_single_budget_truncates():
    data = simulate()
    result = learn_then_test(data, 0.4, k_max=3, random_state=0)
    same = learn_then_test(data.truncate(3), 0.4, random_state=0)
    assert result.lambda_hat == same.lambda_hat
    assert (result.k_max_hat, same.k_max_hat) == (3, 3)
    assert set(result.frontier.k_max) == {3}
    assert result.achievable_epsilon == same.achievable_epsilon


def test_a_frontier_tests_other_prompts_than_those_that_were_searched():
    data = simulate(n=300)
    split = learn_then_test(data, 0.4, k_max=4, random_state=0)
    searched, others = data.split(1 / 3, random_state=0)
    found = learn_then_test(others, 0.4, frontier=split.frontier)
    assert found.lambda_hat == split.lambda_hat
    assert_array_equal(found.p_values, split.p_values)
    assert (found.n_optimization, found.n_calibration) == (0, 200)
    assert found.achievable_epsilon.low == (~others.admissible[:, :4].any(axis=1)).mean()
    for seen, n in ((searched, 100), (data, 300)):
        with pytest.raises(ValueError, match=f"frontier must .* 100 of these {n} prompts"):
            learn_then_test(seen, 0.4, frontier=split.frontier)


def test_null_says_what_would_have_worked():
    data = simulate(n=150)
    null = learn_then_test(data, 0.05, set_score="max", random_state=0)
    assert null.lambda_hat is None
    assert null.k_max_hat is None
    assert null.valid_lambdas.shape == (0, 3)
    works = learn_then_test(data, null.smallest_epsilon, set_score="max", random_state=0)
    assert works.lambda_hat is not None
    just_below = null.smallest_epsilon * (1.0 - 1e-6)
    assert learn_then_test(data, just_below, set_score="max", random_state=0).lambda_hat is None


@pytest.mark.parametrize("set_score", SET_SCORES)
def test_nothing_is_null_that_all_draws_would_certify(set_score):
    # few optimisation prompts: other configurations tie with accepting everything there
    n_null = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        ease = rng.beta(0.6, 1.0, (200, 1))
        admissible = rng.random((200, 8)) < ease
        quality = np.clip(ease + 0.3 * rng.standard_normal((200, 8)), 0.0, 1.0)
        data = CalibrationData(quality, rng.random((200, 8, 8)), admissible)
        result = learn_then_test(
            data, 0.28, set_score=set_score, random_state=seed, k_max=[4, 8], n_lambdas=8
        )
        calibration = data.split(1 / 3, random_state=seed)[1]
        n_errors = int(np.sum(~calibration.admissible.any(axis=1)))
        certified = n_errors <= critical_count(calibration.n_prompts, 0.28, 0.05)
        assert (result.lambda_hat is not None) == certified
        assert result.n_errors[0] == n_errors == result.n_errors.min()
        assert result.smallest_epsilon == smallest_epsilon(n_errors, result.n_calibration, 0.05)
        n_null += not certified
    assert 0 < n_null < 30


def test_nothing_is_in_reach_where_no_draw_is_admissible():
    data = CalibrationData(np.ones((60, 3)), np.zeros((60, 3, 3)), np.zeros((60, 3)))
    nothing = learn_then_test(data, 0.5, random_state=0)
    assert (nothing.lambda_hat, nothing.smallest_epsilon) == (None, 1.0)
    assert nothing.achievable_epsilon == (1.0, 1.0)


def test_ties_of_the_objective_go_to_the_safer_configuration():
    # on the calibration part all configurations of the frontier cost the same
    data = simulate(n=300)
    result = learn_then_test(
        data, 0.6, set_score="first_k", random_state=0, size_weight=0.0, excess_weight=0.0
    )
    assert len(result.frontier) == 1
    assert result.lambda_hat.set_score == 6.0


def test_too_few_prompts():
    data = simulate(n=30)
    for few, n in ((data, 20), (simulate(n=42), 28)):
        with pytest.raises(ValueError, match=rf"is {n}, .* fewer than 29. .* at least 43 prompts"):
            learn_then_test(few, 0.1)
    learn_then_test(simulate(n=43), 0.1)
    # of several, the largest decides
    assert learn_then_test(data, [0.01, 0.5])[0].lambda_hat is None
    with pytest.raises(ValueError, match=r"at epsilon=0\.02"):
        learn_then_test(data, [0.01, 0.02])


def test_sets_without_copies_are_tested_right_after_those_with_them():
    # labels: a draw equal to an earlier one tells nothing; only the first draw's quality is useless
    rng = np.random.default_rng(5)
    n, k = 300, 8
    truth, hard = rng.integers(0, 4, n), rng.random(n) < 0.08
    draws = np.where(hard[:, None], (truth[:, None] + 1) % 4, truth[:, None])
    draws = np.where(rng.random((n, k)) < 0.3, rng.integers(0, 4, (n, k)), draws)
    similarity = (draws[:, :, None] == draws[:, None, :]).astype(float)
    data = CalibrationData(rng.random((n, k)), similarity, draws == truth[:, None])
    part = data.take(np.arange(100))
    frontier = search_frontier(part)
    assert frontier.lambdas[0].tolist() == [np.inf, -np.inf, np.inf]
    assert frontier.lambdas[1].tolist() == [0.5, -np.inf, np.inf]
    risks = evaluate_configurations(part, frontier.lambdas, set_score="max")
    assert risks.n_errors[0] == risks.n_errors[1]
    # they are left out where the copies in sets were not all of one kind
    mixed = CalibrationData(part.quality, np.ones_like(part.similarity), part.admissible)
    assert search_frontier(mixed).lambdas[1].tolist() != [-np.inf, -np.inf, np.inf]
