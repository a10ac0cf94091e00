"""Groups partition the prompts that test, and share delta."""

import numpy as np
import pytest

from sklearn_clm.calibration._rows import parts_of


def test_without_groups_there_is_one_part():
    (part,) = parts_of(np.array([4, 1]), np.array([0, 2, 3]), 0.05)
    assert (part.group, part.delta) == (None, 0.05)
    assert part.rows.tolist() == [0, 2, 3]
    assert part.searched.tolist() == [4, 1]


@pytest.mark.parametrize(("together", "level"), [(False, 0.1), (True, 0.05)])
def test_groups_partition_the_prompts_and_share_delta(together, level):
    groups = ["b", "a", "b", "a", "b", "a"]
    searched, tested = np.array([0, 1]), np.array([2, 3, 4, 5])
    *parts, everyone = parts_of(searched, tested, 0.1, groups, together=together)
    assert [part.group for part in parts] == ["b", "a"]  # as they come
    assert [part.rows.tolist() for part in parts] == [[2, 4], [3, 5]]
    assert [part.searched.tolist() for part in parts] == [[0], [1]]
    assert [part.delta for part in parts] == [level, level]
    assert (everyone.group, everyone.delta) == (None, 0.1)
    assert everyone.rows.tolist() == [2, 3, 4, 5]


def test_a_group_with_no_prompt_that_tests_is_there():
    parts = parts_of(np.array([0]), np.array([1, 2]), 0.1, np.array([3, 1, 1]), together=True)
    assert [(part.group, len(part.rows)) for part in parts] == [(3, 0), (1, 2), (None, 2)]
    assert isinstance(parts[0].group, int)
    assert parts[1].delta == 0.05
