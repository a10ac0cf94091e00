"""What a calibration looks at: draws with their scores and verdicts, groups and weights."""

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from sklearn_clm._exceptions import warn
from sklearn_clm.caching import DrawMemory, VerdictsWanted
from sklearn_clm.calibration import CalibrationData, Provenance, equal_texts
from sklearn_clm.calibration._arrays import array_of_blocks, refuse_unknown
from sklearn_clm.calibration._data import describe_repetitions, refuse_missing_draws, row_digests
from sklearn_clm.generators import DrawQueue, Generation
from sklearn_clm.generators._base import is_trainable
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.policies._drawing import LazyDraws
from sklearn_clm.policies._groups import Groups, groups_of, lost_groups
from sklearn_clm.policies._judging import Verdicts, noting_lost_verdicts
from sklearn_clm.policies._risks import Losses, RiskTest, SetLosses
from sklearn_clm.policies._sampling import QualityLike, SimilarityLike
from sklearn_clm.policies._shift import CovariateShift, Shift
from sklearn_clm.policies._source import DrawSource, naming_position, progress_bar
from sklearn_clm.scoring import (
    admission_matrix,
    quality_matrix,
    similarity_tensor,
    warn_of_references,
)
from sklearn_clm.scoring._identity import score_fingerprint
from sklearn_clm.scoring._protocols import Admission, Reference, Response
from sklearn_clm.scoring._quality import bind_quality, warn_of_later_draws
from sklearn_clm.scoring._similarity import warn_of_script

_MANY_CUT = 0.2
SCORES = ("quality", "similarity", "admission")
OWN_CODE = (
    "a function of yours that was edited or moved, or that remembers what it was asked, is another "
    "one, unless it has a fingerprint()"
)


@dataclass(frozen=True)
class CalibrationPrompts:
    """The prompts that calibrate, and what is known of them."""

    prompts: CheckedPrompts
    indices: np.ndarray  # their positions among the prompts that were given
    groups: list[Hashable] | None = None  # that were given with them
    shift: Shift | None = None  # that they were weighted for
    weights: np.ndarray | None = None  # where they are tested by betting

    @classmethod
    def of(
        cls,
        prompts: CheckedPrompts,
        rest: np.ndarray,
        *,
        groups: list[Hashable] | None,
        shift: CovariateShift | None,
        weights: np.ndarray | None,
        seed: int,
    ) -> "CalibrationPrompts":
        """Those of `rest`; of prompts with weights, the ones that `shift` keeps."""
        found = None
        if shift is not None and weights is not None:
            digests = prompts.take(rest).digests()
            rows, found, weights = shift.applied(weights[rest], digests, seed)
            rest = rest[rows]
        own = None if groups is None else [groups[i] for i in rest]
        return cls(prompts.take(rest), rest, own, found, weights)


@dataclass(frozen=True)
class CollectedDraws:
    """The draws that an estimator has collected."""

    source: DrawSource
    asked: CalibrationPrompts
    data: CalibrationData
    verdicts: Verdicts | None = None  # whom to ask for labels that the data lack
    outcomes: SetLosses | None = None  # computes other losses of sets of these draws
    lazily: LazyDraws | None = None  # the draws, where they are made as tests ask for them

    def are(self, data: CalibrationData) -> bool:
        """Whether data hold these draws, all or the first, of any labels."""
        own, given = self.data, data
        if own.prompts is None or given.prompts is None:
            return False
        other = own.provenance.differences(replace(given.provenance, k_max=None))
        return (
            not other
            and np.array_equal(own.prompts, given.prompts)
            and np.array_equal(own.quality[:, : given.k_max], given.quality, equal_nan=True)
        )

    def as_drawn(self, data: CalibrationData) -> CalibrationData:
        """The data with the draws that were made by now."""
        if self.lazily is None:
            return data
        labels = np.full(self.lazily.quality.shape, -1, dtype=np.int8)
        labels[:, : data.k_max] = data.labels
        drawn = self.lazily.data(labels, replace(data.provenance, k_max=labels.shape[1]))
        return drawn if data.k_max == drawn.k_max else drawn.truncate(data.k_max)

    def renewed(self, data: CalibrationData, *, everything: bool) -> CalibrationData:
        """The data with draws as they are now, and verdicts as in :meth:`Verdicts.renewed`."""
        data = self.as_drawn(data)
        if self.verdicts is None or data.provenance.admission is None:
            return data  # labels from elsewhere stay
        return self.verdicts.renewed(data, everything=everything)


@dataclass(frozen=True)
class Collector:
    """Collects the draws of prompts, with their scores and verdicts."""

    quality: QualityLike
    similarity: SimilarityLike
    admission: str | Admission
    judges_all: bool  # at once, and not when a test asks for it
    keeps_draws: bool  # for other losses
    memory: DrawMemory  # the draws that were made in this process
    n_jobs: int | None
    verbose: int

    def all_draws(
        self,
        source: DrawSource,
        asked: CalibrationPrompts,
        references: list[Reference],
        n_draws: int,
        file: str | os.PathLike[str] | None,
    ) -> CollectedDraws:
        """All draws of the prompts; similarities go to a file."""
        prompts, references = asked.prompts, [references[i] for i in asked.indices]
        shape = len(prompts), n_draws
        quality, texts = np.empty(shape), np.empty(shape, dtype=np.intp)
        labels = np.full(shape, -1, dtype=np.int8)
        answers: list[list[Response]] = []
        kept: list[list[Generation]] = []
        scorer = bind_quality(self.quality, source.generator)
        of_people = Verdicts(self.admission, references, [], None).of_people
        asks_later = not self.judges_all or of_people

        def similarities() -> Iterator[tuple[slice, np.ndarray]]:
            # block by block, as all draws of many prompts take more memory than their scores
            for rows, draws in source.draw_blocks(self.memory, prompts, n_draws, self.verbose):
                responses = [[draw.response for draw in row] for row in draws]
                if not rows.start:
                    source.warn_of_unkeyed_draws(prompts.take([0]), draws[0])
                    self._check_draws(source.generator, references[rows], draws)
                if asks_later:
                    answers.extend(responses)
                if self.judges_all:
                    try:
                        with noting_lost_verdicts(self.admission, references[rows]):
                            labels[rows] = admission_matrix(
                                self.admission, references[rows], responses, n_jobs=self.n_jobs
                            )
                    except VerdictsWanted as error:  # and those of the blocks to come
                        n_later = n_draws * (len(prompts) - rows.stop)
                        raise VerdictsWanted(error.wanted, len(error.wanted) + n_later) from None
                if self.keeps_draws:
                    kept.extend(draws)
                part = prompts.prompts[rows]
                quality[rows] = quality_matrix(scorer, part, draws, n_jobs=self.n_jobs)
                if not rows.start:
                    warn_of_later_draws(scorer, part, draws, quality)
                texts[rows] = equal_texts(responses)
                yield rows, similarity_tensor(self.similarity, responses, n_jobs=self.n_jobs)
                del draws, responses  # before the next ones are made

        with naming_position(prompts):
            similarity = array_of_blocks((*shape, n_draws), similarities(), file)
        data = CalibrationData(
            quality,
            similarity,
            labels,
            provenance=self._provenance(source, asked, n_draws),
            texts=texts,
            prompts=prompts.digests(),
        )
        return CollectedDraws(
            source,
            asked,
            data,
            verdicts=Verdicts(self.admission, references, answers, self.n_jobs)
            if asks_later
            else None,
            outcomes=SetLosses(prompts, references, kept) if self.keeps_draws else None,
        )

    def first_draws(
        self,
        source: DrawSource,
        asked: CalibrationPrompts,
        references: list[Reference],
        n_draws: int,
    ) -> CollectedDraws:
        """A first draw of each prompt; tests ask for others."""
        prompts, references = asked.prompts, [references[i] for i in asked.indices]
        lazily = LazyDraws(prompts, n_draws, source.seed)
        with self.making(source, lazily):
            lazily.make(np.arange(len(prompts)), 1)
        source.warn_of_unkeyed_draws(prompts.take([0]), lazily.draws[0])
        self._check_draws(source.generator, references, lazily.draws)
        labels = np.full((len(prompts), n_draws), -1, dtype=np.int8)
        return CollectedDraws(
            source,
            asked,
            lazily.data(labels, self._provenance(source, asked, n_draws)),
            verdicts=Verdicts(self.admission, references, lazily.responses, self.n_jobs, n_draws),
            lazily=lazily,
        )

    @contextmanager
    def making(self, source: DrawSource, lazily: LazyDraws | None) -> Iterator[None]:
        """Let draws that tests ask for be made."""
        if lazily is None:
            yield
            return
        left = lazily.quality.size - int(lazily.n_draws.sum())
        with progress_bar(self.verbose, left, "draw") as progress:

            def serve(queue: DrawQueue) -> None:
                self.memory.serve(source.generator, queue, fingerprint=source.fingerprint)

            def count(prompt: int, draw: int, generation: Generation) -> None:
                progress.update()

            scorer = bind_quality(self.quality, source.generator)
            lazily.use(serve, scorer, self.similarity, self.n_jobs, count)
            try:
                yield
            finally:
                lazily.forget_means()

    def _provenance(
        self, source: DrawSource, asked: CalibrationPrompts, n_draws: int
    ) -> Provenance:
        """What the draws are collected with."""
        return Provenance(
            generator=source.fingerprint,
            seed=source.seed,
            k_max=n_draws,
            shift=None if asked.shift is None else asked.shift.to_json(),
            **{name: score_fingerprint(getattr(self, name)) for name in SCORES},
        )

    def _check_draws(
        self, generator: object, references: list[Reference], draws: list[list[Generation]]
    ) -> None:
        """Refuse empty responses; warn of texts that references or similarity can hardly judge."""
        responses = [[draw.response for draw in row] for row in draws]
        if all(isinstance(one, str) and not one.strip() for row in responses for one in row):
            raise ValueError(
                f"{type(generator).__name__} returned empty responses for all {len(responses)} "
                "prompts; wanted text. Look at its stop strings and at the length it may generate."
            )
        warn_of_references(self.admission, references, responses)
        warn_of_script("similarity", self.similarity, chain.from_iterable(responses))
        _warn_of_cut_responses(generator, list(chain.from_iterable(draws)))


def _warn_of_cut_responses(generator: object, draws: list[Generation]) -> None:
    """Warn where many responses end at the limit to their length."""
    # a single token is what was wanted: the letter of an answer, or a label
    n_cut = sum(draw.finish_reason == "length" and draw.n_tokens != 1 for draw in draws)
    if n_cut <= _MANY_CUT * len(draws):
        return
    params = generator.get_params() if isinstance(generator, BaseEstimator) else {}
    limits = {name.rpartition("__")[2]: value for name, value in params.items()}
    limit = next((one for one in ("max_tokens", "max_new_tokens") if one in limits), None)
    named = "the limit to their length" if limit is None else f"{limit} (now {limits[limit]!r})"
    warn(
        f"{n_cut} of {len(draws)} responses of {type(generator).__name__} were cut off at their "
        f"greatest length (finish_reason='length'): they are judged, and compared, as far as they "
        f"go. Raise {named}, unless this is what you want."
    )


def warn_of_repetitions(prompts: CheckedPrompts) -> None:
    """Warn of prompts that stand there again, where they are many."""
    if (text := describe_repetitions(prompts.digests())) is not None:
        warn(text)


def source_of(
    known: Provenance, source: DrawSource | None, untrained: Callable[[str | None], DrawSource]
) -> DrawSource:
    """Generator and seed that data from elsewhere came from, as far as they tell."""
    trained = source
    if source is not None and (
        known.generator not in (None, source.fingerprint)
        # bare arrays: of the generator that the parameters name now
        or (known.generator is None and not is_trainable(source.generator))
    ):
        source = None
    if source is None:
        try:
            source = untrained(known.generator)
        except NotFittedError:
            if trained is None:
                raise
            source = trained
    if known.generator not in (None, source.fingerprint):
        raise ValueError(
            f"data was collected from another generator than the "
            f"{type(source.generator).__name__} that predict would draw from: this one has "
            f"other parameters or was trained anew (fingerprint {source.fingerprint}, that of "
            f"the data {known.generator}); wanted data collected from this one. Call collect, "
            "or fit, again."
        )
    return source.with_seed(known.seed)


@dataclass(frozen=True)
class Conditions:
    """The draws that calibrate, and what holds for their prompts."""

    data: CalibrationData
    source: DrawSource
    collected: CollectedDraws | None  # None where the draws come from elsewhere
    groups: list[Hashable] | None  # of each prompt
    shift: Shift | None  # that prompts are weighted for
    risks: RiskTest | None  # other tests than the exact binomial one of admission
    verdicts: Verdicts | None  # who is asked for labels; None where the data have them all

    @property
    def draws(self) -> LazyDraws | None:
        """Who makes the draws that data lack; None where they have all."""
        return self.collected.lazily if self.collected and self.verdicts else None

    def after_tests(self, k_max: int) -> tuple[CalibrationData, CollectedDraws | None]:
        """Draws and labels as tests have left them, of this budget, and all that is collected."""
        data, collected = self.data, self.collected
        if collected is not None and self.verdicts is not None:
            data = self.verdicts.labelled(collected.as_drawn(data))
            if data.k_max == self.verdicts.labels.shape[1]:
                collected = replace(collected, data=data)
        return data.truncate(k_max) if data.k_max > k_max else data, collected


def conditions_of(
    data: CalibrationData,
    collected: CollectedDraws | None,
    source: Callable[[], DrawSource],
    *,
    k_max: int,
    scores: Mapping[str, str],
    judges_all: bool,
    groups: Groups | None,
    shift: CovariateShift | None,
    losses: Losses | None,
    given_groups: object,
    grouped: np.ndarray | None,
    prompt_weight: object,
) -> Conditions:
    """Where data came from, and what an estimator and the caller say of their prompts.

    `grouped` are digests of the prompts that the estimator has collected with groups.
    """
    _refuse_other_data(data, k_max, scores)
    asked = outcomes = weights = found = None
    if collected is not None and collected.are(data):
        asked, outcomes = collected.asked, collected.outcomes
        weights, found = asked.weights, asked.shift
    else:
        collected = None
    draws_of = source() if collected is None else collected.source
    prompts = None
    if asked is not None:
        prompts = asked.prompts
        given_groups = asked.groups if given_groups is None else given_groups
    if (
        (given_groups is None and groups is None)
        and (grouped is not None and data.prompts is not None)
        and np.isin(data.prompts, grouped).any()
    ):
        raise lost_groups(data.n_prompts)
    names = groups_of(groups, given_groups, data.n_prompts, prompts)
    if losses is not None and outcomes is None:
        raise ValueError(
            "data must be what this sampler has collected with losses, got other data instead: "
            "losses look at prompts, references and responses, which data do not hold."
        )
    if found is None and data.provenance.shift is not None:
        found = Shift.from_json(data.provenance.shift)
    if found is None and (prompt_weight is not None or shift is not None):
        shift = needed_shift(shift)
        weights = shift.of(prompt_weight, data.n_prompts, prompts)
        digests = row_digests(data.quality)
        rows, found, weights = shift.applied(weights, digests, draws_of.seed)
        if len(rows) < data.n_prompts:
            if losses is not None:
                raise ValueError(
                    "prompt_weight must be given to fit, or collect, where there are losses, got "
                    "weights of collected data instead."
                )
            data = data.take(rows)
            data.provenance = replace(data.provenance, shift=found.to_json())
            names = None if names is None else [names[i] for i in rows]
            collected = None
    elif prompt_weight is not None:
        raise ValueError(
            "prompt_weight must be None for data that were collected with weights, got weights "
            "instead."
        )
    elif found is not None and shift is not None and not shift.agrees(found):
        raise ValueError(
            f"data was collected with {found}, but now shift={shift!r}; call collect, or fit, "
            "again."
        )
    risks = None
    if losses is not None or weights is not None:
        risks = RiskTest(losses, outcomes, weights, 1.0 if found is None else found.weight_bound)
    data, verdicts = _labelled(data, collected, judges_all)
    conditions = Conditions(data, draws_of, collected, names, found, risks, verdicts)
    if conditions.draws is None:
        refuse_missing_draws(data)
    return conditions


def _refuse_other_data(data: CalibrationData, k_max: int, scores: Mapping[str, str]) -> None:
    for name, now in scores.items():
        then = getattr(data.provenance, name)
        if then not in (None, now):
            raise ValueError(
                f"data was collected with {name}={then!r:.80}, but now {name}={now!r:.80}; "
                f"wanted data collected with the scores that predict is to use ({OWN_CODE}). Call "
                "collect, or fit, again: draws that were made in this process, or that a "
                "CachedGenerator keeps or a PrecomputedGenerator holds, are not made anew."
            )
    if data.k_max < k_max:
        raise ValueError(
            f"k_max={k_max} asks for more draws than the {data.k_max} of the calibration "
            "data; collect them, or lower k_max."
        )


def _labelled(
    data: CalibrationData, collected: CollectedDraws | None, judges_all: bool
) -> tuple[CalibrationData, Verdicts | None]:
    """The data with draws and labels as they are now, and who is asked for those that lack."""
    if collected is not None:
        data = collected.renewed(data, everything=judges_all)
    verdicts = None if collected is None else collected.verdicts
    if data.unknown is None or verdicts is None:
        wanted = "draw, or be what this sampler has collected"
        refuse_unknown(data, wanted, ": there is nobody to ask about draws from elsewhere.")
        return data, None
    return verdicts.labelled(data), verdicts


def needed_shift(shift: CovariateShift | None) -> CovariateShift:
    """The shift where there are weights."""
    if shift is None:
        raise ValueError(
            "shift must be a CovariateShift where prompt_weight is given, got None instead: its "
            "weight_bound says how large a weight may be."
        )
    return shift
