"""Collecting block by block."""

import numpy as np
import pytest

from tests.toy import ToyModel, questions, toy_sampler

PROMPTS, REFERENCES = ([*some, *some[:10]] for some in questions(110))


def collected(**params):
    sampler = toy_sampler(k_max=4, **params)
    return sampler, sampler.collect(PROMPTS, REFERENCES)


def assert_same_data(data, expected):
    for name in ("quality", "similarity", "admissible", "texts"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))
    assert data.provenance == expected.provenance


@pytest.mark.parametrize("quality", ["likelihood", "self_consistency"])
@pytest.mark.parametrize("draws_at_once", [1, 30, 479])
def test_blocks_make_no_difference(monkeypatch, draws_at_once, quality):
    _, expected = collected(quality=quality)
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", draws_at_once)
    sampler, data = collected(quality=quality)
    assert_same_data(data, expected)
    assert sampler.calibration_draws_ == ToyModel().sample(PROMPTS, 4)


def test_lazy_judging_goes_over_all_blocks(monkeypatch):
    lazy = toy_sampler(judging="lazy")
    thresholds = lazy.fit(PROMPTS, REFERENCES).lambda_hat_
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", 100)
    assert lazy.fit(PROMPTS, REFERENCES).lambda_hat_ == thresholds
