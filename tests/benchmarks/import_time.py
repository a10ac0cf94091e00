"""Import of the package beside the import of what it is built on, in fresh interpreters."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from . import Row

__all__ = ["rows"]

_REFERENCE = "import sklearn, scipy.stats"
_OURS = ("import sklearn_clm", "from sklearn_clm import ConformalSampler, ComponentSelector")
# processor time, which other work on the machine disturbs less than it does the clock
_TIMED = "import time; start = time.process_time(); {}; print(time.process_time() - start)"


def rows(quick: bool = False) -> Iterator[Row]:
    """Time the imports in turn, and keep the fastest of each.

    All run from compiled bytecode, as an installed package does.
    """
    fastest = dict.fromkeys((_REFERENCE, *_OURS), float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(5 if quick else 15):
            for statement in fastest:
                command = [sys.executable, "-c", _TIMED.format(statement)]
                run = subprocess.run(
                    command, capture_output=True, text=True, check=True, env=environment
                )
                fastest[statement] = min(fastest[statement], float(run.stdout))
    reference = fastest.pop(_REFERENCE)
    for statement, ours in fastest.items():
        yield Row(
            f"{statement}: our time over theirs",
            f"{_REFERENCE}: {1e3 * reference:.0f} ms",
            f"{1e3 * ours:.0f} ms",
            ours / reference,
        )
