"""The sampler in scikit-learn's pipelines, searches and validation curves."""

import functools
import pickle
from collections import Counter

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.caching import CachedAdmission, CachedGenerator, CachedScore
from sklearn_clm.metrics import SCORERS, set_outcomes
from sklearn_clm.policies import ThresholdPolicy
from tests import toy
from tests.toy import ToyModel, drawn, questions

X, Y = questions(90)


toy_sampler = functools.partial(toy.toy_sampler, epsilon=0.45)


def strip_all(texts):
    return [text.strip() for text in texts]


def test_text_cleaning_before_the_sampler():
    pipeline = make_pipeline(FunctionTransformer(strip_all), toy_sampler())
    pipeline.fit([f"  {text} " for text in X], Y)
    alone = toy_sampler().fit(X, Y)
    assert pipeline[-1].lambda_hat_ == alone.lambda_hat_
    assert pipeline.predict([" item 900  "]) == alone.predict(["item 900"])
    assert pipeline.score([f"{text} " for text in X], Y) == alone.score(X, Y)


def test_metadata_is_not_swallowed():
    pipeline = make_pipeline(FunctionTransformer(strip_all), toy_sampler())
    with pytest.raises(TypeError, match="sample_weight"):
        pipeline.fit(X, Y, conformalsampler__sample_weight=np.ones(len(X)))
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises((TypeError, ValueError), match="sample_weight"):
            cross_val_score(toy_sampler(), X, Y, params={"sample_weight": np.ones(len(X))})
        assert len(cross_val_score(toy_sampler(), X, Y, cv=2)) == 2


def k_max_search(generator, n_jobs=None):
    sampler = ConformalSampler(generator, epsilon=0.45, random_state=0)
    return GridSearchCV(sampler, {"k_max": [3, 8]}, cv=3, n_jobs=n_jobs).fit(X, Y)


def test_grid_search_over_k_max_draws_each_sample_once(log, tmp_path):
    generator = CachedGenerator(ToyModel(log=log), str(tmp_path / "cache.sqlite"))
    search = k_max_search(generator)
    calls = drawn(log)
    assert len(calls) == len(set(calls)) == len(X) * 8
    search.predict(X[:20])
    # without a random_state, too: the seed of the draws is then a constant
    GridSearchCV(ConformalSampler(generator, epsilon=0.45), {"k_max": [3, 8]}, cv=2).fit(X, Y)
    assert len(drawn(log)) == len(calls)
    uncached = k_max_search(ToyModel())
    assert np.isfinite(uncached.cv_results_["mean_test_score"]).all()
    for name in ("mean_test_score", "std_test_score", "rank_test_score"):
        assert np.array_equal(search.cv_results_[name], uncached.cv_results_[name])


def test_grid_search_judges_and_scores_each_draw_once(tmp_path):
    asked = Counter()

    def judge(reference, response):
        asked["judge", reference, response] += 1
        return reference == response

    def quality(prompt, generation):
        asked["quality", prompt, generation.response] += 1
        return generation.logprob

    def similarity(a, b):
        asked["similarity", a, b] += 1
        return float(a == b)

    file = str(tmp_path / "cache.sqlite")
    sampler = toy_sampler(
        CachedGenerator(ToyModel(), file),
        admission=CachedAdmission(judge, file, key="judge"),
        quality=CachedScore(quality, file, key="quality"),
        similarity=CachedScore(similarity, file, key="similarity"),
        policy=ThresholdPolicy(),
    )
    grid = {"k_max": [2, 4], "policy__set_score": ["max", "sum"]}
    cached = GridSearchCV(sampler, grid, cv=2).fit(X[:100], Y[:100])
    assert set(asked.values()) == {1}
    assert {kind for kind, *_ in asked} == {"judge", "quality", "similarity"}
    plain = sampler.set_params(admission=judge, quality=quality, similarity=similarity)
    plain = GridSearchCV(plain, grid, cv=2).fit(X[:100], Y[:100])
    for name in ("mean_test_score", "rank_test_score"):
        assert np.array_equal(cached.cv_results_[name], plain.cv_results_[name])


@pytest.mark.filterwarnings("ignore:One or more of the test scores:UserWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_null_ranks_last():
    with pytest.warns(NullCalibrationWarning):
        search = GridSearchCV(toy_sampler(), {"epsilon": [0.01, 0.45, 0.02]}, cv=2).fit(X, Y)
    assert search.cv_results_["mean_test_score"].tolist()[::2] == [-np.inf, -np.inf]
    assert search.cv_results_["rank_test_score"].tolist() == [2, 1, 2]
    assert search.best_params_ == {"epsilon": 0.45}


def test_scorers_agree_with_the_metrics():
    sampler = toy_sampler(policy=ThresholdPolicy(size_weight=0.2, excess_weight=0.7)).fit(X, Y)
    new, references = questions(80, first=2000)
    outcomes = set_outcomes(references, sampler.predict(new))
    expected = {
        "coverage": 1 - outcomes.loss.mean(),
        "neg_set_size": -outcomes.size.mean(),
        "neg_samples": -outcomes.samples.mean(),
        "neg_excess": -outcomes.excess.mean(),
        "neg_objective": -(0.2 * outcomes.size.mean() + 0.7 * outcomes.excess.mean()),
    }
    assert set(SCORERS) == set(expected)
    for name, scorer in SCORERS.items():
        for one in (scorer, pickle.loads(pickle.dumps(scorer))):
            assert one(sampler, new, references) == pytest.approx(expected[name])
    assert sampler.score(new, references) == pytest.approx(expected["neg_objective"])


def test_objective_scorer_of_a_null_calibration():
    with pytest.warns(NullCalibrationWarning):
        sampler = toy_sampler(epsilon=0.01).fit(X, Y)
    assert SCORERS["neg_objective"](sampler, X, Y) == -np.inf
    # the trivial set shows each text of all draws once
    n_texts = [len({draw.response for draw in one.generations}) for one in sampler.predict(X)]
    assert SCORERS["neg_set_size"](sampler, X, Y) == -np.mean(n_texts)


def test_scorers_use_the_admission_of_the_sampler():
    sampler = toy_sampler(admission=lambda reference, response: True).fit(X, Y)
    assert SCORERS["coverage"](sampler, X, ["anything"] * len(X)) == 1.0


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_cross_validate_with_many_scorers(log, n_jobs):
    sampler = toy_sampler(log=log)
    result = cross_validate(sampler, X, Y, cv=3, scoring=SCORERS, n_jobs=n_jobs)
    assert set(result) == {"fit_time", "score_time", *(f"test_{name}" for name in SCORERS)}
    assert ((result["test_coverage"] >= 0) & (result["test_coverage"] <= 1)).all()
    n_fit = 2 * len(X) * 5
    n_predicted = round(-result["test_neg_samples"].mean() * len(X))
    assert len(drawn(log)) == n_fit + n_predicted  # one predict serves all scorers


@pytest.mark.parametrize("k_max", [5, [1, 2, 5]])  # of several, folds choose different ones
def test_cross_val_predict(k_max):
    sets = cross_val_predict(toy_sampler(k_max=k_max), X, Y, cv=3)
    assert sets.shape == (len(X), 5)
    covered = [answer in row for row, answer in zip(sets.tolist(), Y)]
    assert np.mean(covered) > 0.5
