"""Answers of a service as draws: texts, log-probabilities, characters of each token."""

import math
import re
from collections.abc import Mapping, Sequence

from sklearn_clm.generators._draws import Generation
from sklearn_clm.generators.openai._service import (
    ResponseFormatError,
    Service,
    ServiceError,
    token_count,
)

Spans = tuple[tuple[int, int], ...]
Token = tuple[bytes, float]

_PROBES = 3
_REFUSALS = (400, 404, 422, 501)
# the API's documentation gives it to tokens whose log-probability it does not tell
_SENTINEL = -9999.0
_ROUNDING = 0.01  # servers in low precision give log-probabilities slightly above 0


class MissingLogprobsError(ResponseFormatError):
    """A response without the log-probabilities that were asked for."""


def probe_logprobs(service: Service, endpoint: str, request: Mapping[str, object]) -> bool:
    """Whether responses to `request`, cut to one token, come with log-probabilities."""
    request = {**request, "max_tokens": 1}
    seen_without = False
    for attempt in range(_PROBES):
        try:
            given = service.ask(endpoint, {**request, "seed": attempt}, _shows_logprobs)
        except ServiceError as error:
            if error.status not in _REFUSALS:
                raise
            plain = {name: value for name, value in request.items() if "logprobs" not in name}
            try:
                service.ask(endpoint, plain, lambda body: parse_choices(body, 1, logprobs=False))
            except ServiceError:
                raise error from None  # it was not the log-probabilities that it refused
            return False
        if given:
            return True
        seen_without |= given is False
    return not seen_without


def _shows_logprobs(body: object) -> bool | None:
    """Whether a response has log-probabilities; None where it has no tokens either."""
    try:
        (generation,) = parse_choices(body, 1, logprobs=True)
    except MissingLogprobsError:
        return False
    return True if generation is not None and generation.n_tokens else None


def parse_choices(body: object, n_choices: int, *, logprobs: bool) -> list[Generation | None]:
    """The first `n_choices` choices by their index; None for those the service did not give.

    A choice is known by its index, never by its text: two draws may well be equal. Where a service
    gives an index twice, the second one is not used.
    """
    if isinstance(body, str):
        raise ResponseFormatError(f"the body is not JSON: {body!r}")
    if not isinstance(body, dict):
        raise ResponseFormatError(f"a JSON object was wanted, got a {type(body).__name__}")
    if body.get("error"):
        raise ResponseFormatError(f"the body is an error: {body['error']!r}")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ResponseFormatError("the body has no choices")
    # of a body with several choices, it is not known which of them used how many tokens
    usage = body.get("usage") if len(choices) == 1 else None
    found: list[Generation | None] = [None] * n_choices
    for position, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise ResponseFormatError(f"choice {position} is a {type(choice).__name__}")
        index = choice.get("index", position)
        if not isinstance(index, int) or index < 0:
            raise ResponseFormatError(f"choice {position} has the index {index!r}")
        if index < n_choices and found[index] is None:
            found[index] = _parse_choice(choice, usage, logprobs=logprobs)
    if all(generation is None for generation in found):
        raise ResponseFormatError("the body has no choice of the indices asked for")
    return found


def _parse_choice(choice: Mapping[str, object], usage: object, *, logprobs: bool) -> Generation:
    message = choice.get("message")
    message = message if isinstance(message, dict) else {"content": choice.get("text")}
    text = message.get("content")
    text = message.get("refusal") if text is None else text
    if not isinstance(text, str):
        raise ResponseFormatError(f"a choice has the text {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ResponseFormatError("a choice has a text with half a character in it") from None
    reason = choice.get("finish_reason")
    reason = reason if reason in ("stop", "length") else None
    n_tokens = token_count(usage, "completion_tokens")
    if not logprobs:
        return Generation(text, n_tokens=n_tokens, finish_reason=reason)
    tokens = _tokens(choice.get("logprobs"))
    if not tokens:
        if text:
            raise MissingLogprobsError("a choice has no log-probabilities")
        # that the model ended at once may have been unlikely: the lowest quality, not the highest
        return Generation("", -math.inf, 0, finish_reason=reason)
    if _includes_reasoning(text, message, tokens, usage):
        return Generation(text, n_tokens=n_tokens, finish_reason=reason)
    values = tuple(value for _, value in tokens)
    spans = token_spans(text, [token for token, _ in tokens])
    return Generation(text, float(sum(values)), len(values), values, spans, reason)


def _tokens(logprobs: object) -> list[Token] | None:
    """Bytes and log-probability of each token, from either of the two formats in use."""
    if not isinstance(logprobs, dict):
        return None
    content, tokens = logprobs.get("content"), logprobs.get("tokens")
    entries: list[tuple[object, object, object]]
    if isinstance(content, list):
        if not all(isinstance(item, dict) for item in content):
            return None
        entries = [(item.get("token"), item.get("bytes"), item.get("logprob")) for item in content]
    else:
        values = logprobs.get("token_logprobs")
        if not isinstance(tokens, list) or not isinstance(values, list):
            return None
        if len(tokens) != len(values):
            raise ResponseFormatError(f"{len(tokens)} tokens have {len(values)} log-probabilities")
        entries = [(token, None, value) for token, value in zip(tokens, values)]
    parsed = []
    for token, raw, value in entries:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            return None
        parsed.append((_token_bytes(token, raw), _log_probability(value)))
    return parsed


def _log_probability(value: float) -> float:
    """A log-probability, or minus infinity where a service gives a number that is none."""
    return min(float(value), 0.0) if _SENTINEL < value <= _ROUNDING else -math.inf


def _token_bytes(token: object, raw: object) -> bytes:
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


def _includes_reasoning(
    text: str, message: Mapping[str, object], tokens: Sequence[Token], usage: object
) -> bool:
    """Whether there are log-probabilities of hidden reasoning among those of the response."""
    spelled = b"".join(token for token, _ in tokens)
    for name in ("reasoning_content", "reasoning"):
        reasoning = message.get(name)
        if isinstance(reasoning, str) and reasoning.strip():
            return reasoning.strip().encode("utf-8", "surrogatepass") in spelled
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    n_all = token_count(usage, "completion_tokens")
    n_hidden = token_count(details, "reasoning_tokens")
    if n_all and n_hidden:
        return len(tokens) > n_all - n_hidden
    # a response that is spelled only behind other characters
    return bool(text) and _shift(text, spelled) is None and text.encode() in spelled


def token_spans(text: str, tokens: Sequence[bytes]) -> Spans | None:
    """Characters of `text` that each token touches; None where the tokens do not spell it.

    A character of which several tokens hold bytes belongs to each of them. Servers cut white space
    off the front of a text, and all from a stop string on off its end; some leave out or replace
    the bytes of a token that is no complete character.
    """
    shift = _shift(text, b"".join(tokens))
    return _by_search(text, tokens) if shift is None else _by_bytes(text, tokens, shift)


def _shift(text: str, spelled: bytes) -> int | None:
    """How many bytes of white space stand before `text` in what the tokens spell."""
    shown = spelled.decode("utf-8", "surrogateescape")
    n_blank = len(spelled) - len(shown.lstrip().encode("utf-8", "surrogateescape"))
    wanted = text.encode()
    return next((k for k in range(n_blank + 1) if spelled.startswith(wanted, k)), None)


def _by_bytes(text: str, tokens: Sequence[bytes], shift: int) -> Spans:
    char_of = [i for i, char in enumerate(text) for _ in char.encode()]
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
