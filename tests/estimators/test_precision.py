"""Scores that are not the same number twice: decisions stay, or the score is refused by name."""

import warnings

import numpy as np
import pytest

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm._estimators._precision import Noise, check_precision
from sklearn_clm.calibration import CalibrationData, Claim, Configuration
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.generators import BaseGenerator, Generation, draw_stream
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, Groups, ThresholdPolicy
from sklearn_clm.policies._thresholds import ThresholdRule

ANSWERS = ("yes", "no", "perhaps", "never")
PROMPTS = [f"question {i}" for i in range(260)]
NEW = [f"new question {i}" for i in range(60)]
POLICIES = [
    ThresholdPolicy(),
    ThresholdPolicy(set_score="sum"),
    ExitPolicy(),
    AnswerPolicy(0.3, score="learnt"),
]


class ShortAnswers(BaseGenerator):
    """The right answer is always "yes"; hard questions find it less often."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        return [[Generation(self._answer(prompt, seed, j)) for j in draws] for prompt in prompts]

    def _answer(self, prompt, seed, draw):
        ease = 0.45 if int(prompt.split()[-1]) % 3 else 0.9
        stream = draw_stream(prompt, seed, draw)
        return "yes" if stream.random() < ease else ANSWERS[1 + int(3 * stream.random())]


def of_batch(values, n_rows, noise):
    """Numbers as a batch of so many rows rounds them."""
    values = np.asarray(values, dtype=np.float64)
    return values * (1 + noise * np.sin(n_rows + np.arange(values.size)).reshape(values.shape))


class Reward:
    """A number for each answer, which the size of the batch changes by about `noise`."""

    scores = dict(zip(ANSWERS, (7.01, -2.3, 0.4, -5.5)))

    def __init__(self, noise):
        self.noise = noise

    def score_draws(self, prompts, generations, start=0):
        rows = [[self.scores[draw.response] for draw in row[start:]] for row in generations]
        return of_batch(rows, np.size(rows), self.noise)


class Rating:
    """The same as a classifier, whose log-odds the number of rows changes by about `noise`."""

    def __init__(self, noise):
        self.noise = noise

    def predict_proba(self, rows):
        log_odds = of_batch([Reward.scores[row] for row in rows], len(rows), self.noise)
        good = 1 / (1 + np.exp(-log_odds))
        return np.stack([1 - good, good], axis=1)


class Alike:
    """Similarities that the number of texts changes by about `noise`."""

    def __init__(self, noise):
        self.noise = noise

    def pairwise(self, a, b=None):
        b = a if b is None else b
        table = [[1.0 if one == other else 0.3 for other in b] for one in a]
        return of_batch(table, len(a) * len(b), self.noise)


class Trust:
    """Component scores that the number of components changes by about `noise`."""

    def __init__(self, noise):
        self.noise = noise

    def score_components(self, prompts, generations, spans):
        n = sum(len(row) for row in generations)
        return [
            [of_batch([Reward.scores[draw.response]], n, self.noise) for draw in row]
            for row in generations
        ]


def sampler(noise=0.0, alike="exact_match", **options):
    options = {"k_max": 6, "epsilon": 0.25, "delta": 0.1, **options}
    return ConformalSampler(
        ShortAnswers(), quality=Reward(noise), similarity=alike, admission="exact_match", **options
    )


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("noise", [1e-16, 1e-9])
def test_sets_are_the_same_in_any_batch(policy, noise):
    fitted = sampler(noise, Alike(noise), policy=policy).fit(PROMPTS, ["yes"] * 260)
    assert fitted.calibration_.certified
    together = fitted.predict(NEW)
    assert together.sizes.max() > 0
    for prompt, one in zip(NEW, together):
        (alone,) = fitted.predict([prompt])
        assert alone.indices.tolist() == one.indices.tolist()
        assert alone.n_samples == one.n_samples
    # as are those of scores without noise
    exact = sampler(0.0, Alike(0.0), policy=policy).fit(PROMPTS, ["yes"] * 260)
    assert [one.indices.tolist() for one in exact.predict(NEW)] == [
        one.indices.tolist() for one in together
    ]


@pytest.mark.parametrize("set_score", ["max", "sum"])
def test_probabilities_of_a_classifier_need_no_rounding(set_score):
    fitted = sampler(policy=ThresholdPolicy(set_score=set_score))
    fitted.set_params(quality=Rating(4e-6)).fit(PROMPTS, ["yes"] * 260)
    assert len(np.unique(fitted.calibration_data_.quality)) > 100
    for prompt, one in zip(NEW, fitted.predict(NEW)):
        (alone,) = fitted.predict([prompt])
        assert alone.indices.tolist() == one.indices.tolist()


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_quality_that_the_batch_decides_is_refused(policy):
    with pytest.raises(ValueError, match="quality must give a draw the same number alone"):
        sampler(2.0, policy=policy).fit(PROMPTS, ["yes"] * 260)


class Equal(Reward):
    """Right answers score as much as "no", but for a last digit that the batch decides."""

    def score_draws(self, prompts, generations, start=0):
        rows = super().score_draws(prompts, generations, start)
        return np.where(rows > 0, 0.5 + np.where(rows > 5, rows - 7.01, 0.0), -1.0)

    scores = dict(zip(ANSWERS, (7.01, 1.0, -1.0, -1.0)))


def test_of_equal_scores_the_first_is_the_answer_in_any_batch():
    one = sampler(policy=AnswerPolicy(0.4, score="quality"), random_state=0)
    one.set_params(quality=Equal(1e-13)).fit(PROMPTS, ["yes"] * len(PROMPTS))
    together = [a_set.responses for a_set in one.predict(NEW)]
    alone = [one.predict([prompt])[0].responses for prompt in NEW]
    assert together == alone
    assert len({*together} & {("yes",), ("no",)}) == 2


def test_similarities_that_are_same_text_are_not_above_it():
    """Votes are the same in any batch, wherever the user's threshold stands."""
    policy = AnswerPolicy(0.6, score="vote", same_text=0.3)
    one = sampler(alike=Alike(1e-13), policy=policy, random_state=0)
    one.fit(PROMPTS, ["yes"] * len(PROMPTS))
    exact = sampler(alike=Alike(0.0), policy=policy, random_state=0)
    exact.fit(PROMPTS, ["yes"] * len(PROMPTS))
    for prompts in (NEW, NEW[:1]):
        shown, wanted = (
            [a_set.responses for a_set in each.predict(prompts)] for each in (one, exact)
        )
        assert shown == wanted
    assert one.calibration_.rule.level == exact.calibration_.rule.level


def test_noise_without_consequence_is_none():
    # the gaps between these rewards are wider
    sampler(1e-3).fit(PROMPTS, ["yes"] * 260)


@pytest.mark.parametrize("groups", [None, Groups(lambda prompt: int(prompt.split()[-1]) % 2)])
def test_a_similarity_that_the_batch_decides_is_refused(groups):
    # answers that differ are rejected, or not; copies are shown once, whatever they are rejected by
    lambdas = np.array([[np.inf, -np.inf, np.inf], [0.5, -np.inf, np.inf]])
    frontier = Frontier(lambdas, np.full(2, 6), *np.zeros((2, 2)))
    policy = ThresholdPolicy(set_score="first_k_reject", frontier=frontier, select="last")
    options = {"epsilon": 0.6, "groups": groups, "policy": policy}
    with pytest.raises(ValueError, match="similarity must give a draw the same number alone"):
        sampler(0.0, Alike(1.0), **options).fit(PROMPTS, ["yes"] * 260)
    # where thresholds do not look at it, it decides nothing
    unused = ThresholdPolicy(set_score="first_k")
    assert sampler(0.0, Alike(1.0), policy=unused).fit(PROMPTS, ["yes"] * 260).predict(NEW)


@pytest.mark.parametrize("noise", [1e-9, 2.0])
def test_a_component_score_that_the_batch_decides_is_refused(noise):
    selector = ComponentSelector(
        sampler(), alpha=0.4, component_score=Trust(noise), admission="exact_match"
    )
    if noise < 1:
        selected = selector.fit(PROMPTS, ["yes"] * 260).predict(NEW)
        assert np.isfinite(selector.gamma_hat_)
        alone = [selector.predict([prompt])[0].components for prompt in NEW]
        assert alone == [one.components for one in selected]
        return
    with pytest.raises(ValueError, match="component_score must give a draw the same number"):
        selector.fit(PROMPTS, ["yes"] * 260)


def test_what_is_scored_row_by_row_is_not_scored_again():
    calls = []

    def quality(prompt, generation):
        calls.append(prompt)
        return Reward.scores[generation.response]

    sampler().set_params(quality=quality).fit(PROMPTS, ["yes"] * 260)
    assert len(calls) == 6 * 260


def data_of(spread):
    """Rewards of one answer that are spread by as much, in bare arrays."""
    rng = np.random.default_rng(0)
    right = rng.random((300, 3)) < 0.6
    quality = np.where(right, 1.0, -1.0) * (1 + spread * rng.random((300, 3)))
    return CalibrationData(quality, np.zeros((300, 3, 3)), right)


@pytest.mark.parametrize("spread", [1e-9, 3e-6, 0.5])
def test_thresholds_without_room_are_announced(spread):
    bare = sampler(k_max=3, epsilon=0.4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bare.calibrate(data_of(spread))
    doubts = [str(one.message) for one in caught if "single precision" in str(one.message)]
    # last digits of less than 1e-6 are one number, and a continuum has few scores so close
    assert len(doubts) == (spread == 3e-6)
    assert bare.calibration_.remarks[-len(doubts) :] == tuple(doubts) or not doubts
    if doubts:
        assert "the prompts quality lies within single precision of a threshold" in doubts[0]


def test_a_zero_that_no_draw_alone_has_shown():
    """Rewards less that of the usual answer; those that were scored alone are all far from 0."""
    rng = np.random.default_rng(0)
    others = np.where(rng.random((200, 3)) < 0.9, -9.0, 2.0) + rng.random((200, 3))
    usual = rng.uniform(-1e-5, 1e-5, (200, 1))  # 0, but for the last digits of larger numbers
    quality = np.hstack((others, usual))
    right = np.arange(4) == np.full((200, 1), 3)
    data = CalibrationData(quality, np.zeros((200, 4, 4)), right)
    alone = others[:8] + rng.uniform(-1e-5, 1e-5, (8, 3))
    noise = {"quality": Noise.between(others[:8], alone)}

    def checked(threshold):
        rule = ThresholdRule(Claim(0.1, 0.05), Configuration(np.inf, threshold, np.inf), 4)
        return check_precision({None: rule}, data, None, "max", noise)

    assert checked(-5.0) == []
    with pytest.raises(ValueError, match="quality must give a draw the same number alone"):
        checked(0.0)


def test_noise_about_zero_is_that_of_larger_scores():
    noise = Noise(1e-4, 1e-5)
    scores = np.array([-10.0, 1e-9, 5.0])
    np.testing.assert_array_equal(noise.added(scores, 1), scores + 1e-4)
    np.testing.assert_array_equal(noise.added(scores[1:], 1), scores[1:] * (1 + 1e-5))
    # scores of one number may differ by 5e-6 about zero here
    assert not Noise(4e-6, 1e-7).matters_to(scores)
    assert Noise(6e-6, 1e-7).matters_to(scores)
    assert not Noise(6e-6, 1e-7).matters_to(scores[1:])


def test_differences_of_infinite_scores():
    known = np.array([np.inf, -np.inf, 0.0, 2.0])
    assert Noise.between(known, known) == Noise()
    assert not Noise.between(known, known).matters_to(known)
    off = Noise.between(known, np.array([np.inf, -np.inf, 0.5, 2.0]))
    assert off == Noise(0.5, np.inf)
    moved = off.added(known, -1)
    assert moved.tolist() == [np.inf, -np.inf, -0.5, 1.5]
    assert Noise.between(known, np.array([1.0, -np.inf, 0.0, 2.0])).absolute == np.inf
