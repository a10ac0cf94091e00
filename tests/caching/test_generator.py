"""Draws that are kept: keys, sharing, counts, files that are not caches."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import DrawQueue, Generation
from tests.toy import Answering, Keyed, Streaming, n_stored, run_sql, together


@pytest.fixture(autouse=True)
def _forget_what_was_asked():
    Keyed.asked.clear()


@pytest.fixture(params=["file", "memory"])
def path(request, tmp_path):
    return tmp_path / "draws.sqlite" if request.param == "file" else None


PROMPTS = ["a", "b", "a", "c", "d", "e"]


def test_cached_draws_are_the_inner_ones_and_are_made_once(path):
    cached = CachedGenerator(Keyed(), path)
    plain = Keyed().sample(PROMPTS, 4, seed=7)
    Keyed.asked.clear()
    assert cached.sample(PROMPTS, 4, seed=7) == plain
    assert sorted(Keyed.asked) == sorted({(p, 7, j) for p in PROMPTS for j in range(4)})
    assert (cached.n_hits_, cached.n_misses_) == (4, 20)
    assert cached.sample(PROMPTS, 4, seed=7) == plain
    assert len(Keyed.asked) == 20
    assert (cached.n_hits_, cached.n_misses_) == (28, 20)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_stream_that_ends_early_keeps_what_arrived(path, error):
    cached = CachedGenerator(Streaming(fail_after=5, error=error), path, key="stream")
    with pytest.raises(error):
        cached.sample(["a", "b"], 4)
    assert n_stored(cached) == 5
    again = clone(cached).set_params(generator__fail_after=None)
    assert again.sample(["a", "b"], 4) == Streaming().sample(["a", "b"], 4)
    assert Keyed.asked[:8].count(("a", 0, 3)) == 1
    assert again.n_misses_ == 8


def test_draws_are_stored_before_they_are_handed_on(tmp_path):
    path = tmp_path / "draws.sqlite"
    counts, other = [], CachedGenerator(Streaming(), path)
    queue = DrawQueue(["a", "b"], 3, on_draw=lambda *draw: counts.append(n_stored(other)))
    CachedGenerator(Streaming(), path).serve(queue)
    assert counts == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "other",
    [
        CachedGenerator(Keyed(temperature=0.5)),
        CachedGenerator(Keyed(template="Q: {prompt}")),
        CachedGenerator(Streaming()),
        CachedGenerator(Keyed(), key="mine"),
    ],
)
def test_another_distribution_is_another_key(tmp_path, other):
    path = tmp_path / "draws.sqlite"
    CachedGenerator(Keyed(), path).sample(["a"], 2)
    other = clone(other).set_params(path=path)
    other.sample(["a"], 2)
    assert other.n_misses_ == 2
    assert n_stored(other) == 2
    assert n_stored(other, in_all=True) == 4


def test_copies_share_what_is_kept_and_pickles_find_it_in_the_file(path):
    cached = CachedGenerator(Keyed(), path)
    rows = cached.sample(["a"], 3)
    Keyed.asked.clear()
    copied = copy.copy(cached)
    for twin in (copied, copy.deepcopy(cached), clone(cached)):
        assert twin.sample(["a"], 3) == rows
        assert twin.n_misses_ == cached.n_misses_ == 3
        assert (twin.generator is cached.generator) == (twin is copied)
    assert Keyed.asked == []
    assert n_stored(pickle.loads(pickle.dumps(cached))) == (0 if path is None else 3)
    # the last one is a clone: other parameters of it are another key in the same store
    twin.set_params(generator__temperature=2.0).sample(["a"], 2)
    assert cached.get_params()["generator__temperature"] == 1.0
    assert cached.n_misses_ == 5


def test_threads_agree(path):
    cached = CachedGenerator(Keyed(), path)
    results = together([lambda: cached.sample(PROMPTS, 5)] * 8)
    assert all(rows == results[0] for rows in results)
    assert n_stored(cached) == 25


def test_the_first_stored_draw_wins(path):
    said = []

    def answer(prompt, draw):
        said.append(draw)
        if len(said) == 1:  # another one asks meanwhile
            clone(cached).sample(["a"], 1)
            return "late"
        return "first"

    cached = CachedGenerator(Answering(answer), path, key="one")
    for _ in range(2):
        assert [draw.response for draw in cached.sample(["a"], 1)[0]] == ["first"]
    assert said == [0, 0]


@pytest.mark.parametrize("response", [3, 2.5, True, np.int64(3), np.float64(0.1), np.str_("x")])
def test_numbers_come_back_equal(path, response):
    cached = CachedGenerator(Answering([response]), path)
    for _ in range(2):
        drawn = cached.sample([np.array([1.0, 2.0])], 1)[0][0].response
        assert drawn == response
        assert not isinstance(drawn, np.generic)


def test_other_responses_are_refused():
    with pytest.raises(ValueError, match=r"response .*list"):
        CachedGenerator(Answering([["a", "list"]])).sample(["a"], 1)


def test_traits_are_the_inner_ones(path):
    class Silent(Keyed):
        gives_logprobs = False
        gives_labels = True

    silent = CachedGenerator(Silent(), path)
    assert (silent.gives_logprobs, silent.gives_labels, silent.usage_) == (False, True, {})


@pytest.mark.parametrize(("size", "n_kept"), [(1, 7), (3, 6), (256, 0)])
def test_what_a_failing_call_of_sample_had_drawn_is_lost_with_its_chunk(path, size, n_kept):
    class Paid(Keyed):
        chunk_size = size

        def draw(self, prompt, seed, j):
            if prompt == "prompt 7":
                raise RuntimeError("the service went away")
            return super().draw(prompt, seed, j)

    cached = CachedGenerator(Paid(), path)
    prompts = [f"prompt {i}" for i in range(10)]
    with pytest.raises(RuntimeError, match="went away"):
        cached.sample(prompts, 2)
    assert n_stored(cached) == 2 * n_kept


class Trained(Keyed):
    def fit(self, prompts, references):
        self.known_ = list(zip(prompts, references))
        return self

    def draw(self, prompt, seed, j):
        return Generation(str(self.known_[j % len(self.known_)]))


@pytest.mark.parametrize("key", [None, "mine"])
def test_fit_is_the_inner_ones_and_part_of_the_key(path, key):
    assert not hasattr(CachedGenerator(Keyed()), "fit")
    cached = CachedGenerator(Trained(), path, key=key)
    one = clone(cached).fit(["p"], ["r"])
    other = clone(cached).fit(["p"], ["s"])
    assert one.sample(["a"], 1)[0][0].response == "('p', 'r')"
    assert other.sample(["a"], 1)[0][0].response == "('p', 's')"
    assert clone(cached).fit(["p"], ["r"]).fingerprint() == one.fingerprint()
    assert cached.n_misses_ == 2
    assert not hasattr(cached.generator, "known_")
    if key is not None:
        assert cached.fingerprint() == key
        assert one.fingerprint().startswith(f"{key}-")


def _newer_format(path):
    CachedGenerator(Keyed(), path).sample(["a"], 1)
    run_sql(path, "PRAGMA user_version = 99")


def _damaged(path):
    whole = path.with_name("whole.sqlite")
    CachedGenerator(Keyed(), whole).sample([f"prompt {i}" for i in range(200)], 20)
    run_sql(whole, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(whole.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: path.write_text("my notes " * 100), "is no cache"),
        (lambda path: run_sql(path, "CREATE TABLE precious (x)"), "another application"),
        (_newer_format, "format 99"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), "is no cache"),
        (_damaged, "is damaged"),
    ],
)
def test_foreign_and_damaged_files_are_left_alone(tmp_path, prepare, message):
    path = tmp_path / "precious.sqlite"
    prepare(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message) as caught:
        CachedGenerator(Keyed(), path).sample(["a"], 1)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_an_unusable_path_is_named(tmp_path):
    with pytest.raises(OSError, match="cannot be"):
        CachedGenerator(Keyed(), tmp_path).sample(["a"], 1)
    with pytest.raises(OSError, match="unable to open"):
        CachedGenerator(Keyed(), tmp_path / "no" / "such" / "folder").sample(["a"], 1)


def test_kept_draws_of_many_prompts_are_read_in_little_memory(tmp_path):
    class Many:
        """As many prompts as there are lines of a long file."""

        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

        def __getitem__(self, i):
            return f"{i}".zfill(500)

        def __iter__(self):
            return (self[i] for i in range(self.n))

    class Long(Keyed):
        def draw(self, prompt, seed, j):
            return Generation("x" * 1_000)

    def peak(n):
        cached = CachedGenerator(Long(), tmp_path / f"{n}.sqlite")
        cached.serve(DrawQueue(Many(n), 1))
        Keyed.asked.clear()
        tracemalloc.start()
        cached.serve(DrawQueue(Many(n), 1))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert Keyed.asked == []
        return used

    # a draw and its prompt take more than 1,500
    assert peak(2400) < peak(1400) + 1000 * 200
