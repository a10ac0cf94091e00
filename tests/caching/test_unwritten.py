"""What was paid for and cannot be written: a full disk, a lock, a file that is gone."""

import contextlib
import os
import sqlite3

import joblib
import pytest

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import CachedAdmission, CachedGenerator, CachedScore, _store
from sklearn_clm.generators import FunctionGenerator, Generation
from sklearn_clm.scoring import LLMJudge, admission_matrix
from tests.toy import Keyed, Streaming, n_stored

PROMPTS = [f"prompt {i}" for i in range(60)]


class Whole(Keyed):
    """All draws of a call come at once."""

    chunk_size = 256


def asks_a_function():
    def ask(prompt, seed):
        Keyed.asked.append((prompt, seed))
        return Generation("a long answer " * 20, -1.0, 1)

    return FunctionGenerator(ask, max_concurrency=8, max_retries=0)


GENERATORS = {"rows": Keyed, "one call": Whole, "one by one": Streaming, "calls": asks_a_function}


@pytest.fixture(autouse=True)
def asked():
    Keyed.asked.clear()
    return Keyed.asked


@contextlib.contextmanager
def full(store, path):
    """The file may not grow any more, as on a disk that is full."""
    (n_pages,) = store.select("PRAGMA page_count")[0]
    store.select(f"PRAGMA max_page_count = {n_pages + 4}")
    yield "is full"
    store.select("PRAGMA max_page_count = 1000000")


@contextlib.contextmanager
def locked(store, path):
    """Another process keeps the lock of a file that was usable a moment ago."""
    usable = store.check_writable
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:

        def lock():
            usable()
            other.execute("BEGIN IMMEDIATE")

        store.check_writable = lock
        yield "is locked"
        other.execute("ROLLBACK")
    store.check_writable = usable


@contextlib.contextmanager
def away(store, path):
    """The file is moved once a run has begun, and put back."""
    usable = store.check_writable

    def move():
        usable()
        os.rename(path, f"{path}.away")

    store.check_writable = move
    yield "deleted, moved or replaced"
    store.check_writable = usable
    os.rename(f"{path}.away", path)


@pytest.fixture(params=[full, locked, away])
def trouble(request, monkeypatch):
    monkeypatch.setattr(_store, "_BUSY_SECONDS", 0.1)
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


@pytest.mark.parametrize("kind", GENERATORS)
def test_each_draw_is_paid_for_once(kind, trouble, path, asked):
    cached = CachedGenerator(GENERATORS[kind](), path)
    cached.sample(["first"], 1)
    asked.clear()
    with trouble(cached._shared().store, path) as message, pytest.raises(OSError, match=message):
        cached.sample(PROMPTS, 20)
    n_made = len(asked)
    assert 0 < n_made < 60 * 20 or kind in ("one call", "one by one")
    rows = cached.sample(PROMPTS, 20)
    assert len(asked) == len(set(asked)) == 60 * 20
    assert n_stored(cached) == 60 * 20 + 1
    elsewhere = CachedGenerator(GENERATORS[kind](), path, key=cached.fingerprint())
    assert elsewhere.sample(PROMPTS, 20) == rows
    assert len(asked) == 60 * 20


def test_an_estimator_goes_on_from_its_memory(trouble, path, asked):
    cached = CachedGenerator(Keyed(), path)
    sampler = ConformalSampler(cached, k_max=20, delta=0.2)
    cached.sample(["first"], 1)
    asked.clear()
    with trouble(cached._shared().store, path) as message:
        with pytest.raises(OSError, match=message) as caught:
            sampler.collect(PROMPTS, ["yes"] * 60)
        assert "held in the memory" in str(caught.value.__notes__)
        n_made = len(asked)
        with pytest.raises(OSError, match=message):
            sampler.collect(PROMPTS, ["yes"] * 60)
    assert len(asked) == n_made < 60 * 20
    sampler.collect(PROMPTS, ["yes"] * 60)
    assert len(asked) == len(set(asked)) == 60 * 20
    assert n_stored(cached) == 60 * 20 + 1


@pytest.mark.parametrize("n_jobs", [1, 4])
def test_each_judgement_and_score_is_paid_for_once(trouble, path, asked, n_jobs):
    def judge(reference, response):
        asked.append((reference, response))
        return True

    def score(prompt, generation):
        asked.append((prompt, generation.response))
        return 1.0

    responses = [[f"response {i} {j} " + "long " * 50 for j in range(20)] for i in range(60)]
    draws = [[Generation(text) for text in row] for row in responses]
    verdicts = CachedAdmission(judge, path, key="judge")
    qualities = CachedScore(score, path, key="score")
    firsts = [prompt for prompt in PROMPTS for _ in range(20)]
    seconds = [draw for row in draws for draw in row]
    for cache, ask in (
        (verdicts, lambda: admission_matrix(verdicts, PROMPTS, responses, n_jobs=n_jobs)),
        (qualities, lambda: qualities.score_pairs(firsts, seconds, n_jobs=n_jobs)),
    ):
        asked.clear()
        cache._shared().store.check_writable()
        with joblib.parallel_config("threading"):
            store = cache._shared().store
            with trouble(store, path) as message, pytest.raises(OSError, match=message):
                ask()
            assert 0 < len(asked) < 60 * 20 + n_jobs  # n_jobs > 1: many are under way
            ask()
        assert len(asked) == len(set(asked)) == 60 * 20
        assert n_stored(cache) == 60 * 20


def test_a_model_that_judges_in_batches_is_asked_once(trouble, path, asked):
    class Judge(Whole):
        def draw(self, prompt, seed, j):
            return Generation("yes")

    judge = LLMJudge(Judge(), template="{reference} {response}")
    cached = CachedAdmission(judge, path)
    responses = [[f"response {i} {j} " + "long " * 50 for j in range(20)] for i in range(60)]
    cached._shared().store.check_writable()
    with trouble(cached._shared().store, path) as message, pytest.raises(OSError, match=message):
        admission_matrix(cached, PROMPTS, responses)
    assert asked
    assert admission_matrix(cached, PROMPTS, responses).all()
    assert len(asked) == len(set(asked)) == 60 * 20


def delete(path):
    for each in path.parent.glob("store.sqlite*"):
        os.remove(each)


def replace(path):
    delete(path)
    CachedGenerator(Keyed(), path).sample(["other"], 1)


@pytest.mark.parametrize("lose", [delete, replace])
@pytest.mark.parametrize("forked", [False, True])
def test_nothing_is_paid_for_that_a_lost_file_would_keep(lose, forked, path, asked):
    cached = CachedGenerator(Keyed(), path)
    cached.sample(["first"], 1)
    lose(path)
    asked.clear()
    if forked:
        cached._shared().store._pid = -1  # as in a child
    with pytest.raises(OSError, match="deleted, moved or replaced"):
        cached.sample(["new"], 1)
    assert not asked
    assert path.exists() == (lose is replace)
    # another object opens what is there now
    CachedGenerator(Keyed(), path).sample(["new"], 1)
    assert len(asked) == 1


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_file_beside_the_store_that_is_deleted_is_noticed(ending, path, asked):
    cached = CachedGenerator(Keyed(), path)
    cached.sample(["first"], 1)
    os.remove(f"{path}{ending}")
    asked.clear()
    with pytest.raises(OSError, match=f"{ending} was deleted"):
        cached.sample(["new"], 1)
    assert not asked


def test_a_child_goes_on_after_its_parent_has_closed_the_file(path):
    cached = CachedGenerator(Keyed(), path)
    cached.sample(["first"], 1)
    store = cached._shared().store
    store._connection.close()  # as the parent does at its end
    assert not os.path.exists(f"{path}-wal")
    store._pid = -1
    cached.sample(["new"], 1)
    assert n_stored(cached) == 2
