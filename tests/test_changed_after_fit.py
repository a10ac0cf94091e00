"""What happens to objects after a fit reaches no guarantee, or is refused."""

import warnings

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationError
from sklearn_clm.calibration import CalibrationData, Configuration, SamplingRule, risk_surface
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import SelfConsistency, get_set_score
from tests.reports import ReportModel, cases
from tests.toy import ToyModel, questions

X, Y = questions(120)
REPORTS, REPORTS_Y = cases(150)


def sampler(generator=None, **changes):
    options = {"k_max": 4, "epsilon": 0.5, "random_state": 0} | changes
    return ConformalSampler(ToyModel() if generator is None else generator, **options)


def selector(given=None, **changes):
    given = sampler(ReportModel(), k_max=6, set_score="sum") if given is None else given
    return ComponentSelector(given, **({"alpha": 0.3, "admission": "exact_match"} | changes))


class Trained(ToyModel):
    """Answers better, the more references it was trained on."""

    def fit(self, prompts, references):
        self.skill_ = len(prompts) / 200
        return self

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return ToyModel(skill=self.skill_).sample(prompts, n_samples, start=start, seed=seed)


class Foreign:
    """A trained generator of no class of scikit-learn's."""

    n_ = 0

    def fit(self, prompts, references):
        self.n_ += len(prompts)
        return self

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self.calls = getattr(self, "calls", 0) + 1
        return [[Generation(str(self.n_), -0.1, 1)] * n_samples for _ in prompts]


def test_nested_parameters_of_a_quality_do_not_reach_what_was_calibrated():
    fitted = sampler(quality=SelfConsistency()).fit(X, Y)
    before = fitted.predict(X)
    data = fitted.calibration_data_
    fitted.set_params(quality__prior=0.01)
    assert fitted.predict(X) == before
    with pytest.raises(ValueError, match="collected with quality="):
        fitted.calibrate(data)
    assert fitted.predict(X) == before
    assert fitted.fit(X, Y).predict(X) != before


def test_nested_parameters_of_a_component_score_do_not_reach_what_was_calibrated():
    class Constant(SelfConsistency):
        def score_components(self, prompts, generations, spans):
            return [[[self.prior for _ in row] for row in rows] for rows in spans]

    fitted = selector(component_score=Constant(prior=0.5), admission=lambda reference, part: True)
    fitted.fit(REPORTS, REPORTS_Y)
    assert fitted.gamma_hat_ == 0.5
    before = fitted.predict(REPORTS[:9])
    assert before.sizes.any()
    fitted.set_params(component_score__prior=0.1)
    assert fitted.predict(REPORTS[:9]) == before


class Counting:
    """Counts its calls, which are no part of it."""

    def __init__(self, answer):
        self.answer, self.n_calls = answer, 0

    def ask(self, *asked):
        self.n_calls += 1
        return self.answer(*asked)


class Named:
    """Remembers what it was asked, and says itself what it is."""

    def __init__(self, answer):
        self.answer, self.memory = answer, {}

    def fingerprint(self):
        return "mine"

    def __call__(self, *asked):
        return self.memory.setdefault(repr(asked), self.answer(*asked))


def likely(prompt, draw):
    return draw.logprob


def equal(one, other):
    return float(one == other)


def agrees(reference, response):
    return reference == response


@pytest.mark.parametrize("wrap", [lambda answer: Counting(answer).ask, Named])
@pytest.mark.parametrize(
    ("role", "answer"), [("quality", likely), ("similarity", equal), ("admission", agrees)]
)
@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_scores_that_count_or_remember_stay_what_they_are(role, answer, wrap, judging, tmp_path):
    def sampler_with(score):
        return sampler(**{"judging": judging, "similarity": "exact_match", role: score})

    fitted = sampler_with(wrap(answer)).fit(X, Y)
    expected = fitted.predict(X[:20])
    fitted.calibrate(fitted.calibration_data_).save_calibration(tmp_path / "used.json")
    assert fitted.predict(X[:20]) == expected
    loaded = sampler_with(wrap(answer)).load_calibration(tmp_path / "used.json")
    assert [one.responses for one in loaded.predict(X[:20])] == [one.responses for one in expected]
    with pytest.raises(ValueError, match=role):
        sampler_with(lambda *asked: 0.25).load_calibration(tmp_path / "used.json")


def test_a_classifier_that_is_trained_further_does_not_reach_predict():
    texts = [f"answer {i}" for i in range(200)] + [f"wrong guess {i % 6} about" for i in range(200)]
    words = HashingVectorizer(n_features=64)
    scored = make_pipeline(words, SGDClassifier(loss="log_loss", random_state=0))
    scored.fit(texts, [1] * 200 + [0] * 200)
    fitted = sampler(quality=scored).fit(X, Y)
    before = fitted.predict(X)
    scored[-1].partial_fit(words.transform(texts), [0] * 200 + [1] * 200)
    assert fitted.predict(X) == before


def test_a_foreign_generator_is_not_trained_again_under_a_fitted_sampler():
    generator = Foreign()
    first = sampler(generator).fit(X, ["60"] * 120)
    second = sampler(generator).fit(X[:50], ["25"] * 50)
    assert first.predict(X[:1])[0].responses[0] == "60"
    assert second.predict(X[:1])[0].responses[0] == "25"
    assert generator.n_ == 0
    part = first.calibration_data_.take(np.arange(60))
    assert first.calibrate(part).predict(X[:1])[0].responses[0] == "60"


def test_data_of_another_training_of_the_generator_are_refused():
    trained = sampler(Trained())
    first = trained.collect(X, Y)
    trained.collect(X[:100], Y[:100])
    parts = first.truncate(4), first.take(np.arange(60)), first.rows(slice(60)), first.split(0.4)[1]
    for part in (first, *parts):
        with pytest.raises(ValueError, match="collected from another generator than the Trained"):
            trained.calibrate(part)
    with pytest.raises(ValueError, match="collected from another generator than the ToyModel"):
        sampler(ToyModel(skill=0.5)).calibrate(sampler().collect(X, Y))
    assert sampler().calibrate(sampler().collect(X, Y)).lambda_hat_ is not None
    own = sampler(Trained())
    data = own.collect(X, Y)
    assert own.calibrate(data.take(np.arange(50))).calibration_data_.n_prompts == 50


def test_collecting_components_forgets_the_threshold_of_other_scores():
    fitted = selector().fit(REPORTS, REPORTS_Y)
    fitted.set_params(component_score="support").collect(REPORTS, REPORTS_Y)
    for name in ("gamma_hat_", "p_values_", "calibration_data_", "result_"):
        assert not hasattr(fitted, name)


def test_a_failed_refit_leaves_no_threshold_of_other_scores():
    fitted = selector().fit(REPORTS, REPORTS_Y)
    fitted.set_params(component_score="support", alpha=1e-4, on_null="raise")
    with pytest.raises(NullCalibrationError):
        fitted.fit(REPORTS, REPORTS_Y)
    assert not hasattr(fitted, "gamma_hat_")


def test_a_sampler_that_was_fitted_anew_on_another_generator_is_refused():
    inner = sampler(ReportModel(), k_max=6, set_score="sum").fit(REPORTS, REPORTS_Y)
    fitted = selector(inner).fit(REPORTS, REPORTS_Y)
    before = fitted.predict(REPORTS[:5])
    inner.fit(REPORTS, REPORTS_Y)
    assert fitted.predict(REPORTS[:5]) == before
    inner.set_params(random_state=7).fit(REPORTS, REPORTS_Y)
    with pytest.raises(ValueError, match="another generator, or with another seed"):
        fitted.predict(REPORTS[:5])


def test_the_rule_rounds_no_threshold_to_the_precision_of_the_data():
    # the float32 next to 0.1 is larger than 0.1
    similarity = np.full((1, 2, 2), 0.1, dtype=np.float32)
    data = CalibrationData(np.ones((1, 2)), similarity, np.ones((1, 2)))
    rule = SamplingRule(Configuration(0.1, 0.0, 5.0), get_set_score("sum"), 2)
    for quality, row in zip(data.quality[0], data.similarity[0]):
        rule.update(quality, row)
    surface = risk_surface(data, [0.1], [0.0], [5.0], set_score="sum")
    assert rule.accepted == [0]
    assert surface.size.item() == 1.0
    rule = SamplingRule(Configuration(1.0, 0.1, 5.0), get_set_score("sum"), 2)
    rule.update(np.nextafter(np.float32(0.1), np.float32(0)), [])
    assert rule.accepted == []


class TrainedReports(ReportModel):
    """Differs by the number of cases that it was trained on."""

    n_ = 0

    def fit(self, prompts, references):
        self.n_ = len(prompts)
        return self

    def fingerprint(self):
        return f"trained on {self.n_}"


def test_sets_from_before_another_training_are_refused():
    inner = sampler(TrainedReports())
    sets = inner.fit_transform(REPORTS, REPORTS_Y)
    assert selector(inner).fit(sets, REPORTS_Y).predict(sets).shape[0] == len(REPORTS)
    inner.fit(REPORTS[:100], REPORTS_Y[:100])
    for stale in (sets, sets[:70]):
        with pytest.raises(ValueError, match=r"another generator.* than those that their sampler"):
            selector(inner).fit(stale, REPORTS_Y[: len(stale)])


def test_prompts_that_trained_the_generator_of_a_fitted_sampler_are_noticed():
    inner = sampler(TrainedReports()).fit(REPORTS, REPORTS_Y)
    sets = inner.predict(REPORTS)
    for given in (REPORTS, sets):
        with pytest.warns(UserWarning, match="150 prompts, 75 of which trained the generator"):
            selector(inner).fit(given, REPORTS_Y)
    unseen, unseen_y = cases(80, first=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        selector(inner, alpha=0.9).fit(unseen, unseen_y)
        selector(inner, alpha=0.9).fit(inner.fit_transform(REPORTS, REPORTS_Y), REPORTS_Y)
        selector(sampler(TrainedReports()), alpha=0.9).fit(REPORTS, REPORTS_Y)
