"""The smallest level that a test certifies, by bisection."""

from collections.abc import Callable


def smallest_level(certified: Callable[[float], bool]) -> float:
    """Smallest certified risk, rounded up to 1e-5; 1.0 without one."""
    # bisection keeps `high` certified, so that rounding never claims too much
    low = 0.0
    high = 1.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        if certified(middle):
            high = middle
        else:
            low = middle
    return high
