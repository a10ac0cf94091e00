"""Other risks than a miss: sets that abstain, costs of misses, answers that people audit."""

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import CalibrationData, Claim, Configuration
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.algorithm_1 import sets_at_stop
from sklearn_clm.calibration.risk import CostOfMisses, MissesIfAny, Risk
from sklearn_clm.calibration.rows import Part, at_stake
from sklearn_clm.calibration.set_scores import get_set_score
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tests import BinomialTest, step_p_values
from sklearn_clm.calibration.thresholds import ThresholdPath
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.metrics import set_coverage, set_loss
from sklearn_clm.policies import (
    AnswerPolicy,
    AuditedJudging,
    ExitPolicy,
    LazyJudging,
    ThresholdPolicy,
)
from sklearn_clm.policies._audited import Audit
from sklearn_clm.policies.judging import Judging
from tests.calibration.tables import lazy_table
from tests.toy import questions, toy_sampler
from tests.validity.audits import _People as People
from tests.validity.audits import unsearched

K = 5
ABSTAIN = ThresholdPolicy(abstain=True, n_lambdas=6)


def drawn(n, seed):
    """Prompts of which a third are never answered well, with scores that tell."""
    rng = np.random.default_rng(seed)
    chance = np.where(rng.random(n) < 0.35, 0.03, 0.7)[:, np.newaxis]
    admissible = rng.random((n, K)) < chance
    quality = rng.normal(1.2 * admissible + chance, 0.5)
    return CalibrationData(quality, rng.random((n, K, K)), admissible)


def test_errors_and_counts_are_those_of_the_sets():
    data, lambdas = drawn(80, 0), [[np.inf, 0.5, 1.0], [0.5, 1.2, np.inf], [np.inf, 9.0, 9.0]]
    risks = evaluate_configurations(data, lambdas, set_score="max", risk=MissesIfAny())
    for i, one in enumerate(lambdas):
        accepted, _ = sets_at_stop(data, Configuration(*one), K, "max")
        holds = np.any(accepted & data.admissible, axis=1)
        is_any = accepted.any(axis=1)
        assert risks.n_counted[i] == is_any.sum()
        assert risks.n_errors[i] == np.sum(is_any & ~holds)
        assert risks.charged[i] == pytest.approx(np.mean(~is_any) * K)
    assert risks.loss[2] == 1.0  # nobody counts


def test_a_step_at_which_nobody_counts_has_the_p_value_one():
    p_values = step_p_values(np.array([0, 1, 0]), np.array([60, 60, 0]), 0.3)
    assert p_values[0] < p_values[1] < p_values[2] == 1.0
    data = drawn(30, 1)
    part = Part(np.arange(10, 30), np.arange(10), 0.1)
    # no draw is as good as the second configuration wants
    lambdas = np.array([[np.inf, -np.inf, np.inf], [np.inf, 99.0, -np.inf]])
    frontier = Frontier(lambdas, np.full(2, K), np.array([0.1, 1.0]), np.ones(2))
    path = ThresholdPath(Table(data), part.rows, frontier, get_set_score("max"))
    assert BinomialTest(path, MissesIfAny(), 0.3, 0.1).p_values()[1] == 1.0


# --- risks of somebody else -------------------------------------------------------------------


class TwoRight(Risk):
    """Two members must be admissible."""

    about = "two"
    promise = "the set for {who} holds two admissible responses"
    n_settling = 2


class NoneWrong(Risk):
    """No member may be inadmissible."""

    about = "none wrong"
    promise = "the set for {who} holds nothing inadmissible"
    settled_by = 0


class AllRightIfAny(NoneWrong):
    """The same of the sets that are not empty."""

    about = "all right"
    counts_all = False

    def counts(self, sizes):
        return sizes > 0


class OfSingles(Risk):
    """Sets of one response alone count: others are not empty."""

    about = "singles"
    promise = "the set for {who}, where it is one response, holds an admissible one"
    counts_all = False

    def counts(self, sizes):
        return sizes == 1


class OfRisk(ThresholdPolicy):
    """Thresholds of any risk."""

    def __init__(self, other=None, n_lambdas=6, size_weight=0.5):
        super().__init__(n_lambdas=n_lambdas, size_weight=size_weight)
        self.other = other

    @property
    def risk(self):
        return self.other


@pytest.mark.parametrize("risk", [TwoRight(), NoneWrong(), AllRightIfAny()])
def test_errors_of_any_risk_are_those_of_its_sets(risk):
    rng = np.random.default_rng(3)
    texts = _first(rng.integers(3, size=(90, K)))
    plain = drawn(90, 2)
    admissible = np.take_along_axis(plain.admissible, texts, axis=1)
    data = CalibrationData(plain.quality, plain.similarity, admissible, texts=texts)
    grid = [[np.inf, 0.5, 1.0], [0.5, 0.9, np.inf], [np.inf, -np.inf, np.inf], [1.0, 9.0, 9.0]]
    for stakes in (None, rng.random(90) < 0.5):
        options = {"set_score": "max", "risk": risk, "at_stake": stakes}
        risks = evaluate_configurations(data, grid, **options)
        for i, one in enumerate(grid):
            shown, _ = sets_at_stop(data, Configuration(*one), K, "max")
            n_right = np.sum(shown & admissible, axis=1)
            n_wrong = shown.sum(axis=1) - n_right
            errs = n_right < 2 if risk.settled_by == 1 else n_wrong > 0
            assert np.array_equal(risk.right(shown, admissible), ~errs)
            counts = np.ones(90, dtype=bool) if risk.counts_all else shown.any(axis=1)
            may_err = counts if stakes is None else counts & stakes
            assert risks.n_errors[i] == np.sum(errs & may_err)
            assert risk.counts_all or risks.n_counted[i] == counts.sum()


@pytest.mark.parametrize("risk", [TwoRight(), NoneWrong(), MissesIfAny(), AllRightIfAny()])
@pytest.mark.parametrize("seed", range(4))
def test_few_labels_decide_any_risk_as_all_labels_do(risk, seed):
    data = drawn(150, seed)
    rows = np.random.default_rng(seed).permutation(150)
    lambdas = np.array(
        [[np.inf, low, high] for low in (-np.inf, 0.3, 1.0) for high in (0.5, np.inf)]
    )
    frontier = Frontier(lambdas, np.full(6, K), np.zeros(6), np.zeros(6))
    for level in (0.2, 0.4, 0.6):
        decisions = []
        for table in (Table(data), lazy_table(data), lazy_table(data, draws=False)):
            path = ThresholdPath(table, rows, frontier, get_set_score("max"))
            test = BinomialTest(path, risk, level, 0.1)
            decisions.append([])
            for step in range(6):
                may_be_asked = test.may_ask()
                before = table.labels[rows] >= 0
                decisions[-1].append(test.passes(step))
                # people are told beforehand which texts may be wanted
                asked = (table.labels[rows] >= 0) & ~before
                assert not table.is_lazy or step > 0 or not np.any(asked & ~may_be_asked)
        assert decisions[0] == decisions[1] == decisions[2]


@pytest.mark.parametrize("risk", [TwoRight(), NoneWrong()])
def test_a_risk_of_somebody_else_is_kept_as_promised(risk):
    epsilon, delta, n_worlds = 0.4, 0.1, 100
    population, n_false, n_certified = drawn(20_000, 97), 0, 0
    policy = OfRisk(risk, size_weight=1.0 if risk.settled_by == 1 else -0.0)
    for seed in range(n_worlds):
        part = Part(np.arange(80, 240), np.arange(80), delta)
        claim = Claim(epsilon, delta, about=risk.about)
        rule = policy.calibrate(Table(drawn(240, seed)), [part], claim, Judging())[None]
        if not rule.certified:
            continue
        n_certified += 1
        right = risk.right(rule.shown(population, "max"), population.admissible)
        n_false += np.mean(~right) > epsilon
    assert n_certified > n_worlds / 3
    assert n_false <= binom.ppf(0.999, n_worlds, delta)


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_report_metric_and_file_speak_of_the_risk_of_somebody_else(judging, tmp_path):
    prompts, references = questions(500)
    references = [[one, f"{one} again"] for one in references]
    policy = OfRisk(NoneWrong(), size_weight=0.0)
    options = {"k_max": 3, "epsilon": 0.35, "delta": 0.1, "policy": policy, "judging": judging}
    sampler = toy_sampler(**options).fit(prompts[:400], references[:400])
    record = sampler.calibration_
    assert record.certified
    assert "holds nothing inadmissible" in record.claim.sentence()
    report = str(CalibrationReport.from_estimator(sampler))
    outcome = record.outcome
    assert "holds nothing inadmissible" in report
    sets = sampler.predict(prompts[400:])
    wrong = [any(r not in right for r in one) for right, one in zip(references[400:], sets)]
    assert set_loss(references[400:], sets) == np.mean(wrong)
    sampler.save_calibration(tmp_path / "rule.json")
    loaded = clone(sampler).load_calibration(tmp_path / "rule.json")
    assert loaded.calibration_.claim.risk.promise == NoneWrong.promise
    misses = clone(sampler).set_params(policy=ThresholdPolicy())
    with pytest.raises(ValueError, match="another risk: 'none wrong' there, 'responses' here"):
        misses.load_calibration(tmp_path / "rule.json")
    if judging == "all":
        assert 0 < np.mean(wrong) < 0.5
        shown = record.rule.shown(record.data, "max")
        n_errors = int(np.sum(~policy.risk.right(shown, record.data.admissible)[outcome.rows]))
        assert outcome.n_errors == n_errors


def test_what_the_first_draw_errs_is_said_of_misses_alone():
    prompts, references = questions(300)
    guesses = range(1, 5)
    references = [
        [right, *(f"wrong guess {k} about {right.split()[-1]}" for k in guesses)]
        for right in references
    ]
    sampler = toy_sampler(k_max=5, epsilon=0.5, delta=0.1, policy=OfRisk(TwoRight()))
    record = sampler.fit(prompts, references).calibration_
    # one draw is never two responses, though it misses for fewer prompts than epsilon tolerates
    assert record.certified
    assert record.achievable_epsilon.high < 0.5
    assert "single draw" not in str(record)


def test_metrics_judge_until_as_many_are_right_as_it_takes():
    prompts, references = questions(60)
    draws = [["no", right, f"{right} too", "never"] for right in references]
    generator = PrecomputedGenerator(prompts, draws)
    policy = OfRisk(TwoRight())

    def starts(reference, response):
        judged.append(response)
        return response.startswith(reference)

    judged = []
    options = {"k_max": 4, "epsilon": 0.3, "quality": "self_consistency", "admission": starts}
    sampler = ConformalSampler(generator, **options, policy=policy).fit(prompts, references)
    sets = sampler.predict(prompts)
    assert sampler.calibration_.certified
    judged.clear()
    holds_two = [sum(r.startswith(right) for r in one) > 1 for right, one in zip(references, sets)]
    assert set_loss(references, sets) == 1 - np.mean(holds_two)
    assert "never" not in judged


def test_people_audit_all_members_where_none_may_be_wrong():
    prompts, references = questions(300)
    people = AuditedJudging(lambda ref, one: one == ref, n_audits=60, design="two-phase")
    policy = OfRisk(NoneWrong(), size_weight=0.0)
    options = {"k_max": 3, "epsilon": 0.7, "delta": 0.1, "policy": policy, "judging": people}
    sampler = toy_sampler(**options, admission=lambda ref, one: "guess 1" not in one)
    record = sampler.fit(prompts, references).calibration_
    assert record.certified
    audit = record.outcome.audit
    data = sampler.calibration_data_
    shown = np.zeros(data.labels.shape, dtype=bool)
    shown[audit.prompts, audit.draws] = True
    sets = record.rule.shown(data, "max")
    assert np.array_equal(shown[audit.rows], sets[audit.rows])
    # the model admits all of them, and people reject some
    assert np.all(data.admissible[shown])
    assert audit.n_missed == len(np.unique(audit.prompts[~audit.verdicts])) > 0


class ExitOfTwo(ExitPolicy):
    """An exit level for a risk that it does not know."""

    risk = TwoRight()


class SomeRight(Risk):
    """A risk whose number no claim knows."""

    about = "some responses"

    def __init__(self, n=2):
        self.n_settling = n
        self.promise = f"the set for {{who}} holds {n} admissible responses"


@pytest.mark.parametrize(
    ("policy", "judging", "error", "why"),
    [
        (OfRisk(OfSingles()), "all", TypeError, "OfSingles.counts must say"),
        (
            OfRisk(AllRightIfAny()),
            "lazy",
            ValueError,
            "where the risk is AllRightIfAny, got",
        ),
        (OfRisk(TwoRight()), AuditedJudging(len), ValueError, "one witness decides where people"),
        (ExitOfTwo(), "all", TypeError, "risk must be that of misses for an exit level, got TwoR"),
        (OfRisk(SomeRight(1)), "all", TypeError, "another number is a class of its own"),
    ],
)
def test_risks_that_would_be_tested_as_another_are_refused_before_any_draw(
    policy, judging, error, why, tmp_path
):
    prompts, references = questions(100)
    log = tmp_path / "log"
    with pytest.raises(error, match=why):
        toy_sampler(policy=policy, judging=judging, log=log).fit(prompts, references)
    assert not log.exists()


def test_what_is_right_is_said_in_one_place_alone():
    with pytest.raises(TypeError, match="must say by settled_by and n_settling what is right"):
        type("Mine", (Risk,), {"about": "mine", "right": lambda self, *_: None})
    with pytest.raises(TypeError, match="must have a name `about` of its own"):
        type("Mine", (Risk,), {"n_settling": 2})
    mine = {"about": "mine", "promise": "mine"}
    with pytest.raises(TypeError, match="Mine must have counts_all = False"):
        type("Mine", (Risk,), {**mine, "counts": lambda self, sizes: sizes > 1})
    with pytest.raises(TypeError, match="Mine must have has_costs = True"):
        type("Mine", (Risk,), {**mine, "costs_of": lambda self, prompts: prompts})
    with pytest.raises(ValueError, match="about must be one of"):
        Claim(0.1, 0.1, about="nothing").sentence()


# --- sets that are not empty ------------------------------------------------------------------


def test_of_the_sets_that_are_not_empty_few_enough_miss():
    epsilon, delta, n_worlds = 0.15, 0.1, 120
    population, n_false, n_certified, shares = drawn(20_000, 99), 0, 0, []
    for seed in range(n_worlds):
        data = drawn(240, seed)
        part = Part(np.arange(80, 240), np.arange(80), delta)
        claim = Claim(epsilon, delta, about="responses if any")
        rule = ABSTAIN.calibrate(Table(data), [part], claim, Judging())[None]
        if not rule.certified:
            continue
        n_certified += 1
        accepted = rule.shown(population, "max")
        is_any = accepted.any(axis=1)
        risk = np.mean(~np.any(accepted & population.admissible, axis=1)[is_any])
        n_false += risk > epsilon
        shares.append(is_any.mean())
    assert n_certified > n_worlds / 2  # a third are hopeless: no other policy can certify this
    assert np.mean(shares) > 0.3
    assert n_false <= binom.ppf(0.999, n_worlds, delta)


def test_report_and_metric_speak_of_the_sets_that_are_not_empty(tmp_path):
    prompts, references = questions(400)
    options = {"k_max": 3, "epsilon": 0.2, "delta": 0.1}
    sampler = toy_sampler(policy=ABSTAIN, **options).set_params(generator__skill=0.6)
    sampler.fit(prompts[:300], references[:300])
    record = sampler.calibration_
    assert "where it is not empty" in record.claim.sentence()
    found = record.outcome
    assert found.n_counted < found.n_calibration == 200
    sets = sampler.predict(prompts[300:])
    is_any = sets.sizes > 0
    missed = [right not in one for right, one in zip(references[300:], sets)]
    assert set_loss(references[300:], sets) == pytest.approx(np.mean(np.array(missed)[is_any]))
    assert set_coverage(references[300:], sets) == pytest.approx(1 - np.mean(missed))
    report = str(CalibrationReport.from_estimator(sampler))
    # the report counts the sets that the test has counted, and their errors
    error = found.n_errors / found.n_counted
    assert f"error, of the {found.n_counted} sets that are not empty | {error:.4f} | " in report
    assert "Means over the 200 prompts that calibrated" in report
    assert f"{found.n_errors} of {found.n_counted} |" in report
    path = tmp_path / "thresholds.json"
    sampler.save_calibration(path)
    loaded = clone(sampler).load_calibration(path)
    again = loaded.predict(prompts[300:])
    assert [one.responses for one in again] == [one.responses for one in sets]
    with pytest.raises(ValueError, match="another policy__abstain"):
        clone(sampler).set_params(policy__abstain=False).load_calibration(path)
    lazily = ConformalSampler(policy=ABSTAIN, judging=LazyJudging())
    with pytest.raises(ValueError, match="judging must be 'all' where thresholds may abstain"):
        lazily.fit(prompts, references)


@unsearched
def test_people_audit_answers():
    """Of the answers too many are wrong, by people's standard, in few calibrations."""
    alpha, delta, n_worlds, n_false, n_certified = 0.2, 0.1, 60, 0, 0
    policy = AnswerPolicy(alpha)
    for world in range(n_worlds):
        rng = np.random.default_rng(world)
        rates = np.where(rng.random(1400) < 0.4, 0.15, 0.85)[:, np.newaxis]
        truth = rng.random((1400, K)) < rates
        answers = np.where(truth, 0, rng.integers(1, 6, truth.shape))
        by_model = truth | (rng.random(truth.shape) < 0.05)  # lenient at times
        by_model = np.take_along_axis(by_model, _first(answers), axis=1)
        people = np.take_along_axis(truth, _first(answers), axis=1)
        equal = (answers[:, :, np.newaxis] == answers[:, np.newaxis, :]).astype(float)
        share = np.tril(equal).sum(axis=2) / np.arange(1, K + 1)
        data = CalibrationData(share, equal, by_model, texts=_first(answers))
        table = Table(data.take(np.arange(300)))
        judging = AuditedJudging(len, n_audits=80, design="two-phase")
        audit = Audit(judging, People(people[:300]), world, table.data.digests)
        part = Part(np.arange(100, 300), np.arange(100), delta)
        claim = Claim(alpha, delta, about="answers")
        rule = policy.calibrate(table, [part], claim, audit)[None]
        if not rule.certified:
            continue
        n_certified += 1
        given = rule.shown(data.take(np.arange(300, 1400)), "max")
        answered = given.any(axis=1)
        wrong = ~np.any(given & people[300:], axis=1)
        n_false += np.mean(wrong[answered]) > alpha
    assert n_certified > n_worlds / 3
    assert n_false <= binom.ppf(0.999, n_worlds, delta)


def _first(answers):
    equal = answers[:, :, np.newaxis] == answers[:, np.newaxis, :]
    return equal.argmax(axis=2)


def cost_of(prompt):
    """What a miss costs, by the prompt alone: much for a fifth of them."""
    return 1.0 if sum(prompt.encode()) % 5 == 0 else 0.1


def test_errors_count_where_the_prompt_is_at_stake():
    data, lambdas = drawn(80, 1), [[np.inf, 0.5, 1.0], [np.inf, 9.0, 9.0]]
    staked = np.random.default_rng(1).random(80) < 0.4
    risk = CostOfMisses(cost_of)
    risks = evaluate_configurations(data, lambdas, set_score="max", risk=risk, at_stake=staked)
    plain = evaluate_configurations(data, lambdas, set_score="max")
    for i, one in enumerate(lambdas):
        accepted, _ = sets_at_stop(data, Configuration(*one), K, "max")
        missed = ~np.any(accepted & data.admissible, axis=1)
        assert risks.n_errors[i] == np.sum(missed & staked)
        assert risks.loss[i] == np.mean(missed & staked)
    assert risks.size.tolist() == plain.size.tolist()
    nobody = np.zeros(80, dtype=bool)
    risks = evaluate_configurations(data, lambdas, set_score="max", risk=risk, at_stake=nobody)
    assert risks.n_errors.tolist() == [0, 0]


def test_the_expected_cost_is_kept_as_promised():
    epsilon, delta, n_worlds = 0.12, 0.1, 150
    population, n_false, n_certified = drawn(20_000, 98), 0, 0
    # costs that have nothing to do with misses would prove little
    costs_of_population = np.where(population.admissible.any(axis=1), 0.6, 0.2)
    for seed in range(n_worlds):
        data = drawn(240, seed)
        costs = np.where(data.admissible.any(axis=1), 0.6, 0.2)
        digests = np.random.default_rng(seed).integers(2**63, size=240).astype(np.uint64)
        table = Table(data, at_stake=at_stake(costs, digests))
        part = Part(np.arange(80, 240), np.arange(80), delta)
        claim = Claim(epsilon, delta, about="cost")
        policy = ThresholdPolicy(cost=cost_of, n_lambdas=6, size_weight=1.0)
        rule = policy.calibrate(table, [part], claim, Judging())[None]
        if not rule.certified:
            continue
        n_certified += 1
        missed = ~np.any(rule.shown(population, "max") & population.admissible, axis=1)
        n_false += np.mean(costs_of_population * missed) > epsilon
    assert n_certified > n_worlds / 3
    assert n_false <= binom.ppf(0.999, n_worlds, delta)


def test_report_metric_and_file_speak_of_the_cost(tmp_path):
    prompts, references = questions(500)
    policy = ThresholdPolicy(cost=cost_of, n_lambdas=6)
    options = {"k_max": 3, "epsilon": 0.15, "delta": 0.1, "policy": policy}
    sampler = toy_sampler(**options).set_params(generator__skill=0.6)
    sampler.fit(prompts[:400], references[:400])
    record = sampler.calibration_
    assert record.certified
    assert "the expected cost of a set for a new prompt" in record.claim.sentence()
    assert "is at most 0.15" in record.claim.sentence()
    report = str(CalibrationReport.from_estimator(sampler))
    assert "Means over the 267 prompts that calibrated" in report
    assert f"cost of misses | {record.outcome.n_errors / 267:.4f} | " in report
    assert "probability of its cost" in report
    assert "Achievable band" not in report
    sets = sampler.predict(prompts[400:])
    missed = np.array([right not in one for right, one in zip(references[400:], sets)])
    costs = np.array([cost_of(prompt) for prompt in prompts[400:]])
    assert set_loss(references[400:], sets) == pytest.approx(np.mean(missed * costs))
    values = set_loss(references[400:], sets, average=False)
    assert values.tolist() == pytest.approx((missed * costs).tolist())
    assert set_coverage(references[400:], sets) == pytest.approx(1 - np.mean(missed))
    # what is dear is tested, and the promise of all misses would need more
    usual = clone(sampler).set_params(policy__cost=None).fit(prompts[:400], references[:400])
    assert not usual.calibration_.certified
    path = tmp_path / "thresholds.json"
    sampler.save_calibration(path)
    loaded = clone(sampler).load_calibration(path)
    again = loaded.predict(prompts[400:])
    assert [one.responses for one in again] == [one.responses for one in sets]
    assert set_loss(references[400:], again) == set_loss(references[400:], sets)
    with pytest.raises(ValueError, match="another policy__cost"):
        clone(sampler).set_params(policy__cost=None).load_calibration(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judging": "lazy"}, "judging must be 'all' where a miss has a cost"),
        ({"policy__abstain": True}, "cost must be None where thresholds may abstain"),
        ({"policy__cost": len}, "cost must return a number in \\[0, 1\\], got"),
    ],
)
def test_costs_are_refused_where_they_do_not_fit(options, message):
    prompts, references = questions(100)
    sampler = toy_sampler(policy=ThresholdPolicy(cost=cost_of)).set_params(**options)
    with pytest.raises(ValueError, match=message):
        sampler.fit(prompts, references)


def test_sets_that_do_not_know_their_sampler_have_no_cost():
    prompts, references = questions(300)
    policy = ThresholdPolicy(cost=cost_of, n_lambdas=6)
    sampler = toy_sampler(policy=policy, epsilon=0.3).fit(prompts, references)
    sets = sampler.predict(["What is new?"])
    sets.sampler = None
    with pytest.raises(ValueError, match="sets must know the sampler that made them"):
        set_loss(["new"], sets, admission="exact_match")
    with pytest.raises(ValueError, match="data must be what this sampler has collected"):
        clone(sampler).calibrate(sampler.calibration_data_)


def test_costs_need_all_draws():
    prompts = [f"question {i}" for i in range(120)]
    draws = [["yes", "no", "perhaps"][: 1 + i % 3] for i in range(120)]
    generator = PrecomputedGenerator(prompts, draws)
    policy = ThresholdPolicy(cost=cost_of)
    options = {"k_max": 3, "quality": "self_consistency", "policy": policy}
    with pytest.raises(
        ValueError, match="must hold all 3 draws of each prompt where a miss has a cost"
    ):
        ConformalSampler(generator, **options).fit(prompts, ["yes"] * 120)
