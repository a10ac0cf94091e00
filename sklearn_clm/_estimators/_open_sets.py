"""Sampling of many prompts at once, as their draws arrive."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np

from sklearn_clm._estimators._calibration import SamplerCalibration
from sklearn_clm._estimators._progress import Progress
from sklearn_clm._estimators._source import warn_of_repeated_draws
from sklearn_clm._exceptions import warn
from sklearn_clm._results import PredictionSet
from sklearn_clm.caching import DrawMemory
from sklearn_clm.calibration.words import counted
from sklearn_clm.generators import DrawQueue, Generation
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.policies.batched import BatchedRule, OpenSet
from sklearn_clm.scoring import get_set_score, similarity_tensor
from sklearn_clm.scoring._quality import QualityCalls, bind_quality

OnAccept: TypeAlias = Callable[[int, Generation], object]


def sample_sets(
    record: SamplerCalibration,
    prompts: CheckedPrompts,
    names: Sequence[Hashable | None],
    memory: DrawMemory,
    *,
    on_accept: OnAccept | None = None,
    n_jobs: int | None,
    verbose: int,
) -> list[PredictionSet]:
    """Sets of new prompts, by the rules of their groups.

    `names` are the groups of the prompts; draws that `memory` holds are not made again.
    """
    with Progress(verbose) as progress:
        progress.expect("predict", len(prompts), "prompt")
        sampling = Sampling(record, prompts, names, progress, n_jobs, on_accept)
        # the queue asks `decide` after each draw, so that no prompt waits for another
        queue = DrawQueue(
            prompts.prompts,
            record.k_max,
            seed=record.source.seed,
            decide=sampling.decide,
            on_draw=sampling.count_draw,
            chances=sampling.chances,
        )
        memory.serve(record.source.generator, queue, fingerprint=record.source.fingerprint)
    sets = sampling.closed

    if n_open := sum(a_set.needs_draws for a_set in sets):
        warn(
            f"the draws of {n_open} of {counted(len(prompts), 'prompt')} end before the rule "
            "stops: their sets need further draws (needs_draws), and have no guarantee. It is "
            "an average over all prompts, and not promised of the others alone."
        )
    # a calibration from a file holds no draws to compare with
    if record.data is not None:
        warn_of_repeated_draws([a_set.generations for a_set in sets], prompts, record.data)
    return sets


class Sampling:
    """Sets of many prompts, by the rules of their groups.

    The `record` of calibration holds the rules, and `names` are the groups of the prompts. `closed`
    holds the sets on which sampling has stopped, in the order of the prompts.
    """

    def __init__(
        self,
        record: SamplerCalibration,
        prompts: CheckedPrompts,
        names: Sequence[Hashable | None],
        progress: Progress,
        n_jobs: int | None,
        on_accept: OnAccept | None = None,
    ) -> None:
        self._prompts = prompts
        self._progress = progress
        self._on_accept = on_accept
        self.set_score = get_set_score(record.set_score)
        self.width = record.width
        self._quality = QualityCalls(bind_quality(record.quality, record.source.generator))
        self._similarity = record.similarity
        self._n_jobs = n_jobs
        self._names = names
        self._rules = record.in_use
        self._limits = record.source.limits(prompts, record.k_max).tolist()
        self._n_drawn = 0
        self._batched: dict[Hashable | None, BatchedRule] = {
            name: rule.batched(self) for name, rule in self._rules.items()
        }
        self._chances: dict[tuple[Hashable | None, int], tuple[float, ...]] = {}
        self._open: dict[int, OpenSet] = {}
        self.closed: list[Any] = [None] * len(prompts)

    def decide(self, arrived: list[tuple[int, list[Generation]]]) -> list[int]:
        """How many draws of each prompt are wanted now."""
        for i, draws in arrived:
            if i not in self._open:
                self._open[i] = self._batched[self._names[i]].new(i)
            self._open[i].draws.extend(draws)

        # several draws may have arrived at once, and the rule looks at one after the other
        waiting = [self._open[i] for i, _ in arrived]
        while waiting:
            # sets of one group that stand at the same draw share a call of the scores
            batches: dict[tuple[Hashable | None, int, int], list[OpenSet]] = {}
            for open_set in waiting:
                name = self._names[open_set.index]
                start = open_set.rule.n_samples
                # a draw that the rule may not look at is not scored, which can cost as much as
                # drawing
                stop = len(open_set.draws) if self._batched[name].all_draws else start + 1
                # equal numbers of draws make one array of scores
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
            # an exit policy accepts earlier draws late, so that all members are looked at
            texts, _ = self._batched[self._names[open_set.index]].outcome(open_set)
            for draw, *_ in texts:
                if (text := open_set.text_of(draw)) not in open_set.shown:
                    open_set.shown.add(text)
                    on_accept(open_set.index, open_set.draws[draw])

    def _draws_wanted(self, open_set: OpenSet) -> int:
        """Draws that a set wants; a stopped set is closed."""
        rule = open_set.rule
        limit = self._limits[open_set.index]
        # a table may end before the rule does
        needs_draws = not rule.done and rule.n_samples >= limit
        if rule.done or needs_draws:
            self._close(open_set, needs_draws=needs_draws)
            return 0
        # a rule that accepts all wants all at once; any other may stop after the next one
        all_draws = self._batched[self._names[open_set.index]].all_draws
        return min(all_draws or int(rule.n_samples) + 1, limit)

    def _close(self, open_set: OpenSet, *, needs_draws: bool) -> None:
        """Make the set of a prompt whose sampling has ended."""
        i = open_set.index
        name = self._names[i]
        rule = open_set.rule
        claim = self._rules[name].claim
        if needs_draws:
            n_draws = counted(self._limits[i], "draw")
            claim = claim.withdrawn(f"the rule wants more than its {n_draws}.")
        texts, score = self._batched[name].close(self._open.pop(i))
        self.closed[i] = PredictionSet.of_draws(
            self._prompts.prompts[i],
            open_set.draws[: rule.n_samples],
            open_set.qualities,
            texts,
            set_score=score,
            stopped=rule.stopped,
            guaranteed=claim.holds,
            claim=claim,
            needs_draws=needs_draws,
        )
        self._progress.advance("predict", draws=self._n_drawn)

    def chances(self, i: int, decided: int) -> tuple[float, ...]:
        """Estimated chances that draws from `decided` on are needed."""
        name = self._names[i]
        # they only decide what is drawn ahead, never what is returned
        chances = self._chances.get((name, decided))
        if chances is None:
            rule = self._rules[name]
            # the share of calibration prompts that took each further draw, among those that came so
            # far
            shares = rule.shares_of_draws[decided:]
            if shares and shares[0]:
                chances = tuple(share / shares[0] for share in shares)
            else:
                # no calibration prompt went so far, or it is unknown how many did: as if a coin
                # decided after each draw
                chances = tuple(0.5**k for k in range(rule.k_max - decided))
            self._chances[name, decided] = chances
        return chances

    def count_draw(self, i: int, draw: int, generation: Generation) -> None:
        """Count a draw, to be shown beside the prompts."""
        self._n_drawn += 1

    def quality_of(
        self, sets: Sequence[OpenSet], draws: Sequence[list[Generation]], start: int
    ) -> np.ndarray:
        """Quality of the draws from `start` on, (m, r)."""
        prompts = self._prompts.take([open_set.index for open_set in sets]).prompts
        return self._quality.matrix(prompts, draws, start=start, n_jobs=self._n_jobs)

    def similarity_of(
        self, draws: Sequence[list[Generation]], earlier: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """Similarity of last draws to n earlier ones, (m, n).

        Prompts may have different numbers of draws.
        """
        n = len(earlier[0])
        if not n:
            return np.empty((len(draws), 0))
        responses = []
        for row, earlier_draws in zip(draws, earlier):
            texts = [row[j].response for j in earlier_draws]
            texts.append(row[-1].response)
            responses.append(texts)
        tensor = similarity_tensor(self._similarity, responses, start=n, n_jobs=self._n_jobs)
        return np.asarray(tensor[:, 0, :n])
