import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config

from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    learn_then_test,
)
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.evaluation import run_component_trials, run_trials
from sklearn_clm.evaluation._trials import random_splits
from tests.evaluation.simulated import simulated_data

EPSILONS = np.linspace(0.05, 0.6, 12)
OPTIONS = {"epsilons": EPSILONS, "n_trials": 6, "n_lambdas": 6, "random_state": 0}
OPTIONS |= {"frontier_fraction": 0.1, "testing_fraction": 0.2}


@pytest.fixture(scope="module")
def data():
    return simulated_data(600, 6)


@pytest.fixture(scope="module")
def results(data):
    return run_trials(data, **OPTIONS)


@given(
    seed=st.integers(0, 2**32 - 1),
    delta=st.floats(0.01, 0.5),
    weights=st.tuples(st.floats(0, 2), st.floats(0, 2)),
)
@settings(max_examples=25, deadline=None)
def test_choices_among_ties_are_those_of_learn_then_test(seed, delta, weights):
    rng = np.random.default_rng(seed)
    quality = rng.integers(0, 3, size=(60, 3)).astype(float)
    data = CalibrationData(quality, np.zeros((60, 3, 3)), rng.random((60, 3)) < 0.4 + quality / 5)
    options = {"n_lambdas": 3, "size_weight": weights[0], "excess_weight": weights[1]}
    results = run_trials(
        data, ["max"], EPSILONS, delta=delta, n_trials=1, random_state=0, **options
    )
    split = next(random_splits(data.digests, 36, 1, random_state=0))
    part, options = data.take(split.calibration), {"random_state": split.seed, **options}
    for e, result in enumerate(learn_then_test(part, EPSILONS, delta, **options)):
        assert results.null[0, 0, e] == (result.lambda_hat is None)
        chosen = [one[0, 0, e] for one in results.thresholds.values()]
        np.testing.assert_array_equal(chosen, result.lambda_hat or [np.nan] * 3)


def test_a_trial_is_learn_then_test_on_its_split(data, results):
    # the splits are those of the seed, so the first trial can be redone by hand
    split = next(random_splits(data.digests, 180, 6, random_state=0))
    used, test = data.take(split.calibration), data.take(split.test)
    for m, method in enumerate(results.methods):
        options = {"n_lambdas": 6, "optimization_fraction": 1 / 3, "random_state": split.seed}
        expected = learn_then_test(used, EPSILONS, set_score=method, **options)
        for e, result in enumerate(expected):
            assert results.null[m, 0, e] == (result.lambda_hat is None)
            chosen = tuple(one[m, 0, e] for one in results.thresholds.values())
            measured = {name: one[m, 0, e] for name, one in results.measures.items()}
            if result.lambda_hat is None:
                assert np.isnan([*chosen, *measured.values()]).all()
                continue
            assert chosen == result.lambda_hat
            risks = evaluate_configurations(test, [result.lambda_hat], set_score=method)
            assert measured["loss"] == risks.loss[0]
            assert measured["size"] == pytest.approx(risks.size[0], rel=1e-12)
            assert measured["relative_size"] == measured["size"] / 6
            assert measured["draws"] == pytest.approx(risks.samples[0], rel=1e-12)
            assert measured["excess"] == pytest.approx(risks.excess[0], rel=1e-12)


def test_achievable_and_trivial_epsilons(data, results):
    # null for small epsilons and for none larger; trivial for large ones
    assert (np.diff(results.null.astype(int), axis=2) <= 0).all()
    assert (np.diff(results.trivial.astype(int), axis=2) >= 0).all()
    assert results.null[..., 0].all()
    first = 1.0 - data.admissible[:, 0].mean()
    shares = results.trivial[0].mean(axis=0)  # the first draw of the test part satisfies them
    assert np.all(shares[first + 0.1 < EPSILONS] == 1.0)
    assert np.all(shares[first - 0.1 > EPSILONS] == 0.0)


def test_methods_are_what_they_claim(results):
    first_k, reject = map(results.methods.index, ("first_k", "first_k_reject"))
    size, draws = results.measures["size"], results.measures["draws"]
    found = ~results.null[first_k]
    # without rejection the set holds every draw
    np.testing.assert_array_equal(size[first_k][found], draws[first_k][found])
    assert (results.thresholds["similarity"][first_k][found] == np.inf).all()
    both = found & ~results.null[reject]
    assert (size[reject][both] <= draws[reject][both]).all()


def test_other_set_scores_and_their_names(data):
    def product(quality, accepted):
        return -np.where(accepted, np.log1p(-0.99 * quality), 0.0).sum(axis=1)

    options = {"epsilons": [0.4], "n_trials": 2, "n_lambdas": 4, "random_state": 0}
    assert run_trials(data, ["max", product], **options).methods == ("max", "product")
    named = run_trials(data, {"ours": product, "theirs": "sum"}, **options)
    assert named.methods == ("ours", "theirs")
    assert not named.null.all()


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_results_do_not_depend_on_n_jobs(data, results, backend):
    with parallel_config(backend=backend):
        parallel = run_trials(data, **OPTIONS, n_jobs=2)
    for name, values in (parallel.measures | parallel.thresholds).items():
        np.testing.assert_array_equal(values, (results.measures | results.thresholds)[name])


def test_what_is_searched_can_be_told(data):
    options = {"n_trials": 8, "n_lambdas": 6, "random_state": 0}
    free = run_trials(data, ["max"], [0.45], **options)
    measured = run_trials(data, ["max"], [0.45], k_max=4, **options).measures
    few = measured["draws"]
    priced = run_trials(data, ["max"], [0.45], draw_weight=1.0, **options)
    assert not free.null.any()
    assert few.max() <= 4
    np.testing.assert_array_equal(measured["relative_draws"], few / 4)
    assert priced.measures["draws"].mean() < free.measures["draws"].mean()


def test_progress_bar(data, capsys):
    run_trials(data, ["first_k"], [0.4], n_trials=2, random_state=0, verbose=1)
    assert "trials: 100%" in capsys.readouterr().err
    run_trials(data, ["first_k"], [0.4], n_trials=2, random_state=0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("set_score", {"methods": ["best"]}),
        (r"frontier_fraction \+ test", {"frontier_fraction": 0.6, "testing_fraction": 0.5}),
        ("prompts", {"data": simulated_data(2, 6)}),
        ("delta", {"data": simulated_data(300, 6), "epsilons": [0.01]}),
    ],
)
def test_what_leaves_nothing_to_measure_is_named(data, name, options):
    with pytest.raises(ValueError, match=name):
        run_trials(**{"data": data, **options})


def test_nothing_admissible_is_null_everywhere():
    rng = np.random.default_rng(0)
    data = CalibrationData(rng.random((100, 3)), rng.random((100, 3, 3)), np.zeros((100, 3)))
    results = run_trials(data, ["max"], [0.5, 0.9], n_trials=2, n_lambdas=3, random_state=0)
    assert results.null.all()
    assert np.isnan(results.mean("loss")).all()


def test_copies_of_a_prompt_are_in_one_part_of_a_trial():
    prompts = np.repeat(np.arange(100, dtype=np.uint64), 3)
    for split in random_splits(prompts, 180, 5, random_state=0):
        assert not np.isin(prompts[split.calibration], prompts[split.test]).any()
        assert len(split.calibration) == 180
    rng = np.random.default_rng(0)
    quality = rng.random((100, 4))
    data = CalibrationData(quality, np.zeros((100, 4, 4)), rng.random((100, 4)) < quality)
    data = data.take(np.repeat(np.arange(100), 3))
    data.prompts = prompts
    found = run_trials(data, ["max"], [0.3], n_trials=3, n_lambdas=5, random_state=0)
    parts = ComponentCalibrationData.from_arrays(quality, rng.random((100, 4)) < quality + 0.3)
    parts = parts.take(np.repeat(np.arange(100), 3))
    parts.prompts = prompts
    of_parts = run_component_trials(
        {"a": parts}, [0.5], calibration_fraction=0.6, n_trials=3, random_state=0
    )
    # of 120 rows in the test part, in whole prompts
    for one in (found, of_parts):
        assert not one.null.all()
        assert np.all(np.round(one.measures["loss"][~one.null] * 40, 6) % 1 == 0)
