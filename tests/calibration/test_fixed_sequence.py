import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.calibration import fixed_sequence_test


@settings(max_examples=100, deadline=None)
@given(
    p_values=st.lists(st.sampled_from([0.0, 0.01, 0.05, 0.0500001, 1.0]), max_size=12),
    delta=st.sampled_from([0.01, 0.05, 0.5]),
)
def test_rejects_up_to_the_first_failure(p_values, delta):
    rejected = fixed_sequence_test(p_values, delta)
    n = next((i for i, p in enumerate(p_values) if p > delta), len(p_values))
    assert rejected.tolist() == [True] * n + [False] * (len(p_values) - n)


def test_delta_itself_is_rejected():
    assert fixed_sequence_test([0.05, np.nextafter(0.05, 1.0)], 0.05).tolist() == [True, False]


@pytest.mark.parametrize(
    ("p_values", "delta", "name"),
    [
        ([[0.1]], 0.05, "p_values"),
        ([0.1, np.nan], 0.05, "p_values"),
        ([1.5], 0.05, "p_values"),
        ([0.1], 1.0, "delta"),
        ([0.1], [0.05], "delta"),
    ],
)
def test_bad_input(p_values, delta, name):
    with pytest.raises(ValueError, match=name):
        fixed_sequence_test(p_values, delta)
