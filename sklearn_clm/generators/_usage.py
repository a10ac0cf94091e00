"""What a remote service was asked for, and the budget for it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["BudgetExceededError", "Usage"]


class BudgetExceededError(RuntimeError):
    """Raised before a budget of draws would be exceeded; what was drawn stays drawn.

    Examples
    --------
    >>> from sklearn_clm.generators import BudgetExceededError
    >>> issubclass(BudgetExceededError, RuntimeError)
    True
    """


class Usage:
    """Counts that threads and clones of a generator share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reserved = 0
        self.requests = 0
        self.draws = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0

    def count_response(self, body: Any) -> None:
        """Count one answered request by the ``usage`` in its body."""
        reported = body.get("usage") if isinstance(body, dict) else None
        reported = reported if isinstance(reported, dict) else {}
        with self._lock:
            self.requests += 1
            self.prompt_tokens += _count(reported.get("prompt_tokens"))
            self.completion_tokens += _count(reported.get("completion_tokens"))

    @contextmanager
    def reserve(self, n_draws: int, max_draws: int | None) -> Iterator[Callable[[], None]]:
        """Set draws aside while they are made; those that were not made are given back.

        Gives the function to call once for each draw that was made.
        """
        n_left = n_draws

        def count_draw() -> None:
            nonlocal n_left
            with self._lock:
                n_left -= 1
                self._reserved -= 1
                self.draws += 1

        with self._lock:
            taken = self.draws + self._reserved
            if max_draws is not None and taken + n_draws > max_draws:
                raise BudgetExceededError(
                    f"max_draws={max_draws}: {taken} draws are made or being made, and {n_draws} "
                    "more were asked for. None of these was requested."
                )
            self._reserved += n_draws
        try:
            yield count_draw
        finally:
            with self._lock:
                self._reserved -= n_left
                n_left = 0

    def summary(self, prices: Mapping[str, float] | None) -> dict[str, Any]:
        """The counts, and what they cost."""
        counts: dict[str, Any] = {
            "requests": self.requests,
            "draws": self.draws,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }
        if prices is not None:
            counts["cost"] = (
                prices["prompt"] * self.prompt_tokens
                + prices["completion"] * self.completion_tokens
            ) / 1e6
        return counts


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
