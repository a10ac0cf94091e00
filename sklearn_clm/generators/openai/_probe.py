"""Whether a service gives log-probabilities, found out for one token."""

from typing import Any

from sklearn_clm.generators.openai._choices import MissingLogprobsError, parse_choices
from sklearn_clm.generators.openai._service import Service, ServiceError

__all__ = ["probe_logprobs"]


_ATTEMPTS = 3
_REFUSALS = (400, 404, 422, 501)


def probe_logprobs(service: Service, endpoint: str, request: dict[str, Any]) -> bool:
    """Whether responses to `request`, cut to one token, come with log-probabilities."""
    request = request | {"max_tokens": 1}
    seen_without = False
    for attempt in range(_ATTEMPTS):
        try:
            given = service.ask(endpoint, request | {"seed": attempt}, _shows_logprobs)
        except ServiceError as error:
            if error.status not in _REFUSALS:
                raise
            return _refused(service, endpoint, request, error)
        if given:
            return True
        seen_without |= given is False
    return not seen_without


def _refused(service: Service, endpoint: str, request: dict[str, Any], error: ServiceError) -> bool:
    """False where the request is fine without log-probabilities, else the error."""
    plain = {name: value for name, value in request.items() if "logprobs" not in name}
    try:
        service.ask(endpoint, plain, lambda body: parse_choices(body, 1, logprobs=False))
    except ServiceError:
        raise error from None
    return False


def _shows_logprobs(body: Any) -> bool | None:
    """Whether a response has log-probabilities; None where it has no tokens either."""
    try:
        (generation,) = parse_choices(body, 1, logprobs=True)
    except MissingLogprobsError:
        return False
    return True if generation is not None and generation.n_tokens else None
