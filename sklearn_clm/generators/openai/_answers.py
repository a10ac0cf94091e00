"""Answers of a service as draws with log-probabilities and spans.

What is not as the API promises makes Python raise some error, and is asked again.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sklearn_clm.generators.draws import Generation, check_text

Spans = tuple[tuple[int, int], ...]
Token = tuple[bytes, float]

# the API's documentation gives it to tokens whose log-probability it does not tell
_SENTINEL = -9999.0
_ROUNDING = 0.01  # servers in low precision give log-probabilities slightly above 0


def parse_choices(body: Any, n_choices: int, *, logprobs: bool) -> dict[int, Generation]:
    """The first choices of an answer, by index.

    A choice is known by its index, never by its text: two draws may well be equal. Where a service
    gives an index twice, the second one is not used.
    """
    if body.get("error") or not body.get("choices"):
        raise ValueError(f"it has no choices ({body.get('error')!r})")
    choices: dict[int, Any] = {}
    for position, choice in enumerate(body["choices"]):
        choices.setdefault(choice.get("index", position), choice)
    # of a body with several choices, it is not known which of them used how many tokens
    usage = body.get("usage") if len(choices) == 1 else None
    n_tokens = token_count(usage, "completion_tokens")
    generations = {
        j: _parse_choice(choices[j], n_tokens, logprobs=logprobs)
        for j in range(n_choices)
        if j in choices
    }
    if not generations:
        raise ValueError("it has no choice of the indices asked for")
    return generations


def token_count(usage: Any, name: str) -> int | None:
    """Number of tokens in a service's usage, if known."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else None


def _parse_choice(choice: Any, n_tokens: int | None, *, logprobs: bool) -> Generation:
    """A draw, with its log-probability where the service tells it."""
    message = choice.get("message") or {"content": choice.get("text")}
    text = message.get("content")
    # a refusal is a response of the model's, and counts as one
    text = message.get("refusal") if text is None else text
    if not isinstance(text, str):
        raise ValueError(f"a choice has the text {text!r}")
    check_text(text, "the response")
    reason = choice.get("finish_reason")
    # servers have others of their own, such as a filter's: unknown
    reason = reason if reason in ("stop", "length") else None
    unknown = Generation(text, n_tokens=n_tokens, finish_reason=reason)
    if not logprobs:
        return unknown
    tokens = _tokens(choice.get("logprobs"))
    if not tokens:
        # that the model ended at once may have been unlikely: the lowest quality, not the highest
        return unknown if text else Generation("", -math.inf, 0, finish_reason=reason)
    if _includes_reasoning(text, message, tokens):
        return unknown
    values = tuple(value for _, value in tokens)
    spans = token_spans(text, [token for token, _ in tokens])
    return Generation(text, float(sum(values)), len(values), values, spans, reason)


def _tokens(logprobs: Any) -> list[Token]:
    """Bytes and log-probability of each token, from either format."""
    if not logprobs:
        return []
    if logprobs.get("content") is not None:
        entries = [
            (item["token"], item.get("bytes"), item["logprob"]) for item in logprobs["content"]
        ]
    else:
        tokens = logprobs.get("tokens") or ()
        values = logprobs.get("token_logprobs") or ()
        entries = [(token, None, value) for token, value in zip(tokens, values, strict=True)]
    if any(value is None for *_, value in entries):
        return []
    return [(_token_bytes(token, raw), _log_probability(value)) for token, raw, value in entries]


def _log_probability(value: float) -> float:
    """A log-probability; minus infinity for any other number."""
    return min(float(value), 0.0) if _SENTINEL < value <= _ROUNDING else -math.inf


def _token_bytes(token: str, raw: Sequence[int] | None) -> bytes:
    if raw is not None:
        return bytes([*raw])  # bytes of a number would be as many zeros
    if token.startswith("bytes:"):
        # how the older endpoint writes a token that is no complete character
        escaped = token.removeprefix("bytes:").encode()
        return re.sub(rb"\\x([0-9a-fA-F]{2})", lambda match: bytes([int(match[1], 16)]), escaped)
    return token.encode("utf-8", "surrogatepass")


def _includes_reasoning(text: str, message: Mapping[str, Any], tokens: Sequence[Token]) -> bool:
    """Whether log-probabilities include those of hidden reasoning."""
    spelled = b"".join(token for token, _ in tokens)
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    # quality is that of the response: tokens of thoughts that nobody is shown are no part of it
    if reasoning.strip():
        return reasoning.strip().encode("utf-8", "surrogatepass") in spelled
    # a response that is spelled only behind other characters
    return bool(text) and _shift(text, spelled) is None and text.encode() in spelled


def token_spans(text: str, tokens: Sequence[bytes]) -> Spans | None:
    """Characters of `text` that each token touches, if they agree.

    A character of which several tokens hold bytes belongs to each of them. Servers cut white space
    off the front of a text, and all from a stop string on off its end; some leave out or replace
    the bytes of a token that is no complete character.
    """
    shift = _shift(text, b"".join(tokens))
    # bytes that do not spell the text: some were left out or replaced, and each token is looked for
    return _by_search(text, tokens) if shift is None else _by_bytes(text, tokens, shift)


def _shift(text: str, spelled: bytes) -> int | None:
    """Blank bytes before `text`; None where tokens spell another text."""
    decoded = spelled.decode("utf-8", "surrogateescape")
    n_blank = len(spelled) - len(decoded.lstrip().encode("utf-8", "surrogateescape"))
    text_bytes = text.encode()
    return next((k for k in range(n_blank + 1) if spelled.startswith(text_bytes, k)), None)


def _by_bytes(text: str, tokens: Sequence[bytes], shift: int) -> Spans:
    """Spans where the tokens spell the text, after `shift` bytes."""
    char_of = [i for i, char in enumerate(text) for _ in char.encode()]
    spans = []
    position = -shift
    for token in tokens:
        first = max(position, 0)
        last = min(position + len(token), len(char_of))
        position += len(token)
        if first < last:
            spans.append((char_of[first], char_of[last - 1] + 1))
        else:
            # of no character: white space before the text, or what stands behind its end
            edge = 0 if position <= 0 and token else len(text)
            spans.append((edge, edge))
    return tuple(spans)


def _by_search(text: str, tokens: Sequence[bytes]) -> Spans | None:
    """Spans where incomplete tokens fill the gaps between others."""
    spans: list[tuple[int, int]] = []
    position = 0
    n_pending = 0  # tokens without a whole character since the last one with any
    for token in tokens:
        piece = token.decode("utf-8", "replace").strip("\ufffd")
        if not piece:
            n_pending += 1
            continue
        # behind tokens without a whole character it is not known where this one begins
        first = _beginning(text, piece, position) if n_pending else position
        rest = text[first:]
        if not (rest.startswith(piece) or piece.startswith(rest)):
            return None
        spans += [(position, first)] * n_pending
        position = min(first + len(piece), len(text))
        n_pending = 0
        spans.append((first, position))
    spans += [(position, len(text))] * n_pending
    return tuple(spans) if n_pending or position == len(text) else None


def _beginning(text: str, piece: str, position: int) -> int:
    """Where a piece begins, or what a stop string left."""
    place = text.find(piece, position)
    if place >= 0:
        return place
    # a stop string cut the text off within the piece: what is left of it ends the text
    return next(k for k in range(position, len(text) + 1) if piece.startswith(text[k:]))
