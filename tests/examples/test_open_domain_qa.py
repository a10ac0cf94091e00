import json

import pytest

from tests.examples.loading import EXAMPLES, assert_disjoint, load, needs, no_new_draws

needs("torch", "transformers", "babel", "matplotlib")

CHECKPOINT = EXAMPLES / "checkpoints" / "territory_names"


@pytest.fixture
def open_domain_qa(monkeypatch):
    return load(EXAMPLES / "open_domain_qa.py", monkeypatch)


@pytest.fixture
def language_families(monkeypatch):
    return load(EXAMPLES / "language_families.py", monkeypatch)


@pytest.fixture(scope="module")
def questions():
    """Imported once: reading the names takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        return load(CHECKPOINT / "questions.py", patch)


def write_questions(path, reference):
    records = [{"prompt": f"Q: What is {i}? A:", "reference": reference(i)} for i in range(30)]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_reduced_run_writes_tables_and_figures_and_draws_once(open_domain_qa, tmp_path, capsys):
    options = ["--questions", "150", "--k-max", "4", "--trials", "4", "--output", str(tmp_path)]
    report = open_domain_qa.main(options)
    printed = capsys.readouterr().out
    assert "150 questions, each behind the same 4-shot header" in printed
    assert "Normalised areas under the curves" in printed
    assert "differences to sum" in printed
    for suffix in ("risk.png", "frontier.png", "band.png", "trials.csv"):
        assert (tmp_path / f"open_domain_qa_{suffix}").stat().st_size > 1000
    assert report["results"].methods == ("first_k", "first_k_reject", "max", "sum")
    with no_new_draws():
        again = open_domain_qa.main(options)
    assert again["results"].to_frame().equals(report["results"].to_frame())


def test_header_shows_no_question_that_is_asked(open_domain_qa, tmp_path):
    args = open_domain_qa.parse(["--shots", "5"])
    header, prompts, references = open_domain_qa.load_data(args)
    assert header.count("\n") == 5
    assert len(prompts) == len(references) >= 2000
    assert not any(prompt in header for prompt in prompts)

    path = write_questions(tmp_path / "questions.jsonl", str)
    args = open_domain_qa.parse(["--data", path, "--shots", "3"])
    header, prompts, references = open_domain_qa.load_data(args)
    assert header.splitlines()[0] == "Q: What is 0? A: 0"
    assert len(prompts) == 27
    assert not any(prompt in header for prompt in prompts)


def test_answers_and_aliases_end_where_the_authors_end_them(open_domain_qa, tmp_path):
    aliases = ["St. Lucia, an island", "1", ".net"]
    path = write_questions(tmp_path / "questions.jsonl", lambda i: aliases)
    args = open_domain_qa.parse(["--data", path])
    assert args.stop == [".", ",", "\n"]
    references = open_domain_qa.load_data(args)[2]
    assert {aliases[0] for aliases in references} == {"St"}
    assert {aliases[2] for aliases in references} == {".net"}


def test_parts_are_disjoint_and_large_enough(questions):
    parts = {part: questions.load_questions(part) for part in ("train", "validation", "held_out")}
    pairs = {
        part: {(q.territory, q.language) for q in asked} | {q.prompt for q in asked}
        for part, asked in parts.items()
    }
    assert_disjoint(pairs.values())
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


def test_every_family_has_languages_that_are_asked_for(language_families, questions):
    held_out = questions.load_questions("held_out")
    asked = {q.language: language_families.family_of(q.prompt) for q in held_out}
    for family, codes in language_families.FAMILIES.items():
        assert set(codes.split()) <= set(questions.LANGUAGES)
        assert {asked[code] for code in codes.split() if code in asked} == {family}
    assert {"others", *language_families.FAMILIES} == set(asked.values())


@pytest.mark.slow
def test_a_guarantee_within_families_of_languages(language_families, tmp_path, capsys):
    options = ["--questions", "160", "--k-max", "4", "--epsilon", "0.9", "--output", str(tmp_path)]
    found = language_families.main(options)
    assert {"Romance", "Germanic"} <= set(found)
    assert (tmp_path / "language_families.svg").stat().st_size > 1000
    assert "| Romance | " in capsys.readouterr().out
