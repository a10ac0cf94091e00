"""Several requests at a time, their results as they arrive, none lost where one fails."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["run_concurrently"]

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 10.0  # how long an interrupt waits for requests that are under way


def run_concurrently(
    jobs: Iterable[Any],
    work: Callable[[Any, threading.Event], Iterable[Any]],
    n_threads: int,
) -> Iterator[Any]:
    """Yield what ``work(job, stopping)`` yields, for all jobs, in the order of arrival.

    After an error no job is begun, results of those under way are still yielded, and then the
    first error is raised; so after an interrupt, but for `_GRACE_SECONDS` at most. Workers wait
    where results are not fetched: few are ever made and not yet yielded.
    """
    pending, lock = iter(jobs), threading.Lock()
    results: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=2 * n_threads)
    stopping, abandoned = threading.Event(), threading.Event()

    def hand_over(kind: str, value: Any) -> None:
        while not abandoned.is_set():
            try:
                return results.put((kind, value), timeout=_POLL_SECONDS)
            except queue.Full:
                continue

    def run() -> None:
        try:
            while not stopping.is_set():
                with lock:
                    job = next(pending, None)
                if job is None:
                    break
                for result in work(job, stopping):
                    hand_over("result", result)
        except BaseException as error:  # a thread has nobody else to tell
            stopping.set()
            hand_over("error", error)
        hand_over("end", None)

    # daemons: an interpreter that is asked to exit does not wait for a server that hangs
    threads = [threading.Thread(target=run, daemon=True) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    error: BaseException | None = None
    deadline: float | None = None
    n_running = n_threads
    try:
        while n_running:
            try:
                # a signal may be taken by another thread: wake up now and then to see it
                kind, value = results.get(timeout=_POLL_SECONDS)
            except KeyboardInterrupt as interrupt:
                if deadline is not None:
                    raise
                error, deadline = interrupt, time.monotonic() + _GRACE_SECONDS
                stopping.set()
                continue
            except queue.Empty:
                if deadline is not None and time.monotonic() > deadline:
                    break
                continue
            if kind == "end":
                n_running -= 1
            elif kind == "error":
                error = error or value
            else:
                yield value
    finally:
        stopping.set()
        abandoned.set()
    if error is not None:
        raise error
