"""Risks: what an error is, who counts, and words.

Whatever tests, measures or reports a loss asks its risk. A risk knows two things of a prompt: how
many members its set has, and whether the set is *right*. For the usual one a set is right where it
holds a witness, an admissible member, and every prompt counts. Tests know by `settled_by` what is
right, since labels may lack, and reports by `right`: the two must say the same.
"""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

if TYPE_CHECKING:
    from sklearn_clm.calibration.path import Path

About = Literal[
    "responses",
    "responses if any",
    "cost",
    "components",
    "answers",
    "runs that succeed",
    "runs that pass",
]


class Risk:
    """The risk of a set without an admissible response.

    Other risks change a part of it.
    """

    about: ClassVar[About] = "responses"  # its name in a claim
    level_name: ClassVar[str] = "epsilon"  # of the parameter that tolerates it
    promise: str = "the set for {who} holds an admissible response"
    how_much: ClassVar[str] = "with probability at least {share}"  # `share` is 1 - level
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
    mean_error: ClassVar[str] = "error"  # what the share of errors is, in a report
    held: ClassVar[str] = "held"  # what one minus that share is
    has_band: ClassVar[bool] = True  # whether the band of epsilon (Appendix C) is about it
    condition: ClassVar[str] = ""  # what has to be said beside the promise

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        """Which prompts count, by the sizes of their sets."""
        return np.ones(len(sizes), dtype=bool)

    def counts_at(self, path: "Path", step: int) -> np.ndarray:
        """Which prompts of a path count at a step."""
        if self.counts_all:
            return np.ones(len(path.rows), dtype=bool)
        path.finish(step)
        # a set that is still empty where draws end early may not stay so
        return self.counts(path.sizes(step)) | path.unfinished(step)

    def costs_of(self, prompts: Sequence[object]) -> np.ndarray | None:
        """What an error for each prompt costs; None: 1."""
        return None

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
    has_band: ClassVar[bool] = False

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        return sizes > 0


class CostOfMisses(Risk):
    """The expected cost of a set without an admissible response.

    ``cost(prompt)``, in [0, 1], is what a miss costs. A prompt is *at stake* with the probability
    of its cost, by a coin that its digest throws, and a miss is an error where the prompt is at
    stake. Errors are then independent, and each has the expected cost for its probability, so that
    the exact binomial test holds as it is. Sums of costs are known to measures alone.
    """

    about: ClassVar[About] = "cost"
    promise: str = "the expected cost of a set for {who} that holds no admissible response"
    how_much: ClassVar[str] = "is at most {level}"
    mean_error: ClassVar[str] = "cost of misses"
    held: ClassVar[str] = "held, by cost"
    has_band: ClassVar[bool] = False
    condition: ClassVar[str] = (
        "A calibration prompt without an admissible response counts as an error with the "
        "probability of its cost."
    )

    def __init__(self, cost: Callable[[object], float] | None = None) -> None:
        self.cost = cost

    def costs_of(self, prompts: Sequence[object]) -> np.ndarray:
        if self.cost is None:
            raise ValueError(
                "sets must know the sampler that made them where a miss has a cost (a pickle "
                "leaves it behind)."
            )
        costs = [self.cost(prompt) for prompt in prompts]
        for position, cost in enumerate(costs):
            if not isinstance(cost, Real) or not 0.0 <= float(cost) <= 1.0:
                raise ValueError(
                    f"cost must return a number in [0, 1], got {cost!r:.40} for prompt {position} "
                    "instead."
                )
        return np.array(costs, dtype=np.float64)


class WrongAnswers(Risk):
    """The risk that an answer is wrong."""

    about: ClassVar[About] = "answers"
    level_name: ClassVar[str] = "alpha"
    promise: str = "the answer to {who}, where one is given, is right"
    safest: ClassVar[str] = "the safest rule"
    counts_all: ClassVar[bool] = False
    has_band: ClassVar[bool] = False

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
    has_band: ClassVar[bool] = False
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
    has_band: ClassVar[bool] = False


class PassedFailures(StoppedSuccesses):
    """The risk that a run fails which is let through."""

    about: ClassVar[About] = "runs that pass"
    promise: str = "{who} that is let through to its end succeeds"
    null: ClassVar[str] = (
        "No level could be certified{of}, so {each} is handed over after its first step."
    )
    tested_on: ClassVar[str] = "calibration runs"


MISSES = Risk()

_RISKS: dict[str, type[Risk]] = {
    risk.about: risk
    for risk in (
        Risk,
        MissesIfAny,
        CostOfMisses,
        WrongAnswers,
        WrongComponents,
        StoppedSuccesses,
        PassedFailures,
    )
}


def risk_about(about: str) -> type[Risk]:
    """The kind of risk that a claim is about."""
    return _RISKS[about]


def check_right(risk: Risk) -> None:
    """Refuse a risk that one label does not settle.

    Tests by thresholds, levels and labels that lack know of no other.
    """
    if risk.settled_by == 1 and type(risk).right is not Risk.right:
        raise TypeError(
            f"{type(risk).__name__} changes what is right. A set with one admissible response is "
            "right for this test or measure: a path with a `tally` of its own tests other risks."
        )


def check_counts(risk: Risk, k_max: int) -> None:
    """Refuse a risk of which other prompts count.

    All may count, or those whose set is not empty: who does not count must settle nothing.
    """
    sizes = np.arange(k_max + 1)
    if not risk.counts_all and not np.array_equal(risk.counts(sizes), sizes > 0):
        raise TypeError(
            f"{type(risk).__name__}.counts must say that all sets count, or all that are not "
            "empty, where thresholds are tested, or labels or draws are missing."
        )
