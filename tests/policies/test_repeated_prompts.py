"""Prompts that repeat: what they are worth is said of the rows that a test uses."""

import warnings

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    ComponentCalibrationData,
    critical_count,
)
from sklearn_clm.calibration.rows import at_stake, describe_repetitions, keep_by_weight
from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.generators.prompts import check_prompts
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import (
    AnswerPolicy,
    AuditedJudging,
    CovariateShift,
    ExitPolicy,
    Groups,
    ThresholdPolicy,
)
from tests.calibration.tables import data_of
from tests.policies.test_answer import NOBODY, PARTS
from tests.toy import questions, toy_sampler

REPEATED = "tested prompts repeat an earlier one"
FEW = ThresholdPolicy(n_lambdas=3)
N_OTHERS = 2_400


def described(digests, level):
    """What repetitions mean, where all prompts are tested."""
    return describe_repetitions(digests, level, digests[:0])


def warnings_of(calibrate, *arguments, **options):
    """What a calibration warns of, in one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrate(*arguments, **options)
    return "\n".join(str(one.message) for one in caught)


def in_one_group(n_prompts, n_copies, rng, k_max=2):
    """Prompts of group B that repeat, among so many of group A that few of all do.

    One in ten of group A errs, and one in five of group B.
    """
    digests = np.append(np.arange(N_OTHERS), np.repeat(N_OTHERS + np.arange(n_prompts), n_copies))
    names = np.where(digests < N_OTHERS, "A", "B")
    # a prompt of group B succeeds or fails as a whole
    chance = np.where(np.arange(N_OTHERS + n_prompts) < N_OTHERS, 0.9, 0.8)
    right = rng.random(len(chance)) < chance
    order = rng.permutation(len(digests))
    rows = digests[order]
    labels = np.repeat(right[rows], k_max).reshape(-1, k_max)
    similarity = np.zeros((len(rows), k_max, k_max))
    quality = rng.random(labels.shape)
    prompts = rows.astype(np.uint64)
    assert described(prompts, level=1.0) is None
    return CalibrationData(quality, similarity, labels, prompts=prompts), names[order].tolist()


@pytest.mark.parametrize(("n_prompts", "n_copies"), [(18, 3), (12, 5)])
@pytest.mark.parametrize("policy", [FEW, ExitPolicy()], ids=["thresholds", "exit"])
def test_each_calibration_says_it_of_the_group_concerned(n_prompts, n_copies, policy):
    n_held, rng = 0, np.random.default_rng(0)
    for _ in range(12):
        data, names = in_one_group(n_prompts, n_copies, rng)
        one = ConformalSampler(NOBODY, k_max=2, policy=policy, delta=0.1, groups=Groups(), **PARTS)
        one.set_params(epsilon=0.3)
        told = warnings_of(one.calibrate, data, groups=names)
        assert told.count(REPEATED) == 1
        record = one.calibration_
        a, b = (record.rules[name].claim for name in "AB")
        assert a.holds
        assert a.repeated is None
        n_held += b.holds
        if b.holds:
            assert f"Group 'B': {b.repeated}" in told
            assert "tested on repeated prompts" in b.remarks()
            assert any(f"Group 'B': {b.repeated}" in each for each in record.conditions())
        else:
            line = next(line for line in told.splitlines() if line.startswith("Group 'B' is null"))
            assert b.repeated in line
    assert 0 < n_held < 12


def test_the_worth_is_that_of_the_rows():
    data, names = in_one_group(12, 5, np.random.default_rng(0))
    others, _ = in_one_group(12, 5, np.random.default_rng(1))
    others.prompts += np.uint64(10_000)
    policy = ExitPolicy().fit(others)
    one = ConformalSampler(NOBODY, k_max=2, policy=policy, epsilon=0.6, groups=Groups(), **PARTS)
    warnings_of(one.calibrate, data, groups=names)
    repeated = one.calibration_.rules["B"].claim.repeated
    assert repeated.startswith("48 of 60 tested prompts repeat an earlier one")
    assert "no more than 12 independent prompts" in repeated
    # of all prompts together few repeat, but those may be the ones that err
    of_all = one.calibration_.rules[None].claim.repeated
    assert of_all.startswith("48 of 2460 tested prompts repeat an earlier one")
    assert "no more than 2116 independent prompts" in of_all


@pytest.mark.parametrize("alpha", [0.2, 0.02])
def test_each_calibration_of_answers_says_it_of_those_answered(alpha):
    """Popular prompts are answered, others are too hard: few of all prompts repeat."""
    rng, n_held = np.random.default_rng(0), 0
    for seed in range(6):
        popular = np.repeat(np.arange(40), 3)
        digests = np.append(popular, 1_000 + np.arange(2_200)).astype(np.uint64)
        answers = rng.integers(0, 6, (len(digests), 6))
        easy = np.repeat(rng.random(40) < 0.93, 3)[:, np.newaxis]
        answers[: len(popular)] = np.where(easy, 0, rng.integers(1, 6, 40).repeat(3)[:, np.newaxis])
        order = rng.permutation(len(digests))
        data = data_of(answers[order], answers[order] == 0)
        data.prompts = digests[order]
        assert described(data.prompts, level=1.0) is None
        one = ConformalSampler(NOBODY, k_max=6, policy=AnswerPolicy(alpha), **PARTS)
        one.set_params(random_state=seed)
        told, claim = warnings_of(one.calibrate, data), one.calibration_.claim
        if "0 of 0 answers" in told:
            continue
        assert told.count(REPEATED) == 1
        n_held += claim.holds
        assert (claim.repeated in claim.conditions()) if claim.holds else claim.repeated
    assert n_held > 3 if alpha == 0.2 else n_held == 0


class OftenAsked(BaseGenerator):
    """All draws for popular prompts agree, and no two for others."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        return [
            [Generation("same" if "popular" in prompt else f"{j}") for j in draws]
            for prompt in prompts
        ]


@pytest.mark.parametrize("design", ["two-phase", "betting", "people"])
def test_each_audit_of_answers_says_it_of_those_answered(design):
    popular = [f"popular {i}" for i in range(40)] * 3
    X = popular + [f"other {i}" for i in range(2_200)]
    assert described(check_prompts(X).digests, level=1.0) is None
    judging = AuditedJudging("exact_match", n_audits=60, design=design)
    one = ConformalSampler(
        OftenAsked(),
        k_max=3,
        policy=AnswerPolicy(0.2),
        judging=judging,
        **{**PARTS, "admission": "exact_match"},
    )
    told = warnings_of(one.fit, X, ["same"] * len(X))
    claim = one.calibration_.claim
    assert claim.holds
    assert one.predict(["popular 7", "other 7"]).sizes.tolist() == [1, 0]
    assert REPEATED in claim.repeated
    assert told.count(REPEATED) == 1


def test_it_is_said_wherever_the_claim_is_shown(tmp_path):
    X, Y = questions(420)
    X, Y = X + X[400:] * 3, Y + Y[400:] * 3
    names = ["A"] * 400 + ["B"] * 80
    few = {"k_max": 3, "epsilon": 0.6, "policy": FEW}
    one = toy_sampler(groups=Groups(), **few)
    assert REPEATED in warnings_of(one.fit, X, Y, groups=names)
    sets = one.predict([*questions(2, first=1_000)[0]], groups=["A", "B"])
    assert sets[0].remarks() == ["group 'A'"]
    assert sets[1].remarks() == ["group 'B'", "tested on repeated prompts"]
    assert "tested on repeated prompts" in repr(sets)
    repeated = sets[1].claim.repeated
    assert repeated in sets[1].to_dict()["guarantee"]
    assert "repeat" not in sets[0].to_dict()["guarantee"]
    for shown in (one.calibration_, CalibrationReport.from_estimator(one)):
        assert f"Group 'B': {repeated}" in str(shown)
    one.save_calibration(tmp_path / "file.json")
    loaded = toy_sampler(groups=Groups(), **few).load_calibration(tmp_path / "file.json")
    assert loaded.calibration_.claims_in_use == one.calibration_.claims_in_use
    assert f"Group 'B': {repeated}" in str(loaded.calibration_)


def test_rows_that_a_shift_keeps():
    X, Y = questions(220)
    X, Y = X[:200] + X[200:] * 5, Y[:200] + Y[200:] * 5
    weights = np.where(np.arange(300) < 200, 0.02, 1.0)
    one = toy_sampler(k_max=3, epsilon=0.6, policy=FEW, shift=CovariateShift(weight_bound=1.0))
    warnings_of(one.fit, X, Y, prompt_weight=weights)
    n = one.calibration_.outcome.n_calibration
    assert f" of {n} {REPEATED}" in one.calibration_.claim.repeated
    with_all = toy_sampler(k_max=3, epsilon=0.6, policy=FEW)
    few_repeat = warnings_of(with_all.fit, X[:200] + X[200:208], Y[:200] + Y[200:208])
    assert REPEATED not in few_repeat


def test_rows_whose_misses_cost_anything():
    """Errors are those of prompts at stake alone: popular ones, where only these cost."""
    X, Y = questions(1_012)
    X, Y = X[:1_000] + X[1_000:] * 2, Y[:1_000] + Y[1_000:] * 2
    dear = frozenset(X[1_000:])
    for cost, n_repeated in ((lambda prompt: float(prompt in dear), 1), (lambda prompt: 1.0, 0)):
        policy = ThresholdPolicy(n_lambdas=3, cost=cost)
        one = toy_sampler(k_max=3, epsilon=0.6, policy=policy)
        assert warnings_of(one.fit, X, Y).count(REPEATED) == n_repeated
        assert one.calibration_.certified


def test_copies_of_the_prompts_that_err():
    """Few rows repeat, all of them hard: 29 of 200 such calibrations were false at delta = .05."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        right = rng.random(430) > 0.021  # and of the rows, with copies, .94 are
        rows = np.repeat(np.arange(430), np.where(right, 1, 3))
        labels = right[rows, np.newaxis]
        similarity = np.zeros((*labels.shape, 1))
        data = CalibrationData(rng.random(labels.shape), similarity, labels, prompts=rows)
        one = ConformalSampler(NOBODY, k_max=1, policy=FEW, epsilon=0.06, **PARTS)
        assert warnings_of(one.calibrate, data).count(REPEATED) == 1


def test_the_worth_of_copies_is_that_of_the_rows_that_may_err():
    rows = np.append(np.arange(990), np.arange(10))
    # of 1,000 rows 10, 100, or all may err, and 20 of them repeat
    assert "than 500 independent" in described(rows, level=0.01)
    assert "than 833 independent" in described(rows, level=0.1)
    assert described(rows, level=0.2) is None
    assert described(rows[:0], level=0.2) is None
    # of several promises the strictest
    claim = Claim(level=0.3, delta=0.05, losses={"toxic": 0.01})
    tested = claim.tested_on(np.arange(1_000), rows, rows[:0], rows[:0])
    assert "than 500 independent" in tested.repeated


ABSTAINING = ThresholdPolicy(n_lambdas=3, abstain=True)


@pytest.mark.parametrize(
    "policy", [FEW, ExitPolicy(), ABSTAINING], ids=["thresholds", "exit", "abstain"]
)
def test_a_popular_prompt_in_the_part_that_teaches(policy):
    """One prompt in five is the same one, and wrong: then the others alone are tested."""
    taught = tested = False
    for seed in range(40):
        rng = np.random.default_rng(seed)
        popular = rng.random(300) < 0.2
        labels = (rng.random((300, 1)) < 0.88) & ~popular[:, np.newaxis]
        prompts = np.where(popular, 0, 1 + np.arange(300)).astype(np.uint64) + 1_000 * seed
        data = CalibrationData(rng.random((300, 1)), np.zeros((300, 1, 1)), labels, prompts=prompts)
        one = ConformalSampler(NOBODY, k_max=1, policy=policy, epsilon=0.27, **PARTS)
        assert warnings_of(one.calibrate, data).count("prompts repeat an earlier one") == 1
        claim = one.calibration_.claim
        if "tested prompts" in claim.repeated:
            tested = True
        else:
            assert "the part that teaches is not tested" in claim.repeated
            taught |= claim.holds  # though the risk is .296
        if tested and taught:
            break
    assert tested
    assert taught


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("n", [100, 300, 1_000, 5_000])
@pytest.mark.parametrize("share", [1 / 5, 1 / 3])
def test_a_repeated_prompt_that_is_not_announced_hardly_matters(epsilon, n, share):
    """The exact chance of a false certificate, where it always errs, and the risk is epsilon."""
    n_tested = round(n * (1 - share))
    allowed = int(critical_count(n_tested, epsilon, 0.05))
    for n_copies in range(2, n):
        once, copies = np.arange(n - n_copies), np.full(n_copies, n)
        if describe_repetitions(once, epsilon, copies) is not None:
            break
        risk_of_others = (epsilon * n - n_copies) / (n - n_copies)
        unseen = binom.cdf(allowed, n_tested, risk_of_others)
        seen = binom.cdf(allowed - n_copies, n_tested - n_copies, risk_of_others)
        assert share * unseen + (1 - share) * seen < 0.054
    assert n_copies < 0.1 * n


class Trained(OftenAsked):
    """The same, of a model that was trained on prompts and references."""

    def fit(self, prompts, references):
        return self


@pytest.mark.parametrize("selects", [False, True])
def test_a_popular_prompt_that_trained_the_generator(selects):
    told_by_training = 0
    for seed in range(8):
        X = [f"popular {seed}"] * 30 + [f"other {seed} {i}" for i in range(90)]
        parts = {**PARTS, "admission": lambda reference, response: True}
        one = ConformalSampler(Trained(), k_max=2, policy=FEW, epsilon=0.4, **parts)
        if selects:
            score = lambda prompt, component: 0.5  # noqa: E731
            one = ComponentSelector(
                one, component_score=score, admission=lambda reference, part: True, alpha=0.4
            )
        told = warnings_of(one.fit, X, ["same"] * 120)
        remark = "29 of 120 prompts repeat an earlier one"
        told_by_training += remark in told
        assert (remark in str(one.calibration_)) == (remark in told)
        assert "prompts repeat an earlier one" in told
        if told_by_training:
            break
    assert told_by_training


@pytest.mark.parametrize("by", [None, lambda prompt: prompt[0]], ids=["given", "computed"])
@pytest.mark.parametrize("selects", [False, True])
def test_a_popular_prompt_of_a_group_that_trained_the_generator(selects, by):
    """Of all prompts few repeat, and one in six of group B: it alone may err there."""
    trained = False
    for seed in range(8):
        X = [f"B popular {seed}"] * 10 + [f"B {seed} {i}" for i in range(50)]
        X += [f"A {seed} {i}" for i in range(1_200)]
        names = None if by else [prompt[0] for prompt in X]
        parts = {**PARTS, "admission": lambda reference, response: True}
        one = ConformalSampler(Trained(), k_max=2, policy=FEW, epsilon=0.4, **parts)
        if selects:
            one = ComponentSelector(
                one,
                component_score=lambda prompt, component: 0.5,
                admission=lambda reference, part: True,
                alpha=0.4,
            )
        one.set_params(groups=Groups(by=by))
        told = warnings_of(one.fit, X, ["same"] * len(X), groups=names)
        record = one.calibration_
        a, b = (record.rules[name].claim for name in "AB")
        assert a.repeated is None
        assert b.holds
        assert f"Group 'B': {b.repeated}" in told
        assert "prompts repeat an earlier one" in b.repeated
        trained |= 0 not in one.calibration_indices_
        if trained:
            break
    assert trained
    if not selects:
        # which of those that are left out are of a group that is given anew is not known
        names = [X[i][0].lower() for i in one.calibration_indices_]
        one.set_params(groups=Groups())
        warnings_of(one.calibrate, one.calibration_data_, groups=names)
        assert "prompts repeat an earlier one" in one.calibration_.rules["b"].claim.repeated


def test_a_popular_prompt_that_trained_the_generator_and_may_be_answered():
    trained = False
    for seed in range(8):
        X = [f"popular {seed}"] * 12 + [f"popular {seed} {i}" for i in range(150)]
        X += [f"other {seed} {i}" for i in range(1_200)]
        parts = {**PARTS, "admission": lambda reference, response: response == "same"}
        one = ConformalSampler(Trained(), k_max=3, policy=AnswerPolicy(0.2), **parts)
        told = warnings_of(one.fit, X, ["same"] * len(X))
        assert one.calibration_.claim.holds
        trained |= 0 not in one.calibration_indices_
        if trained:
            break
    assert trained
    assert "prompts repeat an earlier one" in told


def test_each_copy_of_a_prompt_is_at_stake_by_itself():
    """By one coin for all, what a popular prompt costs would count twice, or not at all."""
    popular = np.full(400, 7, dtype=np.uint64)
    staked = at_stake(np.full(400, 0.5), popular)
    assert 150 < staked.sum() < 250
    # the order of rows decides nothing where ties tell copies apart
    rng = np.random.default_rng(0)
    order = rng.permutation(400)
    ties = np.arange(400)
    assert np.array_equal(
        at_stake(np.full(400, 0.5), popular, ties[order]),
        at_stake(np.full(400, 0.5), popular, ties)[order],
    )
    # prompts that stand once have the coins of their digests
    once = np.arange(400, dtype=np.uint64)
    coins = keep_by_weight(np.full(400, 0.5), 1.0, once, seed=0x636F7374)
    assert np.array_equal(at_stake(np.full(400, 0.5), once), coins)


def test_a_popular_prompt_that_is_not_at_stake_each_time_is_announced():
    X, Y = questions(200)
    cost = lambda prompt: 0.5 if prompt == X[0] else 0.1  # noqa: E731
    policy = ThresholdPolicy(n_lambdas=3, cost=cost)
    for first in range(4):
        X[0] = f"{X[0]}{first}"
        one = toy_sampler(k_max=3, epsilon=0.6, policy=policy)
        told = warnings_of(one.fit, X + X[:1] * 60, Y + Y[:1] * 60)
        assert told.count("prompts repeat an earlier one") == 1


def test_components_and_prompts_that_people_judge_alone():
    rng = np.random.default_rng(0)
    digests = np.append(np.arange(300), np.repeat(300 + np.arange(12), 5)).astype(np.uint64)
    names = ["A"] * 300 + ["B"] * 60
    scores = rng.random((360, 2))
    data = ComponentCalibrationData.from_arrays(scores, scores > 0.1, prompts=digests)
    selector = ComponentSelector(alpha=0.4, groups=Groups())
    assert f"Group 'B': 48 of 60 {REPEATED}" in warnings_of(selector.calibrate, data, groups=names)
    X, Y = questions(60)
    judging = AuditedJudging(
        lambda reference, said: reference == said, design="people", n_audits=40
    )
    one = toy_sampler(k_max=3, epsilon=0.6, policy=FEW, judging=judging)
    warnings_of(one.fit, X * 3, Y * 3)
    claim = one.calibration_.claim
    assert f" of 40 {REPEATED}" in claim.repeated
    assert claim.conditions()[1] == claim.repeated
