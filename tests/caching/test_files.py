"""Files of a cache: older formats, damage, names that share a file."""

import random

import pytest

from sklearn_clm.caching import CachedAdmission, CachedGenerator
from tests.toy import ToyModel, run_sql

PROMPTS = [f"prompt {i}" for i in range(40)]


class Gone(ToyModel):
    def sample(self, prompts, n_samples, *, start=0, seed=0):
        raise AssertionError("asked for a draw")


def cache(path, model=ToyModel):
    return CachedGenerator(model(), path, key="model")


def filled(path):
    rows = cache(path).sample(PROMPTS, 4)
    CachedAdmission("exact_match", path).judge_pairs(["a"] * 3, ["a", "b", "c"])
    folded(path)
    return rows


def folded(path):
    """Everything in the one file, in rollback-journal mode."""
    run_sql(path, "PRAGMA journal_mode = DELETE")


def test_nothing_is_paid_for_that_cannot_be_kept(tmp_path):
    path = tmp_path / "s.sqlite"
    rows = cache(path).sample(PROMPTS, 2)
    kept = cache(path, Gone)
    judge = CachedAdmission(lambda reference, response: pytest.fail("asked"), path, key="judge")
    for one in (kept, judge):
        one._shared().store.select("PRAGMA query_only = TRUE")
    assert kept.sample(PROMPTS, 2) == rows
    with pytest.raises(OSError, match="readonly"):
        kept.sample(PROMPTS, 3)
    with pytest.raises(OSError, match="readonly"):
        list(judge.judge_pairs(["a"], ["b"]))


def test_a_flipped_bit_never_changes_a_draw(tmp_path):
    whole = tmp_path / "whole.sqlite"
    rows = filled(whole)
    content = whole.read_bytes()
    rng = random.Random(0)
    messages = []
    for k in range(60):
        damaged = bytearray(content)
        for _ in range(8):
            damaged[rng.randrange(100, len(damaged))] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{k}.sqlite"
        path.write_bytes(damaged)
        try:
            assert cache(path).sample(PROMPTS, 4) == rows
        except (ValueError, OSError) as error:
            messages.append((str(path), str(error)))
    assert all(path in message for path, message in messages)
    assert len(messages) > 10


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET value = replace(value, 'guess', 'answer')",
        "UPDATE entries SET draw = draw + 4",
        "CREATE TABLE other AS SELECT digest FROM keys WHERE id = 2;"
        "UPDATE keys SET digest = x'00' WHERE id = 2;"
        "UPDATE keys SET digest = (SELECT digest FROM other) WHERE id = 1",
        "UPDATE spaces SET name = 'x' WHERE name = 'model';"
        "UPDATE spaces SET name = 'model' WHERE name = 'other'",
    ],
)
def test_values_that_are_not_as_written_are_refused(tmp_path, change):
    path = tmp_path / "draws.sqlite"
    cache(path).sample(PROMPTS, 4)
    CachedGenerator(ToyModel(), path, key="other").sample(PROMPTS, 2)
    folded(path)
    run_sql(path, change)
    with pytest.raises(ValueError, match="is damaged: it holds"):
        cache(path).sample(PROMPTS, 8)
