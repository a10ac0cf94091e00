"""ConformalSampler: what it returns, what it draws, what it refuses, what it guarantees."""

import functools
import math
import pickle
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from sklearn_clm import (
    ComponentSelector,
    ConformalSampler,
    NullCalibrationError,
    NullCalibrationWarning,
)
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.calibration.words import percent
from sklearn_clm.generators import (
    EstimatorGenerator,
)
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import ThresholdPolicy
from sklearn_clm.scoring import likelihood, rouge_l
from tests import toy
from tests.toy import ToyModel, Unscored, drawn, questions

N_FIT = 150


X, y = questions(N_FIT)


toy_sampler = functools.partial(toy.toy_sampler, k_max=8, epsilon=0.3, random_state=3)


@pytest.fixture(scope="module")
def fitted():
    return toy_sampler().fit(*questions(N_FIT))


def algorithm_1(sampler, prompt, k_max):
    """The sets as the paper's listing makes them, from the generator's draws."""
    l1, l2, l3 = sampler.lambda_hat_
    draws = sampler.generator_.sample([prompt], k_max, seed=sampler.seed_)[0]
    accepted = []
    for j, draw in enumerate(draws):
        quality = likelihood(prompt, draw)
        if quality < l2:
            continue
        if accepted and max(rouge_l(draws[i].response, draw.response) for i in accepted) > l1:
            continue
        accepted.append(j)
        if max(likelihood(prompt, draws[i]) for i in accepted) >= l3:
            return accepted, j + 1
    return accepted, k_max


def test_sets_are_those_of_algorithm_1(fitted):
    prompts, _ = questions(150, first=5000)
    for prompt, one in zip(prompts, fitted.predict(prompts)):
        accepted, n_samples = algorithm_1(fitted, prompt, 8)
        assert one.accepted.tolist() == accepted
        assert one.n_samples == n_samples
        assert one.guaranteed
        drawn = [one.generations[j].response for j in accepted]
        assert one.responses == tuple(dict.fromkeys(drawn))
        assert len(one.generations) == n_samples


@pytest.mark.parametrize("set_score", ["first_k", "first_k_reject", "max", "sum", np.mean])
@pytest.mark.parametrize("model", [ToyModel, Unscored])
def test_predictions_are_the_same_alone_together_reversed_and_after_pickle(set_score, model):
    quality = "likelihood" if model is ToyModel else "self_consistency"
    policy = ThresholdPolicy(set_score=set_score)
    sampler = toy_sampler(model(), policy=policy, k_max=5, epsilon=0.4, quality=quality)
    X, y = questions(120)
    assert sampler.fit_transform(X, y) == sampler.predict(X)
    assert sampler.lambda_hat_ is not None
    prompts, _ = questions(30, first=9000)
    together = sampler.predict(prompts)
    assert sampler.predict(prompts[::-1])[::-1] == together
    assert [sampler.predict([prompt])[0] for prompt in prompts] == list(together)
    if set_score is not np.mean:
        assert pickle.loads(pickle.dumps(sampler)).predict(prompts) == together
    assert clone(sampler).fit(*questions(120)).predict(prompts) == together


def test_predict_draws_only_what_the_rule_asks_for(fitted, log):
    sampler = toy_sampler(log=str(log)).fit(*questions(N_FIT))
    assert len(drawn(log)) == N_FIT * 8
    log.unlink()
    prompts, _ = questions(60, first=5000)
    sets = sampler.predict(prompts)
    calls = drawn(log)
    assert len(calls) == len(set(calls)) == sets.n_samples.sum() < 60 * 8
    assert sets == fitted.predict(prompts)


def test_each_round_is_one_call_over_all_open_prompts():
    class Recording(ToyModel):
        def sample(self, prompts, n_samples, *, start=0, seed=0):
            rounds.append((start, len(prompts)))
            return super().sample(prompts, n_samples, start=start, seed=seed)

    rounds = []
    sampler = toy_sampler().set_params(generator=Recording()).fit(*questions(N_FIT))
    rounds.clear()
    sets = sampler.predict(questions(50, first=700)[0])
    assert rounds == [
        (j, int((sets.n_samples > j).sum())) for j in range(int(sets.n_samples.max()))
    ]


@pytest.mark.parametrize("similarity", ["rouge_l", "exact_match"])
def test_fit_transform_reuses_the_draws_of_fit(log, similarity):
    sampler = toy_sampler(log=str(log), similarity=similarity, epsilon=0.25)
    sets = sampler.fit_transform(X, y)
    assert len(drawn(log)) == N_FIT * 8
    assert sets == sampler.transform(X)
    assert len(drawn(log)) == N_FIT * 8
    assert sets.sampler is sampler


def test_fit_transform_with_a_trained_generator():
    X = np.random.default_rng(0).normal(size=(160, 3))
    y = (X[:, 0] > 0).astype(int)
    generator = EstimatorGenerator(LogisticRegression())
    sampler = ConformalSampler(generator, k_max=4, random_state=0)
    sets, again = sampler.fit_transform(X, y), sampler.transform(X)
    own = sampler.calibration_indices_
    assert sets[own] == again[own]
    assert [one.responses for one in sets] == [one.responses for one in again]
    # nothing is promised to prompts that trained the generator
    assert np.flatnonzero([one.guaranteed for one in sets]).tolist() == own.tolist()
    trained = next(one for one in sets if not one.guaranteed)
    text = "Nothing is guaranteed of this set: the prompt trained the generator."
    assert trained.to_dict()["guarantee"] == trained.claim.sentence() == text
    assert len(own) == 80
    assert sampler.calibration_data_.n_prompts == 80


def test_calibrate_on_loaded_data_without_collecting(tmp_path):
    first = toy_sampler().fit(X, y)
    first.calibration_data_.save(tmp_path / "data.npz")
    second = toy_sampler().calibrate(CalibrationData.load(tmp_path / "data.npz"))
    assert second.predict(X[:9]) == first.predict(X[:9])
    with pytest.raises(NotFittedError, match="learn_then_test"):
        ConformalSampler(k_max=8).calibrate(first.calibration_data_)


def test_budget_inside_the_guarantee():
    sampler = toy_sampler(k_max=[6, 2, 4], epsilon=0.3).fit(X, y)
    assert sampler.k_max_ in (2, 4, 6)
    assert sampler.calibration_data_.k_max == 6
    assert sampler.result_.frontier.k_max.min() < sampler.result_.frontier.k_max.max()
    sets = sampler.predict(X[:30])
    assert sets.shape == (30, 6)  # whatever is chosen, so that predictions of folds can be joined
    assert sets.n_samples.max() <= sampler.k_max_
    risks = evaluate_configurations(
        sampler.calibration_data_, [sampler.lambda_hat_], set_score="max", k_max=[sampler.k_max_]
    )
    whole = sampler.predict(X)
    assert whole.n_samples.mean() == pytest.approx(risks.samples[0])


def test_score_is_minus_the_objective(fitted):
    X, y = questions(120, first=4000)
    total = 0.0
    for prompt, reference in zip(X, y):
        accepted, n_samples = algorithm_1(fitted, prompt, 8)
        draws = fitted.generator_.sample([prompt], 8, seed=fitted.seed_)[0]
        hits = [j for j, draw in enumerate(draws) if draw.response == reference]
        excess = max(n_samples - hits[0] - 1, 0) / n_samples if hits else 0.0
        total += 0.5 * len(accepted) + 0.5 * excess
    assert fitted.score(X, y) == pytest.approx(-total / 120)
    callables = [lambda response, ref=reference: response == ref for reference in y]
    assert fitted.score(X, callables) == pytest.approx(-total / 120)


def test_null_warns_and_returns_every_draw_without_guarantee():
    X, y = questions(120)
    # a score that reaches every threshold stops nothing
    sampler = toy_sampler(epsilon=0.005, k_max=4, delta=0.9, quality=lambda prompt, draw: math.inf)
    with pytest.warns(NullCalibrationWarning, match="would have worked.*beforehand"):
        sampler.fit(X, y)
    assert sampler.lambda_hat_ is None
    assert sampler.valid_lambdas_.shape == (0, 3)
    sets = sampler.predict(X[:7])
    assert sets.n_samples.tolist() == [4] * 7
    assert all(one.accepted.tolist() == [0, 1, 2, 3] for one in sets)
    texts = [{draw.response for draw in one.generations} for one in sets]
    assert sets.sizes.tolist() == list(map(len, texts))
    assert not sets.guaranteed
    assert not any(one.guaranteed or one.stopped for one in sets)
    assert sampler.score(X, y) == -math.inf


def test_the_named_epsilon_works():
    X, y = questions(120)
    sampler = toy_sampler(epsilon=0.02, k_max=4, delta=0.5)
    with pytest.warns(NullCalibrationWarning) as caught:
        sampler.fit(X, y)
    message = str(caught[0].message)
    assert "Decide the level" in message
    assert str(sampler.calibration_).startswith("Nothing could be certified, so")
    low, high = sampler.achievable_epsilon_
    assert percent(low) in message
    assert percent(high) in message
    smallest = float(re.search(r"would have worked is (0\.\d+)\.", message)[1])
    assert smallest == pytest.approx(sampler.result_.smallest_epsilon, abs=1e-4)
    data = sampler.calibration_data_
    sampler.set_params(epsilon=smallest).calibrate(data)
    assert sampler.lambda_hat_ is not None


def test_null_raised_keeps_what_was_collected(log):
    X, y = questions(120)
    sampler = toy_sampler(epsilon=0.02, k_max=4, on_null="raise", delta=0.5, log=str(log))
    with pytest.raises(NullCalibrationError, match="smallest epsilon that would have worked"):
        sampler.fit(X, y)
    with pytest.raises(NotFittedError):
        sampler.predict(X)
    assert len(drawn(log)) == 120 * 4
    again = pickle.loads(pickle.dumps(sampler.set_params(epsilon=0.5)))
    again.calibrate(again.calibration_data_)
    sampler.fit(X, y)
    assert len(drawn(log)) == 120 * 4
    assert sampler.predict(X[:5]).guaranteed
    assert again.predict(X[:5]) == sampler.predict(X[:5])


def test_too_few_prompts_says_how_many_it_takes():
    X, y = questions(12)
    with pytest.warns(NullCalibrationWarning, match="fewer than 9.*at least 13 prompts are needed"):
        sampler = toy_sampler().fit(X, y)
    assert sampler.lambda_hat_ is None
    assert sampler.result_ is None
    assert [len(one.accepted) for one in sampler.predict(X[:2])] == [8, 8]
    with pytest.raises(NullCalibrationError, match="at least 13 prompts"):
        toy_sampler(on_null="raise").fit(X, y)
    # so many are enough where every draw is right
    sampler = toy_sampler(admission=lambda reference, response: True)
    assert sampler.fit(*questions(13)).lambda_hat_ is not None


def test_prompts_that_repeat_earlier_ones_are_warned_of_once():
    X, y = questions(80)
    with pytest.warns(UserWarning, match=r"\d of \d\d tested prompts repeat") as caught:
        again = toy_sampler().fit(X[:60] + X[:20], y[:60] + y[:20])
    assert len([one for one in caught if one.category is UserWarning]) == 1
    assert "tested prompts repeat" in str(CalibrationReport.from_estimator(again))
    assert again.predict(X[:1])[0].remarks() == ["tested on repeated prompts"]
    with pytest.warns(UserWarning, match="list of references"):  # a row for each reference
        toy_sampler().fit(X[:20] * 4, [*y[:20], *y[1:21], *y[2:22], *y[3:23]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", NullCalibrationWarning)
        toy_sampler().fit(X[:78] + X[:2], y)
        toy_sampler().fit(X[:20], [[*each] for each in zip(y[:20], y[1:21], y[2:22], y[3:23])])


def test_data_of_repeated_prompts_are_warned_of(tmp_path):
    X, y = questions(60)
    sampler = toy_sampler()
    data = sampler.collect(X, y)
    data.take(np.repeat(np.arange(60), 2)).save(tmp_path / "data.npz")
    with pytest.warns(UserWarning, match="of .* tested prompts repeat"):
        sampler.calibrate(CalibrationData.load(tmp_path / "data.npz"))
    sampler.save_calibration(tmp_path / "file.json")
    loaded = toy_sampler().load_calibration(tmp_path / "file.json")
    assert "40 of 80 tested prompts repeat" in str(loaded.calibration_)
    assert loaded.calibration_.claim == sampler.calibration_.claim
    selector = ComponentSelector(sampler.fit(X, y), admission="exact_match", alpha=0.5)
    parts = selector.collect(X, y)
    with pytest.warns(UserWarning, match="of .* tested prompts repeat"):
        selector.calibrate(parts.take(np.repeat(np.arange(60), 2)))


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_trying_again_after_a_null_changes_nothing(judging):
    X, y = questions(90)
    sampler = toy_sampler(epsilon=0.12, random_state=None, judging=judging)
    sampler.generator.skill = 0.6
    found = set()
    for seed in range(8):
        np.random.seed(seed)  # noqa: NPY002, splits do not come from the global state
        with pytest.warns(NullCalibrationWarning) as caught:
            sampler.fit(X, y)
        found.add(str(caught[0].message))
    assert len(found) == 1


def test_without_a_seed_the_split_comes_from_the_prompts_in_any_order():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = np.argmax(1.2 * X[:, :3] + rng.gumbel(size=(120, 3)), axis=1)
    sampler = ConformalSampler(EstimatorGenerator(GaussianNB()), k_max=4, epsilon=0.4)
    first = {X[i].tobytes() for i in sampler.fit(X, y).calibration_indices_}
    thresholds = sampler.lambda_hat_
    order = rng.permutation(120)
    sampler.fit(X[order], y[order])
    assert {X[order][i].tobytes() for i in sampler.calibration_indices_} == first
    assert sampler.lambda_hat_ == pytest.approx(thresholds)
    assert clone(sampler).fit(X, y).lambda_hat_ == thresholds


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(20, 60),
    k_max=st.integers(1, 6),
    epsilon=st.floats(0.05, 0.9),
    set_score=st.sampled_from(["first_k", "first_k_reject", "max", "sum"]),
    seed=st.integers(0, 2**31 - 1),
)
def test_fit_transform_equals_transform_and_calibration_risk(n, k_max, epsilon, set_score, seed):
    X, y = questions(n, first=seed % 1000)
    policy = ThresholdPolicy(set_score=set_score)
    sampler = toy_sampler(k_max=k_max, epsilon=epsilon, policy=policy, random_state=seed)
    with warnings.catch_warnings(action="ignore", category=NullCalibrationWarning):
        sets = sampler.fit_transform(X, y)
    assert sets == sampler.transform(X)
    if sampler.lambda_hat_ is not None:
        risks = evaluate_configurations(
            sampler.calibration_data_, [sampler.lambda_hat_], set_score=set_score
        )
        covered = np.mean([answer in one for answer, one in zip(y, sets)])
        assert 1 - covered == pytest.approx(risks.loss[0])
        assert sets.sizes.mean() == pytest.approx(risks.size[0])
        assert sets.n_samples.mean() == pytest.approx(risks.samples[0])
        assert sampler.score(X, y) == pytest.approx(-risks.objective(0.5, 0.5)[0])


def test_a_null_warning_points_at_the_line_of_the_caller():
    X, y = questions(60)
    sampler = toy_sampler(epsilon=0.001)
    pipeline = make_pipeline(sampler)
    data = sampler.collect(X, y)
    calls = [(call, (X, y)) for call in (sampler.fit, sampler.fit_transform, pipeline.fit)]
    for call, of in [*calls, (sampler.calibrate, (data,))]:
        with pytest.warns(NullCalibrationWarning) as caught:
            call(*of)
        assert [one.filename for one in caught] == [__file__]
