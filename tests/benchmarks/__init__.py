"""Benchmarks: each row is a ratio of two times measured in the same run."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

__all__ = ["Row", "best_time", "measured_apart"]


class Row(NamedTuple):
    """One line of the table."""

    what: str
    reference: str
    ours: str
    ratio: float


def measured_apart(module: str, argument: int | str) -> dict[str, float]:
    """What a module of this folder measures, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = f"import json, {module} as one; print(json.dumps(one.measure({argument!r})))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(run.stdout)


def best_time(call: Callable[[], object], repeats: int = 3) -> float:
    """Seconds that the fastest of a few calls takes."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)
