"""Tables whose draws end early: nothing is certified that the full table would not certify."""

import json
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm import ConformalSampler
from sklearn_clm.__main__ import main
from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    Provenance,
    SamplingRule,
    learn_then_test,
    search_frontier,
)
from sklearn_clm.calibration._binomial import critical_count
from sklearn_clm.calibration.answer import AnswerSteps
from sklearn_clm.calibration.certify import count_passed
from sklearn_clm.calibration.exit_policy import LevelPath
from sklearn_clm.calibration.risk import MISSES, MissesIfAny, WrongAnswers
from sklearn_clm.calibration.rows import Part, optimization_size
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tests import BinomialTest, NestedTest
from sklearn_clm.calibration.thresholds import ThresholdPath
from sklearn_clm.calibration.vote import PlainAnswers, PlainModel, PlainSteps, fewest_answers
from sklearn_clm.evaluation import plan
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, LazyJudging, Losses, ThresholdPolicy
from sklearn_clm.scoring import get_set_score
from tests.calibration.tables import data_of

STOPS = ["after success", "after 2 failures", "at random", "by an adversary"]


def world(n, k, seed):
    """Prompts of different difficulty; admissible draws score higher.

    Of odd seeds it is known that all texts differ.
    """
    rng = np.random.default_rng(seed)
    right = rng.random((n, k)) < rng.beta(1.0, 1.0, (n, 1))
    quality = rng.random((n, k)) + 0.5 * right
    texts = np.tile(np.arange(k), (n, 1)) if seed % 2 else None
    return CalibrationData(quality, rng.random((n, k, k)), right, texts=texts)


def counts_of(data, stop, rng):
    """How many draws of each prompt were made."""
    n, k = data.quality.shape
    right = data.admissible
    if stop == "after success":
        return np.where(right.any(axis=1), right.argmax(axis=1) + 1, k)
    if stop == "after 2 failures":
        failed = np.cumsum(~right, axis=1) >= 2
        return np.where(failed.any(axis=1), failed.argmax(axis=1) + 1, k)
    if stop == "at random":
        return rng.integers(0, k + 1, n)
    # whoever knows what comes cuts where the next draw is right
    return np.where(right.any(axis=1), right.argmax(axis=1), k)


def with_holes(data, counts, seed=0):
    """The same with other things where draws were not made."""
    rng = np.random.default_rng(seed)
    made = np.arange(data.k_max) < counts[:, np.newaxis]
    similarity = np.where(made[:, :, np.newaxis], data.similarity, rng.random((data.k_max,) * 2))
    return CalibrationData(
        np.where(made, data.quality, rng.random(data.quality.shape)),
        similarity,
        np.where(made, data.labels, -1),
        texts=data.texts,
        n_draws=counts,
    )


@cache
def learnt(k):
    other = world(120, k, 10_000 + k)
    return search_frontier(other), ExitPolicy().fit(other).model_


@pytest.mark.parametrize("seed", range(300))
def test_no_certificate_that_the_full_table_would_not_give(seed):
    rng = np.random.default_rng(seed)
    k, stop = int(rng.integers(2, 6)), STOPS[seed // 2 % len(STOPS)]
    epsilon, guarantee = rng.uniform(0.1, 0.6), ["pac", "marginal"][seed % 2]
    full = world(int(rng.integers(20, 80)), k, seed)
    holed = with_holes(full, counts_of(full, stop, rng), seed)
    frontier, model = learnt(k)
    whole, cut = (learn_then_test(one, epsilon, frontier=frontier) for one in (full, holed))
    assert cut.n_valid <= whole.n_valid
    tested = ~np.isnan(cut.p_values)
    assert np.all(cut.n_errors[tested] >= whole.n_errors[tested])
    assert np.all(cut.p_values[tested] >= whole.p_values[tested])
    rows = np.arange(full.n_prompts)
    abstaining = []
    highest = []
    for data in (full, holed):
        path = ThresholdPath(Table(data), rows, frontier, get_set_score("max"))
        test = BinomialTest(path, MissesIfAny(), epsilon, 0.05)
        abstaining.append([test.passes(step) for step in range(len(frontier))])
        entries = LevelPath(Table(data), rows, model).entries
        highest.append(NestedTest(entries, epsilon, 0.05, guarantee).highest())
    assert np.all(np.array(abstaining[0]) >= abstaining[1])
    assert highest[1] <= highest[0]


@pytest.mark.parametrize("stop", STOPS)
def test_what_known_draws_decide_is_that_of_the_sequential_rule(stop):
    full = world(40, 4, 3)
    counts = counts_of(full, stop, np.random.default_rng(0))
    frontier, _ = learnt(4)
    path = ThresholdPath(
        Table(with_holes(full, counts)), np.arange(40), frontier, get_set_score("max")
    )
    test = BinomialTest(path, MISSES, 0.3, 0.05)
    for step in range(len(frontier)):
        wrong = still_open = 0
        for i, n_known in enumerate(counts):
            rule = SamplingRule(frontier.configuration(step), get_set_score("max"), 4, width=4)
            while not rule.done and rule.n_samples < n_known:
                j = rule.n_samples
                rule.update(float(full.quality[i, j]), full.similarity[i, j])
            if not any(full.admissible[i, member] for member in rule.accepted):
                wrong += rule.done
                still_open += not rule.done
        assert test.errors(step) == (wrong, wrong + still_open)


@pytest.mark.parametrize("stop", STOPS[:3])
def test_promises_hold_where_draws_end_early(stop):
    """In a world of known truth; a certificate is wrong with probability delta at most."""
    truth, n_runs, delta, epsilon = world(20_000, 4, 99), 150, 0.2, 0.3
    frontier, model = learnt(4)
    risks = evaluate_configurations(truth, frontier.lambdas, set_score="max").loss
    entries = LevelPath(Table(truth), np.arange(20_000), model).entries
    largest = entries.largest(entries.labels == 1)
    n_wrong = np.zeros(2, dtype=int)
    n_certified = np.zeros(2, dtype=int)
    for run in range(n_runs):
        full = world(60, 4, 1000 + run)
        holed = with_holes(full, counts_of(full, stop, np.random.default_rng(run)), run)
        n_valid = learn_then_test(holed, epsilon, delta, frontier=frontier).n_valid
        n_wrong[0] += np.any(risks[:n_valid] > epsilon)
        n_certified[0] += n_valid > 0
        level = NestedTest(
            LevelPath(Table(holed), np.arange(60), model).entries, epsilon, delta
        ).highest()
        n_wrong[1] += np.mean(largest < level) > epsilon
        n_certified[1] += level > -np.inf
    assert n_wrong.max() <= binom.isf(1e-4, n_runs, delta)
    if stop == "after success":
        assert n_certified.min() > n_runs / 3  # the promises are made


def answers_of(n, k, alpha, seed):
    """Prompts of three texts, of which the first is right; its share differs from prompt to prompt.

    Of odd seeds the first text is right with a probability of 1 - alpha, whatever its share.
    """
    rng = np.random.default_rng(seed)
    texts = np.where(rng.random((n, k)) < rng.beta(3.0, 1.0, (n, 1)), 0, rng.integers(0, 3, (n, k)))
    right = (texts == 0) & (rng.random((n, 1)) < (1.0 if seed % 2 == 0 else 1.0 - alpha))
    data = data_of(texts, right)
    return CalibrationData(data.quality, data.similarity, right, texts=data.texts)


def few_counts(data, stop, rng, share=0.05):
    """How many draws were made, where some prompts alone stopped early."""
    is_cut = rng.random(data.n_prompts) < share
    return np.where(is_cut, counts_of(data, stop, rng), data.k_max)


@cache
def learnt_answers(k, draw_price):
    policy = AnswerPolicy(0.3, score="learnt", draw_price=draw_price)
    return policy.fit(answers_of(200, k, 0.3, 20_000 + k)).answers_


def paths_of_answers(data, alpha, draw_price=0.0):
    """A vote, and what was learnt, on some data."""
    table, rows = Table(data), np.arange(data.n_prompts)
    vote = PlainAnswers(PlainModel("vote", data.k_max))
    yield PlainSteps(table, rows, vote, fewest_answers(alpha, 0.05))
    yield AnswerSteps(table, rows, learnt_answers(data.k_max, draw_price))


def certified_level(path, alpha):
    """The last level that passes, inf where none may be used."""
    n_passed = count_passed(BinomialTest(path, WrongAnswers(), alpha, 0.05).passes, len(path))
    levels = path.levels if isinstance(path, PlainSteps) else path.answers.levels
    return levels[n_passed - 1] if n_passed > path.first_certifiable else np.inf


@pytest.mark.parametrize("seed", range(300))
def test_no_answers_that_the_full_table_would_not_certify(seed):
    rng = np.random.default_rng(seed)
    k, alpha = int(rng.integers(2, 8)), rng.uniform(0.1, 0.5)
    full = answers_of(int(rng.integers(30, 120)), k, alpha, seed)
    counts = few_counts(full, STOPS[seed // 2 % len(STOPS)], rng, [0.02, 0.1, 1.0][seed % 3])
    holed = with_holes(full, counts, seed)
    draw_price = [0.0, 0.05][seed // 8 % 2]
    for whole, cut in zip(*(paths_of_answers(data, alpha, draw_price) for data in (full, holed))):
        assert whole.first_certifiable == 0
        assert certified_level(whole, alpha) <= certified_level(cut, alpha)
        for step, level in enumerate(cut.levels if isinstance(cut, PlainSteps) else ()):
            # what known draws decide of a vote is decided, with the same text
            answered, is_open = cut.sizes(step) == 1, cut.unfinished(step)
            in_full = whole.sure[:, -1] >= level
            np.testing.assert_array_equal(answered[~is_open], in_full[~is_open])
            assert np.all(whole.texts[answered, -1] == cut.texts[answered, -1])


def test_a_vote_is_decided_as_soon_as_no_draw_can_change_it():
    texts = np.array([[0, 0, 0, 1, 1], [0, 1, 0, 0, 1], [0, 0, 1, 1, 1]])
    full = data_of(texts, texts == 0)
    cut = with_holes(full, np.array([3, 4, 3]))
    path = PlainSteps(Table(cut), np.arange(3), PlainAnswers(PlainModel("vote", 5)), 1)
    three = int(np.flatnonzero((path.levels < 3) & (path.levels > 2))[-1])
    # 3 of 5 votes: the first two have them; the third has two that can still become three, or not
    assert path.sizes(three).tolist() == [1, 1, 0]
    assert path.unfinished(three).tolist() == [False, False, True]
    at_unanimity = 0
    assert path.unfinished(at_unanimity).tolist() == [True, False, False]


def test_levels_between_two_starts_certify_nothing():
    """An open prompt may be the one with which the tests begin at the highest level."""
    alpha, k = 0.3, 3
    fewest = fewest_answers(alpha, 0.05)
    unanimous = np.zeros((fewest, k), dtype=int)
    texts = np.vstack((unanimous, np.tile([1, 1, 0], (40, 1))))
    texts[0, 2] = 1
    full = data_of(texts, texts == 0)
    cut = with_holes(full, np.where(np.arange(len(texts)) == 0, 2, k))
    votes = [next(paths_of_answers(data, alpha)) for data in (full, cut)]
    # of the full table the tests begin at two votes, where forty answers are wrong
    assert votes[0].levels[0] < 2.0 < votes[1].levels[0]
    assert BinomialTest(votes[1], WrongAnswers(), alpha, 0.05).passes(0)
    assert [certified_level(vote, alpha) for vote in votes] == [np.inf, np.inf]


@pytest.mark.parametrize("stop", STOPS[:3])
def test_answers_hold_just_above_alpha_where_draws_end_early(stop):
    """Whatever is certified is false there, at any level, with probability delta at most."""
    alpha, n_runs, k = 0.3, 350, 5
    n_false = np.zeros(2, dtype=int)
    n_false_without = 0
    for run in range(n_runs):
        # the first text is wrong a little more often than alpha; the others always are
        full = answers_of(70, k, 1.01 * alpha, 2 * run + 1)
        counts = few_counts(full, stop, np.random.default_rng(run), 0.04)
        holed = with_holes(full, counts, run)
        for m, path in enumerate(paths_of_answers(holed, alpha)):
            n_false[m] += certified_level(path, alpha) < np.inf
        cut = counts_of(full, "after 2 failures", None) < k
        dropped = next(paths_of_answers(full.take(~cut), alpha))
        n_false_without += certified_level(dropped, alpha) < np.inf
    assert n_false.max() <= binom.isf(1e-4, n_runs, 0.05)
    assert n_false_without > 2 * binom.isf(1e-4, n_runs, 0.05)  # were they dropped after failures


def stopped_after_success():
    """300 prompts that were drawn from until a success, 10 times at most: 936 draws."""
    rng = np.random.default_rng(4)
    counts = np.repeat([1, 2, 3, 4, 8], [81, 72, 57, 54, 14]).tolist() + [8] * 4
    rows = [["wrong"] * (n - 1) + ["right"] for n in counts] + [["wrong"] * 10] * 18
    return [f"question {i}" for i in range(300)], [rows[i] for i in rng.permutation(300)]


def sampler_of(prompts, rows, k_max=10, **parameters):
    generator = PrecomputedGenerator(prompts, rows)
    return ConformalSampler(
        generator, k_max=k_max, quality="self_consistency", random_state=0, **parameters
    )


def test_a_log_that_stopped_after_success_certifies_what_its_witnesses_show(tmp_path, capsys):
    prompts, rows = stopped_after_success()
    assert sum(map(len, rows)) == 936
    sampler = sampler_of(prompts, rows, epsilon=0.11)
    data = sampler.collect(prompts, ["right"] * 300)
    sampler.calibrate(data)
    assert sampler.calibration_.certified
    assert sampler.result_.smallest_epsilon <= 0.11
    assert sampler.n_draws_ == 936
    made = np.arange(10) < data.n_draws[:, np.newaxis]
    holed = CalibrationData(
        np.where(made, data.quality, np.nan),
        np.where(made[:, :, np.newaxis], data.similarity, np.nan),
        np.where(made, data.labels, np.nan),
        texts=data.texts,
        prompts=data.prompts,
    )
    assert learn_then_test(holed, 0.11, random_state=0).lambda_hat == sampler.lambda_hat_
    table = [f"{prompt},{said},right" for prompt, row in zip(prompts, rows) for said in row]
    (tmp_path / "log.csv").write_text("\n".join(["prompt,response,reference", *table]))
    command = ["calibrate", str(tmp_path / "log.csv"), "--key", "model", "--epsilon", "0.11"]
    assert main([*command, "-o", str(tmp_path / "thresholds.json")]) == 0
    assert "300 prompts, 1 to 10 draws each" in capsys.readouterr().out
    content = json.loads((tmp_path / "thresholds.json").read_text("utf-8"))
    assert tuple(map(float, content["rules"][0]["lambda_hat"].values())) == sampler.lambda_hat_
    # means that stops by verdicts would bias are not shown
    record = sampler.calibration_
    assert np.isnan(sampler.achievable_epsilon_).all()
    assert record.rule.expected(record.data, "max") is None
    assert record.rule.tested is None or record.outcome.stops_known
    text = CalibrationReport.from_estimator(sampler).to_markdown()
    assert "| draws | 936 |" in text
    assert "What to expect" not in text


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_where_sets_may_abstain_those_of_all_draws_count():
    rng = np.random.default_rng(0)
    successes = [["right"], ["a", "right"], ["a", "b", "right"]]
    rows = [
        successes[rng.integers(3)] if rng.random() < 0.8 else ["a", "b", "c", "d"]
        for _ in range(450)
    ]
    prompts = [f"question {i}" for i in range(450)]
    sampler = sampler_of(prompts, rows, k_max=4, epsilon=0.15, policy=ThresholdPolicy(abstain=True))
    sampler.set_params(quality=lambda prompt, response: 0.5).fit(prompts, ["right"] * 450)
    # the set of all draws misses where all four were made: one fifth
    assert not sampler.calibration_.certified
    assert sampler.result_.frontier.configuration(0).accepts_all
    assert sampler.result_.n_counted[0] == 300
    assert sampler.result_.n_errors[0] > 0.15 * 300


def test_open_prompts_are_counted_and_their_price_is_named():
    prompts, rows = stopped_after_success()
    rows = [row[: 1 + (i % 7 > 0) * 9] for i, row in enumerate(rows)]
    with pytest.warns(UserWarning, match="end before they show whether the set is right") as record:
        sampler = sampler_of(prompts, rows, epsilon=0.3).fit(prompts, ["right"] * 300)
    found = sampler.calibration_.outcome
    assert 0 < found.n_open < found.n_errors
    assert f"the draws of {found.n_open} of 200 calibration prompts" in str(record[0].message)
    assert "Were they all right, the smallest epsilon of this rule would be" in str(
        record[0].message
    )
    assert found.errors.bound.words == "at most "


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("policy", [None, ThresholdPolicy(select="last"), ExitPolicy()])
def test_lazy_judging_decides_as_all_labels_do(policy):
    prompts, rows = stopped_after_success()
    full, lazy = (
        sampler_of(prompts, rows, epsilon=0.2, policy=policy, judging=judging)
        for judging in ("all", LazyJudging(optimization_judgements=None))
    )
    for sampler in (full, lazy):
        sampler.fit(prompts, ["right"] * 300)
    assert lazy.n_judgements_ <= full.n_judgements_
    if policy is None:  # lazily the objective leaves out the excess
        assert lazy.calibration_.certified
        return
    assert lazy.calibration_.rule.words == full.calibration_.rule.words


def test_a_level_below_all_chances_is_said_to_keep_everything():
    prompts, rows = stopped_after_success()
    sampler = sampler_of(prompts, rows, epsilon=0.11, policy=ExitPolicy())
    with pytest.warns(UserWarning, match="returns all of them.*thresholds often do"):
        sampler.fit(prompts, ["right"] * 300)
    assert sampler.calibration_.rule.level < 0.0


def answered_log(n=400, k=10, share=0.04, seed=0):
    """Prompts, draws of which a share ends early, and all draws."""
    rng = np.random.default_rng(seed)
    rows = np.where(rng.random((n, k)) < rng.beta(3.0, 1.0, (n, 1)), "right", "a")
    counts = np.where(rng.random(n) < share, rng.integers(1, k, n), k)
    prompts = [f"question {i}" for i in range(n)]
    return prompts, [row[:count].tolist() for row, count in zip(rows, counts)], rows.tolist()


@pytest.mark.parametrize("score", ["auto", "vote", "learnt"])
def test_answers_are_certified_where_few_draws_lack(score, tmp_path, capsys):
    prompts, rows, all_rows = answered_log()
    policy = AnswerPolicy(alpha=0.25, score=score)
    full = sampler_of(prompts, all_rows, policy=policy).fit(prompts, ["right"] * 400)
    sampler = sampler_of(prompts, rows, policy=policy)
    with pytest.warns(UserWarning, match="end before they show whether the answer is right"):
        sampler.fit(prompts, ["right"] * 400)
    record = sampler.calibration_
    assert record.certified
    assert record.rule.level >= full.calibration_.rule.level
    # how many are answered is a bound
    assert record.claim.answered is None
    assert ", at least " in record.rule.words
    assert 0 < record.outcome.n_open < record.outcome.n_errors
    text = CalibrationReport.from_estimator(sampler).to_markdown()
    assert "at most" in text
    assert "nan" not in text
    table = [f"{prompt},{said},right" for prompt, row in zip(prompts, rows) for said in row]
    (tmp_path / "log.csv").write_text("\n".join(["prompt,response,reference", *table]))
    command = ["calibrate", str(tmp_path / "log.csv"), "--key", "model", "--alpha", "0.25"]
    output = str(tmp_path / "answers.json")
    assert main([*command, "--policy", "answer", "-o", output]) == 0
    assert "at least" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("score", ["vote", "learnt"])
def test_lazily_judged_answers_are_those_of_all_labels(score):
    prompts, rows, _ = answered_log()
    full, lazy = (
        sampler_of(prompts, rows, policy=AnswerPolicy(0.25, score=score), judging=judging)
        for judging in ("all", LazyJudging(optimization_judgements=None))
    )
    for sampler in (full, lazy):
        sampler.fit(prompts, ["right"] * 400)
    assert lazy.calibration_.certified
    assert lazy.calibration_.rule.words == full.calibration_.rule.words
    assert lazy.n_judgements_ < full.n_judgements_


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("policy", [AnswerPolicy(0.15, score="vote"), ThresholdPolicy()])
def test_where_nothing_passes_lazily_open_prompts_are_part_of_the_errors(policy):
    prompts, rows, _ = answered_log(share=0.3)
    sampler = sampler_of(prompts, rows, policy=policy, epsilon=0.01)
    sampler.set_params(judging=LazyJudging(optimization_judgements=None))
    sampler.fit(prompts, ["right"] * 400)
    outcome = sampler.calibration_.outcome
    assert not sampler.calibration_.certified
    assert not any("Were they all right" in remark for remark in sampler.calibration_.remarks)
    if isinstance(policy, AnswerPolicy):
        assert outcome.n_errors >= outcome.n_open > 0
        assert "few enough" not in sampler.calibration_.claim.why_null()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_lacking_draws_do_not_tell_is_refused_or_said():
    prompts, rows = stopped_after_success()
    sampler = sampler_of(prompts, rows, policy=AnswerPolicy(alpha=0.2))
    sampler.fit(prompts, ["right"] * 300)  # votes that ended at a success tell nothing
    why = sampler.calibration_.claim.why_null()
    assert "at most 99 of 99 answers are wrong" in why
    sampler.set_params(policy__score="quality")
    with pytest.raises(ValueError, match="score must be 'vote', or 'learnt', where draws end"):
        sampler.fit(prompts, ["right"] * 300)
    # no text repeats where draws are known, and all may where they are not
    prompts, rows, _ = answered_log(share=1.0)
    alone = [[f"{i} {said}" for i, said in enumerate(row)] for row in rows]
    alone[0] += ["right"] * (10 - len(alone[0]))
    sampler = sampler_of(prompts, alone, policy=AnswerPolicy())
    with pytest.raises(ValueError, match="do not tell whether texts repeat, got 'auto'"):
        sampler.fit(prompts, ["right"] * 400)


def test_a_prompt_without_a_draw_is_named_whatever_the_others_have():
    prompts, rows = stopped_after_success()
    rows[5] = []
    with pytest.raises(ValueError, match=r"must be one of the 300 prompts.*'question 5' instead"):
        sampler_of(prompts, rows).fit(prompts, ["right"] * 300)


def test_open_prompts_that_repeat_are_remarked_on():
    """Where sets may abstain an open prompt counts, though its set is still empty."""
    rng = np.random.default_rng(0)
    # prompts whose draws ended early are copies of a few; the others differ
    digests = np.append(np.arange(300), 1_000 + np.repeat(np.arange(10), 6)).astype(np.uint64)
    n = len(digests)
    right = rng.random((n, 3)) < 0.9
    quality = np.where(right, 0.9, 0.2)
    made = np.where(digests >= 1_000, 1, 3)
    quality[digests >= 1_000] = 0.1
    right[digests >= 1_000] = False
    data = with_holes(CalibrationData(quality, np.zeros((n, 3, 3)), right), made)
    data.prompts = digests
    policy = ThresholdPolicy(abstain=True)
    path = ThresholdPath(
        Table(data),
        np.arange(n),
        search_frontier(CalibrationData(quality, np.zeros((n, 3, 3)), right)),
        get_set_score("max"),
    )
    step = int(np.argmax([path.frontier.configuration(m).quality > 0.5 for m in range(len(path))]))
    assert path.unfinished(step).sum() == 60
    part = Part(path.rows, path.rows[:0], 0.05)
    claim = policy._tested_on(path, step, Claim(0.3, 0.05, about="responses if any"), part)
    assert "50 of " in claim.repeated


def ended_by_others(data, epsilon, delta):
    """Draws end with the prompt's success, and all of them once few enough lack one."""
    n, k = data.quality.shape
    allowed = critical_count(n - optimization_size(n, 1 / 3), epsilon, delta)
    counts = np.zeros(n, dtype=int)
    has_witness = np.zeros(n, dtype=bool)
    for draw, i in product(range(k), range(n)):
        if n - has_witness.sum() <= allowed:
            break
        counts[i] += not has_witness[i]
        has_witness[i] |= data.admissible[i, draw]
    holed = with_holes(data, counts)
    if np.any(~has_witness & (counts < k)):
        holed.provenance = Provenance(stops="verdicts on other prompts")
    return holed


@pytest.mark.parametrize("random_state", [None, 0])
def test_where_verdicts_on_others_ended_draws_the_set_of_all_is_certified_alone(random_state):
    """No oftener than by all draws: also where it errs a little more often than epsilon."""
    epsilon, delta, n_runs = 0.3, 0.2, 120
    n_certified = np.zeros((2, 2), dtype=int)  # by chance of a witness, and by whether all is drawn
    n_ended = 0
    for run in range(n_runs):
        rng = np.random.default_rng(run)
        is_easy = rng.random((40, 1)) < [0.7, 0.85][run % 2]
        data = CalibrationData(
            rng.random((40, 3)), np.zeros((40, 3, 3)), is_easy & np.ones(3, bool)
        )
        data.labels[:, 0] &= rng.random(40) < 0.7
        holed = ended_by_others(data, epsilon, delta)
        results = [
            learn_then_test(one, epsilon, delta, random_state=random_state, n_lambdas=4)
            for one in (data, holed)
        ]
        n_certified[run % 2] += [result.n_valid > 0 for result in results]
        if holed.provenance.stops is not None:
            n_ended += 1
            assert len(results[1].frontier) == 1
            assert results[1].frontier.configuration(0).accepts_all
    assert n_ended > n_runs / 6
    assert np.all(n_certified[:, 1] <= n_certified[:, 0])
    assert n_certified[0, 0] <= binom.isf(1e-4, n_runs / 2, delta)
    assert n_certified[1, 1] > n_runs / 6


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_learnt_is_refused_where_verdicts_on_others_ended_draws(tmp_path):
    prompts, rows = stopped_after_success()
    sampler = sampler_of(prompts, rows, epsilon=0.2)
    data = sampler.collect(prompts, ["right"] * 300)
    data.provenance = replace(data.provenance, stops="verdicts on other prompts")
    data.save(tmp_path / "data.npz")
    again = CalibrationData.load(tmp_path / "data.npz")
    sampler.calibrate(again)
    assert sampler.calibration_.certified
    assert len(sampler.frontier_) == 1
    assert sampler.lambda_hat_.accepts_all
    policies = [ThresholdPolicy(abstain=True), ExitPolicy(), AnswerPolicy(0.2)]
    for policy in policies:
        sampler = sampler_of(prompts, rows, epsilon=0.2, policy=policy)
        with pytest.raises(ValueError, match="ended whatever other prompts showed"):
            sampler.calibrate(again)
    # a vote learns nothing, and where all draws are there nothing was left out
    sampler_of(prompts, rows, policy=AnswerPolicy(0.2, score="vote")).calibrate(again)
    assert len(learn_then_test(again.truncate(1), 0.9, random_state=0).frontier) > 1
    frontier, _ = learnt(4)
    reordered = frontier.ordered(np.arange(len(frontier))[::-1])
    with pytest.raises(ValueError, match="frontier must begin with the set of all draws"):
        reordered.of_all_draws()


def test_losses_want_all_draws():
    prompts, rows = stopped_after_success()
    losses = Losses({"size": lambda prompt, reference, one: len(one) / 10}, {"size": 0.5})
    with pytest.raises(ValueError, match="of each prompt for losses"):
        sampler_of(prompts, rows, losses=losses).fit(prompts, ["right"] * 300)


def test_data_with_holes_are_kept_and_cut(tmp_path):
    full = world(30, 4, 0)
    holed = with_holes(full, counts_of(full, "after success", None))
    holed.save(tmp_path / "data.npz")
    again = CalibrationData.load(tmp_path / "data.npz")
    np.testing.assert_array_equal(again.n_draws, holed.n_draws)
    assert again.truncate(1).n_made == 30
    assert plan(again, 0.3).share == plan(full, 0.3).share  # each prompt shows whether K would do
    with pytest.raises(ValueError, match=r"truncate\(1\) keeps as many of all"):
        search_frontier(again)


@pytest.mark.parametrize(
    ("quality", "labels", "match"),
    [
        ([[0.5, np.nan, 0.5]], [[1, -1, 0]], "quality must lie"),
        ([[0.5, 0.5, np.nan]], [[1, 0, 1]], "label must be -1 or NaN"),
        ([[0.5, 0.5, np.nan]], [[1, np.nan, np.nan]], "admissible must lie"),
    ],
)
def test_gaps_and_labels_of_nothing_are_refused(quality, labels, match):
    with pytest.raises(ValueError, match=match):
        CalibrationData(quality, np.zeros((1, 3, 3)), labels)
