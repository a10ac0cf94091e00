"""Sets of responses and of components as HTML and as plain text.

Responses come from models, and prompts from anywhere: every piece of text is escaped in HTML,
and loses its control characters, which steer terminals, in plain text.
"""

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from sklearn_clm.calibration._claim import NO_GUARANTEE, POOLED
from sklearn_clm.generators._prompts import is_image, prompt_text

if TYPE_CHECKING:
    from sklearn_clm._results._sets import ComponentSet, PredictionSet

    OneSet: TypeAlias = PredictionSet | ComponentSet

STYLE = (
    "<style>.clm-report{font-family:sans-serif;line-height:1.4;max-width:50em}"
    ".clm-report table{border-collapse:collapse;margin:.5em 0;display:block;overflow-x:auto}"
    ".clm-report td,.clm-report th{border:1px solid #8888;padding:.2em .6em;text-align:left}"
    ".clm-report .clm-warning{border-left:.3em solid #d55e00;padding-left:.6em}"
    ".clm-report img{max-width:100%;height:auto;display:block}</style>"
)


def visual_block(parts: list[tuple[str, object]]) -> object:
    """Diagram block with the given named parts inside; parts that are None are left out."""
    try:
        from sklearn.utils._repr_html.estimator import _VisualBlock
    except ImportError:  # before scikit-learn 1.7
        from sklearn.utils._estimator_html_repr import _VisualBlock
    shown = [(name, part) for name, part in parts if part is not None]
    if not shown:
        # the caller of this hook falls back to a single block
        raise ValueError("no part to show")
    return _VisualBlock(
        "parallel",
        [part for _, part in shown],
        names=[f"{name}: {type(part).__name__}" for name, part in shown],
        name_details=[str(part) for _, part in shown],
    )


SHOWN_ROWS = 20
_USUAL = "with confidence"
_CELL = ' style="text-align:left;vertical-align:top;white-space:pre-wrap"'
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Mark = tuple[int, int, float]  # start, stop, and the score of the component there


def prediction_set_html(one: "PredictionSet") -> str:
    """A prediction set as a table of its responses."""
    return _styled(_set_html(one, {}))


def prediction_sets_html(sets: "Sequence[PredictionSet]", k_max: int) -> str:
    """Many prediction sets as one table."""
    rows = "".join(_prediction_row(one) for one in sets[:SHOWN_ROWS])
    caption = f"{counted(len(sets), 'prompt')}, k_max={k_max}" + _more(len(sets))
    caption += "".join(f"; <b>{remark}</b>" for remark in common_remarks(sets))
    table = _table(rows, "prompt", "responses", "draws", "set score", "guaranteed")
    return _styled(f"<p>{caption}</p>{table}")


def component_set_html(one: "ComponentSet") -> str:
    """The responses of a set with the trusted components in bold, and a table of these."""
    return _styled(_components_html(one))


def _components_html(one: "ComponentSet") -> str:
    rows = "".join(
        _row(f"{score:.3g}", _escape(component), _draws(places))
        for component, score, places in zip(one.components, one.scores, one.occurrences)
    )
    table = _table(rows, "score", "trusted component", "draws")
    responses = _set_html(one.prediction_set, _marks(one))
    return f"<div>{responses}{table if rows else '<p>No trusted component.</p>'}</div>"


def component_sets_html(sets: "Sequence[ComponentSet]") -> str:
    """Many component sets, one below the other."""
    shown = "<hr>".join(_components_html(one) for one in sets[:SHOWN_ROWS])
    return _styled(f"<p>{_found(sets)}</p>{shown}")


def component_set_text(one: "ComponentSet") -> str:
    """The same as plain text, trusted components between asterisks."""
    marks = _marks(one)
    answer = one.prediction_set
    lines = [plain(prompt_text(one.prompt))]
    for response, quality, draw in zip(answer.responses, answer.quality, answer.indices):
        pieces = _pieces(response, marks.get(int(draw), []))
        text = "".join(
            plain(part) if score is None else f"**{plain(part)}**" for part, score in pieces
        )
        lines.append(f"  draw {draw + 1}, quality {quality:.3g}: {text}")
    if not answer.responses:
        lines.append("  (no response was accepted)")
    lines += [f"  ({remark})" for remark in remarks(one) if one.guaranteed]
    lines.append("trusted components:" if one.components else "no trusted component")
    lines += [
        f"  {score:.3g}  {plain(component)}  (draw {_draws(places)})"
        for component, score, places in zip(one.components, one.scores, one.occurrences)
    ]
    return "\n".join(lines)


def component_sets_text(sets: "Sequence[ComponentSet]") -> str:
    """Many component sets as plain text."""
    return "\n\n".join([_found(sets), *(component_set_text(one) for one in sets[:SHOWN_ROWS])])


def _found(sets: "Sequence[ComponentSet]") -> str:
    """How many sets there are, and what was found in them."""
    found = counted(sum(map(len, sets)), "trusted component")
    remarks = "".join(f"; {remark}" for remark in common_remarks(sets))
    return f"{counted(len(sets), 'prompt')}, {found}{_more(len(sets))}{remarks}"


def remarks(one: "OneSet") -> list[str]:
    """What is to be known of the guarantee of a set, apart from the usual one."""
    if one.claim is not None:
        return one.claim.remarks()
    return [] if one.guaranteed else [NO_GUARANTEE]


def common_remarks(sets: "Iterable[OneSet]") -> list[str]:
    """The same of many sets, each remark once; remarks about one group stand at the set."""
    claims = {id(one.claim): one.claim for one in sets if one.claim is not None}
    found = [remark for claim in claims.values() for remark in claim.common_remarks()]
    return list(dict.fromkeys(remark for remark in found if remark != POOLED))


def _styled(content: str) -> str:
    return f'{STYLE}<div class="clm-report">{content}</div>'


def _ending(one: "PredictionSet") -> str:
    return "stopped" if one.stopped else "budget used up"


def _note(one: "PredictionSet") -> str:
    """How the set came to its end."""
    warning = "".join(f"; <b>{_escape(remark)}</b>" for remark in remarks(one))
    score = f", set score {one.set_score:.3g}" if one.responses else ""
    return f"{counted(one.n_samples, 'draw')}, {_ending(one)}{score}{warning}"


def counted(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _set_html(one: "PredictionSet", marks: dict[int, list[Mark]]) -> str:
    rows = "".join(
        _row(str(draw + 1), _marked_html(response, marks.get(int(draw), [])), f"{quality:.3g}")
        for response, quality, draw in zip(one.responses, one.quality, one.indices)
    )
    # not a caption, which browsers make as narrow as the table
    title = f'<p style="white-space:pre-wrap">{_prompt_html(one.prompt)}<br>{_note(one)}</p>'
    if not rows:
        return f"<div>{title}<p>No response was accepted.</p></div>"
    return f"<div>{title}{_table(rows, 'draw', 'response', 'quality')}</div>"


def _prediction_row(one: "PredictionSet") -> str:
    responses = "".join(
        f'<li title="quality {quality:.3g}, draw {draw + 1}">{_escape(response)}</li>'
        for response, quality, draw in zip(one.responses, one.quality, one.indices)
    )
    listed = f'<ol style="margin:0">{responses}</ol>' if responses else "none accepted"
    score = f"{one.set_score:.3g}" if responses else "–"
    usual = [] if one.claim is not None and one.claim.guarantee == "marginal" else [_USUAL]
    shown = [f"<b>{_escape(remark)}</b>" for remark in remarks(one)]
    guarantee = "; ".join(usual + shown) if one.guaranteed else "<b>no</b>"
    draws = f"{one.n_samples} ({_ending(one)})"
    return _row(_prompt_html(one.prompt), listed, draws, score, guarantee)


def _table(rows: str, *names: str) -> str:
    head = "".join(f"<th{_CELL}>{name}</th>" for name in names)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td{_CELL}>{cell}</td>" for cell in cells) + "</tr>"


def _more(n: int) -> str:
    return f"; the first {SHOWN_ROWS} are shown" if n > SHOWN_ROWS else ""


def _marks(one: "ComponentSet") -> dict[int, list[Mark]]:
    """Where to mark the response of each draw; a span of None marks all of it."""
    marks: dict[int, list[Mark]] = {}
    for score, places in zip(one.scores, one.occurrences):
        for draw, span in places:
            start, stop = (0, -1) if span is None else span
            marks.setdefault(int(draw), []).append((start, stop, float(score)))
    return {draw: sorted(row) for draw, row in marks.items()}


def _pieces(response: object, marks: list[Mark]) -> Iterable[tuple[str, float | None]]:
    """The response cut at its marks, each piece with the score of its mark or None."""
    text = response if isinstance(response, str) else str(response)
    position = 0
    for start, stop, score in marks:
        # a span of None marks the whole response, whatever its text is
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


def _marked_html(response: object, marks: list[Mark]) -> str:
    return "".join(
        _escape(piece) if score is None else f'<b title="score {score:.3g}">{_escape(piece)}</b>'
        for piece, score in _pieces(response, marks)
    )


def _draws(places: Iterable[tuple[int, Any]]) -> str:
    return ", ".join(str(draw + 1) for draw in sorted({int(draw) for draw, _ in places}))


def _prompt_html(prompt: Any) -> str:
    if is_image(prompt):
        file = io.BytesIO()
        prompt.convert("RGB").save(file, format="PNG")
        data = base64.b64encode(file.getvalue()).decode("ascii")
        style = "height:6em;max-width:100%;image-rendering:pixelated"
        return f'<img alt="prompt" style="{style}" src="data:image/png;base64,{data}">'
    return _escape(prompt_text(prompt))


def _escape(value: object) -> str:
    # lone surrogates, which a page could not be written with, become question marks
    text = str(value).encode("utf-8", "replace").decode("utf-8")
    return html.escape(text)


def member(value: object) -> str:
    """A member of a set on one line; of text its ends can be seen."""
    return repr(str(value)) if isinstance(value, str) else plain(value)


def plain(value: object) -> str:
    """Text without control characters, line breaks and tabs aside."""
    return _CONTROL.sub("�", str(value))
