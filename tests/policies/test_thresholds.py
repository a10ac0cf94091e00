"""Thresholds: predictions are what calibration counted, draw by draw."""

import functools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm import NullCalibrationWarning
from sklearn_clm.calibration import Configuration
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.generators import Generation, draw_stream
from sklearn_clm.policies import ThresholdPolicy
from sklearn_clm.policies._thresholds import ThresholdRule
from tests.calibration.oracle import run
from tests.calibration.strategies import mean_of_members
from tests.toy import Answering, toy_sampler


def alternating(quality):
    """A set function that rises and falls as members are added."""
    with np.errstate(invalid="ignore"):
        return float(np.sum(quality * (-1.0) ** np.arange(len(quality))))


def total(quality, accepted):
    """A sum in whatever order NumPy adds along the rows."""
    with np.errstate(invalid="ignore"):
        return np.sum(np.where(accepted, quality, 0.0), axis=1)


SET_SCORES = ["first_k", "first_k_reject", "max", "sum", alternating, total, mean_of_members]


def deal(n_values, prompt, draw):
    """The name of a quality, of a few that occur, or of any."""
    rng = draw_stream(prompt, 0, draw)
    value = rng.random() if n_values is None else rng.integers(n_values) / 10.0
    return f"{float(value)!r} {rng.integers(20)}"


def named_quality(prompt, generation):
    return float(generation.response.split()[0])


def same_suit(first, second):
    return 1.0 / (1.0 + abs(int(first.split()[1]) - int(second.split()[1])))


def admit(reference, response):
    return named_quality(None, Generation(response)) > 0.4


def sampler_for(set_score, n_values, **params):
    parts = {"quality": named_quality, "similarity": same_suit, "admission": admit}
    policy = ThresholdPolicy(set_score=set_score, n_lambdas=8)
    params = {"k_max": 12, "epsilon": 0.3, "policy": policy} | params
    return toy_sampler(Answering(functools.partial(deal, n_values)), **parts, **params)


PROMPTS = [f"prompt {i}" for i in range(70)]


def use(sampler, lambdas, k_max):
    """Predict with these thresholds, whatever was calibrated."""
    rules = {None: ThresholdRule(sampler.calibration_.claim, Configuration(*lambdas), k_max)}
    sampler.calibration_ = replace(sampler.calibration_, rules=rules)


@pytest.mark.parametrize("n_values", [None, 10])
@pytest.mark.parametrize("k_max", [12, [5, 9, 20]])
@pytest.mark.parametrize("set_score", SET_SCORES)
def test_predict_does_to_calibration_prompts_what_calibration_counted(set_score, k_max, n_values):
    """Every certified configuration, to the last bit of ties between scores and thresholds."""
    sampler = sampler_for(set_score, n_values, k_max=k_max).fit(PROMPTS, PROMPTS)
    data, result = sampler.calibration_data_, sampler.result_
    assert sampler.lambda_hat_ is not None
    steps = slice(None, None, max(1, len(result.valid_lambdas) // 2))
    budgets = result.frontier.k_max[: result.n_valid]
    for lambdas, budget in zip(result.valid_lambdas[steps], budgets[steps]):
        use(sampler, lambdas.tolist(), int(budget))
        counted = evaluate_configurations(data, [lambdas], set_score=set_score, k_max=int(budget))
        sets = sampler.predict(PROMPTS)
        lost = [not any(admit(None, response) for response in one) for one in sets]
        assert sum(lost) == counted.n_errors[0]
        assert sum(len(one) for one in sets) == round(counted.size[0] * len(sets))
        assert sum(one.n_samples for one in sets) == round(counted.samples[0] * len(sets))


@settings(max_examples=30, deadline=None)
@given(
    set_score=st.sampled_from(SET_SCORES),
    n_values=st.sampled_from([None, 3]),
    lambdas=st.tuples(
        st.sampled_from([-np.inf, 0.2, 0.5, np.inf]),
        st.sampled_from([-np.inf, 0.1, 0.2, 0.5]),
        st.sampled_from([-np.inf, 0.2, 0.5, 1.1, 3.0, np.inf]),
    ),
)
def test_lazy_prediction_equals_the_rule_on_all_draws(set_score, n_values, lambdas):
    sampler = sampler_for(set_score, n_values, k_max=8)
    data = sampler.collect(PROMPTS[:6], PROMPTS[:6])
    with warnings.catch_warnings(action="ignore", category=NullCalibrationWarning):
        sampler.calibrate(data)
    use(sampler, lambdas, 8)
    for i, one in enumerate(sampler.predict(PROMPTS[:6])):
        rule = run(data, i, lambdas, set_score)
        assert one.accepted.tolist() == rule.accepted
        assert [[j, *again] for j, again in zip(one.indices, one.repeats)] == [*rule.texts.values()]
        assert (one.n_samples, one.stopped) == (rule.n_samples, rule.stopped)
        assert one.set_score == rule.score
        of_texts = [max(data.quality[i, draws]) for draws in rule.texts.values()]
        assert one.quality.tolist() == of_texts
