"""Lazy judging of components: the threshold of all labels, and none asked in vain."""

from collections import Counter

import numpy as np
import pytest

from sklearn_clm.calibration import (
    ComponentCalibrationData,
    component_learn_then_test,
    critical_count,
)
from sklearn_clm.calibration._components import components_to_ask, judge_components


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


def one_by_one(data, truth, allowed):
    """The components that the plain walk asks about, from the highest score down."""
    unknown = np.flatnonzero(data.labels < 0)
    left, wrong, asked = Counter(data.prompt_index[unknown].tolist()), set(), []
    for c in unknown[np.argsort(-data.scores[unknown])]:
        possible = sum(count > 0 for prompt, count in left.items() if prompt not in wrong)
        if len(wrong) > allowed or len(wrong) + possible <= allowed:
            break
        prompt = int(data.prompt_index[c])
        if prompt in wrong:
            continue
        left[prompt] -= 1
        asked.append(c)
        if not truth[c]:
            wrong.add(prompt)
    return asked


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

        data = judge_components(full.with_labels(known), alpha, 0.1, judge)
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
        if not ties and not share_known:
            allowed = int(critical_count(full.n_prompts, alpha, 0.1))
            walked = one_by_one(full.with_labels(known), full.admissible, allowed)
            assert set(asked) == set(walked)


def test_what_is_left_at_most_is_never_exceeded_and_only_falls():
    rng = np.random.default_rng(1)
    for _ in range(30):
        full = component_data(rng, 30, ties=True)
        unlabelled = full.with_labels(np.full(full.n_components, -1))
        known, bounds, n_asked = unlabelled.labels, [], []

        def judge(which, full=full, known=known, bounds=bounds, n_asked=n_asked):
            askable = components_to_ask(full.with_labels(known), 0.4)
            assert np.isin(which, askable).all()
            bounds.append(len(askable))
            n_asked.append(len(which))
            known[which] = full.admissible[which]
            return full.admissible[which]

        judge_components(unlabelled, 0.4, 0.05, judge)
        left = np.cumsum(n_asked[::-1])[::-1]
        assert (np.array(bounds) >= left).all()
        assert (np.diff(bounds) <= 0).all()


def test_few_labels_are_enough():
    rng = np.random.default_rng(2)
    scores = rng.random((400, 10))
    full = ComponentCalibrationData.from_arrays(scores, rng.random((400, 10)) < scores)
    data = judge_components(
        full.with_labels(np.full(4000, -1)), 0.3, 0.05, lambda which: full.admissible[which]
    )
    assert np.sum(data.labels >= 0) < 1000
    assert component_learn_then_test(data, 0.3).gamma_hat == (
        component_learn_then_test(full, 0.3).gamma_hat
    )


def test_unknown_labels_are_kept_and_refused_where_they_matter(tmp_path):
    data = ComponentCalibrationData.from_arrays([[0.9, 0.4], [0.7]] * 10, [[1, -1], [0]] * 10)
    assert data.labels.tolist() == [1, -1, 0] * 10
    assert data.unknown.tolist() == [False, True, False] * 10
    assert data.take([1]).unknown is None
    assert data.take([0, 1]).labels.tolist() == [1, -1, 0]
    data.save(tmp_path / "components.npz")
    assert ComponentCalibrationData.load(tmp_path / "components.npz") == data
    assert data != data.with_labels([1, 0, 0] * 10)
    unlabelled = data.with_labels(np.full(30, -1))
    with pytest.raises(ValueError, match=r"decide the tests at alpha=0\.5, got 30 unknown labels"):
        component_learn_then_test(unlabelled, 0.5)
    with pytest.raises(ValueError, match=r"one verdict for each of \d+ components, got 0 instead"):
        judge_components(unlabelled, 0.5, 0.05, lambda which: [])
    with pytest.raises(ValueError, match="admissible must hold booleans"):
        data.with_labels(np.full(30, 2))
