"""A text that must not be seen."""

import re
from typing import Any

__all__ = ["Secret", "redacted"]


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

    def __deepcopy__(self, memo: Any) -> "Secret":
        return self

    def __reduce__(self) -> tuple[type["Secret"], tuple[None]]:
        return Secret, (None,)


def redacted(text: str, *secrets: str | None) -> str:
    """A text without the given secrets and without whatever follows ``Bearer``."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "<secret>")
    return re.sub(r"(?i)\b(bearer\s+)[^\s\"',}]+", r"\1<secret>", text)
