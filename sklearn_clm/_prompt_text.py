"""What a prompt looks like in a table or on a line, be it text, a chat, numbers or else."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["prompt_line", "prompt_text"]

_WIDTH = 200
_WIDTH_BEFORE = 60
_MESSAGES_BEFORE = 2
_NUMBERS = 4


def prompt_text(prompt: Any) -> str:
    """Few characters that tell a prompt from others, on one line for each message of a chat."""
    if isinstance(prompt, str):
        return _shortened(prompt, _WIDTH)
    if isinstance(prompt, np.ndarray) and prompt.dtype.kind in "biufc":
        return _numbers(prompt)
    if _is_chat(prompt):
        return _chat(prompt)
    return _shortened(str(prompt), _WIDTH)


def prompt_line(prompt: Any) -> str:
    """The same on a single line, text in quotation marks."""
    text = prompt_text(prompt)
    return text if isinstance(prompt, np.ndarray) else repr(text)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _numbers(array: np.ndarray) -> str:
    if array.ndim != 1:
        return f"array of shape {array.shape}"
    shown = ", ".join(f"{number:.4g}" for number in array[:_NUMBERS].tolist())
    return f"[{shown}]" if len(array) <= _NUMBERS else f"[{shown}, … {len(array)} numbers]"


def _is_chat(prompt: Any) -> bool:
    return (
        isinstance(prompt, Sequence)
        and len(prompt) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in prompt)
    )


def _chat(messages: Sequence[Mapping[str, Any]]) -> str:
    # the last message holds the question; the instructions before it are the same for all prompts
    *before, last = messages
    lines = ["…"] if len(before) > _MESSAGES_BEFORE else []
    lines += [_message(message, _WIDTH_BEFORE) for message in before[-_MESSAGES_BEFORE:]]
    return "\n".join([*lines, _message(last, _WIDTH)])


def _message(message: Mapping[str, Any], width: int) -> str:
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = " ".join(map(_part, content))
    return f"{message['role']}: {_shortened('' if content is None else str(content), width)}"


def _part(part: Any) -> str:
    if isinstance(part, Mapping):
        return str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]"
    return str(part)
