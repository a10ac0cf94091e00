import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import (
    CalibrationData,
    evaluate_configurations,
    learn_then_test,
    learn_then_test_groups,
    prompts_needed,
    search_frontier,
)

EPSILON, DELTA = 0.3, 0.1


def population(seed=0, n=2_000, k=4):
    """Three quarters of the prompts are easy; draws for the hard ones are rarely admissible."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(["easy", "hard"], [n - n // 4, n // 4])
    # sets of all draws err on a third of the hard prompts, hence on a twelfth of all
    admissible = np.where((groups == "hard")[:, None], 0.24, 0.8) > rng.random((n, k))
    quality = rng.random((n, k)) * 0.5 + 0.5 * admissible
    return CalibrationData(quality, np.zeros((n, k, k)), admissible), groups


def simulate(pooled, group_guarantee="each", runs=300):
    """How often a certified configuration has a risk above epsilon within the hard group."""
    data, groups = population()
    hard = data.take(np.flatnonzero(groups == "hard"))
    assert EPSILON < 1 - hard.admissible.any(axis=1).mean() < 0.36
    failed = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        drawn = rng.integers(data.n_prompts, size=240)
        named = np.zeros(240) if pooled else groups[drawn]
        found = learn_then_test_groups(
            data.take(drawn),
            named,
            EPSILON,
            DELTA,
            group_guarantee=group_guarantee,
            random_state=seed,
            n_lambdas=4,
        )
        result = found[0.0] if pooled else found.get("hard")
        if result is not None and result.lambda_hat is not None:
            risks = evaluate_configurations(
                hard, result.valid_lambdas, set_score="max", k_max=result.valid_k_max
            )
            failed += bool(risks.loss.max() > EPSILON)
    return failed, runs


@pytest.mark.slow
@pytest.mark.parametrize("group_guarantee", ["each", "all"])
def test_the_risk_within_each_group_is_kept(group_guarantee):
    failed, runs = simulate(pooled=False, group_guarantee=group_guarantee)
    level = DELTA if group_guarantee == "each" else DELTA / 2
    assert binom.sf(failed - 1, runs, level) > 1e-4


def test_pooled_groups_are_noticed():
    failed, runs = simulate(pooled=True, runs=40)
    assert binom.sf(failed - 1, runs, DELTA) < 1e-6


def test_each_group_tests_the_one_frontier_on_its_own_prompts():
    data, groups = population(n=400)
    found = learn_then_test_groups(data, groups, 0.4, 0.1, random_state=3, n_lambdas=5)
    optimization, _ = data.split(1 / 3, 3)
    frontier = search_frontier(optimization, n_lambdas=5)
    np.testing.assert_array_equal(found.frontier.lambdas, frontier.lambdas)
    position = data.take(np.arange(400))
    position.quality[:] = np.arange(400)[:, None]  # to see which prompts are in which part
    chosen = position.split(1 / 3, 3)[1].quality[:, 0].astype(int)
    for name in ("easy", "hard"):
        own = chosen[groups[chosen] == name]
        expected = learn_then_test(data.take(own), 0.4, 0.1, frontier=frontier)
        assert found[name].p_values.tolist() == expected.p_values.tolist()
        assert found[name].lambda_hat == expected.lambda_hat
        assert found.n_calibration[name] == len(own)


def test_one_group_is_learn_then_test():
    data, _ = population(n=300)
    found = learn_then_test_groups(data, [7] * 300, 0.3, random_state=0, n_lambdas=6)
    expected = learn_then_test(data, 0.3, random_state=0, n_lambdas=6)
    assert list(found) == [7]
    assert found[7].lambda_hat == expected.lambda_hat
    assert found[7].n_errors.tolist() == expected.n_errors.tolist()


def test_all_at_once_shares_the_level():
    data, groups = population(n=400)
    frontier = search_frontier(population(seed=1, n=400)[0], n_lambdas=3)
    each = learn_then_test_groups(data, groups, 0.4, frontier=frontier)
    together = learn_then_test_groups(data, groups, 0.4, frontier=frontier, group_guarantee="all")
    assert (each.group_delta, together.group_delta) == (0.05, 0.025)
    assert together["hard"].delta == 0.025
    assert together.n_needed == prompts_needed(0.4, 0.025)
    # a frontier from elsewhere leaves all prompts for the tests
    assert sum(each.n_calibration.values()) == 400
    for name in groups:
        assert len(together[name].valid_lambdas) <= len(each[name].valid_lambdas)


def test_a_frontier_from_prompts_that_are_tested_is_refused():
    data, groups = population(n=400)
    frontier = search_frontier(data.take(np.arange(0, 400, 4)), n_lambdas=3)
    with pytest.raises(ValueError, match=r"frontier must come from other prompts .* 100 of these"):
        learn_then_test_groups(data, groups, 0.4, frontier=frontier)


def test_small_and_hard_groups_are_null_with_the_reason():
    data, groups = population(n=400)
    groups = groups.astype(object)
    groups[:5] = "rare"
    found = learn_then_test_groups(data, groups, 0.2, random_state=0, n_lambdas=3)
    assert found["rare"] is None
    assert found.null_groups == ("rare", "hard")
    lacking = found.n_needed - found.n_calibration["rare"]
    assert found.missing_prompts == {"rare": lacking}
    reason = found.why_null()
    assert f"Group 'rare' is null: {found.n_calibration['rare']} calibration prompts" in reason
    assert f"it lacks {lacking} of {found.n_needed}" in reason
    smallest = found["hard"].smallest_epsilon
    assert f"the smallest epsilon that they certify is {smallest:.3g}" in reason
    assert repr(found) == "GroupResults(groups=['rare', 'easy', 'hard'], null=['rare', 'hard'])"
    assert learn_then_test_groups(data, [0] * 400, 0.3, random_state=0).why_null() is None


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (["a"] * 9, ValueError, "groups must be as many as prompts, 40, got 9 instead"),
        (["a"] * 39 + [None], ValueError, "groups must not be missing, got None at position 39"),
        ([np.nan] + ["a"] * 39, ValueError, "groups must not be missing, got nan at position 0"),
        (np.zeros((40, 2)), ValueError, r"groups must have shape \(n,\), got \(40, 2\)"),
        ("a" * 40, TypeError, "groups must be a sequence .* got str instead"),
        ([["a"]] * 40, TypeError, "groups must be hashable, .* got list at position 0"),
        (np.arange(40), ValueError, "groups must hold at least 9 calibration prompts"),
    ],
)
def test_bad_groups(groups, error, message):
    data, _ = population(n=40)
    with pytest.raises(error, match=message):
        learn_then_test_groups(data, groups, 0.3, random_state=0)


def test_bad_parameters():
    data, groups = population(n=40)
    with pytest.raises(ValueError, match="group_guarantee must be 'each' or 'all', got 'any'"):
        learn_then_test_groups(data, groups, 0.3, group_guarantee="any")
    with pytest.raises(ValueError, match="epsilon and delta must be single numbers"):
        learn_then_test_groups(data, groups, [0.3, 0.4])
    with pytest.raises(ValueError, match="epsilon must lie strictly between 0 and 1"):
        learn_then_test_groups(data, groups, 1.0)
