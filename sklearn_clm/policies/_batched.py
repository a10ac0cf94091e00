"""Rules on many prompts at once, as their draws arrive.

A rule says of each open set, draw by draw, what is accepted and whether sampling stops. Whoever
samples gives it draws, and scores them where it asks.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sklearn_clm.calibration import Configuration, SamplingRule
from sklearn_clm.calibration._set_scores import SetScore
from sklearn_clm.generators import Generation
from sklearn_clm.generators.draws import text_key

# no set score reaches NaN, not even +inf: sampling never stops early
_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.nan)


class OpenSet:
    """The set of a prompt whose sampling has not stopped."""

    __slots__ = ("draws", "index", "qualities", "row", "rule", "seen", "shown")

    def __init__(self, index: int, rule: Any, row: int = 0) -> None:
        self.index, self.rule, self.row = index, rule, row
        self.draws: list[Generation] = []
        self.qualities: list[float] = []
        self.seen: dict[object, int] = {}  # first draw of each text
        self.shown: set[int] = set()  # texts that `on_accept` received

    def next_text(self) -> int:
        """The text of the next draw for its rule."""
        return self.text_of(int(self.rule.n_samples))

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


class BatchedRule(ABC):
    """One rule, applied to many prompts at once."""

    def __init__(self, scores: DrawScores, *, all_draws: int = 0) -> None:
        self._scores = scores
        self.all_draws = all_draws  # wanted at once; 0 if the rule decides after each

    @abstractmethod
    def new(self, index: int) -> OpenSet:
        """The set of a prompt before its first draw."""

    @abstractmethod
    def advance(self, sets: list[OpenSet], draws: list[list[Generation]], start: int) -> None:
        """Give some rules their new draws, from `start` on."""

    @abstractmethod
    def outcome(self, open_set: OpenSet) -> tuple[list[list[int]], float]:
        """A set's accepted draws, by text, and its score."""

    def close(self, open_set: OpenSet) -> tuple[list[list[int]], float]:
        """The outcome of a set whose rule has stopped."""
        return self.outcome(open_set)


class BatchedThresholds(BatchedRule):
    """Algorithm 1 on many prompts; None accepts all draws."""

    def __init__(self, configuration: Configuration | None, k_max: int, scores: DrawScores) -> None:
        super().__init__(scores, all_draws=k_max if configuration is None else 0)
        self._configuration = configuration or _ACCEPT_ALL
        self._k_max = k_max
        self._unlike = [0.0] * k_max  # in place of similarities that decide nothing

    def new(self, index: int) -> OpenSet:
        score, width = self._scores.set_score, self._scores.width
        rule = SamplingRule(self._configuration, score, self._k_max, width)
        return OpenSet(index, rule)

    def advance(self, sets: list[OpenSet], draws: list[list[Generation]], start: int) -> None:
        # what the rule cannot look at is not compared: draws of too low a quality, and any of
        # them with draws that were rejected
        compared: dict[int, list[tuple[OpenSet, float, list[Generation]]]] = {}
        similarity, least, _ = self._configuration
        qualities = self._scores.quality_of(sets, draws, start).tolist()
        for open_set, row, qualities_of_set in zip(sets, draws, qualities):
            open_set.qualities.extend(qualities_of_set)
            for quality in qualities_of_set:
                n = len(open_set.rule.accepted)
                if n and similarity < np.inf and quality >= least:
                    compared.setdefault(n, []).append((open_set, quality, row))
                else:
                    open_set.rule.update(quality, self._unlike, open_set.next_text())
        # sets of equal size are compared in one call; those that are shorter would need padding
        for waiting in compared.values():
            accepted = [open_set.rule.accepted for open_set, _, _ in waiting]
            alike = self._scores.similarity_of([row for _, _, row in waiting], accepted).tolist()
            for (open_set, quality, _), earlier, values in zip(
                waiting, accepted, alike, strict=True
            ):
                similarity_to = dict(zip(earlier, values, strict=True))
                similarities = [similarity_to.get(j, 0.0) for j in range(start)]
                open_set.rule.update(quality, similarities, open_set.next_text())

    def outcome(self, open_set: OpenSet) -> tuple[list[list[int]], float]:
        return list(open_set.rule.texts.values()), open_set.rule.score


class BatchedExit(BatchedRule):
    """An exit policy on many prompts, by a LevelRule."""

    def __init__(self, rule: Any, scores: DrawScores) -> None:
        super().__init__(scores)
        self._rule = rule
        self._paths = rule.model.paths(0)
        self._free: list[int] = []

    def new(self, index: int) -> OpenSet:
        # rows of closed sets are used again: memory grows with open prompts, not with all of them
        if not self._free:
            n = len(self._paths.n_draws)
            self._paths.grow(max(n, 64))
            self._free = list(range(n, len(self._paths.n_draws)))
        return OpenSet(index, self._rule.stopping(), self._free.pop())

    def advance(self, sets: list[OpenSet], draws: list[list[Generation]], start: int) -> None:
        # features are relative to all draws, so that every draw is compared with all before it
        quality = self._scores.quality_of(sets, draws, start)[:, 0]
        similarity = self._scores.similarity_of(draws, [range(start)] * len(sets))
        equal = np.array([open_set.next_text() for open_set in sets], dtype=np.intp)
        if not self._rule.equal_texts:
            equal[:] = start
        for open_set, value in zip(sets, quality.tolist(), strict=True):
            open_set.qualities.append(value)
        # one update for all: its arithmetic is row by row, the same bits in any batch
        rows = np.array([open_set.row for open_set in sets], dtype=np.intp)
        self._paths.update(rows, quality, similarity, equal)
        chances, arrival = self._rule.model.probabilities(self._paths, rows)
        for m, open_set in enumerate(sets):
            open_set.rule.update(chances[m], float(arrival[m]))

    def outcome(self, open_set: OpenSet) -> tuple[list[list[int]], float]:
        # the level knows a near copy by its text, and equal ones only if calibration knew them
        text_of = self._paths.first[open_set.row, : open_set.rule.n_samples].tolist()
        shown: dict[int, list[int]] = {}
        for text in sorted(open_set.rule.members):
            draws = [draw for draw, own in enumerate(text_of) if own == text]
            shown.setdefault(open_set.text_of(text), []).extend(draws)
        # a classifier rounds a row otherwise in another batch, which no decision depends on
        score = float(f"{open_set.rule.exit:.9g}")
        return [sorted(draws) for draws in shown.values()], score

    def close(self, open_set: OpenSet) -> tuple[list[list[int]], float]:
        outcome = self.outcome(open_set)
        self._paths.clear(open_set.row)
        self._free.append(open_set.row)
        return outcome
