"""The example of a small model, a large one and a person."""

import pytest

from tests.examples.loading import EXAMPLES, load, no_new_draws

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("babel")
pytest.importorskip("matplotlib")


@pytest.mark.slow
def test_a_cascade_then_answers_then_a_person(monkeypatch, tmp_path, capsys):
    example = load(EXAMPLES / "cascade.py", monkeypatch)
    options = ["--questions", "700", "--epsilon", "0.4", "--alpha", "0.2"]
    options += ["--output", str(tmp_path)]
    found = example.main(options)
    assert "<svg" in (tmp_path / "cascade.svg").read_text(encoding="utf-8")
    assert found["display"].at(0.4)["cascade"] > 0
    prompts, references = (part[-300:] for part in example.load_data(example.parse(options)))
    frame = found["frame"]
    assert frame["prompt"].tolist() == prompts
    answered = (frame["by"] == "model").to_numpy()
    assert 30 < answered.sum() < 300
    for i in (~answered).nonzero()[0]:
        assert frame["response"][i] == references[i][0]
    assert found["wrong"] / answered.sum() <= 0.3
    printed = capsys.readouterr().out
    assert "draws of generator 2" in printed
    assert "nan" not in printed
    with no_new_draws():
        example.main(options)
    assert capsys.readouterr().out == printed
