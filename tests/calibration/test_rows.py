"""Groups partition the prompts that test, and share delta; a shift keeps some."""

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import (
    betting_p_value,
    binomial_p_value,
    keep_by_weight,
    weighted_betting_p_value,
)
from sklearn_clm.calibration.rows import check_groups, parts_to_test


def test_without_groups_there_is_one_part():
    (part,) = parts_to_test(np.array([4, 1]), np.array([0, 2, 3]), 0.05)
    assert (part.group, part.delta) == (None, 0.05)
    assert part.rows.tolist() == [0, 2, 3]
    assert part.searched.tolist() == [4, 1]


@pytest.mark.parametrize(("together", "level"), [(False, 0.1), (True, 0.05)])
def test_groups_partition_the_prompts_and_share_delta(together, level):
    groups = ["b", "a", "b", "a", "b", "a"]
    searched, tested = np.array([0, 1]), np.array([2, 3, 4, 5])
    *parts, everyone = parts_to_test(searched, tested, 0.1, groups, together=together)
    assert [part.group for part in parts] == ["b", "a"]  # as they come
    assert [part.rows.tolist() for part in parts] == [[2, 4], [3, 5]]
    assert [part.searched.tolist() for part in parts] == [[0], [1]]
    assert [part.delta for part in parts] == [level, level]
    assert (everyone.group, everyone.delta) == (None, 0.1)
    assert everyone.rows.tolist() == [2, 3, 4, 5]


def test_a_group_with_no_prompt_that_tests_is_there():
    groups = check_groups(np.array([3, 1, 1]), 3)
    parts = parts_to_test(np.array([0]), np.array([1, 2]), 0.1, groups, together=True)
    assert [(part.group, len(part.rows)) for part in parts] == [(3, 0), (1, 2), (None, 2)]
    assert isinstance(parts[0].group, int)
    assert parts[1].delta == 0.05


def world(n, bound, epsilon, seed):
    """Half of the prompts are hard, and new ones are hard more often; the new risk is epsilon."""
    rng = np.random.default_rng(seed)
    share = 1.0 / (bound + 1.0)  # of hard prompts: weight `bound`, the others make up the mean of 1
    hard = rng.random(n) < share
    weights = np.where(hard, bound, (1.0 - share * bound) / (1.0 - share))
    risk = np.where(hard, 1.2 * epsilon, 0.0)
    mass = share * bound
    risk[~hard] = (epsilon - mass * 1.2 * epsilon) / (1.0 - mass)
    return weights, (rng.random(n) < risk).astype(float), rng.integers(2**63, size=n)


@pytest.mark.parametrize("bound", [2.0, 4.0])
def test_p_values_under_shift_are_superuniform(bound):
    kept, betting, ignored = [], [], []
    for seed in range(1_500):
        weights, losses, keys = world(120, bound, 0.3, seed)
        keep = keep_by_weight(weights, bound, keys, seed=seed)
        kept.append(binomial_p_value(int(losses[keep].sum()), max(int(keep.sum()), 1), 0.3))
        betting.append(weighted_betting_p_value(losses, weights, 0.3, bound=bound, seed=seed))
        ignored.append(binomial_p_value(int(losses.sum()), 120, 0.3))
    for level in (0.05, 0.2):
        for p in (kept, betting):
            assert binom.sf(int(np.sum(np.array(p) <= level)) - 1, 1_500, level) > 1e-4
    # the risk of the calibration prompts is lower: a test that ignores the weights must be noticed
    assert binom.sf(int(np.sum(np.array(ignored) <= 0.05)) - 1, 1_500, 0.05) < 1e-6


def test_kept_prompts_are_distributed_as_new_ones():
    weights, _, keys = world(40_000, 3.0, 0.3, 0)
    keep = keep_by_weight(weights, 3.0, keys)
    n_hard = int(np.sum(keep & (weights == 3.0)))
    assert abs(n_hard - 0.75 * keep.sum()) < 4.5 * np.sqrt(keep.sum() * 0.75 * 0.25)
    # the choice depends on nothing but seed, key and weight
    part = np.arange(0, 40_000, 7)[::-1]
    assert np.array_equal(keep_by_weight(weights[part], 3.0, keys[part]), keep[part])
    assert not np.array_equal(keep_by_weight(weights[part], 3.0, keys[part], seed=1), keep[part])


def test_weights_of_one_change_nothing():
    losses = np.random.default_rng(0).random(50)
    p = weighted_betting_p_value(losses, np.ones(50), 0.6, bound=1.0, seed=3)
    assert p == pytest.approx(float(betting_p_value(losses, 0.6, seed=3)), rel=1e-12)
    assert keep_by_weight(np.ones(50), 1.0, np.arange(50)).all()
