"""The example of three systems in order of price, and a person."""

import numpy as np
import pytest

from tests.examples.loading import EXAMPLES, load

pytest.importorskip("matplotlib")


@pytest.mark.slow
def test_a_cascade_then_answers_then_a_person(monkeypatch, tmp_path):
    example = load(EXAMPLES / "cascade.py", monkeypatch)
    options = ["--output", str(tmp_path)]
    found = example.main(options)
    svg = (tmp_path / "cascade.svg").read_text("utf-8")
    assert "<svg" in svg
    prices = found["prices"].curves
    assert list(prices) == ["cascade", "FiD alone", "GPT-3.5 alone", "GPT-4 alone"]
    # curves that show something: ten levels or more, and never above the dearest system
    assert np.isfinite(prices["cascade"]).sum() >= 10
    both = np.isfinite(prices["cascade"]) & np.isfinite(prices["GPT-4 alone"])
    assert (prices["cascade"][both] < 0.5 * prices["GPT-4 alone"][both]).all()
    assert np.isfinite(found["answers"].curves["answered"]).sum() >= 10

    new = example.read_lines(0)[-example.N_NEW :]
    frame = found["frame"]
    assert frame["prompt"].tolist() == [line["question"] for line in new]
    answered = (frame["by"] == "model").to_numpy()
    assert 300 < answered.sum() < 600
    for i in (~answered).nonzero()[0]:
        assert frame["response"][i] == new[i]["references"][0]
    # at most 5 % are promised; 9 % of 450 have a chance of 1 in 5,000
    assert found["wrong"] / answered.sum() <= 0.09
