"""Requests to an OpenAI-compatible service: retried, counted, and silent about keys."""

import json
import os
import random
import threading
from collections.abc import Callable
from typing import Any

from sklearn_clm.generators._choices import ResponseFormatError
from sklearn_clm.generators._secret import redacted
from sklearn_clm.generators._usage import Usage

__all__ = ["Account", "Service", "ServiceError"]

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
