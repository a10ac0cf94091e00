"""The worked example of a search over k_max, on fewer candidates."""

import pytest

from tests.examples.loading import EXAMPLES, load

pytest.importorskip("matplotlib")


@pytest.fixture
def example(monkeypatch):
    return load(EXAMPLES / "grid_search_k_max.py", monkeypatch)


@pytest.mark.slow
def test_the_example_runs_and_draws_its_figure(example, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(example, "BUDGETS", [2, 6])
    monkeypatch.setattr(example, "EPSILONS", [0.1, 0.3])
    monkeypatch.setattr(example, "N_FOLDS", 2)
    results = example.main(["--figure", str(tmp_path / "figure.svg")])
    assert "<svg" in (tmp_path / "figure.svg").read_text()
    assert set(results) == {0.1, 0.3}
    assert results[0.3]["searched_coverage"] > 0.65
    printed = capsys.readouterr().out
    assert "found" in printed
    assert "k_max=[...]" in printed
