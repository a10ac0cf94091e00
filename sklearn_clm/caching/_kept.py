"""A queue that serves kept draws and passes others on."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from sklearn_clm.generators._base import Generator, serve
from sklearn_clm.generators._draws import Generation
from sklearn_clm.generators._queue import DrawQueue, DrawRequest, RelayQueue
from sklearn_clm.generators._records import key_digest


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


class KeepingQueue(RelayQueue):
    """The queue that a generator sees behind kept draws.

    Kept draws go to the caller's queue at once. The generator is asked for each of the others
    once, however often its prompt occurs, and they are kept as they arrive. Where one cannot be
    kept, it and all that are under way still go to the caller, and no other is asked for.
    """

    def __init__(self, outer: DrawQueue, keeper: DrawKeeper) -> None:
        super().__init__(outer)
        self._keeper = keeper
        # a prompt that has no key is refused before anything is paid for
        self._keys = [keeper.key(prompt) for prompt in outer.prompts]
        self._wanted_by: dict[tuple[bytes, int], list[int]] = {}  # positions that want a draw
        self._sharing: dict[bytes, list[int]] = {}  # positions that wait for another one's draws
        self.failure: Exception | None = None  # why a draw could not be kept

    def put(self, prompt: int, draw: int, generation: Generation) -> None:
        """Keep a draw and hand it to all who wait."""
        key = self._keys[prompt]
        positions = self._wanted_by.get((key, draw))
        if positions is None:
            raise ValueError(
                f"draw {draw} of prompt {prompt} must have been taken and not put before."
            )
        try:
            generation = self._keeper.keep(key, self.prompts[prompt], draw, generation)
        except Exception as error:
            self.failure = self.failure or error
        for position in positions:
            self._outer.put(position, draw, generation)
        # last of all: where an interrupt came before, the draw can be put again
        del self._wanted_by[key, draw]
        self.n_under_way -= 1
        self.n_put += 1
        self._keeper.count(len(positions) - 1, 1)

    def take(
        self, max_draws: int | None = None, *, max_prompts: int | None = None
    ) -> list[DrawRequest]:
        """Draws to make next; none once one could not be kept."""
        return [] if self.failure else super().take(max_draws, max_prompts=max_prompts)

    def take_ahead(self, max_draws: int, least_chance: float = 0.0) -> list[DrawRequest]:
        """Draws that may be wanted later; none once one could not be kept."""
        return [] if self.failure else super().take_ahead(max_draws, least_chance)

    def is_open(self, prompt: int) -> bool:
        """Whether anybody may ask for more draws of a prompt."""
        if self.failure is not None:
            return False
        sharing = self._sharing.get(self._keys[prompt], ())
        return self._outer.is_open(prompt) or any(map(self._outer.is_open, sharing))

    def is_wanted(self, prompt: int, draw: int) -> bool:
        """Whether any position wants a draw as things stand."""
        positions = self._wanted_by.get((self._keys[prompt], draw), ())
        return any(self._outer.is_wanted(position, draw) for position in positions)

    def is_abandoned(self, prompt: int, draw: int) -> bool:
        """Whether all who waited for a draw under way have left."""
        return self._outer.is_abandoned(prompt, draw)

    def ask_again(self) -> bool:
        """Ask anew for wanted draws that the generator gave up."""
        self.n_under_way = 0
        for (_, draw), positions in self._wanted_by.items():
            position = next(filter(self._outer.is_open, positions), None)
            if position is not None:
                self._waiting.append(DrawRequest(position, draw, draw + 1))
        return bool(self._waiting)

    def _receive(self, asked: list[DrawRequest]) -> None:
        """Put the kept draws; the others wait for the generator."""
        keys = [self._keys[request.prompt] for request in asked]
        n_hits = 0
        for request, key, kept in zip(asked, keys, self._keeper.recall(keys, asked)):
            position, start, stop = request
            runs: list[tuple[int, int]] = []  # of draws to be made
            for draw in range(start, stop):
                if (generation := kept.get(draw)) is not None:
                    n_hits += 1
                    self._outer.put(position, draw, generation)
                elif (waiting := self._wanted_by.get((key, draw))) is not None:
                    waiting.append(position)
                    self._sharing.setdefault(key, []).append(position)
                else:
                    self._wanted_by[key, draw] = [position]
                    first = runs.pop()[0] if runs and runs[-1][1] == draw else draw
                    runs.append((first, draw + 1))
            self._waiting += [DrawRequest(position, *run) for run in runs]
        self._keeper.count(n_hits, 0)


def serve_kept(generator: Generator, queue: DrawQueue, keeper: DrawKeeper) -> None:
    """Answer a queue with kept draws and with new ones."""
    inner = KeepingQueue(queue, keeper)
    serve(generator, inner)
    n_put = -1
    while inner.failure is None and n_put < inner.n_put and inner.ask_again():
        n_put = inner.n_put
        serve(generator, inner)
    if inner.failure is not None:
        raise inner.failure
