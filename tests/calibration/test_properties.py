"""What must hold of the sampling rule and of the risk surface, whatever the data."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.calibration import CalibrationData, risk_surface
from sklearn_clm.calibration._search import threshold_grid
from tests.calibration.oracle import run
from tests.calibration.strategies import MEASURES, calibration_data, mean_of_members, thresholds


def alternating(quality):
    """A set function that rises and falls as members are added."""
    with np.errstate(invalid="ignore"):
        return float(np.sum(quality * (-1.0) ** np.arange(len(quality))))


def total(quality, accepted):
    """A sum in whatever order NumPy adds along the rows."""
    with np.errstate(invalid="ignore"):
        return np.sum(np.where(accepted, quality, 0.0), axis=1)


SET_SCORES = ["first_k", "first_k_reject", "max", "sum", alternating, total, mean_of_members]


@pytest.mark.parametrize("set_score", SET_SCORES)
@settings(max_examples=25, deadline=None)
@given(data=calibration_data(), l1=thresholds(1), l2=thresholds(1), l3=thresholds())
def test_a_higher_set_score_threshold_never_stops_earlier(set_score, data, l1, l2, l3):
    ascending = sorted(l3)
    for i in range(data.n_prompts):
        rules = [run(data, i, (*l1, *l2, value), set_score) for value in ascending]
        for low, high in itertools.pairwise(rules):
            assert low.n_samples <= high.n_samples
            assert high.accepted[: len(low.accepted)] == low.accepted
    surface = risk_surface(data, l1, l2, ascending, set_score=set_score)
    assert (np.diff(surface.samples, axis=2) >= 0).all()
    assert (np.diff(surface.size, axis=2) >= 0).all()
    assert (np.diff(surface.n_errors, axis=2) <= 0).all()


@pytest.mark.parametrize("set_score", SET_SCORES)
@settings(max_examples=20, deadline=None)
@given(
    data=calibration_data(), l1=thresholds(), l2=thresholds(), l3=thresholds(), order=st.randoms()
)
def test_the_order_of_prompts_changes_nothing(set_score, data, l1, l2, l3, order):
    positions = list(range(data.n_prompts))
    order.shuffle(positions)
    permuted = data.take(positions)
    given_, other = (
        risk_surface(part, l1, l2, l3, set_score=set_score) for part in (data, permuted)
    )
    for name in MEASURES:
        assert_array_equal(getattr(given_, name), getattr(other, name))
    for grid, grid_of_permuted in zip(
        threshold_grid(data, set_score=set_score, n_lambdas=4),
        threshold_grid(permuted, set_score=set_score, n_lambdas=4),
    ):
        assert_array_equal(grid, grid_of_permuted)


def test_vectorised_set_scores_see_nothing_but_the_set():
    seen = []

    def spy(quality, accepted):
        seen.append((quality.copy(), accepted.copy(), quality.flags.c_contiguous))
        return quality.sum(axis=1)

    rng = np.random.default_rng(0)
    data = CalibrationData(
        np.where(rng.random((9, 7)) < 0.3, np.inf, 1.0), rng.random((9, 7, 7)), np.ones((9, 7))
    )
    risk_surface(data, [0.5], [2.0], [1.0, np.inf], set_score=spy)
    run(data, 0, (0.5, -np.inf, np.inf), spy)
    for quality, accepted, contiguous in seen:
        assert quality.shape == accepted.shape == (len(quality), 7)
        assert (quality[~accepted] == 0).all()
        assert contiguous
