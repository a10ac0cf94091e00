import importlib.util
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("babel")
pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHECKPOINT = EXAMPLES / "checkpoints" / "territory_names"


@pytest.fixture
def open_domain_qa(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    name = "examples_open_domain_qa"
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "open_domain_qa.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def write_questions(path, n):
    records = [{"prompt": f"Q: What is {i}? A:", "reference": f"{i}"} for i in range(n)]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return str(path)


def test_reduced_run_writes_tables_and_figures_and_draws_once(open_domain_qa, tmp_path, capsys):
    options = ["--questions", "150", "--k-max", "4", "--trials", "4", "--output", str(tmp_path)]
    report = open_domain_qa.main(options)
    printed = capsys.readouterr().out
    assert "150 questions, each behind the same 4-shot header" in printed
    assert "| max |" in printed
    assert "difference to sum" in printed
    for suffix in ("risk.png", "frontier.png", "band.png", "trials.csv", "trials.npz"):
        assert (tmp_path / f"open_domain_qa_{suffix}").stat().st_size > 1000
    assert report["results"].methods == ("first_k", "first_k_reject", "max", "sum")

    def refuse(*args, **kwargs):
        raise AssertionError("a second run drew again")

    from sklearn_clm.generators import TransformersGenerator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformersGenerator, "stream", refuse)
        again = open_domain_qa.main(options)
    assert (again["results"].first_k_error == report["results"].first_k_error).all()


def test_header_shows_no_question_that_is_asked(open_domain_qa, tmp_path):
    args = open_domain_qa.parse(["--shots", "5"])
    header, prompts, references = open_domain_qa.load_data(args)
    assert header.count("\n") == 5
    assert len(prompts) == len(references) >= 2000
    assert not any(prompt in header for prompt in prompts)

    path = write_questions(tmp_path / "questions.jsonl", 30)
    args = open_domain_qa.parse(["--data", path, "--shots", "3"])
    header, prompts, references = open_domain_qa.load_data(args)
    assert header.splitlines()[0] == "Q: What is 0? A: 0"
    assert len(prompts) == 27
    assert not any(prompt in header for prompt in prompts)


def test_data_of_no_more_than_the_header_is_refused(open_domain_qa, tmp_path):
    path = write_questions(tmp_path / "questions.jsonl", 4)
    with pytest.raises(SystemExit, match="no question is left behind --shots 4"):
        open_domain_qa.main(["--data", path])


def test_answers_and_aliases_end_where_the_authors_end_them(open_domain_qa, tmp_path):
    records = [
        {"prompt": f"Q: {i}? A:", "reference": ["St. Lucia, an island", f"{i}", ".net"]}
        for i in range(30)
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    args = open_domain_qa.parse(["--data", str(path)])
    assert args.stop == [".", ",", "\n"]
    references = open_domain_qa.load_data(args)[2]
    assert {aliases[0] for aliases in references} == {"St"}
    assert {aliases[2] for aliases in references} == {".net"}
