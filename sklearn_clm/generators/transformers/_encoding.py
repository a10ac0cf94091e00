"""From prompts to tokens: templates, chat messages, tokenizers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sklearn_clm.generators._base import Template, filled
from sklearn_clm.generators._draws import check_text, is_chat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class EncodedPrompt(NamedTuple):
    """A prompt as the model takes it."""

    key: bytes  # the serialised prompt, which keys its draws
    ids: tuple[int, ...] = ()  # tokens of a text prompt
    image: object = None  # of an image prompt


def check_images(images: dict[int, object], model_name: str) -> None:
    """Refuse text where a model takes images."""
    for i, image in images.items():
        if isinstance(image, (str, bytes)):
            raise TypeError(
                f"prompts[{i}] is text, but {model_name} takes images; wanted a PIL image or an "
                "array, or a preprocess callable that makes one."
            )


def encode_texts(
    prompts: dict[int, object],
    tokenizer: PreTrainedTokenizerBase,
    template: Template,
    vocabulary_size: int,
    max_positions: int | None,
) -> list[tuple[int, ...]]:
    """Token ids of text prompts and chat messages, given by their positions."""
    texts: list[str] = []
    in_chats: list[bool] = []
    for i, prompt in prompts.items():
        given = filled(template, prompt, f"prompts[{i}]")
        in_chats.append(is_chat(given))
        if is_chat(given):
            given = _render_chat(given, tokenizer)
        elif not isinstance(given, str):
            source = (
                "prompts[{}] is" if template is None else "prompt_template gave, for prompts[{}],"
            )
            raise TypeError(
                f"{source.format(i)} a {type(given).__name__}; wanted a str, or a list of chat "
                "messages (dicts with 'role' and 'content')."
            )
        check_text(given, f"prompts[{i}]")
        texts.append(str(given))
    encoded: list[tuple[int, ...]] = [()] * len(texts)
    positions = list(prompts)
    for in_chat in (False, True):
        chosen = [i for i, chat in enumerate(in_chats) if chat is in_chat]
        if chosen:
            # a chat template writes special tokens itself
            rows = tokenizer([texts[i] for i in chosen], add_special_tokens=not in_chat)
            for i, ids in zip(chosen, rows["input_ids"]):
                encoded[i] = tuple(ids) or _first_token(tokenizer, positions[i])
                if _begins_twice(encoded[i], texts[i], tokenizer):
                    encoded[i] = encoded[i][1:]
    largest = max((max(ids) for ids in encoded), default=0)
    if largest >= vocabulary_size:
        raise ValueError(
            f"tokenizer: gave token id {largest}, but the model's vocabulary has "
            f"{vocabulary_size} tokens; is it this model's tokenizer?"
        )
    for i, ids in zip(positions, encoded):
        if max_positions is not None and len(ids) >= max_positions:
            raise ValueError(
                f"prompts[{i}] has {len(ids)} tokens, but the model has room for {max_positions}, "
                "the response included; wanted a shorter prompt."
            )
    return encoded


def _begins_twice(ids: Sequence[int], text: str, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer began a text that a template had begun already."""
    first = tokenizer.bos_token_id
    return (
        first is not None
        and list(ids[:2]) == [first] * 2
        and text.startswith(tokenizer.bos_token)
        and not text.startswith(tokenizer.bos_token * 2)
    )


def _render_chat(messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "prompts holds chat messages, but the tokenizer has no chat_template; wanted a "
            "tokenizer with one, or a callable prompt_template that writes them as text."
        )
    chat = [dict(message) for message in messages]
    return str(tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False))


def _first_token(tokenizer: PreTrainedTokenizerBase, i: int) -> tuple[int, ...]:
    """What an empty prompt becomes: the token that a text begins with."""
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        token = getattr(tokenizer, name, None)
        if token is not None:
            return (int(token),)
    raise ValueError(
        f"prompts[{i}] has no tokens, and the tokenizer has no beginning-of-sequence token to "
        "start from; wanted a prompt that is not empty."
    )


def tokenizer_state(tokenizer: PreTrainedTokenizerBase) -> str:
    """Everything that encoding and decoding depend on, as text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        # these change as the tokenizer is used
        state.pop("padding", None)
        state.pop("truncation", None)
        core = json.dumps(state, sort_keys=True)
    else:
        core = repr(sorted(tokenizer.get_vocab().items()))
    special = sorted((name, str(token)) for name, token in tokenizer.special_tokens_map.items())
    clean = getattr(tokenizer, "clean_up_tokenization_spaces", None)
    return repr((type(tokenizer).__name__, core, special, tokenizer.chat_template, clean))
