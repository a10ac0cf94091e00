"""Plain text of sets, and what pages share with it.

Responses come from models, and prompts from anywhere: in plain text they lose their control
characters, which steer terminals.
"""

import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from sklearn_clm.generators.draws import Prompt
from sklearn_clm.generators.prompts import prompt_text

SHOWN_SETS = 20
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class Mark(NamedTuple):
    """Where a trusted component stands in a response."""

    start: int
    stop: int | None
    score: float
    right: bool | None = None  # where it is known


def pieces(text: str, marks: Iterable[Mark]) -> Iterator[tuple[str, Mark | None]]:
    """A response in parts, each with its mark or None."""
    position = 0
    # marks may overlap: what was marked before is not marked twice
    for mark in sorted(marks, key=attrgetter("start")):
        part = text[max(mark.start, position) : mark.stop]
        if part:
            yield text[position : mark.start], None
            yield part, mark
            position = len(text) if mark.stop is None else mark.stop
    yield text[position:], None


def marked(text: str, marks: Iterable[Mark]) -> str:
    """A response with marked parts between asterisks."""
    parts = pieces(text, marks)
    return "".join(plain(part) if mark is None else f"**{plain(part)}**" for part, mark in parts)


def prompt_in_full(prompt: Prompt) -> str:
    """A prompt with all its lines."""
    return plain(prompt_text(prompt))


def member(value: object) -> str:
    """A member of a set on one line, text quoted."""
    return repr(str(value)) if isinstance(value, str) else plain(value)


def plain(value: object) -> str:
    """Text without control characters, line breaks and tabs aside."""
    return _CONTROL.sub("�", str(value))
