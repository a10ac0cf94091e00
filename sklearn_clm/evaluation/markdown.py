"""Tables and texts in Markdown."""

from collections.abc import Sequence


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is its header."""
    header, *body = [f"| {' | '.join(map(markdown_text, row))} |" for row in rows]
    rule = f"|{' --- |' * len(rows[0])}"
    return "\n".join([header, rule, *body]) + "\n"


def markdown_text(text: str) -> str:
    """Text for Markdown on one line, markup escaped."""
    for character in "\\`*<>|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
