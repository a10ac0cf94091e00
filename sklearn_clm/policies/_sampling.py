"""Sets of many prompts at once, as their draws arrive."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm._prompts import CheckedPrompts
from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    ExitModel,
    ExitRule,
    Provenance,
    SamplingRule,
    SetScore,
)
from sklearn_clm.calibration._lazy_judging import text_key
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import quality_matrix, similarity_tensor
from sklearn_clm.scoring._protocols import DrawScorer, PairwiseSimilarity, Quality, Similarity

__all__ = [
    "AnyOpenSets",
    "DrawScores",
    "ExitSets",
    "Marks",
    "OpenSets",
    "QualityLike",
    "SetsByRule",
    "SimilarityLike",
    "ThresholdSets",
    "text_of_draw",
]

QualityLike: TypeAlias = str | Quality | DrawScorer | BaseEstimator
SimilarityLike: TypeAlias = str | Similarity | PairwiseSimilarity
Rule = TypeVar("Rule", SamplingRule, ExitRule)

# no number reaches a set score that is none: even one of +inf stops nothing
_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class DrawScores:
    """Scores of draws, as calibration computed them.

    Parameters
    ----------
    quality : callable or DrawScorer
        The quality; one that asks a generator knows it already.
    similarity : str, callable or object
        The similarity.
    set_score : SetScore
        The set function F.
    width : int
        The largest budget that calibration saw.
    prompts : CheckedPrompts
        The prompts.
    provenance : Provenance
        Of the calibration: its precision is that of the thresholds.
    n_jobs : int or None
        Processes or threads for scores.
    data : CalibrationData or None
        Where the scores of some prompts are known.
    known : mapping of int to int
        The row in `data` of those prompts.
    """

    quality: Quality | DrawScorer
    similarity: SimilarityLike
    set_score: SetScore
    width: int
    prompts: CheckedPrompts
    provenance: Provenance
    n_jobs: int | None
    data: CalibrationData | None
    known: Mapping[int, int]

    def of(
        self,
        members: list[int],
        draws: list[list[Generation]],
        start: int,
        *,
        similarity: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Quality (m, r) of the draws from `start` on, and similarity (m, r, start + r) to all.

        Parameters
        ----------
        members : list of int, length m
            Positions of the prompts.
        draws : list of m lists of length start + r
            All their draws.
        start : int
            First draw to score.
        similarity : bool
            Whether it is looked at; zeros otherwise.

        Returns
        -------
        quality, similarity : ndarray
            In the precision that was calibrated.
        """
        stop = len(draws[0])
        rows = [self.known.get(i, -1) for i in members]
        if self.data is not None and min(rows) >= 0:
            of_data = self.data.similarity[rows, start:stop, :stop]
            return self.data.quality[rows, start:stop], of_data
        if max(rows) >= 0:  # each part by itself
            parts = [
                self.of([i], [row], start, similarity=similarity)
                for i, row in zip(members, draws, strict=True)
            ]
            return np.concatenate([q for q, _ in parts]), np.concatenate([s for _, s in parts])
        quality = quality_matrix(
            self.quality,
            self.prompts.take(members).prompts,
            draws,
            start=start,
            n_jobs=self.n_jobs,
        )
        alike = np.zeros((len(members), stop - start, stop))
        if similarity:
            responses = [[draw.response for draw in row] for row in draws]
            alike = similarity_tensor(self.similarity, responses, start=start, n_jobs=self.n_jobs)
        return (
            self.provenance.rounded(quality, "quality"),
            self.provenance.rounded(alike, "similarity"),
        )


def text_of_draw(
    texts: np.ndarray, first: np.ndarray, similarity: np.ndarray, same_text: float | None
) -> np.ndarray:
    """Draw in which the text of the next draw occurs first, near duplicates counted as one.

    Parameters
    ----------
    texts : ndarray of int, shape (m, j)
        The same for the draws before, which are j for each prompt.
    first : ndarray of int, shape (m,)
        Draw that holds an equal response first; j where there is none.
    similarity : ndarray of shape (m, at least j)
        Similarity to the draws before.
    same_text : float or None
        Similarity above which a response repeats the earliest such text; clusters do not chain.

    Returns
    -------
    ndarray of int, shape (m,)
    """
    j = texts.shape[1]
    own = np.concatenate((texts, np.full((len(texts), 1), j)), axis=1)
    found = own[np.arange(len(texts)), first]
    if same_text is None:
        return found
    alike = (texts == np.arange(j)) & (similarity[:, :j].astype(np.float64) > same_text)
    # a column for none of them
    alike = np.concatenate((alike, np.ones((len(texts), 1), dtype=bool)), axis=1)
    return np.where(first == j, alike.argmax(axis=1), found)


class Progress(Protocol):
    """A progress bar."""

    disable: bool

    def update(self) -> object: ...

    def set_postfix(self, *, refresh: bool, draws: int) -> None: ...


@dataclass(frozen=True)
class Marks:
    """What each set says of itself, and what shows that it is done.

    Parameters
    ----------
    guaranteed, provenance_known, guarantee, group, approximate
        As in :class:`~sklearn_clm.PredictionSet`.
    progress : progress bar
        Counts prompts.
    """

    guaranteed: bool
    provenance_known: bool
    guarantee: str
    progress: Progress
    group: Hashable | None = None
    approximate: bool = False


class _OpenSet(Generic[Rule]):
    """The set of a prompt that sampling has not stopped on."""

    __slots__ = ("draws", "qualities", "row", "rule", "seen", "texts")

    def __init__(self, rule: Rule, row: int = 0) -> None:
        self.rule: Rule = rule
        self.row = row
        self.draws: list[Generation] = []
        self.qualities: list[float] = []
        self.texts: list[int] = []
        self.seen: dict[object, int] = {}


class OpenSets(ABC, Generic[Rule]):
    """The sets of many prompts; a subclass knows the rule.

    Parameters
    ----------
    scores : DrawScores
        The prompts, and scores of their draws.
    marks : Marks
        What each set says of itself.
    """

    def __init__(self, scores: DrawScores, marks: Marks) -> None:
        self.closed: dict[int, PredictionSet] = {}
        self._open: dict[int, _OpenSet[Rule]] = {}
        self._scores, self._marks = scores, marks

    def decide(self, arrived: list[tuple[int, list[Generation]]]) -> list[int]:
        """How many draws of each of these prompts are wanted, now that more have arrived."""
        for i, draws in arrived:
            one = self._open.get(i)
            if one is None:
                one = self._open[i] = self._new()
            one.draws.extend(draws)
        waiting = [i for i, _ in arrived]
        while waiting:
            groups: dict[tuple[int, int], list[int]] = {}
            for i in waiting:
                groups.setdefault(self._next_draws(self._open[i]), []).append(i)
            for (start, stop), members in groups.items():
                self._advance(members, start, stop)
            waiting = [
                i
                for i in waiting
                if not self._open[i].rule.done
                and len(self._open[i].draws) > self._open[i].rule.n_samples
            ]
        return [self._wanted(i) for i, _ in arrived]

    @abstractmethod
    def _new(self) -> _OpenSet[Rule]:
        """The set of a prompt before its first draw."""

    @abstractmethod
    def _advance(self, members: list[int], start: int, stop: int) -> None:
        """Let the rules of some prompts see draws `start` to ``stop - 1``."""

    @abstractmethod
    def _found(self, one: _OpenSet[Rule]) -> tuple[list[int], float]:
        """The accepted draws of a closed set, and its score."""

    def _next_draws(self, one: _OpenSet[Rule]) -> tuple[int, int]:
        # a draw that the rule may not look at is not scored, which can cost as much as drawing
        return one.rule.n_samples, one.rule.n_samples + 1

    def _wanted(self, i: int) -> int:
        one = self._open[i]
        if not one.rule.done:
            return one.rule.n_samples + 1
        self._close(i, self._open.pop(i))
        self._marks.progress.update()
        return 0

    def _close(self, i: int, one: _OpenSet[Rule]) -> None:
        accepted, score = self._found(one)
        self.closed[i] = PredictionSet(
            prompt=self._scores.prompts.prompts[i],
            responses=tuple(one.draws[j].response for j in accepted),
            quality=np.array([one.qualities[j] for j in accepted], dtype=np.float64),
            indices=np.array(accepted, dtype=np.intp),
            n_samples=one.rule.n_samples,
            set_score=score,
            stopped=one.rule.stopped,
            guaranteed=self._marks.guaranteed,
            generations=tuple(one.draws[: one.rule.n_samples]),
            provenance_known=self._marks.provenance_known,
            guarantee=self._marks.guarantee,
            group=self._marks.group,
            approximate=self._marks.approximate,
        )


class ThresholdSets(OpenSets[SamplingRule]):
    """Algorithm 1 on many prompts.

    Parameters
    ----------
    configuration : Configuration or None
        The thresholds; None accepts all draws.
    k_max : int
        The budget.
    scores, marks
        As in :class:`OpenSets`.
    """

    def __init__(
        self, configuration: Configuration | None, k_max: int, scores: DrawScores, marks: Marks
    ) -> None:
        super().__init__(scores, marks)
        self._configuration, self._k_max = configuration, k_max

    def _new(self) -> _OpenSet[SamplingRule]:
        configuration = _ACCEPT_ALL if self._configuration is None else self._configuration
        of = self._scores
        rule = SamplingRule(
            configuration, of.set_score, self._k_max, of.width, of.provenance.precision
        )
        return _OpenSet(rule)

    def _next_draws(self, one: _OpenSet[SamplingRule]) -> tuple[int, int]:
        if self._configuration is None:
            return one.rule.n_samples, len(one.draws)
        return super()._next_draws(one)

    def _advance(self, members: list[int], start: int, stop: int) -> None:
        draws = [self._open[i].draws[:stop] for i in members]
        rejects = self._configuration is not None and self._configuration.similarity < np.inf
        quality, similarity = self._scores.of(members, draws, start, similarity=rejects)
        for m, i in enumerate(members):
            one = self._open[i]
            for r in range(stop - start):
                one.qualities.append(float(quality[m, r]))
                one.rule.update(one.qualities[-1], similarity[m, r])

    def _wanted(self, i: int) -> int:
        wanted = super()._wanted(i)
        return self._k_max if wanted and self._configuration is None else wanted

    def _found(self, one: _OpenSet[SamplingRule]) -> tuple[list[int], float]:
        return one.rule.accepted, one.rule.score


class ExitSets(OpenSets[ExitRule]):
    """The exit policy on many prompts.

    Parameters
    ----------
    model : ExitModel
        What was learnt.
    level : float
        u-hat.
    same_text : float or None
        Similarity above which a response repeats an earlier text.
    equal_texts : bool
        Whether equal responses are one text.
    scores, marks
        As in :class:`OpenSets`.
    """

    def __init__(
        self,
        model: ExitModel,
        level: float,
        same_text: float | None,
        equal_texts: bool,
        scores: DrawScores,
        marks: Marks,
    ) -> None:
        super().__init__(scores, marks)
        self._model, self._level = model, level
        self._same_text, self._equal_texts = same_text, equal_texts
        self._paths = model.paths(0)
        self._free: list[int] = []

    def _new(self) -> _OpenSet[ExitRule]:
        if not self._free:
            n = len(self._paths.n_draws)
            self._paths.grow(max(n, 64))
            self._free = list(range(n, len(self._paths.n_draws)))
        rule = ExitRule(self._level, self._model.rho, self._model.k_max)
        return _OpenSet(rule, self._free.pop())

    def _advance(self, members: list[int], start: int, stop: int) -> None:
        draws = [self._open[i].draws[:stop] for i in members]
        quality, similarity = self._scores.of(members, draws, start, similarity=True)
        quality, similarity = quality[:, 0], similarity[:, 0]
        sets = [self._open[i] for i in members]
        before = np.array([one.texts for one in sets], dtype=np.intp).reshape(len(sets), start)
        first = np.array([self._first(one, start) for one in sets], dtype=np.intp)
        first = text_of_draw(before, first, similarity, self._same_text)
        for one, text, value in zip(sets, first.tolist(), quality.tolist(), strict=True):
            one.qualities.append(value)
            one.texts.append(text)
        rows = np.array([one.row for one in sets], dtype=np.intp)
        self._paths.update(rows, quality, similarity, first)
        chances, arrival = self._model.probabilities(self._paths, rows)
        for m, one in enumerate(sets):
            one.rule.update(chances[m], float(arrival[m]))

    def _first(self, one: _OpenSet[ExitRule], draw: int) -> int:
        """The first draw with an equal response."""
        if not self._equal_texts:
            return draw
        return one.seen.setdefault(text_key(one.draws[draw].response), draw)

    def _found(self, one: _OpenSet[ExitRule]) -> tuple[list[int], float]:
        return sorted(one.rule.members), one.rule.exit

    def _close(self, i: int, one: _OpenSet[ExitRule]) -> None:
        super()._close(i, one)
        self._paths.clear(one.row)
        self._free.append(one.row)


AnyOpenSets: TypeAlias = OpenSets[SamplingRule] | OpenSets[ExitRule]


class SetsByRule:
    """The sets of many prompts, each by one of several rules.

    Parameters
    ----------
    parts : list of OpenSets
        For each rule.
    of_prompt : list of int
        Which of them each prompt belongs to.
    progress : progress bar
        Shows the number of draws.
    """

    def __init__(
        self, parts: list[AnyOpenSets], of_prompt: Sequence[int], progress: Progress
    ) -> None:
        self._parts, self._of_prompt, self._progress = parts, of_prompt, progress
        self._n_drawn = 0

    @property
    def sets(self) -> list[PredictionSet]:
        """The sets, once all are closed."""
        return [self._parts[part].closed[i] for i, part in enumerate(self._of_prompt)]

    def decide(self, arrived: list[tuple[int, list[Generation]]]) -> list[int]:
        """How many draws of each of these prompts are wanted, now that more have arrived."""
        wanted: dict[int, int] = {}
        for p, part in enumerate(self._parts):
            own = [(i, draws) for i, draws in arrived if self._of_prompt[i] == p]
            if own:
                wanted.update(zip((i for i, _ in own), part.decide(own), strict=True))
        return [wanted[i] for i, _ in arrived]

    def count_draw(self, i: int, draw: int, generation: Generation) -> None:
        """Show one draw more."""
        self._n_drawn += 1
        if not self._progress.disable:
            self._progress.set_postfix(draws=self._n_drawn, refresh=False)
