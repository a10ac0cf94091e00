"""Warnings and errors that callers may want to catch by name, and where warnings belong."""

import json
import logging
import os
import sys
import tempfile
import warnings
import weakref
from types import FrameType

MORE_PROMPTS = (
    "Decide the number of prompts beforehand: collecting more until a calibration succeeds voids "
    "its guarantee, unless m looks were planned and each has delta / m (evaluation.plan, looks=m)."
)
_NULL = "null"
_NOT_THE_USERS = {"sklearn_clm", "sklearn", "joblib", "weakref"}


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


class NullLog:
    """Calibrations of one search, in a file to which all its processes write.

    Parameters
    ----------
    n_fits : int, default=None
        How many fits there will be; the last one reports. None: the end of this object does.
    """

    def __init__(self, n_fits: int | None = None) -> None:
        handle, self.path = tempfile.mkstemp(prefix="sklearn-clm-nulls-")
        os.close(handle)
        self.n_fits = n_fits
        if n_fits is None:
            weakref.finalize(self, _report, self.path)

    def writer(self) -> "NullLog":
        """One that writes to the same file, and whose end means nothing."""
        log = object.__new__(NullLog)
        log.path, log.n_fits = self.path, self.n_fits
        return log

    def is_open(self) -> bool:
        """Whether the search goes on."""
        return os.path.exists(self.path)

    def add(self, noted: dict[str, str | None], *, ends: bool) -> bool:
        """Note what was found, by topic; whether the search still went on.

        Parameters
        ----------
        noted : dict
            Messages, None for a topic on which there is nothing to say.
        ends : bool
            Whether a calibration ends with it.
        """
        try:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return False
        with open(file, "r+", encoding="utf-8") as log:
            log.write(json.dumps([ends, noted]) + "\n")
            log.seek(0)
            n_done = sum(json.loads(line)[0] for line in log)
        if ends and n_done == self.n_fits:
            _report(self.path)
        return True


_CROSS_VALIDATIONS = [
    ("sklearn.model_selection._validation", name)
    for name in ("cross_validate", "cross_val_predict")
]


def in_search(original: object, copy: object) -> None:
    """Give a clone the log of the parameter search or cross-validation that makes it, if any."""
    known: NullLog | None = getattr(original, "_null_log", None) or _counted.get(id(original))
    for frame in _callers():
        place, own = (frame.f_globals.get("__name__"), frame.f_code.co_qualname), frame.f_locals
        if place == ("sklearn.model_selection._search", "BaseSearchCV.fit"):
            known = _owned.get(id(frame))
            if known is None or own.get("base_estimator") is None:
                # of the clone whose life is that of the search, and that all others are made of
                known = known or _new_log()
                if known is not None:
                    _owned[id(frame)] = copy.__dict__["_null_log"] = known
                return
            break
        if place in _CROSS_VALIDATIONS:
            if any(kind.__name__ == "BaseSearchCV" for kind in type(own["estimator"]).__mro__):
                return
            if known is None or not known.is_open():
                groups = own["routed_params"].splitter.split.get("groups")
                known = _new_log(own["cv"].get_n_splits(own["X"], own["y"], groups))
                if known is not None:
                    _counted[id(original)] = known
                    weakref.finalize(original, _report, known.path)  # where fits have failed
            break
    if known is not None and known.is_open():
        copy.__dict__["_null_log"] = known.writer()


def report_null(
    message: str | None,
    on_null: str,
    outcome: str = "predict returns the trivial set of all draws, without any guarantee.",
) -> None:
    """Warn of a null calibration and of what comes of it, or raise it.

    A parameter search is warned once, with the number of its null calibrations.

    Parameters
    ----------
    message : str or None
        What was found; None where the calibration is not null.
    on_null : {"warn", "raise"}
        Whether it is a warning or an error.
    outcome : str
        What follows from a null calibration.
    """
    if message is not None:
        message = f"{message} {MORE_PROMPTS}"
        if on_null == "raise":
            raise NullCalibrationError(message)
        message = f"{message} {outcome}"
    if not _logged({_NULL: message}, ends=False) and message is not None:
        logging.getLogger("sklearn_clm").warning("null calibration: %s", message)
        warn(message, NullCalibrationWarning)


def report_remarks(remarks: dict[str, str | None]) -> None:
    """Warn of what else a calibration has found, at its end.

    A parameter search is warned once of each topic, with the number of calibrations.

    Parameters
    ----------
    remarks : dict
        Messages, None for a topic on which there is nothing to say.
    """
    if not _logged(remarks, ends=True):
        for message in filter(None, remarks.values()):
            warn(message)


def _logged(noted: dict[str, str | None], *, ends: bool) -> bool:
    """Whether a search that goes on has noted this."""
    logs = (getattr(frame.f_locals.get("self"), "_null_log", None) for frame in _callers())
    return any(log is not None and log.add(noted, ends=ends) for log in logs)


def _new_log(n_fits: int | None = None) -> NullLog | None:
    """A log, or none where there is no folder for temporary files."""
    try:
        return NullLog(n_fits)
    except OSError:
        return None


def _report(path: str) -> None:
    """Say how many calibrations of a search were null, or had remarks, and remove its file."""
    try:  # one process alone
        os.rename(path, f"{path}-read")
    except FileNotFoundError:
        return
    with open(f"{path}-read", encoding="utf-8") as file:
        lines = [json.loads(line)[1] for line in file]
    os.remove(f"{path}-read")
    found: dict[str, list[str | None]] = {}
    for topic, message in (item for noted in lines for item in noted.items()):
        found.setdefault(topic, []).append(message)
    for topic, messages in found.items():
        said = [message for message in messages if message is not None]
        if not said:
            continue
        number = f"{len(said)} of the {len(messages)} calibrations of this search"
        if topic == _NULL:
            warn(
                f"{number} are null, for all prompts or for some groups; where nothing is "
                f"certified, ConformalSampler.score is -inf. The first: {said[0]}",
                NullCalibrationWarning,
            )
        else:
            warn(f"{number} warn of this; the first: {said[0]}")


# by the identity of what is cross-validated, and by that of the frame of a search
_counted: dict[int, NullLog] = {}
_owned: "weakref.WeakValueDictionary[int, NullLog]" = weakref.WeakValueDictionary()


def warn_of_supervised_steps() -> None:
    """Warn of steps before the running one that have learnt from the references that calibrate."""
    supervised = [name for name, step in pipeline_steps()[0] if _is_supervised(step)]
    if supervised:
        warn(
            f"the pipeline's steps {supervised} learn from the references before the sampler does, "
            "so that the prompts are no longer independent of the references that calibrate, and "
            "the guarantee does not hold. Such steps belong to the estimator inside the generator: "
            "EstimatorGenerator(make_pipeline(step, classifier))."
        )


def _is_supervised(step: object) -> bool:
    """Whether a transformer is known to learn from references, which tags seldom tell."""
    from sklearn.base import BaseEstimator
    from sklearn.feature_selection import SelectorMixin, VarianceThreshold
    from sklearn.utils import get_tags

    for name in ("steps", "transformer_list", "transformers"):  # of what holds others
        if hasattr(step, name):
            return any(_is_supervised(part) for _, part, *_ in getattr(step, name))
    if isinstance(step, SelectorMixin):
        return not isinstance(step, VarianceThreshold)
    return isinstance(step, BaseEstimator) and get_tags(step).target_tags.required


def pipeline_steps() -> tuple[list[tuple[str, object]], list[tuple[str, object]]]:
    """Steps before and after the running one, in the pipelines that fit in this thread."""
    running: list[object] = []
    before: list[tuple[str, object]] = []
    after: list[tuple[str, object]] = []
    for frame in _callers():
        own = frame.f_locals.get("self")
        if own is None or any(own is one for one in running):
            continue
        if frame.f_globals.get("__name__") == "sklearn.pipeline" and hasattr(own, "steps"):
            parts = [part for _, part in own.steps]
            # a pipeline with a memory fits a copy, known by its class alone
            places = [k for k, part in enumerate(parts) if any(part is one for one in running)]
            places += [k for k, part in enumerate(parts) if type(part) in map(type, running)]
            before = [*own.steps[: places[0] if places else 0], *before]
            after += own.steps[places[0] + 1 :] if places else []
        running.append(own)
    return before, after


def _frames() -> list[FrameType]:
    """The caller's frame and those above it, up to the first one of the user's code."""
    frames = [sys._getframe(1)]
    while frames[-1].f_back is not None and _package(frames[-1]) in _NOT_THE_USERS:
        frames.append(frames[-1].f_back)
    return frames


def _callers() -> list[FrameType]:
    """The same without those of this module, whose variables would hold themselves."""
    return [frame for frame in _frames() if frame.f_globals is not globals()]


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
