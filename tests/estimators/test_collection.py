"""Collections: draws with scores, tried on a few before all are paid for."""

import functools
import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_clm import (
    ConformalSampler,
)
from sklearn_clm.generators import (
    Generation,
)
from sklearn_clm.policies import ExitPolicy, ThresholdPolicy
from tests import toy
from tests.toy import Answering, ToyModel, drawn, questions

N_FIT = 150


X, y = questions(N_FIT)


toy_sampler = functools.partial(toy.toy_sampler, k_max=8, epsilon=0.3, random_state=3)


def test_collect_once_calibrate_often(log):
    sampler = toy_sampler(log=str(log))
    data = sampler.collect(X, y)
    with pytest.raises(NotFittedError):
        sampler.predict(X)
    for params in (
        {"epsilon": 0.2},
        {"epsilon": 0.5, "policy": ThresholdPolicy(set_score="sum")},
        {"k_max": 3},
    ):
        sampler.set_params(**params).calibrate(data)
        fresh = clone(sampler).set_params(generator__log=None).fit(X, y)
        assert sampler.lambda_hat_ == fresh.lambda_hat_
        assert sampler.predict(X[:20]) == fresh.predict(X[:20])
    drawn_in_fit = [call for call in drawn(log) if int(call[1]) == 7]
    assert len(drawn_in_fit) <= N_FIT + 40


@pytest.mark.parametrize("row", [["  "] * 3, ["", "yes", "yes"]])
def test_empty_responses_are_draws_unless_all_are_empty(row):
    sampler = toy_sampler(Answering(row), k_max=3, quality=lambda prompt, draw: 1.0)
    if "yes" in row:
        assert sampler.fit(questions(30)[0], ["yes"] * 30).lambda_hat_ is not None
        return
    with pytest.raises(ValueError, match="empty responses for all 30 prompts"):
        sampler.fit(*questions(30))
    assert not hasattr(sampler, "generator_")


@pytest.mark.parametrize("name", ["quality", "similarity"])
def test_a_failing_score_is_found_on_first_draws_where_later_ones_are_lazy(log, name):
    failing = toy_sampler(log=str(log), judging="lazy", **{name: lambda first, second: math.nan})
    with pytest.raises(ValueError, match=name) as caught:
        failing.fit(*questions(30))
    assert len(drawn(log)) == 4
    assert "set_params" in " ".join(caught.value.__notes__)


@pytest.mark.parametrize("policy", [None, ExitPolicy()])
def test_responses_that_are_arrays(policy):
    X, y = questions(60)
    arrays = Answering(lambda prompt, draw: Generation(np.full(3, len(prompt) * draw), -1.0, 1))
    sampler = toy_sampler(arrays, policy=policy, similarity=lambda a, b: float(np.all(a == b)))
    sampler.set_params(admission=lambda reference, response: response[0] > 0).fit(X, y)
    sets = sampler.predict(X[:8])
    assert all(one.guaranteed and one.responses[-1][0] > 0 for one in sets)


class _ShareOfAll:
    def __init__(self, peeks):
        self.peeks = peeks

    def score_draws(self, prompts, generations, start):
        texts = [[draw.response for draw in row] for row in generations]
        ends = [len(row) if self.peeks else j + 1 for row in texts for j in range(len(row))]
        ends = np.reshape(ends, (len(texts), -1))
        shares = [
            [row[:end].count(text) / end for text, end in zip(row, of_row)]
            for row, of_row in zip(texts, ends)
        ]
        return np.array(shares)[:, start:]


def test_a_quality_that_looks_at_later_draws_is_noticed():
    X, y = questions(100)
    options = {"k_max": 6, "epsilon": 0.5, "random_state": 0}
    with pytest.warns(UserWarning, match="other scores once there are later ones"):
        ConformalSampler(ToyModel(skill=0.4), quality=_ShareOfAll(True), **options).fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*later ones")
        ConformalSampler(ToyModel(skill=0.4), quality=_ShareOfAll(False), **options).fit(X, y)
