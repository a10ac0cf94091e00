"""Other losses of a set, besides admission."""

import pickle

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration import Configuration, betting_p_value, binomial_p_value
from sklearn_clm.calibration.algorithm_1 import sets_at_stop
from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import CovariateShift, Losses, ThresholdPolicy
from tests.toy import questions, toy_sampler

N = 240
X, Y = questions(N)


def wrong(prompt, reference, one):
    """Share of wrong members."""
    return sum(response != reference for response in one) / max(len(one), 1)


def price(prompt, reference, one):
    """Share of the budget that was drawn."""
    return one.n_samples / 4


def keeping(level):
    return Losses({"wrong": wrong}, {"wrong": level})


def sampler(**options):
    fixed = {"k_max": 4, "epsilon": 0.5, "policy": ThresholdPolicy(n_lambdas=5)}
    return toy_sampler(**fixed | options)


def share_of_wrong(part, configuration):
    """The loss `wrong`, from the labels, and which draws are accepted."""
    accepted = sets_at_stop(part, Configuration(*configuration), 4, "max").shown
    size = accepted.sum(axis=1)
    return np.sum(accepted & ~part.admissible, axis=1) / np.maximum(size, 1), accepted


def test_the_largest_p_value_is_tested_along_one_path():
    losses = keeping(0.6)
    one = sampler(losses=losses).fit(X, Y)
    result = one.result_
    _, part = one.calibration_data_.split(1 / 3, 0)
    tested = np.flatnonzero(~np.isnan(result.p_values))
    for m in tested:
        loss, accepted = share_of_wrong(part, result.frontier.lambdas[m])
        errors = int(np.sum(~np.any(accepted & part.admissible, axis=1)))
        wanted = max(
            float(betting_p_value(loss, 0.6, keys=part.prompts)),
            float(binomial_p_value(errors, part.n_prompts, 0.5)),
        )
        assert result.p_values[m] == pytest.approx(wanted)
    # up to the first failure and no further
    assert np.all(result.p_values[tested[:-1]] <= 0.05)
    assert len(tested) == len(result.p_values) or result.p_values[tested[-1]] > 0.05
    loss, _ = share_of_wrong(part, one.lambda_hat_)
    assert one.calibration_.rule.outcome.means["wrong"] == pytest.approx(loss.mean())
    new, _ = questions(10, first=1000)
    assert one.predict(new).guaranteed
    assert clone(one).fit(X, Y).predict(new) == one.predict(new)


def test_several_losses_with_levels_of_their_own():
    both = Losses({"wrong": wrong, "price": price}, {"wrong": 0.6, "price": 0.9})
    one = sampler(losses=both).fit(X, Y)
    assert set(one.calibration_.rule.outcome.means) == {"wrong", "price"}
    assert one.calibration_.rule.outcome.means["price"] < 0.9
    cheap = Losses({"wrong": wrong, "price": price}, {"wrong": 0.6, "price": 0.01})
    with pytest.warns(NullCalibrationWarning, match=r"no configuration .* mean price \d"):
        null = sampler(losses=cheap).fit(X, Y)
    assert null.lambda_hat_ is None
    assert not null.predict(["item 5"]).guaranteed
    said = CalibrationReport.from_estimator(null).warnings
    assert any("no configuration is certified" in each for each in said)


def test_losses_of_groups_and_of_weighted_prompts():
    names = [i % 2 == 0 for i in range(N)]
    one = sampler(losses=keeping(0.7)).fit(X, Y, groups=names)
    assert {name: rule.certified for name, rule in one.groups_.items()} == {True: True, False: True}
    weighted = sampler(losses=keeping(0.7), shift=CovariateShift(weight_bound=1.5))
    weighted.fit(X, Y, prompt_weight=np.where(names, 0.5, 1.5))
    assert weighted.lambda_hat_ is not None


def test_files_and_pickles(tmp_path):
    one = sampler(losses=keeping(0.7)).fit(X, Y)
    one.save_calibration(tmp_path / "file.json")
    new, _ = questions(10, first=1000)
    loaded = sampler(losses=keeping(0.7)).load_calibration(tmp_path / "file.json")
    assert loaded.predict(new) == one.predict(new)
    assert pickle.loads(pickle.dumps(one)).predict(new) == one.predict(new)
    # draws that were made without losses in mind are no longer in memory
    plain = pickle.loads(pickle.dumps(sampler().fit(X, Y))).set_params(losses=one.losses)
    assert plain.calibrate(plain.calibration_data_).predict(new) == one.predict(new)
    with pytest.raises(ValueError, match="losses"):
        sampler(losses=keeping(0.6)).load_calibration(tmp_path / "file.json")


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), "much", None])
def test_bad_losses(value):
    with pytest.raises((ValueError, TypeError), match="loss 'bad' must"):
        sampler(losses=Losses({"bad": lambda *asked: value}, {"bad": 0.1})).fit(X[:60], Y[:60])


def test_losses_need_data_that_were_collected_with_them():
    data = sampler().collect(X, Y)
    with pytest.raises(ValueError, match="data must"):
        sampler(losses=keeping(0.5)).calibrate(data)


class Always(BaseGenerator):
    """One response to all prompts."""

    gives_logprobs = False

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[Generation("yes")] * n_samples for _ in prompts]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("order", ["as drawn", "by outcome", "by topic"])
def test_sorted_tables_certify_a_loss_falsely_no_more_often_than_delta(order, seed):
    """Of mean .3 at a level of .29; bets by position certified 58 of 60 tables by outcome."""
    rng, n, n_worlds = np.random.default_rng(1), 294, 100
    simple = {"quality": lambda *_: 1.0, "similarity": lambda *_: 1.0, "admission": lambda *_: True}
    losses = Losses({"given": lambda prompt, reference, one: float(reference)}, {"given": 0.29})
    one = ConformalSampler(Always(), k_max=1, epsilon=0.5, losses=losses, **simple)
    one.set_params(random_state=seed)
    n_false = 0
    for _ in range(n_worlds):
        topic = rng.random(n) < 1 / 3
        loss = rng.random(n) < np.where(topic, 0.8, 0.05)
        key = {"as drawn": np.zeros(n), "by outcome": ~loss, "by topic": topic}[order]
        rows = np.argsort(key, kind="stable")
        prompts = [f"prompt {i}" for i in rng.integers(2**60, size=n)]
        one.fit(prompts, [str(float(loss[i])) for i in rows])
        n_false += one.lambda_hat_ is not None
    assert binom.sf(n_false - 1, n_worlds, 0.05) > 1e-4
