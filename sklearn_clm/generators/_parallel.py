"""Draws made by several processes or machines at once."""

from collections.abc import Iterable, Iterator
from itertools import islice
from math import ceil
from numbers import Integral
from threading import Lock
from typing import Any, ClassVar, TypeAlias

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval

from sklearn_clm.generators.base import (
    Generator,
    Prompts,
    Rows,
    WrappingGenerator,
    answer_queue,
    sample,
)
from sklearn_clm.generators.identity import description
from sklearn_clm.generators.queue import DrawQueue, rounds_of

Round: TypeAlias = tuple[int, int, list[int]]  # first draw, stop, positions of prompts

_TASKS_PER_WORKER = 4  # so that a worker with short answers does not wait for one with long ones
_TASKS_AT_ONCE = 8  # per worker, where a backend returns results together
_WINDOW = 1024  # prompts that are open at once


class ParallelGenerator(WrappingGenerator):
    """Let joblib's workers make the draws of another generator.

    Draws are keyed, so it does not matter which worker makes them: they are those of one process.
    The workers are those of the active joblib backend: processes of this machine (loky, the
    default), or those of a cluster, as in ``joblib.parallel_config(backend="dask")``. Each worker
    keeps the generator that it was sent, so that a model given by name is loaded once in each.

    Parameters
    ----------
    generator : Generator
        Makes the draws. Workers get a pickle of it: give models by name, or each task carries
        the weights.
    n_jobs : int, default=None
        Number of workers, as in joblib.
    chunk_size : int, default=256
        How many prompts a task holds at most; fewer where that spreads the work evenly.

    Attributes
    ----------
    generator_ : Generator
        The fitted generator, where it is one that is trained.

    Notes
    -----
    A worker that dies ends the call with joblib's error; an estimator, and a
    :class:`sklearn_clm.caching.CachedGenerator` around this, keep the draws that had arrived.
    Backends that replace lost workers themselves, such as dask, go on.

    Where linear algebra runs on another number of threads it may round differently;
    ``parallel_config(inner_max_num_threads=1)`` fixes it.

    Examples
    --------
    >>> from sklearn_clm.generators import ParallelGenerator, PrecomputedGenerator
    >>> inner = PrecomputedGenerator(["a", "b"], [["yes", "no"], ["no", "no"]])
    >>> rows = ParallelGenerator(inner, n_jobs=1).sample(["b", "a"], 2)
    >>> [[draw.response for draw in row] for row in rows]
    [['no', 'no'], ['yes', 'no']]
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "n_jobs": [Integral, None],
        "chunk_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self, generator: Generator, *, n_jobs: int | None = None, chunk_size: int = 256
    ) -> None:
        self.generator = generator
        self.n_jobs = n_jobs
        self.chunk_size = chunk_size

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue in rounds over all workers."""
        self._validate_params()
        inner = self._inner()
        n_workers = effective_n_jobs(self.n_jobs)
        if n_workers == 1:
            answer_queue(inner, queue)
            return
        token = description(inner)  # a fingerprint could load the model in this process too
        while requests := queue.take(max_prompts=max(_WINDOW, self.chunk_size)):
            # few large tasks would leave workers idle at the end, many small ones cost messages
            n_each = queue.n_under_way / (_TASKS_PER_WORKER * n_workers)
            tasks = []
            for start, stop, positions in rounds_of(requests):
                size = max(1, min(int(self.chunk_size), ceil(n_each / (stop - start))))
                for first in range(0, len(positions), size):
                    task = start, stop, positions[first : first + size]
                    prompts = _safe_indexing(queue.prompts, task[2])
                    tasks.append(delayed(_draws_of_task)(token, inner, prompts, task, queue.seed))
            for (start, _, positions), rows in as_done(tasks, self.n_jobs, batch_size=1):
                for i, row in zip(positions, rows):
                    for j, generation in enumerate(row, start):
                        queue.put(i, j, generation)


def as_done(
    tasks: Iterable[object], n_jobs: int | None, batch_size: int | str = "auto"
) -> Iterator[Any]:
    """Yield results of joblib's tasks in order of completion.

    Tasks are taken as workers become free, so that who gives them can end them.
    """
    backend, _ = get_active_backend()
    if backend.supports_return_generator:
        parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=batch_size)
        yield from parallel(tasks)
        return
    # other backends give the results of a call together: each call has a few tasks alone, so that
    # what arrives is handed on soon
    size = _TASKS_AT_ONCE * effective_n_jobs(n_jobs)
    waiting = iter(tasks)
    while some := list(islice(waiting, size)):
        yield from Parallel(n_jobs=n_jobs, batch_size=batch_size)(some)


# the generator that this worker holds, so that what it has loaded stays loaded
_held: dict[str, Generator] = {}
_lock = Lock()


def _draws_of_task(
    token: str, generator: Generator, prompts: Prompts, task: Round, seed: int
) -> tuple[Round, Rows]:
    """A task with its draws, made in a worker."""
    # each task brings an unpickled generator: one that has loaded its model takes its place
    with _lock:
        if token not in _held:
            _held.clear()
            _held[token] = generator
        generator = _held[token]
    start, stop, _ = task
    return task, sample(generator, prompts, stop - start, start=start, seed=seed)
