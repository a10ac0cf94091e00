"""Sets of many prompts at once, as their draws arrive."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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

    def quality_of(
        self, members: Sequence[int], draws: Sequence[list[Generation]], start: int
    ) -> np.ndarray:
        """Quality of the draws from `start` on, in the precision that was calibrated.

        Parameters
        ----------
        members : sequence of int, length m
            Positions of the prompts.
        draws : sequence of m lists of length start + r
            All their draws.
        start : int
            First draw to score.

        Returns
        -------
        ndarray of shape (m, r)
        """
        quality = np.empty((len(members), len(draws[0]) - start))
        new = [m for m, i in enumerate(members) if i not in self.known]
        if new:
            quality[new] = quality_matrix(
                self.quality,
                self.prompts.take([members[m] for m in new]).prompts,
                [draws[m] for m in new],
                start=start,
                n_jobs=self.n_jobs,
            )
        if len(new) < len(members) and self.data is not None:
            stop = start + quality.shape[1]
            for m in set(range(len(members))).difference(new):
                quality[m] = self.data.quality[self.known[members[m]], start:stop]
        return self.provenance.rounded(quality, "quality")

    def similarity_of(
        self,
        members: Sequence[int],
        draws: Sequence[list[Generation]],
        earlier: Sequence[Sequence[int]],
    ) -> np.ndarray:
        """Similarity of each prompt's last draw to some of its earlier ones.

        Parameters
        ----------
        members, draws
            As in `quality_of`; prompts may have different numbers of draws.
        earlier : sequence of m sequences of n int
            Which earlier draws.

        Returns
        -------
        ndarray of shape (m, n)
        """
        n = len(earlier[0])
        alike = np.empty((len(members), n))
        new = [m for m, i in enumerate(members) if i not in self.known]
        if new:
            responses = [[draws[m][j].response for j in (*earlier[m], -1)] for m in new]
            tensor = similarity_tensor(self.similarity, responses, start=n, n_jobs=self.n_jobs)
            alike[new] = tensor[:, 0, :n]
        if len(new) < len(members) and self.data is not None:
            for m in set(range(len(members))).difference(new):
                row = self.data.similarity[self.known[members[m]], len(draws[m]) - 1]
                alike[m] = row[list(earlier[m])]
        return self.provenance.rounded(alike, "similarity")


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
            self._advance(waiting)
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
    def _advance(self, members: list[int]) -> None:
        """Let the rules of some prompts see their next draws."""

    @abstractmethod
    def _found(self, one: _OpenSet[Rule]) -> tuple[list[int], float]:
        """The accepted draws of a closed set, and its score."""

    def _at_draws(
        self, members: list[int], *, all_draws: bool = False
    ) -> Iterator[tuple[int, list[int], list[list[Generation]]]]:
        """The next draw, or the first of all new ones, and who has it, with the draws up to it."""
        groups: dict[tuple[int, int], list[int]] = {}
        for i in members:
            one = self._open[i]
            # a draw that the rule may not look at is not scored, which can cost as much as drawing
            stop = len(one.draws) if all_draws else one.rule.n_samples + 1
            groups.setdefault((one.rule.n_samples, stop), []).append(i)
        for (start, stop), group in groups.items():
            yield start, group, [self._open[i].draws[:stop] for i in group]

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
        self._unlike = [0.0] * k_max  # where similarity decides nothing

    def _new(self) -> _OpenSet[SamplingRule]:
        configuration = _ACCEPT_ALL if self._configuration is None else self._configuration
        precision = self._scores.provenance.precision
        return _OpenSet(
            SamplingRule(configuration, self._set_score, self._k_max, self._width, precision)
        )

    def _advance(self, members: list[int]) -> None:
        configuration = self._configuration
        if configuration is None:
            for start, group, draws in self._at_draws(members, all_draws=True):
                for i, row in zip(group, self._scores.quality_of(group, draws, start).tolist()):
                    for quality in row:
                        self._update(i, quality, self._unlike)
            return
        # what the rule cannot look at is not compared: draws of too low a quality, and any of
        # them with draws that were rejected
        compared: dict[int, list[tuple[int, float]]] = {}
        for start, group, draws in self._at_draws(members):
            for i, (quality,) in zip(group, self._scores.quality_of(group, draws, start).tolist()):
                n = len(self._open[i].rule.accepted)
                if n and configuration.similarity < np.inf and quality >= configuration.quality:
                    compared.setdefault(n, []).append((i, quality))
                else:
                    self._update(i, quality, self._unlike)
        for pairs in compared.values():
            group = [i for i, _ in pairs]
            rules = [self._open[i].rule for i in group]
            draws = [
                self._open[i].draws[: rule.n_samples + 1]
                for i, rule in zip(group, rules, strict=True)
            ]
            accepted = [rule.accepted for rule in rules]
            alike = self._scores.similarity_of(group, draws, accepted).tolist()
            for (i, quality), rule, values in zip(pairs, rules, alike, strict=True):
                similarity = [0.0] * rule.n_samples
                for earlier, value in zip(rule.accepted, values, strict=True):
                    similarity[earlier] = value
                self._update(i, quality, similarity)

    def _update(self, i: int, quality: float, similarity: Sequence[float]) -> None:
        one = self._open[i]
        one.qualities.append(quality)
        one.rule.update(quality, similarity)

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

    def _advance(self, members: list[int]) -> None:
        for start, group, draws in self._at_draws(members):
            self._advance_together(group, draws, start)

    def _advance_together(
        self, members: list[int], draws: list[list[Generation]], start: int
    ) -> None:
        quality = self._scores.quality_of(members, draws, start)[:, 0]
        similarity = self._scores.similarity_of(members, draws, [range(start)] * len(members))
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
