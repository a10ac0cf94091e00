"""Sets as cards of HTML, like the judging page.

Responses come from models, and prompts from anywhere: every piece of text is escaped. The style
travels inside the element, and its selectors reach nothing outside: a notebook keeps its own.
"""

import base64
import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sklearn_clm._results._views import Mark, pieces
from sklearn_clm.generators.draws import Prompt
from sklearn_clm.generators.prompts import is_image, prompt_text

_STYLE = """<style>
.clm{color-scheme:light dark;--paper:#fbfaf7;--card:#fff;--ink:#1d1d1b;--faint:#62625d;
--line:#87857c;--yes:#00648f;--no:#b34a00;--mark:#fff0c2;--mark-line:#b07d00;
box-sizing:border-box;max-width:62rem;padding:.8rem 1rem 1rem;border-radius:.5rem;
background:var(--paper);color:var(--ink);font:1rem/1.5 system-ui,sans-serif;text-align:start}
@media (prefers-color-scheme:dark){.clm{--paper:#141413;--card:#1e1e1c;--ink:#deddd6;
--faint:#a09f97;--line:#7a7972;--yes:#62b8e4;--no:#f0a067;--mark:#433712;--mark-line:#d9ae4a}}
.clm *{box-sizing:border-box}
.clm p{margin:.3rem 0;font-size:.875rem;color:var(--faint);overflow-wrap:anywhere}
.clm .clm-numbers{display:flex;flex-wrap:wrap;gap:.2rem 1.8rem;margin:.3rem 0}
.clm .clm-numbers div{font-size:.875rem;color:var(--faint)}
.clm .clm-numbers b{display:block;font-size:1.75rem;font-weight:600;line-height:1.2;
color:var(--ink)}
.clm .clm-numbers .clm-yes b{color:var(--yes)}
.clm .clm-numbers .clm-no b{color:var(--no)}
.clm .clm-bar{position:relative;height:.75rem;margin:.7rem 0;border:1px solid var(--line);
border-radius:1rem;background:var(--card)}
.clm .clm-bar .clm-held{height:100%;border-radius:1rem;background:var(--yes)}
.clm .clm-bar .clm-held.clm-no{background:var(--no)}
.clm .clm-bar .clm-promised{position:absolute;top:-.3rem;bottom:-.3rem;width:.1875rem;
background:var(--ink)}
.clm .clm-cards{display:grid;gap:.75rem;margin-top:.8rem;align-items:start;
grid-template-columns:repeat(auto-fill,minmax(min(100%,18rem),1fr))}
.clm .clm-card{min-width:0;padding:.65rem .9rem .75rem;border:1px solid var(--line);
border-radius:.5rem;background:var(--card)}
.clm .clm-prompt{font-weight:600;white-space:pre-wrap;overflow-wrap:anywhere;
unicode-bidi:isolate}
.clm .clm-cards.clm-wide{grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr))}
.clm .clm-prompt img{display:block;height:6em;max-width:100%;object-fit:contain;
object-position:left;image-rendering:pixelated;background:#fff;border-radius:.25rem}
.clm ol{display:flex;flex-wrap:wrap;gap:.4rem;margin:.4rem 0;padding:0;list-style:none}
.clm li{max-width:100%;margin:0;padding:.1rem .6rem;border:1px solid var(--line);
border-radius:.5rem;white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate}
.clm li.clm-yes{border-color:var(--yes)}
.clm li.clm-no{border-color:var(--no)}
.clm b.clm-yes{color:var(--yes)}
.clm b.clm-no{color:var(--no)}
.clm mark{background:var(--mark);color:inherit;border-bottom:.125rem solid var(--mark-line);
border-radius:.125rem}
.clm mark.clm-no{border-bottom-color:var(--no)}
.clm .clm-times{color:var(--faint);font-size:.875rem}
</style>"""
_NO_TEXT = "<i>no text</i>"


@dataclass(frozen=True)
class Shown:
    """A response on a card, with a verdict or None."""

    text: str
    note: str
    marks: tuple[Mark, ...] = ()
    right: bool | None = None


@dataclass(frozen=True)
class Summary:
    """Numbers above the cards: promised, held, and others.

    `held` is None where nobody said what is right, `promised` where nothing is promised; `where`
    says of which prompts `held` is.
    """

    promised: float | None
    held: float | None
    others: tuple[tuple[str, str], ...]
    where: str = "held"


def element(*parts: str, kind: str = "clm") -> str:
    """One element with its style; `kind` are its classes."""
    return f'<div class="{kind}">{_STYLE}{"".join(parts)}</div>'


def grid(cards: Iterable[str], *, wide: bool) -> str:
    """Cards beside each other, where there is room."""
    width = " clm-wide" if wide else ""
    return f'<div class="clm-cards{width}">{"".join(cards)}</div>'


def paragraph(text: str) -> str:
    """A remark."""
    return f"<p>{escaped(text)}</p>"


def head(summary: Summary) -> str:
    """What is promised against what held, and further numbers."""
    promised = summary.promised
    held = summary.held
    numbers = [("", "nothing" if promised is None else f"{promised:.0%}", "promised")]
    bar = ""
    if held is not None:
        broken = promised is not None and held < promised
        sign = "clm-no" if broken else "clm-yes"
        # what held comes first: it is what the promise is measured by
        numbers.insert(0, (sign, f"{held:.0%}", summary.where))
        tick = ""
        if promised is not None:
            tick = f'<div class="clm-promised" style="left:{promised:.1%}"></div>'
        # in words too, for those who do not see the bar, or its colours
        words = f"{held:.0%} held, {numbers[1][1]} promised"
        bar = (
            f'<div class="clm-bar" title="{words}">'
            f'<div class="clm-held {sign}" style="width:{held:.1%}"></div>{tick}</div>'
        )
    numbers += [("", number, what) for number, what in summary.others]
    cells = [
        f'<div class="{sign}"><b>{escaped(number)}</b> {escaped(what)}</div>'
        for sign, number, what in numbers
    ]
    return f'{bar}<div class="clm-numbers">{"".join(cells)}</div>'


def card(prompt: Prompt, responses: Sequence[Shown], notes: Iterable[str]) -> str:
    """A prompt with its responses, equal ones once, and remarks."""
    # what looks equal is shown once, with its number
    equal: dict[tuple[str, tuple[Mark, ...], bool | None], list[Shown]] = {}
    for response in responses:
        key = (response.text, response.marks, response.right)
        equal.setdefault(key, []).append(response)
    items = "".join(_item(group) for group in equal.values())
    listed = f"<ol>{items}</ol>" if items else ""
    remarks = paragraph(" · ".join(notes))
    return f'<div class="clm-card">{_prompt(prompt)}{listed}{remarks}</div>'


def _item(equal: list[Shown]) -> str:
    """Equal responses as one item of a list."""
    shown = equal[0]
    text = "".join(
        escaped(part) if mark is None else _tinted(part, mark)
        for part, mark in pieces(shown.text, shown.marks)
    )
    times = f' <b class="clm-times">× {len(equal)}</b>' if len(equal) > 1 else ""
    title = "; ".join(response.note for response in equal)
    sign = {None: "", True: "clm-yes", False: "clm-no"}[shown.right]
    content = f"{_verdict(shown.right)}{text.strip() or _NO_TEXT}{times}"
    return f'<li class="{sign}" title="{escaped(title)}">{content}</li>'


def _tinted(part: str, mark: Mark) -> str:
    sign = "clm-no" if mark.right is False else ""
    title = f"score {mark.score:.2g}"
    wrong = _verdict(mark.right) if mark.right is False else ""
    return f'<mark class="{sign}" title="{title}">{wrong}{escaped(part)}</mark>'


def _verdict(right: bool | None) -> str:
    """A tick or a cross, which speak without colours."""
    if right is None:
        return ""
    return (
        '<b class="clm-yes" title="right">✓&nbsp;</b>'
        if right
        else '<b class="clm-no" title="wrong">✗&nbsp;</b>'
    )


def _prompt(prompt: Prompt) -> str:
    if is_image(prompt):
        # within the page: a link would leave the notebook without its picture
        file = io.BytesIO()
        prompt.convert("RGB").save(file, format="PNG")
        data = base64.b64encode(file.getvalue()).decode("ascii")
        content = f'<img alt="prompt" src="data:image/png;base64,{data}">'
    else:
        content = escaped(prompt_text(prompt))
    return f'<div class="clm-prompt" dir="auto">{content}</div>'


def escaped(value: object) -> str:
    """Text that no page takes for markup."""
    # lone surrogates, which a page could not be written with, become question marks
    return html.escape(str(value).encode("utf-8", "replace").decode("utf-8"))
