"""Files from anywhere: nothing but our own errors comes out, and no code runs."""

import contextlib
import csv
import functools
import json
import sqlite3
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sklearn_clm.caching import CachedAdmission, CachedGenerator
from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData
from sklearn_clm.generators import Generation, PrecomputedGenerator
from sklearn_clm.generators.logs import SampleLog, read_records
from sklearn_clm.scoring import exact_match
from tests.robustness import hostile
from tests.toy import ToyModel, questions, toy_sampler

quick = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
new_sampler = functools.partial(toy_sampler, k_max=3, epsilon=0.5)
rng = np.random.default_rng(0)
DATA = CalibrationData(rng.random((60, 3)), rng.random((60, 3, 3)), rng.random((60, 3)) < 0.8)
COMPONENTS = ComponentCalibrationData.from_arrays(rng.random((60, 2)), rng.random((60, 2)) < 0.8)
ARCHIVES = {"calibration data": DATA, "component data": COMPONENTS}

# --- a way to write and to read each format ---------------------------------------------------


def saved(thing, folder):
    thing.save(folder / "good.npz")
    return (folder / "good.npz").read_bytes()


def load_archive(cls, path):
    """What loads does so whole; what does not says so, and names the file."""
    loaded = hostile.outcome(lambda: cls.load(path), naming=path.name)
    assert loaded is None or isinstance(loaded, cls)
    return loaded


def load_array(path):
    arrays = DATA.quality, path, DATA.admissible
    load = functools.partial(CalibrationData.from_arrays, *arrays)
    return hostile.outcome(load, naming="similarity")


def calibrated(folder):
    new_sampler().calibrate(DATA).save_calibration(folder / "good.json")
    return (folder / "good.json").read_bytes()


def load_calibration(path):
    """A file is taken over whole or not at all."""
    sampler = new_sampler()
    loaded = hostile.outcome(lambda: sampler.load_calibration(path), naming=path.name)
    assert hasattr(sampler, "lambda_hat_") == (loaded is not None)
    if loaded is not None:
        assert len(loaded.predict(["item 1"])) == 1
    return loaded


ONE_A_LINE = [
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


def read_draws(path, naming=""):
    def read():
        generator = PrecomputedGenerator.from_jsonl(path)
        known = [prompt for prompt in generator.prompts if prompt == "item 0"]
        assert all(isinstance(row[0], Generation) for row in generator.sample(known, 1))
        return generator

    return hostile.outcome(read, naming)


def cached(folder):
    path, (prompts, references) = folder / "good.sqlite", questions(6)
    CachedGenerator(ToyModel(), path).sample(prompts, 3)
    CachedAdmission(exact_match, path).judge_pairs(references, references[::-1])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.read_bytes()


def use_cache(path):
    """Everything that reads a cache."""
    prompts, references = questions(6)
    generator, judge = CachedGenerator(ToyModel(), path), CachedAdmission(exact_match, path)
    draw = functools.partial(generator.sample, prompts, 4)
    judge_pairs = functools.partial(judge.judge_pairs, references, references[::-1])
    return [hostile.outcome(use) for use in (draw, judge_pairs)]


SAMPLES = [
    {"prompt": f"item {i}", "response": f"answer {j}", "label": "C", "quality": 0.5, "n_tokens": 2}
    for i in range(3)
    for j in range(2)
]
LM_EVAL = [
    {
        "doc": {"question": f"item {i}"},
        "arguments": {"gen_args_0": {"arg_0": f"item {i}"}},
        "resps": [["answer 1"]],
        "filtered_resps": ["1"],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
    }
    for i in range(3)
]
INSPECT = {
    "status": "success",
    "samples": [
        {
            "id": i,
            "epoch": 1,
            "input": [{"role": "user", "content": f"item {i}"}],
            "target": "answer 1",
            "output": {"choices": [{"message": {"content": [{"type": "text", "text": "1"}]}}]},
            "scores": {"match": {"value": "C", "answer": "1"}},
        }
        for i in range(3)
    ],
}


def in_csv(folder):
    with open(folder / "good.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, SAMPLES[0])
        table.writeheader()
        table.writerows(SAMPLES)
    return (folder / "good.csv").read_bytes()


def in_parquet(folder):
    pd.DataFrame(SAMPLES).to_parquet(folder / "good.parquet")
    return (folder / "good.parquet").read_bytes()


def in_an_archive(folder):
    with zipfile.ZipFile(folder / "good.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        for one in INSPECT["samples"]:
            archive.writestr(f"samples/{one['id']}_epoch_1.json", json.dumps(one))
        archive.writestr("header.json", json.dumps(INSPECT | {"samples": None}))
    return (folder / "good.eval").read_bytes()


def read_samples(path):
    names = ("prompt", "response", "responses", "label", "quality", "n_tokens")
    named = {name: name for name in names}
    with contextlib.suppress(ImportError):  # damage may say "Zstandard"
        return hostile.outcome(lambda: SampleLog.of(read_records(path), named))


# suffix, what makes an intact file, what reads one
FORMATS = {
    **{
        name: ("npz", functools.partial(saved, thing), functools.partial(load_archive, type(thing)))
        for name, thing in ARCHIVES.items()
    },
    "array": ("npy", lambda folder: hostile.npy(DATA.similarity), load_array),
    "calibration": ("json", calibrated, load_calibration),
    "draws": ("jsonl", lambda folder: lines(ONE_A_LINE), read_draws),
    "lists of draws": ("jsonl", lambda folder: lines(LISTS), read_draws),
    "cache": ("sqlite", cached, use_cache),
    "samples in CSV": ("csv", in_csv, read_samples),
    "samples in Parquet": ("parquet", in_parquet, read_samples),
    "log of lm-evaluation-harness": ("jsonl", lambda folder: lines(LM_EVAL), read_samples),
    "log of Inspect": ("json", lambda folder: hostile.dumps(INSPECT), read_samples),
    "archive of Inspect": ("eval", in_an_archive, read_samples),
}


@functools.cache
def intact(name, folder):
    """The bytes of an intact file, made once."""
    return FORMATS[name][1](folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("good")


def read(name, content, tmp_path):
    """What is read of a file of these bytes alone."""
    suffix, _, load = FORMATS[name]
    path = tmp_path / f"bad.{suffix}"
    for old in tmp_path.glob("bad.*"):  # a journal, say
        old.unlink()
    path.write_bytes(content)
    return load(path)


# --- every format -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_intact_files(name, folder, tmp_path):
    assert read(name, intact(name, folder), tmp_path)


@pytest.mark.parametrize("name", FORMATS)
@quick
@given(data=st.data())
def test_damaged_files(name, folder, data, tmp_path):
    read(name, data.draw(hostile.damaged(intact(name, folder))), tmp_path)


# --- JSON -------------------------------------------------------------------------------------

RECORDS = {"draws": ONE_A_LINE, "lists of draws": LISTS, "log of lm-evaluation-harness": LM_EVAL}


@pytest.mark.parametrize("name", [*RECORDS, "log of Inspect"])
@settings(quick, max_examples=80)
@given(data=st.data())
def test_json_of_other_types(name, data, tmp_path):
    if name == "log of Inspect":
        read(name, hostile.dumps(data.draw(hostile.confused(INSPECT))), tmp_path)
    else:
        read(name, lines(data.draw(hostile.confused(RECORDS[name]))), tmp_path)


@pytest.mark.parametrize("text", hostile.HARD_JSON, ids=lambda text: repr(text[:12]))
def test_hard_json(text, tmp_path):
    read("calibration", text, tmp_path)
    for records in (ONE_A_LINE, LISTS):
        path = tmp_path / "bad.jsonl"
        path.write_bytes(lines(records[:1]) + text + b"\n")
        read_draws(path, naming="line 2" if text.strip() else "")


# --- archives and arrays ----------------------------------------------------------------------


def altered(folder, name, **members):
    """An archive with some of its members replaced, or left out where they are None."""
    path = folder / "altered.npz"
    path.write_bytes(intact(name, folder))
    whole = hostile.members_of(path) | members
    return hostile.npz(**{one: member for one, member in whole.items() if member is not None})


@pytest.mark.parametrize("name", ARCHIVES)
def test_forged_missing_and_pickled_members(name, folder, tmp_path):
    marker = tmp_path / "marker"
    mine = hostile.npy(np.array([hostile.Landmine(marker)], dtype=object))
    (folder / "whole.npz").write_bytes(intact(name, folder))
    for member in hostile.members_of(folder / "whole.npz"):
        for forgery in hostile.FORGERIES.values():
            read(name, altered(folder, name, **{member: forgery}), tmp_path)
        for gone in (None, mine):
            assert read(name, altered(folder, name, **{member: gone}), tmp_path) is None
    for content in (hostile.npz(), mine):
        assert read(name, content, tmp_path) is None
    assert not marker.exists()


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # NumPy's, on its way
def test_forged_arrays(tmp_path):
    bad, marker = tmp_path / "bad.npy", tmp_path / "marker"
    forgeries = {
        **hostile.FORGERIES,
        "pickle": hostile.npy(np.array([hostile.Landmine(marker)], dtype=object)),
        "archive": hostile.npz(quality=DATA.quality),
    }
    for name, forgery in forgeries.items():
        bad.write_bytes(forgery)
        for arrays in (
            (bad, DATA.similarity, DATA.admissible),
            (DATA.quality, bad, DATA.admissible),
            (DATA.quality, DATA.similarity, bad),
        ):
            load = functools.partial(CalibrationData.from_arrays, *arrays)
            assert hostile.outcome(load) is None, name
    assert not marker.exists()


# --- caches -----------------------------------------------------------------------------------

COLUMNS = {
    "entries": ("value", "seed", "draw", "key", "space"),
    "keys": ("digest", "content"),
    "spaces": ("kind", "name"),
}
VALUES = [
    b"\xff\xfe",
    "",
    "null",
    "{",
    '{"response": {}}',
    '{"response": "x", "logprob": "y"}',
    '{"response": "x", "n_tokens": 1e999}',
    '{"response": "x", "token_spans": [[1]]}',
    "[" * 50_000,
    -1,
    2.5,
    2**62,
]
STATEMENTS = [
    "DROP TABLE entries",
    "DROP TABLE keys",
    "ALTER TABLE entries RENAME COLUMN value TO other",
    "DELETE FROM keys",
    "DELETE FROM spaces",
    "CREATE TRIGGER bang BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'bang'); END",
    "PRAGMA user_version = 99",
    "PRAGMA application_id = 7",
]


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        *((one, ()) for one in STATEMENTS),
        *(
            (f"UPDATE OR REPLACE {table} SET {column} = ? WHERE {key} % 3 = 1", (value,))
            for value in VALUES
            for table, columns in COLUMNS.items()
            for column in columns
            for key in ["key" if table == "entries" else "rowid"]
        ),
    ],
)
def test_caches_of_other_tables_and_types(statement, values, folder, tmp_path):
    path = tmp_path / "other.sqlite"
    path.write_bytes(intact("cache", folder))
    connection = sqlite3.connect(path)
    with contextlib.suppress(sqlite3.Error), connection:
        connection.execute(statement, values)
    connection.close()
    use_cache(path)
