"""What a request costs, and what it needs, beyond its draws."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import CachedGenerator, CachedScore
from sklearn_clm.generators import (
    BaseGenerator,
    CascadeGenerator,
    EstimatorGenerator,
    FunctionGenerator,
    PrecomputedGenerator,
)
from sklearn_clm.generators.identity import digest_of, parts_of

X, Y = [f"prompt {i}" for i in range(40)], ["yes"] * 40


class Enclosed:
    """Something large within a function; it counts how often its identity was taken."""

    n_taken = 0

    def __init__(self, content="large"):
        self.content = content

    def fingerprint(self):
        Enclosed.n_taken += 1
        return self.content


def function_around(enclosed):
    return lambda *given: "yes" if len(given) == 1 else float(bool(enclosed))


def function(enclosed):
    return FunctionGenerator(function_around(enclosed))


def cascade(enclosed):
    tiers = [CachedGenerator(function(enclosed)), function(enclosed)]
    return CascadeGenerator(tiers, n_draws=(1, 1), prices=(1, 2))


GENERATORS = {
    "function": function,
    "cached": lambda enclosed: CachedGenerator(CachedGenerator(function(enclosed))),
    "cascade": cascade,
}


def fitted(make, enclosed, **options):
    score = CachedScore(function_around(enclosed))
    sampler = ConformalSampler(
        make(enclosed), k_max=2, delta=0.2, quality=score, similarity=score, **options
    )
    return sampler.fit(X, Y)


@pytest.fixture(params=GENERATORS)
def make(request):
    return GENERATORS[request.param]


def test_a_request_does_not_read_what_functions_enclose(make):
    enclosed = Enclosed()
    sampler = fitted(make, enclosed)
    sampler.predict(["first"])  # the caches of scores are asked for the first time
    n_taken = Enclosed.n_taken
    for i in range(5):
        sampler.predict([f"new {i}", f"newer {i}"])
    assert Enclosed.n_taken == n_taken
    # what is changed in place is another thing from the next fit on
    before = sampler.calibration_
    enclosed.content = "other"
    after = sampler.fit(X, Y).calibration_
    assert before.source.fingerprint != after.source.fingerprint
    assert before.provenance.quality != after.provenance.quality


def replace_function(sampler):
    sampler.generator_.set_params(ask=function_around(Enclosed("other")))


def replace_within(sampler):
    inner = sampler.generator_.generator.generator
    inner.set_params(ask=function_around(Enclosed("other")))


def replace_tier(sampler):
    sampler.generator_.generators[1].ask = function_around(Enclosed("other"))


def replace_within_tier(sampler):
    sampler.generator_.generators[0].generator = function(Enclosed("other"))


@pytest.mark.parametrize(
    ("name", "replace"),
    [
        ("function", replace_function),
        ("cached", replace_within),
        ("cascade", replace_tier),
        ("cascade", replace_within_tier),
    ],
)
def test_what_was_replaced_is_refused(name, replace):
    sampler = fitted(GENERATORS[name], Enclosed())
    sampler.predict(["first"])
    replace(sampler)
    for _ in range(2):
        with pytest.raises(ValueError, match="generator_ must be"):
            sampler.predict(["second"])


def ask(prompt):
    return "yes"


def length(prompt, generation):
    return float(len(generation.response))


class Shares(ClassifierMixin, BaseEstimator):
    """A classifier that has learnt nothing but two whole numbers."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        self.n_ones_ = self.n_seen_ = 0
        return self.partial_fit(X, y)

    def partial_fit(self, X, y):
        self.n_ones_ += int(sum(y))
        self.n_seen_ += len(y)
        return self

    def predict_proba(self, X):
        share = self.n_ones_ / self.n_seen_
        return np.tile([1.0 - share, share], (len(X), 1))


class Written(BaseGenerator):
    """A class of the user's, which says what its draws depend on."""

    def __init__(self):
        self.text = "yes"

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[self.responds()] * n_samples for _ in prompts]

    def responds(self):
        return self.text

    def fingerprint(self):
        return f"{digest_of(type(self), {})} {self.text}"


def asking(before=None):
    def ask(prompt, after=None, *, between=""):
        return f"yes{between}"

    return partial(ask, after=before)


def code_of(generator):
    return generator.ask.func


# what reloading a module does to its functions and classes, and what learns or is set in place
CHANGED = {
    "code": (
        lambda: FunctionGenerator(asking()),
        lambda generator: setattr(code_of(generator), "__code__", (lambda p, after: "no").__code__),
    ),
    "default": (
        lambda: FunctionGenerator(asking()),
        lambda generator: setattr(code_of(generator), "__kwdefaults__", {"between": "no"}),
    ),
    "argument": (
        lambda: FunctionGenerator(asking()),
        lambda generator: generator.ask.keywords.update(after="other"),
    ),
    "method of an owner": (
        lambda: FunctionGenerator(type("Owner", (Written,), {"ask": lambda self, p: "yes"})().ask),
        lambda generator: setattr(generator.ask.__func__, "__defaults__", ("other",)),
    ),
    "method of a class": (
        lambda: type("Reloaded", (Written,), {})(),
        lambda generator: setattr(type(generator), "responds", lambda self: "no"),
    ),
    "attribute": (Written, lambda generator: setattr(generator, "text", "no")),
    "attribute within": (
        lambda: CascadeGenerator([Written()], n_draws=(2,), prices=(1,)),
        lambda generator: setattr(generator.generators[0], "text", "no"),
    ),
}


@pytest.mark.parametrize("wrap", [lambda generator: generator, CachedGenerator])
@pytest.mark.parametrize(("make", "change"), CHANGED.values(), ids=CHANGED)
def test_what_was_changed_in_place_is_refused(make, change, wrap):
    sampler = ConformalSampler(wrap(make()), k_max=2, delta=0.2, quality=length).fit(X, Y)
    sampler.predict(["first"])
    change(getattr(sampler.generator_, "generator", sampler.generator_))
    for _ in range(2):
        with pytest.raises(ValueError, match="generator_ must be"):
            sampler.predict(["second"])


def test_a_classifier_that_has_learnt_whole_numbers_alone_is_refused_once_it_learns():
    rows = np.arange(60.0)[:, np.newaxis]
    classifier = Shares().fit(rows, np.ones(60))
    generator = EstimatorGenerator(FrozenEstimator(classifier))
    sampler = ConformalSampler(generator, k_max=2, delta=0.2).fit(rows, np.ones(60, dtype=int))
    sampler.predict(rows)
    classifier.partial_fit(rows, np.zeros(60))
    with pytest.raises(ValueError, match="generator_ must be"):
        sampler.predict(rows)


def test_a_request_does_not_look_at_each_draw_of_a_table():
    table = PrecomputedGenerator(list(map(str, range(1000))), [["yes"] * 20] * 1000)
    assert len(parts_of(CachedGenerator(table))) < 20


def test_another_function_under_the_name_in_a_pickle_is_refused(monkeypatch):
    sampler = ConformalSampler(FunctionGenerator(ask), k_max=2, delta=0.2, quality=length)
    sampler.fit(X, Y).predict(["first"])
    pickled = pickle.dumps(sampler)
    assert pickle.loads(pickled).predict(["second"]) == sampler.predict(["second"])
    monkeypatch.setattr(f"{__name__}.ask", function_around(Enclosed()))
    with pytest.raises(ValueError, match="generator_ must be"):
        pickle.loads(pickled).predict(["third"])


def test_parameters_of_the_estimator_do_not_reach_its_record(make):
    sampler = fitted(make, Enclosed())
    expected = sampler.predict(["new"])
    sampler.set_params(generator=make(Enclosed("other")), quality="self_consistency", k_max=1)
    sampler.memory_.clear()
    assert sampler.predict(["new"]) == expected


SERVICE = """
import os, pickle, random, sys, threading, warnings
warnings.simplefilter("ignore")
from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.caching import CachedGenerator, CachedScore
from sklearn_clm.generators import FunctionGenerator, Generation, OpenAIGenerator
from sklearn_clm.generators import TransformersGenerator
from sklearn_clm.policies import AnswerPolicy, ExitPolicy
from sklearn_clm.scoring import RougeL, SelfConsistency

def ask(prompt, seed):
    rng = random.Random(seed)
    text = rng.choice(["yes it is", "no, never"])
    return Generation(f"{text} {prompt}. And more so.", -rng.random(), 5)

async def ask_later(prompt, seed):
    return ask(prompt, seed)

def begins(reference, response):
    return response.startswith(reference)

plain, checkpoint = FunctionGenerator(ask), sys.argv[1]
stemmed = RougeL(use_stemmer=True)
KINDS = {
    "default": (plain, {}),
    "stems": (plain, {"similarity": stemmed, "quality": SelfConsistency(stemmed)}),
    "exit": (plain, {"policy": ExitPolicy()}),
    "answer": (plain, {"policy": AnswerPolicy()}),
    "cached": (CachedGenerator(plain, "draws"), {"similarity": CachedScore(RougeL(), "scores")}),
    "async": (FunctionGenerator(ask_later), {"verbose": 1, "n_jobs": 2}),
    "model": (TransformersGenerator(checkpoint, max_new_tokens=4), {}),
}
X = [f"prompt {i}" for i in range(60)]

def sampler(kind):
    generator, options = KINDS[kind]
    return ConformalSampler(
        generator, k_max=3, delta=0.2, epsilon=0.8, admission=begins, **options
    )

def selector(fitted):
    options = {"component_score": "support", "admission": begins}
    return ComponentSelector(fitted, alpha=0.9, delta=0.3, **options)

def of_request(name):
    if threading.current_thread() is not threading.main_thread():
        imported.append(name)

class Watching:
    def find_spec(self, name, path, target=None):
        of_request(name)

imported = []

def fit(*kinds):
    for kind in kinds:
        fitted = sampler(kind).fit(X, ["yes"] * 60)
        fitted.save_calibration(kind)
        if kind == "default":
            selector(fitted).fit(X, ["yes"] * 60).save_calibration("selector")
            with open("pickle", "wb") as file:
                pickle.dump(fitted, file)

def serve(how, *kinds):
    if how == "unpickle":
        with open("pickle", "rb") as file:
            serving = [pickle.load(file)]
    else:
        serving = [sampler(kind).load_calibration(kind) for kind in kinds]
    if how == "select":
        serving = [selector(serving[0]).load_calibration("selector")]
    sys.meta_path.insert(0, Watching())
    answers = []
    threads = [
        threading.Thread(target=lambda i, one: answers.append(one.predict([f"new {i}"])), args=pair)
        for pair in enumerate(serving * 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(threads)
    assert not imported, imported

failed = []
for call in sys.argv[2:]:
    # a child has imported what stands at the top of this file, and nothing else
    child = os.fork() if hasattr(os, "fork") else 0
    if child == 0:
        do, *given = call.split()
        (fit if do == "fit" else lambda *given: serve(do, *given))(*given)
        sys.exit()
    if os.waitpid(child, 0)[1] != 0:
        failed.append(call)
assert not failed, failed
"""

CALLS = (
    "fit default stems exit answer cached async model",  # the others begin with what it leaves
    "load default",
    "unpickle default",
    "select default",
    "load stems",
    "load cached",
    "load exit answer async",
    "load model",
)


def test_the_threads_of_first_requests_import_nothing(tmp_path, gpt2_path):
    """Two of them that import parts of one package may each wait for the other."""
    (tmp_path / "service.py").write_text(SERVICE)
    # without forks each call is a process of its own
    for calls in [CALLS] if hasattr(os, "fork") else [[call] for call in CALLS]:
        done = subprocess.run(
            [sys.executable, "service.py", gpt2_path, *calls],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("path", [None, "draws.sqlite"])
def test_a_child_of_a_fork_predicts_whatever_threads_were_doing(path, tmp_path):
    where = None if path is None else tmp_path / path
    sampler = fitted(lambda enclosed: CachedGenerator(function(enclosed), where), Enclosed())
    finished, may_read = threading.Event(), threading.Event()

    def read(reader):
        n_read = 0
        while not finished.is_set():
            may_read.wait()
            sampler.predict([f"reader {reader}, prompt {n_read}"])
            n_read += 1

    readers = [threading.Thread(target=read, args=(i,), daemon=True) for i in range(4)]
    for reader in readers:
        reader.start()
    try:
        statuses = []
        for k in range(40):
            may_read.set()
            time.sleep(0.02)  # all readers are on their way, and end it beside the child
            statuses.append(forked(partial(sampler.predict, [f"child {k}"]), may_read.clear))
    finally:
        finished.set()
        may_read.set()
        for reader in readers:
            reader.join()
    assert statuses == [0] * 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_fits_whatever_threads_were_doing(tmp_path):
    where = tmp_path / "draws.sqlite"
    finished = threading.Event()

    def fit():
        fitted(lambda enclosed: CachedGenerator(function(enclosed), where), Enclosed())

    def fit_on():
        while not finished.is_set():
            fit()

    threads = [threading.Thread(target=fit_on, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        statuses = [forked(fit) for _ in range(20)]
    finally:
        finished.set()
        for thread in threads:
            thread.join()
    assert statuses == [0] * 20


def forked(work, then=lambda: None):
    """The exit status of a child that works; None if it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions warn of such forks
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    then()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
