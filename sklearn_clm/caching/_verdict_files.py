"""Files that people fill in with verdicts: written for spreadsheets, read as these save them."""

import codecs
import csv
import io
import json
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators._records import json_value, naming

Line: TypeAlias = Mapping[str, Any]

FIELDS = ("id", "prompt", "references", "context", "response", "verdict", "judge", "note")
_ENDINGS = (".csv", ".jsonl", ".ndjson", ".json")
_FORMULA = ("=", "+", "-", "@")  # how it begins
_YES = ("y", "yes", "true", "1", "1.0")
_NO = ("n", "no", "false", "0", "0.0")


def write_lines(
    path: str | os.PathLike[str], lines: Iterable[Line], columns: Sequence[str] = FIELDS
) -> None:
    """Write lines, as CSV or JSON Lines by the ending of the name."""
    file = io.StringIO(newline="")
    if _is_csv(path):
        table = csv.DictWriter(file, columns)
        table.writeheader()
        for line in lines:
            table.writerow({name: _as_cell(value) for name, value in line.items()})
    else:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    text = file.getvalue()
    # without the mark, Excel takes UTF-8 for the code page of the machine
    encoding = "utf-8-sig" if _is_csv(path) and not text.isascii() else "utf-8"
    with replacing(path) as unfinished:
        Path(unfinished).write_bytes(text.encode(encoding))


def read_lines(
    path: str | os.PathLike[str], columns: Sequence[str] = ("id", "verdict")
) -> Iterator[tuple[str, Line]]:
    """The lines of a file, each with the words that name it."""
    text = _decoded_file(path)
    if not _is_csv(path):
        for number, line in enumerate(io.StringIO(text, newline=""), start=1):
            if line.strip():
                yield f"line {number}", _parsed(line)
        return
    # spreadsheets write semicolons where the comma is the decimal point
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    limit = csv.field_size_limit(max(len(text), csv.field_size_limit()))
    try:
        table = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
        lines = [(f"line {table.line_num}", line) for line in table]
    finally:
        csv.field_size_limit(limit)
    if not set(columns) <= set(table.fieldnames or ()):
        raise ValueError(
            f"{os.fspath(path)!s} must have the columns {' and '.join(columns)}, got "
            f"{table.fieldnames!r:.200} instead."
        )
    yield from lines


def double_verdicts(path: str | os.PathLike[str]) -> tuple[list[bool], list[bool]]:
    """What a model and people say of the same prompts: the columns model and people of a file."""
    names = ("model", "people")
    said: tuple[list[bool], list[bool]] = ([], [])
    for where, line in read_lines(path, names):
        for column, name in zip(said, names):
            with naming(f"{os.fspath(path)!s}, {where}, {name}"):
                verdict = as_verdict(line.get(name))
            if verdict is None:
                raise ValueError(f"{os.fspath(path)!s}, {where}: {name} must be y or n, got none.")
            column.append(verdict)
    return said


def as_verdict(value: object) -> bool | None:
    """The verdict in a cell; None where nobody has judged yet."""
    text = "" if value is None or value != value else str(value).strip().lower()
    if text in _YES or text in _NO:
        return text in _YES
    if text:
        raise ValueError(f"verdict must be y, n or empty, got {value!r:.40} instead")
    return None


def is_text_of(cell: object, value: object) -> bool:
    """Whether a cell holds a value that was exported, but for what spreadsheets change."""
    # some of them take the quote away that keeps from formulas
    return _plain_text(cell) in (_plain_text(value), _plain_text(_as_cell(value)))


def _decoded_file(path: str | os.PathLike[str]) -> str:
    """The text of a file; another code page than UTF-8 is refused, for nothing tells which."""
    content = Path(path).read_bytes()
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{os.fspath(path)!s} must be encoded as UTF-8, got {content[error.start :][:1]!r} "
            f'at byte {error.start} instead. Save it anew, as "CSV UTF-8" where a spreadsheet '
            "asks; no verdict of it was kept, and none is lost."
        ) from None


def _parsed(line: str) -> Line:
    """The fields of a line of JSON; where there are none, a verdict that will be refused."""
    try:
        fields = json_value(line)
    except ValueError as error:
        return {"verdict": f"no JSON: {error}"}
    return fields if isinstance(fields, dict) else {"verdict": f"a {type(fields).__name__}"}


def _is_csv(path: str | os.PathLike[str]) -> bool:
    ending = Path(path).suffix.lower()
    if ending not in _ENDINGS:
        raise ValueError(
            f"path must end in {', '.join(_ENDINGS)}, got {os.fspath(path)!r} instead."
        )
    return ending == ".csv"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_cell(value: object) -> str:
    """Text of a cell, which a spreadsheet takes for no formula."""
    text = "" if value is None else _as_text(value)
    begins = unicodedata.normalize("NFKC", text.lstrip()[:1])  # full width is taken as well
    return f"'{text}" if begins in _FORMULA or text[:1] in ("\t", "\r") else text


def text_of(cell: object) -> str:
    """Text that a cell was written for, but for what spreadsheets change."""
    text = "" if cell is None else _plain_text(cell)
    return _plain_text(text[1:]) if text[:1] == "'" and _as_cell(text[1:]) == text else text


def _plain_text(value: object) -> str:
    """Text whose ends of lines are alike, without space at its ends."""
    return "\n".join(_as_text(value).splitlines()).strip()
