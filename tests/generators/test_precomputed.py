"""Draws that users already have: three sources, and what is refused."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import Generation, PrecomputedGenerator

PROMPTS = ["Capital of France?", "Capital of Spain?"]
RESPONSES = [["Paris", "Lyon", "Paris"], ["Madrid", "Madrid", "Lisbon"]]


def responses(rows):
    return [[generation.response for generation in row] for row in rows]


def test_serves_the_draws_asked_for_whatever_the_seed():
    generator = PrecomputedGenerator(PROMPTS, RESPONSES)
    assert responses(generator.sample(PROMPTS[::-1], 2, start=1, seed=3)) == [
        ["Madrid", "Lisbon"],
        ["Lyon", "Paris"],
    ]
    assert generator.sample(PROMPTS, 3, seed=0) == generator.sample(PROMPTS, 3, seed=9)


def test_a_repeated_prompt_owns_all_its_draws():
    generator = PrecomputedGenerator(["a", "b", "a"], [["1"], ["x"], ["2", "3"]])
    assert responses(generator.sample(["a"], 3)) == [["1", "2", "3"]]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, dict])
def test_data_frames(kind):
    frame = kind(
        {
            "question": ["a", "b", "a", "b"],
            "answer": ["0", "x", "1", "y"],
            "logprob": [None, -2.0, -1.0, -4.0],
        }
    )
    generator = PrecomputedGenerator.from_frame(frame, prompt="question", response="answer")
    assert generator.sample(["a", "b"], 2) == [
        [Generation("0"), Generation("1", -1.0)],
        [Generation("x", -2.0), Generation("y", -4.0)],
    ]
    with pytest.raises(ValueError, match=r"frame.*'prompt'"):
        PrecomputedGenerator.from_frame(frame)


def test_json_lines_by_draw_and_by_prompt(tmp_path):
    file = tmp_path / "draws.jsonl"
    lines = [
        {"prompt": "a", "response": "1", "logprob": -1.0, "n_tokens": 2},
        {"prompt": "b", "responses": ["x", "y"], "logprob": [None, -2.0]},
        {"prompt": "a", "response": "2"},
        {"prompt": [{"role": "user", "content": "hi"}], "response": "hello"},
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)))
    generator = PrecomputedGenerator.from_jsonl(file)
    assert generator.sample(["b", "a"], 2) == [
        [Generation("x"), Generation("y", -2.0)],
        [Generation("1", -1.0, 2), Generation("2")],
    ]
    assert responses(generator.sample([lines[3]["prompt"]], 1)) == [["hello"]]


LINE = '{"prompt": "a", "response": "x"}'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (LINE + '\n{"pro', "line 2 .*JSON"),
        ('["a"]', "line 1 .*list"),
        ('{"question": "a"}', "line 1 .*'prompt'"),
        ('{"prompt": "a"}', "line 1 .*'response'"),
        ('{"prompt": null, "response": "x"}', "line 1 .*prompt"),
        ('{"prompt": "a", "response": null}', "line 1 .*response .*None"),
        ('{"prompt": "a", "response": "half \\ud83d"}', "line 1 .*response .*position 5"),
        ('{"prompt": "a", "response": "x", "n_tokens": "many"}', "line 1 .*'many'"),
        ('{"prompt": "a", "responses": "xy"}', "line 1 .*responses .*list"),
        ('{"prompt": "a", "responses": ["x"], "logprob": [-1, -2]}', "line 1 .*logprob .*2"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, shown):
    file = tmp_path / "draws.jsonl"
    file.write_text(text)
    with pytest.raises(ValueError, match=shown):
        PrecomputedGenerator.from_jsonl(file)


def test_frames_that_are_none_are_refused_briefly():
    class Dataset:  # as that of datasets: rows are iterated over, columns looked up by name
        column_names = ("prompt", "response")

        def __iter__(self):
            return iter([{"prompt": "a" * 500, "response": "b"}] * 1000)

    wide = {f"column {i}": ["a"] for i in range(1000)}
    for frame, error in ((Dataset(), TypeError), (wide, ValueError)):
        with pytest.raises(error, match="frame") as raised:
            PrecomputedGenerator.from_frame(frame)
        assert len(str(raised.value)) < 400


def test_unknown_prompts_and_too_few_draws():
    generator = PrecomputedGenerator(PROMPTS, RESPONSES)
    with pytest.raises(ValueError, match=r"prompts\[1\] must be one of the 2 .*Peru"):
        generator.sample([PROMPTS[0], "Capital of Peru?"], 1)
    with pytest.raises(ValueError, match=r"prompts\[0\] .*France.* 4 draws, got 3 .*0 of 2"):
        generator.sample(PROMPTS, 2, start=2)
    with pytest.raises(ValueError, match=r"prompts\[0\] .*Peru"):
        generator.sample(pd.Series(["Peru"], index=[7]), 1)


def test_columns_of_other_names(tmp_path):
    table = {"question": ["a", "a"], "text": ["0", "1"], "cumulative": [-2.0, -1.0], "n": [3, 1]}
    names = dict(zip(("prompt", "response", "logprob", "n_tokens"), table))
    expected = [[Generation("0", -2.0, 3), Generation("1", -1.0, 1)]]
    generator = PrecomputedGenerator.from_frame(table, **names)
    assert generator.gives_logprobs
    assert generator.sample(["a"], 2) == expected
    file = tmp_path / "draws.jsonl"
    rows = [dict(zip(table, row)) for row in zip(*table.values())]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert PrecomputedGenerator.from_jsonl(file, **names).sample(["a"], 2) == expected
    with pytest.raises(ValueError, match=r"frame.*'logp'"):
        PrecomputedGenerator.from_frame(table, **{**names, "logprob": "logp"})
    with pytest.raises(ValueError, match=r"line 1 .*'logp'"):
        PrecomputedGenerator.from_jsonl(file, **{**names, "logprob": "logp"})


def test_a_key_names_the_model_of_draws_for_other_prompts(tmp_path):
    def drawn(prompts, key):
        return PrecomputedGenerator(prompts, [["yes", "no", "yes"]] * len(prompts), key=key)

    prompts, new = [f"q{i}" for i in range(60)], ["new question"]
    options = {"k_max": 3, "quality": "self_consistency", "random_state": 0}
    fitted = ConformalSampler(drawn(prompts, "m"), **options).fit(prompts, ["yes"] * 60)
    fitted.save_calibration(tmp_path / "calibration.json")
    other = ConformalSampler(drawn(new, "m"), **options)
    sets = other.load_calibration(tmp_path / "calibration.json").predict(new)
    assert sets.guaranteed
    assert "yes" in sets[0]
    for key in ("another", None):
        other = ConformalSampler(drawn(new, key), **options)
        with pytest.raises(ValueError, match="key="):
            other.load_calibration(tmp_path / "calibration.json")


@pytest.mark.parametrize(
    ("responses", "error", "shown"),
    [
        ([], ValueError, "responses .*1, got 0"),
        (["text"], TypeError, r"responses\[0\] .*'text'"),
        ([["x", None]], ValueError, r"responses\[0\]\[1\].*None"),
        ([["x", float("nan")]], ValueError, r"responses\[0\]\[1\].*nan"),
        ([[{}]], ValueError, r"responses\[0\]\[0\].*\{\}"),
    ],
)
def test_bad_responses_are_refused(responses, error, shown):
    with pytest.raises(error, match=shown):
        PrecomputedGenerator(["a"], responses).sample(["a"], 1)


def test_clones_share_the_draws_and_fingerprints_follow_them():
    generator = PrecomputedGenerator(PROMPTS, RESPONSES)
    assert clone(generator).responses is generator.get_params()["responses"] is generator.responses
    assert clone(generator).fingerprint() == generator.fingerprint()
    other = PrecomputedGenerator(PROMPTS, [RESPONSES[0], ["Madrid", "Madrid", "Madrid"]])
    assert other.fingerprint() != generator.fingerprint()
    assert generator.set_params(responses=other.responses).fingerprint() == other.fingerprint()


def test_rows_of_numbers_are_known_however_they_are_held():
    rows, said = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1, 2], [3, 4]])
    for generator in (
        PrecomputedGenerator(rows, said),
        PrecomputedGenerator([[1.0, 2.0], [3, 4]], said.tolist()),
    ):
        for prompts in (rows, rows.astype(np.float32), rows.tolist(), [(1, 2), (3, 4)]):
            assert responses(generator.sample(prompts, 2)) == said.tolist()
    assert generator.gives_logprobs is False
    assert PrecomputedGenerator(["a"], [[Generation("x", -1.0)]]).gives_logprobs is True


def test_rows_of_pandas_objects_count_by_position():
    index = [2, 0, 1]
    prompts = pd.Series(["a", "b", "c"], index=index)
    series = PrecomputedGenerator(prompts, pd.Series([["A"], ["B"], ["C"]], index=index))
    frames = PrecomputedGenerator(prompts, pd.DataFrame({"first": ["A", "B", "C"]}, index=index))
    wanted = [[Generation("A")], [Generation("B")], [Generation("C")]]
    for generator in (series, frames):
        assert generator.sample(["a", "b", "c"], 1) == wanted


def test_chats_of_a_parquet_file_are_known():
    chats = [[{"role": "user", "content": text}] for text in ("a", "b")]
    frame = pl.DataFrame({"prompt": chats, "response": ["A", "B"]})
    for held in (frame, frame.to_pandas()):
        generator = PrecomputedGenerator.from_frame(held)
        assert responses(generator.sample(chats, 1)) == [["A"], ["B"]]
        by_column = PrecomputedGenerator(held["prompt"], pl.Series([["A"], ["B"]]))
        assert responses(by_column.sample(chats, 1)) == [["A"], ["B"]]
    assert responses(by_column.sample(list(frame.to_pandas()["prompt"]), 1)) == [["A"], ["B"]]


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_rows_without_a_response_are_named(missing):
    frame = pd.DataFrame({"prompt": ["a"] * 40, "response": pd.Series(["x"] * 40, dtype=object)})
    frame.loc[[3, 17], "response"] = missing
    # what pandas makes of an empty answer is explained
    with pytest.raises(ValueError, match=r"row 3 of frame.*response.*keep_default_na=False"):
        PrecomputedGenerator.from_frame(frame)


def test_a_table_of_draws_is_printed_by_its_size():
    generator = PrecomputedGenerator(list("ab") * 50, [["secret"] * 3] * 100)
    assert repr(generator) == "PrecomputedGenerator(<100 prompts>)"
    assert "key='llama-8b'" in repr(generator.set_params(key="llama-8b"))
