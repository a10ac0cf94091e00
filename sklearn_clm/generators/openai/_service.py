"""A client of a service: requests that are repeated, bounded, counted, and silent about keys."""

import json
import logging
import os
import random
import re
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import Any, NamedTuple, Self, TypeVar

from sklearn_clm.generators._prompts import prompt_line

Answer = TypeVar("Answer")
_logger = logging.getLogger("sklearn_clm")

PATHS = {"chat": "/chat/completions", "completions": "/completions"}

_FIRST_WAIT = 0.5  # seconds
_LONGEST_WAIT = 8.0
_LONGEST_RETRY_AFTER = 3600.0
_LARGEST_BODY = 2**25  # bytes, once decompressed
_MOST_TOKENS = 10**9  # of one request
_LONGEST_EXCERPT = 400  # characters of what a service said, in an error
_PROMPT_WIDTH = 80  # characters of a prompt that is a text, in an error


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

    def __deepcopy__(self, memo: object) -> "Secret":
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

    Attributes
    ----------
    prompt : object
        The prompt that was asked about; None where it was a probe of the service.

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
        self.prompt: object = None

    def of_prompt(self, prompt: object) -> "ServiceError":
        """The same error, saying which prompt was asked about.

        Parameters
        ----------
        prompt : object
            The prompt.

        Returns
        -------
        ServiceError
        """
        shown = prompt_line(prompt[:_PROMPT_WIDTH] if isinstance(prompt, str) else prompt)
        error = ServiceError(f"{self} (prompt: {shown})", self.status, self.retry_after)
        error.prompt = prompt
        return error

    def __reduce__(self) -> tuple[object, ...]:
        # with the notes and the prompt
        return type(self), (str(self), self.status, self.retry_after), self.__dict__


class ResponseFormatError(ValueError):
    """A response that is not what the API promises; asking again may help."""


def token_count(usage: object, name: str) -> int | None:
    """A number of tokens that a service tells; None where it tells none that can be."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and 0 <= value <= _MOST_TOKENS else None


class Account:
    """What a generator has in common with its clones: clients, counts, what a probe found."""

    def __init__(self) -> None:
        self.requests = self.draws = self.prompt_tokens = self.completion_tokens = 0
        self.gives_logprobs: dict[str, bool] = {}
        self.warned = False
        self.n_reserved = 0
        self._services: dict[tuple[object, ...], Service] = {}
        self.renew_locks()
        _ACCOUNTS.add(self)

    def renew_locks(self) -> None:
        """Forget who holds a lock: the threads of another process do not exist in this one."""
        self.lock, self.probing = threading.Lock(), threading.Lock()

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

    def count_request(self, body: object) -> None:
        """Count one answered request by the ``usage`` in its body."""
        usage = body.get("usage") if isinstance(body, dict) else None
        with self.lock:
            self.requests += 1
            self.prompt_tokens += token_count(usage, "prompt_tokens") or 0
            self.completion_tokens += token_count(usage, "completion_tokens") or 0

    def reservation(self, max_draws: int | None) -> "Reservation":
        """Room for draws within a budget, to be filled as they are requested."""
        return Reservation(self, max_draws)

    def usage(self, prices: Mapping[str, float] | None) -> dict[str, float]:
        """The counts, and what they cost."""
        names = ("requests", "draws", "prompt_tokens", "completion_tokens")
        counts: dict[str, float] = {name: getattr(self, name) for name in names}
        if prices is not None:
            cost = sum(prices[kind] * counts[f"{kind}_tokens"] for kind in ("prompt", "completion"))
            counts["cost"] = cost / 1e6
        return counts


class Reservation:
    """Draws of one call, set aside in an account until they are made or the call ends."""

    def __init__(self, account: Account, max_draws: int | None) -> None:
        self._account, self._max_draws, self._n_left = account, max_draws, 0

    def add(self, n_draws: int) -> None:
        """Set draws aside before they are requested; refused beyond the budget."""
        account = self._account
        with account.lock:
            taken = account.draws + account.n_reserved
            if self._max_draws is not None and taken + n_draws > self._max_draws:
                raise BudgetExceededError(
                    f"max_draws={self._max_draws}: {taken} draws are made or being made, and "
                    f"{n_draws} more were asked for. None of these was requested."
                )
            self._take(n_draws)

    def count_draw(self) -> None:
        """Count one draw as made."""
        with self._account.lock:
            self._account.draws += 1
            self._take(-min(1, self._n_left))

    def _take(self, n_draws: int) -> None:
        self._n_left += n_draws
        self._account.n_reserved += n_draws

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with self._account.lock:
            self._take(-self._n_left)


_ACCOUNTS: "weakref.WeakSet[Account]" = weakref.WeakSet()


def _renew_locks() -> None:
    for account in _ACCOUNTS:
        account.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class _Failure(NamedTuple):
    """What became of a request that was not answered as it should be."""

    message: str  # {n} stands for the number of attempts
    worth_repeating: bool = True
    status: int | None = None
    retry_after: str | None = None

    def wait(self, attempt: int) -> float | None:
        """Seconds until the request is worth repeating, None where it is not."""
        asked_for = _seconds(self.retry_after)
        if not self.worth_repeating or asked_for > _LONGEST_RETRY_AFTER:
            return None
        if asked_for > 0.0:
            return asked_for
        jitter = random.uniform(0.75, 1.0)  # spreads requests, hides nothing  # nosec B311
        return float(min(_FIRST_WAIT * 2.0 ** min(attempt, 30), _LONGEST_WAIT) * jitter)


def _seconds(retry_after: str | None) -> float:
    """Seconds that a Retry-After header asks for, as a number or as a date; 0 where it does not."""
    try:
        return float(retry_after or 0.0)
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(retry_after or "")
    except ValueError:
        return 0.0
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return (date - datetime.now(UTC)).total_seconds()


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
        openai = _client_package()
        api_key = api_key or os.environ.get("OPENAI_API_KEY")
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        if not api_key and base_url is None:
            raise ValueError(
                "api_key is missing: pass it, or set the environment variable OPENAI_API_KEY (a "
                "server of your own, given by base_url, may need none)."
            )
        if api_key and not api_key.isascii():  # the error of what encodes it would hold it
            raise ValueError("api_key must be ASCII, got a key with other characters instead.")
        # the package of HTTP that this version of openai is built on
        self._http = sys.modules[openai.DefaultHttpxClient.__base__.__module__.partition(".")[0]]
        self._account = account
        self._secret = api_key
        self._max_retries = max_retries
        self._client = _bounded_client(openai, self._http)(timeout=timeout)
        # knows the addresses and headers; its own requests take twice the time of the HTTP client's
        api = openai.OpenAI(api_key=api_key or "none", base_url=base_url, http_client=self._client)
        headers = {**api.default_headers, **api.auth_headers, "Accept-Encoding": "gzip"}
        texts = {name: value for name, value in headers.items() if isinstance(value, str)}
        self._client.headers.update(texts)
        base_url = str(api.base_url).rstrip("/")
        self._urls = {name: self._http.URL(base_url + path) for name, path in PATHS.items()}

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
            answer = self._post(endpoint, request)
            if isinstance(answer, _Failure):
                failure = answer
            else:
                try:
                    body = _parsed(answer)
                    # before it is understood: what cannot be used is paid for, too
                    self._account.count_request(body)
                    return understand(body)
                except ResponseFormatError as error:
                    failure = self._unusable(error)
            # outside of the except clauses: what the client raised holds the request's headers,
            # and must not be chained to what is raised here
            wait = failure.wait(attempt)
            message = failure.message.replace("{n}", str(attempt + 1))
            if wait is None or attempt == self._max_retries:
                break
            _logger.info("asking again in %.1f s: %s", wait, message)
            if stopping.wait(wait):
                break
        raise ServiceError(message, failure.status, failure.retry_after)

    def _post(self, endpoint: str, request: Mapping[str, object]) -> str | _Failure:
        """The text of the answer, or what went wrong."""
        url = self._urls[endpoint]
        # without what may stand there of a user, a password or a query
        place = f"{url.scheme}://{url.netloc.decode()}{url.path}"
        address = f" at {self._excerpt(place)}"
        try:
            response = self._client.post(self._urls[endpoint], json=request)
        except ResponseFormatError as error:
            return self._unusable(error)
        except self._http.TimeoutException:
            return _Failure(f"the service did not answer in time ({{n}} attempts){address}.")
        except (self._http.HTTPError, self._http.InvalidURL, OSError) as error:
            cause = type(error).__name__
            return _Failure(f"the service cannot be reached ({cause}; {{n}} attempts){address}.")
        if response.is_success:
            return str(response.text)
        status, headers = response.status_code, response.headers
        said = {"true": True, "false": False}.get(headers.get("x-should-retry"))
        repeat = said if said is not None else status in (408, 409, 429) or status >= 500
        lost = f"{address} (base_url mostly ends in /v1)" if status == 404 else ""
        attempts = " ({n} attempts)" if repeat else ""
        return _Failure(
            f"the service answered with status {status}{lost}{attempts}: "
            f"{self._excerpt(response.text)}",
            repeat,
            status,
            headers.get("retry-after"),
        )

    def _unusable(self, error: ResponseFormatError) -> _Failure:
        excerpt = self._excerpt(str(error))
        return _Failure(f"the service gave unusable responses, {{n}} in a row: {excerpt}.")

    def _excerpt(self, text: str) -> str:
        # redacted before it is cut: half a key is a secret, too
        return redacted(text, self._secret)[:_LONGEST_EXCERPT]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ResponseFormatError(f"the body is not JSON: {text!r}") from None


def _client_package() -> ModuleType:
    try:
        import openai
    except ImportError as error:
        raise ImportError(
            "OpenAIGenerator needs the package openai: pip install 'sklearn-clm[openai]'."
        ) from error
    return openai


def _bounded_client(openai: ModuleType, http: ModuleType) -> Any:
    """The client's own HTTP client, but with a limit to the time and size of whole responses."""

    class BoundedClient(openai.DefaultHttpxClient):  # type: ignore[name-defined]
        def __init__(self, *, timeout: float) -> None:
            super().__init__(timeout=timeout)
            self._ends = threading.local()  # each thread waits for one response at a time

        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            seconds = request.extensions["timeout"]["read"]
            self._ends.at = deadline = time.monotonic() + seconds
            request.extensions["trace"] = self._bound
            response = super().send(request, stream=True, **options)
            try:
                content = bytearray()
                for chunk in _decompressed(response):
                    content += chunk
                    if len(content) > _LARGEST_BODY:
                        raise ResponseFormatError(
                            f"the body holds more than {_LARGEST_BODY:,} bytes"
                        )
                    if time.monotonic() > deadline:
                        raise http.ReadTimeout(f"{seconds} s are over", request=request)
            finally:
                response.close()
            of_body = ("content-encoding", "content-length", "transfer-encoding")
            headers = [one for one in response.headers.multi_items() if one[0] not in of_body]
            return http.Response(
                response.status_code, headers=headers, content=bytes(content), request=request
            )

        def _bound(self, event: str, found: Mapping[str, Any]) -> None:
            """Let all reads of a new connection end in time: headers may drip as bodies do."""
            if not event.endswith((".connect_tcp.complete", ".start_tls.complete")):
                return
            connection, ends = found["return_value"], self._ends
            read = connection.read

            def read_in_time(max_bytes: int, timeout: float | None = None) -> bytes:
                left = max(ends.at - time.monotonic(), 1e-3)
                return bytes(read(max_bytes, left if timeout is None else min(left, timeout)))

            connection.read = read_in_time

    return BoundedClient


def _decompressed(response: Any) -> Iterator[bytes]:
    """The body in small pieces: a kilobyte may well decompress to a megabyte."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise ResponseFormatError(f"the body is encoded as {encoding!r}, which was not asked for")
    if encoding != "gzip":
        yield from response.iter_raw()
        return
    decoder = zlib.decompressobj(wbits=31)
    try:
        for chunk in response.iter_raw():
            while chunk:
                yield decoder.decompress(chunk, 2**20)
                chunk = decoder.unconsumed_tail
    except zlib.error as error:
        raise ResponseFormatError(f"the body is not gzip: {error}") from None
