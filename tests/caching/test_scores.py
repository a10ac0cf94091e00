"""Judgements and scores that are kept: each pair once, whoever asks."""

import copy
import functools
import itertools
import time

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone

from sklearn_clm.caching import CachedAdmission, CachedGenerator, CachedScore
from sklearn_clm.generators import FunctionGenerator, Generation
from sklearn_clm.scoring import (
    LLMJudge,
    admission_matrix,
    quality_matrix,
    similarity_tensor,
    threshold_admission,
)
from tests.toy import dask_workers, n_stored

asked = []


def same_start(reference, response):
    asked.append((reference, response))
    return str(reference)[0] == str(response)[0]


def length_ratio(first, second):
    second = getattr(second, "response", second)
    asked.append((first, second))
    return min(len(first), len(second)) / max(len(first), len(second), 1)


def dear(reference, response):
    """Judges in another process, where `asked` is another list."""
    return len(reference) == len(response)


def ratio(first, second):
    return min(len(first), len(second)) / max(len(first), len(second))


@pytest.fixture(autouse=True)
def _forget():
    asked.clear()


@pytest.fixture(params=["file", "memory"])
def path(request, tmp_path):
    return tmp_path / "scores.sqlite" if request.param == "file" else None


REFERENCES = ["apple", ["banana", "cherry"], "apple"]
RESPONSES = [["ant", "bee", "ant"], ["cat", "bee", "dog"], ["ant", "elk", "bee"]]


def test_each_pair_is_judged_once_ever(path):
    cached = CachedAdmission(same_start, path)
    plain = admission_matrix(same_start, REFERENCES, RESPONSES)
    asked.clear()
    for judge in (cached, clone(cached), copy.copy(cached)):
        assert np.array_equal(admission_matrix(judge, REFERENCES, RESPONSES), plain)
    assert len(asked) == len(set(asked)) == cached.n_misses_ == 8
    # "bee" starts as "banana" does, so nobody asks about "cherry"
    assert ("banana", "bee") in asked
    assert ("cherry", "bee") not in asked


@pytest.mark.parametrize(
    "workers",
    [
        functools.partial(parallel_config, "loky", n_jobs=2),
        functools.partial(parallel_config, "threading", n_jobs=2),
        dask_workers,
    ],
)
def test_workers_judge_and_score_and_the_parent_keeps(path, workers):
    judge, score = CachedAdmission(dear, path), CachedScore(ratio, path)
    rows = [["b" * k for k in range(1, 6)]] * 4
    with workers():
        verdicts = admission_matrix(judge, ["a" * k for k in range(1, 5)], rows)
        tensor = similarity_tensor(score, rows)
    assert np.array_equal(verdicts, np.equal.outer(np.arange(1, 5), np.arange(1, 6)))
    assert np.array_equal(tensor, similarity_tensor(ratio, rows))
    assert n_stored(judge) == 20
    assert n_stored(score) == 10


def test_judges_of_many_pairs_are_used_whole(path):
    class Whole:
        sizes = []

        def __call__(self, reference, response):
            raise AssertionError("asked one by one")

        def judge_pairs(self, references, responses):
            self.sizes.append(len(references))
            return enumerate(a == b for a, b in zip(references, responses))

    cached = CachedAdmission(Whole(), path, key="whole")
    responses = [[str(k) for k in range(100)]]
    for _ in range(2):
        assert admission_matrix(cached, ["7"], responses).sum() == 1
    assert sum(Whole.sizes) == 100


def test_judgements_made_before_an_error_are_kept(path):
    def fails_on_dogs(reference, response):
        asked.append(response)
        if response == "dog" and len(asked) < 5:
            raise ConnectionError("the judge went home")
        return True

    cached = CachedAdmission(fails_on_dogs, path)
    with pytest.raises(ConnectionError):
        admission_matrix(cached, ["x"], [["ant", "bee", "dog", "elk"]])
    assert n_stored(cached) == 2
    asked.extend("..")
    assert admission_matrix(cached, ["x"], [["ant", "bee", "dog", "elk"]]).all()
    assert asked[-2:] == ["dog", "elk"]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        *((CachedAdmission, value, "a bool") for value in (2, "yes", None, np.float64(1.0))),
        *((CachedScore, value, "one real number") for value in (np.nan, None, "x", [1.0, 2.0])),
    ],
)
def test_what_is_no_result_is_not_kept(kind, value, message):
    cached = kind(lambda first, second: value)
    with pytest.raises((TypeError, ValueError), match=message):
        cached("a", "b")
    assert n_stored(cached) == 0


def test_other_judges_are_other_keys():
    judges = ["exact_match", same_start, dear, threshold_admission(length_ratio, 0.5)]
    prints = {CachedAdmission(judge).fingerprint() for judge in judges * 2}
    assert len(prints) == len(judges)


def test_a_judge_with_no_state_to_tell_needs_a_key(tmp_path):
    class Open:
        def __init__(self, file):
            self.file = file

        def __call__(self, reference, response):
            return True

    with open(__file__) as file:
        judge = Open(file)
        with pytest.raises(ValueError, match=r"CachedAdmission: .*key="):
            CachedAdmission(judge)("a", "b")
        assert CachedAdmission(judge, key="open")("a", "b") is True


def test_pairs_that_cannot_be_told_apart_are_refused():
    with pytest.raises(TypeError, match="CachedAdmission keeps results for text, numbers"):
        CachedAdmission(same_start)(object(), "b")


def test_qualities_are_kept(path):
    cached = CachedScore(length_ratio, path)
    draws = [[Generation(text) for text in row] for row in RESPONSES]
    plain = quality_matrix(length_ratio, ["ab", "abc", "ab"], draws)
    asked.clear()
    for start in (2, 0, 1):
        values = quality_matrix(cached, ["ab", "abc", "ab"], draws, start=start)
        assert np.array_equal(values, plain[:, start:])
    assert len(asked) == len(set(asked)) == 6
    # the draw, not its text alone, is what a quality is about
    cached("ab", Generation("ant", logprob=-1.0))
    assert len(asked) == 7


def test_similarities_are_kept(path):
    cached = CachedScore(length_ratio, path)
    rows = [["a", "bb", "a", "cccc"], ["a", "bb", "ddd", "a"]]
    plain = similarity_tensor(length_ratio, rows)
    asked.clear()
    for start in (2, 0, 4, 1):
        values = similarity_tensor(cached, rows, start=start)
        assert np.array_equal(values, plain[:, start:])
    assert len(asked) == len(set(asked))
    assert similarity_tensor(cached, [], start=0).shape == (0, 0, 0)
    with parallel_config(backend="threading"):
        values = similarity_tensor(clone(cached), rows, n_jobs=2)
    assert np.array_equal(values, plain)


def test_scores_of_whole_sets_have_nothing_to_keep():
    class Whole:
        def score_draws(self, prompts, generations, start):
            return np.zeros((1, 1))

    for score in (Whole(), "rouge_l"):
        with pytest.raises(TypeError, match="score must be a callable"):
            CachedScore(score, key="x")("a", "b")


def test_an_interrupt_loses_no_verdict_that_was_paid(tmp_path, interrupted_after):
    n_answered, n_interrupts = itertools.count(), 0

    def ask(question):
        time.sleep(0.001)
        next(n_answered)
        return "Yes."

    judge = LLMJudge(FunctionGenerator(ask, max_concurrency=8), template="{reference} {response}")
    cached = CachedAdmission(judge, tmp_path / "verdicts.sqlite", key="judge")
    assert cached("first", "response")
    for trial in range(30):
        pairs = [f"trial {trial}"] * 200, [f"response {k}" for k in range(200)]
        try:
            with interrupted_after(0.02 + trial * 3e-4):
                cached.judge_pairs(*pairs)
        except KeyboardInterrupt:
            n_interrupts += 1
        assert n_stored(cached) == int(repr(n_answered)[6:-1])
    assert n_interrupts > 10


@pytest.mark.parametrize("cache", [CachedGenerator, CachedAdmission, CachedScore])
def test_clones_share_what_is_no_estimator(cache):
    client = object()  # such as one that cannot be copied
    copy = clone(cache(client, key="one"))
    assert client in copy.get_params(deep=False).values()
