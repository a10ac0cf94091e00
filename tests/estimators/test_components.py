"""Components: collected, scored by their best occurrence, and selected."""

import warnings

import numpy as np
import pytest

from sklearn_clm import (
    ComponentSelector,
    ConformalSampler,
    NullCalibrationWarning,
    PredictionSet,
    PredictionSets,
)
from sklearn_clm.generators import Generation
from sklearn_clm.metrics import component_loss
from sklearn_clm.policies import ThresholdPolicy
from tests.reports import ReportModel, cases
from tests.toy import Answering, toy_sampler

X, Y = cases(100)


NEW, NEW_Y = cases(60, first=1000)


OPTIONS = {"alpha": 0.3, "admission": "exact_match"}


def sampler(log=None, **changes):
    policy = ThresholdPolicy(set_score="sum")
    options = {"k_max": 6, "epsilon": 0.4, "policy": policy, "random_state": 0} | changes
    return ConformalSampler(ReportModel(log), **options)


@pytest.fixture(scope="module")
def selector():
    return ComponentSelector(sampler(), **OPTIONS).fit(X, Y)


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
