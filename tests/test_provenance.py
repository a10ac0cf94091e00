"""Right values in the wrong place are refused, or change nothing; nothing lies in between.

Every use of a calibration (calibrate, load, predict, transform, a selector) meets every part that
may have changed since the data were collected.
"""

import json
import pickle
import re
import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.__main__ import main
from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData
from sklearn_clm.generators import EstimatorGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.metrics import component_loss, set_loss
from sklearn_clm.policies import ExitPolicy, ThresholdPolicy
from tests.reports import ReportModel, cases
from tests.toy import ToyModel, questions

X, Y = questions(120)
NEW, NEW_Y = questions(150, first=5000)
EPSILON = 0.4
REPORTS, REPORTS_Y = cases(120)


def other_quality(prompt, draw):
    return float(len(draw.response))


def lax(reference, response):
    return True


def sampler(**changes):
    generator = {name: changes.pop(name) for name in ("skill", "temperature") if name in changes}
    options = {"k_max": 5, "epsilon": EPSILON, "random_state": 0} | changes
    return ConformalSampler(ToyModel(**generator), **options)


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(X, Y)


@pytest.fixture(scope="module")
def data(fitted):
    return fitted.calibration_data_


def assert_valid(calibrated):
    """The simulated loss is within its bound."""
    if calibrated.lambda_hat_ is None:
        return
    loss = set_loss(NEW_Y, calibrated.predict(NEW), admission="exact_match")
    assert loss * len(NEW) <= binom.ppf(0.999, len(NEW), EPSILON)


REFUSED = {
    "generator parameter": ({"skill": 0.5}, "another generator"),
    "temperature": ({"temperature": 3.0}, "another generator"),
    "quality": ({"quality": other_quality}, "collected with quality='likelihood'"),
    "similarity": ({"similarity": "exact_match"}, "collected with similarity='rouge_l'"),
    "stricter or laxer admission": ({"admission": lax}, "collected with admission='exact_match'"),
    "more draws": ({"k_max": 6}, "k_max=6 asks for more draws than the 5"),
}
HARMLESS = {
    "seed": {"random_state": 7},
    "set score": {"set_score": "sum"},
    "fewer draws": {"k_max": 3},
    "budgets": {"k_max": [2, 5]},
    "weights": {"size_weight": 2.0},
}


def through_file(given, folder):
    given.save(folder / "data.npz")
    return type(given).load(folder / "data.npz")


PARTS = {
    "whole": lambda given, folder: given,
    "taken": lambda given, folder: given.take(np.arange(100)),
    "split": lambda given, folder: given.split(0.3, random_state=0)[1],
    "rows": lambda given, folder: given.rows(slice(100)),
    "truncated": lambda given, folder: given.truncate(5),
    "saved": through_file,
    "pickled": lambda given, folder: pickle.loads(pickle.dumps(given)),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("change", REFUSED)
def test_calibrate_refuses_data_of_other_parts(data, change, part, tmp_path):
    changes, message = REFUSED[change]
    with pytest.raises(ValueError, match=message):
        sampler(**changes).calibrate(PARTS[part](data, tmp_path))


@pytest.mark.parametrize("change", ["quality", "similarity", "stricter or laxer admission"])
def test_calibrate_refuses_own_data_after_a_change(change, tmp_path):
    changes, message = REFUSED[change]
    own = sampler().fit(X, Y)
    before = own.predict(NEW[:20])
    for part in PARTS.values():
        with pytest.raises(ValueError, match=message):
            own.set_params(**changes).calibrate(part(own.calibration_data_, tmp_path))
    assert own.predict(NEW[:20]) == before


@pytest.mark.parametrize("change", HARMLESS)
def test_what_calibrate_allows_is_valid(data, change, tmp_path):
    calibrated = sampler(**HARMLESS[change]).calibrate(through_file(data, tmp_path))
    assert calibrated.seed_ == 0
    assert calibrated.predict(NEW[:3]).provenance_known
    assert_valid(calibrated)


def test_a_part_of_the_data_has_no_positions(fitted):
    own = clone(fitted).fit(X, Y)
    assert len(own.calibration_indices_) == len(own.calibration_draws_) == len(X)
    own.calibrate(own.calibration_data_.take(np.arange(90)))
    for name in ("calibration_indices_", "calibration_draws_"):
        assert not hasattr(own, name)
    assert own.calibration_data_.n_prompts == 90


class Trained(ToyModel):
    def fit(self, prompts, references):
        self.skill_ = len(prompts) / 160
        return self

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return ToyModel(skill=self.skill_).sample(prompts, n_samples, start=start, seed=seed)


def test_another_training_is_refused(tmp_path):
    first = ConformalSampler(Trained(), k_max=4, epsilon=0.6, random_state=0).fit(X, Y)
    second = clone(first).fit(X[:100], Y[:100])
    with pytest.raises(ValueError, match="another generator than the Trained"):
        second.calibrate(first.calibration_data_)
    first.save_calibration(tmp_path / "first.json")
    with pytest.raises(ValueError, match="other generator"):
        second.load_calibration(tmp_path / "first.json")
    first.generator_.fit(X[:30], Y[:30])
    for use in (first.predict, first.transform, lambda prompts: first.score(prompts, NEW_Y[:9])):
        with pytest.raises(ValueError, match="changed or trained since"):
            use(NEW[:9])


# --- files ----------------------------------------------------------------------------------------

REFUSED_BY_FILE = {
    **{name: (changes, "calibrated with other|k_max=5") for name, (changes, _) in REFUSED.items()},
    "set score": ({"set_score": "sum"}, "other scores: set_score"),
    "fewer draws": ({"k_max": 3}, "calibrated for k_max=5"),
    "epsilon": ({"epsilon": 0.2}, "other parameters: epsilon"),
    "delta": ({"delta": 0.2}, "other parameters: delta"),
}


@pytest.mark.parametrize("change", REFUSED_BY_FILE)
def test_load_refuses_other_parts(fitted, change, tmp_path):
    changes, message = REFUSED_BY_FILE[change]
    fitted.save_calibration(tmp_path / "x.json")
    with pytest.raises(ValueError, match=message):
        sampler(**changes).load_calibration(tmp_path / "x.json")


@pytest.mark.parametrize("change", ["seed", "budgets", "weights"])
def test_what_load_allows_changes_nothing(fitted, change, tmp_path):
    fitted.save_calibration(tmp_path / "x.json")
    loaded = sampler(**HARMLESS[change]).load_calibration(tmp_path / "x.json")
    assert loaded.predict(NEW[:30]) == fitted.predict(NEW[:30])
    assert loaded.calibration_.size_weight == 0.5


def test_the_width_that_calibration_saw_is_in_the_file(tmp_path):
    def total(quality, accepted):
        assert quality.shape[1] == 6
        return np.where(accepted, quality, 0.0).sum(axis=1)

    first = sampler(k_max=[2, 6], set_score=total).fit(X, Y)
    first.save_calibration(tmp_path / "x.json")
    chosen = first.k_max_
    loaded = sampler(k_max=chosen, set_score=total).load_calibration(tmp_path / "x.json")
    assert loaded.predict(NEW[:20]) == first.predict(NEW[:20])


# --- after fit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [*REFUSED, *HARMLESS])
def test_changed_parameters_do_not_reach_predict(change):
    changes = dict(HARMLESS[change] if change in HARMLESS else REFUSED[change][0])
    own = sampler().fit(X, Y)
    before = own.predict(NEW[:30])
    for name in ("skill", "temperature"):
        if name in changes:
            changes[f"generator__{name}"] = changes.pop(name)
    own.set_params(**changes)
    assert own.predict(NEW[:30]) == own.transform(NEW[:30]) == before
    own.score(NEW[:5], NEW_Y[:5])
    assert own.lambda_hat_ == clone(own).set_params(**sampler().get_params()).fit(X, Y).lambda_hat_


def test_a_generator_that_is_changed_after_fit_is_refused():
    own = sampler().fit(X, Y)
    own.generator_.skill = 0.3
    for use in (own.predict, own.transform):
        with pytest.raises(ValueError, match="generator_ must be the ToyModel that was calibrated"):
            use(NEW[:9])


class Listed(BaseEstimator):
    """A quality whose parameter is a list, which clones share."""

    def __init__(self, bounds):
        self.bounds = bounds

    def __call__(self, prompt, draw):
        return draw.logprob if len(draw.response) < self.bounds[0] else -9.0


class Plain:
    """A generator of no class of scikit-learn's."""

    def __init__(self):
        self.skill = 1.0
        self.options = {"temperature": 1.0}

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        model = ToyModel(skill=self.skill, **self.options)
        return model.sample(prompts, n_samples, start=start, seed=seed)


def test_lists_and_plain_generators_that_are_changed_after_fit_do_not_reach_predict():
    bounds, generator = [50], Plain()
    own = sampler(quality=Listed(bounds)).set_params(generator=generator).fit(X, Y)
    before = own.predict(NEW[:60])
    bounds[0] = 1
    generator.skill = 0.1
    generator.options["temperature"] = 9.0
    assert clone(own).fit(X, Y).predict(NEW[:60]) != before
    assert own.predict(NEW[:60]) == before
    own._memory.clear()
    assert own.predict(NEW[:60]) == before


# --- bare arrays ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bare_arrays_are_allowed_and_marked(data, dtype, tmp_path):
    quality = np.round(data.quality, 1).astype(dtype)
    bare = CalibrationData(quality, data.similarity.astype(dtype), data.admissible)
    calibrated = sampler(quality=rounded).calibrate(bare)
    assert_valid(calibrated)
    sets = calibrated.predict(NEW[:4])
    assert sets.guaranteed
    assert not sets.provenance_known
    shown = (repr(sets), str(sets), str(sets[0]), repr(sets[0]), sets._repr_html_())
    for text in (*shown, sets[0]._repr_html_(), repr(sets[1:])):
        assert "provenance unknown" in text
    assert sets.to_frame()["provenance"].tolist() == ["unknown"] * 4
    assert "provenance" not in sampler().fit(X, Y).predict(NEW[:4]).to_frame()
    assert "provenance unknown" in str(CalibrationReport.from_estimator(calibrated))
    calibrated.save_calibration(tmp_path / "x.json")
    content = json.loads((tmp_path / "x.json").read_text())
    assert content["provenance"] == "unknown: generator, seed, quality, similarity, admission"
    assert content["generator"] is None
    assert content["seed"] is None
    with pytest.warns(UserWarning, match="calibrated on arrays, which do not tell the generator"):
        loaded = sampler(quality=rounded).load_calibration(tmp_path / "x.json")
    assert loaded.predict(NEW[:4]) == sets
    assert not loaded.predict(NEW[:4]).provenance_known


def rounded(prompt, draw):
    return float(np.round(np.exp(draw.logprob / ((5 + draw.n_tokens) / 6) ** 0.6), 1))


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibrated_files(data, tmp_path_factory):
    """Calibrations by the command line: of a file that tells its provenance, and of bare arrays."""
    folder = tmp_path_factory.mktemp("command_line")
    data.save(folder / "data.npz")
    parts = {"scores": data.quality, "similarity": data.similarity, "labels": data.admissible}
    options = []
    for name, array in parts.items():
        np.save(folder / f"{name}.npy", array)
        options += [f"--{name}", str(folder / f"{name}.npy")]
    given = {"known": ["--data", str(folder / "data.npz")], "unknown": options}
    for name, arrays in given.items():
        output = str(folder / f"{name}.json")
        command = ["calibrate", *arrays, "--epsilon", str(EPSILON), "--output", output]
        assert main([*command, "--quiet"]) == 0
    return folder


@pytest.mark.parametrize("change", REFUSED_BY_FILE)
def test_files_of_the_command_line_refuse_other_parts(calibrated_files, change):
    changes, message = REFUSED_BY_FILE[change]
    with pytest.raises(ValueError, match=message):
        sampler(**changes).load_calibration(calibrated_files / "known.json")


@pytest.mark.parametrize("change", ["seed", "budgets", "weights"])
def test_what_files_of_the_command_line_allow_is_valid(fitted, calibrated_files, change):
    loaded = sampler(**HARMLESS[change]).load_calibration(calibrated_files / "known.json")
    assert loaded.seed_ == fitted.seed_
    assert loaded.predict(NEW[:3]).provenance_known
    assert_valid(loaded)


@pytest.mark.parametrize("change", [*REFUSED_BY_FILE, "seed"])
def test_files_of_bare_arrays_refuse_what_they_know_and_mark_the_rest(calibrated_files, change):
    """Budget, set score, epsilon and delta are known; all else is marked as unknown."""
    changes, message = REFUSED_BY_FILE.get(change, (HARMLESS["seed"], ""))
    other = sampler(**changes)
    if change in ("more draws", "fewer draws", "set score", "epsilon", "delta"):
        with pytest.raises(ValueError, match=message):
            other.load_calibration(calibrated_files / "unknown.json")
        return
    with pytest.warns(UserWarning, match="arrays, which do not tell the generator, seed, quality"):
        other.load_calibration(calibrated_files / "unknown.json")
    sets = other.predict(NEW[:3])
    assert sets.guaranteed
    assert not sets.provenance_known
    assert "provenance unknown" in str(sets)
    other.save_calibration(calibrated_files / "again.json")
    content = json.loads((calibrated_files / "again.json").read_text())
    assert content["provenance"].startswith("unknown: generator, seed, quality")


# --- policies from elsewhere -----------------------------------------------------------------


def test_prompts_that_a_policy_has_seen_are_known_again_by_other_scores(fitted, data, tmp_path):
    """The scores differ, and so do the draws: the prompts themselves tell."""
    learnt = ExitPolicy().fit(data, data.first)
    policies = [learnt, ThresholdPolicy(frontier=fitted.frontier_)]
    for changes in ({"quality": rounded}, {"skill": 0.8}, {"random_state": 5}):
        again = through_file(sampler(**changes).collect(X[:60], Y[:60]), tmp_path)
        for policy in policies:
            with pytest.raises(ValueError, match="must come from other prompts"):
                sampler(policy=policy, **changes).calibrate(again)
    unseen = sampler(quality=rounded).collect(NEW[:60], NEW_Y[:60])
    for policy in policies:
        other = sampler(policy=policy, quality=rounded)
        assert other.calibrate(unseen).calibration_.certified
        with pytest.raises(ValueError, match="must come from other prompts"):
            other.fit(X[:60], Y[:60])


# --- components -----------------------------------------------------------------------------------


def reporter(seed=0, k_max=5):
    return ConformalSampler(
        ReportModel(), k_max=k_max, epsilon=0.5, set_score="sum", random_state=seed
    )


def selector(given=None, **changes):
    options = {"alpha": 0.4, "admission": "exact_match"} | changes
    return ComponentSelector(reporter() if given is None else given, **options)


class OtherReports(ReportModel):
    """The same under another name."""


@pytest.fixture(scope="module")
def selecting():
    return selector().fit(REPORTS, REPORTS_Y)


REFUSED_COMPONENTS = {
    "splitter": ({"splitter": "line"}, "collected with splitter='sentence'"),
    "component score": ({"component_score": "support"}, "component_score='span_likelihood'"),
    "admission": ({"admission": "rouge_l"}, "collected with admission='exact_match'"),
}


@pytest.mark.parametrize("change", REFUSED_COMPONENTS)
def test_a_selector_refuses_data_of_other_parts(selecting, change, tmp_path):
    changes, message = REFUSED_COMPONENTS[change]
    collected = selecting.calibration_data_
    for given in (collected, collected.take(np.arange(90)), through_file(collected, tmp_path)):
        with pytest.raises(ValueError, match=f"{message}.*edited or moved"):
            selector(selecting.sampler_, **changes).calibrate(given)
    selecting.save_calibration(tmp_path / "x.json")
    with pytest.raises(ValueError, match="calibrated with other scores"):
        selector(selecting.sampler_, **changes).load_calibration(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: reporter(seed=3), "another seed than the"),
        (lambda: reporter().set_params(generator=OtherReports()), "another generator than the"),
        (lambda: reporter(k_max=9), "components of 5 draws .* k_max=9"),
    ],
)
def test_a_selector_refuses_data_of_other_draws(selecting, make, message, tmp_path):
    other = make().fit(REPORTS, REPORTS_Y)
    with pytest.raises(ValueError, match=message):
        selector(other).calibrate(selecting.calibration_data_)
    selecting.save_calibration(tmp_path / "x.json")
    with pytest.raises(ValueError, match=r"calibrated with other draws|of 5 draws"):
        selector(other).load_calibration(tmp_path / "x.json")
    sets = other.predict(REPORTS[:60])
    for given in (sets, pickle.loads(pickle.dumps(sets))):
        with pytest.raises(ValueError, match=r"another generator, or with another seed|set of"):
            selecting.predict(given)


def test_a_selector_in_a_file(selecting, tmp_path):
    selecting.save_calibration(tmp_path / "x.json")
    assert (tmp_path / "x.json").stat().st_size < 3000
    loaded = selector(selecting.sampler_).load_calibration(tmp_path / "x.json")
    new, new_y = cases(150, first=3000)
    assert loaded.predict(new) == selecting.predict(new)
    assert loaded.gamma_hat_ == selecting.gamma_hat_
    assert not hasattr(loaded, "calibration_data_")
    assert component_loss(new_y, loaded.predict(new)) <= binom.ppf(0.999, 150, 0.4) / 150
    for changes in ({"alpha": 0.2}, {"delta": 0.2}):
        with pytest.raises(ValueError, match="other parameters"):
            selector(**changes).load_calibration(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="not an intact file written by save_calibration"):
        selector().load_calibration(tmp_path / "x.json")


def test_bare_arrays_of_components_are_marked(selecting):
    collected = selecting.calibration_data_
    bare = ComponentCalibrationData(collected.scores, collected.admissible, collected.offsets)
    sets = selector(selecting.sampler_).calibrate(bare).predict(REPORTS[:5])
    for text in (repr(sets), str(sets), str(sets[0]), sets._repr_html_()):
        assert "provenance unknown" in text
    assert set(sets.to_frame()["provenance"]) <= {"unknown"}
    assert "unknown" not in repr(selecting.predict(REPORTS[:5]))


def test_a_later_collection_leaves_no_attribute_of_an_earlier_one(selecting):
    own = clone(selecting).fit(REPORTS, REPORTS_Y)
    own.calibrate(selecting.calibration_data_.take(np.arange(80)))
    assert not hasattr(own, "calibration_indices_")
    assert own.calibration_data_.n_prompts == 80


# --- warnings -------------------------------------------------------------------------------------


def test_supervised_steps_before_the_sampler_are_noticed():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(120, 30)), rng.integers(2, size=120)
    generator = EstimatorGenerator(LogisticRegression())
    last = ConformalSampler(generator, k_max=2, epsilon=0.5, random_state=0)
    with pytest.warns(UserWarning, match=r"steps \['selectkbest'\] learn from the references"):
        make_pipeline(SelectKBest(f_classif, k=3), last).fit(rows, labels)
    inside = EstimatorGenerator(make_pipeline(SelectKBest(f_classif, k=3), LogisticRegression()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", NullCalibrationWarning)
        make_pipeline(StandardScaler(), last).fit(rows, labels)
        clone(last).set_params(generator=inside).fit(rows, labels)


def test_each_null_calibration_of_a_search_is_warned_of():
    search = GridSearchCV(sampler(), {"epsilon": [0.05]}, cv=2, refit=False)
    for use in (
        lambda: cross_validate(sampler(epsilon=0.05), X[:60], Y[:60], cv=2),
        lambda: search.fit(X[:60], Y[:60]),
    ):
        with pytest.warns(NullCalibrationWarning) as caught:
            use()
        found = [str(each.message) for each in caught if each.category is NullCalibrationWarning]
        assert len(found) == 2
        assert all(message.startswith("Calibration is null") for message in found)


def test_a_threshold_out_of_reach_is_noticed():
    # the first draw stops, and a support of two is then never seen
    first = sampler(epsilon=0.6, k_max=6)
    choosy = ComponentSelector(first, alpha=0.3, component_score="support", admission="exact_match")
    with pytest.warns(UserWarning, match="gamma_hat_=.* is hardly ever reached in prediction"):
        choosy.fit(X, Y)
    with pytest.warns(UserWarning, match="Each threshold in groups_, the lowest of them .* hardly"):
        choosy.fit(X, Y, groups=np.arange(len(X)) % 2)
    remark = CalibrationReport.from_estimator(choosy).warnings[-1]
    assert f"the lowest of them {min(choosy.groups_.values()):.4g}, is hardly ever" in remark
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        selector().fit(REPORTS, REPORTS_Y)


class Agreement:
    """How many draws hold a component, or which share of them."""

    def __init__(self, *, share):
        self.share = share

    def score_components(self, prompts, generations, spans):
        return [
            [
                np.array([self.of(draw.response[start:stop], draws) for start, stop in row])
                for draw, row in zip(draws, rows, strict=True)
            ]
            for draws, rows in zip(generations, spans, strict=True)
        ]

    def of(self, component, draws):
        count = sum(component in draw.response for draw in draws)
        return count / len(draws) if self.share else count


def test_a_component_score_that_falls_when_draws_are_added_is_noticed():
    first = sampler(epsilon=0.5, k_max=6, set_score="first_k").fit(X, Y)
    choosy = ComponentSelector(first, alpha=0.7, admission="exact_match")
    choosy.set_params(component_score=Agreement(share=True))
    message = r"component_score rises where draws are taken away: of \d+ components .* 100 calib"
    with pytest.warns(UserWarning, match=message):
        choosy.fit(X, Y)
    assert any(
        re.search(message, each) for each in CalibrationReport.from_estimator(choosy).warnings
    )
    for score in (Agreement(share=False), "support", "span_likelihood", "random"):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "component_score rises", UserWarning)
            choosy.set_params(component_score=score).fit(X, Y)
        assert choosy.gamma_hat_ < np.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda step, last: make_pipeline(make_pipeline(StandardScaler(), step), last),
        lambda step, last: make_pipeline(FeatureUnion([("one", step)]), last),
        lambda step, last: make_pipeline(make_column_transformer((step, [0, 1, 2])), last),
        lambda step, last: make_pipeline(step, make_pipeline(StandardScaler(), last)),
        lambda step, last: make_pipeline(
            step, ComponentSelector(last, alpha=0.7, admission="exact_match")
        ),
    ],
)
def test_supervised_steps_are_noticed_wherever_they_stand(make):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 3)), rng.integers(2, size=60)
    last = ConformalSampler(EstimatorGenerator(LogisticRegression()), k_max=2, epsilon=0.5)
    last.set_params(random_state=0)
    with pytest.warns(UserWarning, match="learn from the references before the sampler does"):
        make(SelectKBest(f_classif, k=2), last).fit(rows, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", NullCalibrationWarning)
        make(StandardScaler(), last).fit(rows, labels)


class Unkeyed:
    """Answers with the number of draws that it has made."""

    n = 0

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self.n += len(prompts) * n_samples
        return [[str(self.n + j) for j in range(n_samples)] for _ in prompts]


def test_a_generator_that_is_not_keyed_is_noticed():
    unkeyed = sampler(quality="self_consistency").set_params(generator=Unkeyed())
    with pytest.warns(UserWarning, match="Unkeyed gave another response .*CachedGenerator"):
        unkeyed.collect(X[:10], Y[:10])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler().set_params(generator=Plain()).collect(X[:10], Y[:10])
