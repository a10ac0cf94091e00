"""Shares of empty sets and of used-up budgets: what cannot be is noticed, chance is not."""

import json
import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import fisher_exact, hypergeom

from sklearn_clm import ConformalSampler
from sklearn_clm._estimators._watch import is_impossible
from sklearn_clm.generators import draw_stream
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, Groups, ThresholdPolicy
from tests.estimators.test_precision import ANSWERS, PROMPTS, Reward, ShortAnswers

NEW = [f"new question {i}" for i in range(100)]
POLICY = ThresholdPolicy(set_score="max")


class Service:
    """A reward whose model may be another one some day, behind the same name."""

    key = "reward"
    factor = 1.0

    def __call__(self, prompt, generation):
        return self.factor * Reward.scores[generation.response]

    def fingerprint(self):
        return self.key


class Drifting(ShortAnswers):
    """A generator that may know nothing some day, behind the same name."""

    knows = True

    def fingerprint(self):
        return "drifting"

    def _answer(self, prompt, seed, draw):
        return super()._answer(prompt, seed, draw) if self.knows else ANSWERS[1 + draw % 3]


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setattr(Service, "factor", 1.0)
    return Service()


def fitted(service, **options):
    options = {"k_max": 6, "epsilon": 0.25, "delta": 0.1, "policy": POLICY, **options}
    sampler = ConformalSampler(Drifting(), quality=service, **options)
    return sampler.fit(PROMPTS, ["yes"] * 260)


def noticed(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if "chance does that" in str(one.message)]


@pytest.mark.parametrize("policy", [POLICY, ExitPolicy()], ids=repr)
def test_another_model_behind_the_name_is_noticed(service, monkeypatch, policy):
    sampler = fitted(service, policy=policy, random_state=3)
    assert not noticed(lambda: sampler.predict(NEW))
    again = pickle.loads(pickle.dumps(sampler))  # another process counts anew
    monkeypatch.setattr(Service, "factor", -0.01)
    found = noticed(lambda: again.predict(NEW))
    assert found
    tested = again.calibration_.rule.tested
    assert "of 100 new prompts " in found[0]
    assert f"of the {tested.prompts} that calibrated" in found[0]
    assert not noticed(lambda: again.predict(NEW)), "once is enough"


def test_another_calibration_is_counted_anew(service, monkeypatch):
    sampler = fitted(service)
    monkeypatch.setattr(Service, "factor", -0.01)
    found = noticed(lambda: sampler.predict(NEW))
    sampler.calibrate(sampler.calibration_data_)
    assert noticed(lambda: sampler.predict(NEW)) == found


def test_a_service_that_predicts_one_by_one_notices(service, monkeypatch):
    sampler = fitted(service)
    monkeypatch.setattr(Service, "factor", -0.01)
    found = noticed(lambda: [sampler.predict([prompt]) for prompt in NEW])
    assert found
    assert len(found) == len(set(found)) <= 2


class Memory(ShortAnswers):
    """A generator that knows by heart what it was trained on."""

    def fit(self, prompts, references):
        self.known_ = set(prompts)
        return self

    def _answer(self, prompt, seed, draw):
        if prompt in self.known_:
            return "yes"
        return "yes" if draw_stream(prompt, seed, draw).random() < 0.15 else "no"


def test_prompts_that_trained_the_generator_are_no_new_ones(service):
    sampler = ConformalSampler(Memory(), quality=service, k_max=6, epsilon=0.6, delta=0.1)
    prompts, sets = [f"question {i}" for i in range(800)], []
    assert not noticed(lambda: sets.extend(sampler.fit_transform(prompts, ["yes"] * 800)))
    trained = np.isin(prompts, list(sampler.generator_.known_))
    draws = np.array([one.n_samples for one in sets])
    assert draws[trained].mean() < 0.8 * draws[~trained].mean()


def test_copies_of_a_prompt_are_one(service, monkeypatch):
    sampler = fitted(service)
    monkeypatch.setattr(Service, "factor", -0.01)
    assert not noticed(lambda: sampler.predict(NEW[:1] * 100))
    assert not noticed(lambda: [sampler.predict(NEW[:1]) for _ in range(50)])
    repeated = fitted(service, random_state=0)
    copies = ConformalSampler(ShortAnswers(), quality=service, k_max=6, epsilon=0.9)
    copies.fit(PROMPTS[:60] * 4, ["yes"] * 240)
    assert copies.calibration_.rule.tested.prompts <= 40 < repeated.calibration_.rule.tested.prompts


def test_what_was_tested_is_in_the_file(service, tmp_path, monkeypatch):
    sampler, path = fitted(service), tmp_path / "calibration.json"
    sampler.save_calibration(path)
    tested = sampler.calibration_.rule.tested
    assert json.loads(path.read_text())["rules"][0]["tested"] == list(tested)
    data = sampler.calibration_data_
    rule = sampler.calibration_.rule
    members = rule.shown(data, "max")
    assert 0 <= tested.empty <= np.sum(~members.any(axis=1))
    loaded = ConformalSampler(
        Drifting(), quality=service, k_max=6, epsilon=0.25, delta=0.1, policy=POLICY
    ).load_calibration(path)
    assert loaded.calibration_.rule.tested == tested
    monkeypatch.setattr(Service, "factor", -0.01)
    assert noticed(lambda: loaded.predict(NEW))


def test_groups_have_shares_of_their_own(service, monkeypatch):
    groups = Groups(lambda prompt: "odd" if int(prompt.split()[-1]) % 2 else "even")
    sampler = fitted(service, groups=groups, epsilon=0.4)
    assert not noticed(lambda: sampler.predict(NEW))
    sampler = fitted(service, groups=groups, epsilon=0.4)
    monkeypatch.setattr(Service, "factor", -0.01)
    odd = [prompt for prompt in NEW if int(prompt.split()[-1]) % 2]
    found = noticed(lambda: sampler.predict(odd))
    assert found
    assert all("new prompts of group 'odd' " in one for one in found)


def test_escalated_prompts_are_called_so(service, monkeypatch):
    sampler = fitted(service, policy=AnswerPolicy(0.1, score="vote"))
    assert sampler.calibration_.certified
    assert not noticed(lambda: sampler.predict(NEW))
    sampler = pickle.loads(pickle.dumps(sampler))
    monkeypatch.setattr(Drifting, "knows", False)
    found = noticed(lambda: sampler.predict(NEW))
    assert any("got no answer" in one for one in found), found


def test_the_test_is_fishers():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, n_before = rng.integers(1, 300, 2)
        now, before = rng.integers(0, n + 1), rng.integers(0, n_before + 1)
        table = [[now, n - now], [before, n_before - before]]
        one_sided = [fisher_exact(table, side).pvalue for side in ("less", "greater")]
        assert is_impossible(now, n, before, n_before) == (2 * min(one_sided) < 1e-6)
    assert not is_impossible(3, 3, 0, 10)
    assert is_impossible(30, 30, 0, 100)


def test_chance_is_rarer_than_once_in_a_million():
    n, n_before = 200, 100
    # exactly, over all that can happen, whatever the number in both samples together
    for total in range(0, n + n_before + 1, 7):
        same = hypergeom(n + n_before, total, n)
        chance = 0.0
        for now in range(max(total - n_before, 0), min(total, n) + 1):
            if is_impossible(now, n, total - now, n_before):
                chance += same.pmf(now)
        assert chance <= 1e-6
