import numpy as np
import pytest

from sklearn_clm.metrics import normalized_auc


def test_hand_calculation():
    # trapezoids: 0.1 * 0.5 + 0.2 * 1.5 = 0.35 over a range of 0.3
    assert normalized_auc([0.1, 0.2, 0.4], [0.0, 1.0, 2.0]) == pytest.approx(0.35 / 0.3)


def test_a_constant_is_its_own_area_and_a_line_its_midpoint():
    levels = np.array([0.05, 0.11, 0.3, 0.42])
    assert normalized_auc(levels, np.full(4, 2.5)) == pytest.approx(2.5)
    assert normalized_auc(levels, levels) == pytest.approx((0.05 + 0.42) / 2)


def test_many_curves_at_once():
    values = np.random.default_rng(0).random((2, 3, 5))
    levels = np.linspace(0.1, 0.5, 5)
    areas = normalized_auc(levels, values)
    assert areas.shape == (2, 3)
    assert areas[1, 2] == pytest.approx(float(normalized_auc(levels, values[1, 2])))


def test_one_level_and_none():
    assert normalized_auc([0.3], [[1.5], [2.0]]).tolist() == [1.5, 2.0]
    assert np.isnan(normalized_auc([], np.empty((2, 0)))).all()


@pytest.mark.parametrize("levels", [[0.2, 0.1], [0.1, 0.1], [[0.1]], [0.1, np.nan], [0.1]])
def test_levels_increase_as_many_as_values(levels):
    with pytest.raises(ValueError, match="levels must"):
        normalized_auc(levels, [1.0, 2.0])
