"""Digests of all that a generator, a score or a judge depends on.

Objects are taken apart as a pickler would, but nothing is ever loaded, and equal objects give
equal digests in every process. The user's own code counts by its content, followed as far as it
reaches: helpers, classes, methods, closures, defaults, and the module's globals that it reads.
Code of installed packages and of Python counts by its name and version. State that code itself
writes, such as a log of calls, is no part of it, as far as the code tells; where it does not, the
code alone can be compared (:class:`Described`).
"""

import copyreg
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import random
import sys
import sysconfig
import threading
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from sklearn_clm.generators._draws import prompt_bytes

_PACKAGE = __name__.partition(".")[0]
_PROTOCOL = 4
_CONSTANTS = (str, bytes, bool, int, float, np.bool_, np.int64, np.float64)
_ADDING = {"add", "append", "appendleft", "extend", "insert", "put", "setdefault", "update"}
_REMOVING = {"clear", "discard", "pop", "popitem", "popleft", "remove"}
_WRITING = {*_ADDING, *_REMOVING, "reverse", "sort", "write", "writelines"}
# methods of generators, scores and admissions that leave what they are as it is
_USES = (
    *("sample", "stream", "serve", "__call__", "pairwise", "judge_pairs", "stream_verdicts"),
    *("score_pairs", "score_draws", "score_components", "predict_proba"),
)
# what code may use without depending on its state
_STATE_OF_RUNS = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.local,
    random.Random,
    np.random.Generator,
    np.random.RandomState,
)


@runtime_checkable
class Fingerprinted(Protocol):
    """An object that knows its own digest."""

    def fingerprint(self) -> str:
        """Digest of everything that results depend on."""


class UnidentifiedError(ValueError):
    """An object has no state that identifies it."""


class Described(NamedTuple):
    """What an object is."""

    content: Any  # its identity
    code: list[Any]  # the user's functions and classes that it reaches, without what they hold
    n_bytes: int  # that were read


class _Walk:
    """The objects that are being taken apart, and the code that has been."""

    def __init__(self) -> None:
        self.above: set[int] = set()
        self.known: dict[int, tuple[object, object]] = {}  # keeps them, so that ids stay theirs
        self.code: list[Any] = []
        self.uses: set[str] = set()  # attributes that the code in use looks up
        self.in_class = 0  # methods of a class are not all in use


_n_bytes: ContextVar[int] = ContextVar("n_bytes", default=0)  # that digests were made of
_strict: ContextVar[bool] = ContextVar("strict", default=False)
_walk: ContextVar[_Walk | None] = ContextVar("walk", default=None)


@contextmanager
def strictly() -> Iterator[None]:
    """Refuse objects whose class alone would have to stand for them."""
    token = _strict.set(True)
    try:
        yield
    finally:
        _strict.reset(token)


@contextmanager
def _walking() -> Iterator[_Walk]:
    """The walk that is under way, or a new one."""
    walk = _walk.get()
    if walk is not None:
        yield walk
        return
    token = _walk.set(_Walk())
    try:
        yield _walk.get()  # type: ignore[misc]
    finally:
        _walk.reset(token)


def described(value: Any) -> Described:
    """The identity of an object, and of the code in it."""
    before = _n_bytes.get()
    with _walking() as walk:
        content = identity(value)
    n_bytes = _n_bytes.get() - before + len(prompt_bytes(content))
    return Described(content, sorted(walk.code, key=prompt_bytes), n_bytes)


def digest_of(cls: type, params: Mapping[str, object]) -> str:
    """Hexadecimal digest of a class and its parameters, equal in every process."""
    with _walking() as walk:
        _written_by_use(cls, walk)
        return _hashed([identity(cls), {name: identity(value) for name, value in params.items()}])


def state_of(value: object) -> dict[str, object]:
    """All attributes of a generator or a score but those that its use writes, such as a log."""
    with _walking() as walk:
        written = _written_by_use(type(value), walk)
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    found |= getattr(value, "__dict__", {})
    return {name: part for name, part in found.items() if name not in written}


def identity(value: Any) -> Any:
    """Serialisable stand-in for an object, equal in every process for the same meaning."""
    if value is None or type(value) in _CONSTANTS:
        return value
    walk = _walk.get()
    if walk is None:
        with _walking():
            return identity(value)
    if id(value) in walk.known:
        return walk.known[id(value)][1]
    if id(value) in walk.above:
        return "what holds this"
    walk.above.add(id(value))
    try:
        found = _identity(value, walk)
    finally:
        walk.above.discard(id(value))
    if isinstance(value, (types.FunctionType, type)):
        walk.known[id(value)] = (value, found)
    return found


def _identity(value: Any, walk: _Walk) -> Any:
    if isinstance(value, type):
        return _class(value, walk)
    # containers and arrays first: they are many, and to ask for a protocol takes time
    if isinstance(value, (list, tuple)):
        return [identity(item) for item in value]
    if isinstance(value, dict):
        pairs = [[identity(key), identity(item)] for key, item in value.items()]
        texts = all(type(key) is str for key in value)  # vocabularies are large
        return ["dict", *sorted(pairs, key=itemgetter(0) if texts else prompt_bytes)]
    if isinstance(value, (set, frozenset)):
        # the order of a set of texts differs between processes
        return ["set", *sorted(map(identity, value), key=prompt_bytes)]
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        # what lies between the fields is anybody's guess
        return ["fields", *([name, identity(value[name])] for name in value.dtype.names)]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [str(value.dtype), value]
    if isinstance(value, Fingerprinted):
        return str(value.fingerprint())  # a mock of a judge has any method, and gives no text
    if isinstance(value, functools.partial):
        return ["partial", identity(value.func), identity(value.args), identity(value.keywords)]
    if inspect.ismethod(value):
        walk.uses.add(value.__func__.__name__)
        return [identity(value.__self__), identity(value.__func__)]
    if isinstance(value, types.FunctionType):
        return _function(value, walk)
    if isinstance(value, functools._lru_cache_wrapper):
        return ["cached", identity(value.__wrapped__)]
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__, _origin(value.__name__)]
    if isinstance(value, (property, staticmethod, classmethod, functools.cached_property)):
        names = ("fget", "fset", "fdel", "func", "__func__")
        return [identity(getattr(value, name, None)) for name in names]
    if callable(value) and hasattr(value, "__qualname__"):
        return _compiled(value)
    if isinstance(value, Iterator):
        return _by_class(value, None)  # it is another one after each use
    try:
        prompt_bytes(value)
    except TypeError:
        return _state(value, walk)
    return [str(value.dtype), value] if isinstance(value, np.ndarray) else value


def _hashed(content: object) -> str:
    described = prompt_bytes(content)
    _n_bytes.set(_n_bytes.get() + len(described))
    return hashlib.blake2b(described, digest_size=16).hexdigest()


# --- code -----------------------------------------------------------------------------------------


def _function(function: types.FunctionType, walk: _Walk) -> list[Any]:
    """Identity of a function: two lambdas share a name, two closures share their code."""
    code = function.__code__
    origin = _origin(function.__globals__.get("__name__"))
    cells = zip(code.co_freevars, function.__closure__ or ())
    if origin is not None:
        # of functions with one name; those here have different ones, in every version
        line = None if origin == _PACKAGE else code.co_firstlineno
        content = [origin, line, [[name, _contents(cell)] for name, cell in cells]]
    else:
        names = _names(code)
        if not walk.in_class:
            walk.uses |= names.attributes
        instructions = _instructions(code)
        walk.code.append([function.__module__, function.__qualname__, instructions])
        free = [[name, _contents(cell)] for name, cell in cells if name not in names.written]
        content = [instructions, free, _globals(function.__globals__, names)]
    content += [identity(function.__defaults__), identity(function.__kwdefaults__)]
    return [function.__module__, function.__qualname__, _hashed(content)]


def _class(cls: type, walk: _Walk) -> Any:
    """Identity of a class: its name, and the content of its body where it is the user's."""
    name, origin = f"{cls.__module__}.{cls.__qualname__}", _origin(cls.__module__)
    if origin is not None:
        return [name, origin]
    written = frozenset[str]().union(
        *(_names(each.__code__).attributes_written for each in _methods(cls))
    )
    walk.code.append(name)
    walk.in_class += 1
    try:
        body = {
            key: identity(member)
            for key, member in sorted(vars(cls).items())
            if _is_content(key, member) and key not in written
        }
        return [name, _hashed([[identity(base) for base in cls.__bases__], body])]
    finally:
        walk.in_class -= 1


def _is_content(name: str, member: object) -> bool:
    if isinstance(member, (types.FunctionType, property, staticmethod, classmethod)):
        return True
    made_by_python = name.startswith(("__", "_abc_")) or isinstance(
        member, (types.GetSetDescriptorType, types.MemberDescriptorType)
    )
    return not made_by_python and not isinstance(member, _STATE_OF_RUNS)


def _methods(cls: type) -> list[types.FunctionType]:
    return [each for each in vars(cls).values() if isinstance(each, types.FunctionType)]


def _written_by_use(cls: type, walk: _Walk) -> frozenset[str]:
    """Attributes that methods in use write, themselves or through other methods.

    In use are those which draw or score, and those that code in use looks up.
    """
    written, read = _writing(cls, frozenset(walk.uses))
    walk.uses |= read
    return written


@functools.lru_cache(maxsize=1024)
def _writing(cls: type, uses: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Attributes that these methods write, and all that they look up."""
    written: set[str] = set()
    read: set[str] = set()
    seen: set[str] = set()
    waiting = [*_USES, *uses]
    while waiting:
        name = waiting.pop()
        method = inspect.getattr_static(cls, name, None)
        if name in seen or not isinstance(method, types.FunctionType):
            continue
        seen.add(name)
        names = _names(method.__code__)
        written |= names.attributes_written
        read |= names.attributes
        waiting += names.attributes
    return frozenset(written), frozenset(read)


def _globals(namespace: dict[str, Any], names: "_Names") -> list[Any]:
    """What a function finds in its module, and in other modules of the user."""
    found: list[Any] = []
    for name in sorted(names.globals - names.written):
        value = namespace.get(name)
        if isinstance(value, types.ModuleType):
            found.append([name, _members(value, names.attributes)])
        elif name in namespace and not isinstance(value, _STATE_OF_RUNS):
            found.append([name, identity(value)])
    package = namespace.get("__package__")
    return found + [[name, _source(name, package)] for name in sorted(names.imports)]


def _members(module: types.ModuleType, attributes: frozenset[str]) -> list[Any]:
    """Members of a module of the user that a function may use."""
    origin = _origin(module.__name__)
    if origin is not None:
        return [module.__name__, origin]
    with _walking() as walk:
        if id(module) in walk.above:
            return [module.__name__]
        walk.above.add(id(module))
        try:
            members: list[Any] = [module.__name__]
            for name in sorted(attributes & vars(module).keys()):
                member = vars(module)[name]
                if isinstance(member, types.ModuleType):
                    members.append([name, _members(member, attributes)])
                elif not name.startswith("__") and not isinstance(member, _STATE_OF_RUNS):
                    members.append([name, identity(member)])
            return members
        finally:
            walk.above.discard(id(module))


def _source(name: str, package: str | None) -> str | None:
    """Version, or digest of the user's file, of what a function imports when it is called."""
    for full in (name, f"{package}.{name}"):
        origin, file = _origin(full), _file(full)
        if origin is not None:
            return origin
        if file is not None and file.suffix == ".py":
            return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
    return None


def _contents(cell: Any) -> Any:
    try:
        contents = cell.cell_contents
    except ValueError:  # of a name that is defined further down
        return "empty"
    return "state of runs" if isinstance(contents, _STATE_OF_RUNS) else identity(contents)


_Place = tuple[int | None, int | None]  # line and column


class _Names(NamedTuple):
    """Names that a function, or one that it defines, looks up or changes."""

    globals: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[str]
    written: frozenset[str]  # globals and free variables
    attributes_written: frozenset[str]


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> _Names:
    read: set[str] = set()
    imports: set[str] = set()
    written: set[str] = set()
    # where the expressions begin that are written to, and what is looked up from there
    places: set[_Place] = set()
    roots: dict[_Place, set[str]] = {}
    attributes: dict[_Place, set[str]] = {}
    for step in dis.get_instructions(code):
        operation, name = step.opname, step.argval
        place: _Place = (None, None)
        if step.positions is not None:
            place = (step.positions.lineno, step.positions.col_offset)
        if operation in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            read.add(name)
        if operation in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            roots.setdefault(place, set()).add(name)
        elif operation in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF"):
            written.add(name)
        elif operation == "IMPORT_NAME":
            imports.add(name)
        elif operation in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            places.add(place)
        if operation in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"):
            attributes.setdefault(place, set()).add(name)
            if operation in ("STORE_ATTR", "DELETE_ATTR") or name in _WRITING:
                places.add(place)
    places.discard((None, None))
    for place in places:
        written |= roots.get(place, set())
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return _Names(
        frozenset(read).union(*(each.globals for each in inner)),
        frozenset(code.co_names).union(*(each.attributes for each in inner)),
        frozenset(imports).union(*(each.imports for each in inner)),
        frozenset(written).union(*(each.written for each in inner)),
        frozenset[str]()
        .union(*(attributes.get(place, set()) for place in places))
        .union(*(each.attributes_written for each in inner)),
    )


@functools.lru_cache(maxsize=4096)
def _instructions(code: types.CodeType) -> list[Any]:
    """Instructions and constants of a function and of those that it defines."""
    return [code.co_code, list(code.co_names), [_constant(each) for each in code.co_consts]]


def _constant(constant: object) -> Any:
    if isinstance(constant, types.CodeType):
        return _instructions(constant)
    if isinstance(constant, frozenset):
        return sorted(map(repr, constant))
    if isinstance(constant, tuple):
        return [_constant(each) for each in constant]
    return repr(constant)


def _compiled(value: Any) -> Any:
    """Identity of a function in C, and of the object that it belongs to."""
    module = getattr(value, "__module__", None) or "builtins"
    owner = getattr(value, "__self__", None)
    held = None if isinstance(owner, types.ModuleType) else identity(owner)
    name = f"{module}.{value.__qualname__}"
    origin = _origin(module)
    return [name, origin, held] if origin is not None else [_by_class(value, None), name, held]


@functools.lru_cache(maxsize=1024)
def _origin(module: str | None) -> str | None:
    """Package and version of an installed module; None where it is the user's own."""
    root = (module or "__main__").partition(".")[0]
    if root == _PACKAGE:
        return root  # whose meaning stays, whatever the version
    if root == "__main__":
        return None
    if root in sys.stdlib_module_names:
        return "python {}.{}".format(*sys.version_info)
    file = _file(root)
    folders = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    if file is None or not (
        "site-packages" in file.parts
        or "dist-packages" in file.parts
        or any(map(file.is_relative_to, folders))
    ):
        return None
    try:
        return f"{root} {importlib.metadata.version(root)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{root} {getattr(sys.modules.get(root), '__version__', None)}"


def _file(module: str) -> Path | None:
    """Where a module lies, imported or not."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    place = spec.origin if spec.has_location else (folders[0] if folders else None)
    return None if place is None else Path(place)


# --- objects --------------------------------------------------------------------------------------


def _state(value: Any, walk: _Walk) -> Any:
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
        if isinstance(state, dict) and _origin(type(value).__module__) is None:
            cls: type = type(value)
            own, written = _writing(cls, frozenset())[0], _written_by_use(cls, walk)
            # a name that code looks up may be that of a method which trains: arrays always count
            state = {
                key: part
                for key, part in state.items()
                if key not in own and (key not in written or hasattr(part, "__array__"))
            }
        parts = [function, args, state, list(items or ()), list(pairs or ())]
        return [name, *map(identity, parts)]
    except UnidentifiedError:
        raise
    except Exception as error:  # foreign code, which may raise anything
        return _by_class(value, error)


def _by_class(value: object, error: Exception | None) -> Any:
    """The class of an object that nothing else is known of."""
    if _strict.get():
        raise UnidentifiedError(
            f"{value!r:.80} has no state that identifies it: give what uses it a key= instead."
        ) from error
    return identity(type(value))


def _as_array(value: Any) -> np.ndarray | None:
    """Numbers of a tensor, wherever it lives."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    try:
        tensor = value.detach().cpu()
        try:
            return np.asarray(tensor.numpy())
        except TypeError:  # a type that NumPy has not, such as bfloat16
            return np.asarray(tensor.double().numpy())
    except (TypeError, RuntimeError):  # no plain numbers: sparse, or of no memory
        return None
