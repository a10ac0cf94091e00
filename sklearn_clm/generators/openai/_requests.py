"""Requests to a service: what they hold, and several of them at a time."""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sklearn_clm.generators._draws import check_text, draw_stream, is_chat

Request = dict[str, object]
Job = TypeVar("Job")
Result = TypeVar("Result")

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
) -> Iterator[Result]:
    """Yield what ``work(job, stopping)`` yields, for all jobs, in the order of arrival.

    Jobs are taken in the caller's thread, as soon as a thread is free; a job that is None means
    that the next one is not known before a result has been yielded (or, where no job is under
    way, that there is none). After an error no job is begun, results of those under way are still
    yielded, and then the first error is raised; so after an interrupt, but for `_GRACE_SECONDS` at
    most.
    """
    pending = iter(jobs)
    todo: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    # results, whether a job has ended, and what went wrong
    done: queue.Queue[tuple[list[Result], bool, BaseException | None]] = queue.Queue()
    stopping = threading.Event()

    def run() -> None:
        while (job := todo.get()) is not None:
            error = None
            try:
                for result in work(job, stopping):
                    done.put(([result], False, None))
            except BaseException as caught:  # a thread has nobody else to tell
                stopping.set()
                error = caught
            done.put(([], True, error))

    first_error: BaseException | None = None
    deadline: float | None = None
    n_threads_begun = n_under_way = 0
    try:
        while deadline is None or time.monotonic() < deadline:
            try:
                while n_under_way < n_threads and not stopping.is_set():
                    job = next(pending, None)
                    if job is None:
                        break
                    todo.put(job)
                    n_under_way += 1
                    if n_under_way > n_threads_begun:
                        n_threads_begun += 1
                        # a daemon: an interpreter that is asked to exit does not wait for a
                        # server that hangs
                        threading.Thread(target=run, daemon=True).start()
                if not n_under_way:
                    break
                # a signal may be taken by another thread: wake up now and then to see it
                results, ended, error = done.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            except KeyboardInterrupt as interrupt:
                if deadline is not None:
                    raise
                results, ended, error = [], False, interrupt
                deadline = time.monotonic() + _GRACE_SECONDS
            except Exception as caught:
                results, ended, error = [], False, caught
            if error is not None:
                stopping.set()
                first_error = first_error or error
            n_under_way -= ended
            yield from results
    finally:
        stopping.set()
        for _ in range(n_threads_begun):
            todo.put(None)
    if first_error is not None:
        raise first_error
