"""Policies and lazy judging as parameters of the sampler."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration._exit_model import impute_labels
from sklearn_clm.calibration.table import Table
from sklearn_clm.generators import Generation, PrecomputedGenerator
from sklearn_clm.policies import ExitPolicy, LazyJudging
from tests.calibration.tables import equal_texts, exit_scores_of, lazy_table
from tests.toy import toy_sampler


def drawn(n=60, k=6, seed=0):
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, 4, (n, k))
    first = equal_texts(answers.tolist())
    similarity = np.where(first[:, :, None] == first[:, None, :], 1.0, 0.3)
    quality = np.take_along_axis(rng.random((n, k)), first, axis=1)
    return CalibrationData(quality, similarity, answers == 0), first


def test_clones_keep_what_was_learnt_elsewhere():
    data, _ = drawn()
    policy = ExitPolicy(GaussianNB()).fit(data)
    copy = clone(policy)
    assert copy.model_ is policy.model_
    assert copy.estimator is not policy.estimator
    assert not hasattr(clone(ExitPolicy()), "model_")


@pytest.mark.parametrize(
    ("same_text", "first", "expected"),
    [
        (None, [0, 1, 2, 3], [0, 1, 2, 3]),
        # draw 3 is like draw 1, which is no text of its own: clusters do not chain
        (0.8, [0, 1, 2, 3], [0, 0, 2, 3]),
        (0.95, [0, 1, 2, 3], [0, 1, 2, 3]),
        (0.8, [0, 1, 2, 1], [0, 0, 2, 0]),
    ],
)
def test_near_duplicates_are_one_text(same_text, first, expected):
    similarity = np.zeros((1, 4, 4))
    similarity[0, 1, 0] = similarity[0, 3, 1] = 0.9
    data = CalibrationData(np.zeros((1, 4)), similarity, np.ones((1, 4)), texts=[first])
    texts = ExitPolicy(same_text=same_text).texts(Table(data), np.arange(1))
    assert texts.tolist() == [expected]


@pytest.mark.parametrize("wanted", [0, 1, 3, None])
def test_as_many_draws_are_judged_as_asked_for(wanted):
    data, first = drawn()
    asked = []

    def judge(prompts, draws):
        asked.extend(zip(prompts.tolist(), draws.tolist()))
        return data.admissible[prompts, draws]

    data.texts = first
    table = lazy_table(data, judge=judge)
    labels, _ = LazyJudging(optimization_judgements=wanted).labels(table, np.arange(60), first)
    n_texts = np.array([len(np.unique(row)) for row in first])
    expected = n_texts if wanted is None else np.minimum(n_texts, wanted)
    assert np.array_equal(np.bincount([i for i, _ in asked], minlength=60), expected)
    assert len(set(asked)) == len(asked)
    known = table.labels >= 0
    assert np.array_equal(labels[known], data.admissible[known])
    assert np.array_equal(np.take_along_axis(labels, first, axis=1), labels)


@pytest.mark.parametrize(
    ("n_prompts", "k_max", "expected"),
    [(10, 20, 3), (10, 2, 2), (200, 20, 3), (250, 20, 2), (900, 20, 2), (900, 1, 1)],
)
def test_many_prompts_need_fewer_judgements_each(n_prompts, k_max, expected):
    assert LazyJudging().judgements_per_prompt(n_prompts, k_max) == expected


FORMS = ("City {}", "City {}.", "the City {}")


def spelt_in_several_ways(n, k_max=10):
    """Prompts, references and draws that write each answer in one of three ways."""
    rng = np.random.default_rng(1)
    ease = rng.uniform(0.05, 0.8, (n, 1))
    right = rng.random((n, k_max)) < ease
    cities = np.where(right, np.arange(n)[:, None], n + rng.integers(4 * n, size=(n, 1)))
    cities += np.where(right, 0, rng.integers(4, size=right.shape))
    rows = [[FORMS[rng.integers(3)].format(city) for city in row] for row in cities]
    logprobs = np.log(np.where(right, ease, (1 - ease) / 4)) - rng.exponential(0.3, right.shape)
    references = [[form.format(i) for form in FORMS] for i in range(n)]
    return [f"capital {i}?" for i in range(n)], references, rows, logprobs.tolist()


def test_near_copies_count_as_one_where_labels_are_estimated():
    prompts, references, rows, logprobs = spelt_in_several_ways(900)
    draws = [[Generation(*one, 2) for one in zip(*pair)] for pair in zip(rows, logprobs)]
    generator = PrecomputedGenerator(prompts, draws)
    sizes = {}
    for judging in ("all", "lazy"):
        sampler = toy_sampler(generator, k_max=10, epsilon=0.15, judging=judging)
        sampler.fit(prompts[:400], references[:400])
        assert np.isfinite(sampler.lambda_hat_.similarity)
        sizes[judging] = sampler.predict(prompts[400:]).sizes.mean()
    assert sizes["lazy"] < 1.5 * sizes["all"]


def test_a_certified_rule_that_returns_everything_is_warned_of():
    rng = np.random.default_rng(0)
    labels = np.eye(3, dtype=bool)[rng.integers(3, size=60)]  # one draw, whatever its quality
    data = CalibrationData(rng.random((60, 3)), np.zeros((60, 3, 3)), labels)
    sampler = toy_sampler(k_max=3, epsilon=0.08)
    with pytest.warns(UserWarning, match="all 3 draws"):
        sampler.calibrate(data)
    assert sampler.result_.risks.size[sampler.result_.position] == 3


def test_labels_that_are_unknown_are_estimated():
    data, first = drawn(n=120)
    order = data.order()
    data, first = data.take(order), first[order]
    known = np.take_along_axis(np.where(np.arange(6) < 2, data.labels, -1), first, axis=1)
    estimated = impute_labels(data, first, known, LogisticRegression).astype(np.int8)
    assert np.array_equal(estimated[known >= 0], known[known >= 0])
    policy = ExitPolicy(same_text=None)
    given, alike = (policy.fit(data.with_labels(one)).model_ for one in (known, estimated))
    assert np.array_equal(exit_scores_of(given, data)[0], exit_scores_of(alike, data)[0])


def test_which_texts_are_near_copies_is_learnt_from_labels():
    rng = np.random.default_rng(0)
    # three meanings, of which one is right; what means the same is more alike than 0.8
    meanings = rng.integers(3, size=(60, 6))
    same = meanings[:, :, None] == meanings[:, None, :]
    similarity = np.where(same, rng.uniform(0.8, 1.0, same.shape), rng.uniform(0, 0.7, same.shape))
    data = CalibrationData(rng.random((60, 6)), similarity, meanings == 0)
    policy = ExitPolicy().fit(data)
    assert 0.6 < policy.model_.same_text < 0.85
    expected = (meanings[:, :, None] == meanings[:, None, :]).argmax(axis=2)
    assert np.mean(policy.texts(Table(data), np.arange(60)) == expected) > 0.9
    # where like texts differ as often as others, none is a copy
    by_chance = data.with_labels(rng.random((60, 6)) < 0.5)
    assert ExitPolicy().fit(by_chance).model_.same_text is None
