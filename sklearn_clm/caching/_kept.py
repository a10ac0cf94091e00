"""A queue that serves kept draws and passes others on."""

import abc
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from sklearn_clm.generators._base import Generator, serve
from sklearn_clm.generators._draws import Generation
from sklearn_clm.generators._queue import ANY, DrawQueue, DrawRequest
from sklearn_clm.generators._records import key_digest

_BLOCK = 256  # prompts that are looked up together


class DrawKeeper(abc.ABC):
    """The kept draws of one generator under one seed."""

    def key(self, prompt: Any) -> bytes:
        """What stands for a prompt: equal for equal prompts."""
        return key_digest(prompt)

    @abc.abstractmethod
    def recall(
        self, keys: Sequence[bytes], requests: Sequence[DrawRequest]
    ) -> Sequence[Mapping[int, Generation]]:
        """For each request, its draws that are kept, by index."""

    @abc.abstractmethod
    def keep(self, key: bytes, prompt: Any, draw: int, generation: Generation) -> Generation:
        """Keep a draw; return the one that was kept first."""

    def count(self, hits: int, misses: int) -> None:  # noqa: B027
        """Count draws that were kept already, and draws to make."""


class KeepingQueue(DrawQueue):
    """The queue that a generator sees behind kept draws.

    Kept draws go to the caller's queue at once. The generator is asked for each of the others
    once, however often its prompt occurs, and they are kept as they arrive.
    """

    def __init__(self, outer: DrawQueue, keeper: DrawKeeper) -> None:
        super().__init__(outer.prompts, outer.n_draws, seed=outer.seed)
        self._outer = outer
        self._keeper = keeper
        # a prompt that has no key is refused before anything is paid for
        self._keys = [keeper.key(prompt) for prompt in outer.prompts]
        self._missing: deque[DrawRequest] = deque()  # taken from the caller, not yet given out
        self._waiting: dict[tuple[bytes, int], list[int]] = {}  # positions that want a draw
        self._sharing: dict[bytes, list[int]] = {}  # positions that wait for another one's draws

    def take(
        self, max_draws: int | None = None, *, max_prompts: int | None = None
    ) -> list[DrawRequest]:
        """Draws to make next; kept ones are put at once."""
        requests: list[DrawRequest] = []
        draws = ANY if max_draws is None else max_draws
        prompts = ANY if max_prompts is None else max_prompts
        while True:
            draws = self._give(requests, draws, prompts)
            room = min(prompts - len(requests), _BLOCK)
            asked = self._outer.take(draws, max_prompts=room) if draws and room else []
            if not asked:
                return requests
            self._put_kept(asked)

    def take_ahead(self, max_draws: int, least_chance: float = 0.0) -> list[DrawRequest]:
        """Draws that may be wanted later, as in :meth:`DrawQueue.take_ahead`."""
        requests: list[DrawRequest] = []
        while max_draws and (asked := self._outer.take_ahead(max_draws, least_chance)):
            self._put_kept(asked)
            max_draws = self._give(requests, max_draws, ANY)
        return requests

    def put(self, prompt: int, draw: int, generation: Generation) -> None:
        """Keep a draw and hand it to all who wait."""
        key = self._keys[prompt]
        positions = self._waiting.get((key, draw))
        if positions is None:
            raise ValueError(
                f"draw {draw} of prompt {prompt} must have been taken and not put before."
            )
        generation = self._keeper.keep(key, self.prompts[prompt], draw, generation)
        for position in positions:
            self._outer.put(position, draw, generation)
        # last of all: where an interrupt came before, the draw can be put again
        del self._waiting[key, draw]
        self.n_under_way -= 1
        self.n_put += 1
        self._keeper.count(len(positions) - 1, 1)

    def is_open(self, prompt: int) -> bool:
        """Whether anybody may ask for more draws of a prompt."""
        sharing = self._sharing.get(self._keys[prompt], ())
        return self._outer.is_open(prompt) or any(map(self._outer.is_open, sharing))

    def is_wanted(self, prompt: int, draw: int) -> bool:
        """Whether any position wants a draw as things stand."""
        positions = self._waiting.get((self._keys[prompt], draw), ())
        return any(self._outer.is_wanted(position, draw) for position in positions)

    def ask_again(self) -> bool:
        """Ask anew for wanted draws that the generator gave up."""
        self.n_under_way = 0
        for (_, draw), positions in self._waiting.items():
            position = next(filter(self._outer.is_open, positions), None)
            if position is not None:
                self._missing.append(DrawRequest(position, draw, draw + 1))
        return bool(self._missing)

    def _put_kept(self, asked: list[DrawRequest]) -> None:
        """Put the kept draws, and note the others as missing."""
        keys = [self._keys[request.prompt] for request in asked]
        n_hits = 0
        for request, key, kept in zip(asked, keys, self._keeper.recall(keys, asked)):
            position, start, stop = request
            runs: list[tuple[int, int]] = []  # of draws to be made
            for draw in range(start, stop):
                if (generation := kept.get(draw)) is not None:
                    n_hits += 1
                    self._outer.put(position, draw, generation)
                elif (waiting := self._waiting.get((key, draw))) is not None:
                    waiting.append(position)
                    self._sharing.setdefault(key, []).append(position)
                else:
                    self._waiting[key, draw] = [position]
                    first = runs.pop()[0] if runs and runs[-1][1] == draw else draw
                    runs.append((first, draw + 1))
            self._missing += [DrawRequest(position, *run) for run in runs]
        self._keeper.count(n_hits, 0)

    def _give(self, requests: list[DrawRequest], max_draws: int, max_prompts: int) -> int:
        """Append missing draws to `requests`; return how many more fit."""
        given, later = {request.prompt for request in requests}, []
        while self._missing and max_draws and len(requests) < max_prompts:
            position, start, stop = self._missing.popleft()
            if position not in given:
                given.add(position)
                n = min(stop - start, max_draws)
                requests.append(DrawRequest(position, start, start + n))
                self.n_under_way += n
                max_draws, start = max_draws - n, start + n
            if start < stop:
                later.append(DrawRequest(position, start, stop))
        self._missing.extendleft(reversed(later))
        return max_draws


def serve_kept(generator: Generator, queue: DrawQueue, keeper: DrawKeeper) -> None:
    """Answer a queue with kept draws and with new ones."""
    inner = KeepingQueue(queue, keeper)
    serve(generator, inner)
    n_put = -1
    while n_put < inner.n_put and inner.ask_again():
        n_put = inner.n_put
        serve(generator, inner)
