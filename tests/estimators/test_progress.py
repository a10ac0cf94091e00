"""Progress counts draws and verdicts as they arrive."""

import functools
import re

import numpy as np
import pytest

from tests import toy
from tests.toy import questions

N_FIT = 150


X, y = questions(N_FIT)


toy_sampler = functools.partial(toy.toy_sampler, k_max=8, epsilon=0.3, random_state=3)


def stages(shown):
    """The stages that are over, each once: what is done, of how much."""
    lines = re.findall(r"(\w+): 100%\|.*?\| (\d+)/(\d+) ", shown.replace("\r", "\n"))
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_progress_counts_what_each_stage_does(judging, capsys):
    X, y = questions(40)
    sampler = toy_sampler(verbose=1, k_max=3, epsilon=0.5, judging=judging).fit(X, y)
    done = {stage: (int(n), int(of)) for stage, n, of in stages(capsys.readouterr().err)}
    assert done.keys() == {"collect", "score", "judge", "calibrate"}
    assert all(n == of for n, of in done.values())
    if judging == "all":
        assert done["collect"] == done["score"] == (120, 120)
        texts = sampler.calibration_data_.texts
        assert done["judge"][0] == sum(len(set(row)) for row in texts.tolist())

    sampler.predict(X[:4])
    assert stages(capsys.readouterr().err) == [("predict", "4", "4")]
    sampler.set_params(verbose=0).fit(X, y).predict(X[:4])
    assert capsys.readouterr().err == ""


def test_progress_counts_verdicts_as_they_arrive(monkeypatch):
    counted, before = [], []
    monkeypatch.setattr(
        "sklearn_clm._estimators._progress.Progress.advance",
        lambda self, stage, n=1, **beside: counted.append(stage),
    )

    class Judge:
        def __call__(self, reference, response):
            return reference == response

        def judge_pairs(self, references, responses):
            for k, (reference, response) in enumerate(zip(references, responses)):
                before.append(counted.count("judge"))
                yield k, reference == response

    toy_sampler(k_max=3, epsilon=0.5, admission=Judge()).fit(*questions(40))
    assert np.diff(before).tolist().count(1) > 0.9 * len(before)
