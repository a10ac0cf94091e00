"""Import of the package beside the import of what it is built on, in fresh interpreters."""

import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks import Row

__all__ = ["rows"]

_TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def rows(quick: bool = False) -> Iterator[Row]:
    """Time both imports in turn, and keep the fastest of each."""
    fastest = {"sklearn, scipy.stats": float("inf"), "sklearn_clm": float("inf")}
    for _ in range(5 if quick else 15):
        for modules in fastest:
            command = [sys.executable, "-c", _TIMED.format(modules)]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            fastest[modules] = min(fastest[modules], float(run.stdout))
    reference, ours = fastest.values()
    yield Row(
        "import sklearn_clm: our time over theirs",
        f"import sklearn, scipy.stats: {1e3 * reference:.0f} ms",
        f"{1e3 * ours:.0f} ms",
        ours / reference,
    )
