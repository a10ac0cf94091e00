"""Right values in the wrong place are refused by their names, or provably change nothing.

Every way in (data, their parts and files, calibration files, sets, fitted policies) meets every
part that may be another one than where the value came from.
"""

import copy
import functools
import json
import pickle
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import BaseEstimator, clone
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

from sklearn_clm import ComponentSelector, NullCalibrationError, PredictionSets
from sklearn_clm.__main__ import main
from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    learn_then_test,
    search_frontier,
)
from sklearn_clm.evaluation import run_trials
from sklearn_clm.generators import FunctionGenerator, Generation, ParallelGenerator
from sklearn_clm.metrics import set_loss
from sklearn_clm.policies import CovariateShift, ExitPolicy, Groups, Losses, ThresholdPolicy
from sklearn_clm.scoring import SelfConsistency, Support
from tests.reports import ReportModel, TrainedReportModel, cases
from tests.toy import Answering, ToyModel, Trained, questions
from tests.toy import toy_sampler as sampler

N, K, EPSILON = 120, 5, 0.4
X, Y = questions(N)
NEW, NEW_Y = questions(150, first=5000)
REPORTS, REPORTS_Y = cases(N)


def length(prompt, draw):
    return float(len(draw.response))


def rounded(prompt, draw):
    return float(np.round(np.exp(draw.logprob / ((5 + draw.n_tokens) / 6) ** 0.6), 1))


def lax(reference, response):
    return True


def through_file(given, folder):
    given.save(folder / "data.npz")
    return type(given).load(folder / "data.npz")


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(X, Y)


@pytest.fixture(scope="module")
def files(fitted, tmp_path_factory):
    """Calibrations by the sampler, and by the command line of its data and of bare arrays."""
    folder, data = tmp_path_factory.mktemp("files"), fitted.calibration_data_
    fitted.save_calibration(folder / "sampler.json")
    data.save(folder / "data.npz")
    data.save(folder / "known.npz")
    CalibrationData(data.quality, data.similarity, data.admissible).save(folder / "bare.npz")
    for name in ("known", "bare"):
        output, given = str(folder / f"{name}.json"), str(folder / f"{name}.npz")
        command = ["calibrate", "--data", given, "--epsilon", str(EPSILON), "--output", output]
        assert main(command) == 0
    return folder


@pytest.mark.parametrize("learnt_from", ["bare", "collected"])
def test_prompts_are_known_again_by_their_scores_where_arrays_do_not_know_them(fitted, learnt_from):
    data = fitted.calibration_data_
    bare = CalibrationData.from_arrays(data.quality, data.similarity, data.labels)
    one, other = (bare, data) if learnt_from == "bare" else (data, bare)
    with pytest.raises(ValueError, match="frontier must come from other prompts"):
        learn_then_test(other, EPSILON, frontier=search_frontier(one))
    with pytest.raises(ValueError, match="policy must come from other prompts"):
        sampler(policy=ExitPolicy().fit(one)).calibrate(other)


# --- samplers: data and calibration files -----------------------------------------------------

# what is another one, and the name by which it is refused
OF_DATA = {
    "skill": ({"generator": ToyModel(skill=0.5)}, "generator"),
    "temperature": ({"generator": ToyModel(temperature=3.0)}, "generator"),
    "quality": ({"quality": length}, "quality"),
    "similarity": ({"similarity": "exact_match"}, "similarity"),
    "admission": ({"admission": lax}, "admission"),
    "more draws": ({"k_max": 6}, "k_max"),
}
OF_CALIBRATION = OF_DATA | {
    "fewer draws": ({"k_max": 3}, "k_max"),
    "set score": ({"policy": ThresholdPolicy(set_score="sum")}, "set_score"),
    "policy": ({"policy": ExitPolicy()}, "policy"),
    "guarantee": ({"policy": ExitPolicy(guarantee="marginal")}, "guarantee"),
    "losses": ({"losses": Losses({"none": lambda *asked: 0.0}, {"none": 0.5})}, "losses"),
    "groups": ({"groups": Groups(len)}, "groups"),
    "shift": ({"shift": CovariateShift(weight_bound=2.0)}, "weight_bound"),
    "epsilon": ({"epsilon": 0.2}, "epsilon"),
    "delta": ({"delta": 0.2}, "delta"),
}
HARMLESS = {
    "seed": {"random_state": 7},
    "set score": {"policy": ThresholdPolicy(set_score="sum")},
    "weights": {"policy": ThresholdPolicy(size_weight=2.0)},
    "fewer draws": {"k_max": 3},
    "budgets": {"k_max": [2, K]},
}
PARTS = {
    "whole": lambda given, folder: given,
    "taken": lambda given, folder: given.take(np.arange(given.n_prompts // 2)),
    "split": lambda given, folder: given.split(0.3, random_state=0)[1],
    "truncated": lambda given, folder: given.truncate(K),
    "saved": through_file,
    "pickled": lambda given, folder: pickle.loads(pickle.dumps(given)),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("wrong", OF_DATA)
def test_data(fitted, wrong, part, tmp_path):
    changes, name = OF_DATA[wrong]
    given = PARTS[part](fitted.calibration_data_, tmp_path)
    with pytest.raises(ValueError, match=name):
        sampler(**changes).calibrate(given)
    if wrong in ("quality", "similarity", "admission"):  # of its own data as well
        own = copy.copy(fitted).set_params(**changes)
        with pytest.raises(ValueError, match=name):
            own.calibrate(given)
        assert own.predict(NEW[:20]) == fitted.predict(NEW[:20])


@pytest.mark.parametrize("file", ["sampler.json", "known.json"])
@pytest.mark.parametrize("wrong", OF_CALIBRATION)
def test_calibration_files(files, wrong, file):
    changes, name = OF_CALIBRATION[wrong]
    other = sampler(**changes)
    with pytest.raises(ValueError, match=name) as raised:
        other.load_calibration(files / file)
    assert not hasattr(other, "calibration_")
    of_code = ("generator", "quality", "similarity", "admission")
    assert ("edited or renamed" in str(raised.value)) == (name in of_code)
    assert ("here, ToyModel. Restore" in str(raised.value)) == (name == "generator")


@pytest.mark.parametrize("other", [None, ExitPolicy(guarantee="marginal")])
def test_calibration_files_of_an_exit_policy(fitted, tmp_path, other):
    data = fitted.calibration_data_
    sampler(policy=ExitPolicy()).calibrate(data).save_calibration(tmp_path / "exit.json")
    with pytest.raises(ValueError, match=r"policy|guarantee"):
        sampler(policy=other).load_calibration(tmp_path / "exit.json")
    loaded = sampler(policy=ExitPolicy()).load_calibration(tmp_path / "exit.json")
    assert loaded.predict(NEW[:5]).responses


@pytest.mark.parametrize("change", HARMLESS)
def test_what_is_allowed_of_data_is_valid(fitted, change, tmp_path):
    calibrated = sampler(**HARMLESS[change])
    calibrated.calibrate(through_file(fitted.calibration_data_, tmp_path))
    assert calibrated.seed_ == 0
    sets = calibrated.predict(NEW)
    assert not sets[0].claim.unknown
    if sets.guaranteed:
        loss = set_loss(NEW_Y, sets, admission="exact_match")
        assert loss * len(NEW) <= binom.ppf(0.999, len(NEW), EPSILON)


@pytest.mark.parametrize("file", ["sampler.json", "known.json"])
@pytest.mark.parametrize("change", ["seed", "budgets", "weights"])
def test_what_is_allowed_of_files_changes_nothing(fitted, files, change, file):
    loaded = sampler(**HARMLESS[change]).load_calibration(files / file)
    assert loaded.seed_ == fitted.seed_
    if file == "sampler.json":
        assert loaded.predict(NEW[:30]) == fitted.predict(NEW[:30])


def test_another_training(tmp_path):
    first = sampler(Trained(), epsilon=0.6).fit(X, Y)
    second = clone(first).fit(X[:100], Y[:100])
    data = first.calibration_data_
    for part in PARTS.values():
        with pytest.raises(ValueError, match="generator"):
            second.calibrate(part(data, tmp_path))
    first.save_calibration(tmp_path / "first.json")
    with pytest.raises(ValueError, match="generator"):
        second.load_calibration(tmp_path / "first.json")
    assert first.calibrate(data.take(np.arange(50))).calibration_data_.n_prompts == 50
    first.generator_.fit(X[:30], Y[:30])
    for use in (first.predict, first.transform, lambda new: first.score(new, NEW_Y[:9])):
        with pytest.raises(ValueError, match="generator_"):
            use(NEW[:9])


def test_a_part_of_the_data_has_no_positions():
    own = sampler().fit(X, Y)
    assert len(own.calibration_indices_) == len(own.calibration_draws_) == N
    own.calibrate(own.calibration_data_.take(np.arange(90)))
    assert own.calibration_data_.n_prompts == 90
    for name in ("calibration_indices_", "calibration_draws_"):
        assert not hasattr(own, name)


# --- bare arrays ------------------------------------------------------------------------------


def assert_marked(sets):
    assert sets.guaranteed
    assert sets[0].claim.unknown
    shown = (repr(sets), str(sets), str(sets[0]), sets._repr_html_(), sets[0]._repr_html_())
    shown = (*shown, sets[0].to_dict()["guarantee"], str(sets.sampler.calibration_))
    assert all("provenance unknown" in text for text in (*shown, repr(sets[1:])))
    assert set(sets.to_frame()["provenance"]) == {"unknown"}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bare_arrays_are_allowed_and_marked(fitted, dtype, tmp_path):
    data = fitted.calibration_data_
    quality = np.round(data.quality, 1).astype(dtype)
    bare = CalibrationData(quality, data.similarity.astype(dtype), data.admissible)
    calibrated = sampler(quality=rounded).calibrate(bare)
    sets = calibrated.predict(NEW[:4])
    assert_marked(sets)
    assert "provenance" not in fitted.predict(NEW[:4]).to_frame()
    calibrated.save_calibration(tmp_path / "x.json")
    known = json.loads((tmp_path / "x.json").read_text())["provenance"]
    assert known["generator"] is known["seed"] is known["admission"] is None
    loaded = sampler(quality=rounded).load_calibration(tmp_path / "x.json")
    assert loaded.predict(NEW[:4]) == sets


@pytest.mark.parametrize("change", [*OF_CALIBRATION, "seed"])
def test_files_of_bare_arrays_refuse_what_they_know_and_mark_the_rest(files, change):
    changes, name = OF_CALIBRATION.get(change, (HARMLESS.get(change), None))
    other = sampler(**changes)
    if change in ("skill", "temperature", "quality", "similarity", "admission", "seed"):
        other.load_calibration(files / "bare.json")
        assert_marked(other.predict(NEW[:3]))
    else:
        with pytest.raises(ValueError, match=name):
            other.load_calibration(files / "bare.json")


def test_labels_from_elsewhere_are_used_and_said_to_be_unknown():
    one = sampler(judging="lazy")
    data = one.collect(X, Y)
    labels = np.where(np.arange(K) == 0, 0, np.full((N, K), -1))
    one.calibrate(data.with_labels(np.take_along_axis(labels, data.first, axis=1)))
    assert (one.calibration_data_.labels[:, 0] == 0).all()
    assert one.calibration_.unknown == ("admission",)
    assert one.calibrate(data).calibration_.unknown == ()


# --- what changes after a fit -----------------------------------------------------------------


@pytest.mark.parametrize("change", [*OF_DATA, *HARMLESS])
def test_parameters_that_change_do_not_reach_predict(change):
    changes = HARMLESS[change] if change in HARMLESS else OF_DATA[change][0]
    own = sampler().fit(X, Y)
    before = own.predict(NEW[:30])
    own.set_params(**changes)
    assert own.predict(NEW[:30]) == own.transform(NEW[:30]) == before


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


def test_what_parameters_hold_does_not_reach_predict():
    texts = [f"answer {i}" for i in range(200)] + [f"wrong guess {i % 6} about" for i in range(200)]
    words = HashingVectorizer(n_features=64)
    scored = make_pipeline(words, SGDClassifier(loss="log_loss", random_state=0))
    scored.fit(texts, [1] * 200 + [0] * 200)
    bounds, generator = [50], Plain()
    listed = sampler(generator, quality=Listed(bounds)).fit(X, Y)
    classified, nested = (sampler(quality=one).fit(X, Y) for one in (scored, SelfConsistency()))
    wrapped = sampler(ParallelGenerator(generator, n_jobs=1)).fit(X, Y)
    before = [one.predict(X) for one in (listed, classified, nested, wrapped)]
    bounds[0], generator.skill, generator.options["temperature"] = 1, 0.1, 9.0
    scored[-1].partial_fit(words.transform(texts), [0] * 200 + [1] * 200)
    nested.set_params(quality__similarity="exact_match")
    with pytest.raises(ValueError, match="quality"):
        nested.calibrate(nested.calibration_data_)
    for one, sets in zip((listed, classified, nested, wrapped), before):
        one.memory_.clear()
        assert one.predict(X) == sets
        assert one.fit(X, Y).predict(X) != sets


class Counting:
    """Counts its calls, which are no part of it."""

    def __init__(self, answer):
        self.answer, self.n_calls = answer, 0

    def ask(self, *asked):
        self.n_calls += 1
        return self.answer(*asked)


class Named(Counting):
    """Says itself what it is."""

    def fingerprint(self):
        return "mine"

    __call__ = Counting.ask


def likely(prompt, draw):
    return draw.logprob


def equal(one, other):
    return float(one == other)


def agrees(reference, response):
    return reference == response


def lines(response):
    return response.splitlines()


@pytest.mark.parametrize("wrap", [lambda answer: Counting(answer).ask, Named])
@pytest.mark.parametrize(
    ("role", "answer"), [("quality", likely), ("similarity", equal), ("admission", agrees)]
)
@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_scores_that_count_stay_what_they_are(role, answer, wrap, judging, tmp_path):
    def sampler_with(score):
        return sampler(**{"judging": judging, "similarity": "exact_match", role: score})

    own = sampler_with(wrap(answer)).fit(X, Y)
    expected = own.predict(X[:20])
    own.calibrate(own.calibration_data_).save_calibration(tmp_path / "used.json")
    assert own.predict(X[:20]) == expected
    loaded = sampler_with(wrap(answer)).load_calibration(tmp_path / "used.json")
    assert loaded.predict(X[:20]).responses == expected.responses
    with pytest.raises(ValueError, match=role):
        sampler_with(lambda *asked: 0.25).load_calibration(tmp_path / "used.json")


def identified(answer, taken):
    """A function that notes under its name when its fingerprint is taken, which may be slow."""

    @functools.wraps(answer)
    def part(*asked, **options):
        return answer(*asked, **options)

    def fingerprint():
        taken[answer.__name__] += 1
        return "mine"

    part.fingerprint = fingerprint
    return part


def even_or_right(prompt, seed):
    return f"answer {prompt.split()[-1] if seed % 2 else seed}"


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_a_fit_and_a_file_take_each_fingerprint_once(judging, tmp_path):
    taken = Counter()
    generator = FunctionGenerator(identified(even_or_right, taken))
    scores = {"quality": length, "similarity": equal, "admission": agrees}
    parts = {name: identified(score, taken) for name, score in scores.items()}
    once_each = {"length": 1, "equal": 1, "agrees": 1}
    once = once_each | {"even_or_right": 1}

    own = sampler(generator, judging=judging, **parts).fit(X, Y)
    assert taken == once
    own.predict(X[:5])
    own.save_calibration(tmp_path / "own.json")
    assert taken == once
    taken.clear()
    loaded = sampler(generator, judging=judging, **parts).load_calibration(tmp_path / "own.json")
    loaded.predict(X[:5])
    assert taken == once
    # parameters may have been set since, and what they hold may have changed
    taken.clear()
    own.calibrate(own.calibration_data_)
    assert taken == once_each


class Foreign:
    """A trained generator of no class of scikit-learn's."""

    n_ = 0

    def fit(self, prompts, references):
        self.n_ += len(prompts)
        return self

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[Generation(str(self.n_), -0.1, 1)] * n_samples for _ in prompts]


def test_a_foreign_generator_is_not_trained_again_under_a_fitted_sampler():
    generator = Foreign()
    first = sampler(generator).fit(X, ["60"] * N)
    second = sampler(generator).fit(X[:50], ["25"] * 50)
    assert first.predict(X[:1])[0].responses[0] == "60"
    assert second.predict(X[:1])[0].responses[0] == "25"
    assert generator.n_ == 0


SERVED = {"model": "old"}


def test_draws_of_a_model_that_nobody_knows_was_exchanged_are_let_go_by_hand(monkeypatch):
    served = Answering(lambda prompt, draw: SERVED["model"])
    one = sampler(served, quality="self_consistency", epsilon=0.9).fit(X, Y)
    monkeypatch.setitem(SERVED, "model", "new")
    drawn = [one.fit(X, Y).calibration_draws_[0][0].response]
    one.memory_.clear()
    drawn += [one.fit(X, Y).calibration_draws_[0][0].response]
    assert drawn == ["old", "new"]


# --- policies from elsewhere ------------------------------------------------------------------


def test_prompts_that_a_policy_has_seen(fitted, tmp_path):
    data = fitted.calibration_data_
    policies = [ExitPolicy().fit(data), ThresholdPolicy(frontier=fitted.frontier_)]
    # the prompts themselves tell, where scores and draws differ
    for changes in ({}, {"quality": rounded}, {"random_state": 5}):
        again = through_file(sampler(**changes).collect(X[:60], Y[:60]), tmp_path)
        for policy in map(clone, policies):
            with pytest.raises(ValueError, match="prompts"):
                sampler(policy=policy, **changes).calibrate(again)
            with pytest.raises(ValueError, match="prompts"):
                sampler(policy=policy, **changes).fit(X[:60], Y[:60])
    for policy in policies:
        assert sampler(policy=policy).fit(NEW[:60], NEW_Y[:60]).calibration_.certified


# --- selectors --------------------------------------------------------------------------------


def reporter(generator=None, **changes):
    options = {"k_max": 5, "epsilon": 0.5, "policy": ThresholdPolicy(set_score="sum")} | changes
    return sampler(ReportModel() if generator is None else generator, **options)


def selector(given=None, **changes):
    options = {"alpha": 0.4, "admission": "exact_match"} | changes
    return ComponentSelector(reporter() if given is None else given, **options)


class OtherReports(ReportModel):
    """The same under another name."""


@pytest.fixture(scope="module")
def selecting():
    return selector().fit(REPORTS, REPORTS_Y)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"splitter": str.splitlines}, "splitter"),
        ({"component_score": "support"}, "component_score"),
        ({"admission": "rouge_l"}, "admission"),
        ({"alpha": 0.2}, "alpha"),
        ({"delta": 0.2}, "delta"),
    ],
)
def test_components_of_other_parts(selecting, changes, name, tmp_path):
    other, collected = selector(selecting.sampler_, **changes), selecting.calibration_data_
    if name not in ("alpha", "delta"):
        for given in (collected, collected.take(np.arange(90)), through_file(collected, tmp_path)):
            with pytest.raises(ValueError, match=name):
                other.calibrate(given)
    selecting.save_calibration(tmp_path / "x.json")
    with pytest.raises(ValueError, match=name):
        other.load_calibration(tmp_path / "x.json")
    own = clone(selecting).fit(REPORTS, REPORTS_Y)
    before = own.predict(REPORTS[:5])
    assert own.set_params(**changes).predict(REPORTS[:5]) == before


def test_a_fit_of_components_takes_each_fingerprint_once():
    taken = Counter()
    scores = {"quality": length, "similarity": equal, "admission": lax}
    of_sampler = {name: identified(score, taken) for name, score in scores.items()}
    parts = {"splitter": lines, "admission": agrees}
    of_parts = {name: identified(part, taken) for name, part in parts.items()}
    selector(reporter(**of_sampler), **of_parts).fit(REPORTS, REPORTS_Y)
    assert taken == {"length": 1, "equal": 1, "lax": 1, "lines": 1, "agrees": 1}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: reporter(random_state=3), "seed"),
        (lambda: reporter(OtherReports()), "generator"),
        (lambda: reporter(k_max=9), "draws"),
    ],
)
def test_components_of_other_draws(selecting, make, name, tmp_path):
    other = make().fit(REPORTS, REPORTS_Y)
    with pytest.raises(ValueError, match=name):
        selector(other).calibrate(selecting.calibration_data_)
    selecting.save_calibration(tmp_path / "x.json")
    with pytest.raises(ValueError, match=name):
        selector(other).load_calibration(tmp_path / "x.json")
    sets = other.predict(REPORTS[:60])
    for given in (sets, pickle.loads(pickle.dumps(sets))):
        with pytest.raises(ValueError, match=name):
            selecting.predict(given)


class Constant(Support):
    """A component score that looks at all draws, and gives one number."""

    def score_components(self, prompts, generations, spans):
        return [[[self.threshold for _ in row] for row in rows] for rows in spans]


class Single(BaseEstimator):
    """A component score of one component alone, and a splitter, into one component."""

    def __init__(self, threshold=0.5):
        self.threshold = threshold

    def __call__(self, *given):
        return self.threshold if len(given) == 2 else [given[0][: int(20 * self.threshold)]]


@pytest.mark.parametrize(
    ("role", "score"),
    [
        ("component_score", Constant(threshold=0.5)),
        ("component_score", Single()),
        ("splitter", Single()),
    ],
)
def test_nested_parameters_do_not_reach_the_selection(role, score):
    own = selector(**{"component_score": Constant(threshold=0.5), "admission": lax, role: score})
    before = own.fit(REPORTS, REPORTS_Y).predict(REPORTS[:9])
    assert before.sizes.any()
    own.set_params(**{f"{role}__threshold": 0.1})
    assert own.predict(REPORTS[:9]) == before


def test_bare_arrays_of_components_are_marked(selecting):
    collected = selecting.calibration_data_
    bare = ComponentCalibrationData(collected.scores, collected.admissible, collected.offsets)
    sets = selector(selecting.sampler_).calibrate(bare).predict(REPORTS[:5])
    for text in (repr(sets), str(sets), str(sets[0]), sets._repr_html_()):
        assert "provenance unknown" in text
    assert "unknown" not in repr(selecting.predict(REPORTS[:5]))


def test_selections_of_sets_that_do_not_know_their_draws_are_marked(selecting):
    sets = reporter(OtherReports()).fit(REPORTS, REPORTS_Y).predict(REPORTS[:60])
    bare = PredictionSets(list(sets), k_max=sets.k_max)
    selected = selecting.predict(bare)
    for text in (repr(selected), str(selected[0]), selected[0].to_dict()["guarantee"]):
        assert "provenance unknown" in text


def test_no_later_calibration_keeps_attributes_of_an_earlier_one(selecting):
    own = clone(selecting).fit(REPORTS, REPORTS_Y)
    own.calibrate(selecting.calibration_data_.take(np.arange(80)))
    assert not hasattr(own, "calibration_indices_")
    own.set_params(component_score="support").collect(REPORTS, REPORTS_Y)
    for name in ("gamma_hat_", "p_values_", "calibration_data_", "result_"):
        assert not hasattr(own, name)
    with pytest.raises(NullCalibrationError):
        own.set_params(alpha=1e-4, on_null="raise").fit(REPORTS, REPORTS_Y)
    assert not hasattr(own, "gamma_hat_")


def test_a_sampler_that_was_fitted_anew():
    inner = reporter().fit(REPORTS, REPORTS_Y)
    own = selector(inner).fit(REPORTS, REPORTS_Y)
    before = own.predict(REPORTS[:5])
    inner.fit(REPORTS, REPORTS_Y)
    assert own.predict(REPORTS[:5]) == before
    inner.set_params(random_state=7).fit(REPORTS, REPORTS_Y)
    with pytest.raises(ValueError, match="seed"):
        own.predict(REPORTS[:5])


def test_sets_and_prompts_of_a_training():
    inner = reporter(TrainedReportModel())
    sets = inner.fit_transform(REPORTS, REPORTS_Y)
    own = selector(inner).fit(sets, REPORTS_Y)
    kept = pickle.loads(pickle.dumps(sets))  # without their sampler
    for given in (sets, kept):
        assert sum(one.guaranteed for one in own.predict(given)) == N - 60
    for given in (REPORTS, inner.predict(REPORTS)):
        with pytest.warns(UserWarning, match="60 of the 120 prompts"):
            selector(inner).fit(given, REPORTS_Y)


# --- arguments in each other's place ----------------------------------------------------------


def test_sets_in_place_of_prompts(fitted):
    sets = fitted.predict(X[:3])
    uses = (
        lambda: fitted.predict(sets),
        lambda: sampler().fit(sets, Y[:3]),
        lambda: fitted.predict(np.array([["two", "columns"]] * 3)),
    )
    for use in uses:
        with pytest.raises((ValueError, TypeError), match=r"prompts \(X\)|sets"):
            use()


def test_lazily_judged_data_are_for_whoever_can_ask():
    one = sampler(judging="lazy").fit(X, Y)
    data = one.calibration_data_
    one.set_params(k_max=3, epsilon=0.5).calibrate(data)
    one.set_params(epsilon=0.55).calibrate(data.truncate(3))
    one.set_params(k_max=K, epsilon=0.45).calibrate(data)
    assert (one.calibration_data_.k_max, one.k_max_) == (K, K)
    for use in (
        sampler().calibrate,
        lambda data: one.calibrate(data.take(np.arange(N)[::-1])),
        lambda data: run_trials(data, ["max"], [0.4]),
    ):
        with pytest.raises(ValueError, match="data must"):
            use(data)
