"""Curves of a real language model over all levels of risk."""

import numpy as np
import pytest

from tests.examples.loading import EXAMPLES, load

pytest.importorskip("matplotlib")


@pytest.mark.slow
def test_promises_hold_at_every_level(monkeypatch, tmp_path):
    example = load(EXAMPLES / "risk_curves.py", monkeypatch)
    found = example.main(["--splits", "4", "--levels", "5", "--output", str(tmp_path)])
    floor, first = found["band"]
    assert 0 < floor < 0.2 < 0.4 < first
    for policy in found["sets"].values():
        certified = np.isfinite(policy["loss"])
        assert certified.sum() >= 4
        # 4 times 297 new questions, of which some are the same: 5 standard errors
        assert (policy["loss"] <= found["levels"] + 0.07)[certified].all()
        assert (np.diff(policy["size"][certified]) <= 0.2).all()
    sizes = [found["sets"][name]["size"] for name in ("FIRST-K", "exit policy")]
    assert np.nanmean(sizes[1]) < 0.6 * np.nanmean(sizes[0])
    answers = found["answers"]
    certified = np.isfinite(answers["loss"])
    assert certified.sum() >= 3
    assert (answers["loss"] <= found["alphas"] + 0.08)[certified].all()
    assert np.nanmax(answers["size"]) > 0.8
    sentences = found["sentences"]
    # NaN where some split certifies nothing
    assert np.nanmax(sentences.mean("loss") - sentences.levels) <= 0.02
    learnt, likelihood = sentences.mean("number")
    both = np.isfinite(learnt) & np.isfinite(likelihood)
    assert (learnt > likelihood)[both].mean() > 0.8
    for name in ("sets", "answers", "sentences"):
        assert "<svg" in (tmp_path / f"smollm2_{name}.svg").read_text("utf-8")
