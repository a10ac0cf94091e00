"""Sentences that people judge: few are needed, and the threshold is that of all labels."""

import re

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.caching import HumanJudge, VerdictsWanted
from sklearn_clm.generators import Generation, draw_stream
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.judging import JudgingSession
from tests.judging.test_calibration import judge_all
from tests.toy import Answering

WORDS = ("sun", "rain", "snow", "fog", "wind", "hail")
PROMPTS = [f"day {i}" for i in range(40)]


def forecast(prompt, draw):
    """Two sentences, the later ones in the list of words more often wrong."""
    first, second = draw_stream(prompt, 0, draw).integers(0, len(WORDS), 2)
    return Generation(f"There is {WORDS[first]}. Then comes {WORDS[second]}.", -1.0, 1)


def score(prompt, sentence):
    return -WORDS.index(re.findall(r"\w+", sentence)[-1]) + len(sentence) / 100


def is_right(prompt, sentence):
    number = WORDS.index(re.findall(r"\w+", sentence)[-1])
    return draw_stream(prompt, 7, number).random() > 0.05 * number


def rule(asked, sentence):
    return is_right(asked.prompt, sentence)


@pytest.fixture(scope="module")
def sampler():
    parts = {"quality": "self_consistency", "admission": rule}
    sampler = ConformalSampler(Answering(forecast), k_max=4, epsilon=0.5, **parts)
    return sampler.fit(PROMPTS, asked(HumanJudge("")))


def asked(judge):
    return judge.asked(PROMPTS)


def selecting(sampler, judge, judging="all"):
    parts = {"component_score": score, "admission": judge}
    return ComponentSelector(sampler, alpha=0.4, judging=judging, **parts)


def by_rule(sampler, judging="all"):
    return selecting(sampler, rule, judging).fit(PROMPTS, asked(HumanJudge("")))


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_the_threshold_is_that_of_the_same_verdicts_as_a_table(sampler, judge, judging):
    selector = selecting(sampler, judge, judging)
    session = JudgingSession(judge, lambda: selector.fit(PROMPTS, asked(judge)).gamma_hat_)
    turn = session.turn()
    bounds = []
    while turn.pair is not None:
        sentence, context = turn.pair.response, turn.pair.asked.context
        assert context.response[context.start : context.stop] == sentence
        assert len(context.response) > len(sentence)
        bounds.append(turn.n_more)
        turn = session.act(turn.pair.id, "ny"[is_right(turn.pair.asked.prompt, sentence)])
    assert turn.notice == ""
    full = by_rule(sampler)
    assert np.isfinite(full.gamma_hat_)
    assert selector.gamma_hat_ == full.gamma_hat_
    assert turn.conclusion == str(full.gamma_hat_)
    n = full.calibration_data_.n_components
    assert turn.n_judged == len(judge.history()) == selector.n_judgements_
    assert selector.n_judgements_ == n if judging == "all" else selector.n_judgements_ < 0.7 * n
    # what is said to be left is never exceeded
    assert (np.diff(bounds) <= -1).all()
    assert bounds[-1] >= 1
    assert selector.predict(PROMPTS[:5]) == full.predict(PROMPTS[:5])
    text = CalibrationReport.from_estimator(selector).to_markdown()
    assert ("of these judged" in text) == (judging == "lazy")


def test_any_judge_may_be_lazy(sampler):
    lazy, full = by_rule(sampler, judging="lazy"), by_rule(sampler)
    assert lazy.gamma_hat_ == full.gamma_hat_
    assert lazy.n_judgements_ < 0.7 * full.n_judgements_
    data = lazy.calibration_data_
    assert data.unknown is not None
    # another alpha asks for more of the same components
    lazy.set_params(alpha=0.5).calibrate(data)
    full.set_params(alpha=0.5).calibrate(full.calibration_data_)
    assert lazy.gamma_hat_ == full.gamma_hat_
    with pytest.raises(ValueError, match=r"got \d+ unknown labels"):
        clone(lazy).calibrate(data)


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_changed_verdicts_reach_the_next_calibration(sampler, judge, judging):
    selector = selecting(sampler, judge)
    # every sentence is right, it is first said
    with pytest.raises(VerdictsWanted) as caught:
        selector.fit(PROMPTS, asked(judge))
    judge_all(judge, caught.value.wanted, lambda pair: True)
    selector.set_params(judging=judging).fit(PROMPTS, asked(judge))
    data = selector.calibration_data_
    assert -np.inf < selector.gamma_hat_ < data.scores.min()
    judge_all(judge, caught.value.wanted[5:], lambda pair: False)
    with pytest.warns(NullCalibrationWarning) as warned:
        selector.calibrate(data)
    assert ("is at least" in str(warned[0].message)) == (judging == "lazy")
    assert selector.gamma_hat_ == np.inf
    assert not selector.calibration_data_.admissible.all()
