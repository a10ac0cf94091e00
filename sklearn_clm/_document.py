"""A short document of paragraphs, lists and tables, as Markdown and as HTML."""

from dataclasses import dataclass
from html import escape

__all__ = ["Section", "Table", "to_html", "to_markdown"]

_STYLE = (
    "<style>.clm-report{font-family:sans-serif;line-height:1.4;max-width:50em}"
    ".clm-report table{border-collapse:collapse;margin:.5em 0}"
    ".clm-report td,.clm-report th{border:1px solid #8888;padding:.2em .6em;text-align:left}"
    ".clm-report .clm-warning{border-left:.3em solid #d55e00;padding-left:.6em}</style>"
)


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    warning: bool = False


def to_markdown(title: str, sections: tuple[Section, ...]) -> str:
    """The document as Markdown."""
    blocks = [f"# {title}"]
    for section in sections:
        blocks.append(f"## {section.heading}")
        if section.warning:
            blocks.append("\n".join(f"- {_plain(text)}" for text in section.paragraphs))
        else:
            blocks.extend(_plain(text) for text in section.paragraphs)
        if section.table is not None:
            header, rows = section.table.header, section.table.rows
            lines = [header, ("---",) * len(header), *rows]
            blocks.append("\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines))
    return "\n\n".join(blocks) + "\n"


def to_html(title: str, sections: tuple[Section, ...]) -> str:
    """The document as an HTML fragment."""
    parts = [_STYLE, f'<div class="clm-report"><h2>{escape(title)}</h2>']
    for section in sections:
        parts.append(f"<h3>{escape(section.heading)}</h3>")
        css = ' class="clm-warning"' if section.warning else ""
        parts.extend(f"<p{css}>{escape(text)}</p>" for text in section.paragraphs)
        if section.table is not None:
            parts.append("<table>")
            parts.append(_html_row(section.table.header, "th"))
            parts.extend(_html_row(row, "td") for row in section.table.rows)
            parts.append("</table>")
    return "".join([*parts, "</div>"])


def _plain(text: str) -> str:
    # names of scores come from the user, and may look like markup
    for character in "\\`*_<>|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text if set(text) == {"-"} else _plain(text)


def _html_row(cells: tuple[str, ...], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
