"""Draws as JSON: text and numbers, never a pickle."""

import hashlib
import json
from typing import Any

import numpy as np

from sklearn_clm.generators._generation import Generation
from sklearn_clm.generators._keys import prompt_bytes

__all__ = ["content_json", "draw_from_record", "draw_to_record", "key_digest"]

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
