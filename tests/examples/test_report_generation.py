"""The example on images: its data, its parts, and a short run of the whole."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHECKPOINT = EXAMPLES / "checkpoints" / "digit_reports"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    path = EXAMPLES / "report_generation.py"
    spec = importlib.util.spec_from_file_location("examples_report_generation", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def strips(example):
    return sys.modules["checkpoints.digit_reports.strips"]


def test_every_finding_in_every_wording_is_read_back(strips):
    for position in range(strips.N_DIGITS):
        for digit in range(10):
            for wording in range(len(strips.WORDINGS)):
                text = strips.word_finding(position, digit, wording)
                assert strips.read_sentence(text) == (position, digit)
    for text in ("", "The first digit is a.", "The fifth digit is a one.", "One is a digit."):
        assert strips.read_sentence(text) is None


def test_reports_are_read_back(strips):
    rng = np.random.default_rng(0)
    for _ in range(50):
        digits = tuple(rng.integers(10, size=4).tolist())
        assert strips.read_report(strips.write_report(digits, rng)) == digits
    assert strips.read_report("The first digit is a one. The first one reads 2.") == (-1,) * 4
    assert strips.read_report("The second digit is a one.") == (-1, 1, -1, -1)


def test_digits_of_training_never_occur_in_unseen_strips(strips):
    images = {}
    for part in ("training", "unseen"):
        clean = strips.load_digits().data[strips.part_of_digits(part)]
        images[part] = {image.tobytes() for image in clean}
    assert len(images["training"]) > 800 < len(images["unseen"])
    assert not images["training"] & images["unseen"]


def test_strips_are_those_of_their_seed(strips):
    first, labels = strips.draw_strips(3, part="unseen", random_state=4)
    again, _ = strips.draw_strips(3, part="unseen", random_state=4)
    assert [strip.tobytes() for strip in first] == [strip.tobytes() for strip in again]
    assert first[0].size == (32, 8)
    assert labels.shape == (3, 4)


def test_component_admission(example):
    report = "The first digit is a one. The second one reads 2. On the far right there is a 4."
    assert example.states_the_right_digit(report, "In position 2 we see a two.")
    assert not example.states_the_right_digit(report, "In position 2 we see a three.")
    assert not example.states_the_right_digit(report, "In position 3 we see a three.")
    assert not example.states_the_right_digit(report, "We see a two.")


def test_checkpoint_is_small():
    assert (CHECKPOINT / "model.safetensors").stat().st_size <= 2 * 2**20


def test_short_run(example, tmp_path, capsys):
    results = example.main(
        ["--calibration", "100", "--test", "30", "--k-max", "4", "--epsilon", "0.6"]
        + ["--alpha", "0.4", "--show", "2", "--output", str(tmp_path)]
    )
    printed = capsys.readouterr().out
    assert "both at once with 90%" in printed
    assert {"coverage", "component_coverage"} <= set(results)
    assert results["coverage"] > 0.2
    assert results["component_precision"] > 0.8
    page = (tmp_path / "report_generation.html").read_text("utf-8")
    assert page.count("<section>") == 2
    assert "<b title=" in page
    assert (tmp_path / "report_generation.png").stat().st_size > 10_000
