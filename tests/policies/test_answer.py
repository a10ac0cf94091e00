"""One answer where it is likely to be right, with a guarantee on the answers."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration.answer import AnswerSteps, LearntAnswers
from sklearn_clm.calibration.table import Table
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import AnswerPolicy, CovariateShift, Groups, Losses, ThresholdPolicy
from sklearn_clm.policies._classifiers import degree_two
from tests.calibration.tables import data_of

NOBODY = PrecomputedGenerator(["q"], [["a"]])


PARTS = {"quality": "self_consistency", "similarity": "exact_match", "random_state": 0}


def drawn(rng, n, k):
    """Answers 0 to 5 of n prompts, of which 0 is right with a probability of their own."""
    ease = rng.beta(1.3, 0.7, (n, 1))
    chances = np.hstack((ease, (1 - ease) * rng.dirichlet(np.full(5, 0.6), n)))
    below = np.cumsum(chances, axis=1)[:, np.newaxis, :-1]
    return (rng.random((n, k, 1)) > below).sum(axis=2)


def calibrated(data, alpha, seed):
    parts = {**PARTS, "random_state": seed}
    sampler = ConformalSampler(NOBODY, k_max=data.k_max, policy=AnswerPolicy(alpha), **parts)
    return sampler.calibrate(data).calibration_


def prompts_with_draws(n, seed=0, k=10):
    answers = drawn(np.random.default_rng(seed), n, k)
    prompts = [f"item {i}" for i in range(n)]
    return prompts, PrecomputedGenerator(prompts, answers.astype(str).tolist())


LEARNT = {"score": "learnt", "draw_price": 0.05}


def fitted(n=300, alpha=0.15, policy=None, **choices):
    prompts, generator = prompts_with_draws(n + 200)
    policy = policy or AnswerPolicy(alpha, **LEARNT)
    sampler = ConformalSampler(generator, k_max=10, policy=policy, **PARTS, **choices)
    return sampler.fit(prompts[:n], ["0"] * n), prompts


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_many_are_answered_where_answers_repeat():
    shares = []
    for seed in range(8):
        answers = drawn(np.random.default_rng(seed), 300, 20)
        shares.append(calibrated(data_of(answers, answers == 0), 0.15, seed).claim.answered or 0.0)
    assert np.mean(shares) >= 0.7


def test_answers_keep_the_promise_and_stop_early():
    sampler, prompts = fitted()
    sets = sampler.predict(prompts[300:])
    answered = sets[sets.answered]
    assert set(answered.sizes) == {1}
    assert set(sets.escalated.sizes) == {0}
    assert len(answered) + len(sets.escalated) == 200
    assert all(str(one).endswith(" draws, answered)") for one in answered)
    assert all(str(one).endswith(" draws, escalated)") for one in sets.escalated)
    wrong = sum("0" not in one for one in answered)
    assert wrong <= binom.ppf(0.999, len(answered), 0.15)
    assert answered.n_samples.mean() < 10
    assert set(sets.escalated.n_samples) <= set(range(5, 11))
    claim, report = sampler.calibration_.claim, CalibrationReport.from_estimator(sampler)
    assert 0.1 < claim.answered < 1
    assert "is right with probability at least 85 %" in claim.sentence()
    assert f"About {100 * claim.answered:.3g} % of the prompts are answered" in str(report)
    belief = "least chance to be right, by the model's belief (no promise), of an answer after"
    assert f"{belief} 10 draws" in str(report)
    assert sampler.score(prompts[300:], ["0"] * 200) == pytest.approx(sets.answered.mean())


def test_lazily_only_answers_are_judged():
    everything, prompts = fitted()
    lazy, _ = fitted(judging="lazy")
    assert lazy.n_judgements_ < 0.5 * everything.n_judgements_
    assert lazy.n_draws_ < everything.n_draws_
    wrong = sum("0" not in one for one in lazy.predict(prompts[300:]) if len(one))
    assert wrong <= binom.ppf(0.999, 200, 0.15)


def test_groups_and_shift():
    sampler, prompts = fitted(alpha=0.25, groups=Groups(by=lambda prompt: int(prompt[5:]) % 2))
    sets = sampler.predict(prompts[300:])
    assert {one.group for one in sets[sets.answered]} == {0, 1}
    for rule in sampler.calibration_.by_group.values():
        found = rule.outcome
        assert found.n_errors <= found.n_counted == found.sizes.sum()
    kept = CovariateShift(lambda prompt: 1 + int(prompt[5:]) % 2, weight_bound=2.0)
    shifted, _ = fitted(shift=kept)
    assert shifted.shift_.n_kept < 300
    assert shifted.calibration_.claim.shifted


def test_null_escalates_all():
    with pytest.warns(NullCalibrationWarning, match="alpha=0.001") as caught:
        sampler, prompts = fitted(60, alpha=0.001)
    sets = sampler.predict(prompts[60:70])
    assert not sets.guaranteed
    assert not sets.answered.any()
    assert len(sets.escalated) == 10
    assert {len(one.accepted) for one in sets} == {10}

    # warning, report and sets say the same
    sentence = sampler.calibration_.claim.sentence()
    assert "predict escalates each prompt" in sentence
    report = CalibrationReport.from_estimator(sampler).to_markdown()
    texts = [str(caught[0].message), report, str(sets), sets.to_html()]
    assert all(sentence in text and "returns all" not in text for text in texts)
    assert sets[0].to_dict()["guarantee"] == sentence
    assert "escalated; no guarantee" in str(sets[0])
    assert "escalated; no guarantee" in sets[0].to_html()


def test_files(tmp_path):
    sampler, prompts = fitted()
    path, X = tmp_path / "calibration.json", np.random.default_rng(0).random((50, 6))
    for classifier in (degree_two(0.01), LogisticRegression()):
        classifier.fit(X, X[:, 0] > 0.5)
        model = replace(sampler.calibration_.rule.model, text_classifier=classifier)
        rules = {None: replace(sampler.calibration_.rule, model=model)}
        sampler.calibration_ = replace(sampler.calibration_, rules=rules)
        sampler.save_calibration(path)
        loaded = clone(sampler).load_calibration(path)
        assert loaded.predict(prompts[300:400]) == sampler.predict(prompts[300:400])
        assert loaded.calibration_.digest == sampler.calibration_.digest
    for other in (AnswerPolicy(0.2), ThresholdPolicy()):
        with pytest.raises(ValueError, match=r"alpha|policy"):
            clone(sampler).set_params(policy=other).load_calibration(path)


def test_what_does_not_go_together_is_refused():
    sampler, prompts = fitted()
    sampler.set_params(losses=Losses({"size": lambda *set_: 0.0}, {"size": 0.5}))
    with pytest.raises(ValueError, match="policy"):
        sampler.fit(prompts[:300], ["0"] * 300)
    with pytest.raises(ValueError, match="k_max"):
        sampler.set_params(k_max=[2, 4], losses=None).fit(prompts[:300], ["0"] * 300)


def test_hopeless_prompts_are_drawn_from_no_more():
    sampler, prompts = fitted()
    rule = sampler.calibration_.rule
    assert rule.cut > 0
    sets = sampler.predict(prompts[300:])
    early = [one for one in sets.escalated if one.n_samples < 10]
    assert early
    assert all(one.stopped and not len(one) and one.n_samples >= 5 for one in early)
    data = sampler.calibration_data_
    one = np.array([rule.level])
    answers = LearntAnswers(rule.model, rule.patience, 0, one, one, one, cut=rule.cut)
    path = AnswerSteps(Table(data), np.arange(300), answers)
    assert np.array_equal(sampler.predict(prompts[:300]).n_samples, path.draws(0))


def test_a_path_may_be_learnt_without_labels():
    prompts, generator = prompts_with_draws(700)
    sampler = ConformalSampler(generator, k_max=10, policy=AnswerPolicy(0.15), **PARTS)
    policy = AnswerPolicy(0.15, score="learnt").fit(sampler.collect(prompts[:200], None))
    sampler.set_params(policy=policy).fit(prompts[200:400], ["0"] * 200)
    record = sampler.calibration_
    assert record.rule.outcome.n_optimization == 0
    assert record.rule.outcome.n_calibration == 200
    assert clone(policy).learnt is policy.learnt
    answered = sampler.predict(prompts[400:])
    answered = answered[answered.answered]
    assert len(answered) > 60
    assert sum("0" not in one for one in answered) <= binom.ppf(0.999, len(answered), 0.15)
    with pytest.raises(ValueError, match="policy"):
        sampler.fit(prompts[100:300], ["0"] * 200)


def voting(n=300, k=6, **choices):
    prompts, generator = prompts_with_draws(n + 200, k=k)
    policy = AnswerPolicy(0.15, score="vote", **choices)
    sampler = ConformalSampler(generator, k_max=k, policy=policy, **PARTS)
    return sampler.fit(prompts[:n], ["0"] * n), prompts


def most_frequent(draws, level):
    """The answer of a vote by all draws; None where it does not reach the level."""
    counts = {text: draws.count(text) for text in draws}  # of equals the first
    ordered = sorted(counts.values(), reverse=True)
    score = ordered[0] - (ordered[1] if len(ordered) > 1 else 0) / 8
    return max(counts, key=counts.get) if score >= level else None


def test_all_prompts_calibrate_a_vote():
    sampler, prompts = voting()
    rule = sampler.calibration_.rule
    assert rule.outcome.n_calibration == 300
    assert rule.outcome.n_optimization == 0
    answered = sampler.predict(prompts[300:])
    answered = answered[answered.answered]
    assert len(answered) > 100
    assert sum("0" not in one for one in answered) <= binom.ppf(0.999, len(answered), 0.15)
    assert "of 6 votes" in str(CalibrationReport.from_estimator(sampler))


def test_a_vote_stops_as_soon_as_no_draw_can_change_it():
    sampler, prompts = voting()
    level, draws_of = sampler.calibration_.rule.level, sampler.generator_.sample
    sets, every = sampler.predict(prompts[300:]), draws_of(prompts[300:], 6)
    assert sets.n_samples.mean() < 5.5
    others = [str(answer) for answer in range(6)] + ["none", "nor this"]
    for one, draws in zip(sets, every, strict=True):
        texts = [draw.response for draw in draws]
        assert (one.responses[0] if len(one) else None) == most_frequent(texts, level)
        made, left = texts[: one.n_samples], 6 - one.n_samples
        # not a draw too many: one draw before, two ways to go on differ
        ways = {
            most_frequent([*made[:-1], *more], level) for more in product(others, repeat=left + 1)
        }
        assert len(ways) > 1 or left == 5


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_near_copies_vote_together():
    rng = np.random.default_rng(0)
    meant = drawn(rng, 300, 6)
    data = data_of(meant * 10 + rng.integers(0, 10, meant.shape), meant == 0)
    alike = meant[:, :, np.newaxis] == meant[:, np.newaxis, :]
    data.similarity[:] = np.tril(alike, -1)
    shares = []
    for same_text in (None, 0.5):
        policy = AnswerPolicy(0.2, score="vote", same_text=same_text)
        sampler = ConformalSampler(NOBODY, k_max=6, policy=policy, **PARTS)
        shares.append(sampler.calibrate(data).calibration_.claim.answered or 0.0)
    assert shares[1] > shares[0] + 0.3


@pytest.mark.parametrize("score", ["vote", "quality"])
def test_plain_levels_in_files(score, tmp_path):
    prompts, generator = prompts_with_draws(500, k=6)
    policy = AnswerPolicy(0.2, score=score)
    sampler = ConformalSampler(generator, k_max=6, policy=policy, **PARTS)
    sampler.fit(prompts[:300], ["0"] * 300)
    sampler.save_calibration(tmp_path / "calibration.json")
    loaded = clone(sampler).load_calibration(tmp_path / "calibration.json")
    assert loaded.predict(prompts[300:]) == sampler.predict(prompts[300:])
    assert loaded.calibration_.digest == sampler.calibration_.digest


def test_a_file_agrees_by_the_level_of_its_promise(tmp_path):
    path = tmp_path / "calibration.json"
    sampler, prompts = fitted(policy=AnswerPolicy(0.2, score="vote"))
    sampler.set_params(epsilon=0.4).calibrate(sampler.calibration_data_).save_calibration(path)
    loaded = clone(sampler).set_params(epsilon=0.1).load_calibration(path)
    assert loaded.predict(prompts[300:320]) == sampler.predict(prompts[300:320])
    assert loaded.calibration_.digest == sampler.calibration_.digest
    with pytest.raises(ValueError, match=r"another alpha: 0\.2 there, 0\.1 here"):
        clone(sampler).set_params(policy__alpha=0.1).load_calibration(path)


def test_lazily_a_vote_has_the_same_level():
    everything, prompts = voting()
    lazy = clone(everything).set_params(judging="lazy")
    lazy.fit(prompts[:300], ["0"] * 300)
    assert lazy.calibration_.rule.level == everything.calibration_.rule.level
    assert lazy.n_judgements_ < everything.n_judgements_


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn_clm.NullCalibrationWarning")
@pytest.mark.parametrize("judging", ["all", "lazy"])
@pytest.mark.parametrize("seed", range(3))
def test_a_vote_and_what_is_learnt_share_delta_and_what_answers_more_is_used(seed, judging):
    prompts, generator = prompts_with_draws(300, seed=seed, k=6)
    references = ["0"] * 300

    def rule_of(score, delta):
        policy = AnswerPolicy(0.2, score=score, draw_price=0.0)
        parts = {**PARTS, "delta": delta, "judging": judging, "random_state": seed}
        sampler = ConformalSampler(generator, k_max=6, policy=policy, **parts)
        return sampler.fit(prompts, references).calibration_.rule

    both = rule_of("auto", 0.1)
    alone = [rule_of("vote", 0.025), rule_of("learnt", 0.075)]
    certified = [one for one in alone if one.certified]
    assert certified
    best = max(certified, key=lambda one: one.outcome.size)
    assert (both.kind, both.level) == (best.kind, best.level)
    assert both.outcome.size == best.outcome.size
    assert both.claim.delta == 0.1
    n_tested = 300 if best is alone[0] else 264
    assert both.outcome.n_calibration == n_tested
