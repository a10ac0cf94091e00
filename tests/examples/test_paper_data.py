"""The page on the paper's data: what needs no download runs, word for word."""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sklearn_clm.evaluation import run_trials
from tests.evaluation.simulated import simulated_data
from tests.examples.loading import EXAMPLES, load, run

BLOCKS = re.findall(r"```\n(.*?)```", (EXAMPLES / "paper_data.md").read_text("utf-8"), re.DOTALL)


def test_the_program_writes_table_curves_and_figures(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    pd = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    data = simulated_data(600, 6)
    for name in ("quality", "admissible", "similarity"):
        np.save(f"{name}.npy", getattr(data, name))
    command = ["--scores", "quality.npy", "--labels", "admissible.npy", "--output", "out"]
    command += ["--similarity", "similarity.npy", "--n-trials", "3", "--n-lambdas", "5"]
    epsilons = [f"0.{i}" for i in range(1, 7)]
    command += ["--methods", "max", "first_k", "--epsilons", *epsilons]
    load(EXAMPLES / "paper_trials.py", monkeypatch).main(command)
    written = {"areas.txt", "band.png", "curves.csv", "curves.png", "trials.csv"}
    assert {path.name for path in Path("out").iterdir()} == written
    expected = run_trials(
        data, ("max", "first_k"), np.arange(1, 7) / 10, n_trials=3, n_lambdas=5, random_state=0
    )
    assert pd.read_csv("out/trials.csv")["loss"].equals(expected.to_frame()["loss"])
    table = Path("out", "areas.txt").read_text(encoding="utf-8")
    assert f"{expected.auc('loss')[0].mean():.4f}" in table
    # a last digit of 5 may be rounded either way
    assert f"{expected.compare('first_k', 'max', 'draws').mean():.4f}"[:-1] in table
    assert table in capsys.readouterr().out
    with open("out/curves.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 6
    last = rows[5]
    assert (last["method"], float(last["epsilon"]), float(last["null"])) == ("max", 0.6, 0.0)
    assert float(last["loss_mean"]) == pytest.approx(expected.mean("loss")[0, -1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_commands_for_the_authors_arrays(tmp_path):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    n, k_max = 300, 20
    scores, similarity = rng.random((n, k_max)), rng.random((n, k_max, k_max))
    right = rng.random((n, k_max)) < 0.6 * scores
    folder = tmp_path / "triviaqa"
    folder.mkdir()
    np.save(folder / "all_prob_scores.npy", scores)
    np.save(folder / "all_losses.npy", 1.0 - right)
    np.save(folder / "diversity.npy", similarity)
    folder = tmp_path / "xl_topp095_temp07"
    folder.mkdir()
    np.save(folder / "scores.npy", scores.astype(object), allow_pickle=True)
    np.save(folder / "losses.npy", np.where(right, 0.65, 0.9).astype(object), allow_pickle=True)
    np.save(folder / "diversity_rouge_scores.npy", similarity.astype(object), allow_pickle=True)
    (commands,) = (block for block in BLOCKS if "paper_trials.py" in block)
    commands = commands.replace("--n-jobs -1", "--n-trials 3").replace(
        "python ", f"{sys.executable} "
    )
    environment = {**os.environ, "HERE": str(EXAMPLES.parent)}
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, check=True, env=environment)
    for results in (tmp_path / "triviaqa_results", folder / "cnn_dm_results"):
        assert {"areas.txt", "curves.png", "trials.csv"} <= {
            file.name for file in results.iterdir()
        }
    assert np.array_equal(np.load(folder / "labels.npy"), right)


@pytest.mark.slow
def test_the_scripts_take_the_options_of_the_page():
    pytest.importorskip("torch")
    (commands,) = (block for block in BLOCKS if "examples/open_domain_qa.py" in block)
    calls = re.findall(r"python (examples/\w+\.py) (.*?)(?=\npython|\Z)", commands, re.DOTALL)
    assert len(calls) == 3
    for script, options in calls:
        shown = run(EXAMPLES.parent / script, "--help")
        assert set(re.findall(r"--[\w-]+", options)) <= set(re.findall(r"--[\w-]+", shown))
