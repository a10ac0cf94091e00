"""Similarity S of responses to one prompt (section 4.2).

ROUGE-L is the F-measure of the `rouge-score` package, computed for many pairs at once. Tokens
become characters, so that rapidfuzz finds longest common subsequences of up to 64 of them in one
machine word. Numbering tokens anew for each matrix keeps most numbers below 256, which compares
several times as fast as numbers that hold for a whole data set.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm._exceptions import warn
from sklearn_clm.scoring._callables import (
    as_scores,
    check_draws,
    chosen,
    distinct_items,
    map_chunks,
    numbers_from,
)
from sklearn_clm.scoring._exact_match import exact_match, same_value
from sklearn_clm.scoring.protocols import PairwiseSimilarity, Response, Similarity

if TYPE_CHECKING:
    from nltk.stem.porter import PorterStemmer

_WORD = 64  # tokens whose subsequences rapidfuzz finds in one machine word
_SEPARATOR = "A"
# the `rouge-score` package stems longer words alone
_LONGEST_UNSTEMMED = 3
# below this many prompts, ROUGE-L is done sooner than a worker process has its texts
_PROMPTS_PER_WORKER = 256
# pairs of responses that are looked at together, by a callable
_MOST_PAIRS = 100_000
# texts that are looked at for their script, and the share in another one that is warned of
_TEXTS_LOOKED_AT = 1_000
_MANY_FOREIGN = 0.1

SimilarityLike: TypeAlias = str | Similarity | PairwiseSimilarity
Rows = Sequence[Sequence[Response]]


def rouge_l_matrix(
    texts_a: Iterable[str], texts_b: Iterable[str] | None = None, *, use_stemmer: bool = False
) -> np.ndarray:
    """ROUGE-L F-measure of all pairs of texts.

    Parameters
    ----------
    texts_a, texts_b : iterables of m and of n str
        Texts. None as `texts_b` compares `texts_a` with itself.
    use_stemmer : bool, default=False
        Whether to compare stems of words of more than three characters, by nltk's Porter stemmer.

    Returns
    -------
    ndarray of shape (m, n), float64
        ``2 L / (m + n)`` in [0, 1], for texts of m and n tokens with a longest common subsequence
        of L. Tokens are runs of ASCII letters and digits after lower-casing. 0.0 where a text has
        no token: equal to the rougeL F-measure of the `rouge-score` package.

    Examples
    --------
    >>> from sklearn_clm.scoring import rouge_l_matrix
    >>> rouge_l_matrix(["a b c d", "a b"], ["a b c d", "", "x a y b"])
    array([[1.        , 0.        , 0.5       ],
           [0.66666667, 0.        , 0.66666667]])
    """
    second_texts = None if texts_b is None else list(texts_b)
    return _measure(*_encode_both(list(texts_a), second_texts, use_stemmer))


@dataclass(frozen=True)
class RougeL:
    """ROUGE-L of any two responses; ``rouge_l`` is ``RougeL()``.

    Responses that are equal up to outer white space have similarity 1.0, even without any token.
    Other texts have that of :func:`rouge_l_matrix`, other responses 0.0.

    Parameters
    ----------
    use_stemmer : bool, default=False
        As in :func:`rouge_l_matrix`.

    Examples
    --------
    >>> from sklearn_clm.scoring import RougeL, rouge_l
    >>> rouge_l("The heart is normal.", "the heart is enlarged"), rouge_l("?!", "?!")
    (0.75, 1.0)
    >>> RougeL(use_stemmer=True)("runs fast", "running fast")
    1.0
    """

    use_stemmer: bool = False

    def __post_init__(self) -> None:
        if self.use_stemmer:
            _stemmer()  # imported here, and not in a thread of a request

    def __reduce__(self) -> tuple[type["RougeL"], tuple[bool]]:
        return type(self), (self.use_stemmer,)

    def __call__(self, first: Response, second: Response) -> float:
        """Similarity of two responses."""
        if isinstance(first, str) and isinstance(second, str):
            # white space around an answer is no part of it
            first = first.strip()
            second = second.strip()
            if first != second:
                similarity = _rapidfuzz().distance.LCSseq.similarity
                a, b = _encode([first, second], self.use_stemmer)
                return 2.0 * similarity(a, b) / max(len(a) + len(b), 1)
        return float(same_value(first, second))

    def pairwise(self, a: Sequence[Response], b: Sequence[Response] | None = None) -> np.ndarray:
        """Similarity of all pairs, as in :class:`PairwiseSimilarity`."""
        other = a if b is None else b
        if not all(isinstance(response, str) for response in chain(a, other)):
            values = [self(first, second) for first in a for second in other]
            return np.reshape(values, (len(a), len(other)))
        rows, columns = _encode_both(a, b, self.use_stemmer)
        measure = _measure(rows, columns)
        # ROUGE-L of texts without tokens is 0, but equal responses are copies all the same
        if not (all(rows) and all(columns)):
            measure[np.equal.outer(_stripped(a), _stripped(other))] = 1.0
        return measure


rouge_l = RougeL()


def _stripped(texts: Sequence[str]) -> np.ndarray:
    return np.array([text.strip() for text in texts], dtype=object)


def _measure(rows: list[str], columns: list[str]) -> np.ndarray:
    """ROUGE-L F-measure of all rows and columns of encoded texts."""
    rapidfuzz = _rapidfuzz()
    # 2 L / (m + n) is L / (m / 2 + n / 2): halves of lengths, added for all pairs at once. A text
    # without tokens has nothing in common with any, and 0 / 1 is as good as 0 / 0
    halves_b = [len(text) / 2 or 0.5 for text in columns]
    halves_a = halves_b if rows is columns else [len(text) / 2 or 0.5 for text in rows]
    longest = 2 * max(chain(halves_a, halves_b), default=0)
    if columns is rows and longest <= _WORD:
        # one list given twice computes half of the matrix, but one pair at a time; that only
        # pays where a text does not fit into one machine word
        columns = list(rows)
    dtype = np.uint8 if longest < 256 else np.int32
    scorer = rapidfuzz.distance.LCSseq.similarity
    common = rapidfuzz.process.cdist(rows, columns, scorer=scorer, dtype=dtype)
    measure: np.ndarray = np.add.outer(halves_a, halves_b)
    np.divide(common, measure, out=measure)
    return measure


def _rapidfuzz() -> Any:
    # the package and not its parts: two threads that import parts of it for the first time may each
    # wait for the other
    import rapidfuzz

    return rapidfuzz


def _encode_both(
    a: Sequence[str], b: Sequence[str] | None, use_stemmer: bool
) -> tuple[list[str], list[str]]:
    """Two lists of texts encoded together, or one twice."""
    if b is None:
        codes = _encode(a, use_stemmer)
        return codes, codes
    codes = _encode([*a, *b], use_stemmer)
    return codes[: len(a)], codes[len(a) :]


def _encode(texts: Sequence[str], use_stemmer: bool) -> list[str]:
    """Texts with a character for each token.

    All texts go through each step at once, so that no step is paid for each text or token.
    """
    distinct_texts = list(dict.fromkeys(texts))
    # Lower-casing comes first: it turns some non-ASCII characters into ASCII ones. What is left
    # outside ASCII, lone surrogates included, becomes "?", which is no token. No text then holds
    # an upper-case letter, which makes one a safe separator.
    joined = f" {_SEPARATOR} ".join([text.lower() for text in distinct_texts])
    plain = joined.encode("ascii", "replace").translate(_token_table())
    tokens = plain.split()
    distinct = dict.fromkeys(chain([_SEPARATOR.encode()], tokens))
    numbers: Iterable[int] = count()
    if use_stemmer:
        # words of one stem are one token: they share its number
        stems = list(map(_stem, distinct))
        numbers = map(dict(zip(dict.fromkeys(stems), count())).__getitem__, stems)

    # each token is now a character, and each text the characters between two separators
    code_of = dict(zip(distinct, map(chr, numbers)))
    codes = "".join(map(code_of.__getitem__, tokens)).split(code_of[_SEPARATOR.encode()])
    return list(map(dict(zip(distinct_texts, codes)).__getitem__, texts))


@lru_cache(maxsize=2**17)
def _stem(token: bytes) -> bytes:
    if len(token) <= _LONGEST_UNSTEMMED:
        return token
    return _stemmer().stem(token.decode()).encode()


@lru_cache(maxsize=1)
def _stemmer() -> "PorterStemmer":
    import nltk  # the package, as in `_rapidfuzz`

    return nltk.PorterStemmer()


@lru_cache(maxsize=1)
def _token_table() -> bytes:
    from rouge_score.tokenize import NON_ALPHANUM_RE

    return bytes(
        ord(" ") if NON_ALPHANUM_RE.match(chr(code)) and chr(code) != _SEPARATOR else code
        for code in range(256)
    )


def warn_of_script(parameter: str, score: object, texts: Iterable[Response]) -> None:
    """Warn where ROUGE-L meets a script unknown to it."""
    if score != "rouge_l" and not isinstance(score, RougeL):
        return
    # a look at the first ones: a corpus has one script
    looked_at = [text for text in islice(texts, _TEXTS_LOOKED_AT) if isinstance(text, str)]
    # texts of which less than half of the letters are ASCII
    foreign = []
    for text in looked_at:
        letters = list(filter(str.isalpha, text))
        if 2 * sum(map(str.isascii, letters)) < len(letters):
            foreign.append(text)
    if foreign and len(foreign) >= _MANY_FOREIGN * len(looked_at):
        warn(
            f"{parameter}='rouge_l' compares ASCII letters and digits alone, but of the first "
            f"{len(looked_at)} texts {len(foreign)} are mostly of other letters, such as "
            f"{foreign[0]!r:.60}. Take as {parameter} 'exact_match', or a function of your own, "
            "such as the one in help(sklearn_clm.scoring)."
        )


_SIMILARITIES: dict[str, Similarity | PairwiseSimilarity] = {
    "exact_match": exact_match,
    "rouge_l": rouge_l,
}


def get_similarity(
    similarity: str | Similarity | PairwiseSimilarity,
) -> Similarity | PairwiseSimilarity:
    """Similarity from its name, a callable or an object."""
    other_kinds = "a callable, or an object with a method pairwise"
    return chosen("similarity", similarity, _SIMILARITIES, other_kinds, (PairwiseSimilarity,))


def similarity_tensor(
    similarity: str | Similarity | PairwiseSimilarity,
    responses: Rows,
    *,
    start: int = 0,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Similarity of each draw to its prompt's earlier draws.

    Parameters
    ----------
    similarity : {"exact_match", "rouge_l"}, callable, or object with a method ``pairwise``
        A callable ``f(a, b) -> float`` compares two responses, the later one first; equal pairs are
        compared once. ``pairwise``, of a :class:`PairwiseSimilarity`, is preferred where an object
        has both. "exact_match" is 1.0 for equal answers, else 0.0; "rouge_l" is ``RougeL()``.
    responses : sequence of n sequences of K responses
        The draws so far, in draw order.
    start : int, default=0
        First draw to compare with its predecessors, 0 <= start <= K.
    n_jobs : int, default=None
        Number of workers, as in joblib.

    Returns
    -------
    ndarray of shape (n, K - start, K), float64
        Entry ``[i, j - start, l]`` is the similarity of draws j and l of prompt i where l < j,
        and 0.0 elsewhere.

    Examples
    --------
    >>> from sklearn_clm.scoring import similarity_tensor
    >>> similarity_tensor("rouge_l", [["a b", "a c", "a b"]])[0, 2]
    array([1. , 0.5, 0. ])
    """
    compare = get_similarity(similarity)
    responses = [list(row) for row in responses]
    size = check_draws(responses, "responses", start)

    shape = len(responses), size - start, size
    if 0 in shape:
        return np.zeros(shape)
    blocks: list[ArrayLike]
    if isinstance(compare, PairwiseSimilarity):
        chunk = _PROMPTS_PER_WORKER if isinstance(compare, RougeL) else 1
        blocks = map_chunks(_matrices, responses, compare, start, n_jobs=n_jobs, min_chunk=chunk)
    else:
        # in parts, so that a list of all pairs of all prompts is never held
        some = max(1, _MOST_PAIRS // size**2)
        parts = (responses[first : first + some] for first in range(0, len(responses), some))
        blocks = [block for part in parts for block in _pair_by_pair(part, compare, start, n_jobs)]

    tensor = as_scores(blocks, shape, "similarity", compare)
    # no draw is compared with itself or with later ones
    tensor[:, np.arange(size) >= np.arange(start, size)[:, np.newaxis]] = 0.0
    return tensor


def _matrices(responses: Rows, similarity: PairwiseSimilarity, start: int) -> list[ArrayLike]:
    """Similarity of draws from `start` on to all draws."""
    if start == 0:
        return [similarity.pairwise(row) for row in responses]
    return [similarity.pairwise(row[start:], row) for row in responses]


def _pair_by_pair(
    responses: Rows, similarity: Similarity, start: int, n_jobs: int | None
) -> np.ndarray:
    """Similarity of draws to earlier ones; equal pairs compared once."""
    size = len(responses[0])
    # 1 and True are equal, and different responses
    distinct, rows = distinct_items(responses, lambda response: (type(response), response))
    numbers = np.array(rows)
    later, earlier = np.nonzero(np.tri(size, k=-1, dtype=bool)[start:])
    # pairs of numbers in place of texts: a million pairs are compared, their texts a few times
    later_numbers = numbers[:, start + later].ravel().tolist()
    earlier_numbers = numbers[:, earlier].ravel().tolist()
    compared = list(zip(later_numbers, earlier_numbers))
    pairs = list(dict.fromkeys(compared))
    texts = [(distinct[first], distinct[second]) for first, second in pairs]
    values = numbers_from(similarity, "similarity", texts, n_jobs)
    value_of = dict(zip(pairs, values))
    tensor = np.zeros((len(responses), size - start, size))
    tensor[:, later, earlier] = np.reshape(
        [value_of[pair] for pair in compared], (len(responses), -1)
    )
    return tensor
