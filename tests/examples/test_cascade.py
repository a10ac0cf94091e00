"""The example of a cheap model, a dear one and a person."""

import pytest

from tests.examples.loading import EXAMPLES, load

pytest.importorskip("matplotlib")


@pytest.mark.slow
def test_a_cascade_then_answers_then_a_person(monkeypatch, tmp_path, capsys):
    example = load(EXAMPLES / "cascade.py", monkeypatch)
    found = example.main(["--output", str(tmp_path), "--epsilon", "0.15"])
    assert "<svg" in (tmp_path / "cascade.svg").read_text(encoding="utf-8")
    display, frame, right = found["display"], found["frame"], found["right"]
    assert display.at(0.15)["cascade"] > 0
    answered = (frame["by"] == "model").to_numpy()
    assert 100 < answered.sum() < 300
    assert right[~answered].all()
    assert (~right[answered]).mean() <= 0.15
    assert "draws of generator 2" in capsys.readouterr().out
