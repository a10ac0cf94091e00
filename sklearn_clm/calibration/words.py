"""Numbers in words, as messages, reports and tables show them."""

import math
from fractions import Fraction


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
