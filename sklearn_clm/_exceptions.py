"""Warnings and errors of the package."""

import functools
import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Sized
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any, ParamSpec

DECIDE_BEFOREHAND = (
    "Decide the level and the amount of data beforehand: trying until a calibration succeeds "
    "voids the guarantee (to look m times, take level delta / m each time)."
)
_LEVELS = (
    " (epsilon is the level of a sampler, alpha that of a selector, an AnswerPolicy or a RunGate)"
)
# packages whose frames stand between a call of the user's and a warning
_NOT_THE_USERS = {"sklearn_clm", "sklearn", "joblib"}
_Parameters = ParamSpec("_Parameters")


class NullCalibrationWarning(UserWarning):
    """Nothing could be certified: what is returned carries no guarantee.

    Examples
    --------
    >>> import warnings
    >>> from sklearn_clm import NullCalibrationWarning
    >>> warnings.simplefilter("error", NullCalibrationWarning)  # stop at the first null
    >>> warnings.simplefilter("default", NullCalibrationWarning)
    """


class NullCalibrationError(ValueError):
    """Raised in place of :class:`NullCalibrationWarning` where ``on_null="raise"``."""


def optional_module(name: str, extra: str, user: str) -> ModuleType:
    """A module of an optional package; errors name its extra."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{user} needs {package}: pip install 'sklearn-clm[{extra}]'.") from error


def naming_parameters(init: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
    """An ``__init__`` that says which parameters there are."""
    _, *names = parameters = inspect.signature(init).parameters
    by_place = [name for name in names if parameters[name].kind != inspect.Parameter.KEYWORD_ONLY]

    @functools.wraps(init)
    def named(*given: _Parameters.args, **params: _Parameters.kwargs) -> None:
        n_by_place = len(given) - 1
        if n_by_place > len(by_place):
            raise TypeError(
                f"parameters of {type(given[0]).__name__} must be given by name"
                f"{f', but for {by_place[0]}' if by_place else ''}, got {n_by_place} without one "
                f"instead{'; data are for fit(X, y)' if hasattr(given[0], 'predict') else ''}."
            )
        for name in params:
            if name not in names:
                level = _LEVELS if name in ("alpha", "epsilon") else ""
                raise TypeError(
                    f"parameters of {type(given[0]).__name__} must be among {', '.join(names)}, "
                    f"got {name} instead{level}."
                )
        init(*given, **params)

    return named


def check_parameters(estimator: Any, check: Callable[[], None]) -> None:
    """Check parameters; errors name classes as users import them.

    `check` is the ``_validate_params`` of scikit-learn.
    """
    from sklearn.utils._param_validation import HasMethods, InvalidParameterError

    try:
        check()
        # a class has the methods as well
        for name, constraints in estimator._parameter_constraints.items():
            value = getattr(estimator, name)
            by_methods = any(isinstance(each, HasMethods) for each in constraints)
            if by_methods and isinstance(value, type):
                raise TypeError(f"{name} must be an instance, got {described(value)} instead.")
    except InvalidParameterError as error:
        wanted, _, _ = str(error).partition(". Got ")
        name = wanted.split("'")[1]
        value = getattr(estimator, name)
        classes = [
            each for each in estimator._parameter_constraints[name] if isinstance(each, type)
        ]
        for each in classes:
            wanted = wanted.replace(f"{each.__module__}.{each.__qualname__}", _public_name(each))
        hint = ""
        are_data = isinstance(value, Sized) and not isinstance(value, (str, type))
        if name in ("sampler", "scorer") and are_data:
            hint = ": data are for fit(X, y)"
        elif name == "groups" and not isinstance(value, type):
            hint = (
                ": give the group of each prompt, or run, to fit(X, y, groups=...), or a function "
                "that computes it, as Groups(function)"
            )
        raise InvalidParameterError(f"{wanted}. Got {described(value)} instead{hint}.") from None


def described(value: object) -> str:
    """A value, or a class, as messages show it."""
    if isinstance(value, type):
        return f"the class {value.__name__} (pass an instance, {value.__name__}(...))"
    return f"{value!r:.200}"


def _public_name(cls: type) -> str:
    """The name by which a class is imported."""
    packages = cls.__module__.split(".")
    for n in range(1, len(packages)):
        package = ".".join(packages[:n])
        if getattr(sys.modules[package], cls.__name__, None) is cls:
            return f"{package}.{cls.__name__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, pointing at the line of the user's code."""
    # a warning at a line of ours would tell the user nothing, and be shown once for all calls
    warnings.warn(message, category, stacklevel=len(_callers()))


def report_null(message: str | None, on_null: str, outcome: str) -> None:
    """Warn of a null calibration and its consequence, or raise."""
    if message is None:
        return
    message = f"{message} {DECIDE_BEFOREHAND}"
    if on_null == "raise":
        raise NullCalibrationError(message)
    # logged as well: a service may not show warnings
    logging.getLogger("sklearn_clm").warning("null calibration: %s %s", message, outcome)
    warn(f"{message} {outcome}", NullCalibrationWarning)


def warn_of_supervised_steps() -> None:
    """Warn of earlier pipeline steps that learnt from the references."""
    supervised = [name for name, step in _steps_before() if _is_supervised(step)]
    if supervised:
        warn(
            f"the pipeline's steps {supervised} learn from the references that calibrate, so that "
            "the guarantee does not hold. Such steps belong to the estimator inside the generator: "
            "EstimatorGenerator(make_pipeline(step, classifier))."
        )


def _is_supervised(step: object) -> bool:
    """Whether a transformer is known to learn from references."""
    from sklearn.base import BaseEstimator
    from sklearn.feature_selection import SelectorMixin, VarianceThreshold
    from sklearn.utils import get_tags

    for name in ("steps", "transformer_list", "transformers"):  # of what holds others
        if hasattr(step, name):
            return any(_is_supervised(part) for _, part, *_ in getattr(step, name))
    if isinstance(step, SelectorMixin):
        return not isinstance(step, VarianceThreshold)
    return isinstance(step, BaseEstimator) and get_tags(step).target_tags.required


def _steps_before() -> list[tuple[str, object]]:
    """Earlier steps of the pipelines that fit in this thread."""
    running: list[object] = []
    before: list[tuple[str, object]] = []
    for frame in _callers()[2:]:  # those of this module would hold themselves
        caller = frame.f_locals.get("self")
        if caller is None or any(caller is one for one in running):
            continue
        if frame.f_globals.get("__name__") == "sklearn.pipeline" and hasattr(caller, "steps"):
            parts = [part for _, part in caller.steps]
            # a pipeline with a memory fits a copy, known by its class alone
            places = [k for k, part in enumerate(parts) if any(part is one for one in running)]
            places += [k for k, part in enumerate(parts) if type(part) in map(type, running)]
            n_earlier = places[0] if places else 0
            before = [*caller.steps[:n_earlier], *before]
        running.append(caller)
    return before


def _callers() -> list[FrameType]:
    """The frames of the callers, up to the user's code."""
    frames = [sys._getframe(1)]
    while (caller := frames[-1].f_back) is not None:
        module = str(frames[-1].f_globals.get("__name__"))
        if module.partition(".")[0] not in _NOT_THE_USERS:
            break
        frames.append(caller)
    return frames
