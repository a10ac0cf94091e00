"""What is made of a service's answers."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.generators.openai._answers import (
    MissingLogprobsError,
    ResponseFormatError,
    parse_choices,
    token_spans,
)
from sklearn_clm.scoring import likelihood


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
    choices = [
        {"text": "c", "index": 2},
        {"text": "a", "index": 0},
        {"text": "again", "index": 0},
        {"text": "beyond", "index": 9},
    ]
    found = parse_choices({"choices": choices}, 3, logprobs=False)
    assert [None if g is None else g.response for g in found] == ["a", None, "c"]


def test_log_probabilities_of_either_format():
    older = completion("ab", ["a", "b"], [-1.0, -2.0], finish_reason="length")
    content = [{"token": "a", "logprob": -1}, {"token": "b", "bytes": None, "logprob": -2.0}]
    newer = {"text": "ab", "logprobs": {"content": content}, "finish_reason": "length"}
    for choice in (older, newer):
        (generation,) = parse_choices({"choices": [choice]}, 1, logprobs=True)
        assert generation.token_logprobs == (-1.0, -2.0)
        assert (generation.logprob, generation.n_tokens) == (-3.0, 2)
        assert (generation.token_spans, generation.finish_reason) == (((0, 1), (1, 2)), "length")


def test_refusals_are_responses():
    message = {"role": "assistant", "content": None, "refusal": "I will not."}
    body = {"choices": [{"message": message, "finish_reason": "content_filter"}]}
    (generation,) = parse_choices(body, 1, logprobs=False)
    assert (generation.response, generation.finish_reason) == ("I will not.", None)


@pytest.mark.parametrize("logprobs", [None, {"content": []}, {"tokens": [], "token_logprobs": []}])
def test_an_empty_response_without_tokens_is_not_certain(logprobs):
    body = {"choices": [{"text": "", "logprobs": logprobs, "finish_reason": "stop"}]}
    (generation,) = parse_choices(body, 1, logprobs=True)
    assert (generation.logprob, generation.n_tokens) == (-math.inf, 0)
    assert generation.token_logprobs is generation.token_spans is None
    assert likelihood("a", generation) == 0.0


@pytest.mark.parametrize(
    ("value", "taken"),
    [(value, -math.inf) for value in (-9999, -9999.0, -1e30, 3.5, math.inf, -math.inf, 10**400)]
    + [(1e-6, 0.0)],  # of a server that rounds
)
def test_a_number_that_is_no_log_probability_is_the_lowest(value, taken):
    body = {"choices": [completion("ab", ["a", "b"], [-1.0, value])]}
    (generation,) = parse_choices(body, 1, logprobs=True)
    assert generation.token_logprobs == (-1.0, taken)
    assert (generation.logprob, generation.n_tokens) == (-1.0 + taken, 2)
    assert (likelihood("a", generation) == 0.0) == (taken < 0.0)


def chat_choice(tokens, text, **message):
    content = [{"token": token, "logprob": -0.5} for token in tokens]
    message = {"content": text, **message}
    return {"message": message, "logprobs": {"content": content}, "finish_reason": "stop"}


THOUGHT = ["<think>", "4 is", " even", "</think>", "\n", "4"]


@pytest.mark.parametrize(
    ("choice", "usage"),
    [
        (chat_choice(THOUGHT, "4", reasoning_content="4 is even\n"), None),
        (chat_choice(THOUGHT[1:], "4", reasoning="4 is even"), None),
        (
            chat_choice(["4 is", " even", "4"], "4"),
            {"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 2}},
        ),
        (chat_choice(THOUGHT, "4"), None),
        (chat_choice(THOUGHT[:2], "", reasoning_content="4 is"), None),
    ],
)
def test_log_probabilities_of_reasoning_are_not_those_of_the_response(choice, usage):
    (generation,) = parse_choices({"choices": [choice], "usage": usage}, 1, logprobs=True)
    assert generation.response == choice["message"]["content"]
    assert generation.logprob is generation.token_logprobs is generation.token_spans is None


@pytest.mark.parametrize(
    ("choice", "usage"),
    [
        (chat_choice(["4", "2"], "42", reasoning_content="6 x 7"), None),
        (
            chat_choice(["4", "2"], "42"),
            {"completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 5}},
        ),
        (chat_choice([" 4", "2", "<|im_end|>"], "42"), None),
        (chat_choice(["▁4", "▁2"], "4 2"), None),
    ],
)
def test_log_probabilities_of_the_response_alone_are_taken(choice, usage):
    (generation,) = parse_choices({"choices": [choice], "usage": usage}, 1, logprobs=True)
    assert generation.logprob == -0.5 * len(generation.token_logprobs)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "a JSON object was wanted, got a list"),
        ({"error": {"message": "died"}}, "the body is an error: {'message': 'died'}"),
        ({}, "the body has no choices"),
        ({"choices": []}, "the body has no choices"),
        ({"choices": ["x"]}, "choice 0 is a str"),
        ({"choices": [{"text": None}]}, "a choice has the text None"),
        ({"choices": [{"text": "x", "index": "0"}]}, "choice 0 has the index '0'"),
        ({"choices": [{"text": "a \ud83e"}]}, "a text with half a character"),
        ({"choices": [{"text": "x", "index": 5}]}, "no choice of the indices asked for"),
        ({"choices": [completion("ab", ["a"], [-1.0, -2.0])]}, "1 tokens have 2 log-probabilities"),
    ],
)
def test_unusable_bodies(body, message):
    with pytest.raises(ResponseFormatError, match=message):
        parse_choices(body, 1, logprobs=True)


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        "x",
        {"content": None},
        {"content": []},
        {"content": ["x"]},
        {"content": [{"token": "a", "logprob": None}]},
        {"tokens": ["a"], "token_logprobs": None},
        {"tokens": ["a"], "token_logprobs": [None]},
        {"tokens": ["a"], "token_logprobs": [float("nan")]},
    ],
)
def test_missing_log_probabilities(logprobs):
    with pytest.raises(MissingLogprobsError):
        parse_choices({"choices": [{"text": "a", "logprobs": logprobs}]}, 1, logprobs=True)
