"""Risks: what an error is, who counts, and words.

Whatever tests, measures or reports a loss asks its risk. A risk knows two things of a prompt: how
many members its set has, and whether the set is *right*. For the usual one a set is right where it
holds a witness, an admissible member, and every prompt counts.
"""

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

if TYPE_CHECKING:
    from sklearn_clm.calibration._path import Path

About = Literal[
    "responses", "responses if any", "components", "answers", "runs that succeed", "runs that pass"
]


class Risk:
    """The risk of a set without an admissible response.

    Other risks change a part of it.
    """

    about: ClassVar[About] = "responses"  # its name in a claim
    level_name: ClassVar[str] = "epsilon"  # of the parameter that tolerates it
    promise: str = "the set for {who} holds an admissible response"
    null: ClassVar[str] = (  # in place of the promise, where nothing is certified
        "None. Nothing could be certified{of}, so predict returns all draws for {each}, "
        "without any guarantee."
    )
    unit: ClassVar[str] = "prompt"  # what is new, and errs or not
    tested_on: ClassVar[str] = "calibration prompts"
    scope: ClassVar[str] = "the generator, scores and admission"  # what may not change
    safest: ClassVar[str] = "taking all draws"  # what errs least
    # the label that settles a prompt, whatever the others are: of a witness that the set is right
    # (1), or that it is wrong (0)
    settled_by: ClassVar[int] = 1
    counts_all: ClassVar[bool] = True  # whether every prompt counts
    of_counted: ClassVar[str] = "that tested"  # those that count, in a report
    max_wrong: int = 0  # members that may be wrong, where each one counts

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        """Which prompts count, by the sizes of their sets."""
        return np.ones(len(sizes), dtype=bool)

    def counted(self, path: "Path", step: int) -> np.ndarray:
        """Which prompts of a path count at a step."""
        if self.counts_all:
            return np.ones(len(path.rows), dtype=bool)
        path.finish(step)
        # a set that is still empty where draws end early may not stay so
        return self.counts(path.sizes(step)) | path.unfinished(step)

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
    promise: str = "the set for {who}, where it is not empty, holds an admissible response"
    of_counted: ClassVar[str] = "sets that are not empty"
    safest: ClassVar[str] = "the safest rule"
    counts_all: ClassVar[bool] = False

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        return sizes > 0


class WrongAnswers(Risk):
    """The risk that an answer is wrong."""

    about: ClassVar[About] = "answers"
    level_name: ClassVar[str] = "alpha"
    promise: str = "the answer to {who}, where one is given, is right"
    safest: ClassVar[str] = "the safest rule"
    counts_all: ClassVar[bool] = False

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        return sizes > 0


class WrongComponents(Risk):
    """The risk of a selection with an inadmissible component.

    Up to `max_wrong` of them are no error.
    """

    about: ClassVar[About] = "components"
    level_name: ClassVar[str] = "alpha"
    promise: str = "all components selected for {who} are admissible"
    null: ClassVar[str] = (
        "No threshold could be certified{of}, so every selection is empty: an empty "
        "selection holds no wrong component."
    )
    safest: ClassVar[str] = "the safest rule"
    settled_by: ClassVar[int] = 0

    def __init__(self, max_wrong: int = 0) -> None:
        self.max_wrong = max_wrong
        if max_wrong:
            wrong = f"at most {max_wrong} of the components selected for {{who}}"
            self.promise = f"{wrong} {'is' if max_wrong == 1 else 'are'} inadmissible"

    def right(self, accepted: np.ndarray, admissible: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum(accepted & ~admissible, axis=1) <= self.max_wrong)


class StoppedSuccesses(Risk):
    """The risk that a run is stopped which would succeed."""

    about: ClassVar[About] = "runs that succeed"
    level_name: ClassVar[str] = "alpha"
    promise: str = "{who} that would succeed is not stopped"
    null: ClassVar[str] = (
        "No level could be certified{of}, so {each} goes on to its end, which keeps the promise."
    )
    unit: ClassVar[str] = "run"
    tested_on: ClassVar[str] = "calibration runs that succeed"
    scope: ClassVar[str] = "the agent, tools, tasks and scores"


class PassedFailures(StoppedSuccesses):
    """The risk that a run fails which is let through."""

    about: ClassVar[About] = "runs that pass"
    promise: str = "{who} that is let through to its end succeeds"
    null: ClassVar[str] = (
        "No level could be certified{of}, so {each} is handed over after its first step."
    )
    tested_on: ClassVar[str] = "calibration runs"


MISSES = Risk()

_OTHERS = (MissesIfAny, WrongAnswers, WrongComponents, StoppedSuccesses, PassedFailures)
_RISKS: dict[str, type[Risk]] = {risk.about: risk for risk in (Risk, *_OTHERS)}


def risk_about(about: str) -> type[Risk]:
    """The kind of risk that a claim is about."""
    return _RISKS[about]
