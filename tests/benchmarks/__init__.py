"""Benchmarks: each row is a ratio of two times measured in the same run."""

import json
import os
import subprocess
import sys
from typing import NamedTuple

__all__ = ["Row", "measured_apart"]


class Row(NamedTuple):
    """One line of the table."""

    what: str
    reference: str
    ours: str
    ratio: float


def measured_apart(module: str, argument: str) -> dict[str, float]:
    """What a module of this folder prints as JSON, run in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", module, argument]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(run.stdout)
