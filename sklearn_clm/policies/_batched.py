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
from sklearn_clm.calibration._table import text_key
from sklearn_clm.generators import Generation

# no set score reaches NaN, not even +inf: sampling never stops early
_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.nan)


class OpenSet:
    """The set of a prompt whose sampling has not stopped."""

    __slots__ = ("draws", "index", "qualities", "row", "rule", "seen", "shown")

    def __init__(self, index: int, rule: Any, row: int = 0) -> None:
        self.index, self.rule, self.row = index, rule, row
        self.draws: list[Generation] = []
        self.qualities: list[float] = []
        self.seen: dict[object, int] = {}
        self.shown: set[int] = set()  # accepted draws that `on_accept` received


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
    def outcome(self, open_set: OpenSet) -> tuple[list[int], float]:
        """The draws that a set has accepted, and its score."""

    def close(self, open_set: OpenSet) -> tuple[list[int], float]:
        """The outcome of a set whose rule has stopped."""
        return self.outcome(open_set)


class BatchedThresholds(BatchedRule):
    """Algorithm 1 on many prompts; None accepts all draws."""

    def __init__(self, configuration: Configuration | None, k_max: int, scores: DrawScores) -> None:
        super().__init__(scores, all_draws=k_max if configuration is None else 0)
        self._configuration, self._k_max = configuration or _ACCEPT_ALL, k_max
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
        for open_set, row, own in zip(sets, draws, qualities):
            open_set.qualities.extend(own)
            for quality in own:
                n = len(open_set.rule.accepted)
                if n and similarity < np.inf and quality >= least:
                    compared.setdefault(n, []).append((open_set, quality, row))
                else:
                    open_set.rule.update(quality, self._unlike)
        for waiting in compared.values():
            accepted = [open_set.rule.accepted for open_set, _, _ in waiting]
            alike = self._scores.similarity_of([row for _, _, row in waiting], accepted).tolist()
            for (open_set, quality, _), earlier, values in zip(
                waiting, accepted, alike, strict=True
            ):
                known = dict(zip(earlier, values, strict=True))
                open_set.rule.update(quality, [known.get(j, 0.0) for j in range(start)])

    def outcome(self, open_set: OpenSet) -> tuple[list[int], float]:
        return open_set.rule.accepted, open_set.rule.score


class BatchedExit(BatchedRule):
    """An exit policy on many prompts, by a LevelRule."""

    def __init__(self, rule: Any, scores: DrawScores) -> None:
        super().__init__(scores)
        self._rule, self._paths = rule, rule.model.paths(0)
        self._free: list[int] = []

    def new(self, index: int) -> OpenSet:
        if not self._free:
            n = len(self._paths.n_draws)
            self._paths.grow(max(n, 64))
            self._free = list(range(n, len(self._paths.n_draws)))
        return OpenSet(index, self._rule.stopping(), self._free.pop())

    def advance(self, sets: list[OpenSet], draws: list[list[Generation]], start: int) -> None:
        quality = self._scores.quality_of(sets, draws, start)[:, 0]
        similarity = self._scores.similarity_of(draws, [range(start)] * len(sets))
        equal = np.full(len(sets), start)
        if self._rule.equal_texts:
            equal[:] = [
                open_set.seen.setdefault(text_key(open_set.draws[start].response), start)
                for open_set in sets
            ]
        for open_set, value in zip(sets, quality.tolist(), strict=True):
            open_set.qualities.append(value)
        rows = np.array([open_set.row for open_set in sets], dtype=np.intp)
        self._paths.update(rows, quality, similarity, equal)
        chances, arrival = self._rule.model.probabilities(self._paths, rows)
        for m, open_set in enumerate(sets):
            open_set.rule.update(chances[m], float(arrival[m]))

    def outcome(self, open_set: OpenSet) -> tuple[list[int], float]:
        return sorted(open_set.rule.members), open_set.rule.exit

    def close(self, open_set: OpenSet) -> tuple[list[int], float]:
        self._paths.clear(open_set.row)
        self._free.append(open_set.row)
        return super().close(open_set)
