import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import CalibrationData, binomial_p_value, smallest_epsilon
from sklearn_clm.calibration.rows import optimization_size
from sklearn_clm.evaluation import plan


def of_errors(n_errors, n):
    """A pilot of which so many prompts have no admissible draw."""
    labels = np.ones((n, 2), dtype=bool)
    labels[:n_errors] = False
    rng = np.random.default_rng(0)
    return CalibrationData(rng.random((n, 2)), rng.random((n, 2, 2)), labels)


def test_smallest_epsilon_is_that_of_a_calibration_with_the_same_share():
    found = plan(of_errors(17, 80), 0.3, sizes=[12, 100, 1000])
    smallest, low, high = found.smallest_epsilon.T
    for n, m, one in zip(found.n_prompts, found.n_calibration, smallest):
        assert m == n - optimization_size(int(n), 1 / 3)
        assert one == smallest_epsilon(int(-(-m * 17 // 80)), int(m), 0.05)
    assert np.all((low <= smallest) & (smallest <= high))
    # wider than what remains unknown of the share
    assert low[-1] < found.share == 17 / 80 < high[-1]
    assert found.chance[0, 0] == 0.0  # of 8 prompts


@pytest.mark.slow
def test_intervals_hold_the_calibration_to_come():
    rng, runs, missed = np.random.default_rng(0), 120, 0
    for _ in range(runs):
        pilot = of_errors(rng.binomial(60, 0.15), 60)
        _, low, high = plan(pilot, 0.25, sizes=[150]).smallest_epsilon[0]
        missed += not low <= smallest_epsilon(int(rng.binomial(100, 0.15)), 100, 0.05) <= high
    assert binom.sf(missed - 1, runs, 0.05) > 1e-4


def test_chance_of_success_is_exact():
    found = plan(of_errors(12, 60), 0.3, sizes=[150, 600])
    rng = np.random.default_rng(1)
    for m, (chance, low, high) in zip(found.n_calibration, found.chance):
        errors = rng.binomial(m, 0.2, size=4_000)
        passed = np.sum(binomial_p_value(errors, int(m), 0.3) <= 0.05)
        assert abs(passed / 4_000 - chance) < 4 * np.sqrt(0.25 / 4_000)
        assert low <= chance <= high


@pytest.mark.parametrize(("errors", "n", "epsilon"), [(12, 60, 0.3), (0, 60, 0.1), (9, 50, 0.25)])
def test_every_number_of_prompts_from_the_recommended_one_on_will_do(errors, n, epsilon):
    pilot = of_errors(errors, n)
    first = plan(pilot, epsilon, sizes=[100]).n_recommended
    sizes = [first - 2, first - 1, *range(first, 2 * first, 3)]
    chance = plan(pilot, epsilon, sizes=sizes).chance[:, 0]
    # two numbers of prompts may leave the same calibration part
    assert min(chance[:2]) < 0.9
    assert np.all(chance[2:] >= 0.9)


@pytest.mark.parametrize(
    ("errors", "n", "said"),
    [
        (20, 60, "no number of prompts suffices if the share of errors is 0.333"),
        (17, 60, "The pilot does not tell: collect a larger one"),
        (5, 60, "Collect {0.n_recommended_cautious} prompts. The smaller number is enough"),
    ],
)
def test_which_number_to_take_is_said(errors, n, said):
    found = plan(of_errors(errors, n), 0.3, sizes=[100])
    assert said.format(found) in str(found)
    assert (found.n_recommended is None) == (errors == 20)
    assert (found.n_recommended_cautious is None) == (errors > 5)
    assert "beforehand" in str(found)


def test_the_frame_has_an_interval_for_each_estimate():
    found = plan(of_errors(17, 80), 0.3, sizes=[1000, 100, 12, 12])
    frame = found.to_frame()
    assert list(frame["n_prompts"]) == [12, 100, 1000]
    names = ["smallest_epsilon", "chance"]
    wanted = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    assert list(frame.columns) == ["n_prompts", "n_calibration", *wanted]
    assert frame["chance_low"].tolist() == found.chance[:, 1].tolist()
