"""Runs: stop or hand over agents by what has been seen so far."""

from sklearn_clm.runs._gate import OpenRun, RunClaim, RunGate
from sklearn_clm.runs._levels import Level

__all__ = ["Level", "OpenRun", "RunClaim", "RunGate"]
