import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.scoring import exact_match, rouge_l, similarity_tensor

answer = st.one_of(
    st.lists(st.sampled_from(["the", "a", "x", "y", "Z", "é", "!"]), max_size=5).map(" ".join),
    st.sampled_from(["日本", "中国", "", "?"]),
)
value = st.one_of(answer, st.integers(0, 3), st.booleans(), st.sampled_from([0.5, float("nan")]))


def blocks_of(element, max_size=5):
    """Up to four rows of as many elements each."""
    return st.integers(1, max_size).flatmap(
        lambda size: st.lists(st.lists(element, min_size=size, max_size=size), max_size=4)
    )


def plain(function, responses, start):
    """The definition, pair by pair."""
    size = len(responses[0]) if responses else 0
    tensor = np.zeros((len(responses), size - start, size))
    for i, row in enumerate(responses):
        for j in range(start, size):
            for earlier in range(j):
                tensor[i, j - start, earlier] = function(row[j], row[earlier])
    return tensor


def rouge_or_equality(a, b):
    if isinstance(a, str) and isinstance(b, str):
        return 1.0 if a == b else rouge_l(a, b)
    return float(not isinstance(a, str) and not isinstance(b, str) and a == b)


@settings(max_examples=60, deadline=None)
@given(st.one_of(blocks_of(answer), blocks_of(value)), st.data())
def test_names_equal_their_definition(responses, data):
    start = data.draw(st.integers(0, len(responses[0]) if responses else 0))
    assert_array_equal(
        similarity_tensor("rouge_l", responses, start=start),
        plain(rouge_or_equality, responses, start),
    )
    assert_array_equal(
        similarity_tensor("exact_match", responses, start=start),
        plain(exact_match, responses, start),
    )


class LengthKernel:
    """Ratio of lengths; counts what it is asked."""

    def __init__(self):
        self.calls = []

    def pairwise(self, a, b=None):
        b = a if b is None else b
        self.calls.append((list(a), list(b)))
        return np.array([[min(len(x), len(y)) / max(len(x), len(y)) for y in b] for x in a])


@settings(max_examples=40, deadline=None)
@given(blocks_of(st.text(min_size=1, max_size=4)), st.data())
def test_callables_and_pairwise_objects_agree(responses, data):
    start = data.draw(st.integers(0, len(responses[0]) if responses else 0))

    def ratio(a, b):
        return min(len(a), len(b)) / max(len(a), len(b))

    expected = plain(ratio, responses, start)
    assert_array_equal(similarity_tensor(ratio, responses, start=start), expected)
    assert_array_equal(similarity_tensor(LengthKernel(), responses, start=start), expected)


def test_later_response_comes_first_and_duplicates_are_compared_once():
    asked = []

    def record(a, b):
        asked.append((a, b))
        return 0.25

    similarity_tensor(record, [["x", "y", "x", "y"]])
    assert asked == [("y", "x"), ("x", "x"), ("x", "y"), ("y", "y")]


def test_pairwise_is_asked_for_new_responses_only():
    kernel = LengthKernel()
    similarity_tensor(kernel, [["aa", "b", "aa", "ccc"]], start=3)
    assert kernel.calls == [(["ccc"], ["aa", "b", "aa", "ccc"])]


def test_unhashable_responses():
    rows = [[np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([0.0, 2.0])]]
    expected = [[[0, 0, 0], [1, 0, 0], [0, 0, 0]]]
    assert_array_equal(similarity_tensor("rouge_l", rows), expected)
    assert_array_equal(similarity_tensor("exact_match", rows), expected)
    cosine = similarity_tensor(lambda a, b: a @ b / np.sqrt(a @ a * (b @ b)), rows)
    assert cosine[0, 2, 0] == pytest.approx(4 / np.sqrt(20))


def test_shapes_of_nothing():
    assert similarity_tensor("rouge_l", []).shape == (0, 0, 0)
    assert similarity_tensor("rouge_l", [[], []]).shape == (2, 0, 0)
    assert similarity_tensor("rouge_l", [["a", "b"]], start=2).shape == (1, 0, 2)


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match="responses"):
        similarity_tensor("rouge_l", [["a", "b"], ["a"]])
    with pytest.raises(ValueError, match="start"):
        similarity_tensor("rouge_l", [["a", "b"]], start=3)


def test_texts_without_tokens_are_alike_where_they_are_equal_but_for_white_space():
    row = [" 日本", "日本", "\n日本 ", "中国"]
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]]
    assert_array_equal(similarity_tensor("rouge_l", [row])[0], np.tril(expected, -1))
    matrix = np.tril(expected) + np.tril(expected, -1).T
    assert_array_equal(rouge_l.pairwise(row), matrix)
    assert_array_equal([[rouge_l(a, b) for b in row] for a in row], matrix)
