import numpy as np
import pytest

from sklearn_clm.calibration import ComponentCalibrationData, component_learn_then_test
from sklearn_clm.evaluation import run_component_trials
from sklearn_clm.evaluation._trials import random_splits


def simulated(n, seed=0, ties=False):
    """Ragged prompts whose components are right with probability growing in their score."""
    rng = np.random.default_rng(seed)
    rows = [rng.random(rng.integers(0, 6)) for _ in range(n)]
    if ties:
        rows = [np.round(row, 1) for row in rows]
        rows = [np.where(row == 0.0, -np.inf, row) for row in rows]
    labels = [rng.random(len(row)) < np.maximum(row, 0.0) ** 0.3 for row in rows]
    return ComponentCalibrationData.from_arrays(rows, labels)


@pytest.mark.parametrize("max_wrong", [0, 1])
@pytest.mark.parametrize("ties", [False, True])
def test_thresholds_are_those_of_learn_then_test(ties, max_wrong):
    data = simulated(300, ties=ties)
    alphas = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9])
    options = {"n_trials": 3, "random_state": 1}
    results = run_component_trials(
        {"s": data}, alphas, calibration_fraction=0.4, max_wrong=max_wrong, **options
    )
    found = results.thresholds["gamma"][0]
    for split, gammas in zip(random_splits(data.digests, 120, **options), found, strict=True):
        part = data.take(split.calibration)
        expected = [
            component_learn_then_test(part, alpha, max_wrong=max_wrong).gamma_hat
            for alpha in alphas
        ]
        assert gammas.tolist() == expected


@pytest.mark.parametrize("max_wrong", [0, 1])
def test_measures_by_hand(max_wrong):
    data = simulated(60, ties=True)
    data.prompts = np.arange(60, dtype=np.uint64)
    references = [np.array([0.3, -np.inf, 0.9])[: i % 4] for i in range(60)]
    alphas = [0.05, 0.2, 0.3, 0.4, 0.5, 0.7, 0.99]
    options = {"n_trials": 4, "random_state": 0, "max_wrong": max_wrong}
    own = run_component_trials({"s": data}, alphas, **options)
    covering = run_component_trials(
        {"s": data}, alphas, reference_scores={"s": references}, **options
    )
    chosen_gammas = own.thresholds["gamma"]
    assert {-np.inf, np.inf} < set(chosen_gammas.ravel())
    for t, split in enumerate(random_splits(data.digests, 18, n_trials=4, random_state=0)):
        for a, gamma in enumerate(chosen_gammas[0, t]):
            losses, numbers, recalls, covered = [], [], [], []
            for i in split.test:
                mine = slice(data.offsets[i], data.offsets[i + 1])
                scores, right = data.scores[mine], data.admissible[mine]
                # an empty selection where nothing is certified
                chosen = (scores >= gamma) & (gamma < np.inf)
                losses.append((chosen & ~right).sum() > max_wrong)
                numbers.append(chosen.sum())
                if right.any():
                    recalls.append((chosen & right).sum() / right.sum())
                if len(references[i]):
                    matched = references[i] > -np.inf
                    covered.append(np.mean(matched & (references[i] >= gamma)))
            measured = {name: values[0, t, a] for name, values in own.measures.items()}
            empty = [n == 0 for n in numbers]
            wanted = {"loss": losses, "number": numbers, "recall": recalls, "empty": empty}
            assert measured == pytest.approx({name: np.mean(one) for name, one in wanted.items()})
            assert covering.measures["recall"][0, t, a] == pytest.approx(np.mean(covered))


def test_better_scores_select_more():
    rng = np.random.default_rng(3)
    good = simulated(1500)
    noise = ComponentCalibrationData(rng.random(good.n_components), good.admissible, good.offsets)
    results = run_component_trials({"good": good, "noise": noise}, n_trials=10, random_state=0)
    assert results.compare("good", "noise", "number", level=0.3).min() > 0
    assert results.trivial.shape == (2, 10, 99)
    assert (np.diff(results.mean("number")[0][40:]) >= 0).all()
    np.testing.assert_array_equal(results.trivial[0], results.trivial[1])


def test_without_any_target_recall_is_nan():
    data = ComponentCalibrationData.from_arrays(np.full((40, 1), 0.5), np.zeros((40, 1)))
    results = run_component_trials({"s": data}, [0.5], n_trials=2, random_state=0)
    assert np.isnan(results.measures["recall"]).all()
    assert results.null.all()
