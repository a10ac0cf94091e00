"""Draws of a function of the user's."""

import asyncio
import contextvars
import inspect
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval

from sklearn_clm.generators._concurrent import (
    POLL_SECONDS,
    ConcurrentGenerator,
    Draws,
    IsUnwanted,
    pause_after,
)
from sklearn_clm.generators.base import checked_draw
from sklearn_clm.generators.draws import Generation, Prompt, draw_seed
from sklearn_clm.generators.identity import digest_of
from sklearn_clm.generators.prompts import prompt_line

_logger = logging.getLogger("sklearn_clm")


class FunctionGenerator(ConcurrentGenerator):
    """Draw by calling a function, several calls at a time.

    Parameters
    ----------
    ask : callable
        ``ask(prompt)`` makes one draw. It returns a text, a pair of text and log-probability, or
        a :class:`Generation`, and may be ``async``. Where it has a parameter named `seed`, it is
        given a whole number below 2**31 of its own for each draw of each prompt. A plain function
        is called in threads; an ``async`` one in an event loop of this package, so that it works
        in a notebook too. ``quality="likelihood"``, the default of an estimator, needs
        ``Generation(text, logprob, n_tokens)``.
    max_concurrency : int, default=8
        Most calls at a time, of all threads that use one fitted estimator or this object together.
        1 for a function that must not be called by two threads at once.
    draw_ahead : float, default=0.0
        The share of draws that may be made in vain so that a prompt is answered sooner, in [0, 1].
        A free call makes the next draw of a prompt before it is asked for, if a share of at least
        ``1 - draw_ahead`` of the calibration prompts that came so far needed it. A draw in vain is
        not waited for, so that equal requests at once may make one several times; its errors are
        logged only.
    max_retries : int, default=2
        How often a call that raised an error, or was given up, is repeated, after pauses of 0.5, 1,
        2 ... seconds.
    timeout : float, default=None
        Seconds, > 0, after which a call is given up, which is an error: another call may begin in
        its place. None waits for ever, so that calls that hang hold up all others in the end.

    Notes
    -----
    Independent calls are what draws of a prompt must be: a temperature above 0, and no cache
    between the function and its model. A function without `seed` gives another answer when it is
    asked again. An estimator keeps the draws of its process, so that each is made once; to keep
    them for longer, put a :class:`sklearn_clm.caching.CachedGenerator` around this generator.

    A function is known by its source, defaults and what it encloses, not by the globals that it
    uses: another model under the same code is not noticed. ``CachedGenerator(generator, path,
    key="gpt-4o-mini, temperature 1")`` gives it a name that you choose.

    A call of an ``async`` function is cancelled where it is given up, and where the task that
    awaits :meth:`sklearn_clm.ConformalSampler.apredict` is cancelled and nobody else waits for the
    draw. Nothing can end a plain function: it goes on in a thread of its own, beside
    `max_concurrency` calls, and what it returns in the end is dropped, since the draw may have been
    made anew by then. So give its client a limit of its own, too. Without `seed` a repeated call is
    another draw, and long responses are given up more often than short ones: calibrate with the
    `timeout` that the service has, and let it be rare.

    An error of the function, or None in place of a text, stops the run once the calls under way
    have been handed in; what was drawn is kept, and the next ``fit`` goes on from there. So does
    an interrupt, which waits for ten seconds at most. Where a prompt will always fail, as one that
    a filter refuses, catch the error and return a text that is never admissible, such as "": the
    promise then counts it. Leaving such prompts out would promise nothing of new ones like them.

    Examples
    --------
    >>> import random
    >>> from sklearn_clm.generators import FunctionGenerator
    >>> def ask(prompt, seed):
    ...     return random.Random(seed).choice(["yes", "no"])
    >>> generator = FunctionGenerator(ask, max_concurrency=16)
    >>> [draw.response for draw in generator.sample(["Will it rain?"], 4)[0]]
    ['yes', 'no', 'yes', 'no']

    Recipes for LiteLLM, LangChain, DSPy, async clients, vLLM, Ollama and SGLang are on a page,
    ``examples/recipes.md``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "ask": [callable],
        "max_concurrency": [Interval(Integral, 1, None, closed="left")],
        "draw_ahead": [Interval(Real, 0, 1, closed="both")],
        "max_retries": [Interval(Integral, 0, None, closed="left")],
        "timeout": [None, Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        ask: Callable[..., Any],
        *,
        max_concurrency: int = 8,
        draw_ahead: float = 0.0,
        max_retries: int = 2,
        timeout: float | None = None,
    ) -> None:
        self.ask = ask
        self.max_concurrency = max_concurrency
        self.draw_ahead = draw_ahead
        self.max_retries = max_retries
        self.timeout = timeout

    def fingerprint(self) -> str:
        """Hexadecimal digest of the function."""
        return digest_of(type(self), {"ask": self.ask})

    def _check(self, prompts: Iterable[Prompt]) -> None:
        self._validate_params()
        # a function with other parameters would fail at each call, after pauses
        try:
            _takes_seed(self.ask)
        except TypeError as error:
            raise TypeError(
                f"ask must take a prompt alone, or it and a parameter named seed: {error}."
            ) from None

    def _make(
        self,
        prompt: Prompt,
        draws: range,
        seed: int,
        stopping: threading.Event,
        is_unwanted: IsUnwanted,
    ) -> Draws:
        # each draw has a seed of its own, so that it does not matter which call is made when
        takes_seed = _takes_seed(self.ask)
        for draw in draws:
            options = {"seed": draw_seed(prompt, seed, draw)} if takes_seed else {}
            call = partial(self.ask, prompt, **options)
            reply = self._repeated(call, prompt, stopping, partial(is_unwanted, draw))
            # a text with its log-probability
            if isinstance(reply, tuple) and len(reply) == 2:
                reply = Generation(reply[0], logprob=reply[1])
            yield draw, checked_draw("ask", reply, f"draw {draw} of {prompt_line(prompt)}")

    def _repeated(
        self,
        call: Callable[[], Any],
        prompt: Prompt,
        stopping: threading.Event,
        is_unwanted: Callable[[], bool],
    ) -> Any:
        """Reply to a call, repeated where it fails."""
        attempt = 1
        while True:
            try:
                return self._reply(call, prompt, is_unwanted)
            except Exception as error:
                # nobody waits: no second call is paid for
                if is_unwanted():
                    raise
                line = prompt_line(prompt)
                _logger.info("ask failed for the prompt %s, attempt %d: %r", line, attempt, error)
                if attempt > self.max_retries or stopping.wait(pause_after(attempt)):
                    error.add_note(
                        f"Raised by ask for the prompt {line}, at attempt {attempt} (max_retries "
                        f"is {self.max_retries}). An estimator keeps the draws that have arrived."
                    )
                    raise
                attempt += 1

    def _reply(
        self, call: Callable[[], Any], prompt: Prompt, is_unwanted: Callable[[], bool]
    ) -> Any:
        """Reply to one call, within the time that it has."""
        deadline = math.inf if self.timeout is None else time.monotonic() + self.timeout
        try:
            reply = (
                call()
                if self.timeout is None
                else self._outcome(_in_thread(call), prompt, deadline)
            )
            # by what it returns, not by how it was defined: a partial or an object may give a
            # coroutine too
            if inspect.isawaitable(reply):
                future = asyncio.run_coroutine_threadsafe(_awaited(reply), _event_loop())
                reply = self._outcome(future, prompt, deadline, is_unwanted)
            return reply
        except (CancelledError, asyncio.CancelledError) as error:
            if is_unwanted():
                raise
            # whoever waits would take it for its own
            raise RuntimeError("ask must raise no CancelledError, got one instead.") from error

    def _outcome(
        self,
        future: "Future[Any]",
        prompt: Prompt,
        deadline: float,
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> Any:
        """What a call gives, unless it is given up."""
        while not future.done():
            if is_unwanted():
                future.cancel()
                raise CancelledError("nobody waits for this draw any more.")
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                future.cancel()
                raise TimeoutError(
                    f"ask must answer within timeout={self.timeout:g} seconds, got no answer for "
                    f"the prompt {prompt_line(prompt)} instead."
                )
            # in short steps, to see meanwhile whether anybody still waits
            wait([future], min(seconds, POLL_SECONDS))
        return future.result()


def _takes_seed(ask: Callable[..., Any]) -> bool:
    """Whether a function has a parameter `seed`, beside the prompt."""
    try:
        signature = inspect.signature(ask)
    except ValueError:  # of a function of C
        return False
    takes_seed = "seed" in signature.parameters
    # a parameter without a default would fail at each call: say so before the first
    signature.bind("", **{"seed": 0} if takes_seed else {})
    return takes_seed


def _in_thread(call: Callable[[], Any]) -> "Future[Any]":
    """A call in a daemon thread of its own."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # whoever waits raises it
            future.set_exception(error)

    # the caller's variables, such as those of a trace; a daemon, since nothing can end the call
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True).start()
    return future


async def _awaited(reply: Any) -> Any:
    try:
        return await reply
    except (SystemExit, KeyboardInterrupt) as error:
        # it would end the loop, and with it all later calls of this process
        name = type(error).__name__
        raise RuntimeError(f"ask must raise no {name}, got one instead.") from error


# One for each process, which never ends: a client keeps its connections in the loop that it was
# first used in, and both fit and predict ask it.
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
_LOCKS: dict[int, threading.Lock] = {}  # by process, too: a fork may leave one locked


def _event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process, in its own thread."""
    with _LOCKS.setdefault(os.getpid(), threading.Lock()):
        if os.getpid() not in _LOOPS:
            _LOOPS[os.getpid()] = loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True).start()
        return _LOOPS[os.getpid()]
