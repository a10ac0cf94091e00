"""Cheap and dear generators as one stream of draws."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import (
    CascadeGenerator,
    DrawQueue,
    FunctionGenerator,
    ParallelGenerator,
    PrecomputedGenerator,
    check_keyed,
)
from sklearn_clm.generators.base import answer_queue
from sklearn_clm.generators.identity import fingerprint, is_trainable
from sklearn_clm.policies import ExitPolicy
from tests.toy import Keyed, ToyModel, Trained, Unscored, drawn, questions, toy_sampler

CHEAP, DEAR = ToyModel(skill=0.4), ToyModel(skill=0.9)
PROMPTS, REFERENCES = questions(60)


def cascade(*generators, n_draws=(5, 3), prices=(1, 25)):
    return CascadeGenerator(generators or (CHEAP, DEAR), n_draws=n_draws, prices=prices)


def logs(model, n):
    return PrecomputedGenerator(PROMPTS, model.sample(PROMPTS, n))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model,
        CachedGenerator,
        lambda model: logs(model, 5),
        lambda model: ParallelGenerator(model, n_jobs=1, chunk_size=7),
        lambda model: FunctionGenerator(lambda prompt, seed: f"{prompt} {seed}", max_concurrency=2),
        lambda model: Keyed(),
    ],
    ids=["plain", "cached", "logs", "parallel", "function", "queue"],
)
def test_draw_j_is_draw_j_minus_offset_of_its_tier(wrap):
    cheap, dear = wrap(CHEAP), wrap(DEAR)
    stream = cascade(cheap, dear)
    rows = stream.sample(PROMPTS, 8, seed=3)
    firsts, seconds = cheap.sample(PROMPTS, 5, seed=3), dear.sample(PROMPTS, 3, seed=3)
    assert rows == [first + second for first, second in zip(firsts, seconds)]
    assert stream.sample(PROMPTS[:9], 4, start=3, seed=3) == [row[3:7] for row in rows[:9]]
    assert check_keyed(stream, PROMPTS[0], n_draws=8)


def test_a_dear_tier_is_asked_only_for_what_is_wanted(log):
    stream = cascade(CHEAP, ToyModel(skill=0.9, log=log))
    wanted = dict(enumerate([1, 5, 6, 8, 7]))
    arrived = {i: [] for i in wanted}

    def decide(new):
        for i, draws in new:
            arrived[i] += draws
        return [wanted[i] if len(arrived[i]) < wanted[i] else 0 for i, _ in new]

    answer_queue(stream, DrawQueue(PROMPTS[:5], 8, decide=decide))
    assert {i: len(draws) for i, draws in arrived.items()} == wanted
    assert len(drawn(log)) == 1 + 3 + 2
    assert [one.response for one in arrived[3]] == [
        one.response for one in stream.sample([PROMPTS[3]], 8)[0]
    ]


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_a_sampler_draws_lazily_from_a_cascade(log, judging):
    stream = cascade(CHEAP, ToyModel(skill=0.9, log=log))
    sampler = toy_sampler(stream, k_max=8, epsilon=0.35, policy=ExitPolicy(), judging=judging)
    prompts, references = questions(200)
    sampler.fit(prompts[:150], references[:150])
    n_fit = len(drawn(log))
    assert n_fit == 150 * 3 if judging == "all" else n_fit < 150 * 3
    sets = sampler.predict(prompts[150:])
    assert len(drawn(log)) - n_fit == np.maximum(sets.n_samples - 5, 0).sum()


def test_trained_generators_are_fitted_on_a_part_of_their_own():
    stream = cascade(CHEAP, Trained())
    assert is_trainable(stream)
    assert not is_trainable(cascade())
    before = fingerprint(stream)
    sampler = toy_sampler(stream, k_max=8, epsilon=0.5).fit(PROMPTS, REFERENCES)
    assert not hasattr(stream, "generators_")
    assert sampler.calibration_data_.n_prompts == 30
    assert fingerprint(sampler.generator_) != before
    copied = pickle.loads(pickle.dumps(sampler.generator_))
    assert fingerprint(copied) == fingerprint(sampler.generator_)


def test_what_the_draws_depend_on_is_the_fingerprint():
    known = fingerprint(cascade())
    assert fingerprint(clone(cascade())) == known == fingerprint(cascade(prices=(1, 3)))
    assert known != fingerprint(cascade(n_draws=(3, 5))) != fingerprint(cascade(DEAR, CHEAP))


def test_traits_are_those_of_all_generators():
    assert cascade().gives_logprobs
    assert not cascade(CHEAP, Unscored()).gives_logprobs
    assert CachedGenerator(cascade()).tiers == cascade().tiers
    assert CHEAP.tiers is None
    assert cascade().tiers.price_of([0, 5, 7]).tolist() == [0, 5, 55]


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"n_draws": (5,)}, ValueError, "n_draws"),
        ({"n_draws": (5, 0)}, ValueError, "n_draws"),
        ({"n_draws": (5, 2.5)}, TypeError, "n_draws"),
        ({"prices": (1, 2, 3)}, ValueError, "prices"),
        ({"prices": (0, 2)}, ValueError, "prices"),
        ({"prices": (1, float("nan"))}, ValueError, "prices"),
        ({"n_draws": 8}, ValueError, "n_draws"),
        ({"prices": None}, ValueError, "prices"),
        ({"generators": []}, TypeError, "generators"),
        ({"generators": CHEAP}, TypeError, "generators"),
        ({"n_draws": (2, 2)}, ValueError, "k_max"),
    ],
)
def test_bad_tiers_are_named_before_anything_is_drawn(log, changes, error, named):
    stream = cascade(ToyModel(skill=0.3, log=log), DEAR).set_params(**changes)
    for judging in ("all", "lazy"):
        sampler = toy_sampler(stream, k_max=8, policy=ExitPolicy(), judging=judging)
        with pytest.raises(error, match=named):
            sampler.fit(PROMPTS, REFERENCES)
    assert not log.exists()


def test_more_draws_than_there_are_is_refused():
    with pytest.raises(ValueError, match="k_max"):
        cascade().sample(PROMPTS, 9)
