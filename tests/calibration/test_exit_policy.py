"""The exit policy: sets, stops and levels of the fast path are those of the plain rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration.certify import nth_largest, nth_largest_by_asking
from sklearn_clm.calibration.exit_model import exit_scores, fit_exit_model
from sklearn_clm.calibration.exit_policy import ExitEntries, ExitRule
from sklearn_clm.calibration.table import Table
from tests.calibration.tables import exit_scores_of, lazy_table

VALUES = [0.0, 0.1, 0.5, 0.5, 0.9, 1.0]


def questions(rng, n, k=8, n_answers=6):
    """Prompts whose frequent answers tend to be right, some of them hopeless."""
    logits = rng.normal(0, rng.choice([0.5, 2.5], (n, 1)), (n, n_answers))
    share = np.exp(logits)
    share /= share.sum(axis=1, keepdims=True)
    answers = np.stack([rng.choice(n_answers, k, p=row) for row in share])
    right = np.array([rng.choice(n_answers + 1, p=[*(0.9 * row), 0.1]) for row in share])
    same = answers[:, :, np.newaxis] == answers[:, np.newaxis, :]
    quality = np.take_along_axis(share, answers, axis=1)
    return quality, np.where(same, 1.0, 0.2), same.argmax(axis=2), answers == right[:, np.newaxis]


def scores_of(model, quality, similarity, first):
    data = CalibrationData(quality, similarity, np.ones(first.shape), texts=first)
    return exit_scores_of(model, data)


def model_of(quality, similarity, first, labels, **options):
    options = {"new_classifier": LogisticRegression, "epsilon": 0.3, **options}
    data = CalibrationData(quality, similarity, labels.astype(np.int8), texts=first)
    return fit_exit_model(data, **options)


def learnt(rng, n=120, **options):
    return model_of(*questions(rng, n), **options)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.sampled_from([*VALUES, -np.inf, np.inf]),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_scores_say_what_the_plain_rule_does(seed, k_max, level, rho):
    rng = np.random.default_rng(seed)
    first = np.array([rng.integers(0, j + 1) for j in range(k_max)])
    first = np.where(first[first] == first, first, np.arange(k_max))
    text = np.full((k_max, k_max), -np.inf)
    for k in range(k_max):
        seen = np.unique(first[: k + 1])
        text[k, seen] = rng.choice(VALUES, len(seen))
    arrival = rng.choice(VALUES, k_max)
    tau, exits = exit_scores(text[np.newaxis], arrival[np.newaxis], rho)
    rule = ExitRule(level, rho, k_max)
    k = 0
    while not rule.done:
        rule.update(text[k], arrival[k])
        k += 1
    assert set(rule.accepted) == set(np.flatnonzero(tau[0] >= max(level, -1e300)))
    below = np.flatnonzero(exits[0] < level)
    assert rule.n_samples == (below[0] + 1 if len(below) else k_max)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_sets_are_nested(seed):
    rng = np.random.default_rng(seed)
    text, arrival = rng.choice(VALUES, (4, 5, 5)), rng.choice(VALUES, (4, 5))
    text[:, np.arange(5)[:, None] < np.arange(5)] = -np.inf
    tau, exits = exit_scores(text, arrival, 0.7)
    stops = [1 + np.sum(exits[:, :-1] >= level, axis=1) for level in sorted(VALUES)]
    assert np.all(np.diff(stops, axis=0) <= 0)
    assert np.all(tau[text[:, -1] > -np.inf] > -np.inf)


def test_draw_by_draw_is_all_at_once():
    rng = np.random.default_rng(1)
    model = learnt(rng)
    quality, similarity, first, _ = questions(rng, 30)
    tau, exits = scores_of(model, quality, similarity, first)
    level = 0.4
    paths = model.paths(30)
    rules = [ExitRule(level, model.rho, 8) for _ in range(30)]
    while open_prompts := [i for i in range(30) if not rules[i].done]:
        # any part of the open prompts, in any order: what a service answers first
        rows = rng.permutation(open_prompts)[: rng.integers(1, len(open_prompts) + 1)]
        draws = paths.n_draws[rows]
        paths.update(rows, quality[rows, draws], similarity[rows, draws], first[rows, draws])
        text, arrival = model.probabilities(paths, rows)
        for row, probabilities, chance in zip(rows, text, arrival):
            rules[row].update(probabilities, chance)
    for i, rule in enumerate(rules):
        assert set(rule.accepted) == set(np.flatnonzero(tau[i] >= level))
        assert rule.n_samples == 1 + np.sum(exits[i, :-1] >= level)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("same_text", [None, 0.9])
def test_the_level_is_that_of_the_full_table(seed, same_text):
    rng = np.random.default_rng(seed)
    model = replace(learnt(rng), same_text=same_text)
    quality, similarity, first, admissible = questions(rng, 60)
    data = CalibrationData(quality, similarity, admissible, texts=first)
    tau, exits = scores_of(model, quality, similarity, first)
    scores = np.where(admissible, tau, -np.inf).max(axis=1)
    for n_errors in (-1, 0, 6, 20, 59):
        n = 60 - n_errors
        level = nth_largest(scores, n)
        assert level == [-np.inf, *np.sort(scores)][n_errors + 1]
        assert nth_largest_by_asking(ExitEntries(Table(data), np.arange(60), model), n) == level
        for draws in (True, False):
            table = lazy_table(data, draws=draws)
            entries = ExitEntries(table, np.arange(60), model)
            assert nth_largest_by_asking(entries, n) == level
            judged = np.argwhere((table.labels >= 0) & (first == np.arange(8)))
            assert all(tau[i, j] >= level for i, j in judged)
            # no draw is made beyond the stop of predict, and draw_to makes those up to it
            stops = 1 + np.sum(exits[:, :-1] >= level, axis=1)
            assert draws or np.all(table.n_draws <= stops)
            entries.draw_to(level)
            if level > -np.inf:
                assert draws or np.array_equal(table.n_draws, stops)
                assert np.array_equal(entries.tau >= level, tau >= level)


@pytest.mark.parametrize("seed", range(3))
def test_the_level_in_use_stands_between_scores(seed):
    rng = np.random.default_rng(seed)
    model = learnt(rng)
    quality, similarity, first, admissible = questions(rng, 60)
    data = CalibrationData(quality, similarity, admissible, texts=first)
    filled = ExitEntries(Table(data), np.arange(60), model)
    observed = np.append(filled.tau, filled.exits)
    for n_errors in (0, 6, 20):
        entries = ExitEntries(lazy_table(data, draws=False), np.arange(60), model)
        level = nth_largest_by_asking(entries, 60 - n_errors)
        if level == -np.inf:
            assert entries.below(level) == level
            continue
        # lazily as well, though many scores are not known
        lower = entries.below(level)
        assert lower == filled.below(level)
        apart = observed[np.abs(observed - level) > 1e-6]
        assert np.array_equal(apart >= lower, apart >= level)
        assert np.abs(observed - lower).min() > 1e-7 * level
        assert lower < level
