"""The protocols of generators, and the checks of their draws."""

import functools
import inspect
from collections.abc import Callable, Sequence
from numbers import Integral
from types import FunctionType
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing, check_scalar
from sklearn.utils.metaestimators import available_if

from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.generators.draws import Generation, check_text
from sklearn_clm.generators.identity import (
    TRAINED_ON,
    cloned,
    description,
    fingerprint,
    is_trainable,
    record_training,
)
from sklearn_clm.generators.queue import DrawQueue, QueueGenerator, rounds_of

Prompts = Sequence[Any]  # anything that a generator takes as a prompt: text, chats, rows, images
Rows = list[list[Generation]]  # the draws of each prompt
OPEN_PROMPTS = 4096  # at once, where draws are made in rounds: they are scored together


@runtime_checkable
class Generator(Protocol):
    """Anything that draws responses for prompts.

    Draw ``j`` for prompt ``x`` under ``seed`` must depend on (generator, x, seed, j) alone, never
    on the other prompts, their order, `n_samples`, or what was drawn before. The attributes of
    :class:`BaseGenerator` are optional; where they are missing, its defaults hold.
    """

    def sample(self, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0) -> Rows:
        """`n_samples` draws of each prompt, from draw `start` on."""


class BaseGenerator(BaseEstimator):
    """Base class of the generators of this package.

    A subclass implements :meth:`sample`, or :meth:`QueueGenerator.serve` where draws become known
    one by one. A subclass that is itself trained on prompts and references defines
    ``fit(prompts, references)``; the estimators then clone it and fit it on a part of the data that
    calibration never sees.

    Attributes
    ----------
    chunk_size : int, default=256
        How many prompts one call of :meth:`sample` is given at most where the caller wants to
        report progress, or to keep draws, between calls. What fails within a call loses its draws:
        1 is right for a service that answers one prompt after the other.
    gives_logprobs : bool, default=True
        Whether draws come with their log-probability.
    gives_labels : bool, default=False
        Whether responses are class labels, which are equal or not, and no text to be read.
    tiers : Tiers or None, default=None
        Which draws cost how much, where they differ, as in a :class:`CascadeGenerator`.
    model_version : object, default=None
        Another object once a model was changed in place, found at little cost: every request asks
        for it, and takes the fingerprint anew only where it, a parameter, an attribute whose name
        ends with an underscore, or code was replaced. A class with a ``fingerprint`` of its own has
        it taken anew where any attribute was.

    Examples
    --------
    >>> from sklearn_clm.generators import BaseGenerator, Generation, draw_stream
    >>> class Dice(BaseGenerator):
    ...     def sample(self, prompts, n_samples, *, start=0, seed=0):
    ...         draws = range(start, start + n_samples)
    ...         return [[self.roll(prompt, seed, j) for j in draws] for prompt in prompts]
    ...
    ...     def roll(self, prompt, seed, j):
    ...         return Generation(str(draw_stream(prompt, seed, j).integers(1, 7)))
    >>> len(Dice().sample(["roll"], 3)[0])
    3
    """

    chunk_size: int = 256
    gives_logprobs: bool = True
    gives_labels: bool = False
    tiers: Tiers | None = None
    model_version: object = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(fit := vars(cls).get("fit"), FunctionType):
            setattr(cls, "fit", _recording(fit))  # noqa: B010

    def sample(self, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0) -> Rows:
        """Draw responses.

        Parameters
        ----------
        prompts : sequence of length n
            The prompts.
        n_samples : int
            Number of draws for each prompt, >= 0.
        start : int, default=0
            Index of the first draw, >= 0.
        seed : int, default=0
            Seed of the run, >= 0.

        Returns
        -------
        list of n lists of `n_samples` Generation
            Draws ``start`` to ``start + n_samples - 1`` of each prompt, in order.
        """
        if not isinstance(self, QueueGenerator):
            raise TypeError(f"{type(self).__name__} must define sample or serve, got neither.")
        return sample(self, prompts, n_samples, start=start, seed=seed)

    def __sklearn_clone__(self) -> Self:
        # the default would deep-copy whatever is no estimator, a loaded model included
        params = self.get_params(deep=False)
        return type(self)(**{name: cloned(value) for name, value in params.items()})

    def fingerprint(self) -> str:
        """Hexadecimal digest of all that the draws' distribution depends on.

        The digest is equal for equal generators, in any process, and different where a parameter
        differs.
        """
        return description(self)


@runtime_checkable
class Importing(Protocol):
    """A generator or score that imports when first used.

    Two threads that import parts of one package for the first time may each wait for the other, so
    that estimators import what their requests will need.
    """

    def import_modules(self) -> None:
        """Import what a request needs."""


class WrappingGenerator(BaseGenerator):
    """Base of generators around another one, their parameter `generator`."""

    generator: Generator
    generator_: Generator

    @property
    def gives_logprobs(self) -> bool:  # type: ignore[override]
        """Whether the inner generator gives log-probabilities."""
        return bool(trait(self._inner(), "gives_logprobs"))

    @property
    def gives_labels(self) -> bool:  # type: ignore[override]
        """Whether the inner generator gives class labels."""
        return bool(trait(self._inner(), "gives_labels"))

    @property
    def tiers(self) -> Tiers | None:  # type: ignore[override]
        """Prices of the inner generator's draws."""
        return cast("Tiers | None", trait(self._inner(), "tiers"))

    @available_if(lambda self: is_trainable(self.generator))
    def fit(self, prompts: Prompts, references: Sequence[object]) -> Self:
        """Fit a clone of the inner generator."""
        self.generator_ = trained(clone(self.generator, safe=False), prompts, references)
        return self

    def fingerprint(self) -> str:
        """The inner generator's fingerprint."""
        return fingerprint(self._inner())

    def _inner(self) -> Generator:
        return getattr(self, "generator_", self.generator)


def trait(generator: object, name: str) -> Any:
    """Attribute of any generator, or the default of :class:`BaseGenerator`."""
    return getattr(generator, name, getattr(BaseGenerator, name))


def trained(generator: Any, prompts: Prompts, references: Sequence[object]) -> Any:
    """A generator, fitted; what it was trained on stays recorded."""
    generator.fit(prompts, references)
    # a generator of the user's may note by itself what it has learnt
    if not hasattr(generator, TRAINED_ON):
        record_training(generator, prompts, references)
    return generator


def _recording(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A method `fit` that records what it was trained on."""

    @functools.wraps(fit)
    def recorded(self: object, *arguments: Any, **named: Any) -> Any:
        fitted = fit(self, *arguments, **named)
        record_training(self, *arguments, named)
        return fitted

    return recorded


def check_keyed(generator: Generator, prompt: object, *, seed: int = 0, n_draws: int = 20) -> bool:
    """Whether a generator repeats a draw.

    The generator makes `n_draws` together, then the later half of them anew. Responses may coincide
    by chance, so that True is no proof, and a cache repeats whatever it was given: ask the
    generator inside.

    Examples
    --------
    >>> from sklearn_clm.generators import PrecomputedGenerator, check_keyed
    >>> check_keyed(PrecomputedGenerator(["a"], [["yes", "no"]]), "a", n_draws=2)
    True
    """
    # a row of numbers is an array of one row: a list of it would be a list of numbers
    prompts: Any = prompt[np.newaxis] if isinstance(prompt, np.ndarray) else [prompt]
    # the later half: a generator that ignores `start` would give the first draws again
    first = n_draws // 2
    (together,) = sample(generator, prompts, n_draws, seed=seed)
    (again,) = sample(generator, prompts, n_draws - first, start=first, seed=seed)
    return [draw.response for draw in together[first:]] == [draw.response for draw in again]


def refuse_single_text(prompts: Prompts) -> None:
    """Refuse a text or a table in place of prompts."""
    if isinstance(prompts, (str, bytes)) or hasattr(prompts, "columns"):
        raise TypeError(
            f"prompts must be a list or an array of prompts, got the {type(prompts).__name__} "
            f"{prompts!r:.80} instead."
        )
    if not isinstance(prompts, np.ndarray):
        for i, prompt in enumerate(prompts):
            check_text(prompt, f"prompts[{i}]")


def sample(
    generator: object, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0
) -> Rows:
    """Draws of any generator, as a list for each prompt."""
    refuse_single_text(prompts)
    check_scalar(n_samples, "n_samples", Integral, min_val=0)
    check_scalar(start, "start", Integral, min_val=0)
    if not isinstance(prompts, np.ndarray):
        prompts = list(prompts)  # a pandas Series looks positions up among its labels
    rows: list[list[Any]] = [[None] * n_samples for _ in prompts]

    def on_draw(i: int, j: int, generation: Generation) -> None:
        rows[i][j - start] = generation

    if n_samples:
        stop = start + n_samples
        first = [start] * len(prompts)
        answer_queue(generator, DrawQueue(prompts, stop, seed=seed, first=first, on_draw=on_draw))
    return rows


def answer_queue(generator: object, queue: DrawQueue) -> None:
    """Let any generator answer a queue.

    A :class:`QueueGenerator` answers the queue itself. Any other works in rounds over a bounded
    number of open prompts: all draws that are wanted as things stand, then those that are wanted
    after these, and so on; prompts that are decided make room for new ones.
    """
    if isinstance(generator, QueueGenerator):
        generator.serve(queue)
        return

    # an estimator may hand on the method of another one, so that its class has none
    if isinstance(generator, type) or not hasattr(generator, "sample"):
        raise TypeError(
            f"generator must be an instance with a method sample, got {generator!r:.80} instead."
        )

    # more prompts are open than a chunk holds, so that chunks are full though some are decided
    size = trait(generator, "chunk_size")
    name = f"generator {type(generator).__name__}"
    while requests := queue.take(max_prompts=max(OPEN_PROMPTS, 4 * size)):
        for start, stop, indices in rounds_of(requests):
            # in chunks: what arrived is kept where a later one fails
            for first in range(0, len(indices), size):
                # who receives the draws may have had enough meanwhile
                chunk = list(filter(queue.is_open, indices[first : first + size]))
                if not chunk:
                    continue
                prompts = _safe_indexing(queue.prompts, chunk)
                rows = generator.sample(prompts, stop - start, start=start, seed=queue.seed)
                _check_rows(name, rows, len(chunk))
                failure: Exception | None = None
                for index, row in zip(chunk, rows):
                    if len(row) != stop - start:  # the rows before it are kept
                        raise ValueError(
                            f"{name} must give {stop - start} draws for each prompt, got "
                            f"{len(row)} for one instead."
                        )
                    for draw, generation in enumerate(row, start):
                        checked = checked_draw(name, generation, f"draw {draw}")
                        try:
                            queue.put(index, draw, checked)
                        except Exception as error:  # of who receives it: the others are made, too
                            failure = failure or error
                if failure is not None:
                    raise failure


def _check_rows(name: str, rows: Any, n_prompts: int) -> None:
    """Refuse what is no list of so many lists."""
    if inspect.iscoroutine(rows):
        rows.close()  # Python would warn that nobody awaits it
        raise TypeError(
            f"{name}: sample must be a plain method, got an async one instead; wanted "
            "FunctionGenerator(ask), which takes an async function of one prompt."
        )
    if not _is_list(rows) or not all(map(_is_list, rows)):
        raise TypeError(
            f"{name} must return a list of draws for each prompt, got {rows!r:.60} instead."
        )
    if len(rows) != n_prompts:
        raise ValueError(
            f"{name} must give draws of {n_prompts} prompts, got those of {len(rows)} instead."
        )


def _is_list(values: object) -> bool:
    # the characters of a text would be taken for draws
    return isinstance(values, Sequence) and not isinstance(values, str)


def checked_draw(name: str, generation: object, where: str) -> Generation:
    """A draw of any generator, checked; it may be text."""
    if isinstance(generation, str):
        generation = Generation(generation)
    if not isinstance(generation, Generation) or generation.response is None:
        raise TypeError(
            f"{name} must give a str, or a Generation with a response, such as Generation(text, "
            f"logprob, n_tokens), got {generation!r:.60} as {where} instead."
            + (" A function without a return statement gives None." * (generation is None))
        )
    check_text(generation.response, where)
    return generation
