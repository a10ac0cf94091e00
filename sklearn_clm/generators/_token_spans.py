"""Which characters of a response each of its tokens produced, told from what a service says."""

from collections.abc import Sequence

__all__ = ["token_spans"]

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
