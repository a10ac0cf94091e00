"""Benchmarks: each row is a ratio of two times measured in the same run."""

from typing import NamedTuple

__all__ = ["Row"]


class Row(NamedTuple):
    """One line of the table."""

    what: str
    reference: str
    ours: str
    ratio: float
