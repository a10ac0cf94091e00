"""What a request costs, and what it needs, beyond its draws."""

import pickle

import pytest

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import CachedGenerator, CachedScore
from sklearn_clm.generators import CascadeGenerator, FunctionGenerator

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
