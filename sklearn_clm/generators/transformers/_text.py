"""From generated tokens to text: stop strings and the characters of each token."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_MAX_PIECES = 2**16  # pairs of tokens whose text is remembered
_INCOMPLETE = "\ufffd"  # what decoders write for bytes that are no whole character


class Detokenizer:
    """Text, stop strings and token spans for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        self.special_tokens = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids))
        self.special_ids = frozenset(self.special_tokens.values())
        self._decode = _decoder(tokenizer)
        self._pieces: dict[tuple[int, int], str] = {}

    def text(self, ids: Sequence[int]) -> str:
        """Text of the tokens, special ones left out."""
        return str(self._decode(list(ids), skip_special_tokens=True))

    def spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Characters of `text`, which is ``self.text(ids)``, that each token produced.

        A character whose bytes come from several tokens belongs to each of them.
        """
        spans: list[tuple[int, int]] = []
        stop, previous = 0, -1
        for token in ids:
            piece = self._piece(previous, token)
            start, stop = stop, stop + len(piece)
            spans.append((start, stop))
            if piece == "" and token not in self.special_ids:
                break
            if _INCOMPLETE in piece or not text.startswith(piece, start):
                break
            previous = token
        else:
            if stop == len(text):
                return spans
        windowed = self._spans_by_prefix(ids, text, windowed=True)
        return windowed or self._spans_by_prefix(ids, text, windowed=False)

    def _piece(self, previous: int, token: int) -> str:
        """Text that `token` adds after `previous` (-1: at the start)."""
        key = (previous, token)
        piece = self._pieces.get(key)
        if piece is None:
            context = [] if previous < 0 else [previous]
            piece = self.text([*context, token])[len(self.text(context)) :]
            if len(self._pieces) >= _MAX_PIECES:
                self._pieces.clear()
            self._pieces[key] = piece
        return piece

    def _spans_by_prefix(
        self, ids: Sequence[int], text: str, *, windowed: bool
    ) -> list[tuple[int, int]]:
        """Spans from the decoded text of growing prefixes, empty if they do not add up to `text`.

        `windowed` decodes each token after a short context, in linear time; otherwise after
        everything before it.
        """
        first = read = 0  # the window starts at first; the text of ids[:read] is settled
        settled = reached = 0  # characters of the text of ids[:read], and matched so far
        context = 0  # characters of the text of ids[first:read]
        spans: list[tuple[int, int]] = []
        for i, token in enumerate(ids):
            new = self.text(ids[first : i + 1])[context:]
            matched = common_length(new, text[settled:])
            start, reached = reached, max(reached, settled + matched)
            if token in self.special_ids:
                spans.append((start, start))
            else:
                # a token that completes no character is part of the next one
                spans.append((start, min(max(reached, start + 1), len(text))))
            if windowed and matched == len(new) > 0 and not new.endswith(_INCOMPLETE):
                first, read, settled = read, i + 1, reached
                context = len(self.text(ids[first:read]))
        return spans if reached == len(text) else []


def _decoder(tokenizer: PreTrainedTokenizerBase) -> Callable[..., str]:
    """The shortest way to the text that ``tokenizer.decode`` gives."""
    from transformers import PreTrainedTokenizerFast

    plain = type(tokenizer).decode is PreTrainedTokenizerFast.decode
    if plain and not getattr(tokenizer, "clean_up_tokenization_spaces", True):
        return tokenizer.backend_tokenizer.decode
    decode: Callable[..., str] = tokenizer.decode  # type: ignore[assignment]
    return decode


def common_length(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Length of the longest common prefix."""
    stop = min(len(a), len(b))
    if a[:stop] == b[:stop]:
        return stop
    return next(i for i in range(stop) if a[i] != b[i])


class StopStrings:
    """Finds the first stop string in a growing response."""

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str]):
        self.detokenizer = detokenizer
        self.stop = tuple(stop)
        self._last_characters = {string[-1] for string in stop}
        self._relevant: dict[int, bool] = {}

    def may_complete(self, token: int) -> bool:
        """Whether a stop string can end with `token`; False only where it cannot."""
        relevant = self._relevant.get(token)
        if relevant is None:
            piece = self.detokenizer.text([token])
            relevant = self._relevant[token] = (
                # decoders drop a space at the start of a text
                " " in self._last_characters
                or not self._last_characters.isdisjoint(piece)
                or _INCOMPLETE in piece
            )
        return relevant

    def find(self, text: str) -> int:
        """Where the earliest stop string starts in `text`, -1 if there is none."""
        found = [at for at in map(text.find, self.stop) if at >= 0]
        return min(found, default=-1)
