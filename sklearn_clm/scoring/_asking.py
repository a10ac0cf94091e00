"""Questions to a language model whose answer must be understood."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sklearn.base import BaseEstimator

from sklearn_clm.generators import Generation
from sklearn_clm.generators._base import sample
from sklearn_clm.generators._identity import digest_of

__all__ = ["Asking", "yes_or_no"]

_YES_NO = re.compile(r"[\W_]*(yes|no)\b(?!\s*(?:/|\\|or\b|and\b)\s*(?:yes|no)\b)", re.IGNORECASE)


def _filled(template: str, fields: Mapping[str, Any]) -> str:
    """A template with its ``{names}`` replaced; braces in what replaces them stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda m: str(fields[m[1]]) if m[1] in fields else m[0], template)


def yes_or_no(generation: Generation) -> bool | None:
    """Whether an answer begins with yes (True) or no (False); None where with neither."""
    found = _YES_NO.match(str(generation.response))
    return None if found is None else found[1].lower() == "yes"


class Asking(BaseEstimator):
    """What asks a generator about responses, by a template of its own or the one it is given."""

    _template: str
    generator: Any
    template: str | Callable[[Any, Any], Any] | None
    max_attempts: int
    seed: int

    def fingerprint(self) -> str:
        """Hexadecimal digest of what an answer depends on."""
        return digest_of(type(self), self.get_params(deep=False))

    def _question(self, subject: Any, fields: Mapping[str, Any], response: Any) -> Any:
        """What to ask about a response to `subject`, which the template knows as `fields`."""
        if callable(self.template):
            return self.template(subject, response)
        template = self._template if self.template is None else self.template
        if "{response}" not in template:
            raise ValueError(f"template must hold '{{response}}', got {template!r:.80}.")
        return _filled(template, {**fields, "response": response})

    def _ask(
        self, questions: Sequence[Any], understand: Callable[[Generation], Any], wanted: str
    ) -> list[Any]:
        """What `understand` makes of an answer to each question; asked again where that is None.

        The first draw is the first answer, the second one the next, and so on: answers are as keyed
        as the generator's draws.
        """
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, got {self.max_attempts}.")
        understood: list[Any] = [None] * len(questions)
        answers: dict[int, Generation] = {}
        unclear = list(range(len(questions)))
        for attempt in range(self.max_attempts):
            asked = [questions[i] for i in unclear]
            rows = sample(self.generator, asked, 1, start=attempt, seed=self.seed)
            for i, (answers[i],) in zip(unclear, rows):
                understood[i] = understand(answers[i])
            unclear = [i for i in unclear if understood[i] is None]
            if not unclear:
                return understood
        first = unclear[0]
        raise ValueError(
            f"{type(self.generator).__name__} gave no answer that begins with {wanted}, in "
            f"{self.max_attempts} attempts, to {len(unclear)} of {len(questions)} questions; its "
            f"last one to the first of them ({questions[first]!r:.200}) was "
            f"{answers[first].response!r:.80}."
        )
