"""Requests to a service: what they hold, and several of them at a time."""

import contextlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sklearn_clm.generators._draws import check_text, draw_stream, is_chat

Request = dict[str, object]
Job = TypeVar("Job")
Result = TypeVar("Result")
_logger = logging.getLogger("sklearn_clm")

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 10.0  # how long an interrupt waits for requests that are under way


def draw_seed(prompt: object, seed: int, draw: int) -> int:
    """Seed of one draw, in the 31 bits that every server takes."""
    return int(draw_stream(prompt, seed, draw, salt=b"service").integers(2**31))


def checked_request(request: Request, prompt: object) -> Request:
    """A request that JSON can hold."""
    check_text(request, "a prompt")
    try:
        json.dumps(request)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"a prompt must be made of what JSON can hold, got {type(prompt).__name__} "
            f"{prompt!r:.60}: {error}."
        ) from None
    return request


def messages_of(prompt: object) -> list[Request]:
    """A prompt as messages of a chat."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": str(prompt)}]
    if is_chat(prompt):
        return [dict(message) for message in prompt]
    raise TypeError(
        "endpoint='chat' takes prompts that are text or lists of messages (dict with 'role' and "
        f"'content'), got a {type(prompt).__name__}: {prompt!r:.60}."
    )


def run_concurrently(
    jobs: Iterable[Job | None],
    work: Callable[[Job, threading.Event], Iterable[Result]],
    n_threads: int,
    is_needed: Callable[[Job], bool] = lambda job: True,
) -> Iterator[Result]:
    """Yield what ``work(job, stopping)`` yields, for all jobs, in the order of arrival.

    Jobs are taken in the caller's thread, as soon as a thread is free; a job that is None means
    that the next one is not known before a result has been yielded (or, where no job is under
    way, that there is none). A job that is not needed is neither waited for at the end, nor does
    its error count, unless it is needed later. After an error that counts no job is begun, results
    of those under way are still yielded, and then the first error is raised; so after an interrupt,
    but for `_GRACE_SECONDS` at most.
    """
    pending = iter(jobs)
    todo: queue.SimpleQueue[tuple[int, Job] | None] = queue.SimpleQueue()
    # number of a job, results, whether it has ended, and what went wrong
    done: queue.Queue[tuple[int, list[Result], bool, BaseException | None]] = queue.Queue()
    stopping = threading.Event()

    def run() -> None:
        while (one := todo.get()) is not None:
            number, job = one
            error = None
            try:
                for result in work(job, stopping):
                    done.put((number, [result], False, None))
            except BaseException as caught:  # a thread has nobody else to tell
                error = caught
            done.put((number, [], True, error))

    first_error: BaseException | None = None
    deadline: float | None = None
    under_way: dict[int, Job] = {}
    failed: list[tuple[Job, BaseException]] = []
    n_begun = n_threads_begun = 0

    def is_waited_for() -> bool:
        return first_error is not None or any(map(is_needed, under_way.values()))

    def failure() -> BaseException | None:
        return first_error or next((error for job, error in failed if is_needed(job)), None)

    try:
        while deadline is None or time.monotonic() < deadline:
            results: list[Result] = []
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
                # a signal may be taken by another thread: wake up now and then to see it
                number, results, ended, error = done.get(timeout=_POLL_SECONDS * is_waiting)
                if ended:
                    job = under_way.pop(number)
                    if error is not None:
                        failed.append((job, error))
            except queue.Empty:
                if not is_waiting:
                    break
            except KeyboardInterrupt as interrupt:
                if deadline is not None:
                    raise
                first_error = first_error or interrupt
                deadline = time.monotonic() + _GRACE_SECONDS
            except Exception as caught:
                first_error = first_error or caught
            yield from results
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
        _logger.info("a request for draws that turned out not to be needed failed: %s", unneeded)
    if under_way:
        _logger.debug("not waited for: %d requests for draws that are not needed", len(under_way))
