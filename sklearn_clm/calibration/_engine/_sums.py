"""Sums over prompts of what many configurations lose and cost, exactly and in one pass."""

import numpy as np
from scipy.sparse import csc_array

from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._engine._acceptance import (
    Pairs,
    accepted_sets,
    conflict_sets,
    distinct_sets,
    quality_sets,
)
from sklearn_clm.calibration._engine._stopping import Packing, packed_profiles
from sklearn_clm.calibration._set_scores import SetScore

# sets of one block: two arrays of them fit into a cache of 1 to 2 MiB
_BLOCK_SETS = 2**17
_BLOCK_DISTINCT = 2**13
_BLOCK_PROMPTS = (16, 1024)
_TASKS_PER_JOB = 4
# prompts times pairs that take about half a second: less is not worth other processes
_WORTH_A_PROCESS = 2**23


def sum_over_prompts(
    data: CalibrationData,
    l1: np.ndarray,
    l2: np.ndarray,
    pairs: Pairs,
    l3: np.ndarray,
    set_score: SetScore,
    budgets: np.ndarray,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, int]:
    """Sums of errors, size, samples and excess, and the unit of the excess.

    The sums are integers of shape (4, P, budgets, L3), the excess in multiples of 1 / unit. All
    thresholds ascend.
    """
    from joblib import Parallel, delayed, effective_n_jobs

    n = data.n_prompts
    packing = Packing(data.k_max, n)
    block = int(np.clip(_BLOCK_SETS // len(pairs), *_BLOCK_PROMPTS))
    n_processes = effective_n_jobs(n_jobs)
    called_set_by_set = set_score.running is None and set_score.of_sets is None
    if n * len(pairs) * len(budgets) < _WORTH_A_PROCESS and not called_set_by_set:
        n_processes = 1
    size = -(-n // (n_processes * _TASKS_PER_JOB if n_processes > 1 else 1))
    size = max(1, min(-(-size // block) * block, packing.max_prompts))
    parts = (data.take(slice(start, start + size)) for start in range(0, n, size))
    thresholds = l1, l2, pairs, l3, set_score, budgets
    totals = np.zeros((4, len(pairs), len(budgets), len(l3)), dtype=np.int64)
    for packed in Parallel(n_processes, return_as="generator")(
        delayed(_packed_sum)(part, *thresholds, packing, block) for part in parts
    ):
        totals += packing.unpack(packed)
    return totals, packing.unit


def _packed_sum(
    data: CalibrationData,
    l1: np.ndarray,
    l2: np.ndarray,
    pairs: Pairs,
    l3: np.ndarray,
    set_score: SetScore,
    budgets: np.ndarray,
    packing: Packing,
    block: int,
) -> np.ndarray:
    """Packed sums over few enough prompts for the packing, block by block."""
    _keep_freed_memory()
    total = np.zeros((len(pairs), len(budgets), len(l3)), dtype=np.complex128)
    for start in range(0, data.n_prompts, block):
        part = data.take(slice(start, start + block))
        conflicts = conflict_sets(np.asarray(part.similarity), l1)
        words = accepted_sets(quality_sets(part.quality, l2), conflicts, pairs)
        for sets in distinct_sets(words, data.k_max).blocks(_BLOCK_DISTINCT):
            leads_to = csc_array(
                (np.ones(len(sets.pairs)), sets.pairs, sets.begin),
                shape=(len(pairs), len(sets.prompt)),
            )
            profiles = packed_profiles(
                set_score, part.quality, part.admissible, sets, l3, budgets, packing
            )
            for i, profile in enumerate(profiles):
                # real and imaginary parts side by side: twice as fast as the complex product
                total[:, i] += (leads_to @ profile.view(np.float64)).view(np.complex128)
    return total


def _keep_freed_memory() -> None:
    """Have the C library reuse the memory of temporary arrays: a third of the time otherwise.

    By default glibc hands each freed array of some size back to the system, and the next one
    pays for its pages anew. Once a block of almost 32 MiB (its limit) has been freed, it keeps
    what is smaller. The pages of this block are never touched; elsewhere it has no effect.
    """
    np.empty(2**25 - 2**16, dtype=np.uint8)
