import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import (
    CalibrationData,
    binomial_p_value,
    learn_then_test,
    prompts_needed,
    smallest_epsilon,
)
from sklearn_clm.calibration._data import optimization_size
from sklearn_clm.evaluation import plan
from tests.evaluation.simulated import simulated_data

FAST = {"n_trials": 4, "n_lambdas": 4, "random_state": 0}


@pytest.fixture(scope="module")
def pilot():
    return simulated_data(80, 6)


@pytest.fixture(scope="module")
def expected(pilot):
    return plan(pilot, 0.3, sizes=[12, 100, 1000], **FAST)


def of_errors(n_errors, n):
    """A pilot of which so many prompts have no admissible draw."""
    labels = np.ones((n, 2), dtype=bool)
    labels[:n_errors] = False
    rng = np.random.default_rng(0)
    return CalibrationData(rng.random((n, 2)), rng.random((n, 2, 2)), labels)


def test_smallest_epsilon_is_that_of_a_calibration_with_the_same_share(pilot, expected):
    errors = int((~pilot.admissible.any(axis=1)).sum())
    smallest, low, high = expected.estimates["smallest_epsilon"].T
    for n, m, found in zip(expected.n_prompts, expected.n_calibration, smallest):
        assert m == n - optimization_size(int(n), 1 / 3)
        assert found == smallest_epsilon(int(-(-m * errors // 80)), int(m), 0.05)
    assert np.all((low <= smallest) & (smallest <= high))
    # wider than what remains unknown of the share
    assert expected.lowest == errors / 80
    assert low[-1] < expected.lowest < high[-1]


@pytest.mark.slow
def test_intervals_hold_the_calibration_to_come():
    rng, runs, missed = np.random.default_rng(0), 120, 0
    for _ in range(runs):
        pilot = of_errors(rng.binomial(60, 0.15), 60)
        found = plan(pilot, 0.25, sizes=[150], n_trials=2, n_lambdas=1, random_state=0)
        _, low, high = found.estimates["smallest_epsilon"][0]
        missed += not low <= smallest_epsilon(int(rng.binomial(100, 0.15)), 100, 0.05) <= high
    assert binom.sf(missed - 1, runs, 0.05) > 1e-4


def test_chance_of_success_is_exact():
    found = plan(of_errors(12, 60), 0.3, sizes=[150, 600], **FAST)
    rng = np.random.default_rng(1)
    for m, (chance, low, high) in zip(found.n_calibration, found.estimates["chance"]):
        errors = rng.binomial(m, 0.2, size=4_000)
        passed = np.sum(binomial_p_value(errors, int(m), 0.3) <= 0.05)
        assert abs(passed / 4_000 - chance) < 4 * np.sqrt(0.25 / 4_000)
        assert low <= chance <= high


@pytest.mark.parametrize(("errors", "n", "epsilon"), [(12, 60, 0.3), (0, 60, 0.1), (9, 50, 0.25)])
def test_every_number_of_prompts_from_the_recommended_one_on_will_do(errors, n, epsilon):
    pilot = of_errors(errors, n)
    first = plan(pilot, epsilon, sizes=[100], **FAST).n_recommended
    sizes = [first - 2, first - 1, *range(first, 2 * first, 3)]
    found = plan(pilot, epsilon, sizes=sizes, n_trials=2, n_lambdas=1, random_state=0)
    chance = found.estimates["chance"][:, 0]
    # two numbers of prompts may leave the same calibration part
    assert min(chance[:2]) < 0.9
    assert np.all(chance[2:] >= 0.9)


def test_looks_share_delta():
    pilot = of_errors(12, 60)
    once, thrice = plan(pilot, 0.3, **FAST), plan(pilot, 0.3, looks=3, **FAST)
    same = plan(pilot, 0.3, 0.05 / 3, **FAST)
    assert thrice.to_frame().equals(same.to_frame())
    assert thrice.n_recommended == same.n_recommended > once.n_recommended
    assert (thrice.delta, thrice.looks) == (0.05, 3)
    assert "3 looks" in str(thrice)
    assert "0.0166667" in str(thrice)
    assert "beforehand" in str(once)


def test_out_of_reach_is_said():
    found = plan(of_errors(20, 60), 0.3, sizes=[100], **FAST)
    assert found.n_recommended is None
    assert "| 0.333, the pilot's | none |" in str(found)
    found = plan(of_errors(17, 60), 0.3, sizes=[100], **FAST)
    assert found.n_recommended is not None
    assert found.n_recommended_cautious is None
    assert "collect a larger one" in str(found)


@pytest.mark.parametrize("errors", [113, 119, 150])
def test_near_the_floor_a_larger_epsilon_is_named(errors):
    found = plan(of_errors(errors, 400), 0.3, sizes=[100, 1000], **FAST)
    assert (found.n_recommended is None) == (errors > 113)
    share, larger = errors / 400, found.epsilon_of_largest
    if errors == 113:  # at the pilot's share, 9,000 prompts and more are enough
        share, larger = found.lowest_interval[1], found.epsilon_of_largest_cautious
    n = {113: str(found.n_recommended), 119: "more than 10,000", 150: "none"}[errors]
    assert f", the pilot's | {n} | {found.epsilon_of_largest:.3f} |" in str(found)
    assert f", its upper limit | none | {found.epsilon_of_largest_cautious:.3f} |" in str(found)
    n_errors = np.random.default_rng(0).binomial(found.n_calibration[-1], share, size=4_000)
    passed = binomial_p_value(n_errors, int(found.n_calibration[-1]), larger) <= 0.05
    assert passed.mean() > 0.88


def test_too_few_prompts_have_no_sets(expected):
    assert prompts_needed(0.3, 0.05) > expected.n_calibration[0]
    assert np.isnan([expected.estimates[name][0] for name in ("size", "draws")]).all()
    assert expected.estimates["chance"][0, 0] == 0.0
    assert "too few prompts" in expected.to_markdown()


def test_sizes_and_draws_are_near_those_of_real_calibrations():
    results = [
        learn_then_test(simulated_data(300, 6, seed=seed), 0.45, random_state=seed, n_lambdas=8)
        for seed in range(100, 110)
    ]
    costs = ("size", "samples")
    real = [[getattr(one.risks, cost)[one.position] for cost in costs] for one in results]
    size, draws = np.mean(real, axis=0)
    inside = np.zeros(2)
    for seed in range(8):
        pilot = simulated_data(80, 6, seed=seed)
        found = plan(pilot, 0.45, sizes=[300], n_trials=20, n_lambdas=8, random_state=0)
        for i, (value, name) in enumerate(((size, "size"), (draws, "draws"))):
            _, low, high = found.estimates[name][0]
            inside[i] += low <= value <= high
    assert np.all(inside >= 6)


def test_judge_calls_count_distinct_responses():
    texts = np.zeros((20, 3), dtype=int)
    texts[:10, 2] = 2  # two distinct responses for half of the prompts, one for the others
    data = CalibrationData(np.ones((20, 3)), np.ones((20, 3, 3)), np.ones((20, 3)), texts=texts)
    found = plan(data, 0.3, sizes=[100], **FAST)
    mean, low, high = found.estimates["judgements"][0]
    assert 100 < low < mean == 150 < high < 200
    bare = CalibrationData(np.ones((20, 3)), np.ones((20, 3, 3)), np.ones((20, 3)))
    unknown = plan(bare, 0.3, **FAST).estimates["judgements"]
    assert unknown[:, 0].tolist() == [300, 600, 1500, 3000, 6000]
    of_two = plan(data, 0.3, sizes=[100], k_max=[1, 2], **FAST).estimates["judgements"]
    assert of_two[:, 0].tolist() == [100.0]


def test_the_same_seed_gives_the_same_plan(pilot, expected):
    again = plan(pilot, 0.3, sizes=[1000, 100, 12, 12], **FAST)
    assert str(again) == str(expected)
    assert str(plan(pilot, 0.3, sizes=[12, 100, 1000], **{**FAST, "random_state": 1})) != str(again)


def test_frame_has_an_interval_for_each_estimate(expected):
    frame = expected.to_frame()
    assert list(frame["n_prompts"]) == [12, 100, 1000]
    names = ["smallest_epsilon", "chance", "size", "draws", "judgements"]
    wanted = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    assert list(frame.columns) == ["n_prompts", "n_calibration", *wanted]
    assert frame["draws_low"].tolist()[1:] == expected.estimates["draws"][1:, 1].tolist()
