"""Exit policies and answers over generators of rising price."""

import json
import pickle

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration.exit_model import horizons
from sklearn_clm.calibration.exit_policy import ExitEntries
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.generators import CascadeGenerator, PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport, TradeOffDisplay
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, LazyJudging
from tests.calibration.tables import data_of
from tests.examples.loading import EXAMPLES
from tests.toy import toy_sampler

PARTS = {"quality": "self_consistency", "similarity": "exact_match"}


def answers_of(n, rng, n_draws=(10, 4)):
    """Answers 0 to 5 of a weak and a strong model, 0 is right: first draws in .38 and .71."""
    ease, tiers = rng.normal(size=n), []
    for k, skill, slope in zip(n_draws, (-0.75, 1.8), (1.4, 1.8)):
        right = 1 / (1 + np.exp(-(skill + slope * ease + 0.8 * rng.normal(size=n))))
        wrong = (1 - right)[:, np.newaxis] * rng.dirichlet(np.full(5, 0.6), n)
        below = np.cumsum(np.column_stack((right, wrong)), axis=1)[:, np.newaxis, :-1]
        tiers.append((rng.random((n, k, 1)) > below).sum(axis=2))
    return tiers


def cascade_of(tiers, prices=(1, 25)):
    prompts = [f"item {i}" for i in range(len(tiers[0]))]
    logs = [PrecomputedGenerator(prompts, one.astype(str).tolist()) for one in tiers]
    n_draws = [one.shape[1] for one in tiers]
    return prompts, CascadeGenerator(logs, n_draws=n_draws, prices=prices)


def fitted(n=300, epsilon=0.2, policy=None, seed=0, tiers=None, prices=(1, 25), **choices):
    tiers = answers_of(n + 400, np.random.default_rng(seed)) if tiers is None else tiers
    prompts, generator = cascade_of(tiers, prices)
    choices |= {"k_max": sum(generator.n_draws), "policy": policy or ExitPolicy()}
    choices = {**PARTS, **choices}
    sampler = toy_sampler(generator, epsilon=epsilon, random_state=seed, **choices)
    return sampler.fit(prompts[:n], ["0"] * n), prompts[n:]


def test_a_cascade_costs_half_of_the_dear_model_and_keeps_the_promise():
    price, missed = {"cascade": [], "dear": []}, []
    for seed in range(4):
        both = answers_of(700, np.random.default_rng(seed))
        for name, tiers, prices in (("cascade", both, (1, 25)), ("dear", both[1:], (25,))):
            sampler, prompts = fitted(seed=seed, tiers=tiers, prices=prices)
            sets = sampler.predict(prompts)
            assert sampler.calibration_.certified
            price[name].append(sampler.generator.tiers.price_of(sets.n_samples).mean())
            missed.append(np.mean(["0" not in one for one in sets]))
    assert np.mean(price["cascade"]) < 0.55 * np.mean(price["dear"])
    assert max(missed) <= binom.ppf(0.999, 400, 0.2) / 400


def test_of_real_systems_the_dear_one_is_asked_where_cheap_ones_do_not_suffice():
    # answers of FiD, GPT-3.5 and GPT-4 to questions of TriviaQA, and people's verdicts
    with (EXAMPLES / "evouna" / "trivia_qa.jsonl").open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    verdicts, tiers = {}, ([], [])
    for line in lines:
        said = [line["answer"], line["people"]], line["gpt35"], line["gpt4"]
        verdicts |= {(line["question"], answer): right for answer, right in said}
        tiers[0].append([answer for answer, _ in said[:2]])
        tiers[1].append([said[2][0]])
    questions = [line["question"] for line in lines]

    def alike(one, other):
        one, other = (set(text.lower().replace(".", "").split()) for text in (one, other))
        return len(one & other) / max(min(len(one), len(other)), 1)

    both = CascadeGenerator(
        [PrecomputedGenerator(questions, one) for one in tiers], n_draws=(2, 1), prices=(1, 25)
    )
    parts = {"quality": lambda question, answer: 1.0, "similarity": alike}
    parts |= {"admission": lambda question, answer: verdicts[question, answer]}
    sampler = toy_sampler(both, k_max=3, epsilon=0.14, policy=ExitPolicy(), **parts)
    calibrating, new = np.split(np.random.default_rng(0).permutation(len(questions)), [1000])
    asked = [questions[i] for i in calibrating]
    sets = sampler.fit(asked, asked).predict([questions[i] for i in new])
    assert sampler.calibration_.certified
    assert both.tiers.price_of(sets.n_samples).mean() < 0.4 * 25
    missed = [not any(verdicts[questions[i], one] for one in set_) for i, set_ in zip(new, sets)]
    assert sum(missed) <= binom.ppf(0.999, len(new), 0.14)


@pytest.mark.parametrize("policy", [ExitPolicy(), AnswerPolicy(0.15)], ids=["exit", "answer"])
def test_one_rule_however_it_is_used(policy, tmp_path):
    sampler, prompts = fitted(policy=policy)
    lazy, _ = fitted(policy=policy, judging=LazyJudging(optimization_judgements=None))
    assert lazy.n_draws_ < sampler.n_draws_
    assert lazy.calibration_.rule.level == sampler.calibration_.rule.level
    sets = sampler.predict(prompts[:80])
    assert [sampler.predict([prompt])[0] for prompt in prompts[:80]] == list(sets)
    sampler.save_calibration(path := tmp_path / "calibration.json")
    loaded = ConformalSampler(**sampler.get_params(deep=False)).load_calibration(path)
    assert loaded.predict(prompts[:80]).responses == sets.responses
    assert list(pickle.loads(pickle.dumps(sampler)).predict(prompts[:80])) == list(sets)
    assert loaded.calibration_.rule.costs_of_tiers() == sampler.calibration_.rule.costs_of_tiers()


def test_sets_are_nested_over_tiers():
    sampler, _ = fitted()
    model, data = sampler.calibration_.rule.model, sampler.calibration_data_
    entries = ExitEntries(Table(data), np.arange(data.n_prompts), model)
    assert np.all(np.diff(entries.exits, axis=1) <= 0)
    draws = [1 + np.sum(entries.exits[:, :-1] >= level, axis=1) for level in (0.1, 0.3)]
    assert np.all(draws[0] >= draws[1])
    assert np.any(draws[1] < draws[0])


def test_prices_shape_the_policy_and_stand_in_the_report():
    tiers = answers_of(700, np.random.default_rng(0))
    cheap, dear = (fitted(tiers=tiers, prices=prices)[0] for prices in ((1, 1), (1, 50)))
    assert dear.calibration_.rule.costs[1] < cheap.calibration_.rule.costs[1]
    rows = {name: value for name, value, _ in dear.calibration_.rule.costs_of_tiers()}
    draws = dear.calibration_.rule.outcome.draws
    assert float(rows["price"]) == pytest.approx(
        np.mean(np.minimum(draws, 10) + 50 * np.maximum(draws - 10, 0)), rel=0.01
    )
    assert "draws of generator 2" in str(CalibrationReport.from_estimator(dear))


def test_prices_that_are_set_later_count_in_the_next_calibration():
    sampler, _ = fitted()
    sampler.set_params(generator__prices=(1, 1)).calibrate(sampler.calibration_data_)
    assert sampler.calibration_.rule.model.tiers.prices == (1.0, 1.0)


def test_horizons_end_at_the_first_draw_left_of_each_tier():
    stops, prices = horizons(np.arange(1, 6), 5, 4, Tiers((3, 2), (1.0, 10.0)))
    assert stops[:, :4].tolist() == [[2, 3, 4, 5], [4, 4, 4, 5]]
    expected = [[0.1, 0.1, np.inf, np.inf, np.inf], [1.2, 1.1, 1.0, 1.0, np.inf]]
    assert prices == pytest.approx(np.array(expected))


def test_bare_arrays_are_calibrated_with_the_prices_of_the_generator():
    answers = np.hstack(answers_of(300, np.random.default_rng(0)))
    _, generator = cascade_of(answers_of(1, np.random.default_rng(0)))
    sampler = ConformalSampler(generator, k_max=14, policy=ExitPolicy(), random_state=0, **PARTS)
    assert (
        sampler.calibrate(data_of(answers, answers == 0)).calibration_.rule.model.tiers
        == generator.tiers
    )


def test_a_display_compares_prices_at_the_same_promise():
    pytest.importorskip("matplotlib")
    display = TradeOffDisplay.from_estimator(fitted(quality=lambda prompt, draw: 0.5)[0])
    assert list(display.curves) == ["cascade", "generator 1 alone", "generator 2 alone"]
    cascade, cheap, dear = display.at(0.2).values()
    assert cascade < 0.55 * dear
    assert np.isnan(cheap)
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert any("generator 1 alone, nothing certified at" in label for label in labels)
    # the qualities of a later generator's draws are those after draws of the earlier one
    curves = TradeOffDisplay.from_estimator(fitted()[0]).curves
    assert list(curves) == ["cascade", "generator 1 alone"]


def test_a_display_of_the_share_answered():
    pytest.importorskip("matplotlib")
    sampler, _ = fitted(policy=AnswerPolicy(0.15))
    claim = sampler.calibration_.claim
    display = TradeOffDisplay.from_estimator(sampler)
    assert display.at(0.15) == {"answered": claim.answered}
    # levels reach from near 0 to where all prompts may be answered by their first draws
    assert display.levels[0] < 0.15 < display.levels[-1]
    assert display.at(0.15)["answered"] <= display.curves["answered"][-1]
    assert sampler.policy.alpha == 0.15
    assert sampler.calibration_.claim is claim
    sampler.set_params(policy=None).calibrate(sampler.calibration_data_)
    with pytest.raises(ValueError, match="ExitPolicy"):
        TradeOffDisplay.from_estimator(sampler)
