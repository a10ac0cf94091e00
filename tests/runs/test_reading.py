"""Runs from tables and logs, and pictures of gates."""

import json

import numpy as np
import pytest

from sklearn_clm.runs import GateDisplay, RunGate, read_runs

from .test_gate import MANY, MANY_SUCCEEDED, RUNS, SUCCEEDED

ROWS = [("a", 1, 0.9, 1), ("b", 1, 0.2, ""), ("a", 2, 0.8, 1), ("c", 2, 0.1, 0), ("c", 1, 0.3, 0)]
FOUND = ([[0.9, 0.8], [0.2], [0.3, 0.1]], [True, None, False])


def table(path, rows, names=("run", "step", "score", "success")):
    if path.suffix == ".csv":
        lines = [",".join(names), *(",".join(map(str, row)) for row in rows)]
    else:
        lines = [json.dumps(dict(zip(names, row))) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_table_with_a_step_in_a_row(tmp_path, suffix):
    assert read_runs(table(tmp_path / f"runs{suffix}", ROWS)) == FOUND


def test_names_of_columns_and_several_scores(tmp_path):
    rows = [("x", 1, [0.5, 2], "true"), ("x", 2, [0.6, 3], "true")]
    path = table(tmp_path / "runs.jsonl", rows, ("id", "n", "scores", "ok"))
    found = read_runs(path, run="id", step="n", score="scores", success="ok")
    assert found == ([[[0.5, 2.0], [0.6, 3.0]]], [True])


def test_what_is_read_is_what_a_gate_is_fitted_on(tmp_path):
    rows = [
        (f"run {i}", step, score, int(good))
        for i, (run, good) in enumerate(zip(RUNS, SUCCEEDED))
        for step, score in enumerate(run.tolist())
    ]
    gate = RunGate(alpha=0.2).fit(*read_runs(table(tmp_path / "runs.csv", rows)))
    assert gate.calibration_ == RunGate(alpha=0.2).fit(RUNS, SUCCEEDED).calibration_


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", 1, 0.9, 1), ("a", 1, 0.8, 1)], "line 3.* must be distinct numbers, got 1"),
        ([("a", "nan", 0.9, 1)], "line 2.* must be distinct numbers, got nan"),
        ([("a", 1, 0.9, 1), ("a", 2, 0.8, 0)], "line 3.* must succeed or fail, got both"),
        ([("a", 1, "high", 1)], "line 2.*could not convert"),
        ([("a", 1, 0.9, "perhaps")], "line 2.*must be a verdict, true or false, got 'perhaps'"),
    ],
)
def test_rows_that_do_not_fit_are_named(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        read_runs(table(tmp_path / "runs.csv", rows))


def test_a_lacking_column_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"must have columns .'reward'."):
        read_runs(table(tmp_path / "runs.csv", ROWS), score="reward")


def inspect_log(path, *, metadata=True, status="success", early_stops=()):
    """A log of Inspect of two epochs of a task with steps."""
    samples = []
    for i in range(4):
        messages = [{"role": "user", "content": "go"}]
        for step in range(2):
            said = {"role": "assistant", "content": "step"}
            messages.append(said | ({"metadata": {"p": 0.1 * i + step}} if metadata else {}))
        sample = {"id": i // 2, "epoch": i % 2 + 1, "input": "go", "target": "x"}
        sample |= {"messages": messages, "scores": {"match": {"value": "CI"[i % 2]}}}
        samples.append(sample)
    samples[3]["limit"] = {"type": "message", "limit": 2}
    crash = {"id": 2, "epoch": 1, "messages": [{"role": "user", "content": "go"}], "scores": {}}
    samples.append(crash | {"error": {"message": "before the first step"}})
    results = {"early_stopping": {"manager": "any", "early_stops": list(early_stops)}}
    path.write_text(json.dumps({"status": status, "results": results, "samples": samples}))
    return path


def test_a_log_that_stopped_samples_early_holds_no_random_runs(tmp_path):
    """A gate of which each sample has one success would forget those that succeed often."""
    stop = {"id": 1, "epoch": 3, "reason": "epoch 2 is admissible"}
    with pytest.raises(ValueError, match="must hold all epochs of its samples"):
        read_runs(inspect_log(tmp_path / "log.json", early_stops=[stop]), score="p")


def test_a_log_of_agents(tmp_path):
    runs, succeeded = read_runs(inspect_log(tmp_path / "log.json"), score="p")
    assert succeeded == [True, False, True, None]  # a limit ended the last
    for outcome in ("1", 1.0, True, "C", "0", 0, False, "I", "N", "", None):
        table(tmp_path / "one.jsonl", [("a", 1, 0.5, outcome)])
        expected = None if outcome in ("", None) else outcome in ("1", 1.0, "C")
        assert read_runs(tmp_path / "one.jsonl")[1] == [expected]
    np.testing.assert_allclose(runs, [[0.0, 1.0], [0.1, 1.1], [0.2, 1.2], [0.3, 1.3]])
    bare = inspect_log(tmp_path / "bare.json", metadata=False)
    with pytest.raises(ValueError, match="give scores_of"):
        read_runs(bare, score="p")
    with pytest.raises(ValueError, match="status 'success', got 'cancelled'"):
        read_runs(inspect_log(tmp_path / "part.json", status="cancelled"), score="p")
    counted, _ = read_runs(bare, scores_of=lambda sample: [len(sample["messages"])] * 2)
    assert counted == [[3, 3]] * 4 + [[1, 1]]


def test_pictures():
    pytest.importorskip("matplotlib")
    gate = RunGate(alpha=0.1)
    display = GateDisplay.from_estimator(
        gate, RUNS, SUCCEEDED, MANY, MANY_SUCCEEDED, alphas=[0.001, 0.1, 0.3]
    )
    failing, errors = display.shares.values()
    assert np.isnan(failing[0])  # too few runs for so small a share
    assert (errors[1:] <= display.alphas[1:]).all()
    shares, steps = display.axes_
    assert len(shares.lines) == 3
    stopped = gate.fit(RUNS, SUCCEEDED).stopped(MANY)
    assert sum(bar.get_height() for bar in steps.patches) == stopped.sum()
    passing = GateDisplay.from_estimator(
        RunGate(promise="passes"), RUNS, SUCCEEDED, MANY, MANY_SUCCEEDED, alphas=[0.2, 0.3]
    )
    assert (passing.shares["failing of those let through"] <= passing.alphas).all()
