"""Draws as JSON: text and numbers, never a pickle.

Whatever is wrong with JSON from elsewhere is a ValueError that says where.
"""

import contextlib
import csv
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from sklearn_clm.generators.draws import Generation, check_text, prompt_bytes
from sklearn_clm.generators.prompts import is_missing

_T = TypeVar("_T")
_FIELDS = [field.name for field in fields(Generation)]
# what Python raises on values of another shape than expected
_UNEXPECTED = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)


@contextlib.contextmanager
def locating_errors(where: str) -> Iterator[None]:
    """Turn errors of unexpected values into a ValueError with place."""
    try:
        yield
    except KeyError as error:  # whose text is the key alone
        raise ValueError(f"{where}: it has no field {error}.") from error
    except _UNEXPECTED as error:
        raise ValueError(f"{where}: {error}") from error


@contextlib.contextmanager
def csv_table(path: str | os.PathLike[str], **options: Any) -> Iterator["csv.DictReader[str]"]:
    """The lines of a CSV file, whatever its delimiter."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        limit = csv.field_size_limit()  # 131,072 characters, but for this
        csv.field_size_limit(max(os.path.getsize(path), limit))
        try:
            header = file.readline()
            file.seek(0)
            # spreadsheets write semicolons where the comma is the decimal point
            delimiter = max(",;\t", key=header.count)
            rows = csv.DictReader(file, **{"delimiter": delimiter, **options})
            names = list(filter(None, rows.fieldnames or ()))
            if len(set(names)) < len(names):
                raise ValueError(f"{os.fspath(path)!s} must name each column once, got {names!r}.")
            yield rows
        except csv.Error as error:
            place = f"before the end of line {rows.line_num}"
            raise ValueError(f"{os.fspath(path)!s} is not a CSV file: {error}, {place}.") from error
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{os.fspath(path)!s} is not a CSV file in UTF-8: {error}. Save it as one (iconv "
                "-f LATIN1 -t UTF-8 makes one of an older CSV file)."
            ) from error
        finally:
            csv.field_size_limit(limit)


def json_value(text: str | bytes) -> Any:
    """The value of JSON, text or UTF-8."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error


def json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of JSON Lines, each with its place."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"line {number} of {os.fspath(path)!s}"
            with locating_errors(where):
                record = json_value(line)
                if not isinstance(record, dict):
                    raise ValueError(f"it is not a JSON object but a {type(record).__name__}")
            yield where, record


def key_digest(value: object) -> bytes:
    """256-bit digest of a prompt, or of a pair."""
    # so long that nobody finds two prompts of one digest: paid draws are kept under it
    return hashlib.blake2b(prompt_bytes(value), digest_size=32).digest()


def content_json(value: object) -> str | None:
    """JSON text of a prompt; None where JSON loses something."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return None
    # tuples come back as lists, which are equal here, but keys that are numbers as texts, which are
    # not
    return text if prompt_bytes(json.loads(text)) == prompt_bytes(value) else None


def draw_to_record(generation: Generation) -> dict[str, object]:
    """The known fields of a draw as JSON values."""
    # through the reader: what is written is what can be read, numbers of NumPy included
    plain = draw_from_record({name: getattr(generation, name) for name in _FIELDS})
    values = {name: getattr(plain, name) for name in _FIELDS}
    return {name: value for name, value in values.items() if value is not None}


def draw_from_record(record: Mapping[str, object]) -> Generation:
    """The draw that :func:`draw_to_record` wrote (or a user, by hand)."""
    response = record.get("response")
    # data frames hold NumPy's numbers, which JSON does not know
    response = response.item() if isinstance(response, np.generic) else response
    if not isinstance(response, (str, int, float)) or is_missing(response):
        empty = " (pandas reads an empty text so, but for keep_default_na=False)"
        raise ValueError(
            f"response must be text or a number, got {response!r:.60} instead"
            f"{empty * is_missing(response)}."
        )
    check_text(response, "response")
    with locating_errors("the fields of a draw"):
        return Generation(
            response,
            logprob=_known(float, record.get("logprob")),
            n_tokens=_known(int, record.get("n_tokens")),
            token_logprobs=_known(lambda v: tuple(map(float, v)), record.get("token_logprobs")),
            token_spans=_known(
                lambda v: tuple((int(start), int(stop)) for start, stop in v),
                record.get("token_spans"),
            ),
            finish_reason=_known(str, record.get("finish_reason")),
        )


def _known(kind: Callable[[Any], _T], value: object) -> _T | None:
    # a data frame writes what it does not know as NaN
    return None if is_missing(value) else kind(value)
