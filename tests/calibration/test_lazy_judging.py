"""Lazy judging decides what the full table of labels decides, whatever the order."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    Frontier,
    LabelTable,
    SamplingRule,
    draws_asked_for,
    equal_texts,
    exit_level,
    exit_scores,
    get_set_score,
    impute_labels,
    judge_in_falling_order,
    judge_lazily,
    learn_then_test,
    learn_then_test_lazily,
    search_frontier,
    sets_at_stop,
    texts_for_exit,
    texts_for_tests,
)
from sklearn_clm.calibration._lazy_judging import StoppedSets
from tests.calibration.strategies import calibration_data, thresholds


@st.composite
def tables(draw):
    """Texts, their labels and a seed: few texts, so that many draws are equal."""
    n, k = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    texts = rng.integers(0, draw(st.integers(1, 6)), (n, k))
    of_text = rng.random((n, 6)) < draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    return equal_texts(texts.tolist()), np.take_along_axis(of_text, texts, axis=1), rng


def nested_sets(rng, n, k, m):
    """Accepted sets of a sequence of configurations, not necessarily nested, the first whole."""
    return [np.ones((n, k), dtype=bool), *(rng.random((m, n, k)) < 0.5)]


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(-1, 12))
def test_decisions_are_those_of_the_full_table(table, n_errors):
    first, truth, rng = table
    asked = []

    def judge(prompts, draws):
        assert len(set(prompts.tolist())) == len(prompts)
        asked.extend(zip(prompts.tolist(), draws.tolist()))
        return truth[prompts, draws]

    sets = nested_sets(rng, *first.shape, 4)
    lazy = LabelTable(first, judge)
    preference = rng.choice([-np.inf, 0.0, 1.0, np.inf], first.shape)
    decided = list(judge_lazily(sets, n_errors, lazy, preference))
    expected = []
    for accepted in sets:
        expected.append(int(np.sum(~np.any(accepted & truth, axis=1))))
        if expected[-1] > n_errors:
            break
    assert [one.rejected for one in decided] == [errors <= n_errors for errors in expected]
    for one, errors in zip(decided, expected, strict=True):
        assert one.fewest_errors <= errors <= one.most_errors
    assert len(set(asked)) == len(asked) == lazy.n_judgements
    known = lazy.labels >= 0
    assert np.array_equal(lazy.labels[known] == 1, truth[known])


@settings(max_examples=100, deadline=None)
@given(calibration_data(), thresholds(), st.integers(-1, 6), st.integers(0, 9), st.data())
def test_neither_order_nor_missing_draws_change_a_decision(data, grid, n_errors, start, more):
    k_max = data.k_max
    values = np.random.default_rng(start).choice([*grid, -np.inf, np.inf], (8, 3))
    configurations = [(np.inf, -np.inf, np.inf), *values.tolist()]
    budgets = [k_max, *(more.draw(st.integers(1, k_max)) for _ in configurations[1:])]
    frontier = Frontier(
        np.array(configurations), np.array(budgets), *np.zeros((2, len(configurations)))
    )
    score = get_set_score(more.draw(st.sampled_from(["max", "sum", "first_k", "first_k_reject"])))

    def table():
        return LabelTable(data.first, lambda prompts, draws: data.admissible[prompts, draws])

    whole = StoppedSets(data, frontier, score)
    errors = [int(np.sum(~np.any(sets & data.admissible, axis=1))) for sets in whole]
    expected = list(itertools.takewhile(lambda one: one <= n_errors, errors))
    part, made = data.rows(slice(None)), []
    part.n_draws = np.zeros(data.n_prompts, dtype=np.intp)

    def draw(prompts):
        part.n_draws[prompts] += 1
        made.extend(prompts)

    lazy, full = table(), table()
    sets = StoppedSets(part, frontier, score, draw)
    tests = judge_lazily(sets, n_errors, lazy, data.quality, start=start)
    assert [one.rejected for one in tests].count(True) == len(expected)
    for one, n in zip(tests, errors):
        assert one.fewest_errors <= n <= one.most_errors
    again = judge_lazily(whole, n_errors, full, data.quality, start=start)
    assert [one.most_errors for one in tests] == [one.most_errors for one in again]
    assert np.array_equal(lazy.labels, full.labels)
    assert part.n_draws.max(initial=0) <= k_max
    for m in range(len(tests)):
        sets.finish(m)
        assert np.array_equal(sets[m], whole[m])
        assert sets.costs(m) == whole.costs(m)


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(-1, 12), st.sampled_from([3, 50]))
def test_draws_that_a_level_asks_for(table, n_errors, n_values):
    first, truth, rng = table
    n, k_max = first.shape
    n_errors = min(n_errors, n - 1)
    text = rng.integers(0, n_values, (n, k_max, k_max)) / n_values  # many ties
    seen = (first == np.arange(k_max))[:, np.newaxis] & np.tri(k_max, dtype=bool)
    text = np.where(seen, text, -np.inf)
    arrival = rng.integers(0, n_values, (n, k_max)) / n_values
    tau, exits = exit_scores(text, arrival, 1.0)
    full = LabelTable(first, lambda prompts, draws: truth[prompts, draws])
    level = exit_level(judge_in_falling_order(tau, n_errors, full), n_errors)
    made, last = np.zeros(n, dtype=int), np.full(n, np.inf)
    known = np.full((n, k_max), -np.inf)

    def draw(prompts):
        made[prompts] += 1
        assert made.max() <= k_max
        last[prompts] = exits[prompts, made[prompts] - 1]
        known[prompts] = np.where(tau[prompts] > last[prompts, np.newaxis], tau[prompts], -np.inf)

    lazy = LabelTable(first, lambda prompts, draws: truth[prompts, draws])
    scores = judge_in_falling_order(known, n_errors, lazy, exits=last, draw=draw)
    assert exit_level(scores, n_errors) == level
    assert np.array_equal(lazy.labels, full.labels)
    if n_errors >= 0:
        assert np.all(made <= draws_asked_for(exits, scores, level))


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(-1, 12))
def test_level_is_that_of_the_full_table(table, n_errors):
    first, truth, rng = table
    n, k = first.shape
    n_errors = min(n_errors, n - 1)
    is_first = first == np.arange(k)
    tau = np.where(is_first, rng.choice([0.1, 0.2, 0.2, 0.7, np.inf, -np.inf], (n, k)), -np.inf)
    lazy = LabelTable(first, lambda prompts, draws: truth[prompts, draws])
    level = exit_level(judge_in_falling_order(tau, n_errors, lazy), n_errors)
    scores = np.where(truth, tau, -np.inf).max(axis=1)
    assert level == exit_level(scores, n_errors)
    judged = np.argwhere((lazy.labels >= 0) & is_first)
    assert all(tau[i, j] >= level for i, j in judged)


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(-1, 12), st.booleans())
def test_no_more_is_asked_than_is_said_beforehand(table, n_errors, is_exit):
    first, truth, rng = table
    n, k = first.shape
    is_text = first == np.arange(k)
    levels = rng.choice([0.1, 0.5, 0.9, np.inf], (n, k))
    tau, sets = np.where(is_text, levels, -np.inf), nested_sets(rng, n, k, 3)
    bounds = []

    def bound(lazy):
        if is_exit:
            return texts_for_exit(tau, n_errors, lazy)
        return texts_for_tests(sets, n_errors, lazy)

    def judge(prompts, draws):
        bounds.append(bound(lazy))
        assert bounds[-1][prompts, draws].all()
        return truth[prompts, draws]

    known = np.where(rng.random((n, k)) < 0.2, truth, -1).astype(np.int8)
    known = np.where(is_text, known, -1)
    lazy = LabelTable(first, judge, known)
    if is_exit:
        judge_in_falling_order(tau, n_errors, lazy)
    else:
        list(judge_lazily(sets, n_errors, lazy, rng.random((n, k))))
    bounds.append(bound(lazy))
    assert not (bounds[-1] & ~is_text).any()
    for earlier, later in itertools.pairwise(bounds):
        assert not (later & ~earlier).any()


def test_no_judgement_is_in_vain():
    # all admissible: exactly the witnesses that the decision needs
    first = np.tile(np.arange(5), (40, 1))
    batches = []

    def judge(prompts, draws):
        batches.append(len(prompts))
        return np.ones(len(prompts), dtype=bool)

    table = LabelTable(first, judge)
    (test,) = judge_lazily([np.ones((40, 5), dtype=bool)], 7, table, np.zeros((40, 5)))
    assert test == (True, 0, 7)
    assert table.n_judgements == 33
    assert max(batches) == 8  # no more than errors would have decided it, too


def test_witnesses_serve_later_configurations():
    first = np.tile(np.arange(3), (10, 1))
    table = LabelTable(first, lambda prompts, draws: [True] * len(prompts))
    everything = np.ones((10, 3), dtype=bool)
    tests = list(judge_lazily([everything] * 5, 2, table, np.zeros((10, 3))))
    assert [one.rejected for one in tests] == [True] * 5
    assert table.n_judgements == 8


def test_what_was_judged_before_an_error_is_kept():
    first = np.tile(np.arange(2), (20, 1))
    truth = np.random.default_rng(0).random((20, 2)) < 0.6
    fails_at = 9
    n_given = 0

    def judge(prompts, draws):
        nonlocal n_given
        for i, j in zip(prompts, draws):
            if n_given == fails_at:
                raise KeyboardInterrupt
            n_given += 1
            yield truth[i, j]

    table = LabelTable(first, judge)
    everything = [np.ones((20, 2), dtype=bool)]
    with pytest.raises(KeyboardInterrupt):
        list(judge_lazily(everything, 5, table, np.zeros((20, 2))))
    assert table.n_judgements == fails_at == np.sum(table.labels >= 0)
    fails_at = -1
    resumed = list(judge_lazily(everything, 5, table, np.zeros((20, 2))))
    fresh = LabelTable(first, lambda prompts, draws: truth[prompts, draws])
    assert resumed == list(judge_lazily(everything, 5, fresh, np.zeros((20, 2))))
    assert table.n_judgements == fresh.n_judgements


@pytest.mark.parametrize("n_verdicts", [0, 2])
def test_a_judge_gives_one_verdict_for_each_text(n_verdicts):
    table = LabelTable(np.array([[0]]), lambda prompts, draws: [True] * n_verdicts)
    with pytest.raises(ValueError, match="one verdict for each of 1 texts"):
        table.ask(np.array([0]), np.array([0]))


def test_equal_texts_have_one_label():
    known = np.array([[1, -1, 0]], dtype=np.int8)
    with pytest.raises(ValueError, match="equal texts one verdict"):
        LabelTable(np.array([[0, 1, 0]]), lambda prompts, draws: [], known)


def test_equal_texts():
    first = equal_texts([["a", "a", 1, "1"], [True, 1, 1.0, [1]]])
    assert first.tolist() == [[0, 0, 2, 3], [0, 1, 2, 3]]


@settings(max_examples=150, deadline=None)
@given(calibration_data(), thresholds(1), thresholds(1), thresholds(1), st.data())
def test_sets_at_stop_are_those_of_the_sampling_rule(data, l1, l2, l3, draw):
    names = ["max", "sum", "first_k", "first_k_reject", np.mean, mean_of_members]
    score = get_set_score(draw.draw(st.sampled_from(names)))
    k_max = draw.draw(st.integers(1, data.k_max))
    configuration = Configuration(l1[0], l2[0], l3[0])
    accepted, samples = sets_at_stop(data, configuration, k_max, score)
    for i in range(data.n_prompts):
        rule = SamplingRule(configuration, score, k_max, width=data.k_max)
        while not rule.done:
            j = rule.n_samples
            rule.update(data.quality[i, j], data.similarity[i, j, :j])
        assert rule.accepted == np.flatnonzero(accepted[i]).tolist()
        assert rule.n_samples == samples[i]


def mean_of_members(quality, accepted):
    return np.where(accepted, quality, 0).sum(axis=1) / np.maximum(accepted.sum(axis=1), 1)


def test_imputed_labels_keep_what_is_known_and_the_share_that_is_admissible():
    rng = np.random.default_rng(0)
    n, k = 400, 6
    answers = rng.integers(0, 4, (n, k))
    first = equal_texts(answers.tolist())
    truth = answers == 0
    quality = np.where(truth, rng.beta(4, 2, (n, k)), rng.beta(2, 4, (n, k)))
    quality = np.take_along_axis(quality, first, axis=1)
    similarity = np.where(first[:, :, None] == first[:, None, :], 1.0, 0.3)
    known = np.full((n, k), -1, dtype=np.int8)
    known[:, 0] = truth[:, 0]
    known = np.where(first == 0, known[:, :1], -1)
    labels = impute_labels(
        CalibrationData(quality, similarity, truth), first, known, LogisticRegression
    )
    assert np.array_equal(labels[known >= 0], truth[known >= 0])
    assert np.array_equal(np.take_along_axis(labels, first, axis=1), labels)
    assert abs(labels[known < 0].mean() - truth[known < 0].mean()) < 0.05
    assert np.mean(labels == truth) > 0.75


@pytest.mark.parametrize("set_score", ["max", "sum", "first_k", "first_k_reject"])
@pytest.mark.parametrize("seed", range(3))
def test_lambda_hat_is_that_of_all_labels(set_score, seed):
    rng = np.random.default_rng(seed)
    n, k = 240, 8
    answers = np.minimum(rng.geometric(rng.uniform(0.2, 0.9, (n, 1)), (n, k)), 5)
    first = equal_texts(answers.tolist())
    truth = answers == 1
    quality = np.take_along_axis(rng.normal(truth, 0.7), first, axis=1)
    similarity = np.where(first[:, :, None] == first[:, None, :], 1.0, 0.4)
    data = CalibrationData(quality, similarity, truth, texts=first)
    optimization, calibration = data.rows(slice(80)), data.rows(slice(80, n))
    frontier = search_frontier(optimization, set_score=set_score)
    for epsilon in (0.1, 0.25, 0.5):
        full = learn_then_test(
            calibration, epsilon, frontier=frontier, set_score=set_score, excess_weight=0
        )
        table = LabelTable(
            calibration.first, lambda prompts, draws: calibration.admissible[prompts, draws]
        )
        lazy = learn_then_test_lazily(
            calibration.with_labels(np.full(truth[80:].shape, -1)),
            frontier,
            epsilon,
            0.05,
            table,
            set_score=set_score,
            preference=rng.random(quality[80:].shape),
        )
        assert lazy.lambda_hat == full.lambda_hat
        assert np.array_equal(lazy.valid_lambdas, full.valid_lambdas)
        m = len(lazy.valid_lambdas)
        assert np.all(lazy.p_values[:m] <= 0.05)
        assert np.all(lazy.p_values[:m] >= full.p_values[:m])
        assert np.array_equal(lazy.p_values[lazy.exact], full.p_values[lazy.exact])
        assert lazy.n_judgements == table.n_judgements


def test_unknown_labels_are_refused_where_all_are_needed():
    data = CalibrationData([[0.5]] * 30, np.zeros((30, 1, 1)), [[1]] * 29 + [[-1]])
    with pytest.raises(ValueError, match="a label for each draw here, got 1 unknown"):
        learn_then_test(data, 0.3)
    assert data.take(np.arange(29)).unknown is None
    assert data.labels[-1] == -1
    with pytest.raises(ValueError, match="at least 9 prompts"):
        learn_then_test_lazily(
            data.rows(slice(8)),
            search_frontier(data.rows(slice(8))),
            0.3,
            0.05,
            LabelTable(data.first[:8], lambda prompts, draws: []),
        )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([[0, 0, 1]], "the first draw with an equal response"),
        ([[0, 2, 2]], "an earlier draw"),
        ([[0, 1]], "shape"),
        ([[0.0, 1.0, 2.0]], "integers"),
    ],
)
def test_texts_that_are_none(texts, message):
    with pytest.raises(ValueError, match=message):
        CalibrationData([[0.1] * 3], np.zeros((1, 3, 3)), [[1, 0, 0]], texts=texts)


def test_labels_and_texts_survive_files_and_parts(tmp_path):
    texts = np.array([[0, 0, 2], [0, 1, 0]])
    data = CalibrationData(
        [[0.1] * 3] * 2, np.zeros((2, 3, 3)), [[1, 1, -1], [0, 1, 0]], None, texts
    )
    data.save(tmp_path / "data.npz")
    loaded = CalibrationData.load(tmp_path / "data.npz")
    assert np.array_equal(loaded.labels, data.labels)
    assert np.array_equal(loaded.texts, texts)
    assert loaded.take([1, 0]).truncate(2).texts.tolist() == [[0, 1], [0, 0]]
    assert loaded.truncate(2).unknown is None
