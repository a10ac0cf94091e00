import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from sklearn_clm.calibration import (
    CalibrationData,
    binomial_p_value,
    evaluate_configurations,
    fixed_sequence_test,
    learn_then_test,
)
from sklearn_clm.evaluation import run_trials
from sklearn_clm.evaluation._splits import critical_counts
from sklearn_clm.evaluation._trials import choose
from tests.evaluation.simulated import simulated_data

EPSILONS = np.linspace(0.05, 0.6, 12)


@pytest.fixture(scope="module")
def data():
    return simulated_data(600, 6)


@pytest.fixture(scope="module")
def results(data):
    return run_trials(data, epsilons=EPSILONS, n_trials=6, n_lambdas=6, random_state=0)


@given(
    n_errors=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    objective=st.lists(st.integers(0, 5), min_size=12, max_size=12),
    epsilon=st.floats(0.01, 0.99),
    delta=st.floats(0.01, 0.5),
)
@settings(max_examples=200, deadline=None)
def test_choice_by_counts_is_the_choice_by_p_values(n_errors, objective, epsilon, delta):
    n_errors = np.array(n_errors)
    objective = np.array(objective[: len(n_errors)], dtype=float)
    critical = critical_counts(40, np.array([epsilon]), delta)
    valid = np.flatnonzero(fixed_sequence_test(binomial_p_value(n_errors, 40, epsilon), delta))
    expected = valid[np.argmin(objective[valid])] if len(valid) else -1
    assert choose(n_errors, objective, critical)[0] == expected


def test_critical_counts_at_the_ends():
    assert critical_counts(10, np.array([0.0, 1.0]), 0.05).tolist() == [-1, 10]


def test_a_trial_is_learn_then_test_on_its_split(data, results):
    # the splits are those of the seed, so the first trial can be redone by hand
    from sklearn_clm.evaluation._splits import trial_streams

    stream = trial_streams(0, 6)[0]
    order = stream.permutation(600)
    used, test = data.take(np.sort(order[:180])), data.take(np.sort(order[180:]))
    seed = int(stream.integers(2**31))
    for m, method in enumerate(results.methods):
        expected = learn_then_test(
            used,
            EPSILONS,
            set_score=method,
            n_lambdas=6,
            optimization_fraction=1 / 3,
            random_state=seed,
        )
        for e, result in enumerate(expected):
            assert results.null[m, 0, e] == (result.lambda_hat is None)
            if result.lambda_hat is None:
                assert np.isnan(results.lambdas[m, 0, e]).all()
                assert np.isnan(results.loss[m, 0, e])
                continue
            assert tuple(results.lambdas[m, 0, e]) == result.lambda_hat
            risks = evaluate_configurations(test, [result.lambda_hat], set_score=method)
            assert results.loss[m, 0, e] == risks.loss[0]
            assert results.size[m, 0, e] == pytest.approx(risks.size[0], rel=1e-12)
            assert results.draws[m, 0, e] == pytest.approx(risks.samples[0], rel=1e-12)
            assert results.excess[m, 0, e] == pytest.approx(risks.excess[0], rel=1e-12)


def test_achievable_and_trivial_epsilons(data, results):
    assert (results.n_frontier, results.n_testing, results.n_test) == (60, 120, 420)
    # null for small epsilons and for none larger; trivial for large ones
    assert (np.diff(results.null.astype(int), axis=2) <= 0).all()
    assert (np.diff(results.trivial.astype(int), axis=2) >= 0).all()
    assert results.null[..., 0].all()
    first = 1.0 - data.admissible[:, 0].mean()
    assert results.first_1_error.mean() == pytest.approx(first, abs=0.02)
    assert (results.first_k_error < results.first_1_error).all()


def test_methods_are_what_they_claim(results):
    first_k = results.methods.index("first_k")
    found = ~results.null[first_k]
    # without rejection the set holds every draw
    np.testing.assert_array_equal(results.size[first_k][found], results.draws[first_k][found])
    assert (results.lambdas[first_k][found][:, 0] == np.inf).all()
    reject = results.methods.index("first_k_reject")
    both = found & ~results.null[reject]
    assert (results.size[reject][both] <= results.draws[reject][both]).all()


def test_other_set_scores_and_their_names(data):
    def product(quality, accepted):
        return -np.where(accepted, np.log1p(-0.99 * quality), 0.0).sum(axis=1)

    options = {"epsilons": [0.4], "n_trials": 2, "n_lambdas": 4, "random_state": 0}
    assert run_trials(data, ["max", product], **options).methods == ("max", "product")
    named = run_trials(data, {"ours": product, "theirs": "sum"}, **options)
    assert named.methods == ("ours", "theirs")
    assert not named.null.all()


def test_methods_share_the_splits(data):
    options = {"epsilons": [0.4, 0.5], "n_trials": 3, "n_lambdas": 4, "random_state": 3}
    alone = run_trials(data, ["sum"], **options)
    among = run_trials(data, ["max", "sum"], **options)
    np.testing.assert_array_equal(alone.lambdas[0], among.lambdas[1])
    np.testing.assert_array_equal(alone.loss[0], among.loss[1])


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_results_do_not_depend_on_n_jobs(data, results, backend):
    from joblib import parallel_config

    with parallel_config(backend=backend):
        parallel = run_trials(
            data, epsilons=EPSILONS, n_trials=6, n_lambdas=6, random_state=0, n_jobs=2
        )
    np.testing.assert_array_equal(parallel.lambdas, results.lambdas)
    for measure in results.measures:
        np.testing.assert_array_equal(parallel.values(measure), results.values(measure))


def test_budgets_are_searched(data):
    results = run_trials(data, ["first_k"], [0.4, 0.5], n_trials=3, k_max=[2, 4], random_state=0)
    assert results.k_max == 4
    assert set(results.budgets[~results.null].tolist()) <= {2, 4}
    assert (results.draws[~results.null] <= results.budgets[~results.null]).all()
    single = run_trials(data, ["first_k"], [0.4, 0.5], n_trials=3, k_max=3, random_state=0)
    assert (single.budgets[~single.null] == 3).all()


@pytest.mark.slow
def test_test_loss_exceeds_epsilon_rarely():
    # the truth is nearly the loss on the test part, 96 % of a large population, and the parts
    # that calibrate hardly overlap from trial to trial
    n_trials, delta = 100, 0.1
    results = run_trials(
        simulated_data(8_000, 4, seed=7),
        epsilons=[0.15, 0.25, 0.35],
        delta=delta,
        n_trials=n_trials,
        frontier_fraction=0.01,
        testing_fraction=0.02,
        n_lambdas=5,
        random_state=1,
    )
    exceeded = (results.loss > results.epsilons).sum(axis=1)
    assert not results.null[..., 1:].all(axis=(1, 2)).any()
    # a valid procedure passes all 4 x 3 comparisons in 99 of 100 repetitions of this test
    assert exceeded.max() <= binom.ppf(1 - 0.01 / exceeded.size, n_trials, delta)


def test_progress_bar(data, capsys):
    run_trials(data, ["first_k"], [0.4], n_trials=2, random_state=0, verbose=1)
    assert "trials: 100%" in capsys.readouterr().err
    run_trials(data, ["first_k"], [0.4], n_trials=2, random_state=0)
    assert capsys.readouterr().err == ""


def test_bad_input_is_named(data):
    with pytest.raises(TypeError, match="data must be CalibrationData, got ndarray"):
        run_trials(np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"methods must be a non-empty sequence.*'max'"):
        run_trials(data, "max")
    with pytest.raises(ValueError, match="methods must be a non-empty sequence"):
        run_trials(data, [])
    with pytest.raises(ValueError, match="set_score='best' is unknown; wanted one of"):
        run_trials(data, ["best"])
    with pytest.raises(ValueError, match=r"different names, got \('max', 'max'\)"):
        run_trials(data, ["max", "max"])
    with pytest.raises(ValueError, match=r"epsilons must lie in \[0, 1\], got 0.1 to 1.2"):
        run_trials(data, epsilons=[0.1, 1.2])
    with pytest.raises(ValueError, match="epsilons must be strictly increasing"):
        run_trials(data, epsilons=[0.2, 0.1])
    with pytest.raises(ValueError, match="epsilons must be a non-empty 1-D array"):
        run_trials(data, epsilons=[])
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), got 1.0"):
        run_trials(data, delta=1.0)
    with pytest.raises(ValueError, match=r"frontier_fraction must be in \(0, 1\), got 0"):
        run_trials(data, frontier_fraction=0)
    with pytest.raises(
        ValueError, match=r"frontier_fraction \+ testing_fraction = 1.1 leaves nothing"
    ):
        run_trials(data, frontier_fraction=0.6, testing_fraction=0.5)
    with pytest.raises(ValueError, match="which leaves frontier_fraction with none"):
        run_trials(data.take(range(4)))
    with pytest.raises(ValueError, match="n_trials must be at least 1, got 0"):
        run_trials(data, n_trials=0)
    with pytest.raises(ValueError, match="k_max must lie between 1 and 6"):
        run_trials(data, k_max=7)
    with pytest.raises(ValueError, match=r"too few for any p-value to reach delta=0\.05"):
        run_trials(data, epsilons=[0.01])


def test_nothing_admissible_is_null_everywhere():
    rng = np.random.default_rng(0)
    data = CalibrationData(rng.random((100, 3)), rng.random((100, 3, 3)), np.zeros((100, 3)))
    results = run_trials(data, ["max"], [0.5, 0.9], n_trials=2, n_lambdas=3, random_state=0)
    assert results.null.all()
    assert np.isnan(results.mean("loss")).all()
