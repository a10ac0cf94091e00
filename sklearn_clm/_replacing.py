"""Files that are there whole or not at all."""

import contextlib
import os
from collections.abc import Iterator

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Name of a file to write, which takes the place of the one at `path` once it is complete."""
    target = os.path.abspath(os.fspath(path))
    unfinished = f"{target}.{os.getpid()}.partial"
    try:
        yield unfinished
        os.replace(unfinished, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
