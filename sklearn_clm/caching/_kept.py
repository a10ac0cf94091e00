"""A queue that serves kept draws and passes others on."""

import abc
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeAlias

from sklearn_clm.generators import Generator
from sklearn_clm.generators._concurrent import POLL_SECONDS
from sklearn_clm.generators.base import answer_queue
from sklearn_clm.generators.draws import Generation
from sklearn_clm.generators.queue import DrawQueue, DrawRequest, HowMany, RelayQueue
from sklearn_clm.generators.records import key_digest

Place: TypeAlias = tuple[bytes, int]  # the key of a prompt, and the draw
_BLOCK = 256  # prompts that are looked at together

# a draw that another request has made; why it could not be made; None if it was given up
News: TypeAlias = tuple[Place, Generation | Exception | None]


class DrawKeeper(abc.ABC):
    """Kept draws of a generator and seed, for one request.

    Where several requests want a draw at once, a keeper may let one of them make it, and tell the
    others.
    """

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

    def take_on(self, key: bytes, draw: int) -> bool:
        """Take on the making of a draw, if nobody has.

        Returns
        -------
        bool
            False where another request makes it, or has made it meanwhile: it comes as news.
        """
        return True

    def is_awaited(self, key: bytes, draw: int) -> bool:
        """Whether other requests wait for a draw of this one."""
        return False

    def release(self, key: bytes, draw: int) -> bool:
        """Leave a draw unmade, unless other requests await it."""
        return True

    def news(self, seconds: float) -> list[News]:
        """What became of others' draws, after these seconds at most."""
        return []

    def give_up(self, error: Exception | None = None) -> None:  # noqa: B027
        """Make no more draws; others do, or get the error."""

    def leave(self) -> None:  # noqa: B027
        """Wait for nothing any more."""


class KeepingQueue(RelayQueue):
    """The queue that a generator sees behind kept draws.

    Kept draws go to the caller's queue at once. The generator is asked for each of the others
    once, however often its prompt occurs, and they are kept as they arrive. What another request
    makes is waited for. Where a draw cannot be kept, it and all that are under way still go to the
    caller, and no other is asked for.
    """

    def __init__(self, outer: DrawQueue, keeper: DrawKeeper) -> None:
        super().__init__(outer)
        self._keeper = keeper
        # a prompt that has no key is refused before anything is paid for
        self._keys = [keeper.key(prompt) for prompt in outer.prompts]
        self.n_keys = len(set(self._keys))
        self._wanted_by: dict[Place, list[int]] = {}  # positions that want a draw
        self._made_elsewhere: set[Place] = set()  # those of them that another request makes
        self._failed_elsewhere: dict[Place, Exception] = {}
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
        # kept before it is handed on: what the caller has seen is never drawn anew
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
        """Draws to make next, while draws can be kept."""
        # what cannot be kept is not paid for
        if self.failure is not None:
            return []
        self._hear(0.0)
        return super().take(max_draws, max_prompts=max_prompts)

    def take_ahead(
        self, max_draws: int, least_chance: float = 0.0, *, n_at_once: HowMany | None = None
    ) -> list[DrawRequest]:
        """Draws that may be wanted, while they can be kept."""
        if self.failure is not None:
            return []
        return super().take_ahead(max_draws, least_chance, n_at_once=n_at_once)

    def give_up(self, prompt: int, draw: int) -> bool:
        """Take back a draw that nobody waits for."""
        key = self._keys[prompt]
        positions = self._wanted_by[key, draw]
        is_needed = self.failure is not None or any(map(self._outer.is_open, positions))
        # another position of the same prompt, or another request, may wait for it
        if is_needed or not self._keeper.release(key, draw):
            return False
        del self._wanted_by[key, draw]
        self.n_under_way -= 1
        for position in positions:
            self._outer.give_up(position, draw)
        return True

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
        """Whether all who waited for a draw have left."""
        is_awaited = self._keeper.is_awaited(self._keys[prompt], draw)
        return self._outer.is_abandoned(prompt, draw) and not is_awaited

    def has_more(self, *, asks_again: bool) -> bool:
        """Whether there are draws to make, after those of others.

        Draws that are wanted and that the generator gave up are to be made, too, if `asks_again`.
        """
        # nobody makes now what this request was to make
        self._keeper.give_up()
        self.n_under_way = 0

        while True:
            self._waiting.clear()
            if asks_again:
                for place in self._wanted_by.keys() - self._made_elsewhere:
                    self._ask_for(place)
            if self._waiting:
                return True
            if requests := self._outer.take(max_prompts=_BLOCK):
                self._receive(requests)
                if self._waiting:
                    return True
                # it may want what the generator gave up, for another position of its prompt
                asks_again = True
                continue

            # only draws that others make are left: wait for those that still decide something
            needed = list(filter(self._is_needed, self._made_elsewhere))
            if not needed:
                return False
            for place in needed:
                if place in self._failed_elsewhere:
                    raise self._failed_elsewhere[place]
            asks_again = self._hear(POLL_SECONDS)

    def _is_needed(self, place: Place) -> bool:
        """Whether any position still wants a draw."""
        _, draw = place
        return any(self._outer.is_wanted(position, draw) for position in self._wanted_by[place])

    def _ask_for(self, place: Place) -> None:
        """Ask the generator or another request for a wanted draw."""
        key, draw = place
        if not self._is_needed(place):
            return
        if self._keeper.take_on(key, draw):
            self._waiting.append(DrawRequest(self._wanted_by[place][0], draw, draw + 1))
        else:
            self._made_elsewhere.add(place)

    def _hear(self, seconds: float) -> bool:
        """Hand on what others have made; whether anything was heard."""
        news = self._keeper.news(seconds)
        for place, outcome in news:
            if place not in self._made_elsewhere:
                continue
            # it concerns this request only if the draw is still wanted in the end
            if isinstance(outcome, Exception):
                self._failed_elsewhere[place] = outcome
                continue
            self._made_elsewhere.remove(place)
            # who was to make it has left: this request does, or waits for the next one
            if outcome is None:
                self._ask_for(place)
                continue
            _, draw = place
            positions = self._wanted_by.pop(place)
            for position in positions:
                self._outer.put(position, draw, outcome)
            self.n_put += 1
            self._keeper.count(len(positions), 0)
        return bool(news)

    def _receive(self, requests: list[DrawRequest]) -> None:
        """Put the kept draws; the others wait for the generator."""
        keys = [self._keys[request.prompt] for request in requests]
        n_hits = 0
        for request, key, kept in zip(requests, keys, self._keeper.recall(keys, requests)):
            position, start, stop = request
            runs: list[tuple[int, int]] = []  # of draws to be made
            for draw in range(start, stop):
                if (generation := kept.get(draw)) is not None:
                    n_hits += 1
                    self._outer.put(position, draw, generation)
                # equal prompts of one request share their draws
                elif (waiting := self._wanted_by.get((key, draw))) is not None:
                    waiting.append(position)
                    self._sharing.setdefault(key, []).append(position)
                # another request makes it just now: its news come by the keeper
                elif not self._keeper.take_on(key, draw):
                    self._wanted_by[key, draw] = [position]
                    self._made_elsewhere.add((key, draw))
                else:
                    self._wanted_by[key, draw] = [position]
                    # neighbouring draws are one request to the generator
                    first = runs.pop()[0] if runs and runs[-1][1] == draw else draw
                    runs.append((first, draw + 1))
            self._waiting += [DrawRequest(position, *run) for run in runs]

        self._keeper.count(n_hits, 0)


def serve_kept(generator: Generator, queue: DrawQueue, keeper: DrawKeeper) -> None:
    """Answer a queue with kept draws and with new ones."""
    inner = KeepingQueue(queue, keeper)
    error_of_prompt: Exception | None = None
    n_put = -1
    try:
        answer_queue(generator, inner)
        while inner.failure is None and inner.has_more(asks_again=n_put < queue.n_put):
            n_put = queue.n_put
            answer_queue(generator, inner)
        if inner.failure is not None:
            raise inner.failure
    except CancelledError:
        raise
    except Exception as error:
        # of several prompts nobody knows whose error it is, and one of the caller's functions
        # concerns nobody else
        if inner.n_keys == 1 and not queue.is_deciding:
            error_of_prompt = error
        raise
    finally:
        keeper.give_up(error_of_prompt)
        keeper.leave()
