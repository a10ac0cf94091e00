"""Several threads at once, workers of several kinds, many prompts, and interruptions."""

import contextlib
import functools
import gc
import operator
import sys
import threading
import tracemalloc

import joblib
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ComponentSelector
from sklearn_clm.caching import CachedAdmission, CachedGenerator, CachedScore
from sklearn_clm.generators import BaseGenerator, Generation, PrecomputedGenerator
from sklearn_clm.policies import ThresholdPolicy
from sklearn_clm.scoring import likelihood, rouge_l
from tests.toy import ToyModel, drawn, n_stored, questions, together, toy_sampler

X, Y = questions(60)
NEW, NEW_Y = questions(48, first=500)


sampler = functools.partial(toy_sampler, k_max=6, epsilon=0.5)


def cached(folder):
    return {"generator": CachedGenerator(ToyModel(), folder / "draws.sqlite")}


def cached_scores(folder):
    return {
        "quality": CachedScore(likelihood, folder / "scores.sqlite"),
        "similarity": CachedScore(rouge_l, folder / "scores.sqlite"),
        "admission": CachedAdmission("exact_match", folder / "scores.sqlite"),
    }


def precomputed(folder):
    draws = ToyModel().sample([*X, *NEW], 6, seed=0)
    return {"generator": PrecomputedGenerator([*X, *NEW], draws)}


PARTS = {
    "plain": lambda folder: {},
    "cached draws": cached,
    "cached draws in memory": lambda folder: {"generator": CachedGenerator(ToyModel())},
    "cached scores": cached_scores,
    "precomputed": precomputed,
    "self-consistency": lambda folder: {
        "quality": "self_consistency",
        "policy": ThresholdPolicy(set_score="sum"),
    },
    "equal or not": lambda folder: {"similarity": "exact_match"},
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_threads_predict_and_select_what_one_does(parts, tmp_path):
    fitted, expected = (sampler(**parts(tmp_path)).fit(X, Y) for _ in range(2))
    slices = [NEW[first : first + 16] for first in range(0, 48, 8)]
    answers = together([functools.partial(fitted.predict, part) for part in slices])
    assert answers == [expected.predict(part) for part in slices]
    options = {"alpha": 0.7, "component_score": "support", "admission": "exact_match"}
    selecting, expected = (
        ComponentSelector(one, **options).fit(X, Y) for one in (fitted, expected)
    )
    answers = together([functools.partial(selecting.predict, part) for part in slices])
    assert answers == [expected.predict(part) for part in slices]


def test_readers_never_meet_an_estimator_without_its_calibration(tmp_path):
    """A service goes on while it is calibrated again, or loads another calibration."""
    fitted = sampler().fit(X, Y)
    data, path = fitted.calibration_data_, tmp_path / "calibration.json"
    fitted.save_calibration(path)
    selecting = ComponentSelector(fitted, alpha=0.7, component_score="support").fit(X, Y)
    components = selecting.calibration_data_
    finished = threading.Event()

    def read(predict):
        n_read = 0
        while not finished.is_set():
            predict(NEW[:1])
            n_read += 1
        return n_read

    def write():
        try:
            for _ in range(40):
                fitted.load_calibration(path)
                fitted.calibrate(data)
                selecting.calibrate(components)
        finally:
            finished.set()
        return 1

    def load():
        return read(lambda prompts: fitted.load_calibration(path))

    readers = [fitted.predict, selecting.predict] * 2
    with preempting():
        calls = [write, load, load, *(functools.partial(read, one) for one in readers)]
        assert min(together(calls)) > 0


@contextlib.contextmanager
def preempting():
    """Threads take turns after some microseconds, so that few orders of steps are missed."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def test_threads_fit_clones_on_one_cache(tmp_path):
    """Each draw is made for one of the threads, or, where two ask at once, kept for both."""
    log, path = tmp_path / "draws", tmp_path / "cache.sqlite"
    new = [sampler(CachedGenerator(ToyModel(log=str(log)), path)) for _ in range(4)]
    fitted = together([functools.partial(one.fit, X, Y) for one in new])
    for one in fitted:
        draws = ToyModel().sample(X, 6, seed=0)
        wanted = [[likelihood(None, draw) for draw in row] for row in draws]
        assert one.calibration_data_.quality.tolist() == wanted
    assert set(drawn(log)) == {("0", str(j), prompt) for prompt in X for j in range(6)}
    assert n_stored(new[0].generator) == 60 * 6


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_change_nothing(backend):
    equal, likely = operator.eq, functools.partial(likelihood)
    params = {"quality": likely, "similarity": equal, "admission": equal}
    alone = sampler(**params).fit(X, Y)
    with joblib.parallel_config(backend=backend):
        spread = sampler(**params, n_jobs=2).fit(X, Y)
        assert spread.lambda_hat_ == alone.lambda_hat_
        assert spread.calibration_data_.quality.tolist() == alone.calibration_data_.quality.tolist()
        assert spread.predict(NEW[:12]) == alone.predict(NEW[:12])
        assert spread.score(NEW[:12], Y[:12]) == alone.score(NEW[:12], Y[:12])


class Brief(BaseGenerator):
    """Short answers, quickly."""

    chunk_size = 1000

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        return [
            [Generation(f"{(int(p.split()[1]) + j) % 7}", -0.1, 1) for j in draws] for p in prompts
        ]


def test_many_prompts_leave_nothing_behind():
    """Up to 2 kB a draw while sets are made, 1 kB in them and in memory, nothing when both go."""
    fitted = sampler(Brief(), k_max=3, similarity="exact_match", epsilon=0.9)
    fitted.fit(X, ["3"] * 60)
    prompts = [f"prompt {i}" for i in range(1_500)]
    fitted.predict(prompts[:100])
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        sets = fitted.predict(prompts)
        held, peak = tracemalloc.get_traced_memory()
        assert (held - before) / sets.n_samples.sum() < 1_000
        assert (peak - before) / sets.n_samples.sum() < 2_000
        del sets
        fitted.memory_.clear()
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
        assert left - before < 30_000
    finally:
        tracemalloc.stop()


class Interrupted(ToyModel):
    """Someone presses Ctrl-C, or the line goes dead, while prompt 25 is drawn, once."""

    chunk_size = 8
    error = None

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        if "item 25" in prompts and Interrupted.error is not None:
            error, Interrupted.error = Interrupted.error, None
            raise error
        return super().sample(prompts, n_samples, start=start, seed=seed)


@pytest.fixture
def interrupted(tmp_path):
    Interrupted.error = KeyboardInterrupt
    return Interrupted(log=str(tmp_path / "draws"))


@pytest.mark.parametrize("make", [sampler, lambda g: ComponentSelector(sampler(g), alpha=0.7)])
def test_an_interrupted_collection_goes_on_from_the_cache(make, interrupted, tmp_path):
    cached = CachedGenerator(interrupted, tmp_path / "cache.sqlite", key="toy")
    new = make(cached)
    with pytest.raises(KeyboardInterrupt):
        new.fit(X, Y)
    with pytest.raises(NotFittedError):
        check_is_fitted(new)
    assert not [name for name in vars(new) if name.endswith("_")]
    assert 4 * 2 < n_stored(cached) == len(drawn(tmp_path / "draws"))
    # another process would do the same
    other = make(CachedGenerator(interrupted, tmp_path / "cache.sqlite", key="toy"))
    check_is_fitted(other.fit(X, Y))
    log = drawn(tmp_path / "draws")
    assert len(log) == len(set(log)) == 60 * 6
    check_is_fitted(new.fit(X, Y))
    assert len(drawn(tmp_path / "draws")) == 60 * 6


@pytest.mark.parametrize("error", [KeyboardInterrupt, ConnectionError])
def test_an_interrupted_collection_goes_on_without_a_cache(interrupted, error, tmp_path):
    Interrupted.error = error
    new = sampler(interrupted)
    with pytest.raises(error):
        new.fit(X, Y)
    assert len(drawn(tmp_path / "draws")) == 4 * 2 + 16 * 6
    with pytest.raises(NotFittedError):
        check_is_fitted(new)
    new.fit(X, Y)
    log = drawn(tmp_path / "draws")
    assert len(log) == len(set(log)) == 60 * 6
    assert new.lambda_hat_ == sampler().fit(X, Y).lambda_hat_


def test_an_interrupted_prediction_and_an_interrupted_judge(interrupted, tmp_path):
    asked = []

    def judge(reference, response):
        asked.append((reference, response))
        if len(asked) == 100:
            raise KeyboardInterrupt
        return reference == response

    kept = CachedAdmission(judge, tmp_path / "verdicts.sqlite", key="judge")
    new = sampler(admission=kept)
    with pytest.raises(KeyboardInterrupt):
        new.fit(X, Y)
    with pytest.raises(NotFittedError):
        check_is_fitted(new)
    fitted = new.fit(X, Y)
    assert len(asked) - 1 == len(set(asked))

    fitted = sampler(interrupted).fit(NEW, NEW_Y)
    with pytest.raises(KeyboardInterrupt):
        fitted.predict(X)
    assert fitted.predict(X) == sampler().fit(NEW, NEW_Y).predict(X)
