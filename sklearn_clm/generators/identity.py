"""Identity of generators, scores and judges; copies of them.

The chapter on scores says what an object and a function are. A function is the code that runs,
whatever its file says by now: the source, where that compiles to this very code, and else the byte
code, which is another one under another Python. Functions without source, as those of ``exec``, and
several lambdas on one line are their byte code. A class is its functions, and its attributes that
are values, functions or the user's own objects.
Classes and functions of Python and of installed packages are their names; those of this package
are named by where users find them, not by the module that holds them.
"""

import copyreg
import datetime as dt
import enum
import functools
import hashlib
import importlib.util
import inspect
import json
import numbers
import operator
import random
import re
import string
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import clone

from sklearn_clm.calibration.set_scores import SetScore
from sklearn_clm.generators._syntax import tree_of
from sklearn_clm.generators.draws import prompt_bytes

TRAINED_ON = "_trained_on"  # attribute that holds the digest of a training
# no part of what an object has learnt; a vectoriser notes an address, another one in each process
_INCIDENTAL = {TRAINED_ON, "_sklearn_version", "_stop_words_id"}
_TRIED_TEXT = "Él vio CAFÉ Paris, 東京: isn't it 1.5 km?"  # options written in Python show

_PLAIN = (str, bytes, bool, int, float, np.bool_, np.int64, np.float64)
# of Python and NumPy, told by their content
_VALUES = (
    *(numbers.Number, np.generic, np.dtype, bytearray, range, slice, re.Pattern, PurePath),
    *(dt.date, dt.time, dt.timedelta, enum.Enum, string.Template),
)
_FUNCTIONS = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, np.ufunc),
    *(operator.attrgetter, operator.itemgetter, operator.methodcaller),
)
_RANDOM = (random.Random, np.random.Generator, np.random.RandomState)
# left by what writes methods into a class
_WRITERS = {"__dataclass_fields__", "__attrs_attrs__", "_field_defaults"}
_CONTAINERS = (list, tuple, dict, set, frozenset)
_strict: ContextVar[bool] = ContextVar("strict", default=False)

_MOST_PARTS = 64  # of a list that is looked into; longer ones are data, or trees of a forest

_Inner = Callable[[Any], Any]  # the identity of a part


class UnidentifiedError(ValueError):
    """An object has no parameters or values to identify it."""


@contextmanager
def strictly(name: str) -> Iterator[None]:
    """Refuse what only its class could identify; errors say `name`."""
    token = _strict.set(True)
    try:
        yield
    except UnidentifiedError as error:
        raise ValueError(f"{name}: {error}") from error
    finally:
        _strict.reset(token)


def digest_of(cls: type, params: Mapping[str, object]) -> str:
    """Hexadecimal digest of a class and its parameters."""
    return _digest_of_content([identity(cls), identity(dict(params))])


def _digest_of_content(content: list[Any]) -> str:
    return hashlib.blake2b(prompt_bytes(content), digest_size=16).hexdigest()


def is_trainable(generator: object) -> bool:
    """Whether a generator has a ``fit`` with its present parameters."""
    return callable(getattr(generator, "fit", None))


def fingerprint(generator: Any) -> str:
    """Fingerprint of any generator, by its method or its content."""
    # an estimator may hand on the method of another one, so that no protocol sees it
    has_own = callable(getattr(generator, "fingerprint", None)) and not isinstance(generator, type)
    return str(generator.fingerprint()) if has_own else description(generator)


def description(generator: object) -> str:
    """Digest of a generator's class, parameters and training."""
    training = None
    if is_trainable(generator):
        training = getattr(generator, TRAINED_ON, None) or attributes_of(generator)
    content = {"parameters": parameters_of(generator), "training": training}
    return digest_of(type(generator), content)


def record_training(generator: object, *training_data: object) -> None:
    """Note what a generator was trained on and has learnt."""
    learnt = {"given": training_data, "learnt": attributes_of(generator)}
    with suppress(AttributeError):  # an object with slots is known by its attributes
        setattr(generator, TRAINED_ON, digest_of(type(generator), learnt))


def title_of(part: Any) -> str:
    """Name of a part, or its class and first parameter."""
    if not hasattr(part, "get_params"):
        return part if isinstance(part, str) else getattr(part, "__qualname__", type(part).__name__)
    inner = getattr(part, next(iter(inspect.signature(type(part)).parameters), ""), None)
    has_title = isinstance(inner, str) or callable(inner) or hasattr(inner, "get_params")
    return type(part).__name__ + (f" of {title_of(inner)}" if has_title else "")


@runtime_checkable
class Wrapper(Protocol):
    """A score or admission around another, such as a cache."""

    @property
    def wrapped(self) -> Any:
        """What it stands for; None where it is another score."""


class Known:
    """A fingerprint that holds until a part is replaced.

    A request should not pay for all that a function encloses, nor for a vocabulary. Of what is
    changed in place, code is noticed, and what a generator's `model_version` tells. A copy or a
    pickle knows nothing.
    """

    def __init__(self) -> None:
        self._held: tuple[list[Any], str] | None = None

    def __reduce__(self) -> tuple[type["Known"], tuple[()]]:
        return type(self), ()

    def fingerprint_of(self, value: Any, take: Callable[[], str]) -> str:
        """The fingerprint of a value, which `take` takes."""
        parts = parts_of(value)
        held = self._held  # once: another thread may replace it
        if held is not None:
            held_parts, name = held
            # by identity of the parts, not equality: comparing arrays or models would cost what is
            # to be saved
            if len(held_parts) == len(parts) and all(map(operator.is_, held_parts, parts)):
                return name
        name = take()
        self._held = parts, name
        return name


class Recorded:
    """Base of caches, which a record names once."""

    known: Known | None = None

    def fingerprint(self) -> str:
        """The fingerprint as of now."""
        raise NotImplementedError

    def recorded_fingerprint(self) -> str:
        """The fingerprint; in a record, as it was at first."""
        if self.known is None:
            return self.fingerprint()
        return self.known.fingerprint_of(self, self.fingerprint)


def record_fingerprints(value: Any) -> None:
    """Let caches in a record's copy know their fingerprints."""
    for part in (value, *parts_of(value)):
        if isinstance(part, Recorded):
            part.known = Known()


def parts_of(value: Any) -> list[Any]:
    """What a generator, estimator or function holds, at any depth.

    Of functions and classes that is the code, which reloading a module may replace in place.
    """
    if isinstance(value, (list, tuple)):
        parts = list(value) if len(value) <= _MOST_PARTS else []
    elif isinstance(value, types.FunctionType):
        is_own = not _is_installed(value.__module__)
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__] if is_own else []
    elif inspect.ismethod(value):
        parts = [value.__func__]
    elif isinstance(value, functools.partial):
        parts = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, type):
        own_classes = [cls for cls in value.__mro__ if not _is_installed(cls.__module__)]
        methods = [part for cls in own_classes for part in list(vars(cls).values())]
        parts = [part for part in methods if isinstance(part, types.FunctionType)]
    elif hasattr(value, "get_params") or hasattr(value, "sample"):
        parts = [type(value), *_held_by(value)]
    else:
        parts = [type(value)] if callable(value) else []
    return [*parts, *(inner for part in parts for inner in parts_of(part))]


def _held_by(value: Any) -> list[Any]:
    """Parameters of an object, and what it has learnt."""
    parameters = parameters_of(value)
    parts = list(parameters.values()) if isinstance(parameters, dict) else [parameters]
    # at once: another thread may set its first attribute meanwhile
    attributes = list(getattr(value, "__dict__", {}).items())
    # what a user's own fingerprint reads, nobody knows
    method = getattr(type(value), "fingerprint", None)
    reads_all = method is not None and not _is_installed(getattr(method, "__module__", None))
    parts += [part for name, part in attributes if reads_all or name.endswith("_")]
    return [*parts, getattr(value, TRAINED_ON, None), getattr(value, "model_version", None)]


def score_fingerprint(score: Any) -> str:
    """Name of a score, with a digest of any user's."""
    if isinstance(score, Wrapper) and score.wrapped is not None:
        score = score.wrapped
    if isinstance(score, str):
        return score
    if callable(getattr(score, "fingerprint", None)):
        return str(score.fingerprint())
    # the other forms of a set score follow from these two
    content = [score.name, score.of_set] if isinstance(score, SetScore) else score
    name = getattr(score, "__qualname__", type(score).__qualname__)
    return f"{name}:{digest_of(type(score), {'score': content})}"


def attributes_of(value: Any) -> Any:
    """State of an object, without the record of its training."""
    state = value.__getstate__()
    if not isinstance(state, dict):
        return state  # of an object with slots
    return {name: state[name] for name in state.keys() - _INCIDENTAL}


def parameters_of(value: Any) -> Any:
    """Parameters of an object, or else all its attributes."""
    if hasattr(value, "get_params"):
        return value.get_params(deep=False)
    make = type(value).__init__
    if make is object.__init__:
        return {}
    _, *parameters = inspect.signature(make).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if all(hasattr(value, each.name) and each.kind not in variadic for each in parameters):
        return {each.name: getattr(value, each.name) for each in parameters}
    return attributes_of(value)


def identity(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Serialisable stand-in for an object, equal in every process."""
    # the type itself, no subclass: True and 1, or a text and an enumeration of texts, are different
    if value is None or type(value) in _PLAIN:
        return value
    # a list may hold itself, and a function refer to its own name
    if id(value) in above:
        return "what holds this"
    inner = functools.partial(identity, above=(*above, id(value)))

    # containers and arrays first: they are many
    is_derived = isinstance(value, _CONTAINERS) and type(value) not in _CONTAINERS
    if is_derived and not _is_installed(type(value).__module__):
        (content_of,) = [each for each in _CONTAINERS if isinstance(value, each)]
        state = attributes_of(value)
        return [_class(type(value), inner), inner(content_of(value)), inner(state)]
    if isinstance(value, (list, tuple)):
        return [inner(item) for item in value]
    if isinstance(value, (dict, types.MappingProxyType)):
        pairs = [[inner(key), inner(item)] for key, item in value.items()]
        texts = all(type(key) is str for key in value)  # vocabularies are large
        return ["dict", *sorted(pairs, key=operator.itemgetter(0) if texts else prompt_bytes)]
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted(map(inner, value), key=prompt_bytes)]
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        return ["fields", *([name, inner(value[name])] for name in value.dtype.names)]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [str(value.dtype), value]

    if isinstance(value, type):
        return _class(value, inner)

    if callable(getattr(value, "fingerprint", None)):
        return str(value.fingerprint())
    if isinstance(value, enum.Enum):
        return [inner(type(value)), value.name, inner(value.value)]

    if inspect.ismethod(value):
        return [inner(value.__self__), value.__func__.__qualname__, inner(value.__func__)]
    if isinstance(value, types.FunctionType):
        return _function(value, inner)
    if isinstance(value, functools._lru_cache_wrapper):
        return ["cached", inner(value.__wrapped__)]
    if isinstance(value, functools.partial):
        # no more than that: its own reduction tells whether anybody has asked for its __dict__
        return [inner(type(value)), inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, types.CodeType):
        return _code_digest(value)
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__]

    if callable(value) and hasattr(value, "__qualname__"):  # of C
        owner = getattr(value, "__self__", None)
        held = None if isinstance(owner, types.ModuleType) else inner(owner)
        module = getattr(value, "__module__", None) or "builtins"
        return [f"{module}.{value.__qualname__}", held]
    return _object(value, inner)


def _object(value: Any, inner: _Inner) -> Any:
    """Class and content of an object."""
    if isinstance(value, _RANDOM):
        return inner(type(value))  # its state is another one after each use
    if (of_torch := _of_torch(value, inner)) is not None:
        return of_torch
    tokenizers = sys.modules.get("transformers.tokenization_utils_base")
    if tokenizers is not None and isinstance(value, tokenizers.PreTrainedTokenizerBase):
        # what scores of texts that are too long depend on
        return [tokenizer_state(value), value.truncation_side, str(value.model_max_length)]

    if hasattr(value, "get_params"):
        params = value.get_params(deep=False)
        learnt = attributes_of(value)
        learnt = {name: learnt[name] for name in learnt.keys() - params.keys()}
        return [inner(type(value)), inner(params), inner(learnt)]
    if not _is_installed(type(value).__module__):
        return [inner(type(value)), inner(parameters_of(value))]

    # of an installed class: its version names its code, and what it reduces to names its state
    name = _full_name(type(value).__module__, type(value).__qualname__)
    neighbors = sys.modules.get("sklearn.neighbors")
    if neighbors is not None and isinstance(value, (neighbors.KDTree, neighbors.BallTree)):
        return [name, inner(np.asarray(value.data))]  # its state counts its uses

    try:
        if isinstance(value, Iterator):
            raise TypeError("an iterator is another one after each use")
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            return [name, reduced]
        function, args, state, items, pairs = (*reduced, None, None, None)[:5]
        parts = [function, args, state, list(items or ()), list(pairs or ())]
        return [name, *map(inner, parts)]
    except UnidentifiedError:
        raise
    except Exception as error:  # of foreign code, which may raise anything
        if _strict.get():
            raise UnidentifiedError(
                f"{value!r:.80} has no parameters or plain values that identify it; what uses it "
                "needs a key= in their place."
            ) from error
        return name


def _of_torch(value: Any, inner: _Inner) -> Any:
    """Numbers of a tensor or module; None for all else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, (torch.Tensor, torch.nn.Module)):
        return None
    if isinstance(value, torch.nn.Module):
        return [inner(type(value)), repr(value), inner(dict(value.state_dict()))]
    if value.layout != torch.strided or value.is_meta:
        return None
    tensor = value.detach().cpu()
    # NumPy lacks some types, such as bfloat16
    array = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    return ["tensor", str(value.dtype), array]


def tokenizer_state(tokenizer: Any) -> str:
    """All that encoding and decoding depend on, as text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        # these change as the tokenizer is used
        state.pop("padding", None)
        state.pop("truncation", None)
        core = json.dumps(state, sort_keys=True)
    else:
        core = repr((sorted(tokenizer.get_vocab().items()), tokenizer.tokenize(_TRIED_TEXT)))
    special, template, clean = _texts_of(tokenizer)
    return repr((type(tokenizer).__name__, core, special, template, clean))


def tokenizer_options(tokenizer: Any) -> list[Any]:
    """What costs little to look at of a tokenizer's state."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    steps = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    return [*_texts_of(tokenizer), *(repr(getattr(backend, step, None)) for step in steps)]


def _texts_of(tokenizer: Any) -> tuple[list[tuple[str, str]], Any, Any]:
    special = sorted((name, str(token)) for name, token in tokenizer.special_tokens_map.items())
    clean = getattr(tokenizer, "clean_up_tokenization_spaces", None)
    return special, tokenizer.chat_template, clean


# --- code -----------------------------------------------------------------------------------------


def _function(function: types.FunctionType, inner: _Inner) -> list[Any]:
    """Identity of a function: its code, defaults and enclosed variables.

    The module is left out of the user's own: what a script defines, a service imports.
    """
    code, name = function.__code__, function.__qualname__
    cells = inner(dict(zip(code.co_freevars, map(_cell_content, function.__closure__ or ()))))
    # where it was written, which a decorator's `wraps` does not change
    module = function.__globals__.get("__name__")
    if _is_installed(module) and "<lambda>" not in code.co_qualname:
        return [_full_name(module, code.co_qualname), name, cells]
    defaults = [inner(function.__defaults__), inner(function.__kwdefaults__)]
    return [name, cells, _code_digest(code), *defaults]


def _cell_content(cell: Any) -> Any:
    """What a variable that a function encloses holds."""
    try:
        return cell.cell_contents
    except ValueError:  # of a name that is defined further down
        return "empty"


def _class(cls: type, inner: _Inner) -> Any:
    """Identity of a class: name, functions and plain attributes."""
    name = cls.__qualname__
    if _is_installed(cls.__module__):
        return _full_name(cls.__module__, name)
    # sorted, since the order in which they are defined makes no difference
    methods = []
    for each, value in sorted(vars(cls).items()):
        of_method = _method(cls, value, inner)
        if of_method is not None:
            methods.append([each, of_method])
    return [name, methods, _attributes(cls, inner), *map(inner, cls.__bases__)]


def _method(cls: type, value: Any, inner: _Inner) -> Any:
    """Identity of a method, or of a class within one.

    It is None for plain attributes, and for methods that a library wrote.
    """
    if isinstance(value, types.FunctionType):
        return None if _is_written_by_library(cls, value) else inner(value)
    if isinstance(value, property):
        return inner([value.fget, value.fset, value.fdel])
    if isinstance(value, functools.cached_property):
        return inner(value.func)
    if isinstance(value, functools.partialmethod):
        return inner([value.func, value.args, value.keywords])
    if isinstance(value, functools.singledispatchmethod):
        return inner([value.func, value.dispatcher.registry])
    if isinstance(value, type) and value.__qualname__.startswith(f"{cls.__qualname__}."):
        return inner(value)
    # a static method, or a class method, wraps its function
    return inner(value.__wrapped__) if hasattr(value, "__wrapped__") else None


def _is_written_by_library(cls: type, function: types.FunctionType) -> bool:
    """Whether a library made a method from the class's attributes."""
    if _WRITERS.isdisjoint(vars(cls)) or not function.__name__.startswith("_"):
        return False
    innermost = inspect.unwrap(function)
    of_text = innermost.__code__.co_filename.startswith(("<string>", "<attrs"))
    of_library = of_text or _is_installed(innermost.__globals__.get("__name__"))
    return of_library and function.__name__ != "__call__"


def _is_value(value: Any) -> bool:
    """Whether a value is of numbers, texts and functions alone.

    What cannot grow may also hold classes and the user's own objects.
    """
    if isinstance(value, (dict, types.MappingProxyType)):
        return all(map(_is_value, value)) and all(map(_is_value, value.values()))
    if isinstance(value, (list, set, deque)):
        return all(map(_is_value, value))
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_told, value))
    if isinstance(value, functools.partial):
        return all(map(_is_told, [value.func, *value.args, *value.keywords.values()]))
    if isinstance(value, types.MethodType):
        return _is_told(value.__self__)
    if isinstance(value, types.SimpleNamespace):
        return _is_value(vars(value))
    if isinstance(value, np.ndarray):
        return value.dtype != object
    return value is None or type(value) in _PLAIN or isinstance(value, (*_VALUES, *_FUNCTIONS))


def _is_told(value: Any) -> bool:
    """Whether it is a class, the user's own, or plain."""
    is_own = not _is_installed(type(value).__module__)
    return is_own or isinstance(value, type) or _is_value(value)


def _says_what_a_class_does(cls: type, value: Any) -> bool:
    """Whether an attribute, no method, tells what a class does.

    Clients, locks and what else packages make may be another one in each process, and so may lists
    of objects, in which a class notes what was made of it.
    """
    # a member of the class itself is told by it, as those of enumerations are
    if isinstance(value, (type, types.FunctionType, cls)):
        return False
    return _is_told(value)


# what a class or a code was when it was first asked: a class may count its uses in an attribute
_digests: WeakKeyDictionary[type | types.CodeType, str] = WeakKeyDictionary()


def _attributes(cls: type, inner: _Inner) -> str:
    """Digest of a class's attributes that are no methods."""
    digest = _digests.get(cls)
    if digest is None:
        of_python = {name for name in vars(cls) if name.startswith("_") and name.endswith("_")}
        values = {name: vars(cls)[name] for name in sorted(vars(cls).keys() - of_python)}
        # a lock in an object is no reason to refuse its class
        token = _strict.set(False)
        try:
            telling = [
                [name, inner(value)]
                for name, value in values.items()
                if _says_what_a_class_does(cls, value)
            ]
        finally:
            _strict.reset(token)
        names_of_types = [
            [name, each.__name__] for name, each in values.items() if isinstance(each, type)
        ]
        digest = _digests[cls] = _digest_of_content([telling, names_of_types])
    return digest


def _code_digest(code: types.CodeType) -> str:
    """Digest of this code's source, or of its byte code."""
    digest = _digests.get(code)
    if digest is None:
        digest = _digests[code] = _digest_of_content(tree_of(code) or _instructions(code))
    return digest


def _instructions(code: types.CodeType) -> list[Any]:
    """What a code does, where its source is not known."""
    names = [list(code.co_names), list(code.co_varnames)]
    return [code.co_code, code.co_exceptiontable, names, identity(code.co_consts)]


def _full_name(module: str | None, qualified_name: str) -> str:
    """Where a class or function of an installed package stands."""
    package, *rest = str(module).split(".")
    if package != __name__.partition(".")[0]:
        return f"{module}.{qualified_name}"
    # Ours: only the package that users import from. A module within it may move, and files that
    # were saved before must still agree.
    public = [name for name in rest[:1] if not name.startswith("_")]
    return ".".join([package, *public, qualified_name])


@functools.lru_cache(maxsize=1024)
def _is_installed(module: str | None) -> bool:
    """Whether a module belongs to Python or an installed package."""
    # the user's own code is told by its content: it changes from one run to the next under one name
    root = (module or "__main__").partition(".")[0]
    if root == "__main__":
        return False
    if root in sys.stdlib_module_names or root == __name__.partition(".")[0]:
        return True
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError, AttributeError):
        return False
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any("site-packages" in place or "dist-packages" in place for place in places)


# --- copies ---------------------------------------------------------------------------------------


def frozen(value: Any) -> Any:
    """A copy that later changes of parameters do not reach.

    What a classifier has learnt is copied as well. What other estimators hold open is shared, and
    so are models, functions and all objects of other kinds.
    """
    return _copied(value, _frozen_estimator)


def cloned(value: Any) -> Any:
    """A clone of an estimator, a copied container, or itself."""
    return _copied(value, clone)


def _copied(value: Any, copy_estimator: _Inner) -> Any:
    inner = functools.partial(_copied, copy_estimator=copy_estimator)
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(inner, value))
    if type(value) is dict:
        return {key: inner(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return value
    return copy_estimator(value)


def _frozen_estimator(value: Any) -> Any:
    # not by `copy`, which would leave behind what a pickle leaves behind, such as a loaded model
    copied = object.__new__(type(value))
    copied.__dict__.update(vars(value))
    names = vars(value) if hasattr(value, "predict_proba") else value.get_params(deep=False)
    copied.__dict__.update({name: frozen(getattr(value, name)) for name in names})
    if isinstance(copied, Recorded):
        copied.known = Known()
    return copied
