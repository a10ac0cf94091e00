"""A language model as the judge: what is asked, what counts as an answer."""

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm.caching import CachedAdmission, CachedGenerator
from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.scoring import LLMJudge, PairJudge, admission_matrix, component_match


class Answering(BaseGenerator):
    """Gives the answers it is told to, one after the other; keeps what it was asked."""

    asked = []

    def __init__(self, answers=("yes",)):
        self.answers = answers

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        rows = []
        for prompt in prompts:
            self.asked.append((prompt, start, seed))
            answers = [self.answer(prompt, draw) for draw in range(start, start + n_samples)]
            rows.append([Generation(answer) for answer in answers])
        return rows

    def answer(self, prompt, draw):
        return self.answers[draw % len(self.answers)]


class Knowing(Answering):
    """Says yes where the prompt's two halves agree, but is slow to come to the point."""

    def answer(self, prompt, draw):
        reference, response = prompt.split("|")
        if draw < len(response) % 3:
            return "Well, ..."
        return "Yes" if reference == response else "No"


class Undecided(Answering):
    """Says yes to all but one question, of which it never knows."""

    chunk_size = 1

    def answer(self, prompt, draw):
        return "Who knows?" if prompt == "r9|r9" else "yes"


class Failing(Answering):
    """Says yes until it fails for one question."""

    chunk_size = 1

    def answer(self, prompt, draw):
        if prompt == "r40|r40":
            raise ConnectionError("the service is gone")
        return "yes"


@pytest.fixture(autouse=True)
def _forget():
    Answering.asked.clear()


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("yes", True),
        ("Yes.", True),
        (" \n**YES**, because no other is", True),
        ("No", False),
        ("no, yes would be wrong", False),
        ("'No'", False),
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
    with pytest.raises(
        ValueError,
        match=r"gave no answer that begins with yes or no, in 3 attempts, to 1 of 1 questions",
    ) as caught:
        LLMJudge(Answering([answer]), max_attempts=3, seed=8)("Paris", "Lyon")
    assert repr(answer) in str(caught.value)
    assert [(start, seed) for _, start, seed in Answering.asked] == [(0, 8), (1, 8), (2, 8)]
    assert LLMJudge(Answering([answer, answer, "No"]), max_attempts=3)("Paris", "Lyon") is False


def test_only_unclear_answers_are_asked_for_again():
    judge = LLMJudge(Knowing(), template="{reference}|{response}")
    verdicts = dict(judge.judge_pairs(["a", "bb", "ccc"], ["a", "bb", "xxx"]))
    assert verdicts == {0: True, 1: True, 2: False}
    assert [prompt for prompt, _, _ in Answering.asked].count("ccc|xxx") == 1
    assert [prompt for prompt, _, _ in Answering.asked].count("bb|bb") == 3


def test_questions_hold_reference_and_response_as_they_are():
    LLMJudge(Answering())("the {response}", "a {reference} {x}")
    question = Answering.asked[0][0]
    assert "Reference: the {response}\n" in question
    assert "Response: a {reference} {x}\n" in question


def test_references_may_bring_their_own_fields():
    judge = LLMJudge(Answering(), template="{question} {answer} {response} {other}")
    judge({"question": "Capital?", "answer": "Paris"}, "Lyon")
    assert Answering.asked[0][0] == "Capital? Paris Lyon {other}"


def test_templates_may_be_callables():
    judge = LLMJudge(Answering(), template=lambda a, b: [{"role": "user", "content": f"{a}={b}?"}])
    judge("a", "b")
    assert Answering.asked[0][0] == [{"role": "user", "content": "a=b?"}]


def test_bad_parameters_are_named():
    with pytest.raises(ValueError, match=r"template must hold '\{response\}', got 'Good\?'"):
        LLMJudge(Answering(), template="Good?")("a", "b")
    with pytest.raises(ValueError, match="max_attempts must be at least 1, got 0"):
        LLMJudge(Answering(), max_attempts=0)("a", "b")


def test_in_a_matrix_each_pair_is_asked_about_once():
    judge = LLMJudge(Knowing(), template="{reference}|{response}")
    responses = [["a", "b", "a", "a"], ["c", "a", "c", "b"]]
    verdicts = admission_matrix(judge, [["b", "a"], "c"], responses)
    assert verdicts.tolist() == [[True, True, True, True], [True, False, True, False]]
    first_asked = [prompt for prompt, start, _ in Answering.asked if start == 0]
    assert len(first_asked) == len(set(first_asked)) == 6


def test_for_components():
    judge = LLMJudge(Knowing(), template="{reference}|{response}")
    match = component_match(judge, splitter="line")
    assert match("one\ntwo", "two") is True
    assert match("one\ntwo", "three") is False


def test_the_pair_without_an_answer_is_named_and_all_other_verdicts_come_first(tmp_path):
    references = [f"r{k}" for k in range(200)]
    judge = LLMJudge(Undecided(), template="{reference}|{response}", max_attempts=2)
    arrived = {}
    with pytest.raises(ValueError, match=r"to 1 of 200 questions.* \('r9\|r9'\)"):
        arrived.update(judge.judge_pairs(references, references))
    for _ in range(2):
        cached = CachedAdmission(judge, tmp_path / "verdicts.sqlite")
        with pytest.raises(ValueError, match=r"'r9\|r9'"):
            cached.judge_pairs(references, references)
        assert cached.stats()["n_stored"] == 199
    # 201 questions by the judge alone, 201 by the first cache, 2 by the second
    assert len(Answering.asked) == 201 + 201 + 2
    assert Answering.asked[-1][0] == "r9|r9"


def test_verdicts_that_arrived_before_the_model_failed_are_kept():
    cached = CachedAdmission(LLMJudge(Failing(), template="{reference}|{response}"))
    references = [f"r{k}" for k in range(100)]
    for n_stored in (40, 40):
        with pytest.raises(ConnectionError):
            cached.judge_pairs(references, references)
        assert cached.stats()["n_stored"] == n_stored
    assert len(Answering.asked) == 42
    assert all(dict(cached.judge_pairs(references[:40], references[:40])).values())
    # where nothing is left to ask, nobody needs to be there
    assert not dict(CachedAdmission(LLMJudge(), key="nobody").judge_pairs([], []))


def test_verdicts_that_arrive_one_by_one_are_kept():
    class Streaming(PairJudge):
        def judge_pairs(self, references, responses):
            yield 1, True
            yield 0, "yes"

    cached = CachedAdmission(Streaming(), key="streaming")
    with pytest.raises(TypeError, match="admission Streaming"):
        cached.judge_pairs(["a", "b"], ["x", "y"])
    assert cached.stats()["n_stored"] == 1


def test_with_caches_nothing_is_asked_twice(tmp_path):
    path = tmp_path / "judge.sqlite"
    judge = LLMJudge(CachedGenerator(Knowing(), path), template="{reference}|{response}")
    plain = admission_matrix(judge, ["a", "bb"], [["a"], ["xx"]])
    n_asked = len(Answering.asked)
    cached = CachedAdmission(judge, path)
    for again in (clone(judge), cached):
        assert np.array_equal(admission_matrix(again, ["a", "bb"], [["a"], ["xx"]]), plain)
        assert len(Answering.asked) == n_asked
    other = clone(cached).set_params(admission__template="{response}|{reference}")
    assert other.fingerprint() != cached.fingerprint() == clone(cached).fingerprint()
