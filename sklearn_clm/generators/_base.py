"""The one protocol that every generator follows, and what is checked of any of them."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from sklearn.base import BaseEstimator, clone

from sklearn_clm.generators._draws import Generation
from sklearn_clm.generators._fingerprint import digest_of
from sklearn_clm.generators._queue import DrawQueue, QueueGenerator

__all__ = ["BaseGenerator", "Generator", "fingerprint", "sample", "serve", "stream"]


@runtime_checkable
class Generator(Protocol):
    """Anything that draws responses for prompts.

    Draw ``j`` for prompt ``x`` under ``seed`` must depend on (generator, x, seed, j) alone, never
    on the other prompts, their order, `n_samples`, or what was drawn before.
    """

    def sample(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        """Draws ``start`` to ``start + n_samples - 1`` of each prompt."""


class BaseGenerator(BaseEstimator):
    """Base class of the generators of this package.

    A subclass implements :meth:`sample`, or :meth:`stream` where draws become known one by one.
    Each of the two has a default in terms of the other. A subclass that is itself trained on
    prompts and references defines ``fit(prompts, references)``; the estimators then clone it
    and fit it on a part of the data that calibration never sees.

    Attributes
    ----------
    chunk_size : int
        How many prompts one call of :meth:`sample` is given at most where the caller wants to
        report progress between calls.

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

    chunk_size = 256

    def sample(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
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
        if _streams_samples(self):
            raise TypeError(f"{type(self).__name__} defines neither sample nor stream; wanted one.")
        check_several(prompts)
        draws: list[list[Any]] = [[None] * n_samples for _ in prompts]
        for i, j, generation in self.stream(prompts, n_samples, start=start, seed=seed):
            draws[i][j - start] = generation
        return draws

    def stream(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> Iterator[tuple[int, int, Generation]]:
        """Yield draws as they become known, in any order.

        Parameters
        ----------
        prompts, n_samples, start, seed
            As in :meth:`sample`.

        Yields
        ------
        prompt_index : int
            Position in `prompts`.
        draw : int
            Index of the draw, from `start` to ``start + n_samples - 1``.
        generation : Generation
            The draw.
        """
        for first in range(0, len(prompts), self.chunk_size):
            chunk = prompts[first : first + self.chunk_size]
            for i, row in enumerate(self.sample(chunk, n_samples, start=start, seed=seed)):
                for j, generation in enumerate(row):
                    yield first + i, start + j, generation

    def __sklearn_clone__(self) -> Self:
        # the default would deep-copy whatever is no estimator, a loaded model included
        params = self.get_params(deep=False)
        return type(self)(**{name: clone_parameter(value) for name, value in params.items()})

    def fingerprint(self) -> str:
        """Hexadecimal digest of everything that the distribution of a draw depends on.

        Returns
        -------
        str
            Equal for equal generators, in any process; different where a parameter differs.
        """
        return digest_of(type(self), {**self.get_params(deep=False), **fitted_state(self)})


def check_several(prompts: Any) -> None:
    """Refuse a text in place of a list of texts: its characters are no prompts."""
    if isinstance(prompts, (str, bytes)):
        raise TypeError(
            f"prompts must be a sequence of prompts, got a single {type(prompts).__name__}: "
            f"{prompts!r:.80}. Put it in a list."
        )


def clone_parameter(value: Any) -> Any:
    """A clone of an estimator; anything else, which may be a loaded model, as it is."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        return clone(value)
    return value


def fingerprint(generator: Any) -> str:
    """Fingerprint of any generator, by its own method or else by class and parameters."""
    if hasattr(generator, "fingerprint"):
        return str(generator.fingerprint())
    if hasattr(generator, "get_params"):
        params = generator.get_params(deep=False)
        return digest_of(type(generator), {**params, **fitted_state(generator)})
    return digest_of(type(generator), vars(generator))


def fitted_state(generator: Any) -> dict[str, Any]:
    """What a generator that is trained has learnt: by convention, names that end in "_"."""
    if not hasattr(generator, "fit"):
        return {}
    return {
        name: value
        for name, value in getattr(generator, "__dict__", {}).items()
        if name.endswith("_") and not name.startswith("_")
    }


def stream(
    generator: Any, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
) -> Iterator[tuple[int, int, Generation]]:
    """Yield the draws of any generator as they become known, checked.

    Parameters
    ----------
    generator : object with a method ``sample``
        Any generator; its own ``stream`` is used where it has one.
    prompts, n_samples, start, seed
        As in :meth:`BaseGenerator.sample`.

    Yields
    ------
    (int, int, Generation)
        Position of the prompt, index of the draw, the draw.

    Raises
    ------
    TypeError
        If what the generator gives is not made of :class:`Generation` (or plain strings, which
        are taken as responses with no log-probability).
    ValueError
        If it gives too few or too many draws, or a response that is None.
    """
    check_several(prompts)
    if hasattr(generator, "stream") and not _streams_samples(generator):
        wanted = set(range(len(prompts) * n_samples))
        for i, j, generation in generator.stream(prompts, n_samples, start=start, seed=seed):
            _check_off(wanted, generator, (i, j), (len(prompts), n_samples, start))
            yield i, j, _checked(generator, generation, i, j)
        if wanted:
            n_all = len(prompts) * n_samples
            raise ValueError(
                f"generator {_name(generator)} gave {n_all - len(wanted)} draws in all; wanted "
                f"{len(prompts)} prompts x {n_samples} draws = {n_all}."
            )
        return
    chunk_size = int(getattr(generator, "chunk_size", BaseGenerator.chunk_size))
    for first in range(0, len(prompts), chunk_size):
        chunk = prompts[first : first + chunk_size]
        rows = generator.sample(chunk, n_samples, start=start, seed=seed)
        if not isinstance(rows, Sequence) or len(rows) != len(chunk):
            raise ValueError(
                f"generator {_name(generator)} returned draws for "
                f"{len(rows) if hasattr(rows, '__len__') else type(rows).__name__} prompts; "
                f"wanted one list for each of {len(chunk)}."
            )
        for i, row in enumerate(rows):
            if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != n_samples:
                got = f"{len(row)} draws" if hasattr(row, "__len__") else repr(row)
                raise ValueError(
                    f"generator {_name(generator)} returned {got} for prompt {first + i}; "
                    f"wanted {n_samples} (draws {start} to {start + n_samples - 1})."
                )
            for j, generation in enumerate(row):
                yield first + i, start + j, _checked(generator, generation, first + i, start + j)


def sample(
    generator: Any, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
) -> list[list[Generation]]:
    """Draws of any generator, checked as in :func:`stream`, as a list for each prompt."""
    draws: list[list[Any]] = [[None] * n_samples for _ in prompts]
    for i, j, generation in stream(generator, prompts, n_samples, start=start, seed=seed):
        draws[i][j - start] = generation
    return draws


def serve(generator: Any, queue: DrawQueue) -> None:
    """Let any generator make the draws that a queue asks for.

    A :class:`QueueGenerator` answers the queue itself. Any other works in rounds: all draws that
    are wanted as things stand, then those that are wanted after these, and so on.
    """
    if isinstance(generator, QueueGenerator):
        generator.serve(queue)
        return
    while requests := queue.take():
        rounds: dict[tuple[int, int], list[int]] = {}
        for index, start, stop in requests:
            rounds.setdefault((start, stop), []).append(index)
        for (start, stop), indices in sorted(rounds.items()):
            chunk = [queue.prompts[i] for i in indices]
            if hasattr(queue.prompts, "dtype"):
                chunk = queue.prompts[indices]
            for m, draw, generation in stream(
                generator, chunk, stop - start, start=start, seed=queue.seed
            ):
                queue.put(indices[m], draw, generation)


def _streams_samples(generator: Any) -> bool:
    """Whether `stream` is the default one, in terms of `sample`, whose rows tell more."""
    return getattr(type(generator), "stream", None) is BaseGenerator.stream


def _check_off(
    wanted: set[int], generator: Any, draw: tuple[int, int], request: tuple[int, int, int]
) -> None:
    """Strike a draw that arrived off the list of those that were asked for."""
    (i, j), (n_prompts, n_samples, start) = draw, request
    if not (0 <= i < n_prompts and start <= j < start + n_samples):
        raise ValueError(
            f"generator {_name(generator)} gave draw {j} of prompt {i}; wanted draws {start} to "
            f"{start + n_samples - 1} of {n_prompts} prompts."
        )
    position = i * n_samples + j - start
    if position not in wanted:
        raise ValueError(f"generator {_name(generator)} gave draw {j} of prompt {i} twice.")
    wanted.remove(position)


def _checked(generator: Any, generation: Any, i: int, j: int) -> Generation:
    if isinstance(generation, str):
        return Generation(generation)
    if not isinstance(generation, Generation):
        raise TypeError(
            f"generator {_name(generator)} returned a {type(generation).__name__} as draw {j} of "
            f"prompt {i}; wanted a Generation (or a str)."
        )
    if generation.response is None:
        raise ValueError(
            f"generator {_name(generator)} returned no response (None) as draw {j} of prompt {i}; "
            "wanted a str or a number."
        )
    return generation


def _name(generator: Any) -> str:
    return type(generator).__name__
