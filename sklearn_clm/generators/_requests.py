"""What is sent to an OpenAI-compatible service for a prompt."""

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn_clm.generators._keys import draw_stream
from sklearn_clm.generators._templates import Template, filled

__all__ = ["draw_seed", "request_arguments"]


def draw_seed(prompt: Any, seed: int, draw: int) -> int:
    """Seed of one draw, in the 31 bits that every server takes."""
    return int(draw_stream(prompt, seed, draw, salt=b"service").integers(2**31))


def request_arguments(
    prompt: Any,
    *,
    endpoint: str,
    prompt_template: Template,
    system_prompt: str | None,
    logprobs: bool,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Arguments of the client's ``create`` for one prompt; options that are None are left out."""
    prompt = filled(prompt_template, prompt)
    request = {name: value for name, value in options.items() if value is not None}
    if endpoint == "completions":
        if not isinstance(prompt, str):
            raise TypeError(
                "endpoint='completions' takes prompts that are text, got a "
                f"{type(prompt).__name__}; chat messages need endpoint='chat'."
            )
        request["prompt"] = str(prompt)
        if logprobs:
            request["logprobs"] = 1
        return request
    messages = _messages(prompt)
    if system_prompt is not None:
        messages = [{"role": "system", "content": system_prompt}, *messages]
    request["messages"] = messages
    if logprobs:
        # one alternative for each token: not wanted, but some servers give nothing where it is none
        request.update(logprobs=True, top_logprobs=1)
    return request


def _messages(prompt: Any) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": str(prompt)}]
    if (
        isinstance(prompt, Sequence)
        and len(prompt) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in prompt)
    ):
        return [dict(message) for message in prompt]
    raise TypeError(
        "endpoint='chat' takes prompts that are text or lists of messages (dict with 'role' and "
        f"'content'), got a {type(prompt).__name__}: {prompt!r:.60}."
    )
