"""The example on images: its data, its parts, and a short run of the whole."""

import json
import sys

import numpy as np
import pytest

from tests.examples.loading import EXAMPLES, load, needs, no_new_draws

needs("torch", "transformers", "matplotlib")

CHECKPOINT = EXAMPLES / "checkpoints" / "digit_reports"


@pytest.fixture
def example(monkeypatch):
    return load(EXAMPLES / "report_generation.py", monkeypatch)


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


@pytest.fixture
def tasks(example):
    return sys.modules["_protocols.report_tasks"]


def test_component_admission(tasks):
    report = "The first digit is a one. The second one reads 2. On the far right there is a 4."
    assert tasks.states_the_right_digit(report, "In position 2 we see a two.")
    assert not tasks.states_the_right_digit(report, "In position 2 we see a three.")
    assert not tasks.states_the_right_digit(report, "In position 3 we see a three.")
    assert not tasks.states_the_right_digit(report, "We see a two.")


def test_sentences_that_state_the_same(tasks):
    assert tasks.states_the_same("The second one reads 2.", "In position 2 we see a two.")
    assert not tasks.states_the_same("The second one reads 2.", "The second one reads 3.")
    assert not tasks.states_the_same("Nothing.", "Nothing.")


@pytest.mark.slow
def test_a_short_run_draws_once(example, tmp_path, capsys):
    options = ["--images", "150", "--k-max", "4", "--trials", "4"]
    report = example.main([*options, "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "150 x 4 draws made and judged" in printed
    assert "differences to sum" in printed
    assert "differences to span likelihood" in printed
    for suffix in ("risk.png", "frontier.png", "components.png", "component_trials.csv"):
        assert (tmp_path / f"report_generation_{suffix}").stat().st_size > 1000
    assert report["results"].methods == ("first_k", "first_k_reject", "max", "sum")
    components = report["components"]
    assert components.methods == ("span likelihood", "classifier", "random")
    assert 0.2 < components.measures["recall"].max() < 1.0
    with no_new_draws():
        again = example.main([*options, "--output", str(tmp_path)])
    assert again["components"].to_frame().equals(components.to_frame())


@pytest.fixture
def folder(strips, tmp_path):
    """Strips as image files, with a file of reports about them."""
    images, labels = strips.draw_strips(150, part="unseen", random_state=3)
    (tmp_path / "images").mkdir()
    records = []
    for i, (image, digits) in enumerate(zip(images, labels)):
        image.save(tmp_path / "images" / f"{i}.png")
        records.append({"image": f"images/{i}.png", "reference": strips.write_report(digits, i)})
    text = "\n".join(map(json.dumps, records)) + "\n"
    (tmp_path / "reports.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_images_and_labeler_of_ones_own(example, folder, capsys):
    example.main(
        ["--data", str(folder / "reports.jsonl"), "--model", str(CHECKPOINT)]
        + ["--labeler", "checkpoints.digit_reports.strips:read_report"]
        + ["--classifier-images", "30", "--images", "100", "--k-max", "3", "--trials", "3"]
        + ["--output", str(folder / "output")]
    )
    assert "100 x 3 draws made and judged" in capsys.readouterr().out


def test_reports_of_a_file_are_judged_as_documented(tasks, folder):
    by_rouge, by_labels = (
        tasks.file_task(folder / "reports.jsonl", 100, 30, labeler, 16, 0)
        for labeler in (None, "checkpoints.digit_reports.strips:read_report")
    )
    assert by_rouge.reports == by_labels.reports
    assert len(by_rouge.images) == 100
    assert {image.size for image in by_rouge.images} == {(16, 4)}
    truth = by_rouge.reports[0]
    digits = sys.modules["checkpoints.digit_reports.strips"].read_report(truth)
    reworded = tasks.write_report(digits, 99)
    other = tasks.write_report([(digit + 1) % 10 for digit in digits], 99)
    assert by_labels.admission(truth, reworded)
    assert not by_labels.admission(truth, other)
    # ROUGE-L looks at words, which reports about other digits share
    assert by_rouge.admission(truth, other)
    assert not by_rouge.admission(truth, "Nothing of the kind.")
    # words are stemmed, for sentences too
    assert by_rouge.admission("the lungs cleared", "a lung clearing")
    assert by_rouge.sentence_admission("The lungs cleared.", "A lung clearing.")


def test_classifier_and_evaluation_use_different_images(tasks, folder, monkeypatch):
    task = tasks.file_task(folder / "reports.jsonl", 200, 30, None, 384, 0)
    assert len(task.images) == len(task.reports) == 120
    seen = []

    def note(generator, images, reports, features, *, n_samples, seed):
        seen.extend(image.tobytes() for image in images)

    monkeypatch.setattr(tasks, "train_sentence_classifier", note)
    task.train(None, 3, 0)
    assert len(seen) == 30
    assert not {image.tobytes() for image in task.images} & set(seen)
