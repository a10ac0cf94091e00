"""A calibration that people judge for, from the first pair to the thresholds."""

import pytest
from sklearn.base import clone

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import HumanJudge
from sklearn_clm.judging import JudgingSession
from tests.toy import ToyModel, questions

PROMPTS, REFERENCES = questions(60)


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_the_thresholds_are_those_of_the_same_verdicts_given_as_a_rule(tmp_path, judging):
    judge = HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")
    sampler = ConformalSampler(
        ToyModel(), k_max=5, epsilon=0.4, delta=0.2, judging=judging, random_state=0
    )
    by_rule = clone(sampler).fit(PROMPTS, REFERENCES)
    sampler.set_params(admission=judge)
    asked = judge.asked(PROMPTS, REFERENCES)
    session = JudgingSession(judge, lambda: sampler.fit(PROMPTS, asked).lambda_hat_)
    turn = session.turn("a")
    while turn.pair is not None:
        right = turn.pair.response == turn.pair.asked.references[0]
        turn = session.act("a", turn.pair.id, "y" if right else "n")
    assert turn.notice == ""
    assert turn.conclusion == str(by_rule.lambda_hat_)
    assert sampler.lambda_hat_ == by_rule.lambda_hat_
    assert turn.n_judged == len(judge.history())
