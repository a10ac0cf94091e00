"""Plain text and HTML of sets, in one layout.

Responses come from models, and prompts from anywhere: every piece of text is escaped in HTML,
and loses its control characters, which steer terminals, in plain text.
"""

import base64
import html
import io
import re
from collections.abc import Iterable
from operator import itemgetter

from sklearn_clm.generators._draws import Prompt
from sklearn_clm.generators._prompts import is_image, prompt_text

SHOWN_SETS = 20
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Mark = tuple[int, int | None, float]  # start, stop, and the score of the component there


class PlainText:
    """Writes text for terminals."""

    @staticmethod
    def text(value: object) -> str:
        return plain(value)

    @staticmethod
    def bold(text: str, title: str) -> str:
        return f"**{text}**"

    @classmethod
    def prompt(cls, prompt: Prompt) -> str:
        return cls.text(prompt_text(prompt))

    @classmethod
    def marked(cls, text: str, marks: Iterable[Mark]) -> str:
        """A response with marked parts in bold."""
        pieces, position = [], 0
        for start, stop, score in sorted(marks, key=itemgetter(0)):
            part = text[max(start, position) : stop]
            if part:
                pieces.append(cls.text(text[position:start]))
                pieces.append(cls.bold(cls.text(part), f"score {score:.3g}"))
                position = len(text) if stop is None else stop
        return "".join(pieces) + cls.text(text[position:])


class Html(PlainText):
    """Writes HTML whose lines are kept."""

    @staticmethod
    def text(value: object) -> str:
        # lone surrogates, which a page could not be written with, become question marks
        return html.escape(str(value).encode("utf-8", "replace").decode("utf-8"))

    @staticmethod
    def bold(text: str, title: str) -> str:
        return f'<b title="{title}">{text}</b>'

    @classmethod
    def prompt(cls, prompt: Prompt) -> str:
        if not is_image(prompt):
            return super().prompt(prompt)
        file = io.BytesIO()
        prompt.convert("RGB").save(file, format="PNG")
        data = base64.b64encode(file.getvalue()).decode("ascii")
        style = "height:6em;max-width:100%;image-rendering:pixelated"
        return f'<img alt="prompt" style="{style}" src="data:image/png;base64,{data}">'


def as_html(text: str) -> str:
    """A page of escaped text, whose lines are kept."""
    return f'<div style="white-space:pre-wrap">{text}</div>'


def counted(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def member(value: object) -> str:
    """A member of a set on one line, text quoted."""
    return repr(str(value)) if isinstance(value, str) else plain(value)


def plain(value: object) -> str:
    """Text without control characters, line breaks and tabs aside."""
    return _CONTROL.sub("�", str(value))
