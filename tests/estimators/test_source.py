"""Where draws come from: training, seeds, and draws that are none."""

import functools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from sklearn_clm import (
    ConformalSampler,
)
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import (
    Generation,
    check_keyed,
)
from sklearn_clm.policies import ExitPolicy
from tests import toy
from tests.toy import Answering, ToyModel, Trained, drawn, questions

N_FIT = 150


X, y = questions(N_FIT)


toy_sampler = functools.partial(toy.toy_sampler, k_max=8, epsilon=0.3, random_state=3)


@pytest.fixture(scope="module")
def fitted():
    return toy_sampler().fit(*questions(N_FIT))


@pytest.mark.parametrize("training_fraction", [0.1, 0.5])
def test_calibration_never_sees_what_trained_the_generator(training_fraction):
    X, y = questions(100)
    original = Trained()
    options = {"k_max": 3, "epsilon": 0.5, "training_fraction": training_fraction}
    sampler = toy_sampler(original, **options).fit(X, y)
    assert not hasattr(original, "seen_")
    calibrating = {X[i] for i in sampler.calibration_indices_}
    assert len(sampler.generator_.seen_) == round(100 * training_fraction)
    assert calibrating.isdisjoint(sampler.generator_.seen_)
    assert calibrating | set(sampler.generator_.seen_) == set(X)
    assert sampler.calibration_data_.n_prompts == len(calibrating)


def test_seed_of_draws(tmp_path):
    X, y = questions(60)
    assert toy_sampler(random_state=7).fit(X, y).seed_ == 7
    assert toy_sampler(random_state=None).fit(X, y).seed_ == 0
    first, second = (
        toy_sampler(random_state=np.random.RandomState(5)).fit(X, y).seed_ for _ in range(2)
    )
    assert first == second
    log = tmp_path / "draws"
    toy_sampler(random_state=7, log=str(log)).fit(X, y)
    assert set(drawn(log)) == {("7", str(j), prompt) for prompt in X for j in range(8)}


def test_data_of_another_generator_bring_that_generator():
    other = toy_sampler().set_params(generator__skill=0.9)
    data = other.collect(X, y)
    sampler = toy_sampler().fit(X, y)
    own = sampler.calibration_data_
    sampler.set_params(generator__skill=0.9)
    assert sampler.calibrate(own).generator_.skill == 1.0
    sampler.calibrate(data)
    assert sampler.generator_.skill == 0.9
    assert sampler.predict(X[:20]) == other.calibrate(data).predict(X[:20])


def test_bare_arrays_are_not_those_of_an_earlier_generator():
    sampler = toy_sampler().fit(X, y)
    data = sampler.calibration_data_
    bare = CalibrationData(data.quality, data.similarity, data.labels)
    sampler.set_params(generator=Trained())
    with pytest.raises(NotFittedError, match="call fit, or collect, first"):
        sampler.calibrate(bare)
    # of one that was trained here they are, since nothing else could make its draws
    trained = toy_sampler(Trained()).fit(X, y)
    assert trained.calibrate(bare).generator_.seen_


class _IgnoresStart(ToyModel):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return super().sample(prompts, n_samples, seed=seed)


@pytest.mark.parametrize("k_max", [2, 8])
@pytest.mark.parametrize("wrap", [lambda generator: generator, CachedGenerator])
def test_a_generator_that_ignores_start_is_noticed(wrap, k_max):
    X, y = questions(150)
    new = questions(400)[0][150:]
    options = {"k_max": k_max, "epsilon": 0.5, "quality": "self_consistency", "random_state": 0}
    wrong = wrap(_IgnoresStart(skill=0.4))
    assert not check_keyed(getattr(wrong, "generator", wrong), X[0])
    with pytest.warns(UserWarning, match="seems to ignore start"):
        ConformalSampler(wrong, **options).fit(X, y).predict(new)
    right = wrap(ToyModel(skill=0.4))
    assert check_keyed(right, X[0])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*ignore start")
        fitted = ConformalSampler(right, **options).fit(X, y)
        fitted.predict(new)
        for prompt in new[:8]:  # copies of a prompt have the same draws
            fitted.predict([prompt] * 50)


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_draws_that_a_lazy_calibration_did_not_make_are_not_unlike_new_ones():
    X, y = questions(20)
    sampler = toy_sampler(Answering(lambda prompt, draw: Generation("same", -1.0, 1)))
    sampler.set_params(epsilon=0.05, policy=ExitPolicy(), judging="lazy").fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*ignore start")
        sampler.predict(X)


class _Rows(ToyModel):
    """Draws of the toy model, changed for each prompt as a whole."""

    def __init__(self, change, log=None):
        super().__init__(temperature=3.0, log=log)
        self.change = change

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        rows = super().sample(prompts, 8, seed=seed)
        return [self.change(row)[start : start + n_samples] for row in rows]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row[:1] * 8, "temperature"),
        (lambda row: row[:3] + row[2:3] * 5, "cache"),
        (lambda row: [replace(draw, logprob=-j / 10) for j, draw in enumerate(row)], "sorted"),
        (lambda row: row, None),
    ],
    ids=["temperature 0", "a cache", "sorted", "independent"],
)
def test_draws_that_are_copies_or_sorted_are_announced(change, message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        toy_sampler().set_params(generator=_Rows(change)).collect(*questions(60))
    told = [str(one.message) for one in caught]
    assert [message in one for one in told] == ([] if message is None else [True])
