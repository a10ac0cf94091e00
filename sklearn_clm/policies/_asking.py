"""The judge of collected draws, as policies know it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

import numpy as np

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.scoring.protocols import Admission


@runtime_checkable
class CollectedJudge(Protocol):
    """A judge of the draws that an estimator has collected.

    It is the `judge` of a table. `labels`, of shape (n, K), are those that it has given, -1 where
    it was not asked.
    """

    labels: np.ndarray

    @property
    def of_people(self) -> bool:
        """Whether people judge, who may change their verdicts."""

    def by(self, admission: str | Admission) -> "CollectedJudge":
        """Another judge of the same draws."""

    def forget(self) -> None:
        """Mark all labels as unknown."""

    def ask(self, prompts: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Verdicts on draws, sorted by prompt."""

    def __call__(self, prompts: np.ndarray, draws: np.ndarray) -> Iterator[bool]:
        """Verdicts on single draws, as they arrive."""

    def bounding(
        self, rows: np.ndarray, may_ask: Callable[[], np.ndarray], *, also: bool = False
    ) -> AbstractContextManager[None]:
        """Add to a call for verdicts which others may follow.

        ``may_ask()`` gives the texts of the prompts at `rows` that may still be asked for, bool of
        shape (len(rows), K). `also` says that the verdicts wanted now are about other prompts.
        """


class CollectedDraws(Protocol):
    """Draws that an estimator has collected, for people who audit."""

    data: CalibrationData

    @property
    def seed(self) -> int:
        """Seed of the draws."""

    def audited_by(self, people: str | Admission) -> CollectedJudge:
        """Verdicts of people on these draws."""


def bounding(
    judge: object, rows: np.ndarray, may_ask: Callable[[], np.ndarray], *, also: bool = False
) -> AbstractContextManager[None]:
    """Add to a call for verdicts, where the judge can.

    Arguments are those of :meth:`CollectedJudge.bounding`; `judge` is any judge of a table, or
    None.
    """
    # other judges answer at once: nobody waits for a list of what may follow
    if isinstance(judge, CollectedJudge):
        return judge.bounding(rows, may_ask, also=also)
    return nullcontext()
