"""Claims that were paid for are kept, whatever happens."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import sklearn_clm
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
    barrier = threading.Barrier(2, timeout=60)

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


#: Takes responses apart, and says of each call that it has begun: from then on it is paid for.
DECOMPOSING = """
import json, os, sys, time
from sklearn_clm.caching import CachedSplitter

def pay(prompt, response):
    os.write(1, f"{response}\\n".encode())
    time.sleep(0.003)
    return [f"{prompt} says {response}", response[:3]]

cached = CachedSplitter(pay, sys.argv[1], key="claims", max_concurrency=4)
responses = [f"response {i}" for i in range(120)]
claims = [[claim.text for claim in row] for _, row in cached.split_pairs(["p"] * 120, responses)]
print(json.dumps(claims))
"""


def decomposing(path):
    package = str(Path(sklearn_clm.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", DECOMPOSING, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def kept_responses(path):
    with sqlite3.connect(path) as file:
        query = "SELECT keys.content FROM entries JOIN keys ON keys.id = entries.key"
        rows = file.execute(query).fetchall()
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    file.close()
    responses = [json.loads(content)[1] for (content,) in rows]
    assert len(set(responses)) == len(responses)
    return set(responses)


@pytest.mark.slow
def test_what_a_killed_process_paid_for_is_not_paid_again(tmp_path):
    path = tmp_path / "store.sqlite"
    kept = set()
    for n_begun in (2, 17, 40):
        process = decomposing(path)
        begun = [process.stdout.readline().strip() for _ in range(n_begun)]
        process.kill()
        begun += process.stdout.read().split("\n")[:-1]
        process.stdout.close()
        process.wait()
        assert len(set(begun)) == len(begun)
        assert kept.isdisjoint(begun)
        before = kept
        kept = kept_responses(path)
        assert before <= kept
        assert len(set(begun) - kept) <= 4  # those in flight
    process = decomposing(path)
    *begun, claims = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert kept
    assert len(begun) == 120 - len(kept)
    assert kept.isdisjoint(begun)
    assert json.loads(claims) == [[f"p says response {i}", "res"] for i in range(120)]
