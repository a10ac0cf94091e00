"""Plans of answers: with as many prompts a calibration certifies as often as was wanted."""

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import CalibrationData, critical_count
from sklearn_clm.evaluation import plan_answers
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.policies import AnswerPolicy
from tests.calibration.tables import data_of
from tests.policies.test_answer import drawn

K = 5


def pilot(n, seed, sure=0.85):
    """Votes of a model that is right in most draws of most prompts."""
    rng = np.random.default_rng(seed)
    chance = rng.choice([sure, 0.3], (n, 1), p=[0.8, 0.2])
    said = np.where(rng.random((n, K)) < chance, 0, rng.integers(1, 4, (n, K)))
    first = (said[:, :, np.newaxis] == said[:, np.newaxis, :]).argmax(axis=2)
    same = said[:, :, np.newaxis] == said[:, np.newaxis, :]
    data = CalibrationData(np.ones((n, K)), np.tril(same, -1), said == 0, texts=first)
    return data, said


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_as_many_prompts_certify_as_often_as_wanted(alpha):
    data, _ = pilot(100, 0)
    plan = plan_answers(data, alpha, power=0.8)
    assert np.all(np.diff(plan.n_answered) > 0)
    found = 0
    for m, wrong, (n, cautious) in zip(plan.n_answered, plan.n_wrong, plan.n_prompts):
        if n is None:
            assert wrong / m > 0.5 * alpha
            continue
        found += 1
        answers = np.arange(n + 1)
        weights = binom.pmf(answers, n, m / 100)
        allowed = critical_count(answers[1:], alpha, 0.05)
        chance = np.sum(weights[1:] * binom.cdf(allowed, answers[1:], wrong / m))
        assert chance >= 0.8
        assert cautious is None or cautious > n
    assert found


def test_votes_are_those_of_the_policy():
    data, said = pilot(300, 1)
    plan = plan_answers(data, 0.2)
    prompts = [f"question {i}" for i in range(300)]
    rows = said.astype(str).tolist()
    sampler = ConformalSampler(
        PrecomputedGenerator(prompts, rows),
        k_max=K,
        quality="self_consistency",
        policy=AnswerPolicy(alpha=0.2, score="vote"),
    )
    sampler.fit(prompts, ["0"] * 300)
    outcome = sampler.calibration_.outcome
    place = plan.n_answered.tolist().index(outcome.n_counted)
    assert plan.n_wrong[place] == outcome.n_errors
    words = plan.to_markdown()
    assert "| votes | answered | of these wrong | prompts | cautiously |" in words
    assert plan.levels[0] in words


def test_what_draws_leave_open_counts_as_wrong():
    answers = drawn(np.random.default_rng(0), 80, 5)
    full = data_of(answers, answers == 0)
    n_draws = np.where(np.arange(80) % 10 == 0, 2, 5)
    labels = np.where(np.arange(5) < n_draws[:, np.newaxis], full.labels, -1)
    cut = CalibrationData(full.quality, full.similarity, labels, texts=full.texts, n_draws=n_draws)
    plans = [plan_answers(data, alpha=0.3) for data in (full, cut)]
    by_level = [dict(zip(one.levels, zip(one.n_answered, one.n_wrong))) for one in plans]
    common = by_level[0].keys() & by_level[1].keys()
    assert len(common) > 2
    for level in common:
        (m, e), (m_cut, e_cut) = by_level[0][level], by_level[1][level]
        assert m <= m_cut <= m + 8
        assert e <= e_cut <= e + 8
