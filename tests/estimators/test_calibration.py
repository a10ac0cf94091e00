"""Records of a calibration say what they are worth."""

import warnings

import pytest

from sklearn_clm.policies import AnswerPolicy, ExitPolicy
from tests.toy import questions, toy_sampler

X, Y = questions(120)


@pytest.mark.parametrize("policy", [None, ExitPolicy(), AnswerPolicy(alpha=0.95)])
def test_a_level_that_a_single_draw_meets_is_said_to_promise_nothing(policy):
    sampler = toy_sampler(epsilon=0.95, policy=policy)
    name = "alpha" if isinstance(policy, AnswerPolicy) else "epsilon"
    with pytest.warns(UserWarning, match=f"{name}=0.95 promises nothing more"):
        sampler.fit(X, Y)
    said = str(sampler.calibration_)
    assert "a single draw errs for" in said
    assert f"95 % {'right answers' if name == 'alpha' else 'coverage'}." in said
    # below the error of one draw nothing is said
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*promises nothing more")
        toy_sampler(epsilon=0.3, policy=ExitPolicy()).fit(X, Y)


def test_a_confidence_below_one_half_is_said():
    with pytest.warns(UserWarning, match=r"delta=0\.95 is a confidence of 5 % alone"):
        toy_sampler(delta=0.95, epsilon=0.3).fit(X, Y)
