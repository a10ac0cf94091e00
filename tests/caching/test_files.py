"""Files of a cache: older formats, damage, read-only media, names that share a file."""

import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

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


@pytest.fixture
def public_folder():
    """A folder that another user can reach, as the folders of pytest are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def as_another_user(task):
    """What `task` returns in a process whose user may not write everywhere."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            answer = task()
        except BaseException as error:
            answer = repr(error)
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs users and permissions")
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_read_only_file_is_read(public_folder, mode, folder_mode):
    path = public_folder / "draws.sqlite"
    rows = filled(path)
    run_sql(path, f"PRAGMA journal_mode = {mode}")
    path.chmod(0o444)
    public_folder.chmod(folder_mode)

    def read():
        began = time.monotonic()
        cached = cache(path, Gone)
        response = cached.sample(["prompt 3"], 4)[0][1].response
        try:
            cached.sample(["prompt 3"], 5)
        except OSError as error:
            return response, str(error), time.monotonic() - began

    response, message, seconds = as_another_user(read)
    assert response == rows[3][1].response
    assert message.startswith(f"cache path={str(path)!r} is read-only and lacks some of the draws")
    assert seconds < 30
