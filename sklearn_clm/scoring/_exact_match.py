"""Equality of answers: texts up to case, articles, punctuation and white space."""

import re
import string
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["answer_key", "exact_match", "normalize_answer", "same_value"]

_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation + "‘’´`"), " ")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


@lru_cache(maxsize=4096)
def answer_key(text: str) -> tuple[bool, str]:
    """Equal for texts that match exactly, and only for those."""
    normalized = _normalize(text)
    if normalized:
        return True, normalized
    # all articles and punctuation: without this, "The The" would match "A" and "!"
    return False, text.strip().lower()


def _normalize(text: str) -> str:
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def normalize_answer(text: str) -> str:
    """Answer without what TriviaQA's evaluation ignores.

    Parameters
    ----------
    text : str
        An answer.

    Returns
    -------
    str
        `text` in lower case; with ASCII punctuation (the underscore included) and the quotation
        marks ``‘ ’ ´ `` and the back quote replaced by a space; without the words "a", "an" and
        "the"; with each run of white space as one space, and none at the ends.

    Raises
    ------
    TypeError
        If `text` is not a text.

    Examples
    --------
    >>> from sklearn_clm.scoring import normalize_answer
    >>> normalize_answer("The  Beatles' \\"White_Album\\"!")
    'beatles white album'
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}: {text!r:.80}.")
    return _normalize(text)


def exact_match(reference: Any, response: Any) -> bool:
    """Whether a response equals a reference, as in TriviaQA's evaluation.

    Parameters
    ----------
    reference : str, object, or list, tuple, set or array of str
        The wanted answer. A collection of texts is a set of aliases: any of them will do.
    response : str or object
        The answer given.

    Returns
    -------
    bool
        Two texts: whether they are equal after :func:`normalize_answer`. Where nothing is left of
        the reference then (the band "The The"), whether they are equal up to case and outer white
        space. Anything else: whether the two are equal, as numbers or element by element;
        NaN equals nothing, and a text never equals a number.

    Examples
    --------
    >>> from sklearn_clm.scoring import exact_match
    >>> exact_match("Beatles", "The Beatles.")
    True
    >>> exact_match(["USA", "United States"], "the united states")
    True
    >>> exact_match(3, 3.0), exact_match(float("nan"), float("nan"))
    (True, False)
    """
    if isinstance(reference, str) and isinstance(response, str):
        return answer_key(reference) == answer_key(response)
    if isinstance(response, str) and _is_collection(reference):
        return any(exact_match(alias, response) for alias in reference)
    return same_value(reference, response)


def _is_collection(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) or (
        isinstance(value, np.ndarray) and value.ndim > 0
    )


def same_value(first: Any, second: Any) -> bool:
    """Whether two responses of any type are equal; arrays and sequences element by element."""
    if isinstance(first, str) or isinstance(second, str):
        return isinstance(first, str) and isinstance(second, str) and first == second
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return bool(np.array_equal(first, second))
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(same_value, first, second))
    return bool(first == second)
