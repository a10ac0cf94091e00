"""What a service answered, as draws: texts, log-probabilities, the characters of each token.

Which characters of a response each of its tokens produced, told from what a service says."""

import re
from collections.abc import Sequence
from typing import Any

from sklearn_clm.generators._draws import Generation

__all__ = ["MissingLogprobsError", "ResponseFormatError", "parse_choices", "token_spans"]


Spans = tuple[tuple[int, int], ...]


def token_spans(text: str, tokens: Sequence[bytes]) -> Spans | None:
    """Characters of `text` that each token touches; None where the tokens do not spell it.

    A character of which several tokens hold bytes belongs to each of them. Servers cut white space
    off the front of a text, and all from a stop string on off its end; some leave out or replace
    the bytes of a token that is no complete character.
    """
    spans = _by_bytes(text, tokens)
    return _by_search(text, tokens) if spans is None else spans


def _by_bytes(text: str, tokens: Sequence[bytes]) -> Spans | None:
    spelled = b"".join(tokens)
    wanted = text.encode("utf-8", "surrogatepass")
    shown = spelled.decode("utf-8", "surrogateescape")
    n_cut = len(spelled) - len(shown.lstrip().encode("utf-8", "surrogateescape"))
    shift = next((k for k in range(n_cut + 1) if spelled.startswith(wanted, k)), None)
    if shift is None:
        return None
    char_of = [i for i, char in enumerate(text) for _ in char.encode("utf-8", "surrogatepass")]
    spans, position = [], -shift
    for token in tokens:
        first, last = max(position, 0), min(position + len(token), len(char_of))
        position += len(token)
        if first < last:
            spans.append((char_of[first], char_of[last - 1] + 1))
        else:
            edge = 0 if position <= 0 and token else len(text)
            spans.append((edge, edge))
    return tuple(spans)


def _by_search(text: str, tokens: Sequence[bytes]) -> Spans | None:
    """Spans where tokens without a complete character fill the gaps between the others."""
    spans: list[tuple[int, int]] = []
    position, n_pending = 0, 0
    for token in tokens:
        piece = token.decode("utf-8", "replace").strip("\ufffd")
        if not piece:
            n_pending += 1
            continue
        first = _beginning(text, piece, position) if n_pending else position
        rest = text[first:]
        if not (rest.startswith(piece) or piece.startswith(rest)):
            return None
        spans += [(position, first)] * n_pending
        position, n_pending = min(first + len(piece), len(text)), 0
        spans.append((first, position))
    spans += [(position, len(text))] * n_pending
    return tuple(spans) if n_pending or position == len(text) else None


def _beginning(text: str, piece: str, position: int) -> int:
    """Where a piece begins, or the part of it that a stop string left."""
    found = text.find(piece, position)
    if found >= 0:
        return found
    return next(k for k in range(position, len(text) + 1) if piece.startswith(text[k:]))


class ResponseFormatError(ValueError):
    """A response that is not what the API promises; asking again may help."""


class MissingLogprobsError(ResponseFormatError):
    """A response without the log-probabilities that were asked for."""


def parse_choices(body: Any, n_choices: int, *, logprobs: bool) -> list[Generation | None]:
    """The first `n_choices` choices by their index; None for those the service did not give.

    A choice is known by its index, never by its text: two draws may well be equal. Where a service
    gives an index twice, the second one is not used.
    """
    if not isinstance(body, dict):
        raise ResponseFormatError(f"a JSON object was wanted, got a {type(body).__name__}")
    if body.get("error"):
        raise ResponseFormatError(f"the body is an error: {body['error']!r:.300}")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ResponseFormatError("the body has no choices")
    found: list[Generation | None] = [None] * n_choices
    usage = body.get("usage")
    n_tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    for position, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise ResponseFormatError(f"choice {position} is a {type(choice).__name__}")
        index = choice.get("index", position)
        if not isinstance(index, int) or index < 0:
            raise ResponseFormatError(f"choice {position} has the index {index!r:.40}")
        if index < n_choices and found[index] is None:
            own_tokens = n_tokens if len(choices) == 1 else None
            found[index] = _parse_choice(choice, own_tokens, logprobs=logprobs)
    if all(generation is None for generation in found):
        raise ResponseFormatError("the body has no choice of the indices asked for")
    return found


def _parse_choice(choice: dict[str, Any], n_tokens: Any, *, logprobs: bool) -> Generation:
    message = choice.get("message")
    if isinstance(message, dict):
        text = message.get("content")
        text = message.get("refusal") if text is None else text
    else:
        text = choice.get("text")
    if not isinstance(text, str):
        raise ResponseFormatError(f"a choice has the text {text!r:.40}")
    reason = choice.get("finish_reason")
    reason = reason if reason in ("stop", "length") else None
    n_tokens = n_tokens if isinstance(n_tokens, int) and n_tokens >= 0 else None
    if not logprobs:
        return Generation(text, n_tokens=n_tokens, finish_reason=reason)
    tokens = _tokens(choice.get("logprobs"))
    if tokens is None or (text and not tokens):
        if not text:
            # nothing was generated, so there is nothing whose probability could be told
            return Generation("", 0.0, 0, (), (), reason)
        raise MissingLogprobsError("a choice has no log-probabilities")
    values = tuple(value for _, value in tokens)
    spans = token_spans(text, [token for token, _ in tokens])
    return Generation(text, float(sum(values)), len(values), values, spans, reason)


def _tokens(logprobs: Any) -> list[tuple[bytes, float]] | None:
    """Bytes and log-probability of each token, from either of the two formats in use."""
    if not isinstance(logprobs, dict):
        return None
    if isinstance(logprobs.get("content"), list):
        entries = [
            (item.get("token"), item.get("bytes"), item.get("logprob"))
            if isinstance(item, dict)
            else (None, None, None)
            for item in logprobs["content"]
        ]
    else:
        tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
        if not isinstance(tokens, list) or not isinstance(values, list):
            return None
        if len(tokens) != len(values):
            raise ResponseFormatError(f"{len(tokens)} tokens have {len(values)} log-probabilities")
        entries = [(token, None, value) for token, value in zip(tokens, values)]
    parsed = []
    for token, raw, value in entries:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            return None
        parsed.append((_token_bytes(token, raw), float(value)))
    return parsed


def _token_bytes(token: Any, raw: Any) -> bytes:
    if isinstance(raw, list):
        try:
            return bytes(raw)
        except (TypeError, ValueError):
            pass
    text = token if isinstance(token, str) else ""
    if text.startswith("bytes:"):
        # how the older endpoint writes a token that is no complete character
        return re.sub(rb"\\x([0-9a-fA-F]{2})", lambda m: bytes([int(m[1], 16)]), text[6:].encode())
    return text.encode("utf-8", "surrogatepass")
