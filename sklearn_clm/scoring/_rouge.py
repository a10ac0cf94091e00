"""ROUGE-L F-measure of many pairs of texts, through bit-parallel longest common subsequences.

The tokens are those of the `rouge-score` package: its own pattern says which characters make one.
Tokens become characters, so that rapidfuzz compares up to 64 of them in one machine word, and
texts of up to 64 tokens several at a time. In matrices of 20 x 20 texts of 60 tokens, three
quarters of the time go into finding and numbering the tokens, and a fifth into comparing them;
numbering them anew for each matrix keeps most numbers below 256, which compares several times as
fast as numbers that hold for a whole data set.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, count

import numpy as np

__all__ = ["rouge_l", "rouge_l_blocks", "rouge_l_matrix"]

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
