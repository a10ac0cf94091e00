"""Draws that are asked for as earlier ones arrive."""

import heapq
from abc import abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from sklearn_clm.generators.draws import Generation

ANY = 2**62  # draws: more than anybody makes, and still a number to compute with
_BLOCK = 256  # prompts that a relay takes together
Decision = Callable[[list[tuple[int, list[Generation]]]], Iterable[int]]
Chances = Callable[[int, int], Sequence[float]]
HowMany = Callable[[Sequence[float]], int]

# whether nobody waits any more for what is drawn in this context
CANCELLED: ContextVar[Callable[[], bool]] = ContextVar("cancelled", default=lambda: False)


class DrawRequest(NamedTuple):
    """Draws ``start`` to ``stop - 1`` of one prompt."""

    prompt: int
    start: int
    stop: int


@runtime_checkable
class QueueGenerator(Protocol):
    """A generator that answers a queue of draws.

    No draw waits for those of another prompt. It calls :meth:`DrawQueue.take` whenever it has room
    for more draws and :meth:`DrawQueue.put` as soon as one is complete, both from the thread that
    called `serve`, and returns once `take` gives nothing and no draw that is wanted
    (:meth:`DrawQueue.is_wanted`) is under way. Draws are keyed as in
    :class:`sklearn_clm.generators.Generator`.
    """

    def serve(self, queue: "DrawQueue") -> None:
        """Make draws until the queue asks for no more."""


def rounds_of(requests: Iterable[DrawRequest]) -> list[tuple[int, int, list[int]]]:
    """Requests grouped by draws: first draw, stop, positions of prompts."""
    rounds: dict[tuple[int, int], list[int]] = {}
    for prompt, start, stop in requests:
        rounds.setdefault((start, stop), []).append(prompt)
    return [(start, stop, prompts) for (start, stop), prompts in sorted(rounds.items())]


class DrawQueue:
    """The draws that a caller wants, for whoever makes them.

    The caller's rule decides on each prompt as soon as that prompt's draws arrive, in the order
    of the draws, and the next draw is then asked for at once. Draws may be put in any order.

    Parameters
    ----------
    prompts : sequence of length n
        The prompts.
    n_draws : int
        The most draws that any prompt may need, K >= 1.
    seed : int, default=0
        Seed of the run.
    decide : callable, default=None
        ``decide(arrived) -> counts``: `arrived` lists (prompt index, its new draws in order), draws
        made ahead included, and `counts` how many draws of each of these prompts are wanted in all
        as things stand; a prompt of which all wanted draws have been decided on is closed. None
        wants `n_draws` of each prompt.
    first : sequence of int of length n, default=None
        For each prompt the first draw that is wanted; earlier ones are never asked for. None is 0.
    on_draw : callable, default=None
        ``on_draw(prompt index, draw, generation)`` is called for each draw as it arrives.
    chances : callable, default=None
        ``chances(prompt index, decided)`` gives the probability that each draw will be wanted, from
        draw `decided` on, once `decided` draws of its prompt have been decided on: 1, and then
        numbers that never rise. Draws of probability 0 are not made ahead. None halves it with
        each draw.

    Attributes
    ----------
    n_under_way : int
        Draws that were taken and not yet put.
    n_put : int
        Draws that have arrived.
    is_deciding : bool
        Whether a function of the caller's runs now, or has failed.

    Examples
    --------
    >>> from sklearn_clm.generators import DrawQueue, Generation
    >>> queue = DrawQueue(["a", "b"], 3, decide=lambda arrived: [1 for _ in arrived])
    >>> queue.take()
    [DrawRequest(prompt=0, start=0, stop=1), DrawRequest(prompt=1, start=0, stop=1)]
    >>> queue.put(0, 0, Generation("yes")); queue.put(1, 0, Generation("no"))
    >>> queue.take()
    []
    """

    def __init__(
        self,
        prompts: Sequence[object],
        n_draws: int,
        *,
        seed: int = 0,
        decide: Decision | None = None,
        first: Sequence[int] | None = None,
        on_draw: Callable[[int, int, Generation], None] | None = None,
        chances: Chances | None = None,
    ) -> None:
        if n_draws < 1:
            raise ValueError(f"n_draws must be at least 1, got {n_draws!r} instead.")
        self.prompts = prompts
        self.n_draws = int(n_draws)
        self.seed = seed
        self.n_under_way = 0
        self.n_put = 0
        self.is_deciding = False
        self._decide = decide
        self._first = first
        self._on_draw = on_draw
        self._chances = chances or _halving(self.n_draws)
        self._unopened = iter(range(len(prompts)))
        self._open: dict[int, _OpenPrompt] = {}
        self._closed: dict[int, _OpenPrompt] = {}  # decided, with draws made ahead under way
        self._ready: OrderedDict[int, None] = OrderedDict()  # with draws that nobody makes yet
        self._arrived: dict[int, None] = {}  # prompts with draws to decide on, in order of arrival

    def take(
        self, max_draws: int | None = None, *, max_prompts: int | None = None
    ) -> list[DrawRequest]:
        """Draws to make next, which then count as under way.

        Parameters
        ----------
        max_draws, max_prompts : int, default=None
            How many draws, and of how many prompts, at most; None is any number.

        Returns
        -------
        list of DrawRequest
            One for each prompt; prompts that are open come before new ones. Empty where nothing
            is wanted before a draw that is under way has arrived, or at all.
        """
        _check_wanted()
        requests: list[DrawRequest] = []
        draws_left = ANY if max_draws is None else max_draws
        while draws_left and len(requests) != max_prompts:
            if not self._ready:
                if not self._decide_on_arrived() and not self._open_next():
                    break
                continue
            index = next(iter(self._ready))
            state = self._open[index]
            count = min(state.wanted - state.asked, draws_left)
            if count > 0:
                requests.append(self._ask(index, state, count))
                draws_left -= count
            if state.asked >= state.wanted:
                del self._ready[index]
        return requests

    def take_ahead(
        self, max_draws: int, least_chance: float = 0.0, *, n_at_once: HowMany | None = None
    ) -> list[DrawRequest]:
        """Take draws that may be wanted later, for idle capacity.

        The draws are those most likely to be wanted, and the same ones whether they are made now or
        later. Ask only after :meth:`take` gave nothing.

        Parameters
        ----------
        max_draws : int
            How many draws at most.
        least_chance : float, default=0.0
            No draw is taken that is less likely to be wanted, and none that never will be.
        n_at_once : callable, default=None
            ``n_at_once(chances)`` is how many draws of a prompt are worth having under way at once,
            by the chance of each that it will be wanted, from the first that has not been decided
            on. None is any number.

        Returns
        -------
        list of DrawRequest
            One for each prompt.
        """
        waiting: list[tuple[float, int, list[float]]] = []  # of each prompt its next draws
        for index, state in self._open.items():
            chances = self._chances(index, state.decided)
            # `chances` begin with the first draw that has not been decided on: those that were
            # asked for are left out, and those of chance 0
            stop = len(chances) if n_at_once is None else n_at_once(chances)
            ahead = [-chance for chance in chances[state.asked - state.decided : stop] if chance]
            if ahead:
                waiting.append((ahead[0], index, ahead[::-1]))
        # a heap of negative chances: its first entry is the draw that is likeliest to be wanted
        heapq.heapify(waiting)
        counts: dict[int, int] = {}
        while waiting and max_draws and -waiting[0][0] >= least_chance:
            _, index, ahead = waiting[0]
            counts[index] = counts.get(index, 0) + 1
            max_draws -= 1
            ahead.pop()
            if ahead:
                heapq.heapreplace(waiting, (ahead[-1], index, ahead))
            else:
                heapq.heappop(waiting)
        return [self._ask(index, self._open[index], count) for index, count in counts.items()]

    def put(self, prompt: int, draw: int, generation: Generation) -> None:
        """Hand in a draw that was taken, once."""
        state = self._open.get(prompt) or self._closed.get(prompt)
        if state is None or draw not in state.under_way:
            raise ValueError(
                f"draw {draw} of prompt {prompt} must have been taken and not put before."
            )
        # first of all: where an interrupt comes, the draw can be put again
        if self._on_draw is not None:
            self.is_deciding = True
            self._on_draw(prompt, draw, generation)
            self.is_deciding = False
        state.under_way.remove(draw)
        self.n_under_way -= 1
        self.n_put += 1
        if prompt in self._open:
            state.arrived[draw] = generation
            if draw == state.decided:
                self._arrived[prompt] = None
        elif not state.under_way:
            del self._closed[prompt]

    def give_up(self, prompt: int, draw: int) -> bool:
        """Take back a draw of a closed prompt.

        Returns
        -------
        bool
            Whether it was taken back. It is then not put any more.
        """
        state = self._closed.get(prompt)
        if state is None:
            return False
        state.under_way.remove(draw)
        self.n_under_way -= 1
        if not state.under_way:
            del self._closed[prompt]
        return True

    def is_open(self, prompt: int) -> bool:
        """Whether more draws of a prompt may be asked for.

        False once the caller has decided, and before any of its draws was taken. Where draws of the
        prompt have arrived, the rule decides on all that have, which scores them.
        """
        _check_wanted()
        if prompt in self._arrived:
            self._decide_on_arrived()
        return prompt in self._open

    def is_wanted(self, prompt: int, draw: int) -> bool:
        """Whether a draw under way is wanted as things stand.

        False where its prompt is closed, or it was made ahead and nothing has asked for it yet. The
        rule first decides on draws that have arrived, as in :meth:`is_open`.
        """
        if not self.is_open(prompt):
            return False
        state = self._open[prompt]
        return draw in state.under_way and draw < state.wanted

    def is_abandoned(self, prompt: int, draw: int) -> bool:
        """Whether whoever waited for a draw under way has left.

        This may be asked in any thread that has the context of the caller's.
        """
        return CANCELLED.get()()

    def _ask(self, index: int, state: "_OpenPrompt", count: int) -> DrawRequest:
        """Count the next draws of a prompt as under way."""
        request = DrawRequest(index, state.asked, state.asked + count)
        state.under_way.update(range(request.start, request.stop))
        state.asked = request.stop
        self.n_under_way += count
        return request

    def _open_next(self) -> bool:
        """Open the next prompt; whether there was one."""
        index = next(self._unopened, None)
        if index is None:
            return False
        first = 0 if self._first is None else int(self._first[index])
        if first < self.n_draws:
            wanted = self.n_draws if self._decide is None else first + 1
            self._open[index] = _OpenPrompt(first, first, wanted)
            self._ready[index] = None
        return True

    def _decide_on_arrived(self) -> bool:
        """Let the rule see new draws; return whether any were."""
        if not self._arrived:
            return False
        arrived = [(index, list(self._open[index].in_order())) for index in self._arrived]
        self._arrived.clear()
        counts: Iterable[int] = [self.n_draws] * len(arrived)
        if self._decide is not None:
            self.is_deciding = True
            counts = list(self._decide(arrived))
            self.is_deciding = False
        for (index, _), wanted in zip(arrived, counts, strict=True):
            state = self._open[index]
            state.wanted = min(int(wanted), self.n_draws)
            if state.wanted <= state.decided:
                del self._open[index]
                self._ready.pop(index, None)
                if state.under_way:
                    self._closed[index] = state
                    state.arrived.clear()
            elif state.asked < state.wanted:
                self._ready[index] = None
        return True


def _halving(n_draws: int) -> Chances:
    """Chances of which each is half of the one before."""
    halves = tuple(0.5**k for k in range(n_draws))
    return lambda prompt, decided: halves[: n_draws - decided]


def _check_wanted() -> None:
    """End the call where nobody waits for it any more."""
    if CANCELLED.get()():
        raise CancelledError("nobody waits for these draws any more.")


@dataclass(slots=True)
class _OpenPrompt:
    """State of a prompt whose draws are being made."""

    decided: int  # draws before this one have been decided on
    asked: int  # draws before this one have been taken
    wanted: int
    under_way: set[int] = field(default_factory=set)  # draws that were taken and not put
    arrived: dict[int, Generation] = field(default_factory=dict)

    def in_order(self) -> Iterator[Generation]:
        """New draws from the first undecided one on, without gaps."""
        while self.decided in self.arrived:
            yield self.arrived.pop(self.decided)
            self.decided += 1


class RelayQueue(DrawQueue):
    """A queue between a generator and its caller's queue, `outer`.

    A subclass says in :meth:`_receive` what becomes of the draws that the caller wants; those that
    it adds to `_waiting` are given to the generator.
    """

    def __init__(self, outer: DrawQueue) -> None:
        super().__init__(outer.prompts, outer.n_draws, seed=outer.seed)
        self._outer = outer
        self._waiting: deque[DrawRequest] = deque()

    def take(
        self, max_draws: int | None = None, *, max_prompts: int | None = None
    ) -> list[DrawRequest]:
        """Draws to make next, as in :meth:`DrawQueue.take`."""
        requests: list[DrawRequest] = []
        draws = ANY if max_draws is None else max_draws
        prompts = ANY if max_prompts is None else max_prompts
        while True:
            draws = self._give(requests, draws, prompts)
            room = min(prompts - len(requests), _BLOCK)
            wanted = self._outer.take(draws, max_prompts=room) if draws and room else []
            if not wanted:
                return requests
            self._receive(wanted)

    def take_ahead(
        self, max_draws: int, least_chance: float = 0.0, *, n_at_once: HowMany | None = None
    ) -> list[DrawRequest]:
        """Draws that may be wanted later, as in :meth:`DrawQueue.take_ahead`."""
        requests: list[DrawRequest] = []
        take_ahead = self._outer.take_ahead
        # `_receive` may answer draws itself, from a cache: these leave room for others. The loop
        # ends where nothing is left to ask for, or the generator has enough
        while max_draws and (likely := take_ahead(max_draws, least_chance, n_at_once=n_at_once)):
            self._receive(likely)
            max_draws = self._give(requests, max_draws, ANY)
        return requests

    @abstractmethod
    def _receive(self, requests: list[DrawRequest]) -> None:
        """Take in draws that the caller wants."""

    def _give(self, requests: list[DrawRequest], max_draws: int, max_prompts: int) -> int:
        """Append waiting draws to `requests`; return how many more fit."""
        prompts_given = {request.prompt for request in requests}
        later = []
        while self._waiting and max_draws and len(requests) < max_prompts:
            position, start, stop = self._waiting.popleft()
            if position not in prompts_given:
                prompts_given.add(position)
                n = min(stop - start, max_draws)
                requests.append(DrawRequest(position, start, start + n))
                self.n_under_way += n
                max_draws -= n
                start += n
            if start < stop:
                later.append(DrawRequest(position, start, stop))
        self._waiting.extendleft(reversed(later))
        return max_draws
