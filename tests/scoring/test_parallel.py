import os
import threading

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_clm.generators import Generation
from sklearn_clm.scoring import admission_matrix, quality_matrix, similarity_tensor
from sklearn_clm.scoring._callables import map_chunks
from tests.toy import dask_workers

PROMPTS = [f"prompt {i}" for i in range(12)]
RESPONSES = [[f"a {(i * j) % 5} b" for j in range(4)] for i in range(12)]
DRAWS = [[Generation(response) for response in row] for row in RESPONSES]


def overlap(a, b):
    return len(set(a) & set(b)) / len(set(a) | set(b))


def length(prompt, generation):
    return len(prompt) * len(generation.response)


def matrices():
    return (
        quality_matrix(length, PROMPTS, DRAWS),
        similarity_tensor(overlap, RESPONSES),
        admission_matrix("exact_match", [["a 0 b", "a 2 b"]] * 12, RESPONSES),
    )


def process_ids(items):
    return [os.getpid()] * len(items)


def thread_ids(items):
    return [threading.get_ident()] * len(items)


def test_the_active_backend_does_the_work():
    alone = matrices()
    for backend in ("threading", "loky"):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            for ours, expected in zip(matrices(), alone):
                assert_array_equal(ours, expected)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert threading.get_ident() not in map_chunks(thread_ids, range(20))
    assert set(map_chunks(thread_ids, range(20))) == {threading.get_ident()}


@pytest.mark.slow
def test_dask_spreads_the_work():
    alone = matrices()
    with dask_workers(processes=True):
        assert os.getpid() not in map_chunks(process_ids, range(20))
        for ours, expected in zip(matrices(), alone):
            assert_array_equal(ours, expected)
            assert np.ptp(np.asarray(ours, dtype=float)) > 0
