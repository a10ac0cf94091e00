"""Warnings and errors that callers may want to catch by name, and where warnings belong."""

import sys
import warnings
from types import FrameType

__all__ = ["NullCalibrationError", "NullCalibrationWarning", "steps_before", "warn", "warn_of_null"]

_NOT_THE_USERS = {"sklearn_clm", "sklearn", "joblib"}
_nulls_of_search: dict[int, list[str]] = {}


class NullCalibrationWarning(UserWarning):
    """No configuration could be certified, so what is returned carries no guarantee.

    Issued by ``fit`` and ``calibrate`` of both estimators when Learn Then Test rejects no
    hypothesis (section 3 of the paper: lambda is then *null*).

    Examples
    --------
    >>> import warnings
    >>> from sklearn_clm import NullCalibrationWarning
    >>> warnings.simplefilter("error", NullCalibrationWarning)  # stop at the first null
    >>> warnings.simplefilter("default", NullCalibrationWarning)
    """


class NullCalibrationError(ValueError):
    """Raised in place of :class:`NullCalibrationWarning` where ``on_null="raise"``.

    Examples
    --------
    >>> from sklearn_clm import NullCalibrationError
    >>> issubclass(NullCalibrationError, ValueError)
    True
    """


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, pointing at the line of the user's code that called this package."""
    warnings.warn(message, category, stacklevel=len(_frames()))


def warn_of_null(message: str | None) -> None:
    """Warn of a null calibration, in a parameter search once, with their number.

    Parameters
    ----------
    message : str or None
        What was found; None where the calibration is not null, which may end a search.
    """
    place = _place_in_search()
    if place is None:
        if message is not None:
            warn(message, NullCalibrationWarning)
        return
    search, (position, n_fits) = place
    if position == 0:
        _nulls_of_search.pop(search, None)
    if message is not None:
        _nulls_of_search.setdefault(search, []).append(message)
    if position == n_fits - 1 and (nulls := _nulls_of_search.pop(search, [])):
        warn(
            f"{len(nulls)} of the {n_fits} calibrations of this search are null; each scores "
            f"-inf. The first: {nulls[0]}",
            NullCalibrationWarning,
        )


def steps_before() -> list[tuple[str, object]]:
    """Steps before the running one, in the pipelines that fit in this thread."""
    running: list[object] = []
    before: list[tuple[str, object]] = []
    for frame in _frames():
        own = frame.f_locals.get("self")
        if own is None or any(own is one for one in running):
            continue
        if frame.f_globals.get("__name__") == "sklearn.pipeline" and hasattr(own, "steps"):
            parts = [part for _, part in own.steps]
            # a pipeline with a memory fits a copy, known by its class alone
            places = [k for k, part in enumerate(parts) if any(part is one for one in running)]
            places += [k for k, part in enumerate(parts) if type(part) in map(type, running)]
            before = [*own.steps[: places[0] if places else 0], *before]
        running.append(own)
    return before


def _frames() -> list[FrameType]:
    """The caller's frame and those above it, up to the first one of the user's code."""
    frames = [sys._getframe(1)]
    while frames[-1].f_back is not None and _package(frames[-1]) in _NOT_THE_USERS:
        frames.append(frames[-1].f_back)
    return frames


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _place_in_search() -> tuple[int, tuple[int, int]] | None:
    """Identity of the parameter search in this thread, the position of the fit, their number.

    None outside of a search, and in the workers of one.
    """
    progress: list[tuple[int, int]] = []
    for frame in _frames():
        place = frame.f_globals.get("__name__"), frame.f_code.co_name
        if place == ("sklearn.model_selection._validation", "_fit_and_score"):
            names = ("candidate_progress", "split_progress")
            progress = [frame.f_locals[name] for name in names if frame.f_locals.get(name)]
        elif place == ("sklearn.model_selection._search", "fit") and len(progress) == 2:
            (candidate, n_candidates), (split, n_splits) = progress
            return id(frame), (candidate * n_splits + split, n_candidates * n_splits)
    return None
