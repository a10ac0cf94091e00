"""Draws that are made in calls, several at a time."""

import contextlib
import logging
import math
import os
import queue
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

from sklearn_clm.generators._base import BaseGenerator
from sklearn_clm.generators._draws import Generation, Prompt
from sklearn_clm.generators._queue import CANCELLED, DrawQueue, DrawRequest

Draws = Iterable[tuple[int, Generation]]
Make = Callable[[DrawRequest, threading.Event], Draws]
_logger = logging.getLogger("sklearn_clm")

_POLL_SECONDS = 0.2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds
_GRACE_SECONDS = 10.0  # how long an interrupt waits for calls that are under way

# the calls that a generator may have under way, whoever asks it: by process, as a fork leaves the
# threads of its parent behind, and by `max_concurrency`
_Slots = dict[tuple[int, int], threading.Semaphore]
_SLOTS: WeakKeyDictionary["ConcurrentGenerator", _Slots] = WeakKeyDictionary()


class ConcurrentGenerator(BaseGenerator):
    """Base of generators that make draws in calls, `max_concurrency` at a time."""

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

        def make(request: DrawRequest, stopping: threading.Event) -> Draws:
            draws = range(request.start, request.stop)
            return self._make(queue.prompts[request.prompt], draws, queue.seed, stopping)

        of, free = (os.getpid(), self.max_concurrency), threading.Semaphore(self.max_concurrency)
        slots = _SLOTS.setdefault(self, {}).setdefault(of, free)
        numbers = (self.max_concurrency, self.n_per_request, self.draw_ahead)
        answer_concurrently(queue, make, slots, *numbers)

    @abstractmethod
    def _check(self, prompts: Iterable[Prompt]) -> None:
        """Refuse bad parameters and prompts before anything is paid for."""

    @abstractmethod
    def _make(self, prompt: Prompt, draws: range, seed: int, stopping: threading.Event) -> Draws:
        """Make some draws, in a thread; repeat no call that fails once `stopping` is set."""


def pause_after(attempt: int) -> float:
    """Seconds until a call is repeated that has failed so often."""
    return float(min(_FIRST_PAUSE * 2.0 ** (attempt - 1), _LONGEST_PAUSE))


def answer_concurrently(
    draws: DrawQueue,
    make: Make,
    slots: threading.Semaphore,
    n_threads: int,
    n_per_call: int,
    draw_ahead: float,
) -> None:
    """Answer a queue with what ``make(request, stopping)`` yields, each call in one of the slots.

    Draws are taken and put in the caller's thread. Nothing is asked of `make` that the queue does
    not want, but for draws made ahead while threads would be idle: those that are wanted with a
    chance of at least ``1 - draw_ahead``, and none where that is 0. A call
    whose draws nobody wants any more is neither waited for at the end, nor does its error count,
    unless they are wanted later. After an error that counts no call is begun, draws of those under
    way are still put, and then the error is raised; so after an interrupt, but for
    `_GRACE_SECONDS` at most.
    """
    todo: queue.SimpleQueue[DrawRequest | None] = queue.SimpleQueue()
    # a draw, or that the call has ended, and with which error; nothing leaves before it was put
    arrived: deque[tuple[DrawRequest, tuple[int, Generation] | None, BaseException | None]] = (
        deque()
    )
    # no Event, whose lock an interrupt may leave held
    wake_ups: queue.SimpleQueue[None] = queue.SimpleQueue()
    stopping, is_cancelled = threading.Event(), CANCELLED.get()

    def run() -> None:
        while (request := todo.get()) is not None:
            error = None
            try:
                with slots:
                    begun.add(request)  # before `stopping` is read, which is set before `begun` is
                    is_wanted = not (stopping.is_set() or is_cancelled())
                    for draw in make(request, stopping) if is_wanted else ():
                        arrived.append((request, draw, None))
                        wake_ups.put(None)
            except BaseException as caught:  # a thread has nobody else to tell
                error = caught
            arrived.append((request, None, error))
            wake_ups.put(None)

    under_way: set[DrawRequest] = set()
    begun: set[DrawRequest] = set()  # those of them that have had a slot
    failed: dict[DrawRequest, BaseException] = {}
    first_error: BaseException | None = None
    deadline = math.inf
    n_begun = 0

    def is_needed(request: DrawRequest) -> bool:
        return any(draws.is_wanted(request.prompt, j) for j in range(request.start, request.stop))

    def is_waiting() -> bool:
        return first_error is not None or any(map(is_needed, under_way))

    def failure() -> BaseException | None:
        return first_error or next((failed[one] for one in failed if is_needed(one)), None)

    def begin_next() -> bool:
        """Begin the next call, if the queue knows one."""
        nonlocal n_begun
        requests = draws.take(n_per_call, max_prompts=1)
        if not requests and draw_ahead and slots.acquire(blocking=False):
            slots.release()  # nobody waits for it
            requests = draws.take_ahead(1, 1.0 - draw_ahead)
        for request in requests:
            under_way.add(request)
            todo.put(request)
            if n_begun < min(len(under_way), n_threads):
                n_begun += 1
                # a daemon: an interpreter that is asked to exit waits for no server that hangs
                threading.Thread(target=run, daemon=True).start()
        return bool(requests)

    def hand_over() -> None:
        request, draw, error = arrived[0]
        try:
            if draw is not None:
                draws.put(request.prompt, *draw)
            elif request in under_way:
                under_way.remove(request)
                begun.discard(request)
                if error is not None:
                    failed[request] = error
        except KeyboardInterrupt:
            if draw is not None:
                with contextlib.suppress(ValueError):  # it was put before the interrupt
                    draws.put(request.prompt, *draw)
            raise
        finally:
            arrived.popleft()

    def work() -> None:
        """Begin calls and hand over what arrives, until nothing more is waited for."""
        nonlocal first_error
        while time.monotonic() < deadline:
            first_error = failure()
            # where all threads are busy with what nobody needs, the next call is begun by the
            # first one that is free
            while first_error is None and (len(under_way) < n_threads or not is_waiting()):
                if not begin_next():
                    break
            first_error = failure()  # what is wanted next may have failed already
            if first_error is not None:
                stopping.set()
                under_way.intersection_update(begun)
            waits = is_waiting()
            if not under_way:
                return
            while not wake_ups.empty():
                wake_ups.get_nowait()
            if not arrived:
                # a signal may be taken by another thread: wake up now and then to see it
                with contextlib.suppress(queue.Empty):
                    wake_ups.get(timeout=_POLL_SECONDS * waits)
            if arrived:
                hand_over()
            elif not waits:
                return

    done = False
    try:
        while not done:
            # an interrupt may come at any step of the loop, between two of its statements too
            try:
                work()
                done = True
            except KeyboardInterrupt as interrupt:
                if deadline < math.inf:
                    raise
                first_error = first_error or interrupt
                deadline = time.monotonic() + _GRACE_SECONDS
            except Exception as caught:
                first_error = first_error or caught
    finally:
        stopping.set()
        with contextlib.suppress(queue.Empty):  # calls that no thread has begun
            while True:
                todo.get_nowait()
        for _ in range(n_begun):
            todo.put(None)
    if first_error is not None:
        raise first_error
    for unneeded in failed.values():
        _logger.info("a call for draws that turned out not to be needed failed: %s", unneeded)
