"""Sets of many prompts at once, as their draws arrive."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

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

__all__ = ["DrawScores", "ExitSets", "OpenSets", "ThresholdSets"]

Rule = TypeVar("Rule", SamplingRule, ExitRule)

# no number reaches a set score that is none: even one of +inf stops nothing
_ACCEPT_ALL = Configuration(np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class DrawScores:
    """Scores of draws, as calibration computed them.

    Parameters
    ----------
    quality, similarity : str, callable or object
        The scores; a quality that asks a generator knows it already.
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

    quality: Any
    similarity: Any
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


class _OpenSet(Generic[Rule]):
    """The set of a prompt that sampling has not stopped on."""

    __slots__ = ("draws", "qualities", "row", "rule", "texts")

    def __init__(self, rule: Rule, row: int = 0) -> None:
        self.rule: Rule = rule
        self.row = row
        self.draws: list[Generation] = []
        self.qualities: list[float] = []
        self.texts: list[int] = []


class OpenSets(ABC, Generic[Rule]):
    """The sets of many prompts; a subclass knows the rule.

    Parameters
    ----------
    prompts : CheckedPrompts
        The prompts.
    scores : DrawScores
        Scores of their draws.
    guaranteed, provenance_known : bool
        What each set says of itself.
    guarantee : {"pac", "marginal"}
        What is guaranteed.
    progress : progress bar
        Counts prompts.
    """

    def __init__(
        self,
        prompts: CheckedPrompts,
        scores: DrawScores,
        *,
        guaranteed: bool,
        provenance_known: bool,
        guarantee: str,
        progress: Any,
    ) -> None:
        self.sets: list[Any] = [None] * len(prompts)
        self._open: dict[int, _OpenSet[Rule]] = {}
        self._prompts, self._scores = prompts, scores
        self._guaranteed, self._provenance_known = guaranteed, provenance_known
        self._guarantee, self._progress = guarantee, progress
        self._n_drawn = 0

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

    def count_draw(self, i: int, draw: int, generation: Generation) -> None:
        """Show one draw more."""
        self._n_drawn += 1
        if not self._progress.disable:
            self._progress.set_postfix(draws=self._n_drawn, refresh=False)

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
        self._progress.update()
        return 0

    def _close(self, i: int, one: _OpenSet[Rule]) -> None:
        accepted, score = self._found(one)
        self.sets[i] = PredictionSet(
            prompt=self._prompts.prompts[i],
            responses=tuple(one.draws[j].response for j in accepted),
            quality=np.array([one.qualities[j] for j in accepted], dtype=np.float64),
            indices=np.array(accepted, dtype=np.intp),
            n_samples=one.rule.n_samples,
            set_score=score,
            stopped=one.rule.stopped,
            guaranteed=self._guaranteed,
            generations=tuple(one.draws[: one.rule.n_samples]),
            provenance_known=self._provenance_known,
            guarantee=self._guarantee,
        )


class ThresholdSets(OpenSets[SamplingRule]):
    """Algorithm 1 on many prompts.

    Parameters
    ----------
    configuration : Configuration or None
        The thresholds; None accepts all draws.
    set_score : SetScore
        The set function F.
    k_max, width : int
        The budget, and the largest one that calibration saw.
    prompts, scores, **options
        As in :class:`OpenSets`.
    """

    def __init__(
        self,
        configuration: Configuration | None,
        set_score: SetScore,
        k_max: int,
        width: int,
        prompts: CheckedPrompts,
        scores: DrawScores,
        **options: Any,
    ) -> None:
        super().__init__(prompts, scores, **options)
        self._configuration, self._set_score = configuration, set_score
        self._k_max, self._width = k_max, width

    def _new(self) -> _OpenSet[SamplingRule]:
        configuration = _ACCEPT_ALL if self._configuration is None else self._configuration
        precision = self._scores.provenance.precision
        return _OpenSet(
            SamplingRule(configuration, self._set_score, self._k_max, self._width, precision)
        )

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
    prompts, scores, **options
        As in :class:`OpenSets`.
    """

    def __init__(
        self,
        model: ExitModel,
        level: float,
        same_text: float | None,
        equal_texts: bool,
        prompts: CheckedPrompts,
        scores: DrawScores,
        **options: Any,
    ) -> None:
        super().__init__(prompts, scores, **options)
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
        for m, i in enumerate(members):
            one = self._open[i]
            one.qualities.append(float(quality[m]))
            one.texts.append(self._text(one, start, similarity[m]))
        rows = np.array([self._open[i].row for i in members], dtype=np.intp)
        first = np.array([self._open[i].texts[start] for i in members], dtype=np.intp)
        self._paths.update(rows, quality, similarity, first)
        text, arrival = self._model.probabilities(self._paths, rows)
        for m, i in enumerate(members):
            self._open[i].rule.update(text[m], float(arrival[m]))

    def _text(self, one: _OpenSet[ExitRule], draw: int, similarity: np.ndarray) -> int:
        """The draw in which the text of a draw occurs first."""
        if self._equal_texts:
            key = text_key(one.draws[draw].response)
            for earlier in range(draw):
                if text_key(one.draws[earlier].response) == key:
                    return one.texts[earlier]
        if self._same_text is not None:
            for earlier in range(draw):
                if one.texts[earlier] == earlier and float(similarity[earlier]) > self._same_text:
                    return earlier
        return draw

    def _found(self, one: _OpenSet[ExitRule]) -> tuple[list[int], float]:
        return sorted(one.rule.members), one.rule.exit

    def _close(self, i: int, one: _OpenSet[ExitRule]) -> None:
        super()._close(i, one)
        self._paths.clear(one.row)
        self._free.append(one.row)
