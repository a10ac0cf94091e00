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
    NullCalibrationError,
    NullCalibrationWarning,
    PredictionSet,
    PredictionSets,
)
from sklearn_clm.calibration import ComponentCalibrationData
from sklearn_clm.generators import Generation, PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.metrics import component_loss
from sklearn_clm.policies import ThresholdPolicy
from tests.reports import ReportModel, TrainedReportModel, cases
from tests.toy import Answering, Trained, drawn, questions, toy_sampler

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


def test_selection_is_by_the_best_occurrence(selector):
    for one in selector.predict(NEW):
        answer = one.prediction_set
        best = {}
        for draw in answer.indices:
            generation = answer.generations[draw]
            for span, logprob in zip(generation.token_spans, generation.token_logprobs):
                text = generation.response[slice(*span)]
                best[text] = max(best.get(text, 0), np.exp(logprob))
        wanted = {text: p for text, p in best.items() if p >= selector.gamma_hat_}
        assert dict(zip(one.components, one.scores)) == pytest.approx(wanted)
        for component, places in zip(one.components, one.occurrences):
            holders = [d for d in answer.indices if component in answer.generations[d].response]
            assert [place.draw for place in places] == holders
            for draw, span in places:
                assert answer.generations[draw].response[slice(*span)] == component


@pytest.mark.parametrize("component_score", ["span_likelihood", "support"])
def test_sets_never_select_more_than_all_samples_would(component_score):
    """Proposition 4.4: calibration's loss on K samples bounds that of any set."""
    options = OPTIONS | {"alpha": 0.8, "component_score": component_score}
    selector = ComponentSelector(sampler(), **options).fit(X, Y)
    every = PredictionSets(
        [
            PredictionSet(x, [d.response for d in row], [1.0] * 6, range(6), 6, 1, True, True, row)
            for x, row in zip(X, ReportModel().sample(X, 6, seed=selector.sampler_.seed_))
        ],
        k_max=6,
    )
    assert (
        component_loss(Y, selector.predict(every)) * len(X)
        == selector.n_errors_[selector.thresholds_ == selector.gamma_hat_]
    )
    for few, all_of_them in zip(selector.predict(X), selector.predict(every)):
        best = dict(zip(all_of_them.components, all_of_them.scores))
        assert all(score <= best[part] for part, score in zip(few.components, few.scores))


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


def test_null_gives_empty_selections_and_a_warning():
    parts = {"component_score": lambda *of: 0.5, "admission": lambda *of: False}
    wrong = ComponentSelector(sampler(), alpha=0.1, **parts)
    with pytest.warns(NullCalibrationWarning, match="alpha.*beforehand"):
        wrong.fit(X, Y)
    assert wrong.gamma_hat_ == np.inf
    sets = wrong.predict(NEW[:5])
    assert sets.sizes.tolist() == [0] * 5
    assert not sets.guaranteed
    assert wrong.score(NEW[:5]) == 0
    assert "no trusted component" in sets._repr_html_()
    with pytest.raises(NullCalibrationError):
        wrong.set_params(on_null="raise").fit(X, Y)


def test_too_few_prompts_for_any_test():
    with warnings.catch_warnings(action="ignore", category=NullCalibrationWarning):
        few = sampler().fit(X[:8], Y[:8])
    with pytest.warns(NullCalibrationWarning, match="is 8, .* fewer than 9"):
        selector = ComponentSelector(few, **OPTIONS).fit(X[:8], Y[:8])
    assert selector.gamma_hat_ == np.inf
    assert selector.p_values_.size == 0
    assert selector.predict(NEW[:2]).sizes.tolist() == [0, 0]


def fit_says(texts, reference, **options):
    said = Answering([Generation(text, -1.0, 3) for text in texts])
    sampler = toy_sampler(said, k_max=len(texts), admission=lambda a, b: True, epsilon=0.3)
    defaults = {"component_score": lambda prompt, component: len(component), **OPTIONS}
    selector = ComponentSelector(sampler, **(defaults | options))
    return selector.fit([f"q{i}" for i in range(40)], [reference] * 40)


def test_one_component_in_every_sample_is_one_component():
    selector = fit_says(["Same.", "Same. Other.", " Same."], "Same. Other.")
    assert selector.calibration_data_.n_components == 2 * 40
    assert selector.gamma_hat_ == 4.5  # of 5 and 6 characters both are right
    answers = PredictionSets(
        [PredictionSet("new", ("Same.", " Same. More."), [1, 1], [0, 2], 3, 1, True, True)], k_max=3
    )
    (one,) = selector.predict(answers)
    assert one.components == ("Same.", "More.")
    assert one.occurrences[0] == ((0, (0, 5)), (2, (1, 6)))


def test_empty_responses_and_responses_without_components():
    selector = fit_says(["", "  ", "Word."], "Word.")
    assert selector.calibration_data_.n_components == 40
    with pytest.warns(NullCalibrationWarning, match="prompts has any component"):
        nothing = fit_says(["...", "Word."], "Word.", splitter=lambda text: [])
    assert nothing.gamma_hat_ == np.inf
    assert nothing.predict(["new"]).sizes.tolist() == [0]


def test_a_reference_without_components_makes_all_of_them_wrong():
    with pytest.warns(NullCalibrationWarning):
        selector = fit_says(["Word."], "")
    assert not selector.calibration_data_.admissible.any()


def test_reports_bound_the_errors_of_components_that_were_judged_lazily():
    lazy = ComponentSelector(sampler(), judging="lazy", admission=lambda reference, part: True)
    report = CalibrationReport.from_estimator(lazy.fit(X, Y)).to_markdown()
    assert "| error | at most " in report


def test_callable_admissions_judge_components():
    selector = ComponentSelector(sampler(admission="exact_match"), alpha=0.3)
    judges = [lambda text: text.endswith(" 0.") for _ in X]
    selector.fit(X, judges)
    by_references = ComponentSelector(sampler(), **OPTIONS).collect(X, Y)
    assert content(selector.calibration_data_)[:2] == content(by_references)[:2]


def test_numbers_are_their_own_components():
    rng = np.random.default_rng(0)
    features, labels = rng.random((120, 2)), rng.integers(2, size=120)
    sampler = ConformalSampler(k_max=3, random_state=0)
    with warnings.catch_warnings(action="ignore", category=NullCalibrationWarning):
        selector = ComponentSelector(sampler, alpha=0.8).fit(features, labels)
    sets = selector.predict(features[:4])
    assert sets.shape == (4, 3)
    assert np.asarray(sets).dtype == float
    assert selector.n_features_in_ == 2
    places = [place for one in sets for row in one.occurrences for place in row]
    assert places
    assert all(place.span is None for place in places)


def test_a_splitter_that_never_cuts_alike_fails_nothing():
    cuts = np.random.default_rng(0)

    def split(text):
        middle = int(cuts.integers(1, len(text)))
        return [(0, middle), (middle, len(text))]

    ComponentSelector(sampler(), splitter=split, component_score="support", alpha=0.9).collect(X, Y)


@pytest.mark.parametrize("part", ["component_score", "admission"])
def test_a_failure_after_a_fitted_sampler_loses_no_draw(part):
    log = []
    of = sampler(log).fit(*cases(60, first=700))
    made = ComponentSelector(of, **OPTIONS | {part: lambda first, second: 1 / 0})
    log.clear()
    with pytest.raises(ZeroDivisionError):
        made.fit(X, Y)
    assert len(log) == 4 * 2  # the first draws of the first prompts
    made.set_params(component_score="support", admission="exact_match").fit(X, Y)
    assert len(log) == 6 * len(X)


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
