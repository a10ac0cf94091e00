"""Questions, or other records, from files of JSON lines."""

import json
from collections.abc import Iterator
from pathlib import Path

__all__ = ["read_questions", "read_records"]

_WANTED = 'wanted {"prompt": "...", "reference": "..." or ["...", ...]}'


def read_questions(path: Path) -> tuple[list[str], list[list[str]]]:
    """Prompts and, for each, every reference that is right; exits with a message on bad input."""
    prompts, references = [], []
    for place, record in read_records(path, ("prompt", "reference"), _WANTED):
        prompt, reference = record["prompt"], record["reference"]
        aliases = reference if isinstance(reference, list) else [reference]
        if not aliases or not all(isinstance(text, str) and text for text in [prompt, *aliases]):
            raise SystemExit(f"{place}: empty or not a text; {_WANTED}")
        prompts.append(prompt)
        references.append(aliases)
    if not prompts:
        raise SystemExit(f"--data {path}: the file holds no question")
    return prompts, references


def read_records(path: Path, fields: tuple[str, ...], wanted: str) -> Iterator[tuple[str, dict]]:
    """The place and the content of each line that is not empty; exits where a field is lacking."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SystemExit(f"--data {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SystemExit(f"--data {path}: not UTF-8 text; {wanted} on each line") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"--data {path}, line {number}"
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise SystemExit(f"{place}: not JSON ({error}); {wanted}") from None
            if not isinstance(record, dict) or not set(fields) <= record.keys():
                raise SystemExit(f"{place}: {line[:80]!r}; {wanted}")
            yield place, record
