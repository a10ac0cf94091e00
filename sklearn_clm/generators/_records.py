"""Draws as JSON: text and numbers, never a pickle.

JSON from anywhere: whatever is wrong with it is a ValueError that says where."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sklearn_clm.generators._draws import Generation, prompt_bytes

__all__ = [
    "content_json",
    "draw_from_record",
    "draw_to_record",
    "json_lines",
    "json_value",
    "key_digest",
    "naming",
    "whole_number",
]


_LARGEST = 2**63 - 1  # what SQLite and NumPy can hold


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Turn what a value of an unexpected type or size makes Python raise into a ValueError."""
    try:
        yield
    except (
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ValueError(f"{where}: {error}") from error


def json_value(text: str | bytes) -> Any:
    """The value of JSON text, in UTF-8 where it is bytes."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error


def json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in a file of JSON Lines, each with the words that name its line."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"line {number} of {os.fspath(path)!s}"
            with naming(where):
                record = json_value(line)
                if not isinstance(record, dict):
                    raise ValueError(f"it is not a JSON object but a {type(record).__name__}")
            yield where, record


def whole_number(record: Any, name: str, default: int) -> int:
    """A field that counts from 0; `default` where there is none."""
    value = record.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or value != value or value != int(value):
        raise ValueError(f"{name} must be a whole number, got {value!r:.40}")
    if not 0 <= value <= _LARGEST:
        raise ValueError(f"{name} must lie between 0 and 2**63 - 1, got {value!r:.40}")
    return int(value)


_OPTIONAL = ("logprob", "n_tokens", "token_logprobs", "token_spans", "finish_reason")


def key_digest(value: Any) -> bytes:
    """256-bit digest under which what belongs to a prompt (or to a pair) is kept."""
    return hashlib.blake2b(prompt_bytes(value), digest_size=32).digest()


def content_json(value: Any) -> str | None:
    """JSON text of a prompt, or None where JSON would not give the same prompt back."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return None
    return text if prompt_bytes(json.loads(text)) == prompt_bytes(value) else None


def draw_to_record(generation: Generation) -> dict[str, Any]:
    """The fields of a draw that are known, as JSON values."""
    record: dict[str, Any] = {"response": _plain(generation.response)}
    for name in _OPTIONAL:
        value = getattr(generation, name)
        if value is None:
            continue
        if name == "token_logprobs":
            value = [float(logprob) for logprob in value]
        elif name == "token_spans":
            value = [[int(first), int(last)] for first, last in value]
        elif name == "logprob":
            value = float(value)
        elif name == "n_tokens":
            value = int(value)
        record[name] = value
    return record


def draw_from_record(record: dict[str, Any]) -> Generation:
    """The draw that :func:`draw_to_record` wrote (or a user, by hand)."""
    if not isinstance(record, dict):
        raise ValueError(f"a draw must be an object with fields, got {record!r:.40}.")
    response = record.get("response")
    if not isinstance(response, (str, int, float)):
        raise ValueError(f"response must be text or a number, got {response!r}.")
    logprobs, spans = record.get("token_logprobs"), record.get("token_spans")
    try:
        return Generation(
            response,
            logprob=_number(record.get("logprob"), float),
            n_tokens=_number(record.get("n_tokens"), int),
            token_logprobs=None if logprobs is None else tuple(float(x) for x in logprobs),
            token_spans=None if spans is None else tuple((int(a), int(b)) for a, b in spans),
            finish_reason=_text(record.get("finish_reason")),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not the fields of a draw: {error}.") from error


def _number(value: Any, kind: Any) -> Any:
    # a data frame writes what it does not know as NaN
    return None if value is None or value != value else kind(value)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str) or value != value:
        return value if isinstance(value, str) else None
    raise TypeError(f"finish_reason must be text, got {value!r:.40}")


def _plain(response: Any) -> Any:
    if isinstance(response, np.generic):
        response = response.item()
    if not isinstance(response, (str, bool, int, float)):
        raise TypeError(
            "a cache keeps responses that are text or numbers, got a draw with a response of type "
            f"{type(response).__name__}."
        )
    return response
