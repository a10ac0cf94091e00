"""Questions from a file of JSON lines, each with "prompt" and "reference"."""

import json
from pathlib import Path

__all__ = ["read_questions"]

_WANTED = 'wanted {"prompt": "...", "reference": "..." or ["...", ...]}'


def read_questions(path: Path) -> tuple[list[str], list[list[str]]]:
    """Prompts and, for each, every reference that is right; exits with a message on bad input."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SystemExit(f"--data {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SystemExit(f"--data {path}: not UTF-8 text; {_WANTED} on each line") from None
    prompts, references = [], []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            prompt, aliases = _read_line(f"--data {path}, line {number}", line)
            prompts.append(prompt)
            references.append(aliases)
    if not prompts:
        raise SystemExit(f"--data {path}: the file holds no question")
    return prompts, references


def _read_line(place: str, line: str) -> tuple[str, list[str]]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise SystemExit(f"{place}: not JSON ({error}); {_WANTED}") from None
    if not isinstance(record, dict) or not {"prompt", "reference"} <= record.keys():
        raise SystemExit(f"{place}: {line[:80]!r}; {_WANTED}")
    prompt, reference = record["prompt"], record["reference"]
    aliases = reference if isinstance(reference, list) else [reference]
    if not aliases or not all(isinstance(text, str) and text for text in [prompt, *aliases]):
        raise SystemExit(f"{place}: empty or not a text; {_WANTED}")
    return prompt, aliases
