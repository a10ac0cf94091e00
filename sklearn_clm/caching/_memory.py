"""Keyed draws that are kept in memory, in little room."""

import hashlib
import struct
import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sklearn_clm.generators import DrawQueue, DrawRequest, Generation, Generator, prompt_bytes
from sklearn_clm.generators._base import fingerprint as fingerprint_of
from sklearn_clm.generators._fingerprint import UnidentifiedError, strictly
from sklearn_clm.generators._kept import DrawKeeper, rows_served, serve_kept

_DRAW_BYTES = 96  # what a draw takes besides its packed form, and a prompt besides its draws
_PROMPT_BYTES = 416
_SEPARATOR = b"\0draws\0"


class DrawMemory:
    """Keep draws in this process, those of the least recently used prompts going first.

    Draws are keyed: draw j of a prompt depends on (generator, prompt, seed, j) alone. So a draw
    that was made once need not be made again, whoever asks. This memory stands between a queue of
    draws and a generator, answers what it knows and asks for the rest.

    Several threads may share one memory. A copy or a pickle of it is empty.

    Parameters
    ----------
    max_bytes : int, default=2**30
        About how much memory draws may take, >= 0. A draw of 8 tokens and 20 characters takes less
        than 300 bytes, half of what it takes in the sets that ``predict`` returns. The default
        keeps three million of these, since a draw that was let go may have to be paid for again.

    Attributes
    ----------
    n_bytes : int
        About how much memory draws take now.

    See Also
    --------
    CachedGenerator : Keeps draws in a file, over runs and processes.

    Examples
    --------
    >>> from sklearn_clm.caching import DrawMemory
    >>> from sklearn_clm.generators import PrecomputedGenerator
    >>> generator = PrecomputedGenerator(["2+2?"], [["4", "5", "4"]])
    >>> memory = DrawMemory()
    >>> [draw.response for draw in memory.sample(generator, ["2+2?"], 2)[0]]
    ['4', '5']
    >>> memory.known(generator, ["2+2?"], 3)
    array([[ True,  True, False]])
    """

    def __init__(self, max_bytes: int = 2**30) -> None:
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, (int, np.integer)):
            raise TypeError(f"max_bytes must be an int, got a {type(max_bytes).__name__} instead.")
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be at least 0, got {max_bytes} instead.")
        self.max_bytes = int(max_bytes)
        self._forget_all()
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"DrawMemory(max_bytes={self.max_bytes}, n_bytes={self.n_bytes})"

    @property
    def n_bytes(self) -> int:
        """About how much memory draws take."""
        return self._n_bytes

    def serve(
        self, generator: Generator, queue: DrawQueue, *, fingerprint: str | None = None
    ) -> None:
        """Answer a queue: with known draws at once, with the generator's for the rest.

        Draws are kept as they arrive, also where the generator fails later or is interrupted.

        Parameters
        ----------
        generator : Generator
            Where missing draws come from.
        queue : DrawQueue
            The draws that are wanted.
        fingerprint : str, default=None
            Name that draws are kept under; None is the fingerprint of `generator`, or its identity
            where it has state that no fingerprint can be made of.

        Raises
        ------
        TypeError
            If a prompt has no stable serialisation; then no draw is made.
        """
        serve_kept(generator, queue, _Keeper(self, self._name(generator, fingerprint), queue.seed))

    def sample(
        self,
        generator: Generator,
        prompts: Sequence[Any],
        n_samples: int,
        *,
        start: int = 0,
        seed: int = 0,
        fingerprint: str | None = None,
    ) -> list[list[Generation]]:
        """Draws ``start`` to ``start + n_samples - 1`` of each prompt, known ones from memory.

        Parameters
        ----------
        generator : Generator
            Where missing draws come from.
        prompts, n_samples, start, seed
            As in :meth:`Generator.sample`.
        fingerprint : str, default=None
            As in :meth:`serve`.

        Returns
        -------
        list of n lists of `n_samples` Generation
        """

        def answer(queue: DrawQueue) -> None:
            self.serve(generator, queue, fingerprint=fingerprint)

        return rows_served(answer, prompts, n_samples, start, seed)

    def known(
        self,
        generator: Generator,
        prompts: Sequence[Any],
        n_samples: int,
        *,
        start: int = 0,
        seed: int = 0,
        fingerprint: str | None = None,
    ) -> np.ndarray:
        """Which draws are in memory.

        Parameters
        ----------
        generator, prompts, n_samples, start, seed, fingerprint
            As in :meth:`sample`.

        Returns
        -------
        ndarray of shape (n_prompts, n_samples), bool
        """
        keeper = _Keeper(self, self._name(generator, fingerprint), seed)
        known = np.zeros((len(prompts), n_samples), dtype=bool)
        for i, prompt in enumerate(prompts):
            kept = self._draws.get(keeper.key(prompt), {})
            known[i] = [start + j in kept for j in range(n_samples)]
        return known

    def clear(self) -> None:
        """Forget all draws."""
        with self._lock:
            self._forget_all()

    def __reduce__(self) -> tuple[type["DrawMemory"], tuple[int]]:
        return type(self), (self.max_bytes,)

    def _forget_all(self) -> None:
        self._draws: OrderedDict[bytes, dict[int, bytes | Generation]] = OrderedDict()
        self._n_bytes = 0
        self._nameless: dict[int, Generator] = {}  # held, so that no other gets the same identity

    def _name(self, generator: Generator, fingerprint: str | None) -> str:
        if fingerprint is not None:
            return fingerprint
        try:
            with strictly():
                return fingerprint_of(generator)
        except UnidentifiedError:
            with self._lock:
                self._nameless[id(generator)] = generator
            return f"object {id(generator)}"

    def _recall(self, key: bytes, start: int, stop: int) -> dict[int, Generation]:
        with self._lock:
            kept = self._draws.get(key)
            if kept is None:
                return {}
            self._draws.move_to_end(key)
            found = [(draw, kept[draw]) for draw in range(start, stop) if draw in kept]
        return {draw: _unpacked(value) for draw, value in found}

    def _keep(self, key: bytes, draw: int, generation: Generation) -> Generation:
        packed = _packed(generation)
        with self._lock:
            kept = self._draws.get(key)
            if kept is None:
                kept = self._draws[key] = {}
                self._n_bytes += _PROMPT_BYTES
            elif draw in kept:
                return _unpacked(kept[draw])
            kept[draw] = packed
            self._n_bytes += _size(packed)
            while self._n_bytes > self.max_bytes:
                _, gone = self._draws.popitem(last=False)
                self._n_bytes -= _PROMPT_BYTES + sum(map(_size, gone.values()))
        return generation


class _Keeper(DrawKeeper):
    """The draws of one generator and seed in a memory."""

    def __init__(self, memory: DrawMemory, name: str, seed: int) -> None:
        self._memory = memory
        self._prefix = f"{name} {seed}".encode() + _SEPARATOR

    def key(self, prompt: Any) -> bytes:
        return hashlib.blake2b(self._prefix + prompt_bytes(prompt), digest_size=16).digest()

    def recall(
        self, keys: Sequence[bytes], requests: Sequence[DrawRequest]
    ) -> Sequence[Mapping[int, Generation]]:
        return [
            self._memory._recall(key, request.start, request.stop)
            for key, request in zip(keys, requests)
        ]

    def keep(self, key: bytes, prompt: Any, draw: int, generation: Generation) -> Generation:
        return self._memory._keep(key, draw, generation)

    def count(self, hits: int, misses: int) -> None:
        return


# which of the numbers are known; lengths of the response and of the finish reason in bytes; numbers
# of token log-probabilities and of spans (-1: unknown); type of the spans' ends; log p; |y|
_HEADER = struct.Struct("<BIbiicdq")
_HAS_LOGPROB, _HAS_N_TOKENS = 1, 2


def _packed(generation: Generation) -> bytes | Generation:
    """A draw as bytes, or as it is where bytes would not give back an equal one."""
    logprob, n_tokens = generation.logprob, generation.n_tokens
    logprobs, spans = generation.token_logprobs, generation.token_spans
    reason = generation.finish_reason
    texts = type(generation.response) is str and type(reason) in (str, type(None))
    if not texts or {type(logprobs), type(spans)} - {tuple, type(None)}:
        return generation
    try:
        text = generation.response.encode()
        ending = b"" if reason is None else reason.encode()
        values = array("d", logprobs or ())
        flat = [end for first, last in spans or () for end in (first, last)]
        largest = max(flat, default=0)
        code = "B" if largest < 256 else "H" if largest < 65536 else "I"
        header = _HEADER.pack(
            (logprob is not None) * _HAS_LOGPROB + (n_tokens is not None) * _HAS_N_TOKENS,
            len(text),
            -1 if reason is None else len(ending),
            -1 if logprobs is None else len(values),
            -1 if spans is None else len(flat) // 2,
            code.encode(),
            0.0 if logprob is None else logprob,
            0 if n_tokens is None else n_tokens,
        )
        return b"".join([header, text, ending, values.tobytes(), array(code, flat).tobytes()])
    except (TypeError, ValueError, OverflowError, struct.error):
        return generation


def _unpacked(packed: bytes | Generation) -> Generation:
    if isinstance(packed, Generation):
        return packed
    flags, n_text, n_reason, n_values, n_spans, code, logprob, n_tokens = _HEADER.unpack_from(
        packed
    )
    text_end = _HEADER.size + n_text
    reason_end = text_end + max(n_reason, 0)
    values_end = reason_end + 8 * max(n_values, 0)
    values = array("d", packed[reason_end:values_end])
    ends = array(code.decode(), packed[values_end:])
    return Generation(
        packed[_HEADER.size : text_end].decode(),
        logprob if flags & _HAS_LOGPROB else None,
        n_tokens if flags & _HAS_N_TOKENS else None,
        None if n_values < 0 else tuple(values),
        None if n_spans < 0 else tuple(zip(ends[::2], ends[1::2])),
        None if n_reason < 0 else packed[text_end:reason_end].decode(),
    )


def _size(packed: bytes | Generation) -> int:
    if isinstance(packed, bytes):
        return len(packed) + _DRAW_BYTES
    # an object's own size, and the numbers of its tokens
    tokens = len(packed.token_logprobs or ()) + 4 * len(packed.token_spans or ())
    return sys.getsizeof(packed.response) + 32 * tokens + 2 * _DRAW_BYTES
