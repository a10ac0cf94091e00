"""Component calibration against its definition, lazily as well."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import binom

from sklearn_clm.calibration import (
    ComponentCalibrationData,
    component_learn_then_test,
    critical_count,
)
from sklearn_clm.calibration.certify import nth_largest_by_asking
from sklearn_clm.calibration.components import ComponentEntries, ComponentPath
from sklearn_clm.calibration.risk import MISSES, WrongComponents
from sklearn_clm.calibration.tests import errors_at

SCORES = [-math.inf, -1.0, 0.0, 0.25, 0.5, 0.75, 1.0]
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def some_prompts(draw):
    """Components of 15 to 40 prompts, up to 5 of each: pairs of a score and a label."""
    most, share_right = draw(st.integers(0, 5)), draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    counts = draw(st.integers(15, 40))
    rng = np.random.default_rng(draw(SEEDS))
    return [
        [(SCORES[rng.integers(7)], bool(rng.random() < share_right)) for _ in range(count)]
        for count in rng.integers(0, most + 1, counts)
    ]


PROMPTS = some_prompts()


def as_data(prompts):
    return ComponentCalibrationData.from_arrays(
        [[score for score, _ in row] for row in prompts],
        [[label for _, label in row] for row in prompts],
    )


def assert_same(data, expected):
    for name in ("scores", "labels", "offsets"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))


def by_definition(prompts, alpha, delta, max_wrong=0):
    """Algorithm 2's threshold from the definition of the loss, one threshold at a time."""
    best = math.inf
    for gamma in sorted({score for row in prompts for score, _ in row}, reverse=True):
        wrong = [sum(s >= gamma and not label for s, label in row) for row in prompts]
        errors = sum(count > max_wrong for count in wrong)
        if binom.cdf(errors, len(prompts), alpha) > delta:
            break
        best = gamma
    return best


@settings(max_examples=60, deadline=None)
@given(PROMPTS, st.sampled_from([0.2, 0.35, 0.6]), st.sampled_from([0.05, 0.2]))
def test_result_is_that_of_the_definition(prompts, alpha, delta):
    result = component_learn_then_test(as_data(prompts), alpha, delta)
    gamma = by_definition(prompts, alpha, delta)
    assert (result.gamma_hat == math.inf) == (gamma == math.inf)
    for score in {score for row in prompts for score, _ in row}:
        assert (score >= result.gamma_hat) == (score >= gamma)
        # between scores, but for -inf, below which there is nothing
        assert score != result.gamma_hat or score == -math.inf
    assert (result.alpha, result.delta, result.n_calibration) == (alpha, delta, len(prompts))
    assert result.n_errors.dtype == np.int64
    p_values = binom.cdf(result.n_errors, len(prompts), alpha)
    assert_allclose(result.p_values, p_values, rtol=1e-9, atol=0)
    assert (np.diff(result.thresholds) < 0).all()
    assert (np.diff(result.n_errors) >= 0).all()
    for gamma, errors, count in zip(result.thresholds, result.n_errors, result.n_components):
        assert errors == sum(any(s >= gamma and not ok for s, ok in row) for row in prompts)
        assert count == sum(s >= gamma for row in prompts for s, _ in row) / len(prompts)
    if result.thresholds.size:
        low, high = result.achievable_alpha
        n_wrong = sum(any(not ok for _, ok in row) for row in prompts)
        assert high == n_wrong / len(prompts)
        assert low <= high


@pytest.mark.parametrize("n_wrong", [25, 50])
def test_first_test_fails(n_wrong):
    # the highest score of all is wrong for many prompts
    data = as_data([[(1.0, i >= n_wrong), (0.5, True)] for i in range(50)])
    result = component_learn_then_test(data, 0.3)
    assert result.gamma_hat == math.inf
    if n_wrong == 50:
        assert result.smallest_alpha == 1.0
    else:
        assert 0.5 < result.smallest_alpha < 0.7
        assert component_learn_then_test(data, result.smallest_alpha).gamma_hat < math.inf


def test_no_component_at_all():
    result = component_learn_then_test(as_data([[]] * 30), 0.3)
    assert (result.gamma_hat, result.achievable_alpha) == (math.inf, (0.0, 0.0))
    assert math.isnan(result.smallest_alpha)


def test_save_and_load(tmp_path):
    data = ComponentCalibrationData.from_arrays([[0.9, -math.inf], [], [0.7]], [[1, 0], [], [-1]])
    data.save(tmp_path / "components.npz")
    assert_same(ComponentCalibrationData.load(tmp_path / "components.npz"), data)
    assert [path.name for path in tmp_path.iterdir()] == ["components.npz"]


def test_unknown_labels_are_kept_and_refused_where_they_matter():
    data = ComponentCalibrationData.from_arrays([[0.9, 0.4], [0.7]] * 10, [[1, -1], [0]] * 10)
    assert data.labels.tolist() == [1, -1, 0] * 10
    assert data.unknown.tolist() == [False, True, False] * 10
    assert data.take([1]).unknown is None
    assert data.take([0, 1]).labels.tolist() == [1, -1, 0]
    unlabelled = data.with_labels(np.full(30, -1))
    with pytest.raises(ValueError, match=r"alpha=0\.5, got 30 unknown labels"):
        component_learn_then_test(unlabelled, 0.5)
    with pytest.raises(ValueError, match="zip"):
        judged(unlabelled, 0.5, 0.05, lambda which: [])


def test_too_few_prompts():
    data = as_data([[(0.5, True)]] * 9)
    with pytest.raises(ValueError, match=r"is 8, .* fewer than 9"):
        component_learn_then_test(data.take(np.arange(8)), 0.3)
    assert component_learn_then_test(data, 0.3).gamma_hat == 0.25


@pytest.mark.parametrize("noise", [1e-16, 1e-8])
def test_last_digits_of_a_score_select_nothing_else(noise):
    """Scores computed anew: what is selected, and what must stay out, is the same."""
    rng = np.random.default_rng(0)
    scores = rng.choice([0.2, 0.5, 0.6, 0.9], 600)
    offsets = np.arange(0, 601, 3)
    admissible = rng.random(600) < scores
    anew, known = (scores * (1 + noise * rng.normal(size=600)) for _ in range(2))
    for alpha in (0.2, 0.45, 0.7, 0.9):
        exact, other = (
            component_learn_then_test(ComponentCalibrationData(one, admissible, offsets), alpha)
            for one in (scores, known)
        )
        assert exact.gamma_hat == pytest.approx(other.gamma_hat)
        assert np.array_equal(anew >= other.gamma_hat, scores >= exact.gamma_hat)
        # the largest score that must stay out does
        worst = np.where(admissible, -np.inf, known).reshape(-1, 3).max(axis=1)
        assert np.sum(worst >= other.gamma_hat) <= critical_count(200, alpha, 0.05)


# Lazy judging: the threshold of all labels, and none asked in vain


def component_data(rng, n, *, ties):
    """Scores, often equal, sometimes -inf; high ones are mostly right."""
    counts = rng.integers(0, 6, n)
    counts[0] = 2
    scores = rng.random(counts.sum())
    if ties:
        scores = np.round(scores * 8) / 8
        scores[rng.random(len(scores)) < 0.05] = -np.inf
    admissible = rng.random(len(scores)) < 0.5 + 0.5 * np.maximum(scores, 0)
    return ComponentCalibrationData(scores, admissible, np.concatenate([[0], np.cumsum(counts)]))


def judged(data, alpha, delta, judge, max_wrong=0):
    """The data with the labels that the tests need."""
    entries = ComponentEntries(data, judge, max_wrong=max_wrong)
    nth_largest_by_asking(entries, critical_count(data.n_prompts, alpha, delta) + 1)
    return data.with_labels(entries.labels)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("share_known", [0.0, 0.3])
def test_the_threshold_is_that_of_all_labels(ties, share_known):
    rng = np.random.default_rng(0)
    for _ in range(25):
        full = component_data(rng, int(rng.integers(12, 40)), ties=ties)
        alpha = float(rng.uniform(0.25, 0.7))
        known = np.where(rng.random(full.n_components) < share_known, full.admissible, -1)
        asked = []

        def judge(which, asked=asked, full=full):
            prompts = full.prompt_index[which]
            assert len(set(prompts)) == len(prompts)
            assert (np.diff(np.exp(full.scores[which])) <= 0).all()
            asked.extend(which)
            return full.admissible[which]

        data = judged(full.with_labels(known), alpha, 0.1, judge)
        assert len(set(asked)) == len(asked)
        assert not np.isin(asked, np.flatnonzero(known >= 0)).any()
        lazily, eagerly = (component_learn_then_test(one, alpha, 0.1) for one in (data, full))
        assert lazily.gamma_hat == eagerly.gamma_hat
        valid = eagerly.thresholds >= eagerly.gamma_hat
        assert np.array_equal(lazily.p_values <= 0.1, eagerly.p_values <= 0.1)
        assert np.array_equal(lazily.n_errors[lazily.exact], eagerly.n_errors[lazily.exact])
        assert (lazily.n_errors[valid] >= eagerly.n_errors[valid]).all()
        assert (lazily.n_errors[~valid] <= eagerly.n_errors[~valid]).all()
        assert np.array_equal(lazily.n_components, eagerly.n_components)


@settings(max_examples=60, deadline=None)
@given(PROMPTS, st.sampled_from([0.2, 0.35, 0.6]), st.integers(0, 3))
def test_some_wrong_ones_are_tolerated_as_by_definition(prompts, alpha, max_wrong):
    result = component_learn_then_test(as_data(prompts), alpha, 0.1, max_wrong=max_wrong)
    gamma = by_definition(prompts, alpha, 0.1, max_wrong)
    for score in {score for row in prompts for score, _ in row}:
        assert (score >= result.gamma_hat) == (score >= gamma)


@pytest.mark.parametrize("max_wrong", [1, 3])
@pytest.mark.parametrize("ties", [False, True])
def test_with_some_tolerated_lazily_too(max_wrong, ties):
    rng = np.random.default_rng(max_wrong)
    n_asked = n_components = 0
    for _ in range(25):
        full = component_data(rng, int(rng.integers(12, 40)), ties=ties)
        # many of each prompt, else no prompt errs
        full = ComponentCalibrationData(
            full.scores, rng.random(full.n_components) < 0.4, full.offsets
        )
        alpha = float(rng.uniform(0.25, 0.6))
        asked = []

        def judge(which, asked=asked, full=full):
            prompts = full.prompt_index[which]
            assert len(set(prompts)) == len(prompts)
            asked.extend(which)
            return full.admissible[which]

        unknown = full.with_labels(np.full(full.n_components, -1))
        data = judged(unknown, alpha, 0.1, judge, max_wrong)
        assert len(set(asked)) == len(asked)
        lazily, eagerly = (
            component_learn_then_test(one, alpha, 0.1, max_wrong=max_wrong) for one in (data, full)
        )
        assert lazily.gamma_hat == eagerly.gamma_hat
        assert np.array_equal(lazily.p_values <= 0.1, eagerly.p_values <= 0.1)
        n_asked, n_components = n_asked + len(asked), n_components + full.n_components
    assert n_asked < 0.8 * n_components


def test_a_number_of_tolerated_ones_is_a_count():
    with pytest.raises(ValueError, match=r"max_wrong must be an integer of at least 0, got -1"):
        component_learn_then_test(as_data([[(0.5, True)]] * 30), 0.3, max_wrong=-1)


@settings(max_examples=60, deadline=None)
@given(PROMPTS)
def test_errors_of_a_path_are_those_of_the_risk_that_is_asked_about(prompts):
    data = as_data(prompts)
    path = ComponentPath(data, np.arange(data.n_prompts))
    # one path for all risks: how many wrong ones are tolerated is no property of it
    for risk in (WrongComponents(), WrongComponents(2), MISSES, WrongComponents()):
        for step, threshold in enumerate(path.thresholds):
            n_errors = 0
            for row in prompts:
                is_right = [right for score, right in row if score >= threshold]
                n_wrong = is_right.count(False)
                errs = not any(is_right) if risk is MISSES else n_wrong >= risk.n_settling
                n_errors += errs
            assert errors_at(path, risk, step) == (n_errors, n_errors)
