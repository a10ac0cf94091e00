"""JSON from anywhere: whatever is wrong with it is a ValueError that says where."""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

__all__ = ["json_lines", "json_value", "naming", "whole_number"]

_LARGEST = 2**63 - 1  # what SQLite and NumPy can hold


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Turn what a value of an unexpected type or size makes Python raise into a ValueError."""
    try:
        yield
    except (
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ValueError(f"{where}: {error}") from error


def json_value(text: str | bytes) -> Any:
    """The value of JSON text, in UTF-8 where it is bytes."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error


def json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in a file of JSON Lines, each with the words that name its line."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"line {number} of {os.fspath(path)!s}"
            with naming(where):
                record = json_value(line)
                if not isinstance(record, dict):
                    raise ValueError(f"it is not a JSON object but a {type(record).__name__}")
            yield where, record


def whole_number(record: Any, name: str, default: int) -> int:
    """A field that counts from 0; `default` where there is none."""
    value = record.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or value != value or value != int(value):
        raise ValueError(f"{name} must be a whole number, got {value!r:.40}")
    if not 0 <= value <= _LARGEST:
        raise ValueError(f"{name} must lie between 0 and 2**63 - 1, got {value!r:.40}")
    return int(value)
