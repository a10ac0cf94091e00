"""Sums over prompts of what many configurations lose and cost, exactly and in one pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array

from sklearn_clm.calibration._arrays import release_pages
from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._engine._acceptance import (
    Pairs,
    accepted_sets,
    conflict_sets,
    quality_sets,
)
from sklearn_clm.calibration._engine._distinct import distinct_sets
from sklearn_clm.calibration._engine._packing import Packing
from sklearn_clm.calibration._engine._stopping import packed_profiles
from sklearn_clm.calibration._set_scores import SetScore

# sets of one block: two arrays of them fit into a cache of 1 to 2 MiB
_BLOCK_SETS = 2**17
_BLOCK_DISTINCT = 2**13
_BLOCK_PROMPTS = (16, 1024)
_TASKS_PER_JOB = 4
# prompts times pairs that take about half a second: less is not worth other processes
_WORTH_A_PROCESS = 2**23


class Sums(NamedTuple):
    """Sums over prompts as integer arrays; the excess in multiples of 1 / unit."""

    n_errors: np.ndarray
    size: np.ndarray
    samples: np.ndarray
    excess: np.ndarray
    unit: int

    def at(self, index: np.ndarray | tuple[np.ndarray, ...]) -> "Sums":
        """The same at some positions."""
        return Sums._make((*(one[index] for one in self[:4]), self.unit))


class _Task(NamedTuple):
    """What is summed: ascending thresholds, F, budgets, and how many prompts make a block."""

    l1: np.ndarray
    l2: np.ndarray
    pairs: Pairs
    l3: np.ndarray
    set_score: SetScore
    budgets: np.ndarray
    packing: Packing
    block: int


def sum_over_prompts(
    data: CalibrationData,
    l1: np.ndarray,
    l2: np.ndarray,
    pairs: Pairs,
    l3: np.ndarray,
    set_score: SetScore,
    budgets: np.ndarray,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Sums:
    """Sums over prompts, of shape (P, budgets, L3); all thresholds ascending."""
    from joblib import Parallel, delayed, effective_n_jobs

    n = data.n_prompts
    packing = Packing(data.k_max, n)
    block = int(np.clip(_BLOCK_SETS // len(pairs), *_BLOCK_PROMPTS))
    n_jobs_ = effective_n_jobs(n_jobs)
    called_set_by_set = set_score.running is None and set_score.of_sets is None
    if n * len(pairs) * len(budgets) < _WORTH_A_PROCESS and not called_set_by_set:
        n_jobs_ = 1
    size = -(-n // (n_jobs_ * _TASKS_PER_JOB if n_jobs_ > 1 else 1))
    size = max(1, min(-(-size // block) * block, packing.max_prompts))
    parts = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    totals = np.zeros((4, len(pairs), len(budgets), len(l3)), dtype=np.int64)
    task = _Task(l1, l2, pairs, l3, set_score, budgets, packing, block)

    with _progress(n, set_score.name, shown=bool(verbose) and called_set_by_set) as advance:
        if n_jobs_ == 1:
            for rows in parts:
                totals += packing.unpack(_packed_sum(data.rows(rows), task, advance))
        else:
            with Parallel(n_jobs=n_jobs) as parallel:
                for i in range(0, len(parts), n_jobs_ * _TASKS_PER_JOB):
                    batch = parts[i : i + n_jobs_ * _TASKS_PER_JOB]
                    for packed in parallel(
                        delayed(_packed_sum)(data.rows(rows), task) for rows in batch
                    ):
                        totals += packing.unpack(packed)
                    advance(batch[-1].stop - batch[0].start)
    return Sums._make((*totals, packing.unit))


def _packed_sum(
    data: CalibrationData, task: _Task, advance: Callable[[int], object] | None = None
) -> np.ndarray:
    """Packed sums over few enough prompts for the packing, block by block."""
    _keep_freed_memory()
    total = np.zeros((len(task.pairs), len(task.budgets), len(task.l3)), dtype=np.complex128)
    for start in range(0, data.n_prompts, task.block):
        rows = slice(start, min(start + task.block, data.n_prompts))
        _add_block(total, data, rows, task)
        release_pages(data.similarity)
        if advance is not None:
            advance(rows.stop - rows.start)
    return total


def _add_block(total: np.ndarray, data: CalibrationData, rows: slice, task: _Task) -> None:
    quality, admissible = data.quality[rows], data.admissible[rows]
    conflicts = conflict_sets(np.asarray(data.similarity[rows]), task.l1)
    words = accepted_sets(quality_sets(quality, task.l2), conflicts, task.pairs)
    for sets in distinct_sets(words, data.k_max).blocks(_BLOCK_DISTINCT):
        leads_to = csc_array(
            (np.ones(len(sets.pairs)), sets.pairs, sets.begin),
            shape=(len(task.pairs), len(sets.prompt)),
        )
        profiles = packed_profiles(
            task.set_score, quality, admissible, sets, task.l3, task.budgets, task.packing
        )
        for i, profile in enumerate(profiles):
            # real and imaginary parts side by side: twice as fast as the complex product
            total[:, i] += (leads_to @ profile.view(np.float64)).view(np.complex128)


def _keep_freed_memory() -> None:
    """Have the C library reuse the memory of temporary arrays: a third of the time otherwise.

    By default glibc hands each freed array of some size back to the system, and the next one
    pays for its pages anew. Once a block of almost 32 MiB (its limit) has been freed, it keeps
    what is smaller. The pages of this block are never touched; elsewhere it has no effect.
    """
    np.empty(2**25 - 2**16, dtype=np.uint8)


@contextmanager
def _progress(n: int, name: str, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """A function that reports some more prompts as done."""
    if not shown:
        yield lambda more: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=n, desc=f"Set score {name}", unit="prompt") as bar:
        yield bar.update
