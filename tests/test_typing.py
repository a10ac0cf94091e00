"""The types as a program outside of the package sees them."""

import subprocess
import sys

import pytest

PROGRAM = """
from collections.abc import Sequence

from sklearn_clm import ComponentSelector, ConformalSampler, PredictionSet, PredictionSets
from sklearn_clm.calibration import CalibrationData, learn_then_test
from sklearn_clm.generators import BaseGenerator, Generation, PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport


class Echo(BaseGenerator):
    def sample(
        self, prompts: Sequence[str], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        return [[Generation(prompt)] * n_samples for prompt in prompts]


def numbers_agree(reference: str, response: str) -> bool:
    return float(reference) == float(response)


sampler = ConformalSampler(Echo(), k_max=3, admission=numbers_agree, quality="self_consistency")
sets: PredictionSets = sampler.fit(["1"], ["1"]).predict(["2"])
one: PredictionSet = sets[0]
few: PredictionSets = sets[:2]
size: int = len(one.responses) + one.n_samples
selector = ComponentSelector(sampler, alpha=0.1)
text: str = CalibrationReport.from_estimator(sampler).to_markdown()
data = CalibrationData.load("draws.npz")
result = learn_then_test(data, epsilon=0.3, delta=0.05)
generator = PrecomputedGenerator(["a"], [["b"]])
"""


@pytest.mark.slow
def test_a_typed_program_passes_strict_checks(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(
        "from sklearn_clm import ConformalSampler\n"
        'ConformalSampler(k_max=3).predict(["a"]).shape.nothing\n'
        'number: int = ConformalSampler().predict(["a"])\n',
        encoding="utf-8",
    )
    # what the package only uses is not looked at, which would take minutes
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nignore_missing_imports = true\n"
        "[mypy-torch.*,transformers.*,openai.*,matplotlib.*,pandas.*,selenium.*]\n"
        "follow_imports = skip\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental"]
    done = subprocess.run(
        [*command, "program.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert not [line for line in lines if line.startswith("program.py")], done.stdout
    # had the package no types, everything would be Any, and nothing wrong
    assert len([line for line in lines if line.startswith("wrong.py")]) == 2, done.stdout
