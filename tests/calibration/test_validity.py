"""Learn Then Test keeps its promise where the truth is known."""

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import CalibrationData, learn_then_test
from sklearn_clm.calibration._search import threshold_grid
from sklearn_clm.calibration._surface import evaluate_configurations

N_CALIBRATIONS = 400
EPSILON, DELTA = 0.3, 0.1
# the prompts of the world: calibration data are drawn from them with replacement, so that they
# are independent and identically distributed, and the risk of a configuration is its mean loss
# over this finite world, without any error of estimation
POPULATION = 4_000


def make_world(k=6):
    rng = np.random.default_rng(20)
    ease = rng.beta(0.9, 1.3, (POPULATION, 1))
    answer = rng.geometric(np.clip(ease, 0.2, 1.0), (POPULATION, k))
    admissible = answer == 1
    quality = np.round(0.6 / answer + 0.3 * ease + 0.1 * rng.random((POPULATION, k)), 2)
    same = answer[:, :, None] == answer[:, None, :]
    similarity = np.where(same, 1.0, np.round(rng.random((POPULATION, k, k)), 1))
    return CalibrationData(quality, similarity, admissible)


@pytest.fixture(scope="module")
def world():
    return make_world()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("set_score", "k_max"),
    [("first_k", None), ("first_k_reject", None), ("max", None), ("sum", None), ("max", [2, 4, 6])],
)
def test_risk_exceeds_epsilon_in_at_most_delta_of_calibrations(world, set_score, k_max):
    rng = np.random.default_rng(7)
    lambdas, budgets = [], []
    for seed in range(N_CALIBRATIONS):
        data = world.take(rng.integers(POPULATION, size=180))
        result = learn_then_test(
            data, EPSILON, DELTA, set_score=set_score, random_state=seed, n_lambdas=4, k_max=k_max
        )
        if result.lambda_hat is not None:
            lambdas.append(result.lambda_hat)
            budgets.append(result.k_max_hat)
    # the promise is not kept by never promising anything
    assert len(lambdas) > 0.5 * N_CALIBRATIONS
    risk = evaluate_configurations(world, lambdas, set_score=set_score, k_max=budgets).loss
    n_failures = np.sum(risk > EPSILON)
    assert n_failures <= binom.ppf(0.999, N_CALIBRATIONS, DELTA)
    # nor by far too much caution: the chosen configurations come close to epsilon
    assert np.mean(risk) > 0.5 * EPSILON


@pytest.mark.slow
def test_the_simulation_detects_a_choice_without_a_test(world):
    rng = np.random.default_rng(7)
    lambdas = []
    for _ in range(300):
        data = world.take(rng.integers(POPULATION, size=120))
        grid = np.stack(
            np.meshgrid(*threshold_grid(data, set_score="max", n_lambdas=4)), axis=-1
        ).reshape(-1, 3)
        risks = evaluate_configurations(data, grid, set_score="max")
        tolerated = np.flatnonzero(risks.loss <= EPSILON)
        lambdas.append(grid[tolerated[np.argmin(risks.objective()[tolerated])]])
    risk = evaluate_configurations(world, lambdas, set_score="max").loss
    assert np.sum(risk > EPSILON) > binom.ppf(0.999, 300, DELTA)
