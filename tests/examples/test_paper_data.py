"""The page on the paper's data: what needs no download runs, word for word."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BLOCKS = re.findall(r"```\n(.*?)```", (EXAMPLES / "paper_data.md").read_text("utf-8"), re.DOTALL)


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
    (commands,) = (block for block in BLOCKS if "sklearn_clm evaluate" in block)
    commands = commands.replace("--n-jobs -1", "--n-trials 3").replace(
        "python ", f"{sys.executable} "
    )
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, check=True, capture_output=True)
    for results in (tmp_path / "triviaqa_results", folder / "cnn_dm_results"):
        assert {"areas.txt", "curves.png", "trials.npz"} <= {
            file.name for file in results.iterdir()
        }
    assert np.array_equal(np.load(folder / "labels.npy"), right)


def test_the_scripts_take_the_options_of_the_page():
    pytest.importorskip("torch")
    (commands,) = (block for block in BLOCKS if "examples/open_domain_qa.py" in block)
    calls = re.findall(r"python (examples/\w+\.py) (.*?)(?=\npython|\Z)", commands, re.DOTALL)
    assert len(calls) == 3
    for script, options in calls:
        command = [sys.executable, EXAMPLES.parent / script, "--help"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"--[\w-]+", options)) <= set(re.findall(r"--[\w-]+", shown))
