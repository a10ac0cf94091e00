"""Similarity S of responses to the same prompt (section 4.2 of the paper).

ROUGE-L F-measure of many pairs of texts, through bit-parallel longest common subsequences.

The tokens are those of the `rouge-score` package: its own pattern says which characters make one.
Tokens become characters, so that rapidfuzz compares up to 64 of them in one machine word, and
texts of up to 64 tokens several at a time. In matrices of 20 x 20 texts of 60 tokens, three
quarters of the time go into finding and numbering the tokens, and a fifth into comparing them;
numbering them anew for each matrix keeps most numbers below 256, which compares several times as
fast as numbers that hold for a whole data set."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain, count
from typing import Any

import numpy as np

from sklearn_clm.scoring._exact_match import answer_key, exact_match, same_value
from sklearn_clm.scoring._parallel import map_chunks
from sklearn_clm.scoring._results import as_score, as_scores

__all__ = [
    "exact_match_similarity",
    "get_similarity",
    "rouge_l",
    "rouge_l_blocks",
    "rouge_l_matrix",
    "rouge_l_or_equality",
    "similarity_tensor",
]


_N_CODE_POINTS = 0x110000
_WORD = 64
_SEPARATOR = "A"

Codes = str | list[int]


def rouge_l(reference: str, response: str) -> float:
    """ROUGE-L F-measure of two texts.

    Parameters
    ----------
    reference, response : str
        Two texts. The measure is symmetric.

    Returns
    -------
    float
        ``2 L / (m + n)`` in [0, 1], for texts of m and n tokens with a longest common subsequence
        of L. Tokens are runs of ASCII letters and digits after lower-casing, as in the default
        tokenizer of the `rouge-score` package. 0.0 where a text has no token.

    See Also
    --------
    rouge_l_matrix : The same for all pairs of two lists, several thousand times as fast.

    Examples
    --------
    >>> from sklearn_clm.scoring import rouge_l
    >>> rouge_l("The heart is normal.", "the heart is enlarged")
    0.75
    """
    from rapidfuzz.distance import LCSseq

    texts = [_as_text(reference, "reference"), _as_text(response, "response")]
    first, second = _encode(texts)
    if not first or not second:
        return 0.0
    return 2.0 * LCSseq.similarity(first, second) / (len(first) + len(second))


def rouge_l_matrix(
    texts_a: Iterable[str], texts_b: Iterable[str] | None = None, *, n_jobs: int | None = None
) -> np.ndarray:
    """ROUGE-L F-measure of all pairs of texts.

    Parameters
    ----------
    texts_a : iterable of m str
        Texts.
    texts_b : iterable of n str, default=None
        Other texts. None compares `texts_a` with itself.
    n_jobs : int, default=None
        Number of threads, as in joblib: None is 1 unless in a :obj:`joblib.parallel_config`
        context, -1 is all cores.

    Returns
    -------
    ndarray of shape (m, n), float64
        Equal to the rougeL F-measure of the `rouge-score` package with its default tokenizer, in
        [0, 1]; 0.0 where a text has no token. Equal texts are compared once.

    Raises
    ------
    TypeError
        If an argument is a single text, or holds something that is not a text.

    Examples
    --------
    >>> from sklearn_clm.scoring import rouge_l_matrix
    >>> rouge_l_matrix(["a b c d", "a b"], ["a b c d", "", "x a y b"])
    array([[1.        , 0.        , 0.5       ],
           [0.66666667, 0.        , 0.66666667]])
    """
    from joblib import effective_n_jobs

    first = _as_texts(texts_a, "texts_a")
    second = first if texts_b is None else _as_texts(texts_b, "texts_b")
    distinct = list(dict.fromkeys(chain(first, second)))
    code_of = dict(zip(distinct, _encode(distinct)))
    rows = dict.fromkeys(first)
    columns = dict.fromkeys(second)
    row_codes = [code_of[text] for text in rows]
    column_codes = [code_of[text] for text in columns]
    common = _common_lengths(
        row_codes,
        column_codes,
        symmetric=texts_b is None,
        workers=effective_n_jobs(n_jobs),
    )
    measure = _f_measure(
        common, _half_lengths(row_codes)[:, np.newaxis], _half_lengths(column_codes)
    )
    if len(rows) < len(first):
        measure = measure[_positions(first, rows)]
    if len(columns) < len(second):
        measure = measure[:, _positions(second, columns)]
    return measure


def rouge_l_blocks(blocks: Sequence[Sequence[str]], start: int = 0) -> np.ndarray:
    """ROUGE-L of texts `start` onwards against all texts of the same block.

    `blocks` are n lists of K texts; the result has shape (n, K - start, K).
    """
    n_blocks = len(blocks)
    size = len(blocks[0]) if n_blocks else 0
    common = np.zeros((n_blocks, size - start, size))
    halves = np.zeros((n_blocks, size))
    for i, texts in enumerate(blocks):
        distinct = list(dict.fromkeys(texts))
        codes = _encode(distinct)
        if len(distinct) == size:
            common[i] = _common_lengths(codes[start:], codes, symmetric=start == 0)
            halves[i] = _half_lengths(codes)
            continue
        of = _positions(texts, distinct)
        rows, row_of = np.unique(of[start:], return_inverse=True)
        values = _common_lengths([codes[j] for j in rows], codes, symmetric=len(rows) == len(codes))
        common[i] = values[np.ix_(row_of, of)]
        halves[i] = _half_lengths(codes)[of]
    return _f_measure(common, halves[:, start:, np.newaxis], halves[:, np.newaxis, :])


def _f_measure(
    common: np.ndarray, half_lengths_a: np.ndarray, half_lengths_b: np.ndarray
) -> np.ndarray:
    measure: np.ndarray = half_lengths_a + half_lengths_b
    np.divide(common, measure, out=measure)
    return measure


def _common_lengths(
    rows: list[Codes], columns: list[Codes], *, symmetric: bool, workers: int = 1
) -> np.ndarray:
    """Length of the longest common subsequence of every row with every column."""
    from rapidfuzz.distance import LCSseq
    from rapidfuzz.process import cdist

    longest = max(map(len, chain(rows, columns)), default=0)
    if symmetric and longest > _WORD:
        # one list given twice computes half of the matrix, but one pair at a time; that only
        # pays where a text does not fit into one machine word
        columns = rows
    elif symmetric:
        columns = list(rows)
    dtype = np.uint8 if longest < 256 else np.int32
    return np.asarray(cdist(rows, columns, scorer=LCSseq.similarity, dtype=dtype, workers=workers))


def _half_lengths(codes: list[Codes]) -> np.ndarray:
    lengths = np.fromiter(map(len, codes), dtype=np.float64, count=len(codes))
    # a text without tokens has nothing in common with any, and 0 / 1 is as good as 0 / 0
    return np.maximum(lengths / 2, 0.5)


def _positions(texts: Sequence[str], distinct: Iterable[str]) -> np.ndarray:
    """Where each text stands among the distinct ones."""
    position = {text: i for i, text in enumerate(distinct)}
    return np.fromiter((position[text] for text in texts), dtype=np.intp, count=len(texts))


def _encode(texts: list[str]) -> list[Codes]:
    """Texts with a character for each token, or an integer where there are too many tokens.

    All texts go through each step at once, so that no step is paid for each text or token.
    """
    # Lower-casing comes first: it turns some non-ASCII characters into ASCII ones. What is left
    # outside ASCII, lone surrogates included, becomes "?", which is no token. No text then holds
    # an upper-case letter, which makes one a safe separator.
    joined = f" {_SEPARATOR} ".join([text.lower() for text in texts])
    separator = _SEPARATOR.encode()
    tokens = joined.encode("ascii", "replace").translate(_token_table()).split()
    distinct = dict.fromkeys(chain([separator], tokens))
    if len(distinct) > _N_CODE_POINTS:
        return _encode_as_integers(tokens, dict(zip(distinct, count())))
    code_of = dict(zip(distinct, map(chr, count())))
    return "".join(map(code_of.__getitem__, tokens)).split(code_of[separator])  # type: ignore[return-value]


def _encode_as_integers(tokens: list[bytes], number_of: dict[bytes, int]) -> list[Codes]:
    texts: list[Codes] = []
    text: list[int] = []
    separator = number_of[_SEPARATOR.encode()]
    for number in map(number_of.__getitem__, tokens):
        if number == separator:
            texts.append(text)
            text = []
        else:
            text.append(number)
    texts.append(text)
    return texts


@lru_cache(maxsize=1)
def _token_table() -> bytes:
    from rouge_score.tokenize import NON_ALPHANUM_RE

    return bytes(
        ord(" ") if NON_ALPHANUM_RE.match(chr(code)) and chr(code) != _SEPARATOR else code
        for code in range(256)
    )


def _as_texts(texts: Iterable[str], name: str) -> list[str]:
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise TypeError(
            f"{name} must be a list of str, got a single {type(texts).__name__}: {texts!r:.80}."
        )
    checked = list(texts)
    for i, text in enumerate(checked):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{i}] must be a str, got {type(text).__name__}: {text!r:.80}.")
    return checked


def _as_text(text: str, name: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, got {type(text).__name__}: {text!r:.80}.")
    return text


# below this many prompts, ROUGE-L is done sooner than a worker process has its texts
_ROUGE_PROMPTS_PER_WORKER = 256


def exact_match_similarity(first: Any, second: Any) -> float:
    """1.0 for responses that are equal as answers, else 0.0.

    Parameters
    ----------
    first, second : str or object
        Two responses.

    Returns
    -------
    float
        1.0 where :func:`exact_match` holds, else 0.0.

    Examples
    --------
    >>> from sklearn_clm.scoring import exact_match_similarity
    >>> exact_match_similarity("The Beatles", "beatles")
    1.0
    """
    return float(exact_match(first, second))


_SIMILARITIES: dict[str, Callable[[Any, Any], float]] = {
    "exact_match": exact_match_similarity,
    "rouge_l": rouge_l,
}


def get_similarity(similarity: Any) -> Any:
    """Similarity from its name.

    Parameters
    ----------
    similarity : {"exact_match", "rouge_l"}, callable, or object with a method ``pairwise``
        A callable ``f(a, b) -> float`` compares two responses. ``pairwise(a, b=None)`` compares
        all of a list with all of another (None: itself), and returns an array of shape
        (len(a), len(b)); it is preferred where an object has both. A value must not depend on
        what else is compared: round what linear algebra gives, which depends on the shapes of
        the matrices in its last digits, so that a draw which calibration accepted as a tie could
        be rejected in prediction.
        "exact_match" is 1.0 for equal answers, and 0.0 for others. "rouge_l" sees ASCII letters
        and digits alone, and so suits neither Cyrillic nor Chinese; only equality counts, as 1.0
        or 0.0, for responses that are not texts, and equal responses are always 1.0 alike.

    Returns
    -------
    callable or object
        The similarity: a callable, or the object unchanged.

    Raises
    ------
    ValueError
        If the name is unknown.
    TypeError
        If it is none of these.

    Examples
    --------
    >>> from sklearn_clm.scoring import get_similarity
    >>> get_similarity("rouge_l")("a b", "a c")
    0.5
    """
    if isinstance(similarity, str):
        if similarity not in _SIMILARITIES:
            raise ValueError(
                f"similarity={similarity!r} is unknown; wanted one of {sorted(_SIMILARITIES)}, a "
                "callable, or an object with a method pairwise."
            )
        return _SIMILARITIES[similarity]
    if isinstance(similarity, type) or not (
        callable(similarity) or hasattr(similarity, "pairwise")
    ):
        raise TypeError(
            "similarity must be a name, a callable, or an object with a method pairwise, got "
            f"{type(similarity).__name__} {similarity!r:.80}."
        )
    return similarity


def similarity_tensor(
    similarity: Any,
    responses: Sequence[Sequence[Any]],
    *,
    start: int = 0,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Similarity of each draw to the earlier draws of its prompt.

    Parameters
    ----------
    similarity : {"exact_match", "rouge_l"}, callable, or object with a method ``pairwise``
        As in :func:`get_similarity`. A callable is given the later response first; equal
        responses of a prompt are compared once.
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

    Raises
    ------
    ValueError
        If the prompts have different numbers of draws, or if a similarity is NaN, not a real
        number, or of the wrong shape.

    Examples
    --------
    >>> from sklearn_clm.scoring import similarity_tensor
    >>> similarity_tensor("rouge_l", [["a b", "a c", "a b"]], start=1)
    array([[[0.5, 0. , 0. ],
            [1. , 0.5, 0. ]]])
    """
    from sklearn_clm.caching import CachedScore

    similarity = get_similarity(similarity)
    responses = [list(row) for row in responses]
    size = len(responses[0]) if responses else 0
    for i, row in enumerate(responses):
        if len(row) != size:
            raise ValueError(
                f"responses[{i}] holds {len(row)} draws and responses[0] {size}; wanted the same "
                "number for every prompt."
            )
    if not 0 <= start <= size:
        raise ValueError(f"start must be between 0 and {size} (the draws so far), got {start!r}.")
    if isinstance(similarity, CachedScore):
        return _cached_tensor(similarity, responses, start, n_jobs)
    if hasattr(similarity, "pairwise"):
        blocks, min_chunk = _pairwise_blocks, 1
    elif similarity is rouge_l:
        blocks, min_chunk = _rouge_blocks, _ROUGE_PROMPTS_PER_WORKER
    elif similarity is exact_match_similarity:
        blocks, min_chunk = _exact_blocks, _ROUGE_PROMPTS_PER_WORKER
    else:
        blocks, min_chunk = _callable_blocks, 1
    if not responses or start == size:
        return np.zeros((len(responses), size - start, size))
    rows = map_chunks(blocks, responses, similarity, start, n_jobs=n_jobs, min_chunk=min_chunk)
    tensor = np.stack(rows)
    tensor[:, ~_earlier(start, size)] = 0.0
    return tensor


def _earlier(start: int, size: int) -> np.ndarray:
    return np.arange(size) < np.arange(start, size)[:, np.newaxis]


def _rouge_blocks(
    responses: list[list[Any]], similarity: Callable[[Any, Any], float], start: int
) -> Sequence[np.ndarray]:
    if not all(isinstance(response, str) for row in responses for response in row):
        return _callable_blocks(responses, rouge_l_or_equality, start)
    blocks = rouge_l_blocks(responses, start)
    for row, block in zip(responses, blocks):
        _, of = _distinct(row)
        if len(set(of)) < len(of):
            # ROUGE-L of a text without tokens and itself is 0
            numbers = np.array(of)
            block[numbers[start:, np.newaxis] == numbers] = 1.0
    return list(blocks)


def rouge_l_or_equality(first: Any, second: Any) -> float:
    """ROUGE-L of two different texts, and else equality."""
    if isinstance(first, str) and isinstance(second, str) and first != second:
        return rouge_l(first, second)
    return float(same_value(first, second))


def _exact_blocks(
    responses: list[list[Any]], similarity: Callable[[Any, Any], float], start: int
) -> Sequence[np.ndarray]:
    if not all(isinstance(response, str) for row in responses for response in row):
        return _callable_blocks(responses, similarity, start)
    blocks = []
    for row in responses:
        numbers: dict[tuple[bool, str], int] = {}
        of = np.array([numbers.setdefault(answer_key(text), len(numbers)) for text in row])
        blocks.append((of[start:, np.newaxis] == of).astype(np.float64))
    return blocks


def _pairwise_blocks(
    responses: list[list[Any]], similarity: Any, start: int
) -> Sequence[np.ndarray]:
    blocks = []
    for row in responses:
        distinct, of = _distinct(row)
        new = sorted(set(of[start:]))
        if len(new) == len(distinct):
            values = similarity.pairwise(distinct)
        else:
            values = similarity.pairwise([distinct[j] for j in new], distinct)
        position = {j: i for i, j in enumerate(new)}
        block_rows = [position[j] for j in of[start:]]
        needed = np.zeros((len(new), len(distinct)), dtype=bool)
        for later, i in enumerate(block_rows, start):
            needed[i, of[:later]] = True
        values = as_scores(values, needed.shape, "similarity", similarity, needed=needed)
        blocks.append(values[np.ix_(block_rows, of)])
    return blocks


def _callable_blocks(
    responses: list[list[Any]], similarity: Callable[[Any, Any], float], start: int
) -> Sequence[np.ndarray]:
    blocks = []
    for row in responses:
        _, of = _distinct(row)
        known: dict[tuple[int, int], float] = {}
        block = np.zeros((len(row) - start, len(row)))
        for j in range(start, len(row)):
            for earlier in range(j):
                pair = of[j], of[earlier]
                if pair not in known:
                    known[pair] = as_score(
                        similarity(row[j], row[earlier]),
                        "similarity",
                        similarity,
                        f"the responses {row[j]!r:.80} and {row[earlier]!r:.80}",
                    )
                block[j - start, earlier] = known[pair]
        blocks.append(block)
    return blocks


def _cached_tensor(
    similarity: Any, responses: Sequence[Sequence[Any]], start: int, n_jobs: int | None
) -> np.ndarray:
    size = len(responses[0]) if responses else 0
    later, earlier = (index.tolist() for index in np.nonzero(_earlier(start, size)))
    tensor = np.zeros((len(responses), size - start, size))
    first = [row[start + j] for row in responses for j in later]
    second = [row[j] for row in responses for j in earlier]
    values = similarity.score_pairs(first, second, n_jobs=n_jobs)
    tensor[:, later, earlier] = values.reshape(len(responses), len(later))
    return tensor


def _distinct(row: Iterable[Any]) -> tuple[list[Any], list[int]]:
    """Distinct responses, and which of them each response is; unhashable ones are all distinct."""
    distinct: list[Any] = []
    positions: dict[Any, int] = {}
    of = []
    for response in row:
        try:
            key = (type(response), response)
            position = positions.setdefault(key, len(distinct))
        except TypeError:
            position = len(distinct)
        if position == len(distinct):
            distinct.append(response)
        of.append(position)
    return distinct, of
