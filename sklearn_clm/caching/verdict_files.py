"""Files of verdicts: signed CSV that people fill in."""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from sklearn_clm.calibration.files import replacing
from sklearn_clm.generators.records import csv_table, locating_errors

Line: TypeAlias = Mapping[str, Any]

# how a formula begins, full width too; apostrophes count, so that one in front can be told from
# those of the text
_FORMULA = re.compile(r"['\s]*[=+\-@＝＋－＠]")
VERDICTS_FORMAT = "sklearn_clm.verdicts/1"
"""Of the JSON file that a questionnaire saves."""

# spreadsheets make numbers, and truth values, of what people type
_YES = ("y", "yes", "true", "1", "1.0")
_NO = ("n", "no", "false", "0", "0.0")
_SAVED = ("id", "verdict", "judge", "note")


def signature(*judges: str | None) -> str:
    """Who gives verdicts: the first name given, or this user's."""
    import getpass

    try:
        return str(next(filter(None, judges), None) or getpass.getuser())
    except (KeyError, OSError) as error:  # in a container, say
        raise ValueError("judge must be given, since this machine knows no user.") from error


def write_lines(
    path: str | os.PathLike[str], lines: Iterable[Line], columns: Sequence[str]
) -> None:
    """Write lines as CSV, formulas behind an apostrophe."""
    file = io.StringIO(newline="")
    table = csv.DictWriter(file, columns)
    table.writeheader()
    for line in lines:
        table.writerow({name: _as_cell(value) for name, value in line.items()})
    with replacing(path) as unfinished:
        # without the mark, Excel takes UTF-8 for the code page of the machine
        Path(unfinished).write_bytes(file.getvalue().encode("utf-8-sig"))


def read_lines(
    path: str | os.PathLike[str], columns: Sequence[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines of a CSV file, each with its place."""
    with csv_table(path, restval="") as table:
        if not set(columns) <= set(table.fieldnames or ()):
            raise ValueError(
                f"{os.fspath(path)!s} must have the columns {' and '.join(columns)}, got "
                f"{table.fieldnames!r:.200} instead."
            )
        lines = [(table.line_num, line) for line in table]
    for number, line in lines:
        line.pop(None, None)  # cells behind the last column
        yield f"{os.fspath(path)!s}, line {number}", line


def read_questionnaire(
    path: str | os.PathLike[str], question: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """The verdicts that a questionnaire saved, each with its place."""
    name = os.fspath(path)
    with locating_errors(f"{name!s}"):
        try:
            content = json.loads(Path(path).read_text("utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"must be the JSON of a questionnaire, got {error} instead") from None
        if not isinstance(content, dict) or content.get("format") != VERDICTS_FORMAT:
            raise ValueError("must be the JSON that a questionnaire saved, got another instead")
        if content.get("question") != question:
            raise ValueError(
                f"question must be {question!r}, that of this judge, got "
                f"{content.get('question')!r:.80} instead"
            )
        verdicts = content.get("verdicts")
        if not isinstance(verdicts, list) or not all(
            isinstance(verdict, dict) for verdict in verdicts
        ):
            raise ValueError(f"verdicts must be a list, got {verdicts!r:.80} instead")
    for number, verdict in enumerate(verdicts):
        # who filled in the page judged all of it, unless a verdict says otherwise
        line = {"judge": content.get("judge"), **verdict}
        yield f"{name!s}, verdict {number}", {key: str(line.get(key) or "") for key in _SAVED}


def double_verdicts(path: str | os.PathLike[str]) -> tuple[list[Any], list[Any]]:
    """Verdicts of a model, and of people if asked."""
    names = ("model", "people")
    verdicts: tuple[list[Any], list[Any]] = ([], [])
    for where, line in read_lines(path, names):
        for column, name in zip(verdicts, names):
            with locating_errors(f"{where}, {name}"):
                verdict = as_verdict(line[name])
                if verdict is None and name == "model":
                    raise ValueError("verdict must be y or n, got none instead")
            column.append(verdict)
    return verdicts


def as_verdict(cell: str) -> bool | None:
    """The verdict in a cell; None for an empty cell."""
    text = cell.strip().lower()
    if text and text not in (*_YES, *_NO):
        raise ValueError(f"verdict must be y, n or empty, got {cell!r:.40} instead")
    return text in _YES if text else None


def text_of(value: object) -> str:
    """Text of a cell without what spreadsheets change."""
    # the apostrophe before a formula, line ends, and white space around a text
    text = _cell_text(value)
    text = text.lstrip("'") if _FORMULA.match(text) else text
    return "\n".join(text.splitlines()).strip()


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_cell(value: object) -> str:
    """Text of a cell that is no formula to spreadsheets."""
    text = _cell_text(value)
    return f"'{text}" if isinstance(value, str) and _FORMULA.match(text) else text
