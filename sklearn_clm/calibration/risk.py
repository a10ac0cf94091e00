"""Risks: what an error is, who counts, and words.

Whatever tests, measures or reports a loss asks its risk, and never which class it is.

*What is an error.* The labels of few members settle a set, whatever the others are: `n_settling`
members of the label `settled_by`. Where that label is 1 they are witnesses, and the set is right
(the usual risk: one admissible member is enough); where it is 0 the set is wrong (components: one
inadmissible member is too many). Tests need such a rule, since labels may be unknown, and reports
and metrics use the same one.

*Who counts* is told by the sizes of the sets, which are known without labels: given the number of
sets that count their errors are binomial. *What an error costs* is told by the prompt.
"""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar, Self, final

import numpy as np


class Risk:
    """What is an error, who counts, and words.

    A risk is a subclass, which says what differs from the usual one, :class:`Misses`.
    """

    about: ClassVar[str]  # its name in a claim, by which it is found again
    promise: str  # of a set, "for {who}"
    level_name: ClassVar[str] = "epsilon"  # of the parameter that tolerates it
    how_much: ClassVar[str] = "with probability at least {share}"  # `share` is 1 - level
    null: ClassVar[str] = (  # in place of the promise, where nothing is certified
        "Nothing could be certified{of}, so predict returns all draws for {each}, without any "
        "guarantee."
    )
    unit: ClassVar[str] = "prompt"  # what is new, and errs or not
    tested_on: ClassVar[str] = "calibration prompts"
    scope: ClassVar[str] = "the generator, scores and admission"  # what may not change
    settled_by: ClassVar[int] = 1  # label of the members that settle a set: right by 1, wrong by 0
    n_settling: int = 1  # how many of them it takes
    counts_all: ClassVar[bool] = True  # whether every prompt counts
    of_counted: ClassVar[str] = "that tested"  # those that count, in a report
    has_costs: ClassVar[bool] = False  # whether an error costs what `costs_of` says
    case: ClassVar[str] = ""  # when it is the risk, for a message: "where ..."
    mean_error: ClassVar[str] = "error"  # what the share of errors is, in a report
    held: ClassVar[str] = "held"  # what one minus that share is
    has_band: ClassVar[bool] = False  # whether the band of epsilon (Appendix C) is about it
    condition: ClassVar[str] = ""  # what has to be said beside the promise
    given: ClassVar[str] = "set"  # what a prompt is given
    kept: ClassVar[str] = "coverage"  # what one minus the level is
    calibrated: ClassVar[str] = "Calibration"  # what is null where nothing is certified
    escalates: ClassVar[bool] = False  # whether an empty set hands its prompt on
    answered: ClassVar[str] = "counted"  # what a prompt is whose set is not empty
    unanswered: ClassVar[str] = "empty"  # and one whose set is
    _kinds: ClassVar[dict[str, type["Risk"]]] = {}  # by name; of equal names the latest

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "about" not in vars(cls):
            raise TypeError(
                f"{cls.__name__} must have a name `about` of its own, got none instead."
            )
        # tests ask the flags: other prompts, or costs, would be measured, and not be tested
        if cls.counts is not Risk.counts and cls.counts_all:
            raise TypeError(
                f"{cls.__name__} must have counts_all = False, since its `counts` says who counts, "
                "got True instead."
            )
        if cls.costs_of is not Risk.costs_of and not cls.has_costs:
            raise TypeError(
                f"{cls.__name__} must have has_costs = True, since its `costs_of` says what errors "
                "cost, got False instead."
            )
        # tests go by labels that settle: another `right` would be measured, and not be tested
        for name in ("right", "errs"):
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__} must say by settled_by and n_settling what is right, got a "
                    f"method {name!r} of its own instead."
                )
        Risk._kinds[cls.about] = cls

    @classmethod
    def of_claim(cls, max_wrong: int) -> Self:
        """The risk of a claim, which may tolerate wrong members."""
        return cls()

    @property
    def where(self) -> str:
        """In which case it is the risk, in a message."""
        case = self.case or f"the risk is {type(self).__name__}"
        return f"where {case}"

    @property
    def nothing_given(self) -> str:
        """What a prompt is given whose set is empty."""
        return f"no {self.given}" if self.escalates else f"an empty {self.given}"

    def has_name_of(self, other: "Risk") -> bool:
        """Whether claims about another are about this one."""
        return self.about == other.about

    @property
    def one_witness_decides(self) -> bool:
        """Whether one admissible member makes a set right."""
        return self.settled_by == 1 and self.n_settling == 1

    @property
    def all_draws_err_least(self) -> bool:
        """Whether the set of all draws errs least."""
        return self.counts_all and self.settled_by == 1

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        """Which prompts count, by the sizes of their sets."""
        return np.ones(len(sizes), dtype=bool)

    def costs_of(self, prompts: Sequence[object]) -> np.ndarray:
        """What an error for each prompt costs, in [0, 1]."""
        return np.ones(len(prompts))

    @final
    def errs(self, n_of_label: np.ndarray) -> np.ndarray:
        """Which sets err, by their members of the label `settled_by`."""
        is_settled = n_of_label >= self.n_settling
        return ~is_settled if self.settled_by == 1 else is_settled

    @final
    def right(self, shown: np.ndarray, admissible: np.ndarray) -> np.ndarray:
        """Which sets are right; bool (n,).

        `shown` and `admissible`, of shape (n, K), say of each draw whether it is a member of its
        prompt's set, which holds each text once, and whether it is admissible.
        """
        has_label = admissible if self.settled_by == 1 else ~admissible
        return ~self.errs(np.sum(shown & has_label, axis=1))


class Misses(Risk):
    """The risk of a set without an admissible response."""

    about: ClassVar[str] = "responses"
    promise: str = "the set for {who} holds an admissible response"
    has_band: ClassVar[bool] = True


class MissesIfAny(Risk):
    """The risk of a non-empty set without admissible response.

    An empty set is no error: it abstains.
    """

    about: ClassVar[str] = "responses if any"
    case: ClassVar[str] = "thresholds may abstain"
    promise: str = "the set for {who}, where it is not empty, holds an admissible response"
    of_counted: ClassVar[str] = "sets that are not empty"
    counts_all: ClassVar[bool] = False

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        return sizes > 0


class CostOfMisses(Risk):
    """The expected cost of a set without an admissible response.

    ``cost(prompt)``, in [0, 1], is what a miss costs. A prompt is *at stake* with the probability
    of its cost, by a coin that its digest throws, one for each copy, and a miss is an error where
    the prompt is at stake. Errors are then independent, and each has the expected cost for its
    probability, so that the exact binomial test holds as it is. Sums of costs are known to measures
    alone.
    """

    about: ClassVar[str] = "cost"
    case: ClassVar[str] = "a miss has a cost"
    has_costs: ClassVar[bool] = True
    promise: str = "the expected cost of a set for {who} that holds no admissible response"
    how_much: ClassVar[str] = "is at most {level}"
    mean_error: ClassVar[str] = "cost of misses"
    held: ClassVar[str] = "held, by cost"
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

    about: ClassVar[str] = "answers"
    level_name: ClassVar[str] = "alpha"
    promise: str = "the answer to {who}, where one is given, is right"
    null: ClassVar[str] = (
        "Nothing could be certified{of}, so predict escalates {each}, with all draws and without "
        "any guarantee."
    )
    escalates: ClassVar[bool] = True
    given: ClassVar[str] = "answer"
    kept: ClassVar[str] = "right answers"
    answered: ClassVar[str] = "answered"
    unanswered: ClassVar[str] = "escalated"
    counts_all: ClassVar[bool] = False

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        return sizes > 0


class WrongComponents(Risk):
    """The risk of a selection with an inadmissible component.

    Up to `max_wrong` of them are no error.
    """

    about: ClassVar[str] = "components"
    level_name: ClassVar[str] = "alpha"
    promise: str = "all components selected for {who} are admissible"
    null: ClassVar[str] = (
        "No threshold could be certified{of}, so every selection is empty: an empty "
        "selection holds no wrong component."
    )
    given: ClassVar[str] = "selection"
    calibrated: ClassVar[str] = "Calibration of components"
    settled_by: ClassVar[int] = 0

    def __init__(self, max_wrong: int = 0) -> None:
        self.n_settling = max_wrong + 1
        if max_wrong:
            wrong = f"at most {max_wrong} of the components selected for {{who}}"
            self.promise = f"{wrong} {'is' if max_wrong == 1 else 'are'} inadmissible"

    @classmethod
    def of_claim(cls, max_wrong: int) -> Self:
        return cls(max_wrong)


class StoppedSuccesses(Risk):
    """The risk that a run is stopped which would succeed."""

    about: ClassVar[str] = "runs that succeed"
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

    about: ClassVar[str] = "runs that pass"
    promise: str = "{who} that is let through to its end succeeds"
    null: ClassVar[str] = (
        "No level could be certified{of}, so {each} is handed over after its first step."
    )
    tested_on: ClassVar[str] = "calibration runs"


MISSES = Misses()


def risk_about(about: str) -> type[Risk]:
    """The kind of risk that a claim is about."""
    # those of users, too
    kinds = Risk._kinds
    if about not in kinds:
        raise ValueError(f"about must be one of {sorted(kinds)}, got {about!r:.80} instead.")
    return kinds[about]


def check_found_again(risk: Risk) -> None:
    """Refuse a risk that a claim would take for another.

    A claim makes its risk anew, by name alone, and would promise what was not tested.
    """
    of_claim = risk_about(risk.about)()
    is_same = of_claim.n_settling == risk.n_settling
    if not is_same or of_claim.promise != risk.promise:
        raise TypeError(
            "policy must have a risk that is the same if made without arguments, got one of "
            f"{type(risk).__name__} that is not (another number is a class of its own) instead."
        )


def check_counts(risk: Risk, k_max: int) -> None:
    """Refuse a risk for which other prompts count.

    All may count, or those whose set is not empty. A prompt that does not count must settle
    nothing, neither for a test that waits for labels nor for one that counts empty sets.
    """
    sizes = np.arange(k_max + 1)
    if not risk.counts_all and not np.array_equal(risk.counts(sizes), sizes > 0):
        raise TypeError(
            f"{type(risk).__name__}.counts must say that all sets count, or all that are not "
            "empty, where thresholds are tested, or labels or draws are missing."
        )


def check_incomplete(risk: Risk, k_max: int) -> None:
    """Refuse a risk that tests with missing labels cannot keep."""
    check_counts(risk, k_max)
    # a test that waits for witnesses would wait for those of all prompts, at stake or not
    if risk.has_costs:
        raise ValueError(f"data must hold all labels {risk.where}, got some unknown ones instead.")
