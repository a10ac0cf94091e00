import re

import pytest

from tests.examples.loading import EXAMPLES, assert_disjoint, load, needs

needs("torch", "transformers", "matplotlib")

CHECKPOINT = EXAMPLES / "checkpoints" / "docstring_summaries"


@pytest.fixture
def few_docstrings(monkeypatch):
    """The docstrings of one small package instead of all."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from checkpoints.docstring_summaries import docstrings

    monkeypatch.setattr(docstrings, "PACKAGES", ("networkx",))
    return docstrings


def words(text):
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def test_parts_are_disjoint(few_docstrings):
    parts = {
        part: {words(d.summary) for d in few_docstrings.load_docstrings(part)}
        for part in ("train", "validation", "held_out")
    }
    assert all(len(summaries) > 10 for summaries in parts.values())
    assert_disjoint(parts.values())


def test_a_docstring_is_parted_from_its_summary(few_docstrings, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        'class SparseThing:\n    """Too short."""\n'
        "    def mean_degree(self, graph, *, weight=None):\n"
        '        """Return the mean degree of a\n        graph.\n\n'
        "        Parameters\n        ----------\n        graph : Graph\n            What to look "
        'at, with or without\n            weights.\n\n        >>> mean_degree(g)\n        """\n'
        'def order(x, y):\n    """Order of something else."""\n',
        encoding="utf-8",
    )
    assert list(few_docstrings._docstrings_in(path)) == [
        few_docstrings.Docstring("summarize: order(x, y):", "Order of something else.", False),
        few_docstrings.Docstring(
            "summarize: mean degree(graph): Parameters graph : Graph What to look at, with or "
            "without weights.",
            "Return the mean degree of a graph.",
            True,
        ),
    ]


@pytest.mark.slow
def test_reduced_run_writes_tables_and_figures(few_docstrings, monkeypatch, tmp_path, capsys):
    example = load(EXAMPLES / "summarization.py", monkeypatch)
    options = "--texts 120 --classifier-texts 60 --k-max 4 --trials 4"
    report = example.main([*options.split(), "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "120 texts to evaluate on, 60 to train a classifier on" in printed
    assert "differences to random" in printed
    assert report["results"].methods == ("first_k", "first_k_reject", "max", "sum")
    assert report["components"].methods == ("span likelihood", "classifier", "random")
    for suffix in ("risk.png", "components.png", "trials.csv", "component_trials.csv"):
        assert (tmp_path / f"summarization_{suffix}").stat().st_size > 1000


def test_classifier_and_evaluation_use_different_texts(few_docstrings, monkeypatch):
    example = load(EXAMPLES / "summarization.py", monkeypatch)
    (train_texts, _), (texts, references) = example.load_data(example.parse(["--texts", "100"]))
    assert len(texts) == len(references) == 100
    assert not set(train_texts) & set(texts)
