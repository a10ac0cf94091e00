"""Questions to a language model whose answer must be understood."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sklearn_clm.generators import Generation
from sklearn_clm.generators._base import sample

__all__ = ["ask_until_understood", "filled", "yes_or_no"]

_YES_NO = re.compile(r"[\W_]*(yes|no)\b(?!\s*(?:/|\\|or\b|and\b)\s*(?:yes|no)\b)", re.IGNORECASE)


def filled(template: str, fields: Mapping[str, Any]) -> str:
    """A template with its ``{names}`` replaced; braces in what replaces them stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda m: str(fields[m[1]]) if m[1] in fields else m[0], template)


def yes_or_no(generation: Generation) -> bool | None:
    """Whether an answer begins with yes (True) or no (False); None where with neither."""
    found = _YES_NO.match(str(generation.response))
    return None if found is None else found[1].lower() == "yes"


def ask_until_understood(
    generator: Any,
    prompts: Sequence[Any],
    understand: Callable[[Generation], Any],
    *,
    max_attempts: int,
    seed: int,
    wanted: str,
) -> list[Any]:
    """What `understand` makes of an answer to each prompt; asked again where that is None.

    The first draw is the first answer, the second one the next, and so on: answers are as keyed as
    the generator's draws.
    """
    understood: list[Any] = [None] * len(prompts)
    if max_attempts < 1:
        raise ValueError(f"max_attempts must be at least 1, got {max_attempts}.")
    answers: dict[int, Generation] = {}
    unclear = list(range(len(prompts)))
    for attempt in range(max_attempts):
        rows = sample(generator, [prompts[i] for i in unclear], 1, start=attempt, seed=seed)
        for i, (answers[i],) in zip(unclear, rows):
            understood[i] = understand(answers[i])
        unclear = [i for i in unclear if understood[i] is None]
        if not unclear:
            return understood
    first = unclear[0]
    raise ValueError(
        f"{type(generator).__name__} gave no answer that begins with {wanted}, in {max_attempts} "
        f"attempts, to {len(unclear)} of {len(prompts)} questions; its last one to the first of "
        f"them ({prompts[first]!r:.200}) was {answers[first].response!r:.80}."
    )
