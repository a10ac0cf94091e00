"""Certify: fixed sequences and nested levels, with few labels.

Calibration asks only two questions about labels.

*A fixed sequence.* The steps of a path are tested in their order, up to the first that fails. A
false certificate needs that the first step in the order whose risk is too high passes its test: one
event, of probability at most delta (:func:`count_passed`).

*A nested level.* Each prompt has a number V, the largest score among its entries (texts, or
components) of one kind, and what is sought is the r-th largest V (:func:`nth_largest_by_asking`).
An exit level is the (n - c)-th largest score of an admissible text, c the critical count of the
binomial test. The threshold of components lies above the (c + 1)-th largest score of an
inadmissible component; where m of these are tolerated, V is the (m + 1)-th largest score of a
prompt's. And one test of thresholds asks whether at least n - c sets hold an admissible member:
whether the (n - c)-th largest V is finite, where all members have the same score.

*Lazily.* A fixed table says of every entry whether it is of the wanted kind. With some labels
unknown, V lies between L, the largest score of an entry that is known to be wanted, and U, the
largest of an entry that is not known to be unwanted (or the (m + 1)-th largest of both). So the
r-th largest V lies between that of L and that of U, and asking ends when the two are equal: no
label that is still unknown can change it then. The answer is a function of the whole table, and
labels are revealed until its value is forced, so that the order in which they are revealed changes
nothing, and the guarantee stays.

*Nothing is asked in vain.* The answer can be v only once r prompts have L >= v and at most r - 1
have U > v. Each label raises one L or lowers one U, so that the prompts that are lacking, of both
kinds together, are the fewest labels with which v can come out. A batch holds one entry of as many
prompts as the v that needs the fewest labels: any walk asks for so many. They are the highest open
entries of the prompts with the largest U, without those whose L reaches the r-th largest U: these
are above the answer, whatever it is.

*Draws can be lazy, too.* Whether a draw is accepted, and the score of a text, depend on the draws
up to a stop alone, and `reach` bounds the scores that draws to come can have. A prompt is drawn
from only while that bound is the highest it has left.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._arrays import Provenance
from sklearn_clm.calibration._two_phase import AuditRecord
from sklearn_clm.calibration.checks import as_array, check_level
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.calibration.words import Bound, ErrorCount


class Entries(ABC):
    """Entries of n prompts with scores, and labels if known.

    Each belongs to the prompt `owner`. A prompt is decided by V, the largest score among its
    entries of the `wanted` label, 0 or 1, or the `rank`-th largest of them; -inf where it has
    fewer. An entry without a score yet has -inf. Of entries with the largest score of their prompt
    that of highest `preference` is asked for first.
    """

    reach: np.ndarray | None = None  # of shape (n,): largest score of any later draw
    rank: int = 1

    def __init__(
        self,
        owner: np.ndarray,
        n_prompts: int,
        scores: np.ndarray,
        wanted: int,
        preference: np.ndarray | None = None,
    ) -> None:
        self.owner = owner
        self.n_prompts = n_prompts
        self.scores = scores
        self.wanted = wanted
        self.preference = np.zeros(len(owner)) if preference is None else preference

    @property
    @abstractmethod
    def labels(self) -> np.ndarray:
        """Known label of each entry: 1, 0, or -1."""

    @property
    @abstractmethod
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of each entry in a judge's labels."""

    @abstractmethod
    def ask(self, entries: np.ndarray) -> None:
        """Ask for the labels of entries of different prompts."""

    def draw(self, prompts: np.ndarray) -> None:
        """Make the next draw of some prompts; update the scores."""
        raise TypeError("these entries have all their draws")

    def largest(self, chosen: np.ndarray) -> np.ndarray:
        """Largest chosen score of each prompt; -inf if none."""
        # unbuffered: a prompt may have many entries among the chosen
        largest = np.full(self.n_prompts, -np.inf)
        np.maximum.at(largest, self.owner[chosen], self.scores[chosen])
        return largest

    def for_risk(self, risk: Risk) -> Self:
        """These entries, with the V that a risk needs."""
        entries = copy.copy(self)
        entries.wanted = risk.settled_by
        entries.rank = risk.n_settling
        return entries

    def deciding(self, chosen: np.ndarray) -> np.ndarray:
        """V of each prompt, were these the wanted entries."""
        if self.rank == 1:
            return self.largest(chosen)
        # of each prompt the chosen entry that has `rank` - 1 others above it
        flat = np.flatnonzero(chosen)
        places = places_of_rank(self.owner[flat], self.scores[flat], self.rank - 1)
        last = flat[places]
        deciding = np.full(self.n_prompts, -np.inf)
        deciding[self.owner[last]] = self.scores[last]
        return deciding

    def heads(self, chosen: np.ndarray) -> np.ndarray:
        """For each prompt its preferred chosen entry, or -1."""
        largest = self.largest(chosen)
        best = np.flatnonzero(chosen & (self.scores == largest[self.owner]))
        order = best[np.lexsort((best, -self.preference[best]))]
        heads = np.full(self.n_prompts, -1)
        heads[self.owner[order[::-1]]] = order[::-1]  # the last assignment wins
        return heads


def places_of_rank(owner: np.ndarray, scores: np.ndarray, n_above: int) -> np.ndarray:
    """Places of the entries below `n_above` others of their owner."""
    order = np.lexsort((-scores, owner))
    ordered_owner = owner[order]
    first_of_owner = np.searchsorted(ordered_owner, ordered_owner)
    n_before = np.arange(len(order)) - first_of_owner
    return np.asarray(order[n_before == n_above])


def nth_largest(values: np.ndarray, r: int) -> float:
    """The r-th largest value; -inf if there are fewer."""
    if r > len(values):  # more witnesses are needed than there are prompts
        return -np.inf
    place = len(values) - r
    return float(np.partition(values, place)[place])


def nth_largest_by_asking(entries: Entries, r: int) -> float:
    """The r-th largest V, by few labels; -inf if none.

    By the labels and draws so far each prompt's V lies between two bounds. Labels are asked for,
    and draws made, until the r-th largest of both bounds are the same: that is the answer, whatever
    the other labels are.
    """
    while True:
        labels = entries.labels
        low, high_by_draws_made, high = _bounds_of_v(entries, labels)
        least_answer = nth_largest(low, r)
        largest_answer = nth_largest(high, r)
        if least_answer == largest_answer:
            return least_answer

        # a prompt is asked about its highest entry without a label: no other can move the bounds of
        # its V as far
        heads = entries.heads(labels < 0)
        has_head = heads >= 0
        preference = np.full(len(heads), -np.inf)
        preference[has_head] = entries.preference[heads[has_head]]

        # the r prompts of the largest upper bounds decide; among equal ones those that reach the
        # answer already come first, since they count among the r
        is_open = low < largest_answer
        top = np.lexsort((-preference, is_open, -high))[:r]
        open_top = top[is_open[top]]
        # any walk to the answer needs so many labels: asked for at once, none is in vain
        batch = open_top[: _fewest_labels(low, high, r)]

        # a prompt whose draws to come may score higher than all that was seen is drawn from first
        needs_draw = high[batch] > high_by_draws_made[batch]
        if needs_draw.any():
            entries.draw(batch[needs_draw])
        if not needs_draw.all():
            entries.ask(heads[batch[~needs_draw]])


def _bounds_of_v(entries: Entries, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds of V: lower, upper by draws made, upper.

    The last counts draws to come as well.
    """
    unwanted = 1 - entries.wanted
    low = entries.deciding(labels == entries.wanted)
    high_by_draws_made = entries.deciding(labels != unwanted)
    if entries.reach is None:
        return low, high_by_draws_made, high_by_draws_made
    return low, high_by_draws_made, np.maximum(high_by_draws_made, entries.reach)


def _fewest_labels(low: np.ndarray, high: np.ndarray, r: int) -> int:
    """The fewest labels that can tell the r-th largest V."""
    # the answer v is one of the bounds, or needs no fewer labels than the next bound above it; it
    # can be v only once r prompts have L >= v and at most r - 1 have U > v
    answers = np.unique(np.concatenate((low, high)))
    n_reach = len(low) - np.searchsorted(np.sort(low), answers, side="left")
    n_above = len(high) - np.searchsorted(np.sort(high), answers, side="right")
    n_to_raise = np.maximum(r - n_reach, 0)
    n_to_lower = np.maximum(n_above - (r - 1), 0)
    return int(np.min(n_to_raise + n_to_lower))


def may_ask(entries: Entries, r: int) -> np.ndarray:
    """Entries that may still be asked for, bool (m,).

    By :func:`nth_largest_by_asking`: those without a label that score more than the lower bound of
    their prompt's V, and more than the r-th largest of these bounds; none once the answer is known.
    """
    labels = entries.labels
    low, _, high = _bounds_of_v(entries, labels)
    least_answer = nth_largest(low, r)
    if least_answer == nth_largest(high, r):
        return np.zeros(len(entries.owner), dtype=bool)

    # below that a label can change neither the bounds of its prompt nor the answer
    floor = np.maximum(low, least_answer)
    scores = entries.scores
    if entries.reach is not None:
        # an entry without a score may still get the largest score within reach
        scores = np.where(scores == -np.inf, entries.reach[entries.owner], scores)
    return np.asarray((labels < 0) & (scores > floor[entries.owner]))


def count_passed(passes: Callable[[int], bool], n_steps: int, start: int = 0) -> int:
    """Steps that pass before the first failure (fixed sequence testing).

    Each decision is a function of the data alone, so that they may be made in any order. Where
    labels are asked for, the search begins at `start`, where the last to pass is expected:
    witnesses that are found in its small sets are, as a rule, in the larger ones of the steps
    before, which then cost nothing.
    """
    start = min(start, n_steps - 1)
    # where the expected last step fails, nothing after it matters
    if n_steps and not passes(start):
        n_steps = start
    for m in range(n_steps):
        if m != start and not passes(m):
            return m
    return n_steps


@dataclass(frozen=True, kw_only=True)
class SequenceResult:
    """Result of a fixed sequence of m tests."""

    n_valid: int  # number of steps that passed, from the first on
    position: int | None  # the chosen step among these
    n_errors: np.ndarray = field(repr=False)
    p_values: np.ndarray = field(repr=False)  # NaN where labels are unknown
    # where both are exact; otherwise upper bounds if the test passed, lower bounds if not
    exact: np.ndarray = field(repr=False)
    open_err: bool = False  # prompts whose draws end early count as errors in all tests
    n_calibration: int
    n_counted: np.ndarray | None = field(default=None, repr=False)  # (m,); None: all prompts
    delta: float
    provenance: Provenance
    # with an audit `n_errors` counts the prompts that the model refuses
    audit: AuditRecord | None = field(default=None, repr=False)

    def bound(self, i: int) -> Bound:
        """How errors and p-value of test i are known."""
        if self.exact[i]:
            return Bound.EXACT
        return Bound.AT_MOST if i < self.n_valid or self.open_err else Bound.AT_LEAST

    def errors_of(self, i: int) -> ErrorCount:
        """The errors of test i, as far as known."""
        n_counted = self.n_calibration if self.n_counted is None else self.n_counted[i]
        return ErrorCount(int(self.n_errors[i]), int(n_counted), self.bound(i))

    @property
    def errors_of_choice(self) -> ErrorCount:
        """Errors of the chosen, or the first step."""
        return self.errors_of(self.position or 0)

    @property
    def errors_of_first(self) -> int | None:
        """Errors of the first step, if known exactly."""
        return int(self.n_errors[0]) if self.n_errors.size and self.exact[0] else None


def fixed_sequence_test(p_values: ArrayLike, delta: float) -> np.ndarray:
    """Hypotheses rejected by fixed sequence testing.

    Rejected is what comes before the first p-value greater than `delta`. If the order was fixed
    without a look at the data that gave the p-values, the probability of any false rejection is at
    most `delta`.

    Examples
    --------
    >>> from sklearn_clm.calibration import fixed_sequence_test
    >>> fixed_sequence_test([0.01, 0.05, 0.2, 0.001], delta=0.05)
    array([ True,  True, False, False])
    """
    p = as_array(p_values, "p_values", (None,), low=0.0, high=1.0)
    return np.logical_and.accumulate(p <= check_level(delta, "delta"))
