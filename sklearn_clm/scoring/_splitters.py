"""Splitters of responses, and the components found (section 4.4).

Sentences are found by `sentencex`, Wikimedia's rule-based segmenter, whose segments concatenate to
the text exactly.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from operator import index
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.calibration.checks import noting_arguments
from sklearn_clm.generators import DrawQueue, FunctionGenerator
from sklearn_clm.generators.base import answer_queue
from sklearn_clm.generators.draws import Generation, prompt_bytes
from sklearn_clm.scoring._callables import chosen, distinct_items, name_of
from sklearn_clm.scoring.protocols import (
    Claim,
    Draws,
    PairSplitter,
    Part,
    Prompt,
    Prompts,
    Response,
    Scores,
    Span,
    Spans,
    hand_on,
)

# of a response, or of a prompt and a response; gives offsets, parts of the text, or claims
Splitter = Callable[..., Any]

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

    def __call__(self, text: str) -> list[Part]:
        """Offsets of the sentences, without white space around them."""
        from sentencex import segment

        # One character for one, so that offsets hold. The segmenter takes no surrogates, and is
        # known to fail on line separators of more than one byte.
        plain = _OTHER_SPACE.sub(" ", _SURROGATES.sub("?", text))
        plain = _CLOSED_EMPHASIS.sub(r"\2\1", plain)  # "**Yes.** It is" ends behind the stars
        offsets: list[Span] = []
        start = stop = 0
        item = 1
        for i, part in enumerate(_BLOCK.split(plain)):
            # at odd places stand the blocks, which are whole, and else what is between them
            for sentence in [part] if i % 2 else segment(self.language, part):
                stop += len(sentence)
                # the number of an item, or an abbreviation, goes on with what follows
                if sentence.strip() in (f"{item}.", f"{item})", f"({item})"):
                    item += 1
                elif not _ABBREVIATED.search(sentence):
                    offsets.append((start, stop))
                    start = stop
            offsets.append((start, stop))  # no sentence goes on behind a block
            start = stop
        spans = [_trimmed(text, *span) for span in offsets]
        return [(start, stop) for start, stop in spans if start < stop]


class CheckedSplitter:
    """A user's splitter whose result is checked."""

    def __init__(self, function: Splitter, max_concurrency: int = 8) -> None:
        self.function = function
        self.max_concurrency = max_concurrency
        self.takes_prompt = _takes_prompt(function)
        self.reads_text_alone = not (self.takes_prompt or _is_async(function))

    def __call__(self, text: str) -> list[Part]:
        """The components of a text without a prompt."""
        if self.reads_text_alone:
            with self._noting(text):
                parts = self.function(text)
            return self.checked(parts, text)
        return self.split_pairs([None], [text])[0]

    def split_pairs(self, prompts: Prompts, responses: Sequence[str]) -> list[list[Part]]:
        """The components of each response, for each distinct pair once."""
        pairs = list(zip(prompts, responses))
        distinct, (numbers,) = distinct_items([pairs], prompt_bytes)
        parts_of_pair: dict[int, list[Part]] = {}
        self.split_each(distinct, parts_of_pair.__setitem__)
        return [parts_of_pair[k] for k in numbers.tolist()]

    def split_each(
        self, pairs: Sequence[tuple[Prompt, str]], take: Callable[[int, list[Part]], None]
    ) -> None:
        """Hand on the components of each pair as they arrive.

        A function is called as :class:`FunctionGenerator` calls one: several times at once, and
        again where it raised an error.
        """
        missing = set(range(len(pairs)))

        # checked as they arrive: a splitter that fails is stopped before all is paid for
        def take_checked(k: int, parts: Any) -> None:
            take(k, self.checked(parts, pairs[k][1]))
            missing.discard(k)

        if isinstance(self.function, PairSplitter):
            prompts = [prompt for prompt, _ in pairs]
            responses = [response for _, response in pairs]
            hand_on(self.function.split_pairs(prompts, responses), take_checked)
        else:
            generator = FunctionGenerator(self._ask, max_concurrency=self.max_concurrency)
            queue = DrawQueue(pairs, 1, on_draw=lambda k, _, draw: take_checked(k, *draw.response))
            answer_queue(generator, queue)
        if missing:
            raise self._error(None, pairs[min(missing)][1])

    def _ask(self, pair: tuple[Prompt, str]) -> Any:
        """The components of one pair, as a draw, perhaps awaitable."""
        given = pair if self.takes_prompt else pair[1:]
        with self._noting(*given):
            parts = self.function(*given)
        return self._awaited(parts, given) if inspect.isawaitable(parts) else _in_one(parts)

    async def _awaited(self, parts: Awaitable[Any], given: Sequence[object]) -> Generation:
        with self._noting(*given):
            return _in_one(await parts)

    def _noting(self, *given: object) -> AbstractContextManager[None]:
        """Add to an error what the function was given."""
        return noting_arguments(f"splitter {name_of(self.function)}", *given)

    def checked(self, parts: Any, text: str) -> list[Part]:
        """Components without white space around them, and blank ones."""
        if isinstance(parts, str) or not isinstance(parts, Iterable):
            raise self._error(parts, text)
        checked_parts: list[Part] = []
        blank: list[int] = []  # positions among all parts
        has_claims = False
        n = len(text)
        end = 0
        for part in parts:
            is_text = isinstance(part, str)
            if is_text and (start := text.find(part, end)) >= 0:
                stop = start + len(part)
            elif is_text or isinstance(part, Claim):
                claim = _claim(Claim(part) if is_text else part, text)
                if claim is None:
                    raise self._error(part, text, end)
                has_claims = True
                if claim.text:
                    checked_parts.append(claim)
                else:
                    blank.append(len(checked_parts) + len(blank))
                continue
            else:
                try:
                    start, stop = map(index, part)
                except (TypeError, ValueError):
                    raise self._error(part, text, end) from None
            if not end <= start <= stop <= n:
                raise self._error(part, text, end)
            end = stop
            # white space around a part is no part of it
            inside = text[start:stop].strip()
            if len(inside) < stop - start:
                start = text.index(inside, start)
            if inside:
                checked_parts.append((start, start + len(inside)))
            else:
                blank.append(len(checked_parts) + len(blank))
        return self._with_claims(checked_parts, blank, text) if has_claims else checked_parts

    def _with_claims(self, parts: list[Part], blank: list[int], text: str) -> list[Part]:
        """Parts whose claims have parents among these parts.

        A claim that stands in the text, and rests on nothing, is a span. `blank` are the positions
        of parts that were left out: parents that the user gave count these as well.
        """
        given = (i for i in range(len(parts) + len(blank)) if i not in blank)
        position_of = {i: k for k, i in enumerate(given)}
        for k, part in enumerate(parts):
            if not isinstance(part, Claim):
                continue
            if not position_of.keys() >= set(part.parents):
                raise self._error(part, text)
            parents = tuple(position_of[i] for i in part.parents)
            span = None if part.span is None else _trimmed(text, *part.span)
            stands = span is not None and part.text == text[slice(*span)]
            parts[k] = span if stands and not parents else replace(part, parents=parents)
        if circle := circle_of(parts):
            raise ValueError(
                f"splitter {name_of(self.function)} must return claims that rest on others "
                f"without a circle, got {circle!r:.160} of {text!r:.80} instead."
            )
        return parts

    def _error(self, got: object, text: str, end: int = 0) -> ValueError:
        return ValueError(
            f"splitter {name_of(self.function)} must return a list of parts of the text, of their "
            "(start, stop) offsets in order and without overlap, or of Claims whose spans are in "
            f"the text and whose parents are positions in the list, got {got!r:.80} after position "
            f"{end} of {text!r:.80} instead."
        )


def get_splitter(splitter: str | Splitter) -> Callable[[str], list[Part]]:
    """Splitter from its name or from a callable.

    Parameters
    ----------
    splitter : "sentence" or callable
        "sentence" is ``SentenceSplitter()``, which is for English. A callable, plain or ``async``,
        takes a response, or a prompt and a response, and returns the components of the response:
        (start, stop) character offsets in order, parts of it, such as ``str.splitlines`` gives, or
        whatever it says, each a :class:`Claim` or a text.

    Returns
    -------
    callable (text) -> list
        Offsets of the components that are parts of the text, and of others a :class:`Claim`;
        without the white space around them, and without empty ones. A text without components
        gives an empty list.

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


def splitter_of_references(splitter: str | Splitter) -> Callable[[str], list[Part]]:
    """The splitter, or sentences where it reads a prompt too."""
    split = get_splitter(splitter)
    # a reference is a text alone: such a splitter has no prompt to read beside it
    if isinstance(split, CheckedSplitter) and not split.reads_text_alone:
        return SentenceSplitter()
    return split


def split_draws(splitter: Splitter | str, prompts: Prompts, draws: Draws) -> list[list[list[Part]]]:
    """The components of all draws of each prompt."""
    split = get_splitter(splitter)
    if not isinstance(split, CheckedSplitter) or split.reads_text_alone:
        return [[component_spans(split, draw.response) for draw in row] for row in draws]
    flat = [(prompt, draw.response) for prompt, row in zip(prompts, draws) for draw in row]
    texts = [pair for pair in flat if isinstance(pair[1], str)]
    parts = iter(split.split_pairs([prompt for prompt, _ in texts], [text for _, text in texts]))
    return [
        [next(parts) if isinstance(draw.response, str) else [None] for draw in row] for row in draws
    ]


def _in_one(parts: Any) -> Generation:
    """Components as one response, whatever was given for them."""
    is_listed = isinstance(parts, Iterable) and not isinstance(parts, str)
    return Generation([list(parts) if is_listed else parts])


def _is_async(function: Splitter) -> bool:
    """Whether a call of a function is to be awaited."""
    call = getattr(type(function), "__call__", None)  # noqa: B004 - of an object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _takes_prompt(function: Splitter) -> bool:
    """Whether a splitter takes a prompt and a response."""
    try:
        signature = inspect.signature(function)
        signature.bind("")
    except ValueError:  # of a function of C
        return False
    except TypeError:
        return True
    return False


def component_spans(splitter: Splitter | str, response: Response) -> list[Part]:
    """A response's components; None for a whole one."""
    if not isinstance(response, str):
        return [None]
    return get_splitter(splitter)(response)


def component_of(response: Response, part: Part) -> Response:
    """The component at a span; None is the response itself."""
    if isinstance(part, Claim):
        return part.text
    return response if part is None else response[part[0] : part[1]]


def span_of(part: Part) -> Span | None:
    """Where a component stands in its response, if it does."""
    return part.span if isinstance(part, Claim) else part


def parents_of(part: Part) -> tuple[int, ...]:
    """The components of its response on which one rests."""
    return part.parents if isinstance(part, Claim) else ()


def least_on_the_way_up(parts: Sequence[Part], scores: np.ndarray) -> np.ndarray:
    """Least score of each component and its grounds."""
    if not any(map(parents_of, parts)):
        return scores
    least = scores.copy()
    for k in _grounds_first(parts):
        # those on which it rests were done before
        of_grounds = [least[parent] for parent in parents_of(parts[k])]
        least[k] = min([least[k], *of_grounds])
    return least


def circle_of(parts: Sequence[Part]) -> list[Part]:
    """Components that rest on each other, if any do."""
    try:
        _grounds_first(parts)
    except CycleError as error:
        return [parts[k] for k in error.args[1]]
    return []


def _grounds_first(parts: Sequence[Part]) -> list[int]:
    """Positions of components, each behind those on which it rests."""
    parents = dict(enumerate(map(parents_of, parts)))
    return list(TopologicalSorter(parents).static_order())


def logprobs_inside(draw: Generation, span: Span) -> list[float]:
    """Log-probabilities of the tokens that produced part of a response."""
    return [
        logprob
        for logprob, (start, stop) in zip(draw.token_logprobs or (), draw.token_spans or ())
        # tokens that overlap the span; those of no character, such as the end, are of no part
        if start < stop and start < span[1] and stop > span[0]
    ]


def component_key(component: Response) -> Hashable:
    """Key of a component, equal for equal ones."""
    if isinstance(component, str):
        return component.strip()
    return prompt_bytes(component)


def numbered_components(
    responses: Iterable[Response], spans: Iterable[Sequence[Part]]
) -> tuple[list[Response], list[np.ndarray]]:
    """Distinct components, and which of them each span holds."""
    rows = zip(responses, spans)
    components = ([component_of(response, span) for span in row] for response, row in rows)
    return distinct_items(components, component_key)


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
        ids.append([len(pairs) + parent for parent in numbers])
        pairs += [(prompt, component) for component in components]
    scores = score(pairs)
    return [[scores[numbers] for numbers in row] for row in ids]


def _claim(claim: Claim, text: str) -> Claim | None:
    """A checked claim and where it stands; None if malformed."""
    try:
        parents = tuple(map(index, claim.parents))
        statement = claim.text.strip()
        start, stop = map(index, claim.span or (0, 0))
    except (AttributeError, TypeError, ValueError):
        return None
    if not isinstance(statement, str) or not 0 <= start <= stop <= len(text):
        return None
    if claim.span is None:
        start = text.find(statement)
        stop = start + len(statement)
    return Claim(statement, None if start < 0 else (start, stop), parents)


def _trimmed(text: str, start: int, stop: int) -> Span:
    """Offsets without the white space at both ends."""
    inside = text[start:stop].lstrip()
    start = stop - len(inside)
    return start, start + len(inside.rstrip())
