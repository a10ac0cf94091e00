"""Similarity S of responses to the same prompt (section 4.2 of the paper)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from sklearn_clm.scoring._exact_match import answer_key, exact_match, same_value
from sklearn_clm.scoring._parallel import map_chunks
from sklearn_clm.scoring._results import as_score, as_scores
from sklearn_clm.scoring._rouge import rouge_l, rouge_l_blocks

__all__ = [
    "exact_match_similarity",
    "get_similarity",
    "rouge_l_or_equality",
    "similarity_tensor",
]

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
    from sklearn_clm.scoring import CachedScore

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
