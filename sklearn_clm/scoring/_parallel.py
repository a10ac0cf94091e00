"""Work on many items by the joblib backend that is active."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

Item = TypeVar("Item")
Result = TypeVar("Result")

# several per worker, so that a worker with cheap items does not wait for one with expensive ones
_CHUNKS_PER_WORKER = 8


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
    n_workers = effective_n_jobs(n_jobs)
    if n_workers == 1 or len(items) <= min_chunk:
        return list(function(items, *args)) if len(items) else []
    size = max(min_chunk, -(-len(items) // (_CHUNKS_PER_WORKER * n_workers)))
    chunks = (items[first : first + size] for first in range(0, len(items), size))
    results = Parallel(n_jobs=n_jobs)(delayed(function)(chunk, *args) for chunk in chunks)
    return [value for chunk in results for value in chunk]


def map_as_done(
    function: Callable[..., Result], items: Sequence[Item], *args: object, n_jobs: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Yield ``(k, function(items[k], *args))`` as results become known, in any order."""
    if effective_n_jobs(n_jobs) == 1 or len(items) <= 1:
        for k, item in enumerate(items):
            yield k, function(item, *args)
        return
    backend, _ = get_active_backend()
    if backend.supports_return_generator:
        tasks = (delayed(_numbered)(k, function, item, *args) for k, item in enumerate(items))
        yield from Parallel(n_jobs=n_jobs, return_as="generator_unordered")(tasks)
        return
    size = _CHUNKS_PER_WORKER * effective_n_jobs(n_jobs)
    for first in range(0, len(items), size):
        tasks = (
            delayed(_numbered)(first + k, function, item, *args)
            for k, item in enumerate(items[first : first + size])
        )
        yield from Parallel(n_jobs=n_jobs)(tasks)


def _numbered(
    k: int, function: Callable[..., Result], item: Item, *args: object
) -> tuple[int, Result]:
    return k, function(item, *args)
