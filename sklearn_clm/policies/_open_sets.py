"""Sets of many prompts at once, as their draws arrive."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration import Configuration, SamplingRule
from sklearn_clm.calibration._set_scores import get_set_score
from sklearn_clm.calibration._table import text_key
from sklearn_clm.generators import Generation
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.scoring import quality_matrix, similarity_tensor
from sklearn_clm.scoring._protocols import DrawScorer, PairwiseSimilarity, Quality, Similarity
from sklearn_clm.scoring._quality import bind_quality

OnAccept: TypeAlias = Callable[[int, Generation], object]
QualityLike: TypeAlias = str | Quality | DrawScorer | BaseEstimator
SimilarityLike: TypeAlias = str | Similarity | PairwiseSimilarity

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


class Sampling:
    """Sets of many prompts, by the rules of their groups.

    The `record` of calibration holds the rules, and `names` are the groups of the prompts. `closed`
    holds the sets on which sampling has stopped, in the order of the prompts.
    """

    def __init__(
        self,
        record: Any,
        prompts: CheckedPrompts,
        names: Sequence[Hashable | None],
        progress: Any,
        n_jobs: int | None,
        on_accept: OnAccept | None = None,
    ) -> None:
        self._prompts, self._progress, self._on_accept = prompts, progress, on_accept
        self.set_score, self.width = get_set_score(record.set_score), record.width
        self._quality = bind_quality(record.quality, record.source.generator)
        self._similarity, self._n_jobs = record.similarity, n_jobs
        self._names, self._rules, self._n_drawn = names, record.in_use, 0
        self._batched: dict[Hashable | None, BatchedRule] = {
            name: rule.batched(self) for name, rule in self._rules.items()
        }
        self._open: dict[int, OpenSet] = {}
        self.closed: list[Any] = [None] * len(prompts)

    def decide(self, arrived: list[tuple[int, list[Generation]]]) -> list[int]:
        """How many draws of each prompt are wanted now."""
        for i, draws in arrived:
            if i not in self._open:
                self._open[i] = self._batched[self._names[i]].new(i)
            self._open[i].draws.extend(draws)
        waiting = [self._open[i] for i, _ in arrived]
        while waiting:
            batches: dict[tuple[Hashable | None, int, int], list[OpenSet]] = {}
            for open_set in waiting:
                name, start = self._names[open_set.index], open_set.rule.n_samples
                # a draw that the rule may not look at is not scored, which can cost as much as
                # drawing
                stop = len(open_set.draws) if self._batched[name].all_draws else start + 1
                batches.setdefault((name, start, stop), []).append(open_set)
            for (name, start, stop), sets in batches.items():
                draws_of = [open_set.draws[:stop] for open_set in sets]
                self._batched[name].advance(sets, draws_of, start)
                if self._on_accept is not None:
                    self._report_accepted(sets, self._on_accept)
            waiting = [
                open_set
                for open_set in waiting
                if not open_set.rule.done and len(open_set.draws) > open_set.rule.n_samples
            ]
        return [self._draws_wanted(self._open[i]) for i, _ in arrived]

    def _report_accepted(self, sets: Sequence[OpenSet], on_accept: OnAccept) -> None:
        for open_set in sets:
            accepted, _ = self._batched[self._names[open_set.index]].outcome(open_set)
            for draw in accepted:
                if draw not in open_set.shown:
                    open_set.shown.add(draw)
                    on_accept(open_set.index, open_set.draws[draw])

    def _draws_wanted(self, open_set: OpenSet) -> int:
        """Draws that a set wants; a stopped set is closed."""
        name, rule = self._names[open_set.index], open_set.rule
        batched, claim = self._batched[name], self._rules[name].claim
        if not rule.done:
            return batched.all_draws or int(rule.n_samples) + 1
        accepted, score = batched.close(self._open.pop(open_set.index))
        self.closed[open_set.index] = PredictionSet(
            prompt=self._prompts.prompts[open_set.index],
            responses=tuple(open_set.draws[j].response for j in accepted),
            quality=np.array([open_set.qualities[j] for j in accepted], dtype=np.float64),
            indices=np.array(accepted, dtype=np.intp),
            n_samples=rule.n_samples,
            set_score=score,
            stopped=rule.stopped,
            guaranteed=claim.holds,
            generations=tuple(open_set.draws[: rule.n_samples]),
            claim=claim,
        )
        self._progress.update()
        return 0

    def chance(self, i: int, decided: int, draw: int) -> float:
        """Estimated chance that a prompt will need this draw."""
        taken = self._rules[self._names[i]].taken
        if draw < len(taken) and taken[decided]:
            return float(taken[draw] / taken[decided])
        return 0.0 if 0 < len(taken) <= draw else float(0.5 ** (draw - decided))

    def count_draw(self, i: int, draw: int, generation: Generation) -> None:
        """Count a draw in the progress bar."""
        self._n_drawn += 1
        if not self._progress.disable:
            self._progress.set_postfix(draws=self._n_drawn, refresh=False)

    def quality_of(
        self, sets: Sequence[OpenSet], draws: Sequence[list[Generation]], start: int
    ) -> np.ndarray:
        """Quality of the draws from `start` on, (m, r)."""
        prompts = self._prompts.take([open_set.index for open_set in sets]).prompts
        return quality_matrix(self._quality, prompts, draws, start=start, n_jobs=self._n_jobs)

    def similarity_of(
        self, draws: Sequence[list[Generation]], earlier: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """Similarity of last draws to n earlier ones, (m, n).

        Prompts may have different numbers of draws.
        """
        n = len(earlier[0])
        if not n:
            return np.empty((len(draws), 0))
        responses = [[row[j].response for j in (*of, -1)] for row, of in zip(draws, earlier)]
        tensor = similarity_tensor(self._similarity, responses, start=n, n_jobs=self._n_jobs)
        return np.asarray(tensor[:, 0, :n])


class BatchedRule(ABC):
    """One rule, applied to many prompts at once."""

    def __init__(self, sampling: Sampling, *, all_draws: int = 0) -> None:
        self._sampling = sampling
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

    def __init__(self, configuration: Configuration | None, k_max: int, sampling: Sampling) -> None:
        super().__init__(sampling, all_draws=k_max if configuration is None else 0)
        self._configuration, self._k_max = configuration or _ACCEPT_ALL, k_max
        self._unlike = [0.0] * k_max  # in place of similarities that decide nothing

    def new(self, index: int) -> OpenSet:
        score, width = self._sampling.set_score, self._sampling.width
        rule = SamplingRule(self._configuration, score, self._k_max, width)
        return OpenSet(index, rule)

    def advance(self, sets: list[OpenSet], draws: list[list[Generation]], start: int) -> None:
        # what the rule cannot look at is not compared: draws of too low a quality, and any of
        # them with draws that were rejected
        compared: dict[int, list[tuple[OpenSet, float, list[Generation]]]] = {}
        similarity, least, _ = self._configuration
        qualities = self._sampling.quality_of(sets, draws, start).tolist()
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
            alike = self._sampling.similarity_of([row for _, _, row in waiting], accepted).tolist()
            for (open_set, quality, _), earlier, values in zip(
                waiting, accepted, alike, strict=True
            ):
                known = dict(zip(earlier, values, strict=True))
                open_set.rule.update(quality, [known.get(j, 0.0) for j in range(start)])

    def outcome(self, open_set: OpenSet) -> tuple[list[int], float]:
        return open_set.rule.accepted, open_set.rule.score


class BatchedExit(BatchedRule):
    """An exit policy on many prompts, by a LevelRule."""

    def __init__(self, rule: Any, sampling: Sampling) -> None:
        super().__init__(sampling)
        self._rule, self._paths = rule, rule.model.paths(0)
        self._free: list[int] = []

    def new(self, index: int) -> OpenSet:
        if not self._free:
            n = len(self._paths.n_draws)
            self._paths.grow(max(n, 64))
            self._free = list(range(n, len(self._paths.n_draws)))
        return OpenSet(index, self._rule.stopping(), self._free.pop())

    def advance(self, sets: list[OpenSet], draws: list[list[Generation]], start: int) -> None:
        quality = self._sampling.quality_of(sets, draws, start)[:, 0]
        similarity = self._sampling.similarity_of(draws, [range(start)] * len(sets))
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
