"""The checkpoints beside the examples: small, safe to load, trained on no held-out text."""

import sys

import pytest

from tests.examples.loading import EXAMPLES, load

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("babel")

CHECKPOINTS = EXAMPLES / "checkpoints"
TRAINED = {
    "territory_names": (
        "questions",
        "load_questions",
        transformers.AutoModelForCausalLM,
        "Q: What is Germany called in French? A: Allemagne\n",
    ),
    "docstring_summaries": (
        "docstrings",
        "load_docstrings",
        transformers.AutoModelForSeq2SeqLM,
        "Return the mean of x.",
    ),
}


@pytest.mark.parametrize("name", [*TRAINED, "digit_reports"])
def test_checkpoints_are_small_and_safe(name):
    from safetensors.torch import load_file

    folder = CHECKPOINTS / name
    assert load_file(folder / "model.safetensors")
    if name == "digit_reports":
        assert (folder / "model.safetensors").stat().st_size <= 2 * 2**20
        return
    assert sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) <= 2 * 2**20
    *_, auto_model, text = TRAINED[name]
    assert auto_model.from_pretrained(folder).num_parameters() < 1_000_000
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


@pytest.fixture(params=TRAINED)
def training(request, monkeypatch):
    """A script that trains, what it reads its texts with, and the class of its model."""
    module, reader, auto_model, _ = TRAINED[request.param]
    script = load(CHECKPOINTS / request.param / "train.py", monkeypatch)
    if module == "docstrings":  # of one small package instead of all
        monkeypatch.setattr(sys.modules[module], "PACKAGES", ("networkx",))
    return script, reader, auto_model


@pytest.mark.slow
def test_training_reads_nothing_that_is_held_out(training, monkeypatch, tmp_path):
    script, reader, auto_model = training
    read, whole = [], getattr(script, reader)

    def few(part):
        read.append(part)
        return whole(part)[:50]

    monkeypatch.setattr(script, reader, few)
    argv = ["train.py", "--no-compile", "--epochs", "1", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", [*argv, "--output", str(tmp_path)])
    script.main()
    assert set(read) == {"train", "validation"}
    assert auto_model.from_pretrained(tmp_path).num_parameters() < 1_000_000
