"""Claims as they are shown, and texts written of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn_clm._results import _cards, _views
from sklearn_clm.generators import FunctionGenerator
from sklearn_clm.generators.draws import Prompt, Response
from sklearn_clm.generators.prompts import prompt_text, texts_of_chat
from sklearn_clm.scoring import Citation, Occurrence

_REWRITE = """\
Answer a question in a short text that says all of the statements below, and nothing else.

Question: {prompt}

Statements:
{claims}

Text:"""
_NOT_PROMISED = (
    "The promise is about the claims of which this text was written, not about the text: a model "
    "may have added or changed something."
)


@dataclass(frozen=True)
class ShownClaim:
    """A component of the responses, and whether it is selected.

    Parameters
    ----------
    text : str or object
        What is claimed.
    score : float
        Its score F^c.
    kept : bool
        Whether it is selected.
    occurrences : tuple of Occurrence
        Which draws claim it, and where.
    citations : tuple of Citation
        Passages of the prompt that entail it, if the score says so.
    """

    text: Response
    score: float
    kept: bool
    occurrences: tuple[Occurrence, ...]
    citations: tuple[Citation, ...] = ()

    @property
    def span(self) -> tuple[int, int] | None:
        """Characters of the first response where it stands, if any."""
        return next((place.span for place in self.occurrences if place.span is not None), None)

    @property
    def draws(self) -> tuple[int, ...]:
        """Index of the draw of each occurrence."""
        return tuple(place.draw for place in self.occurrences)

    def to_dict(self) -> dict[str, Any]:
        """The claim as values, for JSON too."""
        # `span` and `draws` say for readers what `occurrences` say for programs
        names = ("text", "score", "kept", "span", "draws")
        content = {name: getattr(self, name) for name in names}
        return {**content, "citations": [one._asdict() for one in self.citations]}


@dataclass(frozen=True)
class Rewritten:
    """A text that a model wrote of selected claims.

    Parameters
    ----------
    text : str
        The text; empty where nothing is selected.
    claims : tuple
        What it was written of.
    guarantee : str
        What is promised of these, in words.
    """

    text: str
    claims: tuple[Response, ...]
    guarantee: str

    @classmethod
    def of(
        cls,
        ask: Callable[..., Any],
        prompt: Prompt,
        claims: Sequence[Response],
        guarantee: str,
    ) -> "Rewritten":
        """Have a text written; nobody is asked about no claims."""
        text = ""
        if claims:
            listed = "\n".join(f"- {claim}" for claim in claims)
            # whole, where a card has a few words of it
            whole = prompt if isinstance(prompt, str) else "\n\n".join(texts_of_chat(prompt))
            question = _REWRITE.format(prompt=whole or prompt_text(prompt), claims=listed)
            # a generator, since it knows what a function may be: plain, async, with a timeout
            ((draw,),) = FunctionGenerator(ask).sample([question], 1)
            text = str(draw.response).strip()
        return cls(text, tuple(claims), f"{_NOT_PROMISED} Of the claims: {guarantee}")

    def __str__(self) -> str:
        return f"{_views.plain(self.text) or '(nothing is selected)'}\n\n({self.guarantee})"

    def to_dict(self) -> dict[str, Any]:
        """The text, its claims and the promise, for JSON."""
        return {"text": self.text, "claims": list(self.claims), "guarantee": self.guarantee}

    def _repr_html_(self) -> str:
        text = self.text or "(nothing is selected)"
        items = "".join(f"<li>{_cards.escaped(claim)}</li>" for claim in self.claims)
        return _cards.element(
            f'<div class="clm-prompt">{_cards.escaped(text)}</div><ol>{items}</ol>',
            _cards.paragraph(self.guarantee),
        )
