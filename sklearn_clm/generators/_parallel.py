"""Draws made by several processes or machines at once."""

from collections import abc
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from math import ceil
from numbers import Integral
from threading import Lock
from typing import ClassVar, NamedTuple

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.utils._param_validation import Interval

from sklearn_clm.generators._base import (
    Generator,
    Prompts,
    Rows,
    Stream,
    WrappingGenerator,
    description,
    refuse_single_text,
    sample,
    serve,
    stream,
)
from sklearn_clm.generators._queue import DrawQueue, rounds_of

_TASKS_PER_WORKER = 4  # so that a worker with short answers does not wait for one with long ones
_WINDOW = 1024  # prompts that are open at once
# what dask and ray raise where a worker is lost; naming them imports neither
_LOST = ("KilledWorker", "WorkerCrashedError", "NodeDiedError", "ActorDiedError")


class _Task(NamedTuple):
    """Draws ``start`` to ``stop - 1`` of the prompts at some positions."""

    start: int
    stop: int
    indices: list[int]


_Call = tuple[Callable[..., tuple[_Task, Rows]], tuple[object, ...], dict[str, object]]  # of joblib


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
    A worker that dies ends the call with a RuntimeError; an estimator, and a
    :class:`sklearn_clm.caching.CachedGenerator` around this, keep the draws that had arrived.
    Backends that replace lost workers themselves, such as dask, go on.

    Where linear algebra runs on another number of threads it may round differently; joblib gives
    each process its share of the processors. ``parallel_config(inner_max_num_threads=1)`` fixes it.

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

    def stream(self, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0) -> Stream:
        """Yield draws as workers finish them, as in :meth:`BaseGenerator.stream`."""
        refuse_single_text(prompts)
        if self._n_workers() == 1:
            yield from stream(self._inner(), prompts, n_samples, start=start, seed=seed)
            return
        if n_samples:
            everything = _Task(start, start + n_samples, list(range(len(prompts))))
            yield from self._made(DrawQueue(prompts, start + n_samples, seed=seed), [everything])

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue, as in :meth:`QueueGenerator.serve`, in rounds over all workers."""
        if self._n_workers() == 1:
            serve(self._inner(), queue)
            return
        while requests := queue.take(max_prompts=max(_WINDOW, self.chunk_size)):
            tasks = [_Task(*one) for one in rounds_of(requests)]
            for index, draw, generation in self._made(queue, tasks):
                queue.put(index, draw, generation)

    def _n_workers(self) -> int:
        self._validate_params()
        return int(effective_n_jobs(self.n_jobs))

    def _made(self, queue: DrawQueue, wanted: list[_Task]) -> Stream:
        inner = self._inner()
        token = description(inner)  # a fingerprint could load the model in this process too
        n_wanted = sum(len(task.indices) * (task.stop - task.start) for task in wanted)
        n_arrived = 0
        calls = (
            delayed(_draws_of)(token, inner, queue.prompts_at(task.indices), task, queue.seed)
            for task in self._split(wanted, n_wanted)
        )
        try:
            with closing(self._results(calls)) as results:
                for task, rows in results:
                    for i, row in zip(task.indices, rows):
                        for j, generation in enumerate(row, task.start):
                            n_arrived += 1
                            yield i, j, generation
        except Exception as error:
            if isinstance(error, BrokenProcessPool) or type(error).__name__ in _LOST:
                raise RuntimeError(
                    f"a worker died after {n_arrived} of {n_wanted} draws had arrived "
                    f"({type(error).__name__}: {error!s:.200})"
                ) from error
            raise

    def _split(self, wanted: list[_Task], n_draws: int) -> Iterator[_Task]:
        draws_each = n_draws / (_TASKS_PER_WORKER * self._n_workers())
        for start, stop, indices in wanted:
            size = max(1, min(int(self.chunk_size), ceil(draws_each / (stop - start))))
            for first in range(0, len(indices), size):
                yield _Task(start, stop, indices[first : first + size])

    def _results(self, calls: Iterator[_Call]) -> abc.Generator[tuple[_Task, Rows], None, None]:
        """Results of tasks, as they are finished where the backend can tell."""
        backend, _ = get_active_backend()
        if backend.supports_return_generator:
            parallel = Parallel(n_jobs=self.n_jobs, return_as="generator_unordered", batch_size=1)
            yield from parallel(calls)
        else:
            yield from Parallel(n_jobs=self.n_jobs, batch_size=1)(calls)


# the generator that this worker holds, so that what it has loaded stays loaded
_held: dict[str, Generator] = {}
_lock = Lock()


def _draws_of(
    token: str, generator: Generator, prompts: Prompts, task: _Task, seed: int
) -> tuple[_Task, Rows]:
    with _lock:
        if token not in _held:
            _held.clear()
            _held[token] = generator
        generator = _held[token]
    return task, sample(generator, prompts, task.stop - task.start, start=task.start, seed=seed)
