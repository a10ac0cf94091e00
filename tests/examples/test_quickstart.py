import importlib.util
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("babel")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHECKPOINT = EXAMPLES / "checkpoints" / "territory_names"


def load(name, path, monkeypatch):
    """Import a script under a name of its own, as if run from its folder."""
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def quickstart(monkeypatch):
    return load("examples_quickstart", EXAMPLES / "quickstart.py", monkeypatch)


@pytest.fixture
def questions(monkeypatch):
    return load("territory_questions", CHECKPOINT / "questions.py", monkeypatch)


def write_lines(path, records):
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return str(path)


def test_reduced_run_reports_rule_guarantee_and_test(quickstart, capsys):
    options = "--calibration 150 --test 100 --k-max 10 --epsilon 0.6 --show 3"
    results = quickstart.main(options.split())
    printed = capsys.readouterr().out
    assert "lambda-hat: keep an answer" in printed
    assert "with probability at least 40%" in printed
    assert "with confidence 95% over the 150 calibration questions" in printed
    assert printed.count("called in") == 3
    assert results["n_test"] == 100
    # far below what was asked for: only chance, or a broken model or rule, could get there
    assert results["coverage"] > 0.25
    assert 0 < results["mean_size"] <= results["mean_draws"] < 10


def test_model_and_data_of_the_user(quickstart, questions, tmp_path, capsys):
    records = [
        {"prompt": q.prompt, "reference": q.answers[0] if i % 2 else list(q.answers)}
        for i, q in enumerate(questions.load_questions("held_out")[:120])
    ]
    path = write_lines(tmp_path / "questions.jsonl", records)
    results = quickstart.main(
        ["--model", str(CHECKPOINT), "--data", path, "--k-max", "5", "--epsilon", "0.6"]
    )
    assert "calibrating on 60, testing on 60" in capsys.readouterr().out
    assert results["n_test"] == 60


def test_too_strict_epsilon_says_that_nothing_is_guaranteed(quickstart, capsys):
    options = "--calibration 60 --test 10 --k-max 2 --epsilon 0.01 --show 0"
    with pytest.warns(UserWarning, match="epsilon"):
        results = quickstart.main(options.split())
    assert "No rule could be certified" in capsys.readouterr().out
    assert results["mean_draws"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no question"),
        ("{not json", "line 1: not JSON"),
        ('{"prompt": "Q"}', "line 1: .*wanted"),
        ('\n{"prompt": "Q", "reference": []}', "line 2: empty or not a text"),
        ('{"prompt": "Q", "reference": 3}', "line 1: empty or not a text"),
        ('["Q", "A"]', "line 1: .*wanted"),
    ],
)
def test_bad_data_is_named(quickstart, tmp_path, text, message):
    path = tmp_path / "questions.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=message):
        quickstart.main(["--data", str(path)])


def test_missing_file_and_bad_options_are_named(quickstart, tmp_path, capsys):
    with pytest.raises(SystemExit, match="No such file"):
        quickstart.main(["--data", str(tmp_path / "nowhere.jsonl")])
    for option, value, message in [
        ("--epsilon", "1.5", "not between 0 and 1"),
        ("--delta", "0", "not between 0 and 1"),
        ("--calibration", "0", "not at least 1"),
        ("--k-max", "many", "invalid"),
    ]:
        with pytest.raises(SystemExit):
            quickstart.main([option, value])
        assert message in capsys.readouterr().err


def test_parts_are_disjoint_and_large_enough(questions):
    parts = {part: questions.load_questions(part) for part in ("train", "validation", "held_out")}
    pairs = {
        part: {(q.territory, q.language) for q in asked} | {q.prompt for q in asked}
        for part, asked in parts.items()
    }
    assert not pairs["train"] & pairs["held_out"]
    assert not pairs["validation"] & pairs["held_out"]
    assert not pairs["train"] & pairs["validation"]
    assert len(parts["held_out"]) >= 3500
    assert all(q.answers and all(q.answers) for asked in parts.values() for q in asked)


def test_variants_of_a_language_are_aliases(questions):
    by_pair = {
        (q.territory, q.language): q.answers
        for part in ("train", "validation", "held_out")
        for q in questions.load_questions(part)
    }
    assert by_pair["DE", "fr"] == ("Allemagne",)
    assert {"Vietname", "Vietnã"} == set(by_pair["VN", "pt"])


def test_checkpoint_is_small_and_safe(questions):
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    sizes = {path.name: path.stat().st_size for path in CHECKPOINT.iterdir() if path.is_file()}
    assert sum(sizes.values()) <= 2 * 2**20
    assert load_file(CHECKPOINT / "model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(CHECKPOINT)
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    assert type(model).__name__ == "LlamaForCausalLM"
    question = questions.load_questions("held_out")[100]
    text = f"{question.prompt} {question.answers[0]}\n"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_training_reads_no_held_out_question(questions, monkeypatch, tmp_path):
    from transformers import AutoModelForCausalLM

    train = load("territory_train", CHECKPOINT / "train.py", monkeypatch)
    read = []

    def few(part):
        read.append(part)
        return questions.load_questions(part)[:60]

    monkeypatch.setattr(train, "load_questions", few)
    argv = ["train.py", "--no-compile", "--epochs", "1", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", [*argv, "--output", str(tmp_path)])
    train.main()
    assert set(read) == {"train", "validation"}
    assert AutoModelForCausalLM.from_pretrained(tmp_path).num_parameters() < 1_000_000
