"""No result depends on the order of rows: tables come sorted."""

import functools
import json
import warnings
from functools import partial

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData, learn_then_test
from sklearn_clm.evaluation import run_component_trials, run_trials
from sklearn_clm.generators import CascadeGenerator, EstimatorGenerator
from sklearn_clm.policies import (
    AnswerPolicy,
    AuditedJudging,
    CovariateShift,
    ExitPolicy,
    Groups,
    LazyJudging,
    Losses,
    ThresholdPolicy,
)
from tests.reports import ReportModel, cases
from tests.toy import ToyModel, Trained, questions, toy_sampler

N, REPEATED = 120, 40
FEW = ThresholdPolicy(n_lambdas=4)
EXIT = ExitPolicy(look_ahead=2)


def number(prompt):
    return int(prompt.split()[-1])


def odd(prompt):
    return number(prompt) % 2


def weight(prompt):
    return 1.5 if odd(prompt) else 0.5


def people(reference, response):
    return response == reference


def lenient(reference, response):
    return response == reference or response.startswith("wrong guess 1")


def in_report(reference, component):
    return component in reference


def in_most_reports(reference, component):
    return component in reference or component.endswith("is 1.")


def share_of_wrong(prompt, reference, one):
    return sum(response != reference for response in one) / max(len(one), 1)


class Batched:
    """A score that is rounded otherwise at another place of a batch, as matrix products are."""

    def score_draws(self, prompts, generations, start):
        return [
            [np.exp(draw.logprob / 3) * (1 + 4e-16 * place) for draw in row[start:]]
            for place, row in enumerate(generations)
        ]


class BatchedParts:
    """The same of components."""

    def score_components(self, prompts, generations, spans):
        return [
            [np.exp(np.array(draw.token_logprobs)) * (1 + 4e-16 * place) for draw in row]
            for place, row in enumerate(generations)
        ]


def thresholds(**options):
    """How a sampler of a seed is made."""
    return lambda seed: toy_sampler(random_state=seed, **{"policy": FEW} | options)


def selector(sampler=None, **options):
    """How a selector of a seed, after a sampler, is made."""
    few = {"k_max": 3, "epsilon": 0.5, "policy": FEW}

    def make(seed):
        given = toy_sampler(ReportModel(), random_state=seed, **few | (sampler or {}))
        usual = {"alpha": 0.5, "admission": "exact_match", "random_state": seed}
        return ComponentSelector(given, **usual | options)

    return make


def piped(**options):
    """A selector in a pipeline after a sampler with a shift."""
    shift = CovariateShift(weight, weight_bound=1.5)
    make = selector({"shift": shift}, **options)

    def both(seed):
        one = make(seed)
        return make_pipeline(one.sampler, one.set_params(sampler=None))

    return both


def cascade(policy):
    generator = CascadeGenerator(
        [ToyModel(skill=0.5), ToyModel(skill=1.05)], n_draws=(3, 2), prices=(1, 10)
    )
    return lambda seed: toy_sampler(generator, random_state=seed, policy=policy)


def digits(seed):
    """A classifier that is trained on a part of rows of numbers."""
    generator = EstimatorGenerator(GaussianNB())
    return ConformalSampler(generator, k_max=3, epsilon=0.3, policy=FEW, random_state=seed)


def audited(judge, people, **options):
    return {"judging": AuditedJudging(people, n_audits=30, **options), "admission": judge}


SAMPLERS = {
    "thresholds": thresholds(),
    "sum, several budgets": thresholds(
        policy=ThresholdPolicy(set_score="sum", n_lambdas=4), k_max=[2, 5]
    ),
    "score in batches": thresholds(quality=Batched()),
    "exit": thresholds(policy=EXIT),
    "marginal": thresholds(policy=ExitPolicy(guarantee="marginal"), quality=Batched()),
    "answer": thresholds(policy=AnswerPolicy(0.4, score="learnt", draw_price=0.05)),
    "answer by vote": thresholds(policy=AnswerPolicy(0.5, score="vote"), judging="lazy"),
    "answer learnt": thresholds(policy=AnswerPolicy(0.4, score="learnt"), quality=Batched()),
    "cascade": cascade(EXIT),
    "cascade of answers": cascade(AnswerPolicy(0.4)),
    "lazy": thresholds(judging="lazy"),
    "functions judge": thresholds(judging="lazy"),
    "lazy exit": thresholds(policy=EXIT, judging=LazyJudging(optimization_judgements=2)),
    "lazy answer": thresholds(
        policy=AnswerPolicy(0.4, score="learnt", draw_price=0.05), judging="lazy"
    ),
    "audits": thresholds(**audited(lenient, people, design="two-phase")),
    "audits by betting": thresholds(**audited(lenient, people, design="betting")),
    "audits by people": thresholds(policy=EXIT, **audited(lenient, people, design="people")),
    "shift": thresholds(shift=CovariateShift(weight, weight_bound=1.5)),
    "losses": thresholds(losses=Losses({"wrong": share_of_wrong}, {"wrong": 0.7})),
    "groups": thresholds(groups=Groups(odd)),
    "all groups, lazily": thresholds(groups=Groups(odd, guarantee="all"), judging="lazy"),
    "trained": lambda seed: toy_sampler(Trained(), random_state=seed, policy=FEW),
    "resampled": lambda seed: ConformalSampler(
        k_max=5, epsilon=0.9, quality="self_consistency", policy=FEW, random_state=seed
    ),
    "digits": digits,
}
SELECTORS = {
    "components": selector(),
    "components, lazily": selector(judging="lazy"),
    "components in batches": selector(component_score=BatchedParts()),
    "components of groups": selector(groups=Groups(odd), judging="lazy"),
    "components by people": selector(**audited(in_most_reports, in_report, design="people")),
    "components audited": selector(**audited(in_most_reports, in_report, design="two-phase")),
    "components after a shift": piped(judging="lazy"),
}


def table_of(name):
    """Prompts that stand sorted, with references.

    Some repeat, with the same reference and with others, so that digests tie.
    """
    if name == "digits":
        rng = np.random.default_rng(0)
        y = np.repeat([0, 1, 2], 60)
        X = np.round(rng.normal(y[:, np.newaxis], 1.2, (len(y), 2)), 2)
        X[1:4], X[100:103] = X[0], X[0]
        return list(X), y.tolist()
    prompts, references = (cases if name in SELECTORS else questions)(N)
    # another reference, which the model gives as well
    others = [one.replace("answer", "wrong guess 2 about") for one in references[:REPEATED]]
    others = [one.replace("is 0.", "is 2.") for one in others]
    prompts = prompts + prompts[:REPEATED] + prompts[:4]
    references = references + others + references[:4]
    if name == "resampled":
        references = [f"answer {number(prompt) % 7}" for prompt in prompts]
        references[-4:] = [f"answer {i}" for i in range(4)]
    if name == "functions judge":
        references = [partial(people, reference) for reference in references]
    return prompts, references


KNOWN = ("n_draws_", "n_judgements_", "achievable_epsilon_", "achievable_alpha_")
NUMBERS = ("n_errors", "p_values", "n_valid", "n_judgements", "smallest_epsilon", "level")
NEW = {
    "digits": np.random.default_rng(1).normal(1.0, 1.5, (20, 2)),
    **dict.fromkeys(SAMPLERS.keys() - {"digits"}, questions(20, first=1000)[0]),
    **dict.fromkeys(SELECTORS, cases(20, first=1000)[0]),
}


@functools.cache
def found(name, seed, order=None):
    """All that a calibration says, and what it predicts."""
    prompts, references = table_of(name)
    order = range(len(prompts)) if order is None else order
    prompts, references = [prompts[i] for i in order], [references[i] for i in order]
    make = (SAMPLERS | SELECTORS)[name]
    seed = np.random.RandomState(0) if seed == "state" else seed
    with warnings.catch_warnings(action="ignore"):
        one = make(seed).fit(np.array(prompts) if name == "digits" else prompts, references)
    sets, one = one.predict(NEW[name]), getattr(one, "steps", [(None, one)])[-1][1]
    record = one.calibration_
    content = record.content()
    content["rules"].sort(key=repr)  # groups are listed as they come
    said = {f"group {group}": rule.claim.sentence() for group, rule in record.rules.items()}
    said |= {name: value for name, value in vars(one).items() if name in KNOWN}
    tests = {} if record.tests is None else vars(record.tests)
    said |= {name: value for name, value in tests.items() if name in NUMBERS}
    shown = [(one.prompt, *one) for one in sets]
    return record.certified, json.dumps(content), repr(sorted(said.items())), repr(shown)


EVERY = [*SAMPLERS, *SELECTORS]


@pytest.mark.parametrize("name", EVERY)
def test_something_is_certified(name):
    assert any(found(name, seed)[0] for seed in (None, 0))


@pytest.mark.parametrize("name", EVERY)
@given(order=st.randoms(use_true_random=False), seed=st.sampled_from([None, 0, 42, "state"]))
@settings(max_examples=3)
def test_an_estimator_finds_the_same_in_any_order(name, order, seed):
    places = list(range(len(table_of(name)[0])))
    order.shuffle(places)
    assert found(name, seed, tuple(places)) == found(name, seed)


def test_data_stand_as_they_were_given():
    prompts, references = table_of("thresholds")
    order = np.random.default_rng(0).permutation(len(prompts))
    one, other = (thresholds()(0) for _ in range(2))
    data = one.collect(prompts, references)
    shuffled = other.collect([prompts[i] for i in order], [references[i] for i in order])
    for name in ("quality", "similarity", "labels", "texts", "prompts"):
        np.testing.assert_array_equal(getattr(shuffled, name), getattr(data, name)[order])
    # data of other rows are calibrated as arrays
    assert one.calibrate(data.take(order)).lambda_hat_ == other.calibrate(shuffled).lambda_hat_


def arrays(seed, n=120, k=4, *, coarse=False):
    """Bare arrays; coarse ones hold equal rows, and rows that differ in labels alone."""
    rng = np.random.default_rng(seed)
    quality = rng.random((n, k))
    if coarse:
        quality = np.repeat(rng.integers(3, size=(n, 1)) / 2.0, k, axis=1)
    right = rng.random((n, k)) < 0.3 + 0.6 * quality
    similarity = np.zeros((n, k, k)) if coarse else rng.random((n, k, k))
    data = CalibrationData(quality, similarity, right)
    return data.take(np.argsort(right.sum(axis=1), kind="stable"))  # sorted by outcome


def parts(seed, n=120, *, coarse=False):
    """The same of components."""
    rng = np.random.default_rng(seed)
    rows = [rng.random(rng.integers(0, 5)) for _ in range(n)]
    rows = [np.round(row) for row in rows] if coarse else rows
    labels = [rng.random(len(row)) < 0.7 + 0.3 * row for row in rows]
    return ComponentCalibrationData.from_arrays(rows, labels)


orders = given(
    seed=st.integers(0, 2**32 - 1),
    order=st.randoms(use_true_random=False),
    coarse=st.booleans(),
    random_state=st.sampled_from([None, 0, 42]),
)


def shuffled(data, order):
    places = list(range(data.n_prompts))
    order.shuffle(places)
    return data.take(places)


@orders
@settings(max_examples=20)
def test_bare_arrays_are_split_and_calibrated_alike(seed, order, coarse, random_state):
    data = arrays(seed, coarse=coarse)
    other = shuffled(data, order)
    for one, same in zip(data.split(0.4, random_state), other.split(0.4, random_state)):
        np.testing.assert_array_equal(one.quality, same.quality)
        np.testing.assert_array_equal(one.labels, same.labels)
    options = {"n_lambdas": 3, "random_state": random_state}
    result, same = (learn_then_test(one, 0.5, set_score="sum", **options) for one in (data, other))
    assert repr(vars(result)) == repr(vars(same))
    selector = ComponentSelector(alpha=0.5, component_score="support")
    components = parts(seed, coarse=coarse)
    with warnings.catch_warnings(action="ignore"):
        gammas = [
            selector.calibrate(one).gamma_hat_ for one in (components, shuffled(components, order))
        ]
    assert gammas[0] == gammas[1]


@pytest.mark.parametrize(
    "policy", [FEW, EXIT, AnswerPolicy(0.4, score="learnt", draw_price=0.05)], ids=str
)
@orders
@settings(max_examples=4)
def test_policies_learn_the_same_from_arrays(policy, seed, order, coarse, random_state):
    policy = type(policy)(**policy.get_params())  # not fitted by an earlier example
    data = arrays(seed, coarse=coarse)
    other = shuffled(data, order)
    contents = []
    for one in (data, other):
        sampler = toy_sampler(k_max=4, epsilon=0.5, policy=policy, random_state=random_state)
        with warnings.catch_warnings(action="ignore"):
            contents.append(sampler.calibrate(one).calibration_.content())
    assert repr(contents[0]) == repr(contents[1])
    if not isinstance(policy, ThresholdPolicy):
        unlabeled = [one.with_labels(np.full(one.labels.shape, -1)) for one in (data, other)]
        for one, same in ((data, other), unlabeled):
            assert joblib.hash(policy.fit(one).learnt) == joblib.hash(policy.fit(same).learnt)


@orders
@settings(max_examples=4)
def test_trials_measure_the_same(seed, order, coarse, random_state):
    data, components = arrays(seed, coarse=coarse), parts(seed, coarse=coarse)
    options = {"n_trials": 2, "random_state": 0 if random_state is None else random_state}
    found = [
        run_trials(one, ["max"], [0.4, 0.6], n_lambdas=3, **options)
        for one in (data, shuffled(data, order))
    ]
    found += [
        run_component_trials({"a": one}, [0.4, 0.6], **options)
        for one in (components, shuffled(components, order))
    ]
    for one, same in (found[:2], found[2:]):
        assert repr(one.measures | one.thresholds) == repr(same.measures | same.thresholds)
