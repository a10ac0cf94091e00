"""Draws that are made in calls, several at a time."""

import contextlib
import contextvars
import logging
import math
import os
import queue
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from weakref import WeakKeyDictionary

from sklearn_clm.generators.base import BaseGenerator
from sklearn_clm.generators.draws import Generation, Prompt
from sklearn_clm.generators.queue import CANCELLED, DrawQueue, DrawRequest

Draws = Iterable[tuple[int, Generation]]
IsUnwanted = Callable[[int], bool]
_logger = logging.getLogger("sklearn_clm")

POLL_SECONDS = 0.2  # how soon a waiting thread sees a signal
_FIRST_PAUSE = 0.5  # seconds, doubled after each further failure
_LONGEST_PAUSE = 8.0
_GRACE_SECONDS = 10.0  # how long an interrupt waits for calls that are under way

# the calls that a generator may have under way, whoever asks it: by process, as a fork leaves the
# threads of its parent behind, and by `max_concurrency`
_Slots = dict[tuple[int, int], threading.Semaphore]
_SLOTS: WeakKeyDictionary["ConcurrentGenerator", _Slots] = WeakKeyDictionary()


class ConcurrentGenerator(BaseGenerator):
    """Base of generators that make several calls at a time."""

    max_concurrency: int
    n_per_request: int = 1
    draw_ahead: float = 0.0

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue, as in :meth:`QueueGenerator.serve`.

        Up to `max_concurrency` calls of this object are under way at a time, however many threads
        ask it: the next one begins as soon as one ends, whichever it is. Draws under way are
        handed in before an error is raised, and after an interrupt for ten seconds at most.
        """
        self._check(queue.prompts)
        # one semaphore for all threads that ask this object
        key = (os.getpid(), self.max_concurrency)
        new = threading.Semaphore(self.max_concurrency)
        slots = _SLOTS.setdefault(self, {}).setdefault(key, new)
        _Calls(self, queue, slots).answer()

    def _prepare(self) -> None:
        """Make in the caller's thread what all calls use."""

    @abstractmethod
    def _check(self, prompts: Iterable[Prompt]) -> None:
        """Refuse bad parameters and prompts before anything is paid for."""

    @abstractmethod
    def _make(
        self,
        prompt: Prompt,
        draws: range,
        seed: int,
        stopping: threading.Event,
        is_unwanted: IsUnwanted,
    ) -> Draws:
        """Make draws, in a thread.

        Nothing is repeated after `stopping`. A draw under way that ``is_unwanted(draw)`` may be
        given up.
        """


def pause_after(attempt: int) -> float:
    """Seconds of pause after so many failed attempts."""
    return float(min(_FIRST_PAUSE * 2.0 ** (attempt - 1), _LONGEST_PAUSE))


class _Calls:
    """Calls of a generator that answer a queue.

    Draws are taken and put in the caller's thread. Nothing is made that the queue does not want,
    but for draws ahead while threads would be idle: those that are wanted with a chance of at least
    ``1 - draw_ahead``, and none where that is 0. A call whose draws nobody wants any more is
    neither waited for at the end, nor does its error count, unless they are wanted later. After an
    error that counts no call is begun, draws of those under way are still put, and then the error
    is raised; so after an interrupt, but for `_GRACE_SECONDS` at most.
    """

    def __init__(
        self, generator: ConcurrentGenerator, draws: DrawQueue, slots: threading.Semaphore
    ) -> None:
        self.generator = generator
        self.draws = draws
        self.slots = slots
        self.todo: queue.SimpleQueue[DrawRequest | None] = queue.SimpleQueue()
        # a draw, or that the call has ended, and with which error; nothing leaves before it was put
        self.arrived: deque[
            tuple[DrawRequest, tuple[int, Generation] | None, BaseException | None]
        ] = deque()
        # no Event, whose lock an interrupt may leave held
        self.wake_ups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.stopping = threading.Event()
        self.is_cancelled = CANCELLED.get()
        self.under_way: set[DrawRequest] = set()
        self.begun: set[DrawRequest] = set()  # those of them that have had a slot
        self.failed: dict[DrawRequest, BaseException] = {}
        self.first_error: BaseException | None = None
        self.n_threads = 0
        self.is_over = False  # nothing is handed in any more

    def answer(self) -> None:
        """Make draws until the queue asks for no more."""
        deadline = math.inf
        done = False
        try:
            while not done:
                # an interrupt may come at any step of the loop, between two of its statements too
                try:
                    self._work(deadline)
                    done = True
                except KeyboardInterrupt as interrupt:
                    if deadline < math.inf:
                        raise
                    self.first_error = self.first_error or interrupt
                    deadline = time.monotonic() + _GRACE_SECONDS
                except Exception as caught:
                    self.first_error = self.first_error or caught
        finally:
            self.is_over = True
            self.stopping.set()
            with contextlib.suppress(queue.Empty):  # calls that no thread has begun
                while True:
                    self.todo.get_nowait()
            for _ in range(self.n_threads):
                self.todo.put(None)

        if self.first_error is not None:
            raise self.first_error
        for unneeded in self.failed.values():
            _logger.info("a call for draws that turned out not to be needed failed: %s", unneeded)

    def _work(self, deadline: float) -> None:
        """Begin calls and hand over draws until none is awaited."""
        while time.monotonic() < deadline:
            self.first_error = self._failure()
            # where all threads are busy with what nobody needs, the next call is begun by the
            # first one that is free
            while self.first_error is None and (
                len(self.under_way) < self.generator.max_concurrency or not self._is_waiting()
            ):
                if not self._begin_next():
                    break
            self.first_error = self._failure()  # what is wanted next may have failed already
            if self.first_error is not None:
                self.stopping.set()
                self.under_way.intersection_update(self.begun)

            # a call under way that nobody waits for does not hold up the end
            waits = self._is_waiting()
            if not self.under_way:
                return
            while not self.wake_ups.empty():
                self.wake_ups.get_nowait()

            if not self.arrived:
                # a signal may be taken by another thread: wake up now and then to see it
                with contextlib.suppress(queue.Empty):
                    self.wake_ups.get(timeout=POLL_SECONDS * waits)
            if self.arrived:
                self._hand_over()
            elif not waits:
                return

    def _begin_next(self) -> bool:
        """Begin the next call, if the queue knows one."""
        ahead = self.generator.draw_ahead
        requests = self.draws.take(self.generator.n_per_request, max_prompts=1)
        if not requests and ahead and self.slots.acquire(blocking=False):
            self.slots.release()  # nobody waits for it
            requests = self.draws.take_ahead(1, 1.0 - ahead)
        for request in requests:
            # in the caller's thread, and only where there is anything to make
            if not self.n_threads:
                self.generator._prepare()
            self.under_way.add(request)
            self.todo.put(request)
            if self.n_threads < min(len(self.under_way), self.generator.max_concurrency):
                self.n_threads += 1
                # a daemon: an interpreter that is asked to exit waits for no server that hangs; the
                # context: a call has the caller's variables, such as those of a trace
                context = contextvars.copy_context()
                threading.Thread(target=context.run, args=(self._run,), daemon=True).start()
        return bool(requests)

    def _run(self) -> None:
        """Make calls, in a thread."""
        draws = self.draws
        make = self.generator._make
        while (request := self.todo.get()) is not None:
            error = None
            prompt, start, stop = request
            try:
                with self.slots:
                    self.begun.add(request)  # before `stopping` is read, set before `begun` is
                    if not (self.stopping.is_set() or self.is_cancelled()):
                        wanted = range(start, stop)
                        is_unwanted = partial(self._is_unwanted, prompt)
                        for draw in make(
                            draws.prompts[prompt], wanted, draws.seed, self.stopping, is_unwanted
                        ):
                            self._tell(request, draw)
            except BaseException as caught:  # a thread has nobody else to tell
                error = caught
            # the end of a call comes after its draws, in one queue: an error drops none that was
            # made
            self._tell(request, None, error)

    def _is_unwanted(self, prompt: int, draw: int) -> bool:
        """Whether nobody takes a draw any more; for a thread."""
        return self.is_over or self.draws.is_abandoned(prompt, draw)

    def _tell(
        self,
        request: DrawRequest,
        draw: tuple[int, Generation] | None,
        error: BaseException | None = None,
    ) -> None:
        self.arrived.append((request, draw, error))
        self.wake_ups.put(None)

    def _hand_over(self) -> None:
        """Put what has arrived first."""
        request, draw, error = self.arrived[0]
        try:
            # the caller's functions run here, in its own thread: they need not expect another one
            if draw is not None:
                self.draws.put(request.prompt, *draw)
            elif request in self.under_way:
                self.under_way.remove(request)
                self.begun.discard(request)
                if error is not None:
                    self.failed[request] = error
        except KeyboardInterrupt:
            if draw is not None:
                with contextlib.suppress(ValueError):  # it was put before the interrupt
                    self.draws.put(request.prompt, *draw)
            raise
        finally:
            self.arrived.popleft()

    def _is_needed(self, request: DrawRequest) -> bool:
        """Whether any draw of a request is wanted now."""
        prompt, start, stop = request
        return any(self.draws.is_wanted(prompt, draw) for draw in range(start, stop))

    def _is_waiting(self) -> bool:
        """Whether anything under way holds up the end."""
        # after an error all calls that were begun are waited for: they are paid for
        return self.first_error is not None or any(map(self._is_needed, self.under_way))

    def _failure(self) -> BaseException | None:
        """The first error that counts; None if there is none."""
        # the error of a call for draws that nobody needs any more does not count
        needed = (error for request, error in self.failed.items() if self._is_needed(request))
        return self.first_error or next(needed, None)
