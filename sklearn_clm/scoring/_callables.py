"""Users' scores and judges: their choice, calls and results."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from typing import Any, TypeVar, cast

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.frozen import FrozenEstimator

from sklearn_clm._exceptions import described
from sklearn_clm.calibration.checks import noting_arguments
from sklearn_clm.scoring.protocols import PairScorer, Reference, Response

Given = TypeVar("Given")
Item = TypeVar("Item")
Result = TypeVar("Result")

# several per worker, so that a worker with cheap items does not wait for one with expensive ones
_CHUNKS_PER_WORKER = 8


def name_of(scorer: object) -> str:
    """How a callable or object is called in messages."""
    if isinstance(scorer, str):
        return scorer
    return str(getattr(scorer, "__name__", None) or type(scorer).__name__)


def is_ours(scorer: object) -> bool:
    """Whether a score is one of this package."""
    return type(scorer).__module__.partition(".")[0] == __name__.partition(".")[0]


def chosen(
    argument: str,
    value: str | Given,
    by_name: Mapping[str, Given],
    other_kinds: str,
    protocols: tuple[Any, ...] = (),
) -> Given:
    """What a name stands for, or a user's object, checked."""
    if isinstance(value, str) and value in by_name:
        return by_name[value]
    if isinstance(value, FrozenEstimator):  # it hands methods on, which a protocol does not see
        return chosen(argument, value.estimator, by_name, other_kinds, protocols)
    if not isinstance(value, (str, type)) and (callable(value) or isinstance(value, protocols)):
        return cast(Given, value)
    wanted = f"one of {sorted(by_name)}, or {other_kinds}" if by_name else other_kinds
    message = f"{argument} must be {wanted}, got {described(value):.80} instead."
    # a name that is not known is a wrong value; whatever cannot be called, of a wrong type
    raise ValueError(message) if isinstance(value, str) else TypeError(message)


def number_from(function: Callable[..., object], argument: str, *arguments: object) -> float:
    """The real number that a callable gives, checked."""
    with noting_arguments(f"{argument} {name_of(function)}", *arguments):
        value = function(*arguments)
    array = _as_numbers(value)
    if array is None or array.ndim or np.isnan(array):
        raise ValueError(
            f"{argument} {name_of(function)} must return one real number, got {value!r:.80} for "
            f"{' and '.join(f'{one!r:.80}' for one in arguments)} instead."
        )
    return float(array)


def numbers_from(
    function: Callable[..., object],
    argument: str,
    pairs: Sequence[tuple[Any, Any]],
    n_jobs: int | None,
) -> list[float]:
    """The real number of each pair, by a callable."""
    if pairs and isinstance(function, PairScorer):
        values: list[float] = function.score_pairs(*zip(*pairs), n_jobs=n_jobs).tolist()
        return values
    return map_chunks(_numbers_of_chunk, pairs, function, argument, n_jobs=n_jobs)


def _numbers_of_chunk(
    pairs: Sequence[tuple[Any, Any]], function: Callable[..., object], argument: str
) -> list[float]:
    return [number_from(function, argument, *pair) for pair in pairs]


def asked_verdict(
    admission: Callable[..., object], response: Response, reference: Reference = None
) -> bool:
    """The verdict of a callable on one response."""
    try:
        try:
            # a callable A_i knows its prompt, and takes a response alone
            value = admission(response) if reference is None else admission(reference, response)
        except StopIteration as error:
            # generators that ask for verdicts would take it for their own
            raise RuntimeError(
                f"admission {name_of(admission)} must raise no StopIteration, got one instead."
            ) from error
        return checked_verdict(value, admission)
    except Exception as error:
        # the error is the judge's own: who reads it wants to know which pair it was about
        error.add_note(
            f"admission {name_of(admission)} was asked about the reference {reference!r:.80} and "
            f"the response {response!r:.80}."
        )
        error.asked_about = reference, response  # type: ignore[attr-defined]
        raise


def checked_verdict(value: object, admission: object) -> bool:
    """A verdict as a bool; what is none is refused."""
    # a score between them would be taken for a yes
    if isinstance(value, (bool, np.bool_, int, np.integer)) and value in (0, 1):
        return bool(value)
    raise TypeError(
        f"admission {name_of(admission)} must return a bool (or 0 or 1), got {value!r:.80} instead."
    )


def as_scores(values: object, shape: tuple[int, ...], argument: str, scorer: object) -> np.ndarray:
    """Real numbers of one shape, checked."""
    array = _as_numbers(values)
    if array is None or array.shape != shape or np.isnan(array).any():
        got = "no numbers" if array is None else f"shape {array.shape}"
        raise ValueError(
            f"{argument} {name_of(scorer)} must return real numbers, and no NaN, of shape {shape}, "
            f"got {got} instead: {values!r:.80}."
        )
    return array.astype(np.float64)


def _as_numbers(values: object) -> np.ndarray | None:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # such as of uneven lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def check_draws(rows: Sequence[Sized], argument: str, start: int = 0) -> int:
    """Number of draws, the same for each prompt, checked."""
    sizes = sorted({len(row) for row in rows}) or [0]
    if len(sizes) > 1 or not 0 <= start <= sizes[0]:
        raise ValueError(
            f"{argument} must hold as many draws for every prompt, start={start} of them or more, "
            f"got {' or '.join(map(str, sizes[:2]))} instead."
        )
    return sizes[0]


def distinct_items(
    rows: Iterable[Iterable[Item]], key: Callable[[Item], Hashable]
) -> tuple[list[Item], list[np.ndarray]]:
    """Distinct items by key, and their numbers row by row.

    Items whose key cannot be hashed are all distinct.
    """
    distinct: list[Item] = []
    positions: dict[Hashable, int] = {}
    numbers = []
    for row in rows:
        row_numbers = []
        for item in row:
            try:
                # equal to an earlier item, or the next one
                number = positions.setdefault(key(item), len(distinct))
            except TypeError:
                number = len(distinct)
            if number == len(distinct):
                distinct.append(item)
            row_numbers.append(number)
        numbers.append(np.array(row_numbers, dtype=np.intp))
    return distinct, numbers


def map_chunks(
    function: Callable[..., Sequence[Result]],
    items: Sequence[Item],
    *args: object,
    n_jobs: int | None = None,
    min_chunk: int = 1,
) -> list[Result]:
    """Concatenation of ``function(chunk, *args)`` over consecutive chunks of `items`.

    With one worker, `function` sees all items at once. `min_chunk` items are worth sending.
    """
    if len(items) <= min_chunk or effective_n_jobs(n_jobs) == 1:
        return list(function(items, *args)) if len(items) else []
    size = max(min_chunk, -(-len(items) // (_CHUNKS_PER_WORKER * effective_n_jobs(n_jobs))))
    chunks = (items[first : first + size] for first in range(0, len(items), size))
    results = Parallel(n_jobs=n_jobs)(delayed(function)(chunk, *args) for chunk in chunks)
    return [value for chunk in results for value in chunk]
