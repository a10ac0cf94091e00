"""What generators, scores and judges are told apart by."""

import copy
import functools
import pickle
import threading

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_clm.caching import CachedAdmission, CachedGenerator
from sklearn_clm.generators import BaseGenerator, EstimatorGenerator, Generation
from sklearn_clm.generators._fingerprint import UnidentifiedError, digest_of, identity, strictly


def longer_than(n, wrap=lambda function: function):
    return wrap(lambda reference, response: len(response) > n)


@pytest.mark.parametrize(
    "wrap",
    [
        functools.cache,
        functools.lru_cache(maxsize=9),
        lambda function: functools.partial(function),
        lambda function: functools.partial(functools.partial(function)),
        lambda function: [function],
        lambda function: {"judge": function},
        lambda function: functools.wraps(function)(lambda *pair: function(*pair)),
        lambda function: FunctionTransformer(function),
    ],
)
def test_functions_are_told_apart_whatever_they_are_wrapped_in(wrap):
    one, same, other = (identity(longer_than(n, wrap)) for n in (1, 1, 5))
    assert one == same != other


def test_functions_that_call_themselves_are_told_apart():
    def counting_from(first):
        def count(n):
            return first if n == 0 else count(n - 1)

        return count

    assert identity(counting_from(1)) == identity(counting_from(1)) != identity(counting_from(2))


def test_functions_that_name_what_is_not_yet_defined_can_be_told():
    def early():
        return late

    before = identity(early)
    late = 3
    assert identity(early) != before


def test_dictionaries_with_keys_of_other_types_are_told_apart():
    assert identity({1: "a"}) != identity({"1": "a"})
    assert identity({1: "a", "b": {2}}) == identity({"b": {2}, 1: "a"})


@pytest.mark.parametrize(
    "classifier",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(3, random_state=0),
    ],
)
def test_an_object_and_its_pickled_copy_are_the_same(classifier):
    rows = np.random.default_rng(0).normal(size=(40, 3))
    classifier.fit(rows, rows[:, 0] > 0)
    first = EstimatorGenerator(FrozenEstimator(classifier))
    second = pickle.loads(pickle.dumps(first))
    third = pickle.loads(pickle.dumps(second))
    assert first.fingerprint() == second.fingerprint() == third.fingerprint()
    other = clone(classifier).fit(rows, rows[:, 1] > 0)
    assert EstimatorGenerator(FrozenEstimator(other)).fingerprint() != first.fingerprint()
    texts = make_pipeline(TfidfVectorizer(), LogisticRegression())
    texts.fit(["a cat sat", "a dog ran", "lorem ipsum", "dolor sit"], [1, 1, 0, 0])
    copied = pickle.loads(pickle.dumps(texts))
    assert digest_of(dict, {"model": texts}) == digest_of(dict, {"model": copied})


def test_models_that_no_pickle_takes_are_told_apart():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    prints = {
        EstimatorGenerator(
            FrozenEstimator(
                make_pipeline(FunctionTransformer(change), GaussianNB()).fit(rows, rows[:, 0] > 0)
            )
        ).fingerprint()
        for change in (lambda x: x, lambda x: 2 * x, lambda x: x[:, :1])
    }
    assert len(prints) == 3


class Talking(BaseGenerator):
    def __init__(self, client):
        self.client = client

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[Generation("yes")] * n_samples for _ in prompts]


def test_a_cache_refuses_what_it_could_not_tell_from_another():
    generator = Talking(threading.Lock())
    assert isinstance(generator.fingerprint(), str)
    with pytest.raises(UnidentifiedError), strictly():
        generator.fingerprint()
    with pytest.raises(ValueError, match="key="):
        CachedGenerator(generator).sample(["a"], 1)
    assert CachedGenerator(generator, key="mine").sample(["a"], 1)[0][0].response == "yes"
    client = threading.Lock()
    with pytest.raises(ValueError, match="CachedAdmission"):
        CachedAdmission(lambda reference, response: client is None)("a", "b")


def test_tensors_are_told_by_their_numbers():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.width, self.layer = width, torch.nn.Linear(2, width)

    one, same, other = (Net(2) for _ in range(3))
    same.load_state_dict(one.state_dict())
    models = [one, same, other, *(model.bfloat16() for model in map(copy.deepcopy, (one, other)))]
    prints = [digest_of(dict, {"model": model}) for model in models]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4


class Threshold:
    def __init__(self, least):
        self.least = least

    def reaches(self, reference, response):
        return response >= self.least

    def exceeds(self, reference, response):
        return response > self.least


def test_bound_methods_are_told_by_object_and_name():
    one, same, other = (identity(Threshold(least).reaches) for least in (1, 1, 2))
    assert one == same != other
    assert identity(Threshold(1).exceeds) != one


def test_sparse_tensors_are_told_by_their_numbers():
    torch = pytest.importorskip("torch")
    one, same, other = (
        digest_of(list, {"model": torch.tensor([[0.0, value]]).to_sparse()})
        for value in (1.0, 1.0, 2.0)
    )
    assert one == same != other
    empty, larger = (torch.empty(size, device="meta") for size in (2, 3))
    assert digest_of(list, {"model": empty}) != digest_of(list, {"model": larger})
