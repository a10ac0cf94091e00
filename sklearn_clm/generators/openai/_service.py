"""A client of a service: requests that are bounded, counted, and silent about keys."""

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar

from sklearn_clm.generators._concurrent import pause_after

Answer = TypeVar("Answer")
_logger = logging.getLogger("sklearn_clm")

PATHS = {"chat": "/chat/completions", "completions": "/completions"}

_LARGEST_BODY = 2**25  # bytes, once decompressed
_MOST_TOKENS = 10**9  # of one request
_LONGEST_EXCERPT = 400  # characters of what a service said, in an error


class Secret:
    """Holds a text that no repr, format or pickle of it shows.

    Not a subclass of str: formatting, joining or serialising one by accident would show it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text."""
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

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a pickle holds None in its place


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


class ServiceError(RuntimeError):
    """A service that refused a request, or kept failing.

    Parameters
    ----------
    message : str
        What happened; holds no key.
    status : int, default=None
        The HTTP status, where there was an answer.
    prompt : object, default=None
        The prompt that was asked about; None where it was a probe of the service.

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


class ResponseFormatError(ValueError):
    """A response that is not what the API promises; asking again may help."""


def token_count(usage: object, name: str) -> int | None:
    """A number of tokens that a service tells; None where it tells none that can be."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and 0 <= value <= _MOST_TOKENS else None


class Account:
    """What a generator shares with its copies in a process: clients, counts, what a probe found."""

    def __init__(self) -> None:
        self.requests = self.draws = self.prompt_tokens = self.completion_tokens = 0
        self.gives_logprobs: dict[str, bool] = {}
        self.warned = False
        self.lock, self.probing = threading.Lock(), threading.Lock()
        self._services: dict[tuple[object, ...], Service] = {}

    def __deepcopy__(self, memo: object) -> "Account":
        return self

    def __reduce__(self) -> tuple[type["Account"], tuple[()]]:
        return Account, ()

    def service(
        self, base_url: str | None, api_key: str | None, timeout: float, max_retries: int
    ) -> "Service":
        """The client for an address, a key and limits; one for all that agree on them."""
        # two processes that read from one socket would get each other's answers
        key = (os.getpid(), base_url, api_key, timeout, max_retries)
        with self.lock:
            if key not in self._services:
                self._services[key] = Service(self, base_url, api_key, timeout, max_retries)
            return self._services[key]

    def set_aside(self, n_draws: int, max_draws: int | None) -> None:
        """Count draws that are about to be requested; refused beyond the budget."""
        with self.lock:
            if max_draws is not None and self.draws + n_draws > max_draws:
                raise BudgetExceededError(
                    f"max_draws={max_draws}: {self.draws} draws are made or being made, and "
                    f"{n_draws} more were asked for. None of these was requested."
                )
            self.draws += n_draws

    def give_back(self, n_draws: int) -> None:
        """Draws that were set aside and not made."""
        with self.lock:
            self.draws -= n_draws

    def count_request(self, body: object) -> None:
        """Count one answered request by the ``usage`` in its body."""
        usage = body.get("usage") if isinstance(body, dict) else None
        with self.lock:
            self.requests += 1
            self.prompt_tokens += token_count(usage, "prompt_tokens") or 0
            self.completion_tokens += token_count(usage, "completion_tokens") or 0

    def usage(self, prices: Mapping[str, float] | None) -> dict[str, float]:
        """The counts, and what they cost."""
        names = ("requests", "draws", "prompt_tokens", "completion_tokens")
        counts: dict[str, float] = {name: getattr(self, name) for name in names}
        if prices is not None:
            cost = sum(prices[kind] * counts[f"{kind}_tokens"] for kind in ("prompt", "completion"))
            counts["cost"] = cost / 1e6
        return counts


class Service:
    """A client of one service. It may be used by several threads of one process."""

    def __init__(
        self,
        account: Account,
        base_url: str | None,
        api_key: str | None,
        timeout: float,
        max_retries: int,
    ) -> None:
        self._openai = openai = _client_package()
        api_key = api_key or os.environ.get("OPENAI_API_KEY")
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        if not api_key and base_url is None:
            raise ValueError(
                "api_key is missing: pass it, or set the environment variable OPENAI_API_KEY (a "
                "server of your own, given by base_url, may need none)."
            )
        if api_key and not api_key.isascii():  # the error of what encodes it would hold it
            raise ValueError("api_key must be ASCII, got a key with other characters instead.")
        self._account = account
        self._secret = api_key
        self._max_retries = max_retries
        self._client = openai.OpenAI(
            api_key=api_key or "none",
            base_url=base_url,
            timeout=timeout,
            max_retries=max_retries,
            http_client=_bounded_client(openai)(timeout=timeout),
        )

    def ask(
        self,
        endpoint: str,
        request: Mapping[str, object],
        understand: Callable[[object], Answer],
        stopping: threading.Event | None = None,
    ) -> Answer:
        """What `understand` makes of the answer's JSON; asked again where it makes nothing of it.

        Raises
        ------
        ServiceError
            If the service refuses, or fails more than `max_retries` times.
        """
        stopping = threading.Event() if stopping is None else stopping
        for attempt in range(self._max_retries + 1):
            # raised here: what the client raises holds the request's headers, and is not chained
            answer = self._post(endpoint, request)
            if isinstance(answer, ServiceError):
                raise answer
            try:
                # before it is understood: what cannot be used is paid for, too
                self._account.count_request(answer)
                return understand(answer)
            except ResponseFormatError as error:
                said = self._excerpt(str(error))
            message = f"the service gave unusable responses, {attempt + 1} in a row: {said}."
            wait = pause_after(attempt + 1)
            if attempt == self._max_retries:
                break
            _logger.info("asking again in %.1f s: %s", wait, message)
            if stopping.wait(wait):
                break
        raise ServiceError(message)

    def _post(self, endpoint: str, request: Mapping[str, object]) -> object:
        """The answer's JSON (its text, where that is none), or the error that is to be raised."""
        openai = self._openai
        try:
            return self._client.post(PATHS[endpoint], body=dict(request), cast_to=object)
        except openai.APIStatusError as error:
            status = error.status_code
            lost = f"{self._place(error)} (base_url mostly ends in /v1)" if status == 404 else ""
            said = self._excerpt(error.response.text)
            return ServiceError(
                f"the service answered with status {status}{lost}{_attempts(error)}: {said}", status
            )
        except openai.APITimeoutError as error:
            return ServiceError(
                f"the service did not answer in time{_attempts(error)}{self._place(error)}."
            )
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, ResponseFormatError):
                said = self._excerpt(str(error.__cause__))
                return ServiceError(f"the service gave unusable responses: {said}.")
            cause = f" ({type(error.__cause__).__name__})"
            return ServiceError(
                f"the service cannot be reached{cause}{_attempts(error)}{self._place(error)}."
            )
        except json.JSONDecodeError as error:
            return error.doc
        except (ValueError, RecursionError) as error:
            return str(error)

    def _place(self, error: Any) -> str:
        """The address, without what may stand there of a user, a password or a query."""
        url = error.request.url
        return f" at {self._excerpt(f'{url.scheme}://{url.netloc.decode()}{url.path}')}"

    def _excerpt(self, text: str) -> str:
        # redacted before it is cut: half a key is a secret, too
        return redacted(text, self._secret)[:_LONGEST_EXCERPT]


def _attempts(error: Any) -> str:
    n_retries = int(error.request.headers.get("x-stainless-retry-count", 0))
    return f" ({n_retries + 1} attempts)" if n_retries else ""


def _client_package() -> ModuleType:
    try:
        import openai
    except ImportError as error:
        raise ImportError(
            "OpenAIGenerator needs the package openai: pip install 'sklearn-clm[openai]'."
        ) from error
    return openai


def _bounded_client(openai: ModuleType) -> Any:
    """The client's own HTTP client, but with a limit to the time and size of whole bodies."""
    # the package of HTTP that this version of openai is built on
    http = sys.modules[openai.DefaultHttpxClient.__base__.__module__.partition(".")[0]]

    class BoundedClient(openai.DefaultHttpxClient):  # type: ignore[name-defined]
        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            seconds = request.extensions["timeout"]["read"]
            deadline = time.monotonic() + seconds
            response = super().send(request, stream=True, **options)
            try:
                content = bytearray()
                for chunk in response.iter_bytes():
                    if len(content) + len(chunk) > _LARGEST_BODY:
                        raise ResponseFormatError(
                            f"the body holds more than {_LARGEST_BODY:,} bytes"
                        )
                    content += chunk
                    if time.monotonic() > deadline:
                        raise http.ReadTimeout(f"{seconds} s are over", request=request)
            finally:
                response.close()
            of_body = ("content-encoding", "content-length", "transfer-encoding")
            headers = [one for one in response.headers.multi_items() if one[0] not in of_body]
            return http.Response(
                response.status_code, headers=headers, content=bytes(content), request=request
            )

    return BoundedClient
