"""Requests to a service: bounded, repeated, without secrets in errors."""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar

from sklearn_clm._exceptions import optional_module
from sklearn_clm.generators._concurrent import pause_after

Answer = TypeVar("Answer")

_PATHS = {"chat": "/chat/completions", "completions": "/completions"}
_LARGEST_BODY = 2**25  # bytes, once decompressed
_LONGEST_EXCERPT = 400  # characters of what a service said, in an error
# what Python raises where a body is not as the API promises
UNUSABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


class Secret:
    """A text that no repr, format or pickle shows."""

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text."""
        return self._value

    def __repr__(self) -> str:
        return "<secret>"

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a pickle holds None in its place


class ServiceError(RuntimeError):
    """A service that refused a request, or kept failing.

    Parameters
    ----------
    message : str
        What happened; holds no key.
    status : int, default=None
        The HTTP status, where there was an answer.
    prompt : object, default=None
        The prompt that was asked about.

    Examples
    --------
    >>> from sklearn_clm.generators import ServiceError
    >>> ServiceError("no such model", 404).status
    404
    """

    def __init__(self, message: str, status: int | None = None, prompt: object = None) -> None:
        super().__init__(message)
        self.status = status
        self.prompt = prompt


class Usage:
    """Counts that a generator's copies share in a process."""

    def __init__(self) -> None:
        self.counts = {"requests": 0, "draws": 0, "prompt_tokens": 0, "completion_tokens": 0}
        self._locks: dict[int, threading.Lock] = {}  # by process: a fork may leave one locked

    def __deepcopy__(self, memo: object) -> "Usage":
        return self

    def __reduce__(self) -> tuple[type["Usage"], tuple[()]]:
        return Usage, ()

    def add(self, **counts: int) -> None:
        """Add to the counts."""
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            for name, count in counts.items():
                self.counts[name] += count


class Service:
    """A client of one service, shared by threads."""

    def __init__(
        self, base_url: str | None, api_key: str | None, timeout: float, max_retries: int
    ) -> None:
        self._openai = openai = optional_module("openai", "openai", "OpenAIGenerator")
        if not api_key and base_url is None:
            raise ValueError(
                "api_key is missing: pass it, or set the environment variable OPENAI_API_KEY (a "
                "server of your own, given by base_url, may need none)."
            )
        if api_key and not api_key.isascii():  # the error of what encodes it would hold it
            raise ValueError("api_key must be ASCII, got a key with other characters instead.")
        self._api_key = api_key
        self._max_retries = max_retries
        self._client = openai.OpenAI(
            api_key=api_key or "none",
            base_url=base_url,
            timeout=timeout,
            max_retries=max_retries,
            http_client=_bounded_client(openai)(timeout=timeout),
        )

    def answer(
        self,
        endpoint: str,
        request: Mapping[str, object],
        understand: Callable[[Any], Answer],
        stopping: threading.Event,
    ) -> Answer:
        """Request an answer until `understand` can read it.

        Raises
        ------
        ServiceError
            If the service refuses, or fails more than `max_retries` times.
        """
        # the client repeats requests that fail; a body that makes no sense is repeated here
        for attempt in range(self._max_retries + 1):
            # raised here: what the client raises holds the request's headers, and is not chained
            text = self._post(endpoint, request)
            if isinstance(text, ServiceError):
                raise text
            try:
                return understand(json.loads(text))
            except UNUSABLE as error:
                quote = self._excerpt(f"{error}; the body is {text}")
            if attempt == self._max_retries or stopping.wait(pause_after(attempt + 1)):
                break
        raise ServiceError(f"the service gave unusable responses, {attempt + 1} in a row: {quote}")

    def _post(self, endpoint: str, request: Mapping[str, object]) -> str | ServiceError:
        """The text of an answer, or the error to raise."""
        openai = self._openai
        try:
            return self._client.post(_PATHS[endpoint], body=dict(request), cast_to=str)
        except openai.APIStatusError as error:
            quote = self._excerpt(error.response.text)
            status = error.status_code
            return ServiceError(f"the service answered with status {status}: {quote}", status)
        except openai.APIConnectionError as error:
            host = error.request.url.netloc.decode()  # the rest of an address may hold secrets
            quote = self._excerpt(str(error.__cause__ or error))
            return ServiceError(f"the service at {host} cannot be reached: {error} ({quote})")

    def _excerpt(self, text: str) -> str:
        # redacted before it is cut: half a key is a secret, too
        return redacted(text, self._api_key)[:_LONGEST_EXCERPT]


@lru_cache(maxsize=16)
def service_of(
    process: int, base_url: str | None, api_key: str | None, timeout: float, max_retries: int
) -> Service:
    """The client of a process and its settings."""
    return Service(base_url, api_key, timeout, max_retries)


def redacted(text: str, secret: str | None) -> str:
    """A text without the secret and without whatever follows ``Bearer``."""
    # a service may quote the headers of a request, or a part of its key
    text = text.replace(secret, "<secret>") if secret else text
    return re.sub(r"(?i)\b(bearer\s+)[^\s\"',}]+", r"\1<secret>", text)


def _bounded_client(openai: ModuleType) -> Any:
    """The client's HTTP class, with limits on whole bodies."""
    # the package of HTTP that this version of openai is built on
    http = sys.modules[openai.DefaultHttpxClient.__base__.__module__.partition(".")[0]]

    class BoundedClient(openai.DefaultHttpxClient):  # type: ignore[name-defined]
        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            # the client's limit is on each read: a body that trickles in would never end
            seconds = request.extensions["timeout"]["read"]
            deadline = time.monotonic() + seconds
            response = super().send(request, stream=True, **options)
            try:
                content = bytearray()
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > _LARGEST_BODY:
                        raise http.ReadError(f"a body of more than {_LARGEST_BODY:,} bytes")
                    if time.monotonic() > deadline:
                        raise http.ReadTimeout(f"{seconds} s are over", request=request)
            finally:
                response.close()
            # the body is decompressed and whole: what was said of it on the way no longer holds
            of_body = ("content-encoding", "content-length", "transfer-encoding")
            headers = [
                header for header in response.headers.multi_items() if header[0] not in of_body
            ]
            return http.Response(
                response.status_code, headers=headers, content=bytes(content), request=request
            )

    return BoundedClient
