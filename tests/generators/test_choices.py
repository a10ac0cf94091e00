"""What is made of a service's answers."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.generators.openai._answers import parse_choices, token_spans
from sklearn_clm.generators.openai._service import UNUSABLE
from sklearn_clm.scoring import likelihood


def parsed(choice, usage=None, logprobs=True):
    return parse_choices({"choices": [choice], "usage": usage}, 1, logprobs=logprobs)[0]


def completion(text, tokens, values, **fields):
    return {"text": text, "logprobs": {"tokens": tokens, "token_logprobs": values}, **fields}


@given(
    st.text(max_size=12),
    st.lists(st.integers(0, 40), max_size=8),
    st.booleans(),
    st.text(max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_spans_of_tokens_that_spell_the_text(text, cuts, cut_front, stop):
    content = (text + stop).encode("utf-8", "surrogatepass")
    edges = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    tokens = [content[a:b] for a, b in itertools.pairwise(edges)]
    shown = text.lstrip() if cut_front else text
    spans = token_spans(shown, tokens)
    assert spans is not None
    assert len(spans) == len(tokens)
    assert all(0 <= first <= last <= len(shown) for first, last in spans)
    assert list(spans) == sorted(spans)
    covered = {k for first, last in spans for k in range(first, last)}
    assert covered == set(range(len(shown)))


@pytest.mark.parametrize(
    ("text", "tokens", "spans"),
    [
        ("a🦊b", [b"a", b"\xf0\x9f", b"\xa6\x8a", b"b"], ((0, 1), (1, 2), (1, 2), (2, 3))),
        # bytes of incomplete characters left out, or replaced
        ("a🦊b", [b"a", b"", b"", b"b"], ((0, 1), (1, 2), (1, 2), (2, 3))),
        ("a🦊", [b"a", "\ufffd".encode(), "\ufffd".encode()], ((0, 1), (1, 2), (1, 2))),
        ("yes", [b" yes", b"\n\n", b"Q"], ((0, 3), (3, 3), (3, 3))),
        ("yes", [b" ", b"yes"], ((0, 0), (0, 3))),
        ("a🦊b", [b"a", b"", b"b\nQ"], ((0, 1), (1, 2), (2, 3))),
        ("", [b"\n"], ((0, 0),)),
        ("abc", [b"a", b"x"], None),
        ("abc", [b"a"], None),
        ("abc", [b"", b"x"], ((0, 3), (3, 3))),
    ],
)
def test_spans(text, tokens, spans):
    assert token_spans(text, tokens) == spans


def test_choices_are_told_by_their_index():
    given = [("c", 2), ("a", 0), ("again", 0), ("beyond", 9)]
    choices = [{"text": text, "index": index} for text, index in given]
    found = parse_choices({"choices": choices}, 3, logprobs=False)
    assert {j: draw.response for j, draw in found.items()} == {0: "a", 2: "c"}


def test_log_probabilities_of_either_format():
    older = completion("ab", ["a", "b"], [-1.0, -2.0], finish_reason="length")
    content = [{"token": "a", "logprob": -1}, {"token": "b", "bytes": None, "logprob": -2.0}]
    newer = {"text": "ab", "logprobs": {"content": content}, "finish_reason": "length"}
    for choice in (older, newer):
        generation = parsed(choice)
        assert generation.token_logprobs == (-1.0, -2.0)
        assert (generation.logprob, generation.n_tokens) == (-3.0, 2)
        assert (generation.token_spans, generation.finish_reason) == (((0, 1), (1, 2)), "length")


def test_refusals_are_responses():
    message = {"role": "assistant", "content": None, "refusal": "I will not."}
    choice = {"message": message, "finish_reason": "content_filter"}
    generation = parsed(choice, logprobs=False)
    assert (generation.response, generation.finish_reason) == ("I will not.", None)


@pytest.mark.parametrize("logprobs", [None, {"content": []}, {"tokens": [], "token_logprobs": []}])
def test_an_empty_response_without_tokens_is_not_certain(logprobs):
    generation = parsed({"text": "", "logprobs": logprobs, "finish_reason": "stop"})
    assert (generation.logprob, generation.n_tokens) == (-math.inf, 0)
    assert generation.token_logprobs is generation.token_spans is None
    assert likelihood("a", generation) == 0.0


@pytest.mark.parametrize(
    ("value", "taken"),
    [(value, -math.inf) for value in (-9999, -9999.0, -1e30, 3.5, math.inf, -math.inf, 10**400)]
    + [(1e-6, 0.0)],  # of a server that rounds
)
def test_a_number_that_is_no_log_probability_is_the_lowest(value, taken):
    generation = parsed(completion("ab", ["a", "b"], [-1.0, value]))
    assert generation.token_logprobs == (-1.0, taken)
    assert (generation.logprob, generation.n_tokens) == (-1.0 + taken, 2)
    assert (likelihood("a", generation) == 0.0) == (taken < 0.0)


def chat_choice(tokens, text, **message):
    content = [{"token": token, "logprob": -0.5} for token in tokens]
    message = {"content": text, **message}
    return {"message": message, "logprobs": {"content": content}, "finish_reason": "stop"}


THOUGHT = ["<think>", "4 is", " even", "</think>", "\n", "4"]


@pytest.mark.parametrize(
    "choice",
    [
        chat_choice(THOUGHT, "4", reasoning_content="4 is even\n"),
        chat_choice(THOUGHT[1:], "4", reasoning="4 is even"),
        chat_choice(THOUGHT, "4"),
        chat_choice(THOUGHT[:2], "", reasoning_content="4 is"),
    ],
)
def test_log_probabilities_of_reasoning_are_not_those_of_the_response(choice):
    generation = parsed(choice)
    assert generation.response == choice["message"]["content"]
    assert generation.logprob is generation.token_logprobs is generation.token_spans is None


@pytest.mark.parametrize(
    "choice",
    [
        chat_choice(["4", "2"], "42", reasoning_content="6 x 7"),
        chat_choice([" 4", "2", "<|im_end|>"], "42"),
        chat_choice(["▁4", "▁2"], "4 2"),
    ],
)
def test_log_probabilities_of_the_response_alone_are_taken(choice):
    generation = parsed(choice)
    assert generation.logprob == -0.5 * len(generation.token_logprobs)


@pytest.mark.parametrize(
    "body",
    [
        [],
        "<html>",
        {"error": {"message": "died"}},
        {"choices": []},
        {"choices": ["x"]},
        {"choices": [{"text": None}]},
        {"choices": [{"text": "x", "index": "0"}]},
        {"choices": [{"text": "a \ud83e"}]},
        {"choices": [{"text": "x", "index": 5}]},
        {"choices": [{"text": "a", "logprobs": {"content": ["x"]}}]},
        {"choices": [completion("ab", ["a"], [-1.0, -2.0])]},
    ],
)
def test_unusable_bodies(body):
    with pytest.raises(UNUSABLE):
        parse_choices(body, 1, logprobs=True)


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {"content": None},
        {"content": []},
        {"content": [{"token": "a", "logprob": None}]},
        {"tokens": [], "token_logprobs": None},
        {"tokens": ["a"], "token_logprobs": [None]},
    ],
)
def test_missing_log_probabilities(logprobs):
    assert parsed({"text": "a", "logprobs": logprobs}).logprob is None
