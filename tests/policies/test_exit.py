"""Samplers with an exit policy, lazy judging and the marginal guarantee."""

import functools

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm import NullCalibrationWarning
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.generators import Generation, draw_stream
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, LazyJudging, ThresholdPolicy
from sklearn_clm.scoring import likelihood
from tests.calibration.tables import exit_scores_of
from tests.toy import Answering, ToyModel, Trained, drawn, questions, toy_sampler

N, K = 150, 6


X, Y = questions(N)


sampler = functools.partial(toy_sampler, k_max=K)


class CountingJudge:
    """Exact equality, counting how often it is asked about which pair."""

    def __init__(self, fails_at=None):
        self.asked = []
        self.fails_at = fails_at

    def __call__(self, reference, response):
        if self.fails_at is not None and len(self.asked) == self.fails_at:
            self.fails_at = None
            raise ConnectionError("the judge is away")
        self.asked.append((reference, response))
        return reference == response

    def fingerprint(self):
        return "equality"


def test_lazy_judging_certifies_the_same_with_fewer_judgements():
    judge, every = CountingJudge(), CountingJudge()
    judging, policy = LazyJudging(optimization_judgements=None), ThresholdPolicy(excess_weight=0.0)
    lazy = sampler(admission=judge, judging=judging, policy=policy).fit(X, Y)
    full = sampler(admission=every, policy=policy).fit(X, Y)
    assert lazy.lambda_hat_ == full.lambda_hat_
    assert np.array_equal(lazy.valid_lambdas_, full.valid_lambdas_)
    asked = judge.asked[1:]  # after the one that shows that the judge works
    assert len(asked) == len(set(asked)) == lazy.n_judgements_
    assert lazy.n_judgements_ < full.n_draws_ / 2
    assert lazy.n_judgements_ < len(every.asked) == full.n_judgements_ < full.n_draws_
    assert np.isnan(lazy.achievable_epsilon_.low)
    result = lazy.result_
    certified = len(lazy.valid_lambdas_)
    assert np.all(result.p_values[:certified] <= 0.05)
    assert result.n_judgements <= lazy.n_judgements_
    new, _ = questions(40, first=1000)
    assert lazy.predict(new) == full.predict(new)


def test_a_judge_that_cannot_work_is_found_before_draws_are_paid_for(log):
    def judge(reference, response):
        raise TypeError("the judge does not work")

    with pytest.raises(TypeError, match="does not work"):
        sampler(ToyModel(log=log), admission=judge, judging="lazy").fit(X, Y)
    assert len(drawn(log)) < 10


def test_another_epsilon_asks_for_what_is_new_alone():
    judge = CountingJudge()
    one = sampler(admission=judge, judging="lazy")
    data = one.collect(X, Y)
    ((reference, response),) = judge.asked
    assert reference.split()[-1] in response
    judge.asked.clear()
    assert data.unknown.all()
    one.calibrate(data)
    n_first = len(judge.asked)
    one.set_params(epsilon=0.45).calibrate(data)
    assert len(judge.asked) == len(set(judge.asked)) >= n_first
    one.set_params(epsilon=0.4).calibrate(one.calibration_data_)
    assert len(judge.asked) == len(set(judge.asked)) == one.n_judgements_


@pytest.mark.parametrize("policy", [None, ExitPolicy()])
def test_a_judge_that_fails_half_way_loses_nothing(policy):
    judge = CountingJudge(fails_at=60)
    one = sampler(admission=judge, judging="lazy", policy=policy)
    data = one.collect(X, Y)
    with pytest.raises(ConnectionError):
        one.calibrate(data)
    assert len(judge.asked) == 60
    one.calibrate(data)
    asked = judge.asked[1:]  # after the one that shows that the judge works
    assert len(asked) == len(set(asked))
    fresh = sampler(admission=CountingJudge(), judging="lazy", policy=policy)
    fresh.fit(X, Y)
    new, _ = questions(30, first=500)
    assert one.predict(new) == fresh.predict(new)
    assert one.n_judgements_ == fresh.n_judgements_


class Foreseeing(ToyModel):
    """Notes the chances that draws will be wanted, and makes none ahead."""

    def serve(self, queue):
        self.chances = []
        while requests := queue.take():
            queue.take_ahead(1, n_at_once=self._note)
            for i, start, stop in requests:
                for j in range(start, stop):
                    queue.put(i, j, self._draw(queue.prompts[i], queue.seed, j))

    def _note(self, chances):
        self.chances.append(chances)
        return 0


@pytest.mark.parametrize("policy", [ThresholdPolicy(), ExitPolicy()])
def test_calibration_tells_how_likely_a_draw_is_wanted(policy, tmp_path):
    one = sampler(Foreseeing(), policy=policy).fit(*questions(300))
    taken = np.array(one.calibration_.rule.shares_of_draws)
    assert taken[0] == 1 > taken[1]
    one.save_calibration(tmp_path / "calibration.json")
    loaded = sampler(Foreseeing(), policy=policy).load_calibration(tmp_path / "calibration.json")
    for sampler_of_new in (one, loaded):
        sampler_of_new.predict(questions(50, first=1000)[0])
        seen = {
            K - len(chances): chances
            for chances in sampler_of_new.calibration_.source.generator.chances
        }
        assert {0, 1} <= seen.keys()
        for decided, chances in seen.items():
            assert np.allclose(chances, taken[decided:] / taken[decided])


@pytest.mark.parametrize("judging", ["all", "lazy"])
@pytest.mark.parametrize("guarantee", ["pac", "marginal"])
def test_exit_policy(judging, guarantee):
    prompts, references = questions(300)
    one = sampler(policy=ExitPolicy(guarantee=guarantee), judging=judging)
    one.fit(prompts, references)
    assert one.calibration_.rule.level > -np.inf
    assert one.lambda_hat_ is None
    new, truth = questions(250, first=1000)
    sets = one.predict(new)
    assert sets.guaranteed
    covered = np.mean([label in answers for label, answers in zip(truth, sets)])
    # four standard errors of 200 calibration and 250 new prompts
    assert covered > 0.6 - 4 * np.sqrt(0.24 / 200 + 0.24 / 250)
    assert sets.n_samples.mean() < K
    for answers in sets:
        assert len(set(answers.responses)) == len(answers.responses)
        for j, response in zip(answers.indices, answers.responses):
            assert answers.generations[j].response == response
    # one by one, together, in any order
    assert one.predict(new[:20][::-1])[::-1] == sets[:20]
    assert [one.predict([prompt])[0] for prompt in new[:5]] == list(sets[:5])
    assert one.fit_transform(prompts, references) == one.predict(prompts)
    assert np.isfinite(one.score(new, truth))


@pytest.mark.filterwarnings("ignore")
def test_the_smallest_epsilon_of_a_null_on_average_does_work():
    """28 of 99 prompts have no answer: 29 / 100 is 0.29, and 100 * 0.29 is less than 29."""
    rng = np.random.default_rng(0)
    similarity = rng.random((99, K, K))
    right = np.repeat(np.arange(99) >= 28, K).reshape(99, K)
    quality = rng.random((99, K))
    policy = ExitPolicy(guarantee="marginal").fit(CalibrationData(quality + 1, similarity, right))
    data = CalibrationData(quality, similarity, right)
    one = sampler(policy=policy, epsilon=0.28).calibrate(data)
    assert not one.calibration_.certified
    assert "would have worked is 0.29." in one.calibration_.claim.null
    assert one.set_params(epsilon=0.29).calibrate(data).calibration_.certified


def test_a_policy_from_elsewhere_spends_no_prompt():
    prompts, references = questions(300)
    source = sampler(policy=ExitPolicy()).fit(prompts, references)
    policy = ExitPolicy().fit(source.calibration_data_)
    others = questions(100, first=2000)
    one = clone(sampler(policy=policy)).fit(*others)
    found = one.calibration_.rule.outcome
    assert (found.n_optimization, found.n_calibration) == (0, 100)
    frontier = sampler().fit(prompts, references).frontier_
    tested = sampler(policy=ThresholdPolicy(frontier=frontier)).fit(*others)
    assert (tested.result_.n_optimization, tested.result_.n_calibration) == (0, 100)
    lazily = sampler(policy=ThresholdPolicy(frontier=frontier), judging="lazy").fit(*others)
    assert np.array_equal(lazily.valid_lambdas_, tested.valid_lambdas_)


def test_null_exit_policies():
    prompts, references = questions(80)
    one = sampler(policy=ExitPolicy(), epsilon=0.01)
    with pytest.warns(NullCalibrationWarning, match="fewer than"):
        one.fit(prompts, references)
    assert not one.calibration_.certified
    prompts, references = questions(200)
    wrong = ["no such answer"] * 200
    with pytest.warns(NullCalibrationWarning, match="no exit level.*No draw .* check `admission`"):
        one = sampler(policy=ExitPolicy()).fit(prompts, wrong)
    assert not one.calibration_.certified
    sets = one.predict(prompts[:3])
    assert not sets.guaranteed
    assert sets.n_samples.tolist() == [K] * 3
    assert one.score(prompts[:3], wrong[:3]) == -np.inf


def test_prediction_compares_accepted_draws_alone():
    compared = []

    def same(later, earlier):
        compared.append((later, earlier))
        return float(later == earlier)

    fitted = sampler(similarity=same, policy=ThresholdPolicy(set_score="sum")).fit(X, Y)
    for prompt in questions(20, first=N)[0]:
        compared.clear()
        one = fitted.predict([prompt])[0]
        assert {earlier for _, earlier in compared} <= set(one.responses)
        if fitted.lambda_hat_.quality > -np.inf:
            poor = [
                draw.response
                for draw in one.generations
                if likelihood(prompt, draw) < fitted.lambda_hat_.quality
            ]
            assert not {later for later, _ in compared}.intersection(poor)


def test_scores_that_many_prompts_share_are_no_sign_of_common_prompts():
    rng = np.random.default_rng(0)

    def discrete(n):
        quality = rng.integers(3, size=(n, 2)).astype(float)
        return CalibrationData(quality, np.zeros((n, 2, 2)), rng.random((n, 2)) < 0.8)

    one, other = discrete(100), discrete(100)
    policy = ExitPolicy().fit(one)
    sampler(policy=policy, k_max=2).calibrate(other)


def often_right(prompt, draw):
    """More often for some prompts than for others, otherwise one of a few texts."""
    of_prompt = draw_stream(prompt, 0, 0, salt=b"prompt")
    share = (of_prompt.random() < 0.85) * of_prompt.choice([0.15, 0.5])
    rng = draw_stream(prompt, 0, draw)
    text = "right" if rng.random() < share else f"wrong {rng.integers(3)}"
    return Generation(text, logprob=-float(rng.exponential()), n_tokens=1)


def test_exit_policies_calibrated_without_texts_predict_without_them():
    # bare arrays do not tell which responses are equal: predict must not merge them either
    epsilon, n_new = 0.4, 400
    prompts, _ = questions(499)
    options = {"similarity": lambda a, b: float(a == b), "policy": ExitPolicy(same_text=None)}
    one = sampler(Answering(often_right), k_max=8, epsilon=epsilon, **options)
    data = one.collect(prompts, ["right"] * len(prompts))
    bare = CalibrationData(data.quality, data.similarity, data.admissible, data.provenance)
    one.calibrate(bare)
    sets = one.predict(questions(n_new, first=10_000)[0])
    # the sets of a prompt that calibrated are those that calibration looked at
    found = one.calibration_.rule
    tau, exits = exit_scores_of(found.model, bare)
    for i, own in enumerate(one.predict(prompts[:60])):
        assert own.indices.tolist() == np.flatnonzero(tau[i] >= found.level).tolist()
        assert own.n_samples == 1 + np.sum(exits[i, :-1] >= found.level)
    risk = np.mean(["right" not in s.responses for s in sets])
    assert risk <= epsilon + 3 * np.sqrt(epsilon * (1 - epsilon) / n_new)


def test_a_policy_learns_from_prompts_without_references():
    judge = CountingJudge()
    one = sampler(admission=judge).fit(X, Y)
    before, n_asked = one.calibration_, len(judge.asked)
    more, _ = questions(N, first=1000)
    unlabeled = one.collect(more, None)
    assert unlabeled.unknown.all()
    assert len(judge.asked) == n_asked
    assert one.calibration_ is before
    policy = ExitPolicy().fit(unlabeled)
    taught = one.set_params(policy=policy).fit(X, Y)
    assert taught.calibration_.rule.outcome.n_calibration == N
    assert taught.calibration_.rule.level > -np.inf
    # the chance of a text is its share, so that sets are better than in the order of arrival
    sets = taught.predict(questions(60, first=500)[0])
    assert sets.sizes.mean() < K / 2
    with pytest.raises(ValueError, match="other prompts"):
        sampler(policy=policy).fit(more, Y)


@pytest.mark.parametrize(
    ("policy", "changes", "error", "named"),
    [
        (ExitPolicy(), {"tiers": Tiers((2, 1), (1.0, 25.0))}, ValueError, "k_max"),
        (AnswerPolicy(), {"tiers": Tiers((2, 1), (1.0, 25.0))}, ValueError, "k_max"),
        (ExitPolicy(), {"tiers": "cheap"}, TypeError, "tiers"),
        (ExitPolicy(), {"epsilon": 2.0}, ValueError, "epsilon"),
        (AnswerPolicy(), {"delta": 2.0}, ValueError, "delta"),
    ],
)
def test_policies_refuse_what_they_cannot_learn_from(policy, changes, error, named):
    data = sampler().collect(questions(40)[0], None)
    with pytest.raises(error, match=named):
        policy.fit(data, **changes)


@pytest.mark.parametrize("policy", [ExitPolicy(), AnswerPolicy(0.4)])
@pytest.mark.parametrize("k_max", [K - 1, K + 1])
def test_policies_of_another_budget_are_refused_before_anything_is_drawn(policy, k_max, log):
    learnt = policy.fit(sampler().collect(questions(40)[0], None))
    other = sampler(ToyModel(log=log), policy=learnt, k_max=k_max)
    with pytest.raises(ValueError, match="k_max"):
        other.fit(*questions(N, first=1000))
    assert not log.exists()


def test_prompts_that_trained_the_generator_teach_no_policy():
    one = sampler(Trained()).fit(X, Y)
    assert one.collect(X, None).n_prompts == N // 2
    with pytest.raises(ValueError, match="trained"):
        one.collect(one.generator_.seen_, None)


def test_texts_that_do_not_repeat_teach_nothing_without_labels():
    rng = np.random.default_rng(0)
    unknown = np.full((40, K), -1)
    data = CalibrationData(rng.random((40, K)), np.zeros((40, K, K)), unknown)
    policy = ExitPolicy().fit(data)
    tau, _ = exit_scores_of(policy.model_, data)
    assert np.isfinite(tau).all()
    assert len(np.unique(tau)) == 1
