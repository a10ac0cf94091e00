"""What happens to objects after a fit reaches no guarantee, or is refused."""

import functools
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


BOUND = [12]


def by_global(prompt, draw):
    return -float(len(draw.response) > BOUND[0])


def by_variable(bound):
    def quality(prompt, draw):
        return -float(len(draw.response) > bound[0])

    return quality


class ByAttribute:
    """Counts its calls, which is no change."""

    calls = 0

    def __init__(self, bound):
        self.bound = bound

    def __call__(self, prompt, draw):
        self.calls += 1
        return -float(len(draw.response) > self.bound[0])


@pytest.mark.parametrize("kind", ["global", "variable", "attribute"])
def test_scores_that_read_other_values_after_a_fit_are_refused(kind, monkeypatch):
    bound = [12]
    monkeypatch.setitem(by_global.__globals__, "BOUND", bound)
    kinds = {"global": by_global, "variable": by_variable(bound), "attribute": ByAttribute(bound)}
    fitted = sampler(quality=kinds[kind]).fit(X, Y)
    before = fitted.predict(X)
    assert fitted.predict(X) == before
    fitted.calibrate(fitted.calibration_data_)
    bound[0] = 9
    with pytest.raises(ValueError, match="quality must be the one that was calibrated"):
        fitted.predict(X)
    bound[0] = 12
    assert fitted.predict(X) == before


class Client:
    """Counts its requests, as services do."""

    def __init__(self):
        self.n_requests = 0

    def rate(self, value):
        self.n_requests += 1
        return value


CLIENT = Client()
MEMORY = {}


def remember(memory, text):
    memory.setdefault(text, len(memory))


def holding(role, kind, client):
    """A score or a judge, or a splitter, that changes as it is used."""
    answers = {
        "quality": lambda prompt, draw: draw.logprob,
        "similarity": lambda one, other: float(one == other),
        "admission": lambda reference, response: reference == response,
        "set_score": lambda similarity, quality: quality.max(axis=-1, initial=0.0),
        "component_score": lambda prompt, part: float(len(part)),
        "splitter": lambda text: [(0, len(text))],
    }
    answer = answers[role]

    class Judge:
        def __init__(self):
            self.n_calls, self.client = 0, client

        def ask(self, *asked):
            self.n_calls += 1
            return self.client.rate(answer(*asked))

    def by_client(*asked):
        return CLIENT.rate(answer(*asked))

    def by_function(*asked):
        remember(MEMORY, repr(asked))
        return answer(*asked)

    def by_record(log, *asked):
        remember(log, repr(asked))
        return answer(*asked)

    kinds = {
        "method": Judge().ask,
        "client": by_client,
        "memory": by_function,
        "partial": functools.partial(by_record, {}),
    }
    return kinds[kind]


KINDS = ("method", "client", "memory", "partial")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ["quality", "similarity", "admission"])
@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_samplers_whose_scores_change_as_they_are_used(role, kind, judging, tmp_path):
    def fitted_by(score):
        return sampler(**{"judging": judging, "similarity": "exact_match", role: score})

    MEMORY.clear()
    score = holding(role, kind, Client())
    fitted = fitted_by(score).fit(X, Y)
    expected = [one.responses for one in fitted.predict(X[:20])]
    fitted.predict(questions(20)[0])
    data = fitted.calibration_data_
    fitted.calibrate(data).save_calibration(tmp_path / "used.json")
    assert [one.responses for one in fitted.predict(X[:20])] == expected
    MEMORY.clear()
    for other in (score, holding(role, kind, Client())):  # used here, and as in a new process
        loaded = fitted_by(other).load_calibration(tmp_path / "used.json")
        for _ in range(2):
            assert [one.responses for one in loaded.predict(X[:20])] == expected
    changed = fitted_by(lambda *asked: 0.25)
    if role != "admission" or judging == "all":
        with pytest.raises(ValueError, match=f"other scores: {role} is"):
            changed.load_calibration(tmp_path / "used.json")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ["splitter", "component_score", "admission"])
@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_selectors_whose_parts_change_as_they_are_used(role, kind, judging, tmp_path):
    inner = sampler(ReportModel(), k_max=6, set_score="sum").fit(REPORTS, REPORTS_Y)
    MEMORY.clear()
    part = holding(role, kind, Client())
    options = {"alpha": 0.9, "admission": lambda reference, text: True, "judging": judging}
    fitted = selector(inner, **options | {role: part}).fit(REPORTS, REPORTS_Y)
    expected = [list(one) for one in fitted.predict(REPORTS[:20])]
    fitted.predict(cases(20, first=900)[0])
    fitted.calibrate(fitted.calibration_data_).save_calibration(tmp_path / "used.json")
    MEMORY.clear()
    for other in (part, holding(role, kind, Client())):
        loaded = selector(inner, **options | {role: other})
        loaded.load_calibration(tmp_path / "used.json")
        for _ in range(2):
            assert [list(one) for one in loaded.predict(REPORTS[:20])] == expected


def test_component_scores_that_read_other_values_after_a_fit_are_refused():
    power = [1.0]
    fitted = selector(alpha=0.6, component_score=lambda prompt, part: len(part) ** power[0])
    fitted.fit(REPORTS, REPORTS_Y)
    fitted.predict(REPORTS[:5])
    power[0] = 2.0
    with pytest.raises(ValueError, match="component_score must be the one that was calibrated"):
        fitted.predict(REPORTS[:5])


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
