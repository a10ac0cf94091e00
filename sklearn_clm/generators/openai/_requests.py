"""What is sent to an OpenAI-compatible service for a prompt.

Several requests at a time, their results as they arrive, none lost where one fails."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sklearn_clm.generators._draws import draw_stream
from sklearn_clm.generators._templates import Template, filled

__all__ = ["draw_seed", "request_arguments", "run_concurrently"]


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


def draw_seed(prompt: Any, seed: int, draw: int) -> int:
    """Seed of one draw, in the 31 bits that every server takes."""
    return int(draw_stream(prompt, seed, draw, salt=b"service").integers(2**31))


def request_arguments(
    prompt: Any,
    *,
    endpoint: str,
    prompt_template: Template,
    system_prompt: str | None,
    logprobs: bool,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Arguments of the client's ``create`` for one prompt; options that are None are left out."""
    prompt = filled(prompt_template, prompt)
    request = {name: value for name, value in options.items() if value is not None}
    if endpoint == "completions":
        if not isinstance(prompt, str):
            raise TypeError(
                "endpoint='completions' takes prompts that are text, got a "
                f"{type(prompt).__name__}; chat messages need endpoint='chat'."
            )
        request["prompt"] = str(prompt)
        if logprobs:
            request["logprobs"] = 1
        return request
    messages = _messages(prompt)
    if system_prompt is not None:
        messages = [{"role": "system", "content": system_prompt}, *messages]
    request["messages"] = messages
    if logprobs:
        # one alternative for each token: not wanted, but some servers give nothing where it is none
        request.update(logprobs=True, top_logprobs=1)
    return request


def _messages(prompt: Any) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": str(prompt)}]
    if (
        isinstance(prompt, Sequence)
        and len(prompt) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in prompt)
    ):
        return [dict(message) for message in prompt]
    raise TypeError(
        "endpoint='chat' takes prompts that are text or lists of messages (dict with 'role' and "
        f"'content'), got a {type(prompt).__name__}: {prompt!r:.60}."
    )
