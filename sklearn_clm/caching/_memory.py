"""Keyed draws that are kept in memory."""

import contextlib
import hashlib
import os
import queue as queues
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from sklearn.utils import check_scalar

from sklearn_clm.caching._kept import DrawKeeper, News, Place, serve_kept
from sklearn_clm.generators import DrawQueue, Generation, Generator
from sklearn_clm.generators.draws import prompt_bytes
from sklearn_clm.generators.identity import fingerprint as fingerprint_of
from sklearn_clm.generators.identity import strictly
from sklearn_clm.generators.queue import DrawRequest

# about what Python takes, measured
_PROMPT_BYTES = 416  # for a prompt besides its draws
_DRAW_BYTES = 200  # for a draw besides its text and tokens
_TOKEN_BYTES = 32  # for a log-probability in its tuple
_SPAN_BYTES = 80


class DrawMemory:
    """Keep the most recently used draws in this process.

    Draws are keyed: draw j of a prompt depends on (generator, prompt, seed, j) alone. So a draw
    that was made once need not be made again, whoever asks. This memory stands between a queue of
    draws and a generator, answers what it knows and asks for the rest.

    Several threads may share one memory: where two want a draw at once, one of them makes it, and
    both have it, or its error. A copy or a pickle of a memory is empty.

    Parameters
    ----------
    max_bytes : int, default=2**30
        About how much memory draws may take, >= 0. A draw of 8 tokens and 20 characters takes 1 kB,
        shared with the sets that ``predict`` returns. The default keeps a million of these, since a
        draw that was let go may have to be paid for again.

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
    >>> from sklearn_clm.generators import DrawQueue, PrecomputedGenerator
    >>> generator = PrecomputedGenerator(["2+2?"], [["4", "5", "4"]])
    >>> memory = DrawMemory()
    >>> memory.serve(generator, DrawQueue(["2+2?"], 2))
    >>> memory.n_bytes > 0
    True
    """

    def __init__(self, max_bytes: int = 2**30) -> None:
        check_scalar(max_bytes, "max_bytes", Integral, min_val=0)
        self.max_bytes = max_bytes
        # by process: a fork leaves the threads of its parent behind, and what they had locked
        self._locks: dict[int, threading.RLock] = {}
        self._under_way: dict[int, _DrawsUnderWay] = {}
        self.clear()

    def __reduce__(self) -> tuple[type["DrawMemory"], tuple[int]]:
        return type(self), (self.max_bytes,)

    @property
    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def clear(self) -> None:
        """Forget all draws."""
        with self._lock:
            self._draws: OrderedDict[bytes, dict[int, Generation]] = OrderedDict()
            self.n_bytes = 0

    def serve(
        self, generator: Generator, queue: DrawQueue, *, fingerprint: str | None = None
    ) -> None:
        """Answer a queue with known draws and with new ones.

        Draws are kept as they arrive, also where the generator fails later or is interrupted.

        Parameters
        ----------
        generator : Generator
            Where missing draws come from.
        queue : DrawQueue
            The draws that are wanted.
        fingerprint : str, default=None
            Name that draws are kept under; None is the fingerprint of `generator`, which is refused
            where none can be made.
        """
        with strictly("generator"):
            name = fingerprint_of(generator) if fingerprint is None else fingerprint
        serve_kept(generator, queue, _MemoryKeeper(self, name, queue.seed))


class _DrawsUnderWay:
    """The requests that make draws, and those that wait."""

    def __init__(self) -> None:
        self.makers: dict[Place, _MemoryKeeper] = {}
        self.waiting: dict[Place, list[_MemoryKeeper]] = {}


class _MemoryKeeper(DrawKeeper):
    """The draws in a memory, for one request."""

    def __init__(self, memory: DrawMemory, name: str, seed: int) -> None:
        self._memory = memory
        self._under_way = memory._under_way.setdefault(os.getpid(), _DrawsUnderWay())
        self._places: set[Place] = set()  # of draws that it makes, or waits for
        self._news: queues.SimpleQueue[News] = queues.SimpleQueue()
        # generator and seed are part of the key: one memory serves several of both
        self._prefix = f"{name} {seed}".encode() + b"\0draws\0"

    def key(self, prompt: Any) -> bytes:
        return hashlib.blake2b(self._prefix + prompt_bytes(prompt), digest_size=16).digest()

    def recall(
        self, keys: Sequence[bytes], requests: Sequence[DrawRequest]
    ) -> Sequence[Mapping[int, Generation]]:
        memory = self._memory
        with memory._lock:
            # those used last are forgotten last
            for key in filter(memory._draws.__contains__, keys):
                memory._draws.move_to_end(key)
            return [memory._draws.get(key, {}) for key in keys]

    def keep(self, key: bytes, prompt: Any, draw: int, generation: Generation) -> Generation:
        memory = self._memory
        with memory._lock:
            if key not in memory._draws:
                memory._draws[key] = {}
                memory.n_bytes += _PROMPT_BYTES
            kept = memory._draws[key]
            # the first one stays: others may have decided by it
            if draw not in kept:
                kept[draw] = generation
                memory.n_bytes += _size(generation)
            generation = kept[draw]
            self._tell((key, draw), generation)
            # whole prompts: a prompt that lacks early draws would ask for them again
            while memory.n_bytes > memory.max_bytes:
                _, gone = memory._draws.popitem(last=False)
                memory.n_bytes -= _PROMPT_BYTES + sum(map(_size, gone.values()))
        return generation

    def take_on(self, key: bytes, draw: int) -> bool:
        place = key, draw
        with self._memory._lock:
            # it may have been made since it was looked up
            kept = self._memory._draws.get(key, {}).get(draw)
            if kept is not None:
                self._news.put((place, kept))
                return False
            self._places.add(place)
            if self._under_way.makers.setdefault(place, self) is self:
                return True
            self._under_way.waiting.setdefault(place, []).append(self)
            return False

    def is_awaited(self, key: bytes, draw: int) -> bool:
        return bool(self._under_way.waiting.get((key, draw)))

    def release(self, key: bytes, draw: int) -> bool:
        place = key, draw
        with self._memory._lock:
            # another request counts on it
            if self._under_way.waiting.get(place):
                return False
            self._under_way.makers.pop(place, None)
            self._places.discard(place)
            return True

    def news(self, seconds: float) -> list[News]:
        arrived = []
        with contextlib.suppress(queues.Empty):
            if seconds:
                # a signal may be taken by another thread: whoever waits looks now and then
                arrived.append(self._news.get(timeout=seconds))
            while True:
                arrived.append(self._news.get_nowait())
        return arrived

    def give_up(self, error: Exception | None = None) -> None:
        with self._memory._lock:
            for place in list(self._places):
                if self._under_way.makers.get(place) is self:
                    self._tell(place, error)

    def leave(self) -> None:
        # a request that has ended is told of nothing, or memory would hold it
        with self._memory._lock:
            for place in self._places:
                waiting = self._under_way.waiting.get(place, [])
                if self in waiting:
                    waiting.remove(self)
            if not self._under_way.makers:
                # an empty dict keeps the room of all that it held
                self._under_way.makers.clear()
                self._under_way.waiting.clear()

    def _tell(self, place: Place, outcome: Generation | Exception | None) -> None:
        """End the making of a draw, and tell who waits."""
        for keeper in self._under_way.waiting.get(place, ()):
            keeper._news.put((place, outcome))
        # last of all: where an interrupt came before, they are told again
        self._under_way.waiting.pop(place, None)
        self._under_way.makers.pop(place, None)
        self._places.discard(place)


def _size(generation: Generation) -> int:
    n_tokens = len(generation.token_logprobs or ())
    n_spans = len(generation.token_spans or ())
    # about what Python takes: exact sizes would cost more than they are worth
    text = sys.getsizeof(generation.response)
    return text + _DRAW_BYTES + _TOKEN_BYTES * n_tokens + _SPAN_BYTES * n_spans
