"""The worked example of an audit: verdicts of people on answers of a real model."""

import pytest

from tests.examples.loading import EXAMPLES, load


@pytest.mark.slow
def test_a_hundred_verdicts_certify_as_often_as_people_alone_with_240(monkeypatch, capsys):
    example = load(EXAMPLES / "audited_judge.py", monkeypatch)
    found = example.main(["--trials", "20"])
    audited, alone = found["classifier", "two-phase", 100], found["classifier", "people", 240]
    assert audited >= alone - 0.1
    assert audited > found["classifier", "people", 100] + 0.1
    assert found["classifier", "betting", 240] >= alone
    assert found["word for word", "two-phase", 100] == 0
    printed = capsys.readouterr().out
    assert "Pilot, classifier: Two phases are better" in printed
    assert "Pilot, word for word: People alone are better" in printed
    assert "The page: Decided after at most 100 more." in printed
    assert "100 verdicts later: With confidence 95 %" in printed
