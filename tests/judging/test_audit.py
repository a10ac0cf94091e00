"""Errors of a model that judges, and what they mean for the guarantee."""

import numpy as np
import pytest
from scipy.stats import beta

from sklearn_clm.caching import HumanJudge, WantedVerdict
from sklearn_clm.judging import JudgeAudit, audit_judge


def test_counts_and_intervals_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    people, judge = rng.random((2, 300)) < [[0.4], [0.5]]
    prompts = rng.integers(0, 80, 300)
    audit = JudgeAudit.from_verdicts(judge, people, prompts=prompts)
    assert audit.n_admitted == sum(a and not b for a, b in zip(judge, people))
    assert audit.n_refused == sum(b and not a for a, b in zip(judge, people))
    assert audit.n_inadmissible + audit.n_admissible == 300
    misled = [
        i for i in set(prompts) if judge[prompts == i].any() and not people[prompts == i].any()
    ]
    assert (audit.n_misled, audit.n_prompts) == (len(misled), len(set(prompts)))
    k, n = audit.n_admitted, audit.n_inadmissible
    assert audit.too_lenient == pytest.approx(
        (beta.ppf(0.025, k, n - k + 1), beta.ppf(0.975, k + 1, n - k))
    )
    k, n = audit.n_misled, audit.n_prompts
    assert audit.misled_at_most == pytest.approx(beta.ppf(0.95, k + 1, n - k))
    assert audit.risk_at_most(0.1) == 0.1 + audit.misled_at_most
    assert audit.risk_at_most(0.999) == 1.0
    assert "so that the corollary does not apply" in str(audit)


def test_a_judge_that_is_never_too_lenient():
    audit = JudgeAudit.from_verdicts([False, True, False], [False, True, True], confidence=0.9)
    assert (audit.n_admitted, audit.n_refused, audit.n_misled) == (0, 1, 0)
    assert audit.too_lenient == pytest.approx((0.0, 0.95))
    assert "No such error was seen" in str(audit)
    assert JudgeAudit.from_verdicts([True], [True]).too_lenient == (0.0, 1.0)


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_the_risk_for_people_is_bounded(epsilon):
    """With the confidence that is stated, counting failures over repetitions."""
    rng = np.random.default_rng(1)
    n_repetitions, n_prompts, n_members = 400, 120, 3

    def verdicts(n):
        hard = rng.random((n, 1)) < epsilon
        people = (rng.random((n, n_members)) < 0.7) & ~hard
        return people | (rng.random((n, n_members)) < 0.05), people  # too lenient

    judge, people = verdicts(200_000)
    risk_of_judge = np.mean(~judge.any(axis=1))
    risk_of_people = np.mean(~people.any(axis=1))
    assert risk_of_people > risk_of_judge + 0.01
    prompts = np.repeat(np.arange(n_prompts), n_members)
    n_failures = 0
    for _ in range(n_repetitions):
        judge, people = verdicts(n_prompts)
        audit = JudgeAudit.from_verdicts(
            judge.ravel(), people.ravel(), prompts=prompts, confidence=0.9
        )
        n_failures += audit.risk_at_most(risk_of_judge) < risk_of_people - 0.003
    # P(Binomial(400, 0.1) > 65) < 1e-4
    assert n_failures <= 65


def test_people_are_compared_with_a_rule(tmp_path):
    people = HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")
    with pytest.raises(ValueError, match="people must have judged at least one response"):
        audit_judge("exact_match", people)
    asked = people.asked(["Capital?", "Sum?"], [["Rome", "Roma"], "4"])
    for prompt, response, verdict in [
        (0, "Rome", True),
        (0, "the eternal city", True),
        (1, "4", False),
        (1, "5", False),
    ]:
        people.record(WantedVerdict(asked[prompt], response), verdict)
    people.record(WantedVerdict(asked[1], "5"), True, judge="Grace", blind=True)
    audit = audit_judge("exact_match", people)
    assert audit == JudgeAudit(2, 1, 2, 1, 2, 1)
    people.record(WantedVerdict(people.asked(["?"])[0], "a"), True)
    with pytest.raises(ValueError, match="with references, got 1 of 5 without instead"):
        audit_judge("exact_match", people)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="must have one length, got 1, 2 and 2 instead"):
        JudgeAudit.from_verdicts([True], [True, False])
    with pytest.raises(ValueError, match="judge must be a 1-D array of booleans"):
        JudgeAudit.from_verdicts([2], [1])
    with pytest.raises(ValueError, match="confidence must lie strictly between 0 and 1"):
        JudgeAudit.from_verdicts([1], [1], confidence=1)
