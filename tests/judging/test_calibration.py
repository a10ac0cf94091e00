"""A calibration that people judge for, from the first pair to the thresholds."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm import NullCalibrationWarning
from sklearn_clm.caching import HumanJudge, VerdictsWanted
from sklearn_clm.judging import JudgingSession
from sklearn_clm.policies import ExitPolicy, LazyJudging, ThresholdPolicy
from tests.toy import questions, toy_sampler

PROMPTS, REFERENCES = questions(60)


def lazy_sampler(judge, **options):
    return toy_sampler(admission=judge, **{"judging": "lazy", "delta": 0.2} | options)


def is_right(pair):
    return pair.response == pair.asked.references[0]


def judged(judge, calibrate):
    """Judge what is wanted until nothing is; how many verdicts were left at most, each time."""
    bounds = []
    while True:
        try:
            calibrate()
        except VerdictsWanted as error:
            bounds.append((len(error.wanted), error.n_at_most))
            judge_all(judge, error.wanted, is_right)
        else:
            return bounds


def judge_all(judge, pairs, rule):
    """All verdicts in one file, so that the disk is waited for once."""
    path = judge.path.with_name(f"said-{len(judge.history())}.csv")
    lines = (f"{pair.id},{int(rule(pair))}\n" for pair in pairs)
    path.write_text("id,verdict\n" + "".join(lines))
    assert judge.import_(path) == len(pairs)


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_the_thresholds_are_those_of_the_same_verdicts_given_as_a_rule(judge, judging):
    sampler = toy_sampler(judging=judging, delta=0.2)
    by_rule = clone(sampler).fit(PROMPTS, REFERENCES)
    sampler.set_params(admission=judge)
    asked = judge.asked(PROMPTS, REFERENCES)
    session = JudgingSession(judge, lambda: sampler.fit(PROMPTS, asked).lambda_hat_)
    turn, left = session.turn(), []
    assert turn.estimate.startswith(f"Decided after at most {turn.n_more} more")
    assert (turn.n_more == len(judge.wanted())) == (judging == "all")
    while turn.pair is not None:
        left.append(turn.n_more)
        turn = session.act(turn.pair.id, "y" if is_right(turn.pair) else "n")
    assert turn.notice == ""
    assert (turn.conclusion, turn.n_more) == (str(by_rule.lambda_hat_), 0)
    assert sampler.lambda_hat_ == by_rule.lambda_hat_
    assert turn.n_judged == len(judge.history())
    assert (np.diff(left) < 0).all()  # an honest estimate: each verdict leaves fewer


def test_files_that_ask_for_more_take_fewer_rounds_and_give_the_same(tmp_path):
    found = []
    for i, n_more in enumerate((0, 40)):
        judge = HumanJudge(tmp_path / f"{i}" / "verdicts.sqlite", judge="Ada")
        judge.path.parent.mkdir()
        sampler = lazy_sampler(judge, policy=ExitPolicy())
        asked, n_rounds = judge.asked(PROMPTS, REFERENCES), 0
        while True:
            try:
                sampler.fit(PROMPTS, asked)
            except VerdictsWanted as error:
                pairs, n_at_most = [*error.wanted, *error.later], error.n_at_most
                n_asked = len(error.wanted) + n_more
            else:
                break
            assert len({pair.id for pair in pairs}) == len(pairs) <= n_at_most
            judge.export(judge.path.with_name("wanted.csv"), pairs[:n_asked])
            judge_all(judge, pairs[:n_asked], is_right)
            n_rounds += 1
        found.append((sampler.calibration_.rule.level, n_rounds))
    (few_at_a_time, n_many), (more_at_a_time, n_few) = found
    assert few_at_a_time == more_at_a_time
    assert n_few < n_many


# with half of the skill tests come back to steps that want further draws
HARD = {"generator__skill": 0.5, "epsilon": 0.5, "random_state": 2}


@pytest.mark.parametrize(
    ("policy", "changes"), [(None, {}), (ExitPolicy(), {}), (ThresholdPolicy(n_lambdas=3), HARD)]
)
def test_what_is_left_at_most_is_never_exceeded(judge, policy, changes):
    sampler = lazy_sampler(judge, policy=policy).set_params(**changes)
    asked = judge.asked(PROMPTS, REFERENCES)
    bounds = judged(judge, lambda: sampler.fit(PROMPTS, asked))
    assert len(bounds) > 1
    left = np.cumsum([n for n, _ in bounds][::-1])[::-1]
    at_most = np.array([bound for _, bound in bounds])
    assert (at_most >= left).all()
    assert (np.diff(at_most) < 0).all()
    assert at_most[-1] < at_most[0] / 2


def test_near_duplicates_are_one_text_of_what_is_left_at_most(judge):
    policy = ExitPolicy(same_text=0.5)
    sampler = lazy_sampler(judge, policy=policy, similarity=lambda a, b: 1.0)
    # of all draws: which ones to come are near duplicates is not known
    data = sampler.collect(PROMPTS, judge.asked(PROMPTS, REFERENCES))
    with pytest.raises(VerdictsWanted) as caught:
        sampler.calibrate(data)
    n_calibration = 40
    assert caught.value.n_at_most == len(caught.value.wanted) + n_calibration


def test_a_cheap_judge_takes_the_optimisation_part(judge):
    cheap = []

    def lenient(reference, response):
        cheap.append(response)
        return response == reference or len(response) % 3 == 0

    judging = LazyJudging(optimization_judgements=None, optimization_admission=lenient)
    sampler = lazy_sampler(judge, judging=judging)
    asked = judge.asked(PROMPTS, REFERENCES)
    judged(judge, lambda: sampler.fit(PROMPTS, asked))
    assert cheap
    # each of the verdicts of people is on the calibration part
    n_optimization = sampler.result_.n_optimization
    judged_prompts = {judge.pair(row.id).asked.prompt for row in judge.history()}
    assert len(judged_prompts) <= len(PROMPTS) - n_optimization
    known = sampler.calibration_data_.labels >= 0
    assert {PROMPTS[i] for i in np.flatnonzero(known.any(axis=1))} == judged_prompts

    # the path is that of the cheap labels, the tests are those of the right ones
    def right(reference, response):
        return response == reference

    by_rule = lazy_sampler(right, judging=clone(judging)).fit(PROMPTS, REFERENCES)
    assert by_rule.lambda_hat_ == sampler.lambda_hat_
    assert np.array_equal(by_rule.frontier_.lambdas, sampler.frontier_.lambdas)


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_changed_verdicts_reach_the_next_calibration(judge, judging):
    sampler = lazy_sampler(judge, judging=judging)
    asked = judge.asked(PROMPTS, REFERENCES)
    with warnings.catch_warnings(action="error"):
        judged(judge, lambda: sampler.fit(PROMPTS, asked))
        before, data = sampler.lambda_hat_, sampler.calibration_data_
        sampler.calibrate(data)
    assert before is not None
    assert sampler.lambda_hat_ == before
    accepted = [judge.pair(row.id) for row in judge.history() if row.verdict]
    judge_all(judge, accepted, lambda pair: False)
    with pytest.warns(NullCalibrationWarning):
        judged(judge, lambda: sampler.calibrate(data))
    assert sampler.lambda_hat_ is None
    labels = sampler.calibration_data_.labels
    assert (labels == 1).sum() < (data.labels == 1).sum()


def test_people_are_asked_no_more_where_splits_have_no_seed(judge):
    sampler = lazy_sampler(judge, random_state=None, k_max=3)
    first, again = (
        judged(judge, lambda: sampler.fit(PROMPTS, judge.asked(PROMPTS, REFERENCES)))
        for _ in range(2)
    )
    assert 0 < sum(n for n, _ in first) < 180
    assert again == []


def test_labels_from_elsewhere_are_not_asked_for_again(judge):
    sampler = lazy_sampler(judge)
    collected = sampler.collect(PROMPTS, judge.asked(PROMPTS, REFERENCES))
    table = sampler.calibrate(collected.with_labels(np.ones(collected.quality.shape, dtype=bool)))
    assert table.lambda_hat_ is not None
    assert judge.history() == []
