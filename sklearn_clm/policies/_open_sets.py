"""Sets of many prompts at once, as their draws arrive."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration import Claim, Configuration, SamplingRule
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

# no number reaches a set score that is none: even one of +inf stops nothing
_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.nan)


class Sampling:
    """Sets of many prompts, each by the rule of its group; draws are scored as calibration did.

    The `record` of calibration says how, `names` are groups of the prompts, whose rules are in use.
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
        self.prompts, self.progress, self.on_accept = prompts, progress, on_accept
        self.set_score, self.width = get_set_score(record.set_score), record.width
        self._quality = bind_quality(record.quality, record.source.generator)
        self._similarity, self._n_jobs = record.similarity, n_jobs
        self._names, self._n_drawn = names, 0
        self._taken = {name: rule.taken for name, rule in record.in_use.items()}
        self._parts: dict[Hashable | None, OpenSets] = {
            name: rule.open_sets(self) for name, rule in record.in_use.items()
        }

    @property
    def closed(self) -> list[PredictionSet]:
        """The sets, once all are closed."""
        found = [self._parts[name].closed[i] for i, name in enumerate(self._names)]
        return [one for one in found if one is not None]

    def decide(self, arrived: list[tuple[int, list[Generation]]]) -> list[int]:
        """How many draws of each of these prompts are wanted, now that more have arrived."""
        by_name: dict[Hashable | None, list[tuple[int, list[Generation]]]] = {}
        for i, draws in arrived:
            by_name.setdefault(self._names[i], []).append((i, draws))
        wanted: dict[int, int] = {}
        for name, own in by_name.items():
            wanted.update(zip((i for i, _ in own), self._parts[name].decide(own), strict=True))
        return [wanted[i] for i, _ in arrived]

    def chance(self, i: int, decided: int, draw: int) -> float:
        """Share of the calibration prompts with `decided` draws or more that took this one."""
        taken = self._taken[self._names[i]]
        if draw < len(taken) and taken[decided]:
            return float(taken[draw] / taken[decided])
        return 0.0 if 0 < len(taken) <= draw else float(0.5 ** (draw - decided))

    def count_draw(self, i: int, draw: int, generation: Generation) -> None:
        """Show one draw more."""
        self._n_drawn += 1
        if not self.progress.disable:
            self.progress.set_postfix(draws=self._n_drawn, refresh=False)

    def quality_of(
        self, members: Sequence[int], draws: Sequence[list[Generation]], start: int
    ) -> np.ndarray:
        """Quality of the draws from `start` on: of m prompts with start + r draws, (m, r)."""
        prompts = self.prompts.take(members).prompts
        return quality_matrix(self._quality, prompts, draws, start=start, n_jobs=self._n_jobs)

    def similarity_of(
        self, draws: Sequence[list[Generation]], earlier: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """Similarity of each prompt's last draw to n of its earlier ones, of shape (m, n).

        Prompts may have different numbers of draws.
        """
        n = len(earlier[0])
        if not n:
            return np.empty((len(draws), 0))
        responses = [[row[j].response for j in (*of, -1)] for row, of in zip(draws, earlier)]
        tensor = similarity_tensor(self._similarity, responses, start=n, n_jobs=self._n_jobs)
        return np.asarray(tensor[:, 0, :n])


class _OpenSet:
    """The set of a prompt that sampling has not stopped on."""

    __slots__ = ("draws", "qualities", "row", "rule", "seen", "shown")

    def __init__(self, rule: Any, row: int = 0) -> None:
        self.rule, self.row = rule, row
        self.draws: list[Generation] = []
        self.qualities: list[float] = []
        self.seen: dict[object, int] = {}
        self.shown: set[int] = set()  # accepted draws that `on_accept` received


class OpenSets(ABC):
    """The sets of many prompts by one rule, as their draws arrive."""

    def __init__(self, of: Sampling, claim: Claim, *, all_draws: int = 0) -> None:
        self.closed: list[PredictionSet | None] = [None] * len(of.prompts)
        self._open: dict[int, _OpenSet] = {}
        self._of, self._claim = of, claim
        self._all_draws = all_draws  # that are wanted at once; 0 where the rule looks at each

    def decide(self, arrived: list[tuple[int, list[Generation]]]) -> list[int]:
        """How many draws of each of these prompts are wanted, now that more have arrived."""
        for i, draws in arrived:
            if i not in self._open:
                self._open[i] = self._new()
            self._open[i].draws.extend(draws)
        waiting = [i for i, _ in arrived]
        while waiting:
            groups: dict[tuple[int, int], list[int]] = {}
            for i in waiting:
                one = self._open[i]
                # a draw that the rule may not look at is not scored, which can cost as much as
                # drawing
                stop = len(one.draws) if self._all_draws else one.rule.n_samples + 1
                groups.setdefault((one.rule.n_samples, stop), []).append(i)
            for (start, stop), members in groups.items():
                draws_of = [self._open[i].draws[:stop] for i in members]
                self._advance(members, draws_of, start)
                if self._of.on_accept is not None:
                    self._tell(members, self._of.on_accept)
            waiting = [
                i
                for i in waiting
                if not self._open[i].rule.done
                and len(self._open[i].draws) > self._open[i].rule.n_samples
            ]
        return [self._wanted(i) for i, _ in arrived]

    @abstractmethod
    def _new(self) -> _OpenSet:
        """The set of a prompt before its first draw."""

    @abstractmethod
    def _advance(self, members: list[int], draws: list[list[Generation]], start: int) -> None:
        """Let the rules of some prompts see their draws from `start` on, of equal number."""

    @abstractmethod
    def _found(self, one: _OpenSet) -> tuple[list[int], float]:
        """The accepted draws of a closed set, and its score."""

    def _tell(self, members: list[int], on_accept: "OnAccept") -> None:
        for i in members:
            one = self._open[i]
            for draw in self._found(one)[0]:
                if draw not in one.shown:
                    one.shown.add(draw)
                    on_accept(i, one.draws[draw])

    def _wanted(self, i: int) -> int:
        one = self._open[i]
        if not one.rule.done:
            return self._all_draws or one.rule.n_samples + 1
        self._close(i, self._open.pop(i))
        self._of.progress.update()
        return 0

    def _close(self, i: int, one: _OpenSet) -> None:
        accepted, score = self._found(one)
        self.closed[i] = PredictionSet(
            prompt=self._of.prompts.prompts[i],
            responses=tuple(one.draws[j].response for j in accepted),
            quality=np.array([one.qualities[j] for j in accepted], dtype=np.float64),
            indices=np.array(accepted, dtype=np.intp),
            n_samples=one.rule.n_samples,
            set_score=score,
            stopped=one.rule.stopped,
            guaranteed=self._claim.holds,
            generations=tuple(one.draws[: one.rule.n_samples]),
            claim=self._claim,
        )


class ThresholdSets(OpenSets):
    """Algorithm 1 on many prompts; a configuration of None accepts all draws."""

    def __init__(
        self, configuration: Configuration | None, k_max: int, of: Sampling, claim: Claim
    ) -> None:
        super().__init__(of, claim, all_draws=k_max if configuration is None else 0)
        self._configuration, self._k_max = configuration or _ACCEPT_ALL, k_max
        self._unlike = [0.0] * k_max  # where similarity decides nothing

    def _new(self) -> _OpenSet:
        of = self._of
        return _OpenSet(SamplingRule(self._configuration, of.set_score, self._k_max, of.width))

    def _advance(self, members: list[int], draws: list[list[Generation]], start: int) -> None:
        # what the rule cannot look at is not compared: draws of too low a quality, and any of
        # them with draws that were rejected
        compared: dict[int, list[tuple[int, float, list[Generation]]]] = {}
        similarity, least, _ = self._configuration
        qualities = self._of.quality_of(members, draws, start).tolist()
        for i, row, own in zip(members, draws, qualities):
            for quality in own:
                n = len(self._open[i].rule.accepted)
                if n and similarity < np.inf and quality >= least:
                    compared.setdefault(n, []).append((i, quality, row))
                else:
                    self._update(i, quality, self._unlike)
        for waiting in compared.values():
            accepted = [self._open[i].rule.accepted for i, _, _ in waiting]
            alike = self._of.similarity_of([row for _, _, row in waiting], accepted).tolist()
            for (i, quality, _), earlier, values in zip(waiting, accepted, alike, strict=True):
                known = dict(zip(earlier, values, strict=True))
                self._update(i, quality, [known.get(j, 0.0) for j in range(start)])

    def _update(self, i: int, quality: float, similarity: Sequence[float]) -> None:
        one = self._open[i]
        one.qualities.append(quality)
        one.rule.update(quality, similarity)

    def _found(self, one: _OpenSet) -> tuple[list[int], float]:
        return one.rule.accepted, one.rule.score


class ExitSets(OpenSets):
    """An exit policy on many prompts, by a LevelRule; texts as in ExitResult."""

    def __init__(self, rule: Any, of: Sampling) -> None:
        super().__init__(of, rule.claim)
        self._rule, self._paths = rule, rule.model.paths(0)
        self._free: list[int] = []

    def _new(self) -> _OpenSet:
        if not self._free:
            n = len(self._paths.n_draws)
            self._paths.grow(max(n, 64))
            self._free = list(range(n, len(self._paths.n_draws)))
        return _OpenSet(self._rule.stopping(), self._free.pop())

    def _advance(self, members: list[int], draws: list[list[Generation]], start: int) -> None:
        quality = self._of.quality_of(members, draws, start)[:, 0]
        similarity = self._of.similarity_of(draws, [range(start)] * len(members))
        sets = [self._open[i] for i in members]
        equal = np.full(len(sets), start)
        if self._rule.equal_texts:
            equal[:] = [
                one.seen.setdefault(text_key(one.draws[start].response), start) for one in sets
            ]
        for one, value in zip(sets, quality.tolist(), strict=True):
            one.qualities.append(value)
        rows = np.array([one.row for one in sets], dtype=np.intp)
        self._paths.update(rows, quality, similarity, equal)
        chances, arrival = self._rule.model.probabilities(self._paths, rows)
        for m, one in enumerate(sets):
            one.rule.update(chances[m], float(arrival[m]))

    def _found(self, one: _OpenSet) -> tuple[list[int], float]:
        return sorted(one.rule.members), one.rule.exit

    def _close(self, i: int, one: _OpenSet) -> None:
        super()._close(i, one)
        self._paths.clear(one.row)
        self._free.append(one.row)
