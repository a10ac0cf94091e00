"""People audit a model that judges, and the guarantee is about what people admit."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone

from sklearn_clm import ComponentSelector, NullCalibrationWarning
from sklearn_clm.caching import VerdictsWanted
from sklearn_clm.calibration import CalibrationData, Claim, two_phase_p_value
from sklearn_clm.calibration.betting import audit_p_values
from sklearn_clm.calibration.data import split_of
from sklearn_clm.calibration.rows import Part
from sklearn_clm.calibration.table import Table
from sklearn_clm.generators import draw_stream
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.judging import JudgingSession
from sklearn_clm.policies import (
    AuditedJudging,
    CovariateShift,
    ExitPolicy,
    Groups,
    ThresholdPolicy,
)
from sklearn_clm.policies._audited import Audit
from tests.reports import ReportModel, cases
from tests.toy import Answering, questions, toy_sampler
from tests.validity.audits import _People as People
from tests.validity.audits import unsearched

N_AUDITS = 40
PROMPTS, REFERENCES = questions(240)
CASES = cases(240)


def people(reference, response):
    return response == reference


def chance(reference, response):
    return draw_stream(reference + response, 0, 0, salt=b"judge").random()


def good(reference, response):
    """Admits one wrong response of a hundred."""
    return response == reference or chance(reference, response) < 0.01


def strict(reference, response):
    return response == reference and chance(reference, response) < 0.8


def in_report(reference, component):
    return component in reference


def noted(judge):
    """The same judge, and what it is asked about."""
    asked = []

    def noting(reference, said):
        asked.append(said)
        return judge(reference, said)

    return asked, noting


def audited(auditor=people, *, admission=good, n_audits=N_AUDITS, design="auto", **options):
    usual = {"k_max": 3, "epsilon": 0.3, "delta": 0.1, "policy": ThresholdPolicy(n_lambdas=3)}
    judging = AuditedJudging(auditor, n_audits=n_audits, design=design)
    return toy_sampler(admission=admission, judging=judging, **usual | options)


# --- what is found ----------------------------------------------------------------------------


def test_the_claim_is_about_people_and_gives_the_numbers_of_both():
    sampler = audited(design="two-phase").fit(PROMPTS, REFERENCES)
    claim, result = sampler.calibration_.claim, sampler.result_
    assert sampler.calibration_.certified
    assert "by people's standard" in claim.sentence()
    n_refused, n_prompts = int(result.n_errors[0]), result.n_calibration
    for number in (n_refused, n_prompts, N_AUDITS, result.audit.n_missed):
        assert str(number) in claim.conditions()[0]
    assert len(result.audit.rows) == len(set(result.audit.rows)) == N_AUDITS
    assert result.audit.n_missed == np.sum(~result.audit.verdicts)
    draws = sampler.calibration_draws_
    said = [
        people(REFERENCES[sampler.calibration_indices_[i]], draws[i][j].response)
        for i, j in zip(result.audit.rows, result.audit.draws)
    ]
    assert result.audit.verdicts.tolist() == said
    by_model = sampler.calibration_data_.admissible
    assert by_model[result.audit.rows, result.audit.draws].all()
    p_value = two_phase_p_value(n_refused, n_prompts, result.audit.n_missed, N_AUDITS, 0.3)
    assert result.p_values.tolist() == [p_value]
    assert p_value <= 0.1
    assert sampler.predict(questions(5, first=1000)[0])[0].claim == claim


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_rule_witnesses_and_prompts_are_chosen_before_people_speak():
    agreeing = audited(design="two-phase").fit(PROMPTS, REFERENCES).result_
    refusing = audited(lambda *_: False, design="two-phase").fit(PROMPTS, REFERENCES).result_
    assert refusing.lambda_hat is None
    assert refusing.audit.n_missed == N_AUDITS
    np.testing.assert_array_equal(agreeing.frontier.lambdas, refusing.frontier.lambdas)
    np.testing.assert_array_equal(agreeing.audit.rows, refusing.audit.rows)
    np.testing.assert_array_equal(agreeing.audit.draws, refusing.audit.draws)


def test_the_order_of_the_prompts_does_not_change_who_is_audited():
    found = []
    for order in (np.arange(240), np.random.default_rng(0).permutation(240)):
        sampler = audited(design="two-phase", random_state=None)
        sampler.fit([PROMPTS[i] for i in order], [REFERENCES[i] for i in order])
        indices = order[sampler.calibration_indices_[sampler.result_.audit.rows]]
        found.append((set(indices.tolist()), sampler.lambda_hat_))
    assert found[0] == found[1]


def test_the_cheaper_judge_of_the_two_is_asked():
    """A rarely lenient model saves verdicts; of one that refuses much people know better."""
    asked, noting = noted(people)
    by_model = audited(noting).fit(PROMPTS, REFERENCES)
    assert by_model.calibration_.claim.audit.startswith("The admission")
    assert len(asked) == N_AUDITS
    by_people = audited(noting, admission=strict).fit(PROMPTS, REFERENCES)
    assert by_people.calibration_.claim.audit.startswith("People")


def test_the_model_sees_references_and_not_what_people_are_shown(judge):
    asked = judge.asked(PROMPTS, REFERENCES)
    sampler = audited(judge)
    data = sampler.collect(PROMPTS, asked)
    assert np.array_equal(data.labels, audited().collect(PROMPTS, REFERENCES).labels)
    with pytest.raises(VerdictsWanted) as wanted:
        sampler.calibrate(data)
    assert {pair.asked for pair in wanted.value.wanted} <= set(asked)


def test_people_stop_as_soon_as_it_is_decided():
    asked, noting = noted(people)
    sampler = audited(noting, design="betting").fit(PROMPTS, REFERENCES)
    result, claim = sampler.result_, sampler.calibration_.claim
    audit = result.audit
    assert sampler.calibration_.certified
    assert len(asked) == len(audit.rows) < N_AUDITS / 2
    p_value = result.p_values[0]
    assert p_value <= 0.1
    # one audit less would not have been enough: each multiplies the wealth by 1.35 at most
    assert p_value > 0.1 / 1.35
    assert f"p = {p_value:.2g}" in claim.conditions()[0]
    assert sampler.calibration_data_.admissible[audit.rows, audit.draws].all()
    assert result.smallest_epsilon <= 0.3


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_people_stop_where_nothing_can_be_certified_any_more():
    sampler = audited(lambda *_: False, design="betting").fit(PROMPTS, REFERENCES)
    agreeing = audited(design="betting").fit(PROMPTS, REFERENCES)
    audit, other = sampler.result_.audit, agreeing.result_.audit
    assert sampler.result_.p_values.tolist() == [1.0]
    assert audit.n_missed == len(audit.rows) < N_AUDITS
    # who is asked first does not depend on what they say
    np.testing.assert_array_equal(audit.rows, other.rows[: len(audit.rows)])
    hopeless = audited(admission=lambda *_: False, design="betting").fit(PROMPTS, REFERENCES)
    assert len(hopeless.result_.audit.rows) == 0


@pytest.mark.parametrize("design", ["two-phase", "betting", "people"])
def test_people_who_take_their_time_find_the_same(judge, design):
    sampler = audited(judge, design=design)
    data, left = sampler.collect(PROMPTS, REFERENCES), []
    while True:
        try:
            sampler.calibrate(data)
        except VerdictsWanted as error:
            left.append(error.n_at_most)
            shown = {pair.asked.prompt for pair in error.wanted}
            assert shown <= set(PROMPTS)
            for pair in error.wanted[:25]:  # and leave the others for tomorrow
                judge.record(pair, people(pair.asked.references[0], pair.response))
        else:
            break
    by_rule = audited(design=design).fit(PROMPTS, REFERENCES)
    assert sampler.lambda_hat_ == by_rule.lambda_hat_
    assert sampler.calibration_.claim == by_rule.calibration_.claim
    if design == "two-phase":
        assert left == [40, 15]
        assert len(judge.history()) == N_AUDITS
    if design == "betting":
        assert left[0] == N_AUDITS  # at most
        assert len(judge.history()) == len(sampler.result_.audit.rows) < N_AUDITS / 2


def test_verdicts_that_were_taken_back_count_as_people_say_now(judge):
    sampler = audited(judge, design="two-phase")
    data = sampler.collect(PROMPTS, REFERENCES)
    with pytest.raises(VerdictsWanted) as wanted:
        sampler.calibrate(data)
    for pair in wanted.value.wanted:
        judge.record(pair, True)
    assert sampler.calibrate(data).result_.audit.n_missed == 0
    judge.record(wanted.value.wanted[0], False)
    assert sampler.calibrate(data).result_.audit.n_missed == 1


def test_a_judge_that_refuses_nearly_everything_certifies_nothing():
    sampler = audited(admission=lambda reference, _: reference == "answer 1", design="two-phase")
    with pytest.warns(NullCalibrationWarning):
        sampler.fit(PROMPTS, REFERENCES)
    assert len(sampler.result_.audit.rows) < N_AUDITS
    assert sampler.result_.p_values.tolist() == [1.0]
    # where one refuses everything, people judge the largest sets
    alone = audited(admission=lambda *_: False).fit(PROMPTS, REFERENCES)
    assert alone.calibration_.certified


def test_each_group_has_audits_of_its_own():
    groups = Groups(by=lambda prompt: int(prompt.split()[-1]) % 2)
    sampler = audited(design="two-phase", groups=groups, n_audits=30).fit(PROMPTS, REFERENCES)
    rows = [sampler.groups_[g].outcome.audit.rows for g in (0, 1)]
    indices = sampler.calibration_indices_
    for g in (0, 1):
        assert len(rows[g]) == 30
        assert np.all(indices[rows[g]] % 2 == g)


@pytest.mark.parametrize("design", ["two-phase", "people"])
def test_how_many_verdicts_the_groups_that_follow_want_is_not_known(judge, design):
    sampler = audited(judge, design=design, n_audits=30)
    data, known = sampler.collect(PROMPTS, REFERENCES), []
    for _ in range(2):
        with pytest.raises(VerdictsWanted) as wanted:
            sampler.calibrate(data, groups=np.arange(240) % 2)
        known.append(wanted.value.n_at_most)
        judge.record(wanted.value.wanted[0], True)
    assert known == [None, None]


@pytest.mark.parametrize("policy", [ThresholdPolicy(), ExitPolicy()])
@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_a_group_without_a_searched_prompt_is_audited_at_the_lowest_level(policy):
    sampler = audited(policy=policy, epsilon=0.5, n_audits=12, design="two-phase")
    data = sampler.collect(PROMPTS, REFERENCES)
    tested = split_of(data, 1 / 3, sampler.random_state)[1]
    rare = np.isin(np.arange(240), tested[:5]).astype(int)
    rule = sampler.set_params(optimization_fraction=1 / 3).calibrate(data, groups=rare).groups_[1]
    assert rule.outcome.n_optimization == 0
    assert rule.outcome.audit.n_prompts == 5


def test_a_frontier_from_other_data_spends_no_prompt_on_the_search():
    frontier = audited().fit(*questions(200, first=5000)).calibration_.result.frontier
    sampler = audited(design="two-phase", policy=ThresholdPolicy(frontier=frontier))
    sampler.fit(PROMPTS, REFERENCES)
    assert sampler.result_.n_calibration == 240


def test_files_and_pickles_keep_the_claim(tmp_path):
    sampler = audited(design="two-phase").fit(PROMPTS, REFERENCES)
    claim = sampler.calibration_.claim
    assert pickle.loads(pickle.dumps(sampler)).calibration_.claim == claim
    sampler.save_calibration(tmp_path / "calibration.json")
    loaded = clone(sampler).load_calibration(tmp_path / "calibration.json")
    assert loaded.calibration_.claim == claim


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_level_of_an_exit_policy_is_audited_as_a_configuration_is():
    sampler = audited(design="two-phase", policy=ExitPolicy(), k_max=4).fit(PROMPTS, REFERENCES)
    result, claim = sampler.calibration_.rule.outcome, sampler.calibration_.claim
    assert "by people's standard" in claim.sentence()
    by_model = sampler.calibration_data_.admissible
    assert by_model[result.audit.prompts, result.audit.draws].all()
    assert result.audit.n_missed == np.sum(~result.audit.verdicts)
    assert len(result.audit.rows) == N_AUDITS
    # the level is that of the model's labels of other prompts: people do not move it
    strict_people = audited(lambda *_: False, design="two-phase", policy=ExitPolicy(), k_max=4)
    refused = strict_people.fit(PROMPTS, REFERENCES).calibration_.rule.outcome
    assert refused.step is None
    np.testing.assert_array_equal(refused.audit.draws, result.audit.draws)
    new, right = questions(200, first=3000)
    missed = [one not in found for one, found in zip(right, sampler.predict(new))]
    assert np.mean(missed) < 0.3 + 3 * np.sqrt(0.3 * 0.7 / 200)
    alone = audited(design="people", policy=ExitPolicy(), k_max=4).fit(PROMPTS, REFERENCES)
    tested = alone.calibration_.rule.outcome
    assert (tested.n_calibration, tested.audit) == (N_AUDITS, None)


@unsearched
def test_a_rule_that_looks_best_of_many_is_not_taken_at_its_word():
    """Audits of a model right in 95 % of its verdicts certify about as often as planned for."""
    n_certified, n_worlds = 0, 40
    for world in range(n_worlds):
        rng = np.random.default_rng(world)
        hard = rng.random(200) < 0.1
        rates = np.where(hard, rng.beta(1, 8, 200), rng.beta(6, 3, 200))
        truth = rng.random((200, 6)) < rates[:, np.newaxis]
        quality = np.where(truth, rng.beta(4, 2, truth.shape), rng.beta(2, 4, truth.shape))
        answers = np.where(truth, 0, rng.integers(1, 5, truth.shape))
        equal = answers[:, :, np.newaxis] == answers[:, np.newaxis, :]
        similarity = np.where(equal, 1.0, rng.uniform(0, 0.7, equal.shape))
        by_model = truth != (rng.random(truth.shape) < 0.05)
        table = Table(CalibrationData(quality, similarity, by_model))
        seen, tested = map(np.sort, np.split(rng.permutation(200), [66]))
        judging = AuditedJudging(len, n_audits=60)
        audit = Audit(judging, People(truth), world, table.data.digests)
        rules = ThresholdPolicy().calibrate(
            table, [Part(tested, seen, 0.05)], Claim(0.2, 0.05), audit
        )
        n_certified += rules[None].certified
    assert n_certified >= binom.ppf(0.05, n_worlds, 0.8)


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
@pytest.mark.parametrize("auditor", [people, lambda *_: False])
def test_what_the_model_says_is_not_reported_as_the_error(auditor):
    report = str(CalibrationReport.from_estimator(audited(auditor).fit(PROMPTS, REFERENCES)))
    assert "error by the model's standard" in report
    of_the_model = ("| error |", "As many others", "Achievable band", "would gain", "trivial:")
    assert not [words for words in of_the_model if words in report]


# --- components -------------------------------------------------------------------------------


def selector_audited(auditor=in_report, *, admission=in_report, n_audits=60, design="two-phase"):
    sampler = toy_sampler(ReportModel(), k_max=3, epsilon=0.5)
    judging = AuditedJudging(auditor, n_audits=n_audits, design=design)
    options = {"alpha": 0.3, "delta": 0.1, "admission": admission, "judging": judging}
    return ComponentSelector(sampler, **options)


def test_people_judge_all_that_is_selected_and_one_rejection_is_an_error():
    asked, noting = noted(in_report)
    selector = selector_audited(noting).fit(*CASES)
    result, data = selector.result_, selector.calibration_data_
    audit = result.audit
    assert "by people's standard" in selector.calibration_.claim.sentence()
    assert len(asked) == len(audit.prompts)
    selected = data.scores >= selector.gamma_hat_
    # all that is selected of the audited prompts, and the model holds all of that for right
    np.testing.assert_array_equal(
        np.sort(audit.prompts), np.flatnonzero(selected & np.isin(data.prompt_index, audit.rows))
    )
    assert data.labels[audit.prompts].all()
    wrong = data.prompt_index[selected & (data.labels == 0)]
    assert not set(audit.rows) & set(wrong)
    assert audit.n_refused == len(set(wrong) & set(range(data.n_prompts))) - len(
        set(wrong) & set(shaping_of(selector))
    )
    p_value = two_phase_p_value(audit.n_refused, audit.n_prompts, 0, 60, 0.3)
    assert result.p_values.tolist() == [p_value]


def shaping_of(selector):
    """Prompts that chose the threshold."""
    return selector.judging.split(selector._collected.data, selector.random_state)[0]


@pytest.mark.filterwarnings("ignore")
def test_a_rejected_component_counts_its_prompt_once_and_moves_no_threshold():
    right = selector_audited().fit(*CASES)
    wrong = selector_audited(lambda *_: False).fit(*CASES)
    assert wrong.gamma_hat_ == np.inf
    assert wrong.result_.thresholds.tolist() == [right.gamma_hat_]
    np.testing.assert_array_equal(wrong.result_.audit.prompts, right.result_.audit.prompts)
    shown = np.unique(wrong.calibration_data_.prompt_index[wrong.result_.audit.prompts])
    assert wrong.result_.audit.n_missed == len(shown) < len(wrong.result_.audit.prompts)


def test_people_stop_judging_selections_as_soon_as_it_is_decided():
    selector = selector_audited(design="betting").fit(*CASES)
    audit = selector.result_.audit
    assert selector.gamma_hat_ < np.inf
    assert len(audit.rows) < 30
    assert set(selector.calibration_data_.prompt_index[audit.prompts]) <= set(audit.rows)


def test_people_alone_walk_the_thresholds_of_few_prompts():
    selector = selector_audited(design="people").fit(*CASES)
    assert selector.result_.n_calibration == 60
    assert selector.calibration_.claim.audit.startswith("People")


def test_a_group_that_chose_no_threshold_is_given_no_component():
    selector = selector_audited().set_params(alpha=0.5)
    data = selector.collect(*CASES)
    rare = np.isin(np.arange(240), np.setdiff1d(np.arange(240), shaping_of(selector))[:6])
    gamma_hat = selector.calibrate(data, groups=rare).groups_
    assert gamma_hat[False] < gamma_hat[True] == np.inf


@pytest.mark.parametrize("design", ["auto", "two-phase", "betting", "people"])
def test_responses_without_components_select_nothing(design):
    selector = selector_audited(design=design).set_params(splitter=lambda text: [])
    with warnings.catch_warnings(action="ignore", category=NullCalibrationWarning):
        selector.fit(*CASES)
    assert selector.gamma_hat_ == np.inf
    # by people alone there is no threshold to test; a rule of nothing is refused for nobody
    audit = selector.result_.audit
    assert audit is None if design == "people" else audit.n_refused == 0


def test_people_who_audit_components_see_them_in_their_responses(judge):
    selector = selector_audited(judge)
    data = selector.collect(*CASES)
    session = JudgingSession(judge, lambda: selector.calibrate(data).gamma_hat_)
    turn = session.turn()
    n_left = turn.n_more
    assert turn.pair.asked.context is not None
    while turn.pair is not None:
        assert turn.estimate == f"Decided after at most {n_left} more."
        turn = session.act(turn.pair.id, "y")
        # who knew what the model says would agree too often: neither before nor after
        assert turn.notice == ""
        n_left -= 1
    assert n_left == 0
    assert selector.gamma_hat_ == selector_audited(lambda *_: True).fit(*CASES).gamma_hat_


def test_components_from_elsewhere_have_no_people_to_audit_them():
    data = selector_audited().collect(*CASES)
    with pytest.raises(ValueError, match="data"):
        selector_audited().calibrate(data)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(("design", "fewest"), [("two-phase", 29), ("betting", 36)])
def test_too_few_audits_to_certify_anything_are_refused_before_draws(design, fewest, tmp_path):
    log = tmp_path / "log"
    given = {"design": design, "epsilon": 0.1, "delta": 0.05, "log": log}
    with pytest.raises(ValueError, match=f"n_audits must be at least {fewest},"):
        audited(n_audits=fewest - 1, **given).fit(PROMPTS, REFERENCES)
    assert not log.exists()


@pytest.mark.parametrize("kind", ["sampler", "selector"])
def test_too_few_audits_for_the_level_of_each_group_are_refused_before_draws(kind):
    """30 audits can certify 0.1 at delta = 0.05, of one group; of four together it takes 42."""
    names, drawn = np.arange(240) % 4, []
    if kind == "sampler":
        make, of_prompts = audited, (PROMPTS, REFERENCES)
        one = audited(n_audits=30, epsilon=0.1, delta=0.05, groups=Groups(guarantee="all"))
        usual, unused = one.generator, Answering(lambda prompt, draw: drawn.append(prompt))
        one.set_params(generator=unused)
    else:
        make, of_prompts = selector_audited, CASES
        one = selector_audited(n_audits=30)
        one.set_params(alpha=0.1, delta=0.05, groups=Groups(guarantee="all"))
        one.sampler.set_params(generator=ReportModel(drawn))
    with pytest.raises(ValueError, match=r"at least 42, .* tested at delta=0.0125"):
        one.fit(*of_prompts, groups=names)
    assert not drawn
    if kind == "sampler":
        one.set_params(generator=usual)
    data = make(n_audits=30).collect(*of_prompts)
    for of_fewer, needed in ((names, 42), (names % 2, 36)):
        with pytest.raises(ValueError, match=f"at least {needed}"):
            one.calibrate(data, groups=of_fewer)


@pytest.mark.parametrize("design", ["two-phase", "people", "betting"])
def test_people_are_asked_for_the_rules_of_groups_alone(design):
    asked, noting = noted(people)
    sampler = audited(noting, design=design, n_audits=30, groups=Groups(), epsilon=0.4)
    sampler.fit(PROMPTS, REFERENCES, groups=np.arange(240) % 2)
    assert all(rule.certified for rule in sampler.groups_.values())
    about = np.array(sorted({int(said.split()[-1]) for said in asked}))
    assert [np.sum(about % 2 == g) <= 30 for g in (0, 1)] == [True, True]
    if design == "two-phase":
        assert len(asked) == len(about) == 60
    together = sampler.calibration_.rule
    assert together.outcome is None
    assert "all prompts together were not tested" in together.claim.null
    assert "not tested" not in str(CalibrationReport.from_estimator(sampler))


def test_betting_certifies_nothing_with_fewer_audits():
    assert audit_p_values(np.zeros(36), 0.1, 0.05)[-1] <= 0.05
    assert audit_p_values(np.zeros(35), 0.1, 0.05)[-1] > 0.05


def test_functions_cannot_stand_in_for_people():
    rules = [lambda response, one=one: response == one for one in REFERENCES]
    with pytest.raises(ValueError, match="admissions"):
        audited().fit(PROMPTS, rules)


def test_data_that_people_cannot_audit_are_refused(tmp_path):
    shift = CovariateShift(weight_bound=2.0)
    sampler = audited(shift=shift)
    weighted = sampler.collect(PROMPTS, REFERENCES, prompt_weight=np.ones(240))
    sampler.calibrate(weighted)
    audited().collect(PROMPTS, REFERENCES).save(tmp_path / "data.npz")
    lazily = audited().set_params(judging="lazy").fit(PROMPTS, REFERENCES)
    for call in (
        lambda: audited().calibrate(CalibrationData.load(tmp_path / "data.npz")),  # no responses
        lambda: lazily.set_params(judging=AuditedJudging(people, n_audits=N_AUDITS)).calibrate(
            lazily.calibration_data_
        ),
    ):
        with pytest.raises(ValueError, match="data"):
            call()
