"""From prompts to tokens, and from generated tokens to text."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn_clm.generators.draws import check_text, is_chat
from sklearn_clm.generators.prompts import Template, filled

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_INCOMPLETE = "\ufffd"  # what decoders write for bytes that are no whole character


class EncodedPrompt(NamedTuple):
    """A prompt as the model takes it."""

    key: bytes  # the serialised prompt, which keys its draws
    ids: tuple[int, ...] = ()  # tokens of a text prompt
    image: object = None  # of an image prompt


def encode_text(
    prompt: object,
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    template: Template,
    max_positions: float = math.inf,
) -> tuple[int, ...]:
    """Tokens of a text or a chat."""
    text = filled(template, prompt, name)
    in_chat = is_chat(text)
    if is_chat(text):
        messages = [dict(message) for message in text]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    if not isinstance(text, str):
        by = "" if template is None else " by prompt_template"
        raise TypeError(
            f"{name} must be made a str or a list of chat messages{by}, "
            f"got a {type(text).__name__} instead."
        )
    check_text(text, name)
    # a chat template writes special tokens itself
    ids = list(tokenizer(text, add_special_tokens=not in_chat)["input_ids"])
    if not 0 < len(ids) < max_positions:
        raise ValueError(
            f"{name} must have at least 1 token and leave room for others in the "
            f"{max_positions:.0f} of the model, got {len(ids)} tokens instead."
        )
    return tuple(ids)


class Detokenizer:
    """Text of generated tokens, and the characters of each."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        from transformers import PreTrainedTokenizerFast

        self.tokenizer = tokenizer
        self.special_tokens = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids))
        self._special_ids = frozenset(self.special_tokens.values())
        self._decode: Any = tokenizer.decode
        cleans_up = getattr(tokenizer, "clean_up_tokenization_spaces", True)
        if type(tokenizer).decode is PreTrainedTokenizerFast.decode and not cleans_up:
            self._decode = tokenizer.backend_tokenizer.decode  # the same in a quarter of the time
        self._window_text = lru_cache(maxsize=2**15)(self.text)  # most windows recur

    def text(self, ids: Sequence[int]) -> str:
        """Text of the tokens, special ones left out."""
        return str(self._decode(list(ids), skip_special_tokens=True))

    def spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Characters of `text`, which is ``self.text(ids)``, that each token produced.

        A character whose bytes come from several tokens belongs to each of them.
        """
        return self._spans(ids, text, windowed=True) or self._spans(ids, text, windowed=False)

    def _spans(self, ids: Sequence[int], text: str, *, windowed: bool) -> list[tuple[int, int]]:
        """Spans by decoding growing prefixes; empty where they disagree.

        `windowed` decodes each token after a short context, in linear time; otherwise after
        everything before it.
        """
        window = 0  # the token at which the window starts
        n_settled = 0  # tokens whose text no later token changes
        settled = 0  # characters of their text
        context = 0  # characters of their text within the window
        reached = 0  # characters of `text` that are matched so far
        spans: list[tuple[int, int]] = []
        text_of = self._window_text if windowed else self.text
        # tokens need not be characters: each gets what the text grew by, up to where prefixes agree
        for i, token in enumerate(ids):
            new = text_of(tuple(ids[window : i + 1]))[context:]
            is_prefix = text.startswith(new, settled)
            matched = len(new) if is_prefix else common_length(new, text[settled:])
            start = reached
            reached = max(reached, settled + matched)
            if token in self._special_ids:
                spans.append((start, start))
            else:
                # a token that completes no character is part of the next one
                spans.append((start, min(max(reached, start + 1), len(text))))
            # a window begins at whole characters, one step behind: decoders join some tokens
            if windowed and is_prefix and new and not new.endswith(_INCOMPLETE):
                window = n_settled
                n_settled = i + 1
                settled = reached
                context = len(text_of(tuple(ids[window:n_settled])))
        return spans if reached == len(text) else []


def common_length(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Length of the longest common prefix."""
    stop = min(len(a), len(b))
    if a[:stop] == b[:stop]:
        return stop
    return next(i for i in range(stop) if a[i] != b[i])


def first_of(strings: Sequence[str], text: str) -> int:
    """Where the earliest of some strings starts in `text`."""
    return min((at for at in map(text.find, strings) if at >= 0), default=len(text))
