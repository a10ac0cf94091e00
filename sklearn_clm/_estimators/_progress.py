"""Progress: a line for each stage of a fit."""

from types import TracebackType
from typing import Any, Self


class Progress:
    """Lines of tqdm, one for each stage.

    There are none at verbose=0, outside its context, and of a stage without work. A stage may learn
    of more work as it goes on, as where few draws are judged at first.
    """

    def __init__(self, verbose: int) -> None:
        self._verbose = verbose
        self._is_shown = False
        self._lines: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._is_shown = bool(self._verbose)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_shown = False
        for line in self._lines.values():
            line.close()
        self._lines = {}

    def expect(self, stage: str, n: int, unit: str) -> None:
        """Add work to a stage."""
        if not self._is_shown or not n:
            return
        if stage in self._lines:
            self._lines[stage].total += n
            return
        # it looks for a notebook, which takes long: not before a line is shown
        from tqdm.auto import tqdm

        self._lines[stage] = tqdm(total=n, desc=f"{stage:>9}", unit=unit)

    def advance(self, stage: str, n: int = 1, **beside: object) -> None:
        """Count work that is done; show numbers beside it."""
        if stage in self._lines:
            self._lines[stage].update(n)
            self._lines[stage].set_postfix(beside, refresh=False)


QUIET = Progress(verbose=0)
