import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.calibration import pareto_frontier

cost = st.one_of(st.integers(0, 4).map(float), st.just(np.inf))


@settings(max_examples=200, deadline=None)
@given(points=st.lists(st.tuples(cost, cost), min_size=1, max_size=25))
def test_frontier_is_what_no_point_beats(points):
    frontier = pareto_frontier(points).tolist()

    def beaten(i):
        return any(q[0] <= points[i][0] and q[1] <= points[i][1] and q != points[i] for q in points)

    unbeaten = {points[i]: i for i in reversed(range(len(points))) if not beaten(i)}
    # the first of equal points, by ascending first cost
    assert frontier == [unbeaten[point] for point in sorted(unbeaten)]


def test_order_and_duplicates():
    costs = [[0.2, 3.0], [0.1, 4.0], [0.2, 3.0], [0.1, 4.0], [0.3, 1.0], [0.25, 3.0]]
    assert pareto_frontier(costs).tolist() == [1, 0, 4]


def test_no_points():
    frontier = pareto_frontier(np.empty((0, 2)))
    assert frontier.shape == (0,)
    assert np.arange(3)[frontier].shape == (0,)  # positions, even if there are none


@pytest.mark.parametrize("costs", [[1.0, 2.0], [[1.0, 2.0, 3.0]], [[1.0, np.nan]]])
def test_bad_costs(costs):
    with pytest.raises(ValueError, match="costs must"):
        pareto_frontier(costs)
