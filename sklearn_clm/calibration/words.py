"""Numbers in words, as messages, reports and tables show them."""

import math
from enum import Enum
from fractions import Fraction
from typing import NamedTuple


class Bound(Enum):
    """How a number stands to that of all labels."""

    EXACT = ""
    AT_MOST = "at most "
    AT_LEAST = "at least "

    @property
    def words(self) -> str:
        """What stands before the number."""
        return self.value


class ErrorCount(NamedTuple):
    """Errors among the prompts that count."""

    n_errors: int
    n_counted: int
    bound: Bound = Bound.EXACT  # of the errors, where labels are unknown

    @property
    def words(self) -> str:
        """Both numbers in words."""
        return f"{self.bound.words}{self.n_errors} of {self.n_counted}"


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{round(100.0 * share, 4):.3g} %"


def rounded_up(level: float) -> float:
    """A level to four decimals, upwards: what is printed works."""
    # of the shortest decimal, as it is printed: level * 1e4 may be rounded to either side
    printed = Fraction(repr(float(level)))
    return math.ceil(printed * 10_000) / 10_000


def counted(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
