"""Syntax trees of functions, from the code that runs.

A file may have changed since its code was compiled. So the tree of a function is that of a piece of
source which compiles to this very code; where there is none, the function is told by its byte code.
"""

import __future__

import ast
import functools
import inspect
import os
import threading
import types
from collections.abc import Iterator
from typing import Any

# fields of a node that say nothing of what runs
_OUTSIDE_OF_CODE = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}
# Python 3.11 raises SystemError where two threads parse at once; a child of a fork has its own lock
_PARSING: dict[int, threading.Lock] = {}


def tree_of(code: types.CodeType) -> Any:
    """Syntax tree of what compiles to this code, if any."""
    flags = code.co_flags & __future__.annotations.compiler_flag
    try:
        lines, _ = inspect.findsource(code)
        with _PARSING.setdefault(os.getpid(), threading.Lock()):
            written = _written("".join(lines), flags)
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError, IndexError):
        return None
    compiled = _without_places(code)
    same = [
        node
        for node, other in written
        if other == compiled and other.co_qualname == compiled.co_qualname
    ]
    # one with the same code may stand further up, written otherwise
    same.sort(key=lambda node: _place(node)[1] != code.co_firstlineno)
    return [*_arguments(code), _as_lists(_body(same[0]))] if same else None


@functools.lru_cache(maxsize=4)
def _written(source: str, flags: int) -> list[tuple[Any, types.CodeType]]:
    """Functions of a file with their code, one a line."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    tree = ast.parse(source)
    codes = compile(source, "source", "exec", flags, dont_inherit=True)
    nodes_at: dict[tuple[str, int], list[Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            nodes_at.setdefault(_place(node), []).append(node)
    codes_at: dict[tuple[str, int], list[types.CodeType]] = {}
    for code in _codes_in(codes):
        codes_at.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    # where two stand on one line nobody knows which is which: these are told by their byte code
    alone = [place for place, nodes in nodes_at.items() if len(nodes) == 1]
    return [
        (nodes_at[place][0], _without_places(codes_at[place][0]))
        for place in alone
        if len(codes_at.get(place, ())) == 1
    ]


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of all functions within, at any depth."""
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            yield from _codes_in(part)


def _without_places(code: types.CodeType) -> types.CodeType:
    """The code, wherever it stands in a file."""
    parts = [
        _without_places(part) if isinstance(part, types.CodeType) else part
        for part in code.co_consts
    ]
    return code.replace(co_consts=tuple(parts), co_filename="", co_firstlineno=1, co_linetable=b"")


def _place(node: Any) -> tuple[str, int]:
    """Name and first line of a node, as Python counts."""
    lines = [part.lineno for part in (node, *getattr(node, "decorator_list", ()))]
    return getattr(node, "name", "<lambda>"), min(lines)


def _arguments(code: types.CodeType) -> list[Any]:
    """Names and kinds of arguments."""
    names, *variadic = inspect.getargs(code)
    # defaults and decorators are told by what they made
    is_async = bool(code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
    return [names, *variadic, code.co_posonlyargcount, code.co_kwonlyargcount, is_async]


def _as_lists(node: Any) -> Any:
    """A syntax tree as lists, the same under every Python."""
    if isinstance(node, list):
        return [_as_lists(item) for item in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 puts empty texts into some
        node = ast.JoinedStr([part for part in node.values if getattr(part, "value", None) != ""])
    fields = {name: part for name, part in ast.iter_fields(node) if part not in (None, [])}
    if "body" in fields:
        fields["body"] = _body(node)
    kept = sorted(fields.keys() - _OUTSIDE_OF_CODE)
    return [type(node).__name__, *([name, _as_lists(fields[name])] for name in kept)]


def _body(node: Any) -> Any:
    """What a function or class does, without its docstring."""
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    has_docstring = isinstance(node, documented) and ast.get_docstring(node) is not None
    return node.body[1:] if has_docstring else node.body
