"""Sets of responses and of components as plain text and as HTML, in one layout.

Responses come from models, and prompts from anywhere: every piece of text is escaped in HTML,
and loses its control characters, which steer terminals, in plain text.
"""

import base64
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sklearn_clm.calibration._claim import Claim
from sklearn_clm.generators._draws import Prompt
from sklearn_clm.generators._prompts import is_image, prompt_text

if TYPE_CHECKING:
    from sklearn_clm._results._sets import ComponentSet, PredictionSet, SetOfOne

SHOWN_SETS = 20
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Mark = tuple[int, int, float]  # start, stop, and the score of the component there


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


class Html(PlainText):
    """Writes HTML that is shown as it stands, line by line."""

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


def view_of_set(
    one: "PredictionSet", style: type[PlainText], marks: Mapping[int, list[Mark]] | None = None
) -> str:
    """The prompt, how its set came to an end, and the responses, with marks by draw."""
    lines = [style.prompt(one.prompt), f"  ({style.text(ending(one))})"]
    for response, quality, draw in zip(one.responses, one.quality, one.indices.tolist()):
        pieces = _pieces(str(response), (marks or {}).get(draw, []))
        text = "".join(
            style.text(piece)
            if score is None
            else style.bold(style.text(piece), f"score {score:.3g}")
            for piece, score in pieces
        )
        lines.append(f"  draw {draw + 1}, quality {quality:.3g}: {text}")
    if not one.responses:
        lines.append("  (no response was accepted)")
    return "\n".join(lines)


def view_of_components(one: "ComponentSet", style: type[PlainText]) -> str:
    """The same with trusted components marked, and a list of these."""
    lines = [view_of_set(one.prediction_set, style, _marks(one))]
    lines += [f"  ({style.text(remark)})" for remark in one.remarks()]
    lines.append("trusted components:" if len(one) else "no trusted component")
    for component, score, places in zip(one.components, one.scores, one.occurrences):
        draws = ", ".join(str(draw + 1) for draw in sorted({place.draw for place in places}))
        lines.append(f"  {score:.3g}  {style.text(component)}  (draw {draws})")
    return "\n".join(lines)


def claims_of(sets: Iterable["SetOfOne"]) -> list[Claim]:
    """The claims of sets, each once."""
    return list({id(one.claim): one.claim for one in sets if one.claim is not None}.values())


def guarantees(sets: Iterable["SetOfOne"]) -> list[str]:
    """The guarantees of sets in words, each once."""
    return list(dict.fromkeys(claim.sentence() for claim in claims_of(sets) if claim.holds))


def ending(one: "PredictionSet") -> str:
    """How the set came to its end, and what is to be known of its guarantee."""
    stopped = "stopped" if one.stopped else "budget used up"
    if one.guaranteed and one.claim is not None and one.claim.about == "answers":
        stopped = "answered" if len(one) else "escalated"
    remarks = "".join(f"; {remark}" for remark in one.remarks())
    return f"{counted(one.n_samples, 'draw')}, {stopped}{remarks}"


def common_remarks(sets: Iterable["SetOfOne"]) -> str:
    """Remarks on the guarantees of many sets, each once; those about a group stand at the set."""
    found = [remark for claim in claims_of(sets) for remark in claim.common_remarks()]
    return "".join(f", {remark}" for remark in dict.fromkeys(found))


def counted(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def member(value: object) -> str:
    """A member of a set on one line; of text its ends can be seen."""
    return repr(str(value)) if isinstance(value, str) else plain(value)


def plain(value: object) -> str:
    """Text without control characters, line breaks and tabs aside."""
    return _CONTROL.sub("�", str(value))


def _marks(one: "ComponentSet") -> dict[int, list[Mark]]:
    """Where to mark the response of each draw; a span of None marks all of it."""
    marks: dict[int, list[Mark]] = {}
    for score, places in zip(one.scores, one.occurrences):
        for draw, span in places:
            start, stop = (0, -1) if span is None else span
            marks.setdefault(int(draw), []).append((start, stop, float(score)))
    return {draw: sorted(row) for draw, row in marks.items()}


def _pieces(text: str, marks: Sequence[Mark]) -> Iterable[tuple[str, float | None]]:
    """The response cut at its marks, each piece with the score of its mark or None."""
    position = 0
    for start, stop, score in marks:
        stop = len(text) if stop < 0 else min(stop, len(text))
        start = max(start, position)
        if start >= stop:
            continue
        if start > position:
            yield text[position:start], None
        yield text[start:stop], score
        position = stop
    if position < len(text):
        yield text[position:], None
