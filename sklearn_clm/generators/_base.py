"""The protocols that generators follow, and what is checked of any of them."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if

from sklearn_clm.calibration._tiers import Tiers
from sklearn_clm.generators._draws import Generation, check_text
from sklearn_clm.generators._identity import (
    TRAINED_ON,
    cloned,
    description,
    fingerprint,
    is_trainable,
    record_training,
)
from sklearn_clm.generators._queue import DrawQueue, QueueGenerator, rounds_of

Prompts = Sequence[Any]  # anything that a generator takes as a prompt: text, chats, rows, images
Rows = list[list[Generation]]  # the draws of each prompt
Stream = Iterator[tuple[int, int, Generation]]  # position of the prompt, index of the draw, draw
Template = str | Callable[[Any], object] | None
OPEN_PROMPTS = 4096  # at once, where draws are made in rounds: they are scored together


@runtime_checkable
class Generator(Protocol):
    """Anything that draws responses for prompts.

    Draw ``j`` for prompt ``x`` under ``seed`` must depend on (generator, x, seed, j) alone, never
    on the other prompts, their order, `n_samples`, or what was drawn before. The attributes of
    :class:`BaseGenerator` are optional; where they are missing, its defaults hold.
    """

    def sample(self, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0) -> Rows:
        """Draws ``start`` to ``start + n_samples - 1`` of each prompt."""


@runtime_checkable
class StreamingGenerator(Protocol):
    """A generator whose draws become known one by one."""

    def stream(self, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0) -> Stream:
        """Yield (position of the prompt, index of the draw, draw) in any order."""


class BaseGenerator(BaseEstimator):
    """Base class of the generators of this package.

    A subclass implements one of three methods: :meth:`sample`; ``stream``, with the parameters of
    `sample`, where draws become known one by one, which yields (position of the prompt, index of
    the draw, draw) in any order; or :meth:`QueueGenerator.serve`. A subclass that is itself trained
    on prompts and references defines ``fit(prompts, references)``; the estimators then clone it and
    fit it on a part of the data that calibration never sees.

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

    Examples
    --------
    >>> from sklearn_clm.generators import BaseGenerator, Generation, draw_stream
    >>> class Dice(BaseGenerator):
    ...     def sample(self, prompts, n_samples, *, start=0, seed=0):
    ...         return [
    ...             [
    ...                 Generation(str(draw_stream(prompt, seed, draw).integers(1, 7)))
    ...                 for draw in range(start, start + n_samples)
    ...             ]
    ...             for prompt in prompts
    ...         ]
    >>> len(Dice().sample(["roll"], 3)[0])
    3
    """

    chunk_size: int = 256
    gives_logprobs: bool = True
    gives_labels: bool = False
    tiers: Tiers | None = None

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
        if not isinstance(self, (QueueGenerator, StreamingGenerator)):
            raise TypeError(f"{type(self).__name__} must define sample, stream or serve, got none.")
        return sample(self, prompts, n_samples, start=start, seed=seed)

    def __sklearn_clone__(self) -> Self:
        # the default would deep-copy whatever is no estimator, a loaded model included
        params = self.get_params(deep=False)
        return type(self)(**{name: cloned(value) for name, value in params.items()})

    def fingerprint(self) -> str:
        """Hexadecimal digest of everything that the distribution of a draw depends on.

        Returns
        -------
        str
            Equal for equal generators, in any process; different where a parameter differs.
        """
        return description(self)


def wraps_trainable(generator: "WrappingGenerator") -> bool:
    """Whether the inner generator learns from data."""
    return is_trainable(generator.generator)


class WrappingGenerator(BaseGenerator):
    """Base of generators that hand on the draws of another one, their parameter `generator`."""

    generator: Generator
    generator_: Generator

    @property
    def gives_logprobs(self) -> bool:  # type: ignore[override]
        """As the inner generator says."""
        return bool(trait(self._inner(), "gives_logprobs"))

    @property
    def gives_labels(self) -> bool:  # type: ignore[override]
        """As the inner generator says."""
        return bool(trait(self._inner(), "gives_labels"))

    @property
    def tiers(self) -> Tiers | None:  # type: ignore[override]
        """As the inner generator says."""
        return cast("Tiers | None", trait(self._inner(), "tiers"))

    @available_if(wraps_trainable)
    def fit(self, prompts: Prompts, references: Sequence[object]) -> Self:
        """Fit a clone of the inner generator; only there where the inner one has a ``fit``.

        Parameters
        ----------
        prompts, references
            As the inner generator's ``fit`` takes them.

        Returns
        -------
        self
        """
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
    if not hasattr(generator, TRAINED_ON):
        record_training(generator, prompts, references)
    return generator


def _recording(fit: Callable[..., Any]) -> Callable[..., Any]:
    """The method fit, which records what a generator was trained on."""

    @functools.wraps(fit)
    def recorded(self: object, *given: Any, **named: Any) -> Any:
        fitted = fit(self, *given, **named)
        record_training(self, *given, named)
        return fitted

    return recorded


def check_keyed(generator: Generator, prompt: object, *, seed: int = 0, n_draws: int = 20) -> bool:
    """Whether a generator repeats a draw.

    It makes a few draws together, then the later half of them anew, so that a generator that
    counts its calls, keeps a random state or ignores `start` gives itself away. Responses that
    coincide by chance hide it, so the answer yes is no proof. A cache gives back what it was given,
    but mends no `start` that is ignored: the generator inside it is asked for that.

    Parameters
    ----------
    generator : Generator
        Any generator.
    prompt : object
        A prompt that it takes.
    seed : int, default=0
        Seed of the run.
    n_draws : int, default=20
        How many draws are made together; half of them are made again. With ten draws of yes or no
        that are made again, the chance of a wrong answer is 1 in 1,000.

    Returns
    -------
    bool
        False where any draw came out different.

    Examples
    --------
    >>> from sklearn_clm.generators import PrecomputedGenerator, check_keyed
    >>> check_keyed(PrecomputedGenerator(["a"], [["yes", "no"]]), "a", n_draws=2)
    True
    """
    prompts: Any = prompt[np.newaxis] if isinstance(prompt, np.ndarray) else [prompt]
    n_first = n_draws // 2

    def drawn(asked: Generator) -> tuple[list[object], list[object]]:
        (together,) = sample(asked, prompts, n_draws, seed=seed)
        (again,) = sample(asked, prompts, n_draws - n_first, start=n_first, seed=seed)
        return [one.response for one in together], [one.response for one in again]

    inner = generator
    while isinstance(inner, WrappingGenerator):
        inner = inner._inner()
    if inner is not generator:
        together, again = drawn(inner)
        ignores_start = again == together[: n_draws - n_first]
        if ignores_start and again != together[n_first:]:
            return False
    together, again = drawn(generator)
    return together[n_first:] == again


def filled(template: Template, prompt: object, name: str = "a prompt") -> object:
    """What a template makes of a prompt, which `name` stands for in the message of an error."""
    if template is None:
        return prompt
    if callable(template):
        return template(prompt)
    if not isinstance(prompt, str):
        raise TypeError(
            f"{name} is a {type(prompt).__name__}, which the text prompt_template cannot take; "
            "wanted a str, or a callable prompt_template."
        )
    if "{prompt}" not in template:
        raise ValueError(f"prompt_template must hold '{{prompt}}', got {template!r:.80} instead.")
    return template.replace("{prompt}", prompt)


def refuse_single_text(prompts: Prompts) -> None:
    """Refuse a text or a table in place of a list of texts, and half characters in any of them."""
    if isinstance(prompts, (str, bytes)) or hasattr(prompts, "columns"):
        raise TypeError(
            f"prompts must be a list or an array of prompts, got the {type(prompts).__name__} "
            f"{prompts!r:.80} instead."
        )
    if not isinstance(prompts, np.ndarray):
        for i, prompt in enumerate(prompts):
            check_text(prompt, f"prompts[{i}]")


def stream(
    generator: object, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0
) -> Stream:
    """Yield the draws of any generator as :class:`StreamingGenerator` does, checked.

    Plain strings are taken for responses without a log-probability.
    """
    # an estimator may hand on the methods of another one, so that no class has them
    if isinstance(generator, type) or not (
        hasattr(generator, "sample") or hasattr(generator, "stream")
    ):
        raise TypeError(
            "generator must be an instance with a method sample or stream, got "
            f"{generator!r:.80} instead."
        )
    refuse_single_text(prompts)
    name = f"generator {type(generator).__name__}"
    n = len(prompts)
    given = bytearray(n * n_samples)
    if isinstance(generator, StreamingGenerator):
        draws = generator.stream(prompts, n_samples, start=start, seed=seed)
        _refuse_async(f"{name}: stream", draws)
    else:
        draws = _streamed_samples(generator, prompts, n_samples, start, seed)
    for i, j, generation in draws:
        position = i * n_samples + j - start
        if not (0 <= i < n and 0 <= j - start < n_samples) or given[position]:
            raise ValueError(
                f"{name} must give draws {start} to {start + n_samples - 1} of {n} prompts once "
                f"each, got draw {j} of prompt {i} too."
            )
        given[position] = True
        yield i, j, checked_draw(name, generation, f"draw {j} of prompt {i}")
    if not all(given):
        raise ValueError(
            f"{name} must give {n_samples} draws for each of {n} prompts, got {sum(given)} draws "
            "in all instead."
        )


def _streamed_samples(
    generator: Any, prompts: Prompts, n_samples: int, start: int, seed: int
) -> Stream:
    """Draws of a generator with `sample`, a chunk of prompts after the other."""
    chunk_size = trait(generator, "chunk_size")
    name = f"generator {type(generator).__name__}: sample"
    for first in range(0, len(prompts), chunk_size):
        chunk = prompts[first : first + chunk_size]
        rows = generator.sample(chunk, n_samples, start=start, seed=seed)
        _refuse_async(name, rows)
        for i, row in enumerate(_as_list(name, rows), first):
            for j, generation in enumerate(_as_list(name, row), start):
                yield i, j, generation


def _as_list(name: str, values: Any) -> Sequence[Any]:
    # the characters of a text would be taken for draws
    if isinstance(values, str) or not isinstance(values, Sequence):
        got = type(values).__name__
        raise TypeError(f"{name} must return a list of draws for each prompt, got {got!r} instead.")
    return values


def sample(
    generator: object, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0
) -> Rows:
    """Draws of any generator, checked as in :func:`stream`, as a list for each prompt."""
    refuse_single_text(prompts)
    if not isinstance(prompts, np.ndarray):
        prompts = list(prompts)  # a pandas Series looks positions up among its labels
    rows: list[list[Any]] = [[None] * n_samples for _ in prompts]

    def on_draw(i: int, j: int, generation: Generation) -> None:
        rows[i][j - start] = generation

    if n_samples:
        stop, first = start + n_samples, [start] * len(prompts)
        serve(generator, DrawQueue(prompts, stop, seed=seed, first=first, on_draw=on_draw))
    return rows


def serve(generator: object, queue: DrawQueue) -> None:
    """Let any generator make the draws that a queue asks for.

    A :class:`QueueGenerator` answers the queue itself. Any other works in rounds over a bounded
    number of open prompts: all draws that are wanted as things stand, then those that are wanted
    after these, and so on; prompts that are decided make room for new ones.
    """
    if isinstance(generator, QueueGenerator):
        generator.serve(queue)
        return
    window = max(OPEN_PROMPTS, 4 * trait(generator, "chunk_size"))
    while requests := queue.take(max_prompts=window):
        for start, stop, indices in rounds_of(requests):
            chunk = _safe_indexing(queue.prompts, indices)
            draws = stream(generator, chunk, stop - start, start=start, seed=queue.seed)
            for m, draw, generation in draws:
                queue.put(indices[m], draw, generation)


def _refuse_async(method: str, returned: Any) -> None:
    """Refuse what an ``async`` method returns."""
    if inspect.iscoroutine(returned) or inspect.isasyncgen(returned):
        if inspect.iscoroutine(returned):
            returned.close()  # Python would warn that nobody awaits it
        raise TypeError(
            f"{method} must be a plain method, got an async one instead; wanted "
            "FunctionGenerator(ask), which takes an async function of one prompt."
        )


def checked_draw(name: str, generation: object, where: str) -> Generation:
    """A draw as whatever `name` says returned it; a plain text is one."""
    if isinstance(generation, str):
        generation = Generation(generation)
    if not isinstance(generation, Generation) or generation.response is None:
        raise TypeError(
            f"{name} must give a Generation with a response, or a str, got {generation!r:.60} as "
            f"{where} instead."
            + (" A function without a return statement gives None." * (generation is None))
        )
    check_text(generation.response, where)
    return generation
