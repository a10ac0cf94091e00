"""ComponentSelector: its three ways in, what it selects, and what it refuses."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from sklearn_clm import (
    ComponentSelector,
    ConformalSampler,
    PredictionSet,
    PredictionSets,
)
from sklearn_clm.calibration import ComponentCalibrationData
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.policies import ThresholdPolicy
from tests.reports import ReportModel, TrainedReportModel, cases
from tests.toy import Trained, drawn, questions, toy_sampler

X, Y = cases(100)


NEW, NEW_Y = cases(60, first=1000)


OPTIONS = {"alpha": 0.3, "admission": "exact_match"}


OF_TEXTS = {"alpha": 0.6, "component_score": "support"}


def sampler(log=None, **changes):
    policy = ThresholdPolicy(set_score="sum")
    options = {"k_max": 6, "epsilon": 0.4, "policy": policy, "random_state": 0} | changes
    return ConformalSampler(ReportModel(log), **options)


def content(data):
    """What components were collected, to be compared."""
    return data.scores.tolist(), data.labels.tolist(), data.provenance


@pytest.fixture(scope="module")
def selector():
    return ComponentSelector(sampler(), **OPTIONS).fit(X, Y)


def test_a_selector_before_the_sampler_is_refused():
    X, y = questions(40)
    with pytest.raises(ValueError, match="prompts"):
        make_pipeline(ComponentSelector(), ConformalSampler(on_null="raise")).fit(X, y)


def test_texts_in_a_script_that_rouge_does_not_know_are_warned_of():
    prompts, cities = [f"{i}？" for i in range(60)], ["北京", "上海", "广州"]
    samples = [[f"答案是{cities[(i + j) % 3]}。我确定。" for j in range(3)] for i in range(60)]
    drawn_before = PrecomputedGenerator(prompts, samples)
    parts = {
        "k_max": 3,
        "quality": "self_consistency",
        "admission": lambda right, text: right in text,
    }
    right = [cities[i % 3] for i in range(60)]
    with pytest.warns(UserWarning, match="^similarity='rouge_l' compares ASCII letters"):
        fitted = ConformalSampler(drawn_before, **parts).fit(prompts, right)
    with pytest.warns(UserWarning, match="^admission='rouge_l' compares ASCII letters"):
        ComponentSelector(fitted, component_score="support").collect(prompts, right)
    with warnings.catch_warnings(action="error"):
        warnings.filterwarnings("ignore", "a single draw errs for 0 %")
        fitted.set_params(similarity="exact_match").fit(prompts, right)
        judged = ComponentSelector(fitted, component_score="support", admission=parts["admission"])
        judged.collect(prompts, right)


def test_three_ways_are_one(selector):
    pipeline = make_pipeline(sampler(), ComponentSelector(**OPTIONS)).fit(X, Y)
    fitted = sampler().fit(X, Y)
    prefit = ComponentSelector(fitted, **OPTIONS).fit(X, Y)
    assert prefit.sampler_ is fitted
    assert selector.sampler_ is not selector.sampler
    for other in (pipeline[-1], prefit):
        assert other.gamma_hat_ == selector.gamma_hat_ < np.inf
        assert content(other.calibration_data_) == content(selector.calibration_data_)
        assert other.predict(NEW) == selector.predict(NEW)
    assert pipeline.predict(NEW) == selector.predict(NEW) == selector.transform(NEW)
    assert pipeline.score(NEW) == selector.score(NEW) == selector.predict(NEW).sizes.mean()
    arrays = ComponentSelector(fitted, **OPTIONS).calibrate(selector.calibration_data_)
    assert arrays.predict(NEW) == selector.predict(NEW)


def test_calibration_draws_are_made_once():
    for make in (
        lambda log: make_pipeline(sampler(log), ComponentSelector(**OPTIONS)),
        lambda log: ComponentSelector(sampler(log), **OPTIONS),
    ):
        log = []
        estimator = make(log).fit(X, Y)
        assert len(log) == len(set(log)) == 6 * len(X)
        log.clear()
        sets = estimator.predict(NEW)
        assert len(log) == sum(one.prediction_set.n_samples for one in sets) < 6 * len(NEW)


def test_a_fitted_sampler_draws_all_k_for_other_prompts():
    log = []
    fitted = sampler(log).fit(X, Y)
    log.clear()
    other, other_y = cases(80, first=500)
    ComponentSelector(fitted, **OPTIONS).fit(other, other_y)
    assert len(log) == len(set(log)) == 6 * 80
    log.clear()
    other, other_y = cases(80, first=900)
    sets = fitted.predict(other)
    n_known = len(log)
    assert 0 < n_known < 6 * 80
    log.clear()
    # the draws of prediction sets are not made again
    ComponentSelector(**OPTIONS).fit(sets, other_y)
    assert len(log) == 6 * 80 - n_known


def test_prompts_that_trained_the_generator_are_left_out():
    def model():
        return ConformalSampler(TrainedReportModel(), k_max=4, random_state=0, epsilon=0.4)

    pipeline = make_pipeline(model(), ComponentSelector(**OPTIONS)).fit(X, Y)
    direct = ComponentSelector(model(), **OPTIONS).fit(X, Y)
    for found in (pipeline[-1], direct):
        used = [X[i] for i in found.calibration_indices_]
        assert found.calibration_data_.n_prompts == len(used) == 50
        assert not set(used) & set(found.sampler_.generator_.trained_on_)
    assert pipeline[-1].gamma_hat_ == direct.gamma_hat_
    learnt = direct.sampler_.generator_.trained_on_
    prompts, references = zip(*(pair for pair in zip(X, Y) if pair[0] in learnt))
    with pytest.raises(ValueError, match="has not seen"):
        ComponentSelector(direct.sampler_, **OPTIONS).fit(prompts, references)


def test_calibrate_again_without_drawing():
    log = []
    selector = ComponentSelector(sampler(log), **OPTIONS)
    data = selector.collect(X, Y)
    log.clear()
    loose = clone(selector).set_params(alpha=0.6).calibrate(data).gamma_hat_
    strict = selector.set_params(alpha=0.2).calibrate(data).gamma_hat_
    assert loose < strict
    assert not log


def test_arrays_alone():
    rng = np.random.default_rng(0)
    scores = rng.random((200, 3))
    data = ComponentCalibrationData.from_arrays(scores, rng.random((200, 3)) < scores)
    selector = ComponentSelector(alpha=0.4, component_score=lambda prompt, component: 1.0)
    selector.calibrate(data)
    assert np.isfinite(selector.gamma_hat_)
    answer = PredictionSet("q", ("One. Two.",), [1.0], [0], 1, 1.0, True, True)
    (one,) = selector.predict(PredictionSets([answer], k_max=1))
    assert one.components == ("One.", "Two.")
    with pytest.raises(NotFittedError, match="arrays, or loaded from a file, and has no"):
        selector.predict(["q"])


def test_callable_admissions_judge_components():
    selector = ComponentSelector(sampler(admission="exact_match"), alpha=0.3)
    judges = [lambda text: text.endswith(" 0.") for _ in X]
    selector.fit(X, judges)
    by_references = ComponentSelector(sampler(), **OPTIONS).collect(X, Y)
    assert content(selector.calibration_data_)[:2] == content(by_references)[:2]


def test_pickle_and_clone(selector):
    again = pickle.loads(pickle.dumps(selector))
    assert again.predict(NEW[:5]) == selector.predict(NEW[:5])
    assert not hasattr(clone(selector), "gamma_hat_")
    sets = selector.predict(NEW[:5])
    assert pickle.loads(pickle.dumps(sets)) == sets
    assert pickle.loads(pickle.dumps(sets)).selector is None


def test_component_sets_are_array_like(selector):
    sets = selector.predict(NEW[:20])
    array = np.asarray(sets)
    assert array.shape == sets.shape == (20, max(6, sets.sizes.max()))
    assert array.dtype == object
    assert [[item for item in row if item is not None] for row in array] == sets.components
    assert sets[3] == sets[[3, 4]][0] == sets[-17]
    assert sets[:, 0].tolist() == array[:, 0].tolist()
    assert sets != sets.components


def test_the_frame_of_components_keeps_the_index_of_the_prompts(selector):
    prompts = pd.Series(NEW[:20], index=pd.Index([f"row {i}" for i in range(20)], name="id"))
    sets = selector.predict(prompts)
    frame = sets.to_frame()
    assert list(frame.columns) == ["prompt_index", "component", "score", "draws", "guaranteed"]
    assert len(frame) == sets.sizes.sum()
    assert frame.index.equals(prompts.index[frame["prompt_index"].astype(int)])
    assert frame.index.name == "id"
    joined = frame.join(prompts.rename("prompt"))
    assert joined["prompt"].tolist() == [one.prompt for one in sets for _ in one]
    backwards = sets[[3, 1]]
    assert backwards.selector is selector
    assert backwards.to_frame().index.tolist() == ["row 3"] * len(sets[3]) + ["row 1"] * len(
        sets[1]
    )
    assert sets[:0].to_frame().index.tolist() == []
    piped = make_pipeline(sampler(), ComponentSelector(**OPTIONS)).fit(X, Y).predict(prompts)
    assert set(piped.to_frame().index) <= set(prompts.index)
    bare = selector.predict(NEW[:20]).to_frame()
    assert bare.index.tolist() == list(range(len(bare)))


def test_sets_that_hold_too_little_or_too_much(selector):
    strange = PredictionSets([PredictionSet("q", ("a",), [1.0], [0], 1, 1.0, True, True)], k_max=1)
    with pytest.raises(ValueError, match="neither all their draws nor the sampler"):
        ComponentSelector().fit(strange, ["a"])
    long = PredictionSets([PredictionSet("q", ("a",), [1.0], [8], 9, 1.0, True, True)], k_max=9)
    with pytest.raises(ValueError, match="k_max must be at most 6"):
        selector.predict(long)


@pytest.mark.parametrize("is_fitted", [False, True])
def test_fit_transform_draws_nothing_twice(tmp_path, is_fitted):
    log, (prompts, references) = tmp_path / "draws", questions(120)
    inner = toy_sampler(log=str(log), k_max=4, epsilon=0.6)
    if is_fitted:
        inner.fit(*questions(120, first=500))
        log.unlink()
    selector = ComponentSelector(inner, **OPTIONS | OF_TEXTS)
    selected = selector.fit_transform(prompts, references)
    assert len(drawn(log)) == 4 * len(prompts)
    assert selected == selector.transform(prompts)
    assert selected == selector.fit(prompts, references).predict(prompts)


@pytest.mark.parametrize("piped", [True, False])
def test_nothing_is_promised_to_prompts_that_trained_the_generator(piped):
    prompts, references = questions(240)
    sampler, options = toy_sampler(Trained(), k_max=4, epsilon=0.6), OPTIONS | OF_TEXTS
    both = make_pipeline(sampler, ComponentSelector(**options))
    selected = (both if piped else ComponentSelector(sampler, **options)).fit_transform(
        prompts, references
    )
    seen = set(selected.selector.sampler_.generator_.seen_)
    assert len(seen) in (60, 120)
    for one in selected:
        assert one.guaranteed == (one.prompt not in seen)
        assert one.prediction_set.guaranteed == (one.prompt not in seen)
