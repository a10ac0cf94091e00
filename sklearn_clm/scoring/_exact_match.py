"""Equality of answers, up to case, articles and punctuation."""

import re
import string
import unicodedata
from functools import lru_cache

import numpy as np

from sklearn_clm.scoring.protocols import Reference, Response

# becomes white space: "well-known" and "well known" are one answer
_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation + "‘’´`"), " ")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_WORD = r"[^\W_]"
# punctuation that tells answers apart: the normal form loses it, equality does not
_MEANINGFUL = re.compile(
    rf"""([+<>=]                              # +1, C++, <=50K
    | (?<=[^\W_#])\# | (?<=\#)\#             # C#, but not #1
    | (?<!{_WORD})-(?=[$£€]?\.?\d)           # the sign of a number
    | (?<={_WORD})-(?!{_WORD})                # B-, but neither 1990-95 nor COVID-19
    | (?<=\d)(?:\.|,(?!\d{{3}}(?!\d)))(?=\d)  # 1.5 and 1,5, but not 3,000
    | (?<![\w.])\.(?=\d)                     # .5
    )""",
    re.VERBOSE,
)


@lru_cache(maxsize=4096)
def answer_key(text: str) -> tuple[bool, str]:
    """Equal for texts that match exactly, and only for those."""
    # one spelling of letters with marks, which may be one character or several
    text = unicodedata.normalize("NFC", text)
    if not _normalized(text):
        # all articles and punctuation: without this, "The The" would match "A" and "!"
        return False, text.strip().lower()
    # at odd places stands punctuation that tells answers apart: it is kept as it is
    parts = _MEANINGFUL.split(text)
    parts[::2] = map(_normalized, parts[::2])
    return True, " ".join(filter(None, parts))


def _normalized(text: str) -> str:
    """TriviaQA's normal form of a text."""
    words = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", words).split())


def exact_match(reference: Reference, response: Response) -> bool:
    """Whether a response equals a reference, as in TriviaQA's evaluation.

    Other than there, punctuation that changes the meaning of a word or a number counts.

    Parameters
    ----------
    reference : str, object, or list, tuple, set or array of str
        The wanted answer. A collection of texts is a set of aliases: any of them will do.
    response : str or object
        The answer given.

    Returns
    -------
    bool
        Two texts: whether they are equal up to case, the words "a", "an" and "the", white space,
        ASCII punctuation and single quotation marks, and agree in ``+``, ``<``, ``>`` and ``=``;
        ``#`` after a word; ``-`` before a number or at the end of a word; a point or a comma
        between digits (but not the comma of thousands), and a point before a first digit. Where
        nothing else is left of the reference (the band "The The"), whether they are equal up to
        case and outer white space. Anything else: whether the two are equal, arrays element by
        element; NaN equals nothing, and a text never equals a number.

    Examples
    --------
    >>> from sklearn_clm.scoring import exact_match
    >>> exact_match("Beatles", "The Beatles.")
    True
    >>> exact_match("C++", "c++."), exact_match("C++", "C#"), exact_match("-5", "5")
    (True, False, False)
    >>> exact_match(["USA", "United States"], "the united states")
    True
    >>> exact_match(3, 3.0), exact_match(float("nan"), float("nan"))
    (True, False)
    """
    if isinstance(reference, str) and isinstance(response, str):
        return answer_key(reference) == answer_key(response)
    is_collection = isinstance(reference, (list, tuple, set, frozenset)) or (
        isinstance(reference, np.ndarray) and reference.ndim > 0
    )
    if isinstance(response, str) and is_collection:
        return any(exact_match(alias, response) for alias in reference)
    return same_value(reference, response)


def same_value(first: Response, second: Response) -> bool:
    """Whether two responses of any type are equal."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return bool(np.array_equal(first, second))
    return bool(first == second)
