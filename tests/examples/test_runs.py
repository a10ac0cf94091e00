"""The example on runs, on a small table of the same columns."""

import numpy as np
import pytest

from tests.examples.loading import EXAMPLES, load, needs

needs("pandas")


def test_it_prints_what_is_stopped(tmp_path, monkeypatch, capsys):
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = []
    for i in range(500):
        succeeds = rng.random() < 0.6
        for step in range(1, 1 + rng.integers(2, 7)):
            score = rng.normal(succeeds, 1.0)
            rows.append((f"task_{i}", step, score, int(succeeds)))
    names = ["uq_problem_idx", "num_steps", "judge_probability", "solved"]
    path = tmp_path / "small_w_scores_compressed.csv.gz"
    pd.DataFrame(rows, columns=names).to_csv(path, index=False)
    example = load(EXAMPLES / "runs.py", monkeypatch)
    example.main([str(path), "--n", "250", "--splits", "2", "--new", "200"])
    header, _, line, *_ = capsys.readouterr().out.splitlines()
    assert header.startswith("| table | n | method |")
    table, n, method, failing, good, _, saved = line.strip("| ").split(" | ")
    assert (table, n, method) == ("small", "250", "RunGate")
    assert float(failing) > float(good)
    assert float(saved) == pytest.approx(0.1, abs=0.15)
