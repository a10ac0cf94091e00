"""Where in the user's code a warning belongs, however deep it is issued."""

import sys

__all__ = ["caller_level"]

_NOT_THE_USERS = {"sklearn_clm", "sklearn", "joblib"}


def caller_level() -> int:
    """The `stacklevel` of the first frame outside this package and scikit-learn."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None and _package(frame.f_globals) in _NOT_THE_USERS:
        frame = frame.f_back
        level += 1
    return level


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
