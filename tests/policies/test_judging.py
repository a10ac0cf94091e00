"""Lazy judging: how many labels the optimisation part gets, and what stands for the others."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration.exit_model import impute_labels
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
