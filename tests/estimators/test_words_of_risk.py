"""A risk of somebody else is worded by its own words: in sets, reports, shell and watch."""

from dataclasses import replace

import numpy as np
import pytest

from sklearn_clm import __main__ as shell
from sklearn_clm._estimators._watch import Watch
from sklearn_clm.calibration import Claim
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.generators.prompts import check_prompts
from sklearn_clm.inspection import CalibrationReport, RiskCurveDisplay
from sklearn_clm.policies import ThresholdPolicy
from sklearn_clm.policies.rules import SetCounts
from tests.toy import questions, toy_sampler


class WrongOffers(Risk):
    """A prompt without an offer is declined."""

    about = "offers"
    promise = "the offer to {who}, where one is made, is right"
    of_counted = "offers"
    mean_error = "wrong offers"
    held = "right offers"
    given = "offer"
    kept = "right offers"
    calibrated = "Calibration of offers"
    escalates = True
    answered = "offered"
    unanswered = "declined"
    counts_all = False

    def counts(self, sizes):
        return sizes > 0


class Offers(ThresholdPolicy):
    risk = WrongOffers()

    def __init__(self, n_lambdas=6, size_weight=1.0):
        super().__init__(n_lambdas=n_lambdas, size_weight=size_weight)


PROMPTS, REFERENCES = questions(500)


@pytest.fixture(scope="module")
def sampler():
    one = toy_sampler(policy=Offers(), k_max=3, epsilon=0.4, delta=0.1, random_state=0)
    return one.set_params(generator__skill=0.6).fit(PROMPTS[:400], REFERENCES[:400])


@pytest.fixture(scope="module")
def sets(sampler):
    return sampler.predict(PROMPTS[400:])


def test_sets_are_called_what_they_are(sampler, sets):
    assert sampler.calibration_.certified
    assert set(sets.answered) == {False, True}
    for one in sets:
        assert str(one).endswith("offered)" if len(one) else "declined)")
        assert one.to_dict()["answered"] == one.answered == bool(len(one))
    page = sets.to_html()
    assert f"<b>{sets.answered.mean():.0%}</b> offered" in page
    assert "answered" not in page


def test_a_report_speaks_of_it(sampler):
    report = str(CalibrationReport.from_estimator(sampler))
    n_counted = sampler.calibration_.outcome.n_counted
    assert f"wrong offers, of the {n_counted} offers | " in report
    assert "the offer to a new prompt" in report
    with pytest.raises(ValueError, match="got one with an Offers instead"):
        RiskCurveDisplay.from_estimator(sampler)


def test_claims_and_doubts_speak_of_it():
    null = Claim(0.1, 0.05, about="offers").nullified("there are too few.")
    assert null.why_null() == "Calibration of offers is null: there are too few."
    sentence = Claim(0.1, 0.05, about="offers", answered=0.63).sentence()
    assert "About 63 % of the prompts are offered." in sentence
    options = {"policy": Offers(), "k_max": 3, "epsilon": 0.9, "delta": 0.1}
    lenient = toy_sampler(**options).fit(PROMPTS, REFERENCES)
    (doubt,) = [one for one in lenient.calibration_.remarks if "a single draw" in one]
    assert doubt.endswith("0.05 would be 95 % right offers.")


def test_the_shell_measures_it(capsys):
    claim = Claim(0.4, 0.1, about="offers")
    sizes = np.repeat([0, 1, 2], [20, 50, 30])
    loss = np.repeat([True, False], [30, 70])
    nobody = np.zeros(100, dtype=bool)
    assert not shell._is_refuted(claim, loss, sizes, nobody, 0.95)
    said = capsys.readouterr().out
    assert "held 87.5 % of 80 offers (of 100 prompts, the others declined)" in said
    assert not shell._is_refuted(claim, loss[:20], sizes[:20], nobody[:20], 0.95)
    assert "None of 20 prompts is offered: nothing was measured." in capsys.readouterr().out


def test_the_watch_warns_of_it(sampler, sets):
    record = sampler.calibration_
    declined = [one for one in sets if not len(one)]
    many = (declined * 200)[:200]
    rules = {None: record.rule.having(tested=SetCounts(300, 0, 0))}
    prompts = check_prompts([f"new {i}" for i in range(200)])
    with pytest.warns(UserWarning, match="200 of 200 new prompts got no offer"):
        Watch().add(replace(record, rules=rules), [None] * 200, prompts, many)


def test_a_file_of_it_is_read(sampler, sets, tmp_path):
    path = tmp_path / "offers.json"
    sampler.save_calibration(path)
    again = toy_sampler(policy=Offers(), k_max=3, epsilon=0.4, delta=0.1, random_state=0)
    again.set_params(generator__skill=0.6).load_calibration(path)
    assert [str(one) for one in again.predict(PROMPTS[400:])] == [str(one) for one in sets]
