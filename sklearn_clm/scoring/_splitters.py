"""Splitters: where the components of a response begin and end (section 4.4 of the paper).

Sentences are found by `sentencex`, Wikimedia's rule-based segmenter. Of the segmenters weighed it
is the one that is maintained, has wheels for all common platforms, no dependencies and a light
import (1 ms). Like pySBD (no release since 2021, and 200 times as slow), it knows abbreviations,
decimals, initials and sentences without an end, and its segments concatenate to the text exactly.
syntok joins sentences after times and amounts ("at 5 p.m. He", "$3.50. It") and before lower-case
letters; BlingFire (no release since 2021) weighs 42 MB.
"""

import operator
import re
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import Any

from sklearn.base import BaseEstimator

from sklearn_clm.scoring._protocols import Span
from sklearn_clm.scoring._results import by_name, name_of, wrong_kind

Offsets = list[Span]
# gives offsets, or the parts themselves
Splitter = Callable[[str], Iterable[Any]]

_SURROGATES = re.compile("[\ud800-\udfff]")
_OTHER_SPACE = re.compile(r"[^\S\n ]")
_LONGEST_MARK = len("(99)")
_PERIODS = re.compile(r"[^.]+\.?")
# The day of a German date, and the month after it, which the segmenter knows only where it is
# written out and nothing but white space stands around it.
_DAY = re.compile(r"(?<![\w.,])(?:0?[1-9]|[12]\d|3[01])\.[*_]* *\n? *$")
_MONTH = re.compile(
    r"[*_]*(?:J[aä]n(?:uar|ner)?|Feb(?:ruar|er)?|März|Mär|Mrz|Apr(?:il)?|Mai|Juni?|Juli?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Okt(?:ober)?|Nov(?:ember)?|Dez(?:ember)?)\b"
)


class SentenceSplitter(BaseEstimator):
    """Splits a text into sentences.

    Parameters
    ----------
    language : str, default="en"
        ISO 639-1 code of the language of the text; it decides which abbreviations are known, and
        whether a number with a period is an ordinal: "de" keeps "am 3. Mai" together, "en" ends a
        sentence there.

    Notes
    -----
    A number that begins an item of a list ("1. Heart is normal. 2. Lungs are clear.") belongs to
    the sentence after it.

    Examples
    --------
    >>> from sklearn_clm.scoring import SentenceSplitter
    >>> text = "Dr. Roe saw a 3.5 cm mass. No effusion"
    >>> [text[start:stop] for start, stop in SentenceSplitter()(text)]
    ['Dr. Roe saw a 3.5 cm mass.', 'No effusion']
    """

    def __init__(self, language: str = "en") -> None:
        self.language = language

    def __call__(self, text: str) -> Offsets:
        """Offsets of the sentences of `text`, without the white space around them."""
        from sentencex import segment

        # One character for one, so that offsets hold. The segmenter takes no surrogates, and is
        # known to fail on line separators of more than one byte.
        plain = _OTHER_SPACE.sub(" ", _SURROGATES.sub("?", _as_text(text)))
        offsets: Offsets = []
        start = stop = 0
        item = 1
        for sentence in segment(self.language, plain):
            stop += len(sentence)
            mark = sentence.strip()
            if len(mark) <= _LONGEST_MARK and mark in (f"{item}.", f"{item})", f"({item})"):
                item += 1
                continue
            if (
                self.language == "de"
                and _MONTH.match(plain, start)
                and offsets
                and _DAY.search(plain, offsets[-1][0], start)
            ):
                start, _ = offsets.pop()
            offsets.append((start, stop))
            start = stop
        offsets.append((start, stop))
        return _trimmed(text, offsets)


def split_periods(text: str) -> Offsets:
    """Offsets of the parts of a text that end in a period, that of "3.5" or "Dr." too.

    As in the paper. Parts of periods alone are left out.
    """
    parts = (match.span() for match in _PERIODS.finditer(_as_text(text)))
    return [(start, stop) for start, stop in _trimmed(text, parts) if text[start:stop] != "."]


def split_lines(text: str) -> Offsets:
    """Offsets of the lines of a text that are not empty."""
    lengths = map(len, _as_text(text).splitlines(keepends=True))
    return _trimmed(text, pairwise(accumulate(lengths, initial=0)))


class CheckedSplitter:
    """A user's splitter, with its result checked and in the form of offsets."""

    def __init__(self, function: Splitter) -> None:
        self.function = function

    def __call__(self, text: str) -> Offsets:
        """Offsets of the components of `text`, without the white space around them."""
        parts = self.function(_as_text(text))
        if isinstance(parts, str) or not isinstance(parts, Iterable):
            raise self._wrong(TypeError, "a list of (start, stop) offsets or of str", parts)
        offsets: Offsets = []
        end = 0
        for part in parts:
            try:
                start = text.find(part, end) if isinstance(part, str) else operator.index(part[0])
                stop = start + len(part) if isinstance(part, str) else operator.index(part[1])
            except (TypeError, LookupError):
                raise self._wrong(TypeError, "(start, stop) offsets or str", part) from None
            if not end <= start <= stop <= len(text):
                wanted = f"components in order that do not overlap, in a text of {len(text)}"
                raise self._wrong(ValueError, wanted, f"{part!r:.80} after position {end}")
            offsets.append((start, stop))
            end = stop
        return _trimmed(text, offsets)

    def _wrong(self, kind: type[Exception], wanted: str, value: object) -> Exception:
        got = f"got {value!r:.120} instead"
        return kind(f"splitter {name_of(self.function)} must return {wanted}, {got}.")

    def __repr__(self) -> str:
        return f"get_splitter({name_of(self.function)})"


_SPLITTERS: dict[str, Callable[[str], Offsets]] = {
    "line": split_lines,
    "period": split_periods,
    "sentence": SentenceSplitter(),
}


def get_splitter(splitter: str | Splitter) -> Callable[[str], Offsets]:
    """Splitter from its name or from a callable.

    Parameters
    ----------
    splitter : {"line", "period", "sentence"} or callable
        "sentence" is ``SentenceSplitter()``, which is for English. A callable takes a text, and
        returns its components in order: as (start, stop) character offsets, or as the parts of
        the text themselves.

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
    >>> get_splitter(lambda text: text.split(";"))("one; two")
    [(0, 3), (5, 8)]
    """
    if isinstance(splitter, str):
        return by_name("splitter", splitter, _SPLITTERS, " or a callable")
    if isinstance(splitter, (CheckedSplitter, SentenceSplitter)):
        return splitter
    if splitter is split_lines or splitter is split_periods:
        return splitter
    if isinstance(splitter, type) or not callable(splitter):
        raise wrong_kind("splitter", "a name or a callable", splitter)
    return CheckedSplitter(splitter)


def _trimmed(text: str, offsets: Iterable[tuple[int, int]]) -> Offsets:
    trimmed = []
    for start, stop in offsets:
        part = text[start:stop]
        start += len(part) - len(part.lstrip())
        stop = start + len(part.strip())
        if start < stop:
            trimmed.append((start, stop))
    return trimmed


def _as_text(text: object) -> str:
    if not isinstance(text, str):
        raise wrong_kind("response to be split", "a text", text)
    return text
