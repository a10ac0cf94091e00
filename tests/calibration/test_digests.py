"""Digests stand for rows whose prompts nobody knows."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.calibration.strategies import random_data


def make(n=8, k=4, **options):
    return random_data(n, k, **options)


@pytest.mark.parametrize("random_state", [0, None])
def test_bare_rows_are_split_alike_whatever_their_budget_and_judge(random_state):
    data = make(n=30, k=4)
    (first, _), (fewer, _) = (one.split(0.5, random_state) for one in (data, data.truncate(2)))
    relabelled, _ = data.with_labels(~data.admissible).split(0.5, random_state)
    assert_array_equal(first.quality[:, :2], fewer.quality)
    assert_array_equal(first.quality, relabelled.quality)


def test_equal_bare_rows_are_prompts_of_their_own():
    data = make(n=10).take(np.repeat(np.arange(10), 5))
    assert len(set(data.digests.tolist())) == 50
    first, second = data.split(0.5, 0)
    assert (first.n_prompts, second.n_prompts) == (25, 25)
    assert set(first.quality[:, 0]) & set(second.quality[:, 0])
