"""Collections: draws of prompts with their scores and verdicts."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

import numpy as np

from sklearn_clm._estimators._precision import Noise, noise_of_draws
from sklearn_clm._estimators._progress import QUIET, Progress
from sklearn_clm._estimators._source import (
    DrawSource,
    rows_in_order,
    warn_of_dependent_draws,
)
from sklearn_clm._estimators._verdicts import Verdicts, shown_to
from sklearn_clm.caching import DrawMemory, VerdictsWanted
from sklearn_clm.calibration import CalibrationData, Provenance
from sklearn_clm.calibration.checks import check_budgets
from sklearn_clm.generators import Generation
from sklearn_clm.generators.draws import Prompt, text_key
from sklearn_clm.generators.identity import score_fingerprint
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.policies import Losses
from sklearn_clm.policies._losses import SetLosses
from sklearn_clm.policies.judging import Judging, judging_of
from sklearn_clm.policies.shift import Shift
from sklearn_clm.scoring import quality_matrix, similarity_tensor
from sklearn_clm.scoring._quality import QualityLike, bind_quality, warn_of_later_draws
from sklearn_clm.scoring._similarity import SimilarityLike, get_similarity, warn_of_script
from sklearn_clm.scoring.admission import get_admission
from sklearn_clm.scoring.protocols import Admission, Reference, Response
from sklearn_clm.scoring.verdicts import refuse_non_texts, warn_of_references

SCORES = ("quality", "similarity", "admission")
_KEPT = (
    "Draws made so far are kept in memory_: set_params to what was wanted, then fit, or collect, "
    "makes the others alone."
)
# so many draws of so many prompts are scored and judged before the others are paid for
TRIED_PROMPTS = 4
TRIED_DRAWS = 2
SCORED_AGAIN = 4  # prompts whose scores are computed alone as well, to measure their noise
_LOOKED_AT = 1000  # prompts in which suspicious draws are looked for


class CollectsDraws(Protocol):
    """A sampler, as a collection of its draws knows it."""

    @property
    def quality(self) -> QualityLike:
        """Quality of a draw."""

    @property
    def similarity(self) -> SimilarityLike:
        """Similarity of two responses."""

    @property
    def admission(self) -> str | Admission:
        """Who says what is admissible."""

    @property
    def judging(self) -> str | Judging:
        """How many draws are judged, and whether people audit."""

    @property
    def k_max(self) -> int | Sequence[int]:
        """Budgets of draws."""

    @property
    def n_jobs(self) -> int | None:
        """Number of threads."""

    @property
    def verbose(self) -> int:
        """Whether progress is shown."""

    @property
    def memory_(self) -> DrawMemory:
        """The draws that were made before."""


class Collection:
    """Draws with scores and verdicts, made at once or lazily.

    Draws are keyed, and the score of a draw depends on this draw and earlier draws alone. So draws
    that are made one by one equal those that are made all at once.

    The prompts are those at `rows`; `place` is the place of each in an order that does not depend
    on theirs. `shift` describes the weights that chose them. `data` holds all that is known at
    present: new draws are written into its arrays. `draws` are kept only if later verdicts or
    losses need them.
    """

    def __init__(
        self,
        sampler: CollectsDraws,
        source: DrawSource,
        prompts: CheckedPrompts,
        references: list[Reference],
        rows: np.ndarray,
        *,
        groups: list[Hashable] | None = None,
        shift: Shift | None = None,
    ) -> None:
        n = len(rows)
        k_max = check_budgets(sampler.k_max)[-1]
        self.source = source
        self.prompts = prompts.take(rows)
        self.indices = rows
        left_out = np.flatnonzero(source.has_learnt(prompts))
        self.left_out = prompts.take(left_out)
        self.groups = None if groups is None else [groups[i] for i in rows]
        self.groups_left_out = None if groups is None else [groups[i] for i in left_out]
        self.draws: list[list[Generation]] = [[] for _ in range(n)]
        self.responses: list[list[Response]] = [[] for _ in range(n)]

        audited = judging_of(sampler.judging).people is not None
        references = [references[i] for i in rows]
        self.place = np.argsort(rows_in_order(self.prompts, references))
        self.verdicts = Verdicts(
            sampler.admission, references, self.responses, sampler.n_jobs, k_max, of_model=audited
        )
        self._quality = sampler.quality
        self._similarity = sampler.similarity
        self._n_jobs = sampler.n_jobs
        self._verbose = sampler.verbose
        self._memory: DrawMemory = sampler.memory_

        self.n_draws = np.zeros(n, dtype=np.intp)
        self.limits = source.limits(self.prompts, k_max)
        if self.limits.max() < k_max:
            self.limits[:] = k_max  # more than there are: the generator refuses them
        self.noise: dict[str, Noise] = {}  # of scores that are given draws alone
        self._progress = QUIET

        provenance = Provenance(
            generator=source.fingerprint,
            seed=source.seed,
            k_max=k_max,
            shift=None if shift is None else shift.to_json(),
        )
        # filled in as draws arrive; a text is named by the draw in which it occurs first
        self.data = CalibrationData(
            np.zeros((n, k_max)),
            np.zeros((n, k_max, k_max)),
            np.full((n, k_max), -1, dtype=np.int8),
            provenance=provenance,
            texts=np.tile(np.arange(k_max), (n, 1)),
            prompts=self.prompts.digests,
        )

    def __getstate__(self) -> dict[str, Any]:
        # draws and responses stay: later verdicts may need them
        return {**self.__dict__, "_memory": None}

    def holds(self, data: CalibrationData) -> bool:
        """Whether data hold these draws; labels may differ."""
        collected = self.data
        # rows without prompts cannot be distinguished from others of equal scores
        if collected.prompts is None or data.prompts is None:
            return False
        # data may be truncated to fewer draws
        differences = collected.provenance.differences(replace(data.provenance, k_max=None))
        if differences or not np.array_equal(collected.prompts, data.prompts):
            return False
        return np.array_equal(collected.quality[:, : data.k_max], data.quality)

    @property
    def seed(self) -> int:
        """Seed of the draws."""
        return self.source.seed

    @property
    def has_holes(self) -> bool:
        """Whether some draws cannot be had."""
        return bool(np.any(self.limits < self.data.k_max))

    @contextmanager
    def drawing(self, memory: DrawMemory | None = None) -> Iterator[Progress]:
        """Make draws and verdicts on demand, and show their progress.

        Draws go through `memory`, which a collection that was pickled has left behind; None is the
        one that it has.
        """
        if memory is not None:
            self._memory = memory
        n_missing = self.data.quality.size - int(self.n_draws.sum())
        with Progress(self._verbose) as progress:
            progress.expect("collect", n_missing, "draw")
            self._progress = self.verdicts.progress = progress
            try:
                yield progress
            except Exception as error:
                self._name_prompt(error)
                raise
            finally:
                self._progress = self.verdicts.progress = QUIET

    def _name_prompt(self, error: Exception) -> None:
        """Add to an error of a judge which prompt failed."""
        if not hasattr(error, "asked_about"):
            return
        # the judge knows a pair; who calls it knows which prompt that was
        reference, response = error.asked_about
        for i, reference_of_prompt in enumerate(self.verdicts.references):
            aliases = (
                reference_of_prompt
                if isinstance(reference_of_prompt, (list, tuple, set))
                else [reference_of_prompt]
            )
            # a callable alias hides the reference that the judge was given
            may_be_it = any(alias is reference or callable(alias) for alias in aliases)
            if may_be_it and response in self.responses[i]:
                prompt = self.prompts.prompts[i]
                error.add_note(f"The prompt stands at position {self.indices[i]}: {prompt!r:.80}.")
                return

    def draw(self, rows: np.ndarray, n_draws: int | np.ndarray) -> None:
        """Make and score draws up to `n_draws` of each prompt."""
        counts = np.minimum(n_draws, self.limits[rows])
        starts = self.n_draws[rows]
        lacking = counts > starts
        rows = rows[lacking]
        counts = counts[lacking]
        starts = starts[lacking]
        if not len(rows):
            return
        part = self.prompts.take(rows)
        # from memory where they were made before
        new = self.source.draws(self._memory, part, counts, first=starts, progress=self._progress)
        # prompts with the same first and last new draw are scored together
        for start, stop in sorted(set(zip(starts.tolist(), counts.tolist()))):
            members = np.flatnonzero((starts == start) & (counts == stop))
            # a score may be rounded otherwise in another batch
            members = members[np.argsort(self.place[rows[members]])]
            rows_of_members = rows[members]
            draws = []
            for row, member in zip(rows_of_members.tolist(), members.tolist()):
                draws.append(self.draws[row] + new[member])
            with noting_kept_draws():
                self._score(rows_of_members, part.take(members).prompts, draws, start)

    def _score(
        self, rows: np.ndarray, prompts: Sequence[Prompt], draws: list[list[Generation]], start: int
    ) -> None:
        """Score and keep draws from `start` on."""
        stop = len(draws[0])
        data = self.data
        scorer = bind_quality(self._quality, self.source.generator)
        responses = [[draw.response for draw in row] for row in draws]
        n_scored = len(rows) * (stop - start)
        self._progress.expect("score", n_scored, "draw")
        data.quality[rows, start:stop] = quality_matrix(
            scorer, prompts, draws, start=start, n_jobs=self._n_jobs
        )
        data.similarity[rows, start:stop, :stop] = similarity_tensor(
            self._similarity, responses, start=start, n_jobs=self._n_jobs
        )
        self._progress.advance("score", n_scored)
        for i, drawn, texts in zip(rows.tolist(), draws, responses, strict=True):
            self.draws[i] = drawn
            self.responses[i][start:] = texts[start:]  # not twice after an interrupt
            # equal responses share a label, so that the first draw of each text stands for it
            draw_of_text: dict[object, int] = {}
            first_draws = []
            for draw, text in enumerate(texts):
                first_draws.append(draw_of_text.setdefault(text_key(text), draw))
            data.first[i, :stop] = first_draws
            self.n_draws[i] = stop

    def fill(self, n_draws: int, *, judges: bool, keeps: bool) -> None:
        """Make the first `n_draws` draws of each prompt.

        With `judges` all are judged. With `keeps` they are kept for later verdicts or losses.
        """
        all_rows = np.arange(self.data.n_prompts)
        # what may fail comes before what costs: a few draws, all draws, verdicts
        with self.drawing():
            self._try(n_draws, judges=judges)
            self.draw(all_rows, n_draws)
            self._check_draws(n_draws)
            if judges:
                self._judge(all_rows, n_draws)
        self.data = self._with_verdicts(self.data, self.data.labels)
        if not keeps:
            # memory has them, and the data their scores
            self.draws = [[] for _ in all_rows]
            # in place: the verdicts hold these same lists
            for texts in self.responses:
                texts.clear()
        # last of all: calls change the fingerprint of a function that records them
        self.data.provenance = replace(
            self.data.provenance,
            quality=score_fingerprint(self._quality),
            similarity=score_fingerprint(self._similarity),
            admission=score_fingerprint(self.verdicts.admission),
        )

    def _try(self, n_draws: int, *, judges: bool) -> None:
        """Score and judge a few draws before others are paid."""
        # the first prompts in the order of digests: the same whatever the order of rows
        rows = np.flatnonzero(self.place < TRIED_PROMPTS)
        n_tried = min(TRIED_DRAWS, n_draws)
        self.draw(rows, n_tried)
        responses = [self.responses[i] for i in rows.tolist()]
        references = [self.verdicts.references[i] for i in rows.tolist()]
        refuse_non_texts(self.verdicts.admission, references, chain.from_iterable(responses))

        # a judge that cannot work is found here; people are asked once all draws are made
        if judges and not self.verdicts.of_people:
            self._judge(rows, n_tried)
        with noting_kept_draws():
            if not judges:
                # tests will ask it later: one verdict, which is not kept
                self.verdicts.try_on(int(rows[0]))
            # draws that are made on demand come one by one: a similarity that fails is found on
            # first responses of several prompts, before the second draw of any is paid
            n, k_max = self.data.quality.shape
            compares_later = n_draws == 1 and k_max > 1
            if compares_later and n > 1:
                similarity_tensor(self._similarity, [[row[0] for row in responses]])

    def _judge(self, rows: np.ndarray, n_draws: int) -> None:
        """Judge the first draws of prompts, equal texts once."""
        draws = np.arange(n_draws)
        is_made = draws < self.n_draws[rows, np.newaxis]
        is_unknown = self.verdicts.labels[rows, :n_draws] < 0
        is_text = self.data.first[rows, :n_draws] == draws  # not a copy of an earlier draw
        places, draws_to_judge = np.nonzero(is_made & is_unknown & is_text)
        try:
            with noting_kept_draws():
                self.verdicts.ask(rows[places], draws_to_judge)
        except VerdictsWanted as error:  # people are asked for all verdicts at once
            raise VerdictsWanted(error.wanted, len(error.wanted)) from None

    def _with_verdicts(self, data: CalibrationData, labels: np.ndarray) -> CalibrationData:
        """Data with `labels`, unknown ones replaced by verdicts."""
        judged = np.take_along_axis(self.verdicts.labels, data.first, axis=1)
        # labels that came with the data stand above what the judge said of equal texts
        labels = np.where(labels >= 0, labels, judged)
        labeled = data.with_labels(labels, data.provenance.admission)
        labeled.n_draws = np.minimum(self.n_draws, data.k_max)
        return labeled

    def with_known_labels(self, data: CalibrationData, *, lazily: bool) -> CalibrationData:
        """Data with all labels, or `lazily` with known labels.

        Verdicts of people are looked up anew: they may have changed their minds.
        """
        labels = data.labels
        # labels of an unknown judge stay
        if data.provenance.admission is not None and self.verdicts.of_people:
            self.verdicts.forget()
            labels = np.full_like(labels, -1)
            if not lazily:
                self._judge(np.arange(data.n_prompts), data.k_max)
        return self._with_verdicts(data, labels)

    def set_losses(self, losses: Losses) -> SetLosses:
        """The other losses of sets of these draws."""
        if any(reference is None for reference in self.verdicts.references):
            raise ValueError(
                "admissions were functions, which a pickle leaves behind, and losses are given "
                "them: call collect again."
            )
        self._draw_again()
        return SetLosses(losses.functions, self.prompts, self.verdicts.references, self.draws)

    def audited_by(self, people: str | Admission) -> Verdicts:
        """Verdicts of people who audit the admission, on these draws."""
        references = shown_to(get_admission(people), self.prompts, self.verdicts.references)
        self._draw_again()
        responses = [[draw.response for draw in row] for row in self.draws]
        return Verdicts(people, references, responses, self._n_jobs, self.data.k_max)

    def _draw_again(self) -> None:
        """Restore the draws, and make missing ones again."""
        # they were not kept, since nothing lazy needed them: memory has them, or they are made anew
        if not all(self.draws):
            self.draws = self.source.draws(self._memory, self.prompts, self.n_draws)

    def _check_draws(self, n_draws: int) -> None:
        """Refuse empty responses; warn of unsuitable draws, references and scores."""
        generator = self.source.generator
        draws = self.draws
        responses = self.responses
        if all(_is_blank(text) for row in responses for text in row):
            raise ValueError(
                f"{type(generator).__name__} returned empty responses for all {len(responses)} "
                "prompts; wanted text. Look at the length it may draw, and at stop strings, if any."
            )
        warn_of_references(self.verdicts.admission, self.verdicts.references)
        some = slice(_LOOKED_AT)
        warn_of_script("similarity", self._similarity, chain.from_iterable(responses[some]))
        warn_of_dependent_draws(generator, draws[some])
        # the last prompts: the first ones were scored in a small batch of their own
        again = np.argsort(self.place)[-SCORED_AGAIN:]
        prompts = self.prompts.take(again).prompts
        tried = self.data.take(again)
        draws_of_tried = [draws[i] for i in again.tolist()]
        quality = bind_quality(self._quality, generator)
        similarity = self._similarity
        # where scores change with later draws, they differ for another reason than rounding
        all_made = self.n_draws.min() == self.data.k_max
        if not (all_made and warn_of_later_draws(quality, prompts, draws_of_tried, tried.quality)):
            self.noise = noise_of_draws(
                quality, get_similarity(similarity), prompts, draws_of_tried, tried
            )


def _is_blank(response: object) -> bool:
    """Whether a response is text, and says nothing."""
    return isinstance(response, str) and not response.strip()


@contextmanager
def noting_kept_draws() -> Iterator[None]:
    """Add to an error that the draws are kept."""
    try:
        yield
    except VerdictsWanted:
        raise  # people are asked, nothing has failed
    except Exception as error:
        if _KEPT not in getattr(error, "__notes__", ()):
            error.add_note(_KEPT)
        raise
