"""Rules on many prompts at once, as their draws arrive.

A rule says of each open set, draw by draw, what is accepted and whether sampling stops. Whoever
samples gives it draws, and scores them where it asks.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from sklearn_clm.calibration import Configuration, SamplingRule
from sklearn_clm.calibration.exit_policy import ExitRule
from sklearn_clm.calibration.set_scores import SetScore
from sklearn_clm.generators import Generation
from sklearn_clm.generators.draws import text_key

if TYPE_CHECKING:
    from sklearn_clm.policies._exit import LevelRule

# no set score reaches NaN, not even +inf: sampling never stops early
_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.nan)


class RuleOfOne(Protocol):
    """A rule on one prompt, as sampling asks it.

    How it takes a draw, and what it accepted, is between it and its :class:`BatchedRule`.
    """

    @property
    def n_samples(self) -> int:
        """Draws that it has looked at."""

    @property
    def stopped(self) -> bool:
        """Whether it ended sampling before the budget did."""

    @property
    def done(self) -> bool:
        """Whether it wants no further draw."""


RuleOfOneT = TypeVar("RuleOfOneT", bound=RuleOfOne)


class OpenSet(Generic[RuleOfOneT]):
    """The set of a prompt whose sampling has not stopped."""

    __slots__ = ("draws", "index", "qualities", "row", "rule", "seen", "shown")

    def __init__(self, index: int, rule: RuleOfOneT, row: int = 0) -> None:
        self.index = index
        self.rule = rule
        self.row = row  # in the arrays of an exit policy
        self.draws: list[Generation] = []
        self.qualities: list[float] = []
        self.seen: dict[object, int] = {}  # first draw of each text
        self.shown: set[int] = set()  # texts that `on_accept` received

    def next_text(self) -> int:
        """The text of the next draw for its rule."""
        return self.text_of(self.rule.n_samples)

    def text_of(self, draw: int) -> int:
        """The draw that gave the text of a draw first."""
        return self.seen.setdefault(text_key(self.draws[draw].response), draw)


class DrawScores(Protocol):
    """Scores of draws, computed when a rule asks for them."""

    set_score: SetScore
    width: int  # largest number of draws of a prompt

    def quality_of(
        self, sets: Sequence[OpenSet], draws: Sequence[list[Generation]], start: int
    ) -> np.ndarray:
        """Quality of the draws from `start` on, (m, r)."""

    def similarity_of(
        self, draws: Sequence[list[Generation]], earlier: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """Similarity of last draws to n earlier ones, (m, n).

        Prompts may have different numbers of draws.
        """


class BatchedRule(ABC, Generic[RuleOfOneT]):
    """One rule, applied to many prompts at once."""

    def __init__(self, scores: DrawScores, *, all_draws: int = 0) -> None:
        self._scores = scores
        self.all_draws = all_draws  # wanted at once; 0 if the rule decides after each

    @abstractmethod
    def new(self, index: int) -> OpenSet[RuleOfOneT]:
        """The set of a prompt before its first draw."""

    def advance(
        self, sets: list[OpenSet[RuleOfOneT]], draws: list[list[Generation]], start: int
    ) -> None:
        """Score new draws, from `start` on, for some rules."""
        quality = self._scores.quality_of(sets, draws, start)
        # whether its rule looks at it or not: sets that are returned show the quality of each draw
        for open_set, qualities_of_set in zip(sets, quality.tolist(), strict=True):
            open_set.qualities.extend(qualities_of_set)
        self.update(sets, draws, quality, start)

    @abstractmethod
    def update(
        self,
        sets: list[OpenSet[RuleOfOneT]],
        draws: list[list[Generation]],
        quality: np.ndarray,
        start: int,
    ) -> None:
        """Give some rules their new draws, of this quality.

        `draws` are those of each set so far. The last r of them, from `start` on, are new, and
        `quality`, of shape (m, r), is theirs.
        """

    @abstractmethod
    def outcome(self, open_set: OpenSet[RuleOfOneT]) -> tuple[list[list[int]], float]:
        """A set's accepted draws, by text, and its score."""

    def close(self, open_set: OpenSet[RuleOfOneT]) -> tuple[list[list[int]], float]:
        """The outcome of a set whose rule has stopped."""
        return self.outcome(open_set)


class _NewDraw(NamedTuple):
    """A draw that is compared with those accepted before."""

    open_set: OpenSet[SamplingRule]
    quality: float
    draws: list[Generation]  # of its prompt, itself the last


class BatchedThresholds(BatchedRule[SamplingRule]):
    """Algorithm 1 on many prompts; None accepts all draws."""

    def __init__(self, configuration: Configuration | None, k_max: int, scores: DrawScores) -> None:
        super().__init__(scores, all_draws=k_max if configuration is None else 0)
        self._configuration = configuration or _ACCEPT_ALL
        self._k_max = k_max
        self._unlike = [0.0] * k_max  # in place of similarities that decide nothing

    def new(self, index: int) -> OpenSet[SamplingRule]:
        scores = self._scores
        rule = SamplingRule(self._configuration, scores.set_score, self._k_max, scores.width)
        return OpenSet(index, rule)

    def update(
        self,
        sets: list[OpenSet[SamplingRule]],
        draws: list[list[Generation]],
        quality: np.ndarray,
        start: int,
    ) -> None:
        # what the rule cannot look at is not compared: draws of too low a quality, and any of
        # them with draws that were rejected. Similarity is dear, and decides nothing there
        largest_similarity, least_quality, _ = self._configuration
        rejects_copies = largest_similarity < np.inf
        to_compare: dict[int, list[_NewDraw]] = {}  # by the number of accepted draws
        for open_set, row, qualities_of_set in zip(sets, draws, quality.tolist()):
            for quality_of_draw in qualities_of_set:
                n_accepted = len(open_set.rule.accepted)
                if n_accepted and rejects_copies and quality_of_draw >= least_quality:
                    new_draw = _NewDraw(open_set, quality_of_draw, row)
                    to_compare.setdefault(n_accepted, []).append(new_draw)
                else:
                    open_set.rule.update(quality_of_draw, self._unlike, open_set.next_text())
        # sets of equal size are compared in one call; those that are shorter would need padding
        for new_draws in to_compare.values():
            rows = [new_draw.draws for new_draw in new_draws]
            accepted = [new_draw.open_set.rule.accepted for new_draw in new_draws]
            similarity = self._scores.similarity_of(rows, accepted).tolist()
            for new_draw, earlier, values in zip(new_draws, accepted, similarity, strict=True):
                # the rule wants one number for each earlier draw; it looks at accepted ones alone
                similarity_to = dict(zip(earlier, values, strict=True))
                similarities = [similarity_to.get(j, 0.0) for j in range(start)]
                open_set = new_draw.open_set
                open_set.rule.update(new_draw.quality, similarities, open_set.next_text())

    def outcome(self, open_set: OpenSet[SamplingRule]) -> tuple[list[list[int]], float]:
        return list(open_set.rule.texts.values()), open_set.rule.score


class BatchedExit(BatchedRule[ExitRule]):
    """An exit policy on many prompts, by a LevelRule."""

    def __init__(self, rule: "LevelRule", scores: DrawScores) -> None:
        super().__init__(scores)
        self._rule = rule
        self._paths = rule.model.paths(0)
        self._free: list[int] = []

    def new(self, index: int) -> OpenSet[ExitRule]:
        # rows of closed sets are used again: memory grows with open prompts, not with all of them
        if not self._free:
            n_rows = len(self._paths.n_draws)
            self._paths.grow(max(n_rows, 64))
            self._free = list(range(n_rows, len(self._paths.n_draws)))
        row = self._free.pop()
        return OpenSet(index, self._rule.stopping(), row)

    def update(
        self,
        sets: list[OpenSet[ExitRule]],
        draws: list[list[Generation]],
        quality: np.ndarray,
        start: int,
    ) -> None:
        # features are relative to all draws, so that every draw is compared with all before it
        similarity = self._scores.similarity_of(draws, [range(start)] * len(sets))
        equal = np.array([open_set.next_text() for open_set in sets], dtype=np.intp)
        # calibration took each draw for a text of its own, and so must prediction
        if not self._rule.equal_texts:
            equal[:] = start
        # one update for all: its arithmetic is row by row, the same bits in any batch
        rows = np.array([open_set.row for open_set in sets], dtype=np.intp)
        self._paths.update(rows, quality[:, 0], similarity, equal)
        chances, arrival = self._rule.model.probabilities(self._paths, rows)
        for open_set, chances_of_set, arrival_of_set in zip(sets, chances, arrival.tolist()):
            open_set.rule.update(chances_of_set, arrival_of_set)

    def outcome(self, open_set: OpenSet[ExitRule]) -> tuple[list[list[int]], float]:
        n_samples = open_set.rule.n_samples
        text_of_draw = self._paths.first[open_set.row, :n_samples].tolist()
        # the level knows a near copy by its text, and equal ones only if calibration knew them: a
        # set shows each response once all the same
        draws_of_response: dict[int, list[int]] = {}
        for member in sorted(open_set.rule.accepted):
            draws = [draw for draw, text in enumerate(text_of_draw) if text == member]
            draws_of_response.setdefault(open_set.text_of(member), []).extend(draws)
        # a classifier rounds a row otherwise in another batch, which no decision depends on
        score = float(f"{open_set.rule.exit:.9g}")
        return [sorted(draws) for draws in draws_of_response.values()], score

    def close(self, open_set: OpenSet[ExitRule]) -> tuple[list[list[int]], float]:
        outcome = self.outcome(open_set)
        self._paths.clear(open_set.row)
        self._free.append(open_set.row)
        return outcome
