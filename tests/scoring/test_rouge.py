import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from rouge_score.rouge_scorer import RougeScorer

from sklearn_clm.scoring import (
    RougeL,
    rouge_l,
    rouge_l_matrix,
    similarity_tensor,
    threshold_admission,
)

SCORER = RougeScorer(["rougeL"])


def package(texts_a, texts_b):
    return np.array(
        [[SCORER.score(a, b)["rougeL"].fmeasure for b in texts_b] for a in texts_a]
    ).reshape(len(texts_a), len(texts_b))


any_text = st.text(max_size=30)
# few words, so that common subsequences are long and ties many
wordy_text = st.lists(
    st.sampled_from(
        ["the", "The", "cat", "CAT", "a", "x1", "é", "İ", "ς", "K", "ß", "?", "\n", ""]
    ),
    max_size=90,
).map(" ".join)
texts = st.lists(st.one_of(any_text, wordy_text), max_size=6)


@settings(max_examples=150, deadline=None)
@given(texts, texts)
def test_matrix_equals_package(texts_a, texts_b):
    assert_allclose(rouge_l_matrix(texts_a, texts_b), package(texts_a, texts_b), rtol=0, atol=1e-12)
    assert_allclose(rouge_l_matrix(texts_a), package(texts_a, texts_a), rtol=0, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.one_of(any_text, wordy_text), st.one_of(any_text, wordy_text))
def test_one_pair_equals_package_and_matrix(first, second):
    expected = SCORER.score(first, second)["rougeL"].fmeasure
    if first.strip() == second.strip():
        expected = 1.0  # even without a token
    assert rouge_l(first, second) == pytest.approx(expected, abs=1e-12)
    assert (
        rouge_l(first, second) == rouge_l(second, first) == rouge_l.pairwise([first, second])[0, 1]
    )


def random_text(generator, words, length):
    return " ".join(generator.choices(words, k=length))


@pytest.mark.parametrize("length", [63, 64, 65, 128, 200])
def test_texts_longer_than_a_machine_word(length):
    generator = random.Random(length)
    words = [f"w{i}" for i in range(40)]
    some = [random_text(generator, words, length + extra) for extra in (-1, 0, 1)]
    assert_allclose(rouge_l_matrix(some), package(some, some), rtol=0, atol=1e-12)
    assert_allclose(rouge_l_matrix(some, some[:1]), package(some, some[:1]), rtol=0, atol=1e-12)


def test_lower_casing_that_makes_ascii_and_lone_surrogates():
    # the Kelvin sign becomes k, and a dotted capital I becomes i and a combining dot
    some = ["\u212a", "k", "\u0130stanbul", "i stanbul", "A", "a A", "\ud800a", "ΟΔΟΣ os"]
    assert_allclose(rouge_l_matrix(some[:6]), package(some[:6], some[:6]), rtol=0, atol=1e-12)
    assert_allclose(rouge_l_matrix(some), package(some, some), rtol=0, atol=1e-12)
    assert rouge_l("\u212a", "k") == 1.0


@pytest.mark.slow
def test_more_than_65536_distinct_tokens():
    # numbers pass through those of surrogate characters, and beyond 16 bits
    words = [f"t{i}" for i in range(70_000)]
    some = [" ".join(words), " ".join(words[::7]), " ".join(words[55_000:58_000]), "t69999 t0"]
    lengths = [70_000, 10_000, 3_000, 2]
    common = np.diag(lengths)
    common[0, 1:] = [10_000, 3_000, 1]
    common[1, 2] = len(range(55_006, 58_000, 7))
    common[1, 3] = 1
    common = np.maximum(common, common.T)
    measure = rouge_l_matrix(some)
    assert_allclose(measure, 2 * common / np.add.outer(lengths, lengths), rtol=0, atol=1e-12)


def test_duplicates_and_iterables():
    some = ["a b", "a c", "a b", "A  B."]
    assert_array_equal(rouge_l_matrix(iter(some)), rouge_l_matrix(np.array(some)))
    assert_array_equal(
        rouge_l_matrix(some), [[1, 0.5, 1, 1], [0.5, 1, 0.5, 0.5], [1, 0.5, 1, 1], [1, 0.5, 1, 1]]
    )
    assert_array_equal(rouge_l_matrix(some, some[1:2]), [[0.5], [1], [0.5], [0.5]])


def test_empty_lists():
    assert rouge_l_matrix([]).shape == (0, 0)
    assert rouge_l_matrix(["a"], []).shape == (1, 0)
    assert rouge_l_matrix([], ["a", "b"]).shape == (0, 2)


STEMMING = RougeScorer(["rougeL"], use_stemmer=True)
INFLECTED = (
    "run runs running runner ran fly flies flying happy happily die dies dying s as ass nationally "
    "generalization generalize 1990s x1s é? The Relational"
)
inflected = st.lists(st.sampled_from(INFLECTED.split()), max_size=70).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(any_text, inflected), min_size=1, max_size=6))
def test_stems_equal_those_of_the_package(some):
    expected = np.array([[STEMMING.score(a, b)["rougeL"].fmeasure for b in some] for a in some])
    measure = rouge_l_matrix(some, use_stemmer=True)
    assert_allclose(measure, expected, rtol=0, atol=1e-12)
    admit = threshold_admission(RougeL(use_stemmer=True), measure[0, -1])
    assert pickle.loads(pickle.dumps(admit))(some[0], some[-1]) is True
    stripped = np.array([text.strip() for text in some], dtype=object)
    expected = np.where(np.equal.outer(stripped, stripped), 1.0, measure)
    assert_array_equal(RougeL(use_stemmer=True).pairwise(some), expected)
    tensor = similarity_tensor(RougeL(use_stemmer=True), [some])[0]
    assert_array_equal(tensor, np.tril(expected, -1))


def test_each_distinct_token_is_stemmed_once(monkeypatch):
    from nltk.stem.porter import PorterStemmer

    asked = []
    stem = PorterStemmer.stem
    monkeypatch.setattr(PorterStemmer, "stem", lambda self, x: asked.append(x) or stem(self, x))
    some = ["quokkas jumping", "quokkas jumped", "the quokkas jumping"] * 3
    rouge_l_matrix(some, use_stemmer=True)
    similarity_tensor(RougeL(use_stemmer=True), [some, some])
    assert sorted(asked) == ["jumped", "jumping", "quokkas"]
