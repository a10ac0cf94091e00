"""What tells one generator, score or judge from another: digests of all that they depend on.

Objects are taken apart as a pickler would, but nothing is ever loaded, and no part is remembered:
a pickle tells two references to one text from two equal texts, and so an object from its own copy.
"""

import copyreg
import functools
import hashlib
import inspect
import types
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from operator import itemgetter
from typing import Any

import numpy as np

from sklearn_clm.generators._draws import prompt_bytes

__all__ = ["UntoldError", "digest_of", "strictly", "told"]


_PROTOCOL = 4
_CONSTANTS = (str, bytes, bool, int, float, np.bool_, np.int64, np.float64)
_strict: ContextVar[bool] = ContextVar("strict", default=False)
_under_way: ContextVar[tuple[int, ...]] = ContextVar("under_way", default=())


class UntoldError(ValueError):
    """An object has no state that could be told from another one's."""


@contextmanager
def strictly() -> Iterator[None]:
    """Refuse objects that could only be told by their class, which then stands for them."""
    token = _strict.set(True)
    try:
        yield
    finally:
        _strict.reset(token)


def digest_of(cls: type, params: dict[str, Any]) -> str:
    """Hexadecimal digest of a class and its parameters, equal in every process."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    content = [name, {name: told(value) for name, value in params.items()}]
    return hashlib.blake2b(prompt_bytes(content), digest_size=16).hexdigest()


def told(value: Any) -> Any:
    """A serialisable stand-in for a parameter, equal in every process for the same meaning."""
    if value is None or type(value) in _CONSTANTS:
        return value
    above = _under_way.get()
    if id(value) in above:
        return "what holds this"
    token = _under_way.set((*above, id(value)))
    try:
        return _told(value)
    finally:
        _under_way.reset(token)


def _told(value: Any) -> Any:
    if hasattr(value, "fingerprint") and not isinstance(value, type):
        return value.fingerprint()
    if isinstance(value, functools.partial):
        return ["partial", told(value.func), told(list(value.args)), told(value.keywords)]
    if inspect.ismethod(value):
        return [told(value.__self__), value.__func__.__qualname__]
    if hasattr(value, "__code__"):
        return _function(value)
    if isinstance(value, functools._lru_cache_wrapper):
        return ["cached", told(value.__wrapped__)]
    if isinstance(value, (list, tuple)):
        return [told(item) for item in value]
    if isinstance(value, dict):
        pairs = [[told(key), told(item)] for key, item in value.items()]
        texts = all(type(key) is str for key in value)  # vocabularies are large
        return ["dict", *sorted(pairs, key=itemgetter(0) if texts else prompt_bytes)]
    if isinstance(value, (set, frozenset)):
        # the order of a set of texts differs between processes
        return ["set", *sorted(map(told, value), key=prompt_bytes)]
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', None)}.{value.__qualname__}"
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        # what lies between the fields is anybody's guess
        return ["fields", *([name, told(value[name])] for name in value.dtype.names)]
    try:
        prompt_bytes(value)
    except TypeError:
        return _state(value)
    return value


def _function(value: Any) -> list[Any]:
    # two lambdas share a name, two closures share their code: neither shares all of this
    cells = [_contents(cell) for cell in getattr(value, "__closure__", None) or ()]
    defaults = [told(value.__defaults__), told(value.__kwdefaults__)]
    constants = {
        name: value.__globals__[name]
        for name in sorted(_names(value.__code__))
        if name.isupper() and isinstance(value.__globals__.get(name), _CONSTANTS)
    }
    code = _code(value.__code__)
    return [value.__module__, value.__qualname__, code, cells, defaults, told(constants)]


def _contents(cell: Any) -> Any:
    try:
        contents = cell.cell_contents
    except ValueError:  # of a name that is defined further down
        return "empty"
    return told(contents)


def _names(code: Any) -> set[str]:
    """Names of globals and attributes that a function, or one that it defines, looks up."""
    inner = (constant for constant in code.co_consts if hasattr(constant, "co_names"))
    return set(code.co_names).union(*map(_names, inner))


def _code(code: Any) -> list[Any]:
    """Instructions and constants of a function and of those that it defines."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            constants.append(_code(constant))
        elif isinstance(constant, frozenset):
            constants.append(sorted(map(repr, constant)))
        else:
            constants.append(repr(constant))
    return [code.co_code, list(code.co_names), constants]


def _state(value: Any) -> Any:
    """What a pickler would write of an arbitrary object, or else its class."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    tensor = _as_array(value)
    if tensor is not None:
        return [name, str(value.dtype), tensor]
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(_PROTOCOL) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            return [name, reduced]
        function, args, state, items, pairs = (*reduced, None, None, None)[:5]
        parts = [told(function), told(args), told(state), told(list(items or ()))]
        return [name, *parts, told(list(pairs or ()))]
    except UntoldError:
        raise
    except Exception as error:  # foreign code, which may raise anything
        if _strict.get():
            raise UntoldError(
                f"{value!r:.80} has no state that could be told from another one's"
            ) from error
        return name


def _as_array(value: Any) -> np.ndarray | None:
    """Numbers of a tensor, wherever it lives."""
    if not (hasattr(value, "detach") and hasattr(value, "cpu")):
        return None
    try:
        tensor = value.detach().cpu()
        try:
            return np.asarray(tensor.numpy())
        except TypeError:  # a type that NumPy has not, such as bfloat16
            return np.asarray(tensor.double().numpy())
    except (TypeError, RuntimeError):  # no plain numbers: sparse, or of no memory
        return None
