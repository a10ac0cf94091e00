"""Docstrings of the scientific packages that are installed here, to be summarised.

A docstring opens with a summary line; everything below it is its body. The text to be summarised is
the name and the arguments of the function or class and the beginning of the body, the reference is
the summary line. Summaries that occur several times are taken once, and a summary belongs to
exactly one part, by a hash of its words: "train" and "validation" for the language model,
"held_out" for everything that is measured on it. Docstrings without a body, of which the name is
all there is to read, serve training alone.
"""

import ast
import hashlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["PACKAGES", "Docstring", "load_docstrings", "part_of"]

PACKAGES = ("numpy", "scipy", "sklearn", "pandas", "matplotlib", "networkx", "sympy", "torch")

_HELD_OUT = 0.24
_VALIDATION = 0.03
_SUMMARY_LENGTH = (20, 110)  # characters
_BODY_LENGTH = (60, 160)  # characters that make a body, and that are read of it
_NOT_DOCUMENTED_FOR_USERS = {"test", "tests", "testing", "externals", "_vendor"}


class Docstring(NamedTuple):
    """What is to be summarised, and its summary."""

    text: str
    summary: str
    has_body: bool


def part_of(summary: str) -> str:
    """Part that a summary belongs to: "train", "validation" or "held_out"."""
    words = " ".join(re.findall(r"[a-z0-9]+", summary.lower()))
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    position = int.from_bytes(digest, "big") / 2**64
    if position < _HELD_OUT:
        return "held_out"
    return "validation" if position < _HELD_OUT + _VALIDATION else "train"


def load_docstrings(part: str) -> list[Docstring]:
    """All docstrings of one part, in the order of the packages' source files."""
    found: dict[str, Docstring] = {}
    for package in PACKAGES:
        for docstring in _docstrings_of(package):
            found.setdefault(docstring.summary.lower(), docstring)
    return [
        docstring
        for docstring in found.values()
        if part_of(docstring.summary) == part and (docstring.has_body or part == "train")
    ]


@cache
def _docstrings_of(package: str) -> list[Docstring]:
    return [one for path in _source_files(package) for one in _docstrings_in(path)]


def _source_files(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"The docstrings of {package} are missing; install it first.")
    root = Path(spec.origin).parent
    return [
        path
        for path in sorted(root.rglob("*.py"))
        if not _NOT_DOCUMENTED_FOR_USERS & set(path.relative_to(root).parts)
    ]


def _docstrings_in(path: Path) -> Iterator[Docstring]:
    """Docstrings of one source file, which is read and never run."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        first, *rest = re.split(r"\n\s*\n", ast.get_docstring(node) or "", maxsplit=1)
        summary, body = " ".join(first.split()), _plain("".join(rest))
        low, high = _SUMMARY_LENGTH
        if low <= len(summary) <= high and summary.endswith("."):
            text = f"summarize: {_heading(node)} {body[: _BODY_LENGTH[1]]}".strip()
            yield Docstring(text, summary, len(body) >= _BODY_LENGTH[0])


def _heading(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Name and arguments, the words of the name apart."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", node.name).replace("_", " ").split()
    if isinstance(node, ast.ClassDef):
        return f"class {' '.join(words)}:"
    arguments = [argument.arg for argument in node.args.args if argument.arg not in {"self", "cls"}]
    return f"{' '.join(words)}({', '.join(arguments)}):"


def _plain(body: str) -> str:
    """Body without underlines and doctests, on one line."""
    kept = [
        line.strip()
        for line in body.splitlines()
        if not re.fullmatch(r"\s*(-{3,}|={3,})\s*", line) and not line.lstrip().startswith(">>>")
    ]
    return " ".join(" ".join(kept).split())
