"""Claims that were paid for are kept, whatever happens."""

import sqlite3
import threading

import pytest

from sklearn_clm.caching import CachedSplitter
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import Claim, ClaimSplitter, PairSplitter
from sklearn_clm.scoring._splitters import split_draws

DRAWS = [[Generation("a. b"), Generation("c")], [Generation("a. b")]]


def split(prompt, response):
    first, *others = response.split(". ")
    return [first, *(Claim(f"{prompt} says {one}", parents=(0,)) for one in others)]


def test_nothing_is_split_twice_even_by_another_process(tmp_path):
    calls = []

    def counted(prompt, response):
        calls.append((prompt, response))
        return split(prompt, response)

    counted.fingerprint = lambda: "counted"
    wanted = split_draws(split, ["p", "q"], DRAWS)
    assert wanted[0] == [[(0, 1), Claim("p says b", None, (0,))], [(0, 1)]]
    for _ in range(2):  # another object for the same file
        cached = CachedSplitter(counted, tmp_path / "store.sqlite")
        assert split_draws(cached, ["p", "q"], DRAWS) == wanted
    assert sorted(calls) == [("p", "a. b"), ("p", "c"), ("q", "a. b")]
    assert (cached.n_hits_, cached.n_misses_) == (3, 0)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_arrived_before_an_error_is_kept(tmp_path, is_async):
    broken = True

    def one(prompt, response):
        if broken and response == "c":
            raise KeyError("limit")
        return split(prompt, response)

    async def later(prompt, response):
        return one(prompt, response)

    splitter = later if is_async else one
    splitter.fingerprint = lambda: "one"
    cached = CachedSplitter(splitter, tmp_path / "store.sqlite", max_concurrency=1)
    with pytest.raises(KeyError, match="limit"):
        split_draws(cached, ["p", "q"], DRAWS)
    broken = False
    assert split_draws(cached, ["p", "q"], DRAWS) == split_draws(split, ["p", "q"], DRAWS)
    assert cached.n_hits_ >= 1


def test_functions_are_called_at_once():
    barrier = threading.Barrier(2, timeout=20)

    def meeting(prompt, response):
        if response != "c":
            barrier.wait()
        return []

    assert split_draws(CachedSplitter(meeting, key="meeting"), ["p", "q"], DRAWS) == [
        [[], []],
        [[]],
    ]


def test_answers_of_a_model_are_kept_as_they_arrive(tmp_path):
    asked = []

    def ask(question):
        asked.append(question)
        if "c" in question.split("Response: ")[1].split("\n")[0] and len(asked) < 9:
            return "I would rather not."
        return "- b\n- it says d"

    ask.fingerprint = lambda: "model"
    cached = CachedSplitter(ClaimSplitter(ask, max_attempts=2), tmp_path / "store.sqlite")
    with pytest.raises(ValueError, match=r"one claim a line .* got 'I would rather not.'"):
        split_draws(cached, ["p", "q"], DRAWS)
    asked += [""] * 9
    n_asked = len(asked)
    found = split_draws(cached, ["p", "q"], DRAWS)
    assert found[0] == [[(3, 4), Claim("it says d")], [Claim("b"), Claim("it says d")]]
    assert len(asked) == n_asked + 1  # for the draw that failed


def test_a_wrong_list_is_not_kept(tmp_path):
    cached = CachedSplitter(lambda response: "text", tmp_path / "store.sqlite")
    with pytest.raises(ValueError, match="splitter <lambda> must return a list"):
        cached("p", "a")
    with sqlite3.connect(tmp_path / "store.sqlite") as file:
        assert file.execute("SELECT count(*) FROM entries").fetchone() == (0,)


def test_a_splitter_of_many_may_be_one_of_yours():
    class Whole(PairSplitter):
        def split_pairs(self, prompts, responses):
            return enumerate([response] for response in responses)

    assert CachedSplitter(Whole(), key="whole")("p", "a") == [Claim("a", (0, 1))]


def test_parts_may_stand_in_any_order():
    cached = CachedSplitter(lambda response: ["b", "a", "c"], key="order")
    assert split_draws(cached, ["p"], [[Generation("a b")]]) == [[[(2, 3), (0, 1), Claim("c")]]]
