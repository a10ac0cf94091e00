"""Draws from any service that speaks OpenAI's protocol."""

import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_clm.generators._concurrent import ConcurrentGenerator, Draws, IsUnwanted
from sklearn_clm.generators.draws import Generation, Prompt, check_text, draw_seed, is_chat
from sklearn_clm.generators.identity import digest_of
from sklearn_clm.generators.openai._answers import parse_choices, token_count
from sklearn_clm.generators.openai._service import Secret, Service, ServiceError, Usage, service_of
from sklearn_clm.generators.prompts import Template, filled, prompt_line

Request = dict[str, object]

_SHAPES_RESPONSES = (
    *("model", "endpoint", "temperature", "top_p", "max_tokens", "stop"),
    *("logprobs", "prompt_template", "system_prompt", "extra_body"),
)
_COUNTED = ("prompt_tokens", "completion_tokens")
_PROMPT_WIDTH = 80  # characters of a prompt that is a text, in an error
_NO_LOGPROBS = (
    "the service tells no log-probabilities of a response (model {model!r}, endpoint={endpoint!r}),"
    " or includes those of hidden reasoning; logprobs=True and quality='likelihood' need them. Use "
    "OpenAIGenerator(logprobs=False) with quality='self_consistency' or 'p_true' or any callable "
    "(prompt, generation) -> float; or another endpoint or server that gives them."
)


class OpenAIGenerator(ConcurrentGenerator):
    """Draw from a language model behind an OpenAI-compatible service.

    OpenAI's own, or a server of vLLM, llama.cpp, Ollama and others, given its `base_url`. Requests
    run concurrently. Those that fail in passing (status 408, 409, 429 or 5xx, timeouts, dropped
    connections, bodies that are broken or incomplete) are repeated with growing pauses, or after
    the time that the service asked for.

    Parameters
    ----------
    model : str
        The model's name at the service.
    base_url : str, default=None
        Address of the service, such as ``"http://localhost:8000/v1"``. None uses the environment
        variable ``OPENAI_BASE_URL``, or OpenAI.
    api_key : str, default=None
        The key. None uses the environment variable ``OPENAI_API_KEY``. It is in no repr or
        pickle: an unpickled generator has the key of its process' environment.
    endpoint : {"chat", "completions"}, default="chat"
        Which of the two endpoints to ask.
    temperature : float, default=1.0
        Temperature of the draws. At 0 they are copies of one another: right for a judge, useless
        for sets. None leaves it to the service.
    top_p : float in (0, 1], default=None
        Nucleus to draw from.
    max_tokens : int, default=None
        Most tokens of one response.
    stop : str or list of str, default=None
        Texts that end a response.
    logprobs : bool, default=True
        Whether draws must come with log-probabilities. A service that gives none is
        then an error at the first draw.
    prompt_template : str or callable, default=None
        A text in which ``{prompt}`` stands for the prompt, or a callable from a prompt to a text
        or a list of chat messages.
    system_prompt : str, default=None
        First message of a chat.
    n_per_request : int, default=1
        How many draws to ask for in one request. With 1, each request carries a seed derived from
        (prompt, seed, draw), so draws are keyed on services that honour seeds. With more, a prompt
        is paid for less often, but draws are not keyed.
    max_concurrency : int, default=8
        Most requests at a time, of all threads that use one fitted estimator together.
    draw_ahead : float, default=0.0
        The share of draws that may be made in vain so that a prompt is answered sooner, in [0, 1],
        as in :class:`FunctionGenerator`.
    max_retries : int, default=6
        How often a request is repeated.
    timeout : float, default=120.0
        Seconds until the answer to a request begins, and until its last byte has arrived.
    extra_body : mapping, default=None
        Further fields of each request, such as ``{"top_k": 40}``.

    Attributes
    ----------
    usage_ : dict
        ``requests``, ``draws``, ``prompt_tokens`` and ``completion_tokens`` so far, as the service
        reported them; of this object and its clones.

    Notes
    -----
    A service need not honour seeds, and its batches perturb logits by rounding. Wrap this generator
    in :class:`CachedGenerator`, so that a draw once made is the draw from then on.

    Log-probabilities are taken as the service gives them. Most give those of the base model, before
    temperature and `top_p`; few count the end-of-sequence token.

    What is unknown is never certain. A token's log-probability that is none (-9999, which stands
    for a token outside of those that OpenAI ranks; positive; infinite) is taken as -inf, as is that
    of an empty response without tokens: the likelihood of the draw is then 0, the lowest.

    Clients and connections belong to a process: after a fork, a generator opens its own.

    Examples
    --------
    >>> from sklearn_clm.caching import CachedGenerator
    >>> from sklearn_clm.generators import OpenAIGenerator
    >>> generator = OpenAIGenerator("my-model", base_url="http://localhost:8000/v1", api_key="sk-1")
    >>> generator
    OpenAIGenerator(api_key=<secret>, base_url='http://localhost:8000/v1',
                    model='my-model')
    >>> cached = CachedGenerator(generator, "draws.sqlite")
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [str],
        "base_url": [str, None],
        "api_key": [Secret, None],
        "endpoint": [StrOptions({"chat", "completions"})],
        "temperature": [Interval(Real, 0, None, closed="left"), None],
        "top_p": [Interval(Real, 0, 1, closed="right"), None],
        "max_tokens": [Interval(Integral, 1, None, closed="left"), None],
        "stop": [str, list, tuple, None],
        "logprobs": ["boolean"],
        "prompt_template": [str, callable, None],
        "system_prompt": [str, None],
        "n_per_request": [Interval(Integral, 1, None, closed="left")],
        "max_concurrency": [Interval(Integral, 1, None, closed="left")],
        "draw_ahead": [Interval(Real, 0, 1, closed="both")],
        "max_retries": [Interval(Integral, 0, None, closed="left")],
        "timeout": [Interval(Real, 0, None, closed="neither")],
        "extra_body": [Mapping, None],
    }

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        endpoint: str = "chat",
        temperature: float | None = 1.0,
        top_p: float | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: bool = True,
        prompt_template: Template = None,
        system_prompt: str | None = None,
        n_per_request: int = 1,
        max_concurrency: int = 8,
        draw_ahead: float = 0.0,
        max_retries: int = 6,
        timeout: float = 120.0,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        self.model = model
        self.base_url = base_url
        self.api_key = api_key
        self.endpoint = endpoint
        self.temperature = temperature
        self.top_p = top_p
        self.max_tokens = max_tokens
        self.stop = stop
        self.logprobs = logprobs
        self.prompt_template = prompt_template
        self.system_prompt = system_prompt
        self.n_per_request = n_per_request
        self.max_concurrency = max_concurrency
        self.draw_ahead = draw_ahead
        self.max_retries = max_retries
        self.timeout = timeout
        self.extra_body = extra_body

    @property
    def api_key(self) -> Secret | None:
        """The key, wrapped so that nothing shows it."""
        return self.__dict__.get("_api_key")

    @api_key.setter
    def api_key(self, value: str | Secret | None) -> None:
        # wrapped already here, not in a method: scikit-learn's reprs read the attribute
        self._api_key = Secret(value) if isinstance(value, str) else value

    @property
    def usage_(self) -> dict[str, int]:
        """What was used so far."""
        return dict(self._usage.counts)

    @property
    def gives_logprobs(self) -> bool:  # type: ignore[override]
        """Whether draws come with log-probabilities."""
        return self.logprobs

    def fingerprint(self) -> str:
        """Hexadecimal digest of the address and of a response's parameters."""
        params = {name: getattr(self, name) for name in _SHAPES_RESPONSES}
        # the same model behind another address may be another one
        params["base_url"] = self._address()
        return digest_of(type(self), params)

    def __sklearn_clone__(self) -> Self:
        # what clones of a search use is paid by one account
        copy = super().__sklearn_clone__()
        copy._usage = self._usage
        return copy

    def _check(self, prompts: Iterable[Prompt]) -> None:
        self._validate_params()
        if self.system_prompt is not None and self.endpoint != "chat":
            raise ValueError("system_prompt needs endpoint='chat'; got endpoint='completions'.")
        if "@" in urlsplit(self.base_url or "").netloc:
            raise ValueError("base_url holds a user name or password; pass api_key instead.")
        # a prompt that no request can hold is found before any is paid for
        for prompt in prompts:
            self._request(prompt)

    def import_modules(self) -> None:
        """Make the client, which imports, as in :class:`Importing`."""
        self._service()

    def _prepare(self) -> None:
        # not in threads: a process that is forked meanwhile would inherit a lock of OpenSSL
        self._service()

    def _service(self) -> Service:
        # the environment is read each time: it may be set after a first try
        key = os.environ.get("OPENAI_API_KEY") if self.api_key is None else self.api_key.reveal()
        return service_of(os.getpid(), self._address(), key, self.timeout, self.max_retries)

    def _make(
        self,
        prompt: Prompt,
        draws: range,
        seed: int,
        stopping: threading.Event,
        is_unwanted: IsUnwanted,
    ) -> Draws:
        service = self._service()
        missing = list(draws)
        try:
            while missing:
                request = self._request(prompt, missing, seed)
                understand = partial(self._understood, n_choices=len(missing))
                choices = service.answer(self.endpoint, request, understand, stopping)

                # a service may give fewer choices than it was asked for: the others are asked for
                # again
                new_draws = {missing[k]: generation for k, generation in choices.items()}
                missing = [j for j in missing if j not in new_draws]
                if self.logprobs and any(
                    new_draw.logprob is None for new_draw in new_draws.values()
                ):
                    raise ValueError(_NO_LOGPROBS.format(model=self.model, endpoint=self.endpoint))
                self._usage.add(draws=len(new_draws))
                yield from new_draws.items()
        except ServiceError as error:
            prompt_in_short = prompt_line(
                prompt[:_PROMPT_WIDTH] if isinstance(prompt, str) else prompt
            )
            raise ServiceError(
                f"{error} (prompt: {prompt_in_short})", error.status, prompt
            ) from None

    def _understood(self, body: Any, n_choices: int) -> dict[int, Generation]:
        """Draws in an answer; its tokens are counted first."""
        usage = body.get("usage")
        tokens = {name: token_count(usage, name) or 0 for name in _COUNTED}
        self._usage.add(requests=1, **tokens)
        return parse_choices(body, n_choices, logprobs=self.logprobs)

    def _request(self, prompt: object, draws: Sequence[int] = (), seed: int = 0) -> Request:
        """What asks for some draws of a prompt."""
        content = filled(self.prompt_template, prompt)
        options = {
            "model": self.model,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stop": list(self.stop) if isinstance(self.stop, tuple) else self.stop,
            # several choices of a request have one seed, that of the first
            "seed": draw_seed(prompt, seed, draws[0]) if draws else None,
            "n": len(draws) if len(draws) > 1 else None,
        }
        request: Request = {name: value for name, value in options.items() if value is not None}

        if self.endpoint == "completions":
            if not isinstance(content, str):
                raise TypeError(
                    "prompts must be texts where endpoint='completions', got a "
                    f"{type(content).__name__}: {content!r:.60} instead."
                )
            request["prompt"] = str(content)
            if self.logprobs:
                request["logprobs"] = 1
        else:
            messages = _messages(content)
            if self.system_prompt is not None:
                messages = [{"role": "system", "content": self.system_prompt}, *messages]
            request["messages"] = messages
            if self.logprobs:
                # one alternative for each token: some servers give nothing where it is none
                request.update(logprobs=True, top_logprobs=1)

        request |= self.extra_body or {}
        check_text(request, "a prompt")
        json.dumps(request)  # what no request can hold is found before any is paid for
        return request

    def _address(self) -> str | None:
        return self.base_url or os.environ.get("OPENAI_BASE_URL")

    @cached_property
    def _usage(self) -> Usage:
        return Usage()


def _messages(prompt: Prompt) -> list[Request]:
    """A prompt as messages of a chat."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": str(prompt)}]
    if is_chat(prompt):
        return [dict(message) for message in prompt]
    raise TypeError(
        "prompts must be texts or lists of messages (dict with 'role' and 'content') where "
        f"endpoint='chat', got a {type(prompt).__name__}: {prompt!r:.60} instead."
    )
