"""Work of requests, in threads that an event loop awaits."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from importlib import import_module
from typing import TypeVar

from sklearn_clm.generators.queue import CANCELLED

# what requests would import otherwise, in threads
_OF_REQUESTS = ("rapidfuzz", "rouge_score.tokenize", "sentencex", "sqlite3", "tqdm.auto")

_NOT_FOR_A_TASK = (
    # no future holds it, so that the task would wait for ever
    StopIteration,
    # they would cancel a task that nobody has cancelled
    CancelledError,
    asyncio.CancelledError,
    # they would end the loop, with all requests
    SystemExit,
    KeyboardInterrupt,
)

_Result = TypeVar("_Result")


def import_modules_of_requests() -> None:
    """Import what requests need, before there are any."""
    for name in _OF_REQUESTS:
        import_module(name)


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Await the result of work in a daemon thread."""
    future: Future[_Result] = Future()
    future.set_running_or_notify_cancel()
    awaited = asyncio.wrap_future(future)

    def run() -> None:
        # queues look at it between two draws: a cancelled task begins no further one
        CANCELLED.set(awaited.cancelled)
        try:
            future.set_result(work())
        except _NOT_FOR_A_TASK as error:
            future.set_exception(_raisable(error))
        except BaseException as error:  # the awaiting task raises it
            future.set_exception(error)

    # not in a pool: slow draws would block other work of the program
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True).start()
    return await awaited


def _raisable(error: BaseException) -> RuntimeError:
    """An error of the user's that a task can raise."""
    name = type(error).__name__
    raisable = RuntimeError(
        f"generator, scores and functions of groups must raise no {name}, which means something "
        "else to the task that awaits them; got one instead."
    )
    raisable.__cause__ = error
    return raisable
