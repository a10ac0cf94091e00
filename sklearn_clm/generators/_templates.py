"""Templates that make what a model is given of a prompt."""

from collections.abc import Callable
from typing import Any

__all__ = ["Template", "filled"]

Template = str | Callable[[Any], Any] | None


def filled(template: Template, prompt: Any, name: str = "a prompt") -> Any:
    """What the template makes of a prompt, which `name` stands for in the message of an error."""
    if template is None:
        return prompt
    if callable(template):
        return template(prompt)
    if not isinstance(prompt, str):
        raise TypeError(
            f"{name} is a {type(prompt).__name__}, which the text prompt_template cannot take; "
            "wanted a str, or a callable prompt_template."
        )
    return template.replace("{prompt}", prompt)
