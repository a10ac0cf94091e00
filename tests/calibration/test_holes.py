"""Tables whose draws end early: nothing is certified that the full table would not certify."""

import json
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm import ConformalSampler
from sklearn_clm.__main__ import main
from sklearn_clm.calibration import (
    CalibrationData,
    SamplingRule,
    learn_then_test,
    search_frontier,
)
from sklearn_clm.calibration._exit_policy import LevelPath
from sklearn_clm.calibration._surface import evaluate_configurations
from sklearn_clm.calibration._tests import BinomialTest, NestedTest
from sklearn_clm.calibration.path import ThresholdPath
from sklearn_clm.calibration.risk import MissesIfAny
from sklearn_clm.calibration.table import Table
from sklearn_clm.evaluation import plan
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, LazyJudging, Losses, ThresholdPolicy
from sklearn_clm.scoring import get_set_score

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
        return np.minimum(1 + np.argmax(np.cumsum(~right, axis=1) >= 2, axis=1), k)
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
        path = ThresholdPath(Table(data), rows, frontier, get_set_score("max"), MissesIfAny())
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
    test = BinomialTest(path, path.risk, 0.3, 0.05)
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
    assert found.bound == "at most "


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
    with pytest.warns(UserWarning, match="returns all of them"):
        sampler.fit(prompts, ["right"] * 300)
    assert sampler.calibration_.rule.level < 0.0


def test_what_needs_all_draws_refuses_fewer():
    prompts, rows = stopped_after_success()
    sampler = sampler_of(prompts, rows, policy=AnswerPolicy())
    with pytest.raises(ValueError, match="for AnswerPolicy, got as few as 1 instead: calibrate"):
        sampler.fit(prompts, ["right"] * 300)
    assert not hasattr(sampler, "calibration_")
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
