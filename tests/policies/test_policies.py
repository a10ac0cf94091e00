"""Policies as parameters of the sampler."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB

from sklearn_clm import NullCalibrationWarning
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.policies import ExitPolicy
from tests.calibration.tables import equal_texts
from tests.toy import toy_sampler


def drawn(n=60, k=6, seed=0):
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, 4, (n, k))
    first = equal_texts(answers.tolist())
    similarity = np.where(first[:, :, None] == first[:, None, :], 1.0, 0.3)
    quality = np.take_along_axis(rng.random((n, k)), first, axis=1)
    return CalibrationData(quality, similarity, answers == 0), first


def test_clones_keep_what_was_learnt_elsewhere():
    data, _ = drawn()
    policy = ExitPolicy(GaussianNB()).fit(data)
    copy = clone(policy)
    assert copy.model_ is policy.model_
    assert copy.estimator is not policy.estimator
    assert not hasattr(clone(ExitPolicy()), "model_")


def test_where_nothing_is_certified_each_text_is_shown_once():
    data, first = drawn()
    data.texts = first
    data.n_draws = np.full(60, 4)
    data.labels[:, 4:] = -1
    with pytest.warns(NullCalibrationWarning):
        rule = toy_sampler(k_max=6, epsilon=1e-3).calibrate(data).calibration_.rule
    is_new = first == np.arange(6)
    is_made = np.arange(6) < 4
    np.testing.assert_array_equal(rule.shown(data, "max"), is_new & is_made)


def test_a_certified_rule_that_returns_everything_is_warned_of():
    rng = np.random.default_rng(0)
    labels = np.eye(3, dtype=bool)[rng.integers(3, size=60)]  # one draw, whatever its quality
    data = CalibrationData(rng.random((60, 3)), np.zeros((60, 3, 3)), labels)
    sampler = toy_sampler(k_max=3, epsilon=0.08)
    with pytest.warns(UserWarning, match="all 3 draws"):
        sampler.calibrate(data)
    assert sampler.result_.risks.size[sampler.result_.position] == 3
