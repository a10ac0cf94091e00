"""A language model as the judge: what is asked, what counts as an answer."""

import pytest

from sklearn_clm.caching import CachedAdmission
from sklearn_clm.scoring import LLMJudge, admission_matrix
from tests.toy import Answering, n_stored


def knowing(prompt, draw):
    """Yes where the prompt's two halves agree, but it is slow to come to the point."""
    reference, response = prompt.split("|")
    if draw < len(response) % 3:
        return "Well, ..."
    return "Yes" if reference == response else "No"


def undecided(prompt, draw):
    """Yes to all but one question, of which it never knows."""
    return "Who knows?" if prompt == "r9|r9" else "yes"


def failing(prompt, draw):
    """Yes until it fails for one question."""
    if prompt == "r40|r40":
        raise ConnectionError("the service is gone")
    return "yes"


PAIR = "{reference}|{response}"


@pytest.fixture(autouse=True)
def _forget():
    Answering.asked.clear()


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        *((text, True) for text in ("yes", "Yes.", " \n**YES**, because no other is")),
        *((text, False) for text in ("No", "no, yes would be wrong", "'No'")),
        ("Yes, or so it seems", True),
    ],
)
def test_answers_that_begin_with_yes_or_no(answer, verdict):
    judge = LLMJudge(Answering([answer]))
    assert judge("Paris", "It is Paris") is verdict
    assert len(Answering.asked) == 1


@pytest.mark.parametrize(
    "answer",
    ["", "Maybe", "The answer is yes", "yes/no", "Yes or no?", "yes and no", "yesterday", "not"],
)
def test_other_answers_are_asked_for_again_and_refused(answer):
    with pytest.raises(ValueError, match=r"yes or no, .* 1 of 1 .* 3 attempts") as caught:
        LLMJudge(Answering([answer]), max_attempts=3, seed=8)("Paris", "Lyon")
    assert f"got {answer!r}" in str(caught.value)
    assert [(start, seed) for _, start, seed in Answering.asked] == [(0, 8), (1, 8), (2, 8)]
    assert LLMJudge(Answering([answer, answer, "No"]), max_attempts=3)("Paris", "Lyon") is False


def test_only_unclear_answers_are_asked_for_again():
    judge = LLMJudge(Answering(knowing), template=PAIR)
    verdicts = dict(judge.judge_pairs(["a", "bb", "ccc"], ["a", "bb", "xxx"]))
    assert verdicts == {0: True, 1: True, 2: False}
    assert [prompt for prompt, _, _ in Answering.asked].count("ccc|xxx") == 1
    assert [prompt for prompt, _, _ in Answering.asked].count("bb|bb") == 3


@pytest.mark.parametrize(
    ("template", "reference", "response", "question"),
    [
        (
            "Q: {reference}\n{response}",
            "the {response}",
            " a {reference} {x}\n",
            "Q: the {response}\na {reference} {x}",
        ),
        (
            "{question} {answer} {response} {other}",
            {"question": "Capital?", "answer": "Paris"},
            "Lyon",
            "Capital? Paris Lyon {other}",
        ),
        (
            lambda a, b: [{"role": "user", "content": f"{a}={b}?"}],
            "a",
            "b",
            [{"role": "user", "content": "a=b?"}],
        ),
    ],
)
def test_questions_hold_reference_and_response(template, reference, response, question):
    LLMJudge(Answering(), template=template)(reference, response)
    assert Answering.asked[0][0] == question


def test_the_question_asks_for_the_same_meaning():
    LLMJudge(Answering())("Paris", "Lyon")
    assert "Reference: Paris\n\nResponse: Lyon\n" in Answering.asked[0][0]


def test_a_report_calls_it_by_its_name():
    assert LLMJudge().fingerprint().startswith("LLMJudge:")


def test_a_template_without_a_place_for_the_response_is_refused():
    with pytest.raises(ValueError, match="template"):
        LLMJudge(Answering(), template="Good?")("a", "b")


def test_in_a_matrix_each_pair_is_asked_about_once():
    judge = LLMJudge(Answering(knowing), template=PAIR)
    responses = [["a", "b", "a", "a"], ["c", "a", "c", "b"]]
    verdicts = admission_matrix(judge, [["b", "a"], "c"], responses)
    assert verdicts.tolist() == [[True, True, True, True], [True, False, True, False]]
    first_asked = [prompt for prompt, start, _ in Answering.asked if start == 0]
    assert len(first_asked) == len(set(first_asked)) == 6


def test_the_pair_without_an_answer_is_named_and_all_other_verdicts_come_first(tmp_path):
    references = [f"r{k}" for k in range(200)]
    judge = LLMJudge(Answering(undecided), template=PAIR, max_attempts=2)
    arrived = {}
    with pytest.raises(ValueError, match=r"to 1 of 200 questions .*'r9\|r9'"):
        arrived.update(judge.judge_pairs(references, references))
    for _ in range(2):
        cached = CachedAdmission(judge, tmp_path / "verdicts.sqlite")
        with pytest.raises(ValueError, match=r"'r9\|r9'"):
            cached.judge_pairs(references, references)
        assert n_stored(cached) == 199
    # 201 questions by the judge alone, 201 by the first cache, 2 by the second
    assert len(Answering.asked) == 201 + 201 + 2
    assert Answering.asked[-1][0] == "r9|r9"


def test_verdicts_that_arrived_before_the_model_failed_are_kept():
    cached = CachedAdmission(LLMJudge(Answering(failing), template=PAIR))
    references = [f"r{k}" for k in range(100)]
    for n_kept in (40, 40):
        with pytest.raises(ConnectionError):
            cached.judge_pairs(references, references)
        assert n_stored(cached) == n_kept
    assert len(Answering.asked) == 42
    assert all(dict(cached.judge_pairs(references[:40], references[:40])).values())
    # where nothing is left to ask, nobody needs to be there
    assert not dict(CachedAdmission(LLMJudge(), key="nobody").judge_pairs([], []))
