"""Where the draws of an estimator come from."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_clm._estimators._agreement import refuse_differences
from sklearn_clm._estimators._progress import QUIET, Progress
from sklearn_clm._exceptions import warn
from sklearn_clm._results import ComponentSet, PredictionSet
from sklearn_clm.caching import DrawMemory
from sklearn_clm.calibration import CalibrationData, Provenance
from sklearn_clm.calibration.digests import repeated
from sklearn_clm.calibration.rows import split_prompts
from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.generators import (
    DrawQueue,
    Generation,
    Generator,
    PrecomputedGenerator,
    ResamplingGenerator,
)
from sklearn_clm.generators.base import WrappingGenerator, trained, trait
from sklearn_clm.generators.draws import text_key
from sklearn_clm.generators.identity import (
    Known,
    digest_of,
    fingerprint,
    frozen,
    is_trainable,
    record_fingerprints,
    title_of,
)
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.scoring.protocols import Reference

SetT = TypeVar("SetT", PredictionSet, ComponentSet)

# draws look dependent if nearly all of enough prompts say so: one prompt may have one answer
_ENOUGH_PROMPTS = 20
_ENOUGH_DRAWS = 3
_NEARLY_ALL = 0.95
# a generator that ignores `start` repeats its first draw in every further call
_FIRST_DRAWS = 2
_BY_CHANCE = 1e-6


@dataclass(frozen=True)
class DrawSource:
    """Where the draws of an estimator come from."""

    generator: Generator  # the estimator's copy, trained if it is trainable
    fingerprint: str  # of the generator, before its first draw
    seed: int  # of all draws
    trained_on: np.ndarray = field(repr=False)  # digests of the prompts that trained it
    known: Known = field(default_factory=Known, repr=False, compare=False)

    @classmethod
    def of(cls, generator: Generator, seed: int, trained_on: np.ndarray) -> "DrawSource":
        """The source of a generator, whose fingerprint is taken here."""
        # taken once: later requests compare what is remembered of the object
        record_fingerprints(generator)
        remembered = Known()
        name = remembered.fingerprint_of(generator, partial(fingerprint, generator))
        return cls(generator, name, seed, trained_on, remembered)

    @classmethod
    def train(
        cls,
        generator: Generator | None,
        prompts: CheckedPrompts,
        references: list[Reference],
        *,
        fraction: float,
        random_state: int | np.random.RandomState | None,
    ) -> "tuple[DrawSource, np.ndarray]":
        """The source, trained if possible, and the other prompts' positions.

        The positions are in the order of :func:`rows_in_order`.
        """
        # the user's object is neither trained nor changed by later draws
        generator_copy = own_copy(generator)
        # before the split: a RandomState gives another number to each that asks
        seed = seed_of_draws(random_state)

        n = len(prompts)
        digests = prompts.digests
        rest = rows_in_order(prompts, references)
        train = rest[:0]

        if is_trainable(generator_copy):
            first, calibrating = split_prompts(
                digests[rest], max(round(fraction * n), 1), random_state
            )
            # all rows of a prompt stand on one side
            train = rest[first]
            rest = rest[calibrating]
            if not len(rest):
                raise ValueError(
                    f"{type(generator_copy).__name__} is fitted on a part of the prompts that "
                    "calibration never sees, which takes at least 2 distinct prompts; got "
                    f"n_samples={n}, all of one."
                )
            generator_copy = trained(
                generator_copy, prompts.take(train).prompts, [references[i] for i in train]
            )

        return cls.of(generator_copy, seed, np.unique(digests[train])), rest

    @classmethod
    def untrained(
        cls,
        generator: Generator | None,
        random_state: int | np.random.RandomState | None,
        expected: str | None,
    ) -> "DrawSource":
        """The source of a sampler that has seen no prompts.

        A generator that was trained before must have the `expected` fingerprint.
        """
        no_digests = np.empty(0, dtype=np.uint64)
        seed = seed_of_draws(random_state)
        if generator is not None and expected is not None and _is_trained(generator, expected):
            return cls.of(copy.copy(generator), seed, no_digests)
        generator_copy = own_copy(generator)
        if is_trainable(generator_copy):
            raise NotFittedError(
                f"{type(generator_copy).__name__} is fitted on prompts and references, which this "
                "sampler has not seen: call fit, or collect, first. A calibration from a file "
                "needs the generator with its training: pickle generator_ of the sampler that "
                "wrote the file, and give it as generator. For thresholds of arrays alone, call "
                "sklearn_clm.calibration.learn_then_test."
            )
        return cls.of(generator_copy, seed, no_digests)

    def draws(
        self,
        memory: DrawMemory,
        prompts: CheckedPrompts,
        n_draws: int | np.ndarray,
        *,
        first: int | np.ndarray = 0,
        progress: Progress = QUIET,
    ) -> list[list[Generation]]:
        """Draws of each prompt, `first` up to `n_draws` - 1.

        Draws that memory holds are not made again.
        """
        starts = np.broadcast_to(first, len(prompts)).tolist()
        stops = np.broadcast_to(n_draws, len(prompts)).tolist()
        rows: list[dict[int, Generation]] = [{} for _ in starts]

        def keep(i: int, draw: int, generation: Generation) -> None:
            rows[i][draw] = generation
            # generators of paid services count tokens, which are shown beside the draws
            progress.advance("collect", **getattr(self.generator, "usage_", {}))

        def wanted(arrived: Sequence[tuple[int, object]]) -> list[int]:
            return [stops[i] for i, _ in arrived]

        # without a decision all draws of a prompt are asked for at once
        are_alike = min(stops) == max(stops)
        queue = DrawQueue(
            prompts.prompts,
            max(stops),
            seed=self.seed,
            decide=None if are_alike else wanted,
            first=starts,
            on_draw=keep,
        )
        # under its first fingerprint: calls change that of an object that counts them
        memory.serve(self.generator, queue, fingerprint=self.fingerprint)
        in_order = []
        for row, start, stop in zip(rows, starts, stops):
            in_order.append([row[j] for j in range(start, stop)])
        return in_order

    def has_learnt(self, prompts: CheckedPrompts) -> np.ndarray:
        """Which of the prompts trained the generator."""
        return np.isin(prompts.digests, self.trained_on)

    def limits(self, prompts: CheckedPrompts, n_draws: int) -> np.ndarray:
        """Draws of each prompt within reach, at most `n_draws`."""
        if not isinstance(self.generator, PrecomputedGenerator):
            return np.full(len(prompts), n_draws)
        # none at all is an error, which the generator names
        return np.clip(self.generator.n_available(prompts.prompts), 1, n_draws)

    def tiers_priced_by(self, generator: object) -> Tiers | None:
        """Tiers of the draws, with the present prices of `generator`."""
        tiers: Tiers | None = trait(self.generator, "tiers")
        now: Tiers | None = trait(generator, "tiers")
        # draws do not depend on prices: the price of a service may change after `fit`
        return now if tiers and now and now.n_draws == tiers.n_draws else tiers

    def unguaranteed(self, sets: Sequence[SetT], prompts: CheckedPrompts) -> list[SetT]:
        """The sets, not guaranteed if their prompt trained the generator."""
        why = "the prompt trained the generator."
        learnt = self.has_learnt(prompts)
        return [a_set.unguaranteed(why) if seen else a_set for a_set, seen in zip(sets, learnt)]

    def refuse_changes(self) -> None:
        """Refuse a generator that was changed since calibration."""
        now = self.known.fingerprint_of(self.generator, partial(fingerprint, self.generator))
        if now != self.fingerprint:
            raise ValueError(
                f"generator_ must be the {type(self.generator).__name__} that was calibrated, "
                f"fingerprint {self.fingerprint}, got one with the fingerprint {now} instead: it "
                "was changed or trained after calibration. Call fit again. Where drawing changes "
                "what it holds, give it a method fingerprint()."
            )


def warn_of_dependent_draws(generator: object, draws: list[list[Generation]]) -> None:
    """Warn of draws that are copies, or sorted, nearly everywhere."""
    fewest = min(map(len, draws))
    if len(draws) < _ENOUGH_PROMPTS or fewest < _ENOUGH_DRAWS:
        return
    name = type(generator).__name__
    half = fewest // 2
    # the first draws may have filled a cache
    later = [{text_key(draw.response) for draw in row[half:]} for row in draws]
    n_alike = sum(len(texts) == 1 for texts in later)
    if n_alike >= _NEARLY_ALL * len(draws) and not trait(generator, "gives_labels"):
        warn(
            f"draws {half} and later are equal for {n_alike} of {len(draws)} prompts: a "
            f"temperature of 0 does that, or a cache between {name} and its model. Copies of one "
            "draw are no sample: wanted a temperature above 0 and no such cache (a CachedGenerator "
            "keeps draws apart), unless the model really gives the same answer each time."
        )

    rows = [[draw.logprob for draw in row if draw.logprob is not None] for row in draws]
    # three different numbers fall by chance for one prompt in six
    telling = [row for row in rows if len(set(row)) >= _ENOUGH_DRAWS]
    n_sorted = sum(row == sorted(row, reverse=True) for row in telling)
    if len(telling) >= _ENOUGH_PROMPTS and n_sorted >= _NEARLY_ALL * len(telling):
        warn(
            f"the log-probabilities of the draws of {name} never rise from one to the next, for "
            f"{n_sorted} of {len(telling)} prompts: they seem sorted. Draws must be independent, "
            "and stand in the order in which they were made; otherwise the guarantee may fail."
        )


def warn_of_repeated_draws(
    rows: Sequence[Sequence[Generation]], prompts: CheckedPrompts, data: CalibrationData
) -> None:
    """Warn if first draws are all equal, unlike in calibration."""
    if data.texts is None or data.k_max < _FIRST_DRAWS:
        return
    long_enough = [i for i, row in enumerate(rows) if len(row) >= _FIRST_DRAWS]
    # the cheap check comes first: most calls of predict end here, at the first prompt
    if not long_enough or not all(_starts_alike(rows[i]) for i in long_enough):
        return
    n_distinct = len(np.unique(prompts.digests[long_enough]))  # copies have the same draws
    drawn_before = data.texts[data.n_draws >= _FIRST_DRAWS]  # a lazy calibration may lack them
    alike = (drawn_before[:, :_FIRST_DRAWS] == drawn_before[:, :1]).all(axis=1)
    # how often first draws agree in calibration, never 0: chance alone may do it once
    share = (1.0 + alike.sum()) / (1.0 + len(alike))
    if share**n_distinct < _BY_CHANCE:
        warn(
            f"the first {_FIRST_DRAWS} draws of each of {n_distinct} prompts are all alike, which "
            f"they were for {alike.sum()} of {len(alike)} prompts in calibration: the generator "
            "seems to ignore start. sample(prompts, n_samples, start=j) must give the draws j, "
            "j + 1, ...; where it gives the first ones again and again, the guarantee does not "
            "hold. sklearn_clm.generators.check_keyed tells."
        )


def _starts_alike(row: Sequence[Generation]) -> bool:
    """Whether the first draws of a prompt are one text."""
    first = text_key(row[0].response)
    return all(text_key(draw.response) == first for draw in row[1:_FIRST_DRAWS])


def source_of(
    name: str,
    provenance: Provenance,
    current: DrawSource | None,
    generator: Generator | None,
    random_state: int | np.random.RandomState | None,
) -> DrawSource:
    """The source of draws of data, or of a file.

    The source is the estimator's `current` one where the draws are its own. All others must be of
    the `generator` that the parameters name now. Bare arrays do not say whose draws they are: they
    are taken for those of that generator, too, or of `current` if that was trained, since a
    generator made anew from the parameters would lack its training.
    """
    source = None
    if current is not None and provenance.generator is None:
        source = current if is_trainable(current.generator) else None
    elif current is not None and provenance.generator == current.fingerprint:
        source = current
    # nothing was drawn here yet, or the data are not of what was: then they have to be of the
    # generator that the parameters name
    if source is None:
        try:
            source = DrawSource.untrained(generator, random_state, provenance.generator)
        except NotFittedError:
            # nothing was drawn here, or the data do not say by which generator
            if current is None or provenance.generator is None:
                raise
            # the data name another generator than the one that drew here: they are refused below,
            # with the fingerprints of both, which says more than that this one is not trained
            source = current
    here = {"generator": source.fingerprint}
    refuse_differences(name, vars(provenance), here, title_of(source.generator))
    return source if provenance.seed is None else replace(source, seed=provenance.seed)


def rows_in_order(prompts: CheckedPrompts, references: list[Reference]) -> np.ndarray:
    """Positions by digest: one order, however rows are given.

    Rows of one prompt are in the order of what identifies their references.
    """
    # references tell equal prompts apart; they are digested for these alone, which is slow
    digests = prompts.digests
    ties = [""] * len(prompts)
    for i in np.flatnonzero(repeated(digests)).tolist():
        ties[i] = digest_of(type(references[i]), {"reference": references[i]})
    return np.lexsort((np.array(ties), digests))


def own_copy(generator: Generator | None) -> Generator:
    """A copy of a generator, which shares its model."""
    if generator is None:
        return ResamplingGenerator()
    # what stands inside is copied by the same rules
    if isinstance(generator, WrappingGenerator):
        return clone(generator).set_params(generator=own_copy(generator.generator))
    if hasattr(generator, "get_params"):
        return clone(generator)
    # training must not reach the user's object, whatever it holds
    if hasattr(generator, "fit"):
        return copy.deepcopy(generator)
    copied = copy.copy(generator)
    if hasattr(copied, "__dict__"):
        for name, part in vars(generator).items():
            vars(copied)[name] = frozen(part)
    return copied


def _is_trained(generator: Generator, expected: str) -> bool:
    """Whether a generator is trained, with the `expected` fingerprint."""
    try:
        return is_trainable(generator) and fingerprint(generator) == expected
    except (AttributeError, NotFittedError):  # it is not trained yet
        return False


def seed_of_draws(random_state: int | np.random.RandomState | None) -> int:
    """The seed that the parameter `random_state` stands for."""
    if random_state is None:
        return 0  # trying again changes nothing
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)
