"""Numbers at the edge of what floats can hold, and on their way through files."""

import json
import math
import warnings

import numpy as np
import pytest

from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    SamplingRule,
    binomial_p_value,
    learn_then_test,
    risk_surface,
)
from sklearn_clm.calibration._search import threshold_grid
from sklearn_clm.generators import Generation, draw_stream
from sklearn_clm.policies import ThresholdPolicy
from sklearn_clm.scoring import get_set_score
from tests.toy import Answering, toy_sampler

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def rambling(logprob):
    """Responses of 10,000 tokens, all so improbable that their quality is 0.0, or nearly so."""

    def answer(prompt, draw):
        right = draw_stream(prompt, 0, draw).random() < 0.7
        return Generation("right" if right else f"wrong {draw}", logprob, 10_000)

    return Answering(answer)


@pytest.mark.parametrize("logprob", [-1e5, -math.inf])
@pytest.mark.parametrize("set_score", ["max", "sum", "first_k_reject", np.mean])
def test_qualities_that_all_underflow(set_score, logprob):
    """Everything ties at 0.0: the guarantee must do without quality, and no NaN may turn up."""
    prompts = [f"prompt {i}" for i in range(120)]
    policy = ThresholdPolicy(set_score=set_score)
    sampler = toy_sampler(rambling(logprob), epsilon=0.3, policy=policy)
    sampler.fit(prompts, ["right"] * 120)
    assert (sampler.calibration_data_.quality == 0.0).all()
    assert sampler.lambda_hat_ is not None
    assert not np.isnan(sampler.lambda_hat_).any()
    sets = sampler.predict([f"new {i}" for i in range(100)])
    assert np.mean(["right" in one for one in sets]) > 0.6
    assert sets == sampler.predict([one.prompt for one in sets])


def data_of(dtype, k=4, n=90):
    rng = np.random.default_rng(0)
    # 0.1 and the like are other numbers in single precision
    quality = rng.integers(1, 10, (n, k)).astype(dtype) / dtype(10)
    similarity = rng.integers(1, 10, (n, k, k)).astype(dtype) / dtype(10)
    return CalibrationData(quality, similarity, rng.random((n, k)) < 0.7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("set_score", ["max", "sum"])
def test_thresholds_accept_the_values_that_they_come_from(dtype, set_score, tmp_path):
    data = data_of(dtype)
    data.save(tmp_path / "data.npz")
    loaded = CalibrationData.load(tmp_path / "data.npz")
    np.testing.assert_array_equal(loaded.quality, data.quality)
    np.testing.assert_array_equal(loaded.similarity, data.similarity)
    assert loaded.similarity.dtype == np.float64
    grids = [threshold_grid(part, set_score=set_score) for part in (data, loaded)]
    for before, after in zip(*grids):
        np.testing.assert_array_equal(before, after)
    l1, l2, l3 = (json.loads(json.dumps(grid[1:-1].tolist())) for grid in grids[0])
    earlier = loaded.similarity[:, 1, 0]
    for i in range(loaded.n_prompts):
        # draw 0 is of the lowest quality that is accepted, draw 1 as similar as may be
        alike, worst = float(earlier[i]), float(loaded.quality[i, :2].min())
        above = min(threshold for threshold in l1 if threshold > alike)
        below = max(threshold for threshold in l2 if threshold < worst)
        assert not np.any((loaded.similarity > alike) & (loaded.similarity <= above))
        assert not np.any((loaded.quality >= below) & (loaded.quality < worst))
        own = Configuration(above, below, np.inf)
        rule = SamplingRule(own, get_set_score(set_score), 2)
        for draw in range(2):
            rule.update(loaded.quality[i, draw], loaded.similarity[i, draw])
        assert rule.accepted == [0, 1]
        part, grid = loaded.take([i]).truncate(2), ([own.similarity], [own.quality], [*l3, np.inf])
        surface = risk_surface(part, *grid, set_score=set_score)
        assert surface.size[0, 0, -1] == 2


def exact_tail(mpmath, n_errors, n, epsilon):
    """P(Binom(n, epsilon) <= n_errors), term by term, in 60 digits."""
    with mpmath.workdps(60):
        p = mpmath.mpf(epsilon)
        term = mpmath.exp(
            mpmath.loggamma(n + 1)
            - mpmath.loggamma(n_errors + 1)
            - mpmath.loggamma(n - n_errors + 1)
            + n_errors * mpmath.log(p)
            + (n - n_errors) * mpmath.log1p(-p)
        )
        total, k = term, n_errors
        while k > 0 and term > total * mpmath.mpf(10) ** -25:
            term *= mpmath.mpf(k) / (n - k + 1) * (1 - p) / p
            total += term
            k -= 1
        return float(total)


@pytest.mark.parametrize(
    "n", [10, 1_565, 100_000, pytest.param(10_000_000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.3, 0.5, 0.999])
def test_binomial_tail(n, epsilon):
    mpmath = pytest.importorskip("mpmath")
    deviation = math.sqrt(n * epsilon * (1 - epsilon))
    for z in (-8, -2, -1.645, 0):
        n_errors = min(max(round(n * epsilon + z * deviation), 0), n - 1)
        expected = exact_tail(mpmath, n_errors, n, epsilon)
        assert binomial_p_value(n_errors, n, epsilon) == pytest.approx(expected, rel=1e-9)


def test_infinite_and_tiny_scores_calibrate():
    rng = np.random.default_rng(0)
    quality = rng.choice([-np.inf, -1e308, -5e-324, 0.0, 5e-324, 1e308, np.inf], (150, 4))
    similarity = rng.choice([-np.inf, 0.0, 1.0, np.inf], (150, 4, 4))
    data = CalibrationData(quality, similarity, rng.random((150, 4)) < 0.7)
    with warnings.catch_warnings():
        # the sum of +inf and -inf is NaN, which reaches no threshold
        warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
        warnings.filterwarnings("ignore", "overflow", RuntimeWarning)
        for set_score in ("max", "sum", "first_k", "first_k_reject"):
            result = learn_then_test(data, 0.4, set_score=set_score, random_state=0)
            assert result.lambda_hat is not None
            assert not np.isnan(result.frontier.lambdas).any()
