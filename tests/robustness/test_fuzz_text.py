"""JSON, JSON Lines and SQLite from anywhere: nothing but our own errors comes out."""

import contextlib
import functools
import json
import sqlite3

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sklearn_clm.caching import CachedAdmission, CachedGenerator
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import Generation, PrecomputedGenerator
from sklearn_clm.scoring import exact_match
from tests.robustness import hostile
from tests.toy import ToyModel, questions, toy_sampler

quick = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


new_sampler = functools.partial(toy_sampler, k_max=3, epsilon=0.5)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    rng = np.random.default_rng(0)
    data = CalibrationData(rng.random((60, 3)), rng.random((60, 3, 3)), rng.random((60, 3)) < 0.8)
    path = tmp_path_factory.mktemp("saved") / "calibration.json"
    new_sampler().calibrate(data).save_calibration(path)
    return path.read_bytes()


def load_calibration(path):
    """A file is taken over whole or not at all."""
    sampler = new_sampler()
    loaded = hostile.outcome(lambda: sampler.load_calibration(path), naming=path.name)
    assert hasattr(sampler, "lambda_hat_") == (loaded is not None)
    if loaded is not None:
        assert type(loaded.k_max_) is int
        assert loaded.k_max_ == 3
        assert type(loaded.seed_) is int
        assert loaded.seed_ >= 0
        assert not np.isnan(loaded.lambda_hat_ or 0.0).any()
        assert np.shape(loaded.achievable_epsilon_) == (2,)
        assert len(loaded.predict(["item 1"])) == 1


@quick
@given(data=st.data())
def test_damaged_calibration_files(calibration, data, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(data.draw(hostile.damaged(calibration)))
    load_calibration(path)


@pytest.mark.filterwarnings("ignore:.*was calibrated on arrays")
@settings(quick, max_examples=100)
@given(data=st.data())
def test_calibration_files_of_other_types(calibration, data, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(hostile.sealed(data.draw(hostile.confused(json.loads(calibration)))))
    load_calibration(path)


@pytest.mark.parametrize("name", ["rules", "provenance", "set_score"])
@pytest.mark.parametrize("value", hostile.STRANGE, ids=repr)
@pytest.mark.filterwarnings("ignore:.*was calibrated on arrays")
def test_parts_of_calibration_files_of_other_types(calibration, name, value, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(hostile.sealed({**json.loads(calibration), name: value}))
    load_calibration(path)


DRAWS = [
    {
        "prompt": f"item {i}",
        "response": f"answer {i}",
        "draw": j,
        "seed": 0,
        "logprob": -0.5,
        "n_tokens": 2,
        "token_logprobs": [-0.25, -0.25],
        "token_spans": [[0, 6], [6, 8]],
        "finish_reason": "stop",
    }
    for i in range(2)
    for j in range(2)
]
LISTS = [{"prompt": f"item {i}", "responses": ["a", "b"], "logprob": [-1, None]} for i in range(2)]


def lines(records):
    return b"".join(hostile.dumps(record) + b"\n" for record in records)


def read_draws(path):
    generator = PrecomputedGenerator.from_jsonl(path)
    known = [prompt for prompt in generator.prompts if prompt == "item 0"]
    for row in generator.sample(known, 1):
        assert isinstance(row[0], Generation)
    return generator


READERS = {
    "precomputed draws": (read_draws, DRAWS),
    "precomputed lists": (read_draws, LISTS),
}
readers = pytest.mark.parametrize(("read", "records"), READERS.values(), ids=READERS.keys())


@readers
def test_intact_lines(read, records, tmp_path):
    path = tmp_path / "good.jsonl"
    path.write_bytes(lines(records))
    assert read(path)


@readers
@quick
@given(data=st.data())
def test_damaged_lines(read, records, data, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(data.draw(hostile.damaged(lines(records))))
    hostile.outcome(lambda: read(path))


@readers
@settings(quick, max_examples=60)
@given(data=st.data())
def test_lines_of_other_types(read, records, data, tmp_path):
    path = tmp_path / "bad.jsonl"
    confused = data.draw(hostile.confused(records))
    path.write_bytes(lines(confused))
    hostile.outcome(lambda: read(path))


@readers
@pytest.mark.parametrize("text", hostile.HARD_JSON, ids=lambda text: repr(text[:12]))
def test_hard_json(read, records, text, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(lines(records[:1]) + text + b"\n")
    hostile.outcome(lambda: read(path), naming="line 2" if text.strip() else "")
    load_calibration_of(text, tmp_path)


def load_calibration_of(text, folder):
    path = folder / "bad.json"
    path.write_bytes(text)
    load_calibration(path)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "draws.sqlite"
    prompts, references = questions(6)
    CachedGenerator(ToyModel(), path).sample(prompts, 3)
    CachedAdmission(exact_match, path).judge_pairs(references, references[::-1])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.read_bytes()


def use_cache(path):
    """Everything that reads a cache."""
    prompts, references = questions(6)
    generator = CachedGenerator(ToyModel(), path)
    hostile.outcome(lambda: generator.sample(prompts, 4))
    hostile.outcome(lambda: generator.gives_logprobs)
    hostile.outcome(lambda: generator.export_jsonl(path.with_suffix(".jsonl")))
    hostile.outcome(generator.stats)
    judge = CachedAdmission(exact_match, path)
    hostile.outcome(lambda: judge.judge_pairs(references, references[::-1]))
    hostile.outcome(lambda: judge.export_jsonl(path.with_suffix(".jsonl")))


@settings(quick, max_examples=50)
@given(data=st.data())
def test_damaged_caches(cache, data, tmp_path):
    path = tmp_path / "bad.sqlite"
    for name in (path, tmp_path / "bad.sqlite-wal", tmp_path / "bad.sqlite-shm"):
        name.unlink(missing_ok=True)
    path.write_bytes(data.draw(hostile.damaged(cache)))
    use_cache(path)


COLUMNS = [
    ("entries", "value"),
    ("entries", "seed"),
    ("entries", "draw"),
    ("entries", "key"),
    ("entries", "space"),
    ("keys", "digest"),
    ("keys", "content"),
    ("spaces", "kind"),
    ("spaces", "name"),
]
VALUES = [
    b"\xff\xfe",
    "",
    "null",
    "[]",
    "{",
    '{"response": null}',
    '{"response": {}}',
    '{"response": "x", "logprob": "y"}',
    '{"response": "x", "n_tokens": 1e999}',
    '{"response": "x", "token_spans": [[1]]}',
    "[" * 50_000,
    -1,
    2.5,
    2**62,
]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_caches_of_other_types(cache, table, column, tmp_path):
    for number, value in enumerate(VALUES):
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(cache)
        connection = sqlite3.connect(path)
        with contextlib.suppress(sqlite3.Error), connection:
            connection.execute(
                f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid % 3 = 1"
                if table != "entries"
                else f"UPDATE OR REPLACE {table} SET {column} = ? WHERE key % 3 = 1",
                (value,),
            )
        connection.close()
        use_cache(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE entries",
        "DROP TABLE keys",
        "ALTER TABLE entries RENAME COLUMN value TO other",
        "DELETE FROM keys",
        "DELETE FROM spaces",
        "CREATE TRIGGER bang BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'bang'); END",
        "PRAGMA user_version = 99",
        "PRAGMA application_id = 7",
    ],
)
def test_caches_of_other_tables(cache, statement, tmp_path):
    path = tmp_path / "bad.sqlite"
    path.write_bytes(cache)
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    use_cache(path)
