"""Risks: what an error is, who counts, and words.

Whatever tests, measures or reports a loss asks its risk. A risk knows two things of a prompt: how
many members its set has, and whether the set is *right*. For the usual one a set is right where it
holds a witness, an admissible member, and every prompt counts.
"""

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

if TYPE_CHECKING:
    from sklearn_clm.calibration._path import Path

About = Literal["responses", "responses if any", "components", "answers"]


class Risk:
    """The risk of a set without an admissible response.

    Other risks change a part of it.
    """

    about: ClassVar[About] = "responses"  # its name in a claim
    level_name: ClassVar[str] = "epsilon"  # of the parameter that tolerates it
    promise: ClassVar[str] = "the set for {who} holds an admissible response"
    safest: ClassVar[str] = "taking all draws"  # what errs least
    # the label that settles a prompt, whatever the others are: of a witness that the set is right
    # (1), or that it is wrong (0)
    settled_by: ClassVar[int] = 1
    counts_all: ClassVar[bool] = True  # whether every prompt counts
    of_counted: ClassVar[str] = "that tested"  # those that count, in a report

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        """Which prompts count, by the sizes of their sets."""
        return np.ones(len(sizes), dtype=bool)

    def counted(self, path: "Path", step: int) -> np.ndarray:
        """Which prompts of a path count at a step."""
        if self.counts_all:
            return np.ones(len(path.rows), dtype=bool)
        path.finish(step)
        return self.counts(path.sizes(step))

    def right(self, accepted: np.ndarray, admissible: np.ndarray) -> np.ndarray:
        """Which sets are right; bool (n,).

        `accepted` and `admissible`, of shape (n, K), say of each draw whether it is a member of its
        prompt's set, and whether it is admissible.
        """
        return np.any(accepted & admissible, axis=1)


class MissesIfAny(Risk):
    """The risk of a non-empty set without admissible response.

    An empty set is no error: it abstains.
    """

    about: ClassVar[About] = "responses if any"
    promise: ClassVar[str] = (
        "the set for {who}, where it is not empty, holds an admissible response"
    )
    of_counted: ClassVar[str] = "sets that are not empty"
    safest: ClassVar[str] = "the safest rule"
    counts_all: ClassVar[bool] = False

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        return sizes > 0


class WrongAnswers(Risk):
    """The risk that an answer is wrong."""

    about: ClassVar[About] = "answers"
    level_name: ClassVar[str] = "alpha"
    promise: ClassVar[str] = "the answer to {who}, where one is given, is right"
    safest: ClassVar[str] = "the safest rule"
    counts_all: ClassVar[bool] = False

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        return sizes > 0


class WrongComponents(Risk):
    """The risk of a selection with an inadmissible component."""

    about: ClassVar[About] = "components"
    level_name: ClassVar[str] = "alpha"
    promise: ClassVar[str] = "all components selected for {who} are admissible"
    safest: ClassVar[str] = "the safest rule"
    settled_by: ClassVar[int] = 0

    def right(self, accepted: np.ndarray, admissible: np.ndarray) -> np.ndarray:
        return ~np.any(accepted & ~admissible, axis=1)


MISSES = Risk()

_RISKS: dict[str, type[Risk]] = {
    risk.about: risk for risk in (Risk, MissesIfAny, WrongAnswers, WrongComponents)
}


def risk_about(about: str) -> type[Risk]:
    """The kind of risk that a claim is about."""
    return _RISKS[about]
