"""Splitters of responses, and the components found (section 4.4).

Sentences are found by `sentencex`, Wikimedia's rule-based segmenter, whose segments concatenate to
the text exactly.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import index
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.generators._draws import Generation, prompt_bytes
from sklearn_clm.scoring._callables import chosen, name_of, numbered
from sklearn_clm.scoring._protocols import Draws, Prompt, Prompts, Response, Scores, Span, Spans

Offsets = list[Span]
# gives offsets, or the parts themselves
Splitter = Callable[[str], Iterable[Any]]

_SURROGATES = re.compile("[\ud800-\udfff]")
_OTHER_SPACE = re.compile(r"[^\S\n ]")
# of Markdown: code between fences, of which the last may be missing, a heading, lines of a table
_BLOCK = re.compile(
    r"^( *(?:```|~~~).*?(?:^ *(?:```|~~~) *$|\Z)|#{1,6} [^\n]*| *\|[^\n]*(?:\n *\|[^\n]*)*)",
    re.MULTILINE | re.DOTALL,
)
_CLOSED_EMPHASIS = re.compile(r"([.!?])([*_]{1,3})(?=\s|\Z)")
# abbreviations that end no sentence, and that the segmenter does not know
_ABBREVIATED = re.compile(r"\b(?:approx|avg|eqs?|excl|figs|incl|refs|resp|sect|thm)\. *\Z", re.I)


class SentenceSplitter(BaseEstimator):
    """Splits a text into sentences.

    Parameters
    ----------
    language : str, default="en"
        ISO 639-1 code of the language of the text; it decides which abbreviations are known, and
        whether a number with a period is an ordinal: "de" keeps "am 3. Mai" together, "en" ends a
        sentence there. A code that is not known, such as "en-US", splits as "en" does.

    Notes
    -----
    A number that begins an item of a list ("1. Heart is normal. 2. Lungs are clear.") belongs to
    the sentence after it. In Markdown an item of a list on a line of its own, a heading, a table
    whose lines begin with "|", and code between fences are each a component, however many
    sentences they hold. HTML is not known: take a `splitter` of your own.
    """

    def __init__(self, language: str = "en") -> None:
        self.language = language

    def __call__(self, text: str) -> Offsets:
        """Offsets of the sentences, without white space around them."""
        from sentencex import segment

        # One character for one, so that offsets hold. The segmenter takes no surrogates, and is
        # known to fail on line separators of more than one byte.
        plain = _OTHER_SPACE.sub(" ", _SURROGATES.sub("?", text))
        plain = _CLOSED_EMPHASIS.sub(r"\2\1", plain)  # "**Yes.** It is" ends behind the stars
        offsets: Offsets = []
        start = stop = 0
        item = 1
        for i, part in enumerate(_BLOCK.split(plain)):
            for sentence in [part] if i % 2 else segment(self.language, part):
                stop += len(sentence)
                if sentence.strip() in (f"{item}.", f"{item})", f"({item})"):
                    item += 1
                elif not _ABBREVIATED.search(sentence):
                    offsets.append((start, stop))
                    start = stop
            offsets.append((start, stop))  # no sentence goes on behind a block
            start = stop
        return _trimmed(text, offsets)


class CheckedSplitter:
    """A user's splitter whose result is checked."""

    def __init__(self, function: Splitter) -> None:
        self.function = function

    def __call__(self, text: str) -> Offsets:
        """Offsets of the components, without white space around them."""
        offsets: Offsets = []
        end = 0
        parts = self.function(text)
        if isinstance(parts, str) or not isinstance(parts, Iterable):
            raise self._error(parts, text, end)
        for part in parts:
            start, stop = _place(part, text, end)
            if not end <= start <= stop <= len(text):
                raise self._error(part, text, end)
            offsets.append((start, stop))
            end = stop
        return _trimmed(text, offsets)

    def _error(self, got: object, text: str, end: int) -> ValueError:
        return ValueError(
            f"splitter {name_of(self.function)} must return a list of parts of the text, or of "
            f"their (start, stop) offsets, in order and without overlap, got {got!r:.80} after "
            f"position {end} of {text!r:.80} instead."
        )


def get_splitter(splitter: str | Splitter) -> Callable[[str], Offsets]:
    """Splitter from its name or from a callable.

    Parameters
    ----------
    splitter : "sentence" or callable
        "sentence" is ``SentenceSplitter()``, which is for English. A callable, such as
        ``str.splitlines``, takes a text, and returns its components in order: as (start, stop)
        character offsets, or as the parts of the text themselves.

    Returns
    -------
    callable (text) -> list of (start, stop)
        Character offsets of the components, in order; without the white space around them, and
        without empty ones. A text without components gives an empty list.

    Examples
    --------
    >>> from sklearn_clm.scoring import get_splitter
    >>> get_splitter("sentence")("It is e.g. 3.5 cm. Yes!")
    [(0, 18), (19, 23)]
    >>> get_splitter(str.splitlines)("one\\n two")
    [(0, 3), (5, 8)]
    """
    names: dict[str, Splitter] = {"sentence": SentenceSplitter()}
    split = chosen("splitter", splitter, names, "a callable")
    if isinstance(split, (CheckedSplitter, SentenceSplitter)):
        return split
    return CheckedSplitter(split)


def component_spans(splitter: Splitter | str, response: Response) -> list[Span | None]:
    """Spans of a response's components; None for a whole one."""
    if not isinstance(response, str):
        return [None]
    return list(get_splitter(splitter)(response))


def component_of(response: Response, span: Span | None) -> Response:
    """The component at a span; None is the response itself."""
    return response if span is None else response[span[0] : span[1]]


def logprobs_inside(draw: Generation, span: Span) -> list[float]:
    """Log-probabilities of the tokens that produced part of a response."""
    return [
        logprob
        for logprob, (start, stop) in zip(draw.token_logprobs or (), draw.token_spans or ())
        if start < stop and start < span[1] and stop > span[0]
    ]


def component_key(component: Response) -> Hashable:
    """Key of a component, equal for equal ones."""
    if isinstance(component, str):
        return component.strip()
    return prompt_bytes(component)


def numbered_components(
    responses: Iterable[Response], spans: Iterable[Sequence[Span | None]]
) -> tuple[list[Response], list[np.ndarray]]:
    """Distinct components, and which of them each span holds."""
    rows = zip(responses, spans)
    components = ([component_of(response, span) for span in row] for response, row in rows)
    return numbered(components, component_key)


def scores_of_components(
    prompts: Prompts,
    generations: Draws,
    spans: Spans,
    score: Callable[[list[tuple[Prompt, Response]]], np.ndarray],
) -> Scores:
    """Scores of all occurrences, from distinct components of each prompt."""
    pairs: list[tuple[Prompt, Response]] = []
    ids = []
    for prompt, draws, rows in zip(prompts, generations, spans):
        components, numbers = numbered_components((draw.response for draw in draws), rows)
        ids.append([len(pairs) + own for own in numbers])
        pairs += [(prompt, component) for component in components]
    scores = score(pairs)
    return [[scores[numbers] for numbers in row] for row in ids]


def _place(part: Any, text: str, end: int) -> Span:
    """Offsets of a part behind `end`; negative without one."""
    if isinstance(part, str):
        start = text.find(part, end)
        return start, start + len(part)
    try:
        start, stop = map(index, part)
    except (TypeError, ValueError):
        return -1, -1
    return start, stop


def _trimmed(text: str, offsets: Iterable[tuple[int, int]]) -> Offsets:
    trimmed = []
    for start, stop in offsets:
        part = text[start:stop]
        start += len(part) - len(part.lstrip())
        stop = start + len(part.strip())
        if start < stop:
            trimmed.append((start, stop))
    return trimmed
