"""What requests to a service hold."""

import json

from sklearn_clm.generators._draws import check_text, is_chat

Request = dict[str, object]


def checked_request(request: Request, prompt: object) -> Request:
    """A request that JSON can hold."""
    check_text(request, "a prompt")
    try:
        json.dumps(request)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"a prompt must be made of what JSON can hold, got {type(prompt).__name__} "
            f"{prompt!r:.60}: {error}."
        ) from None
    return request


def messages_of(prompt: object) -> list[Request]:
    """A prompt as messages of a chat."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": str(prompt)}]
    if is_chat(prompt):
        return [dict(message) for message in prompt]
    raise TypeError(
        "endpoint='chat' takes prompts that are text or lists of messages (dict with 'role' and "
        f"'content'), got a {type(prompt).__name__}: {prompt!r:.60}."
    )
