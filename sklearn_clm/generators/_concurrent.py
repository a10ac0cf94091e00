"""Draws that are made several at a time, each in a call of its own."""

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sklearn_clm.generators._draws import Generation
from sklearn_clm.generators._queue import DrawQueue, DrawRequest

Job = TypeVar("Job")
Result = TypeVar("Result")
Work = Callable[[DrawRequest, threading.Event], Iterable[tuple[int, Generation]]]
_logger = logging.getLogger("sklearn_clm")

_POLL_SECONDS = 0.2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds
_GRACE_SECONDS = 10.0  # how long an interrupt waits for calls that are under way


def answer_concurrently(
    draws: DrawQueue,
    make: Work,
    n_threads: int,
    *,
    n_per_call: int = 1,
    draw_ahead: bool = False,
    drops_unwanted: bool = True,
    before: Callable[[DrawRequest], None] = lambda request: None,
    after: Callable[[Generation], None] = lambda generation: None,
) -> Iterator[None]:
    """Answer a queue with what ``make(request, stopping)`` yields; pause after each draw.

    Draws are taken and put in the caller's thread, where `before` and `after` are called too: with
    each request that is about to be made, and with each draw. Nothing is asked of `make` that
    the queue does not want, but for the draws made ahead with `draw_ahead`, while threads would be
    idle. With `drops_unwanted` nobody waits for draws that are no longer wanted.
    """

    def requests() -> Iterator[DrawRequest | None]:
        while True:
            taken = draws.take(n_per_call, max_prompts=1)
            if not taken and draw_ahead:
                taken = draws.take_ahead(1)
            for request in taken:
                before(request)
                yield request
            if not taken:
                yield None

    def work(
        request: DrawRequest, stopping: threading.Event
    ) -> Iterator[tuple[int, int, Generation]]:
        for draw, generation in make(request, stopping):
            yield request.prompt, draw, generation

    def deliver(draw: tuple[int, int, Generation]) -> None:
        after(draw[2])
        draws.put(*draw)

    def is_needed(request: DrawRequest) -> bool:
        wanted = (draws.is_wanted(request.prompt, j) for j in range(request.start, request.stop))
        return not drops_unwanted or any(wanted)

    return run_concurrently(requests(), work, deliver, n_threads, is_needed)


def pause_after(attempt: int) -> float:
    """Seconds until a call is repeated that has failed so often."""
    return float(min(_FIRST_PAUSE * 2.0 ** (attempt - 1), _LONGEST_PAUSE))


def run_concurrently(
    jobs: Iterable[Job | None],
    work: Callable[[Job, threading.Event], Iterable[Result]],
    deliver: Callable[[Result], None],
    n_threads: int,
    is_needed: Callable[[Job], bool] = lambda job: True,
) -> Iterator[None]:
    """Deliver what ``work(job, stopping)`` yields, for all jobs; pause after each arrival.

    Jobs are taken, and results delivered, in the caller's thread. A job is taken as soon as a
    thread is free; one that is None means that the next one is not known before a result has been
    delivered (or, where no job is under way, that there is none). A job that is not needed is
    neither waited for at the end, nor does its error count, unless it is needed later. After an
    error that counts no job is begun, results of those under way are still delivered, and then the
    first error is raised; so after an interrupt, but for `_GRACE_SECONDS` at most. A result that
    an interrupt keeps from being delivered is delivered again; then a ValueError says that it was.
    """
    pending = iter(jobs)
    todo: queue.SimpleQueue[tuple[int, Job] | None] = queue.SimpleQueue()
    # number of a job, results, whether it has ended, and what went wrong; nothing leaves before
    # it has been delivered
    arrived: deque[tuple[int, list[Result], bool, BaseException | None]] = deque()
    has_arrived, stopping = threading.Event(), threading.Event()

    def run() -> None:
        while (one := todo.get()) is not None:
            number, job = one
            error = None
            try:
                for result in work(job, stopping):
                    arrived.append((number, [result], False, None))
                    has_arrived.set()
            except BaseException as caught:  # a thread has nobody else to tell
                error = caught
            arrived.append((number, [], True, error))
            has_arrived.set()

    first_error: BaseException | None = None
    deadline: float | None = None
    under_way: dict[int, Job] = {}
    failed: list[tuple[Job, BaseException]] = []
    n_begun = n_threads_begun = 0

    def is_waited_for() -> bool:
        return first_error is not None or any(map(is_needed, under_way.values()))

    def failure() -> BaseException | None:
        return first_error or next((error for job, error in failed if is_needed(job)), None)

    def hand_over(results: list[Result]) -> None:
        try:
            for result in results:
                deliver(result)
        except KeyboardInterrupt:
            with contextlib.suppress(ValueError):
                for result in results:
                    deliver(result)
            raise
        finally:
            arrived.popleft()

    try:
        while deadline is None or time.monotonic() < deadline:
            try:
                first_error = failure()
                # where all threads are busy with what nobody needs, the next job is begun by the
                # first one that is free
                while first_error is None and (len(under_way) < n_threads or not is_waited_for()):
                    job = next(pending, None)
                    if job is None:
                        break
                    under_way[n_begun] = job
                    todo.put((n_begun, job))
                    n_begun += 1
                    if n_threads_begun < min(len(under_way), n_threads):
                        n_threads_begun += 1
                        # a daemon: an interpreter that is asked to exit does not wait for a
                        # server that hangs
                        threading.Thread(target=run, daemon=True).start()
                first_error = failure()  # what is wanted next may have failed already
                if first_error is not None:
                    stopping.set()
                is_waiting = is_waited_for()
                if not under_way:
                    break
                has_arrived.clear()
                if not arrived:
                    # a signal may be taken by another thread: wake up now and then to see it
                    has_arrived.wait(_POLL_SECONDS * is_waiting)
                if not arrived:
                    if is_waiting:
                        continue
                    break
                number, results, ended, error = arrived[0]
                if ended and number in under_way:
                    job = under_way.pop(number)
                    if error is not None:
                        failed.append((job, error))
                hand_over(results)
                yield
            except KeyboardInterrupt as interrupt:
                if deadline is not None:
                    raise
                first_error = first_error or interrupt
                deadline = time.monotonic() + _GRACE_SECONDS
            except Exception as caught:
                first_error = first_error or caught
    finally:
        stopping.set()
        with contextlib.suppress(queue.Empty):  # jobs that no thread has begun
            while True:
                todo.get_nowait()
        for _ in range(n_threads_begun):
            todo.put(None)
    if first_error is not None:
        raise first_error
    for _, unneeded in failed:
        _logger.info("a call for draws that turned out not to be needed failed: %s", unneeded)
    if under_way:
        _logger.debug("not waited for: %d calls for draws that are not needed", len(under_way))
