import pickle
import warnings
from functools import partial
from operator import eq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.metrics import f1_score

from sklearn_clm.scoring import (
    PairJudge,
    RougeL,
    admission_matrix,
    component_match,
    exact_match,
    rouge_l,
    threshold_admission,
)
from sklearn_clm.scoring.verdicts import warn_of_references

word = st.sampled_from(["x", "The x", "y", "y!", "z", "", "1"])
prompt = st.tuples(st.lists(word, min_size=1, max_size=3), st.lists(word, min_size=3, max_size=3))


@settings(max_examples=60, deadline=None)
@given(st.lists(prompt, min_size=1, max_size=5))
def test_matrix_equals_its_definition(prompts):
    references, responses = map(list, zip(*prompts))
    expected = [[any(exact_match(a, y) for a in aliases) for y in row] for aliases, row in prompts]
    assert_array_equal(admission_matrix("exact_match", references, responses), expected)
    callables = [partial(exact_match, aliases) for aliases in references]
    assert_array_equal(admission_matrix("exact_match", callables, responses), expected)


def test_array_of_numbers_is_one_reference():
    references = np.array([[1.0, 2.0], [3.0, 4.0]])
    rows = [[np.array([1.0, 2.0]), np.array([2.0, 1.0])], [np.array([3, 4]), np.array([1, 2])]]
    assert_array_equal(
        admission_matrix("exact_match", references, rows), [[True, False], [True, False]]
    )
    assert_array_equal(admission_matrix(eq, np.array([1, 2]), [[1, 2], [1, 2]]), np.eye(2) == 1)


def recorder(asked):
    def record(reference, response):
        asked.append((reference, response))
        return reference == response

    return record


def test_equal_pairs_are_judged_once_and_in_order():
    asked = []
    responses = [["x", "y", "x"], ["y", "x", "z"], list("yyy")]
    admissible = admission_matrix(recorder(asked), ["x", "x", "y"], responses)
    assert asked == [("x", "x"), ("x", "y"), ("x", "z"), ("y", "y")]
    assert_array_equal(admissible, [[1, 0, 1], [0, 1, 0], [1, 1, 1]])


def test_numbers_of_different_types_are_not_taken_for_one_pair():
    def same_type(reference, response):
        return type(reference) is type(response)

    assert_array_equal(
        admission_matrix(same_type, [1, True], [[1, True, 1.0]] * 2),
        [[True, False, False], [False, True, False]],
    )


def test_callables_see_each_distinct_response_of_their_prompt_once():
    asked = []

    def accept(response):
        asked.append(response)
        return np.bool_(response == "a")

    assert_array_equal(
        admission_matrix("exact_match", [accept, accept], [["a", "b", "a"], ["a", "c", "c"]]),
        [[1, 0, 1], [1, 0, 0]],
    )
    assert asked == ["a", "b", "a", "c"]


class Equal(PairJudge):
    """Judges lists of pairs; keeps what it is asked, call by call."""

    def __init__(self, spoil=enumerate):
        self.asked = []
        self.spoil = spoil

    def judge_pairs(self, references, responses):
        self.asked.append(list(zip(references, responses)))
        return self.spoil([a == b for a, b in zip(references, responses)])


def test_a_judge_of_many_is_asked_for_all_at_once_and_next_references_where_it_must():
    judge = Equal()
    admissible = admission_matrix(
        judge, [["a", "b"], ["c"]], [["b", "x", "b"], ["c", "c", "a"]], n_jobs=2
    )
    assert_array_equal(admissible, [[1, 0, 1], [1, 1, 0]])
    assert judge.asked == [
        [("a", "b"), ("a", "x"), ("c", "c"), ("c", "a")],
        [("b", "b"), ("b", "x")],
    ]
    assert judge("a", "a") is True
    # in any order
    assert_array_equal(
        admission_matrix(Equal(lambda v: reversed([*enumerate(v)])), ["a"], [["a", "b"]]), [[1, 0]]
    )


@pytest.mark.parametrize(
    ("given", "error"),
    [([(0, True)], ValueError), ([(0, True)] * 2, ValueError), ([(0, True), (1, 2)], TypeError)],
)
def test_a_judge_of_many_gives_each_pair_one_verdict(given, error):
    with pytest.raises(error):
        admission_matrix(Equal(lambda verdicts: given), ["a"], [["a", "b"]])


@pytest.mark.parametrize("result", [2, 0.0, 1.0, None, "yes", np.int64(-1), np.float64(1), [True]])
def test_results_that_are_no_booleans_are_refused(result):
    def vague(*args):
        return result

    with pytest.raises(TypeError, match="admission vague"):
        admission_matrix(vague, ["x"], [["a"]])
    with pytest.raises(TypeError, match="admission vague"):
        admission_matrix("exact_match", [vague], [["a"]])


MISSING = [None, float("nan"), np.float32("nan"), ["x", None], ["x", float("nan")], [bool]]
EMPTY = [[], (), set(), np.array([], dtype=str)]


@pytest.mark.parametrize(
    ("admissions", "error", "message"),
    [
        ([bool, "x"], TypeError, "at position 0 .* at 1"),
        (["x", bool], TypeError, "at position 0 .* at 1"),
        *((["x", one], ValueError, r"admissions\[1\]") for one in MISSING),
        *((["x", one], ValueError, r"admissions\[1\]") for one in EMPTY),
        (["x"], ValueError, "admissions"),
    ],
)
def test_wrong_references_are_named(admissions, error, message):
    with pytest.raises(error, match=message):
        admission_matrix("exact_match", admissions, [["a"], ["a"]])


def test_threshold_is_inclusive():
    # 2 * 2 / 10 is 0.4 exactly
    reference, response = "a b c d e", "a b x y z"
    assert rouge_l(reference, response) == 0.4
    assert threshold_admission(rouge_l, 0.4)(reference, response) is True
    assert threshold_admission(rouge_l, np.nextafter(0.4, 1))(reference, response) is False


def test_threshold_admission_takes_metrics_of_scikit_learn():
    acceptable = threshold_admission(f1_score, 0.6)
    assert acceptable([1, 1, 0], [1, 0, 0]) is True
    assert acceptable([1, 1, 0], [0, 0, 1]) is False
    assert pickle.loads(pickle.dumps(acceptable)) == acceptable
    with pytest.raises(ValueError, match="metric"):
        threshold_admission(lambda a, b: float("nan"), 0.5)("a", "b")
    for name, wrong in (("metric", ("rouge", 0.5)), ("threshold", (max, "a"))):
        with pytest.raises((TypeError, ValueError), match=name):
            threshold_admission(*wrong)("a", "b")


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.bool_])
def test_zero_and_one_are_verdicts(kind):
    def equal(reference, response):
        return kind(reference == response)

    expected = [[True, False], [False, True]]
    responses = [["a", "b"], ["c", "d"]]
    as_kind = Equal(lambda verdicts: enumerate(map(kind, verdicts)))
    for judge in (equal, as_kind, component_match(equal)):
        verdicts = admission_matrix(judge, [["x", "a"], "d"], responses)
        assert verdicts.dtype == bool
        assert_array_equal(verdicts, expected)
    accept = [lambda y: kind(y == "a"), lambda y: kind(y == "d")]
    assert_array_equal(admission_matrix("exact_match", accept, responses), expected)
    assert component_match(equal, str.splitlines)("one\ntwo", "two") == 1


def warnings_of(admission, references):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_references(admission, references)
    assert all(one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


STEMMED = threshold_admission(RougeL(use_stemmer=True), 0.5)


@pytest.mark.parametrize(
    "text", ["北京是中国的首都", "2024年在北京", "القاهرة عاصمة مصر", "Москва, 1147"]
)
@pytest.mark.parametrize("name", ["rouge_l", STEMMED])
def test_references_of_a_script_that_rouge_does_not_know_are_warned_of(name, text):
    (message,) = warnings_of(name, [text, [text, "an alias"], "Paris"] * 2)
    assert repr(text) in message


@pytest.mark.parametrize(
    "given",
    [
        ("exact_match", ["北京是中国的首都"]),
        (threshold_admission(lambda a, b: 1.0, 0.5), ["北京是中国的首都"]),
        ("rouge_l", [bool]),
        ("rouge_l", ["Příliš žluťoučký kůň", "Cộng hòa xã hội", "Zürich", "—", "🙂", 3]),
        ("rouge_l", ["Paris"] * 20 + ["北京"]),
    ],
)
def test_ordinary_references_are_not_warned_of(given):
    assert not warnings_of(*given)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_judge_that_fails_names_what_it_was_asked(n_jobs):
    def judge(reference, response):
        return {"4": True}[response]

    with pytest.raises(KeyError) as raised:
        admission_matrix(judge, ["four", "five"], [["4"], ["six"]], n_jobs=n_jobs)
    assert "'five'" in raised.value.__notes__[0]
    assert "'six'" in raised.value.__notes__[0]
    with pytest.raises(KeyError) as raised:
        admission_matrix(judge, [lambda response: judge("four", response)], [["seven"]])
    assert "'seven'" in raised.value.__notes__[0]


@pytest.mark.parametrize("is_of_the_prompt", [False, True])
def test_a_judge_that_raises_stop_iteration_is_named(is_of_the_prompt):
    def judge(*given):
        return next(iter(()))

    references = [judge if is_of_the_prompt else "a"] * 2
    with pytest.raises(RuntimeError, match="admission judge must raise no StopIteration") as raised:
        admission_matrix("exact_match" if is_of_the_prompt else judge, references, [["b"]] * 2)
    assert "the response 'b'" in raised.value.__notes__[0]
