"""Groups partition the prompts that test, and share delta."""

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import CalibrationData, learn_then_test, search_frontier
from sklearn_clm.calibration._rows import check_groups, parts_of
from sklearn_clm.calibration._surface import evaluate_configurations

EPSILON, DELTA = 0.3, 0.1


def population(seed=0, n=2_000, k=4):
    """Three quarters of the prompts are easy; draws for the hard ones are rarely admissible."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(["easy", "hard"], [n - n // 4, n // 4])
    # sets of all draws err on a third of the hard prompts, hence on a twelfth of all
    admissible = np.where((groups == "hard")[:, None], 0.24, 0.8) > rng.random((n, k))
    quality = rng.random((n, k)) * 0.5 + 0.5 * admissible
    return CalibrationData(quality, np.zeros((n, k, k)), admissible), groups


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True])
def test_the_risk_within_each_group_is_kept(together):
    data, groups = population()
    hard = data.take(np.flatnonzero(groups == "hard"))
    assert EPSILON < 1 - hard.admissible.any(axis=1).mean() < 0.36
    frontier = search_frontier(population(seed=1, n=400)[0], n_lambdas=4)
    failed = 0
    for seed in range(300):
        drawn = np.random.default_rng(seed).integers(data.n_prompts, size=200)
        parts = parts_of(np.arange(0), np.arange(200), DELTA, groups[drawn], together=together)
        (part,) = (part for part in parts if part.group == "hard")
        result = learn_then_test(
            data.take(drawn[part.rows]), EPSILON, part.delta, frontier=frontier
        )
        if result.lambda_hat is not None:
            risks = evaluate_configurations(
                hard, result.valid_lambdas, set_score="max", k_max=result.valid_k_max
            )
            failed += bool(risks.loss.max() > EPSILON)
    assert binom.sf(failed - 1, 300, DELTA / (1 + together)) > 1e-4


def test_without_groups_there_is_one_part():
    (part,) = parts_of(np.array([4, 1]), np.array([0, 2, 3]), 0.05)
    assert (part.group, part.delta, part.claimed) == (None, 0.05, True)
    assert part.rows.tolist() == [0, 2, 3]
    assert part.searched.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("together", "pooled", "level", "of_all"),
    [(False, False, 0.1, 0.1), (True, False, 0.05, 0.1), (True, True, 0.1 / 3, 0.1 / 3)],
)
def test_groups_partition_the_prompts_and_share_delta(together, pooled, level, of_all):
    groups = ["b", "a", "b", "a", "b", "a"]
    searched, tested = np.array([0, 1]), np.array([2, 3, 4, 5])
    *parts, everyone = parts_of(searched, tested, 0.1, groups, together=together, pooled=pooled)
    assert [part.group for part in parts] == ["b", "a"]  # as they come
    assert [part.rows.tolist() for part in parts] == [[2, 4], [3, 5]]
    assert [part.searched.tolist() for part in parts] == [[0], [1]]
    assert all(part.claimed for part in parts)
    assert [part.delta for part in parts] == [level, level]
    assert (everyone.group, everyone.claimed, everyone.delta) == (None, pooled, of_all)
    assert everyone.rows.tolist() == [2, 3, 4, 5]


def test_a_group_with_no_prompt_that_tests_is_there():
    parts = parts_of(np.array([0]), np.array([1, 2]), 0.1, np.array([3, 1, 1]), together=True)
    assert [(part.group, len(part.rows)) for part in parts] == [(3, 0), (1, 2), (None, 2)]
    assert isinstance(parts[0].group, int)
    assert parts[1].delta == 0.05


@pytest.mark.parametrize(
    ("groups", "error"),
    [
        (["a"] * 9, ValueError),
        (["a"] * 39 + [None], ValueError),
        ([np.nan] + ["a"] * 39, ValueError),
        (np.zeros((40, 2)), TypeError),
        ("a" * 40, TypeError),
        (dict.fromkeys(range(40)), TypeError),
        (set(range(40)), TypeError),
        ([["a"]] * 40, TypeError),
        (40, TypeError),
    ],
)
def test_bad_groups(groups, error):
    with pytest.raises(error, match="groups must"):
        check_groups(groups, 40)
