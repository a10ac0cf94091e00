"""Draws from any service that speaks OpenAI's protocol."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from sklearn_clm.generators._base import BaseGenerator
from sklearn_clm.generators._draws import Generation
from sklearn_clm.generators._fingerprint import digest_of
from sklearn_clm.generators._records import key_digest
from sklearn_clm.generators._templates import Template
from sklearn_clm.generators.openai._choices import parse_choices
from sklearn_clm.generators.openai._probe import probe_logprobs
from sklearn_clm.generators.openai._requests import draw_seed, request_arguments, run_concurrently
from sklearn_clm.generators.openai._service import Account, Secret, Service

__all__ = ["OpenAIGenerator"]


_SHAPES_RESPONSES = (
    "model",
    "endpoint",
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "logprobs",
    "prompt_template",
    "system_prompt",
    "extra_body",
)
_NO_LOGPROBS = (
    "the service gives no log-probabilities (model {model!r}, endpoint={endpoint!r}), which "
    "logprobs=True and quality='likelihood' need. Use OpenAIGenerator(logprobs=False) with "
    "quality='self_consistency', 'p_true' or 'verbalized' or any callable (prompt, generation) -> "
    "float; or another endpoint ('chat', 'completions') or server that gives them."
)


class OpenAIGenerator(BaseGenerator):
    """Draw from a language model behind an OpenAI-compatible service.

    OpenAI's own, or a server of vLLM, SGLang, llama.cpp, Ollama, TGI and others, given its
    `base_url`. Requests run concurrently, up to a limit. Those that fail in passing (status 408,
    409, 429 or 5xx, timeouts, dropped connections, bodies that are broken or incomplete) are
    repeated with growing random pauses, or after the time that the service asked for.

    Parameters
    ----------
    model : str
        The model's name at the service.
    base_url : str, default=None
        Address of the service, such as ``"http://localhost:8000/v1"``. None uses the environment
        variable ``OPENAI_BASE_URL``, or OpenAI.
    api_key : str, default=None
        The key. None uses the environment variable ``OPENAI_API_KEY``. It is in no repr, pickle,
        log or error: an unpickled generator has the key of its process' environment.
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
        Whether draws must come with log-probabilities. Where they must, a service that gives none
        is refused before the first draw.
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
        Most requests at a time.
    max_retries : int, default=6
        How often a request is repeated.
    timeout : float, default=120.0
        Seconds that one request may take.
    max_draws : int, default=None
        Budget of draws, of this object and its clones in this process. A call that would exceed it
        is refused before it costs anything.
    prices : mapping, default=None
        Price of a million tokens, under ``"prompt"`` and ``"completion"``; adds ``"cost"`` to
        `usage_`.
    extra_body : mapping, default=None
        Further fields of each request, such as ``{"top_k": 40}``.

    Attributes
    ----------
    usage_ : dict
        ``requests``, ``draws``, ``prompt_tokens`` and ``completion_tokens`` so far, as the service
        reported them, and with `prices` the ``cost``; of this object and its clones.

    Notes
    -----
    A service need not honour seeds, and its batches perturb logits by rounding. Wrap this generator
    in :class:`CachedGenerator`, so that a draw once made is the draw from then on.

    Log-probabilities are taken as the service gives them. Most give those of the base model, before
    temperature and `top_p`; few count the end-of-sequence token.

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

    chunk_size = 4096

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
        "max_retries": [Interval(Integral, 0, None, closed="left")],
        "timeout": [Interval(Real, 0, None, closed="neither")],
        "max_draws": [Interval(Integral, 0, None, closed="left"), None],
        "prices": [Mapping, None],
        "extra_body": [Mapping, None],
    }

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: Any = None,
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
        max_retries: int = 6,
        timeout: float = 120.0,
        max_draws: int | None = None,
        prices: Mapping[str, float] | None = None,
        extra_body: Mapping[str, Any] | None = None,
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
        self.max_retries = max_retries
        self.timeout = timeout
        self.max_draws = max_draws
        self.prices = prices
        self.extra_body = extra_body

    @property
    def api_key(self) -> Secret | None:
        """The key, wrapped so that nothing shows it."""
        return self.__dict__.get("_api_key")

    @api_key.setter
    def api_key(self, value: Any) -> None:
        # wrapped already here, not in a method: scikit-learn's reprs read the attribute
        self._api_key = Secret(value) if isinstance(value, str) else value

    @property
    def usage_(self) -> dict[str, Any]:
        """What was used so far."""
        return self._shared().usage.summary(self.prices)

    @property
    def gives_logprobs(self) -> bool:
        """Whether draws come with log-probabilities; may ask the service (see :meth:`probe`)."""
        return self.logprobs and self.probe()

    def probe(self) -> bool:
        """Ask the service for one token, to see whether it gives log-probabilities.

        Returns
        -------
        bool
            The answer is remembered; only the first call costs a request (three at most).

        Raises
        ------
        ServiceError
            If the service does not answer, or refuses the request for another reason.
        """
        self._validate()
        shared, key = self._shared(), self.fingerprint()
        with shared.probing:
            if key not in shared.gives_logprobs:
                shared.gives_logprobs[key] = probe_logprobs(
                    self._service(), self.endpoint, self._request("Hello", plain=True)
                )
            return shared.gives_logprobs[key]

    def stream(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> Iterator[tuple[int, int, Generation]]:
        """Yield draws as they arrive. A prompt that occurs several times is asked about once.

        Parameters
        ----------
        prompts, n_samples, start, seed
            As in :meth:`BaseGenerator.stream`.

        Yields
        ------
        (int, int, Generation)
            Position of the prompt, index of the draw, the draw.

        Raises
        ------
        ServiceError
            If the service refuses a request, or keeps failing. Draws that are under way are
            yielded first.
        BudgetExceededError
            Before the first request, if `max_draws` would be exceeded.
        ValueError
            Before the first draw, if ``logprobs=True`` and the service gives none.
        """
        self._validate()
        prompts = list(prompts)  # a pandas Series looks positions up among its labels
        positions: dict[bytes, list[int]] = {}
        for i, prompt in enumerate(prompts):
            positions.setdefault(key_digest(prompt), []).append(i)
            self._request(prompt)  # a bad prompt is found before any is paid for
        n_draws = len(positions) * n_samples
        if n_draws == 0:
            return
        shared = self._shared()
        with shared.usage.reserve(n_draws, self.max_draws) as count_draw:
            if self.logprobs and not self.probe():
                raise ValueError(_NO_LOGPROBS.format(model=self.model, endpoint=self.endpoint))
            stop = start + n_samples
            jobs = (
                (where, range(first, min(first + self.n_per_request, stop)))
                for where in positions.values()
                for first in range(start, stop, self.n_per_request)
            )

            def work(
                job: tuple[list[int], range], stopping: threading.Event
            ) -> Iterator[tuple[list[int], int, Generation]]:
                where, draws = job
                for j, generation in self._draw(prompts[where[0]], draws, seed, stopping):
                    count_draw()
                    yield where, j, generation

            n_jobs = len(positions) * -(-n_samples // self.n_per_request)
            n_threads = min(self.max_concurrency, n_jobs)
            for where, j, generation in run_concurrently(jobs, work, n_threads):
                for i in where:
                    yield i, j, generation

    def fingerprint(self) -> str:
        """Hexadecimal digest of the service's address and what shapes a response."""
        params = {name: getattr(self, name) for name in _SHAPES_RESPONSES}
        params["base_url"] = self.base_url or os.environ.get("OPENAI_BASE_URL")
        return digest_of(type(self), params)

    def __sklearn_clone__(self) -> Self:
        params = self.get_params(deep=False)
        copy = type(self)(**{name: clone(value, safe=False) for name, value in params.items()})
        copy._shared_state = self._shared()
        return copy

    def __copy__(self) -> Self:
        # by default, copies are made as pickles are, and would lose the key
        return self.__sklearn_clone__()

    def __deepcopy__(self, memo: Any) -> Self:
        return self.__sklearn_clone__()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for name in ("_api_key", "_shared_state"):
            state.pop(name, None)
        return state

    def _draw(
        self, prompt: Any, draws: range, seed: int, stopping: threading.Event
    ) -> Iterator[tuple[int, Generation]]:
        """The given draws of one prompt, in as many requests as the service makes necessary."""
        missing = list(draws)
        while missing:
            request = self._request(prompt)
            request["seed"] = draw_seed(prompt, seed, missing[0])
            if len(missing) > 1:
                request["n"] = len(missing)
            choices = self._ask(request, len(missing), stopping)
            for j, generation in zip(missing, choices):
                if generation is not None:
                    yield j, generation
            missing = [j for j, generation in zip(missing, choices) if generation is None]

    def _ask(
        self, request: dict[str, Any], n_choices: int, stopping: threading.Event | None = None
    ) -> list[Generation | None]:
        logprobs = "logprobs" in request
        return self._service().ask(
            self.endpoint,
            request,
            lambda body: parse_choices(body, n_choices, logprobs=logprobs),
            stopping,
        )

    def _request(self, prompt: Any, *, plain: bool = False) -> dict[str, Any]:
        options = {
            "model": self.model,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stop": list(self.stop) if isinstance(self.stop, tuple) else self.stop,
            "extra_body": self.extra_body,
        }
        return request_arguments(
            prompt,
            endpoint=self.endpoint,
            prompt_template=None if plain else self.prompt_template,
            system_prompt=self.system_prompt,
            logprobs=self.logprobs,
            options=options,
        )

    def _service(self) -> Service:
        key = self.api_key.reveal() if self.api_key is not None else None
        return self._shared().service(self.base_url, key, self.timeout, self.max_retries)

    def _shared(self) -> Account:
        shared: Account | None = self.__dict__.get("_shared_state")
        if shared is None:
            shared = self._shared_state = Account()
        return shared

    def _validate(self) -> None:
        validate_parameter_constraints(
            self._parameter_constraints, self.get_params(deep=False), type(self).__name__
        )
        if isinstance(self.prompt_template, str) and "{prompt}" not in self.prompt_template:
            raise ValueError(
                "prompt_template must hold '{prompt}', where the prompt goes; got "
                f"{self.prompt_template!r:.80}."
            )
        if self.system_prompt is not None and self.endpoint != "chat":
            raise ValueError("system_prompt needs endpoint='chat'; got endpoint='completions'.")
        if self.prices is not None and set(self.prices) != {"prompt", "completion"}:
            raise ValueError(
                f"prices must give a price to 'prompt' and 'completion'; got {sorted(self.prices)}."
            )
        if self.base_url is not None and "@" in urlsplit(self.base_url).netloc:
            raise ValueError("base_url holds a user name or password; pass api_key instead.")
