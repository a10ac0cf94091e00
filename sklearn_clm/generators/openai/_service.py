"""Requests to an OpenAI-compatible service: retried, counted, and silent about keys.

A text that must not be seen.

What a remote service was asked for, and the budget for it."""

import json
import os
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sklearn_clm.generators.openai._choices import ResponseFormatError

__all__ = [
    "Account",
    "BudgetExceededError",
    "Secret",
    "Service",
    "ServiceError",
    "Usage",
    "redacted",
]


class Secret:
    """Holds a text that no repr, format or pickle of it shows.

    Not a subclass of str: formatting, joining or serialising one by accident would show it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | None) -> None:
        self._value = value

    def reveal(self) -> str | None:
        """The text; None after a pickle, which does not carry it."""
        return self._value

    def __repr__(self) -> str:
        return "<secret>"

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: Any) -> "Secret":
        return self

    def __reduce__(self) -> tuple[type["Secret"], tuple[None]]:
        return Secret, (None,)


def redacted(text: str, *secrets: str | None) -> str:
    """A text without the given secrets and without whatever follows ``Bearer``."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "<secret>")
    return re.sub(r"(?i)\b(bearer\s+)[^\s\"',}]+", r"\1<secret>", text)


class BudgetExceededError(RuntimeError):
    """Raised before a budget of draws would be exceeded; what was drawn stays drawn.

    Examples
    --------
    >>> from sklearn_clm.generators import BudgetExceededError
    >>> issubclass(BudgetExceededError, RuntimeError)
    True
    """


class Usage:
    """Counts that threads and clones of a generator share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reserved = 0
        self.requests = 0
        self.draws = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0

    def count_response(self, body: Any) -> None:
        """Count one answered request by the ``usage`` in its body."""
        reported = body.get("usage") if isinstance(body, dict) else None
        reported = reported if isinstance(reported, dict) else {}
        with self._lock:
            self.requests += 1
            self.prompt_tokens += _count(reported.get("prompt_tokens"))
            self.completion_tokens += _count(reported.get("completion_tokens"))

    @contextmanager
    def reserve(self, n_draws: int, max_draws: int | None) -> Iterator[Callable[[], None]]:
        """Set draws aside while they are made; those that were not made are given back.

        Gives the function to call once for each draw that was made.
        """
        n_left = n_draws

        def count_draw() -> None:
            nonlocal n_left
            with self._lock:
                n_left -= 1
                self._reserved -= 1
                self.draws += 1

        with self._lock:
            taken = self.draws + self._reserved
            if max_draws is not None and taken + n_draws > max_draws:
                raise BudgetExceededError(
                    f"max_draws={max_draws}: {taken} draws are made or being made, and {n_draws} "
                    "more were asked for. None of these was requested."
                )
            self._reserved += n_draws
        try:
            yield count_draw
        finally:
            with self._lock:
                self._reserved -= n_left
                n_left = 0

    def summary(self, prices: Mapping[str, float] | None) -> dict[str, Any]:
        """The counts, and what they cost."""
        counts: dict[str, Any] = {
            "requests": self.requests,
            "draws": self.draws,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }
        if prices is not None:
            counts["cost"] = (
                prices["prompt"] * self.prompt_tokens
                + prices["completion"] * self.completion_tokens
            ) / 1e6
        return counts


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


_FIRST_WAIT = 0.5  # seconds
_LONGEST_WAIT = 8.0
_LONGEST_RETRY_AFTER = 3600.0
_CLIENT_RETRY_AFTER = 120.0  # the client gives up where it is told to wait for longer


class ServiceError(RuntimeError):
    """A service that refused a request, or kept failing.

    Parameters
    ----------
    message : str
        What happened; holds no key.
    status : int, default=None
        The HTTP status, where there was an answer.
    retry_after : str, default=None
        The header of that name, where there was one.

    Examples
    --------
    >>> from sklearn_clm.generators import ServiceError
    >>> ServiceError("no such model", 404).status
    404
    """

    def __init__(
        self, message: str, status: int | None = None, retry_after: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.status, self.retry_after)


class Service:
    """A client of one service. It may be used by several threads."""

    def __init__(
        self,
        usage: Usage,
        base_url: str | None,
        api_key: str | None,
        timeout: float,
        max_retries: int,
    ) -> None:
        openai = _client_package()
        api_key = api_key or os.environ.get("OPENAI_API_KEY")
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        if not api_key and base_url is None:
            raise ValueError(
                "api_key is missing: pass it, or set the environment variable OPENAI_API_KEY (a "
                "server of your own, given by base_url, may need none)."
            )
        self._usage = usage
        self._secret = api_key
        self._max_retries = max_retries
        # the client repeats requests on 408, 409, 429, 5xx, timeouts and dropped connections,
        # and waits as Retry-After says
        self._client = openai.OpenAI(
            api_key=api_key or "none",
            base_url=base_url,
            timeout=timeout,
            max_retries=max_retries,
        )

    def ask(
        self,
        endpoint: str,
        request: dict[str, Any],
        understand: Callable[[Any], Any],
        stopping: threading.Event | None = None,
    ) -> Any:
        """What `understand` makes of the answer's JSON; asked again where it makes nothing of it.

        Raises
        ------
        ServiceError
            If the service refuses, or fails more than `max_retries` times.
        """
        stopping = threading.Event() if stopping is None else stopping
        for attempt in range(self._max_retries + 1):
            text, problem = self._post(endpoint, request)
            if problem is None:
                try:
                    return self._understood(text, understand)
                except ResponseFormatError as error:
                    problem = error
            # outside of the except clauses: what the client raised holds the request's headers,
            # and must not be chained to what is raised here
            wait = self._wait(attempt, problem)
            if wait is None or attempt == self._max_retries or stopping.wait(wait):
                break
        if isinstance(problem, ServiceError):
            raise problem
        message = f"the service gave unusable responses, {attempt + 1} in a row: {problem}."
        raise ServiceError(redacted(message, self._secret))

    def _understood(self, text: str, understand: Callable[[Any], Any]) -> Any:
        body = _parsed(text)
        # before it is understood: what cannot be used is paid for, too
        self._usage.count_response(body)
        return understand(body)

    def _post(self, endpoint: str, request: dict[str, Any]) -> tuple[str, Any]:
        openai = _client_package()
        resource = self._client.chat.completions if endpoint == "chat" else self._client.completions
        try:
            return resource.with_raw_response.create(**request).text, None
        except openai.APIStatusError as error:
            problem = ServiceError(
                self._told(f"the service answered with status {error.status_code}", error),
                error.status_code,
                error.response.headers.get("retry-after"),
            )
        except openai.APITimeoutError:
            problem = ServiceError(
                f"the service did not answer in time ({self._max_retries + 1} attempts)."
            )
        except openai.APIConnectionError as error:
            cause = type(error.__cause__).__name__ if error.__cause__ else "unknown cause"
            problem = ServiceError(
                f"the service cannot be reached ({cause}; {self._max_retries + 1} attempts)."
            )
        except openai.OpenAIError as error:
            problem = ServiceError(self._told("the client failed", error))
        return "", problem

    def _told(self, what: str, error: Exception) -> str:
        return redacted(f"{what}: {str(error)[:500]}", self._secret)

    def _wait(self, attempt: int, problem: Exception) -> float | None:
        """Seconds until the request is worth repeating, None where it is not."""
        if isinstance(problem, ServiceError):
            seconds = _seconds(problem.retry_after)
            if _CLIENT_RETRY_AFTER < seconds <= _LONGEST_RETRY_AFTER:
                return seconds
            return None
        jitter = random.uniform(0.75, 1.0)  # spreads requests, hides nothing  # nosec B311
        return min(_FIRST_WAIT * 2.0**attempt, _LONGEST_WAIT) * jitter


class Account:
    """What a generator has in common with its clones: counts, clients, what a probe found."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.probing = threading.Lock()
        self.gives_logprobs: dict[str, bool] = {}
        self._lock = threading.Lock()
        self._services: dict[tuple[Any, ...], Service] = {}

    def service(self, *key: Any) -> Service:
        """The client for an address, a key and limits; one for all that agree on them."""
        with self._lock:
            if key not in self._services:
                self._services[key] = Service(self.usage, *key)
            return self._services[key]


def _seconds(retry_after: Any) -> float:
    try:
        return float(retry_after)
    except (TypeError, ValueError):
        return 0.0


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ResponseFormatError(f"the body is not JSON: {text[:80]!r}") from None


def _client_package() -> Any:
    try:
        import openai
    except ImportError as error:
        raise ImportError(
            "OpenAIGenerator needs the package openai: pip install 'sklearn-clm[openai]'."
        ) from error
    return openai
