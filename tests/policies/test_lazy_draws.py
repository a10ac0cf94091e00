"""With lazy judging ``fit`` finds what it finds with all draws, and makes fewer."""

import functools

import numpy as np
import pytest

from sklearn_clm import NullCalibrationWarning
from sklearn_clm.calibration import CalibrationData, learn_then_test, search_frontier
from sklearn_clm.policies import ExitPolicy, ThresholdPolicy
from tests.toy import ToyModel, drawn, questions, toy_sampler

K = 6
X, Y = questions(150)
sampler = functools.partial(toy_sampler, k_max=K, judging="lazy")


def same(one, other):
    """Whether two samplers have found the same."""
    for name in (
        "n_errors",
        "size",
        "samples",
        "smallest_level",
        "n_judgements",
        "n_errors_allowed",
    ):
        a, b = (getattr(sampler.calibration_.rule.outcome, name) for sampler in (one, other))
        np.testing.assert_array_equal(a, b)
    if isinstance(one.policy, ExitPolicy):
        assert one.calibration_.rule.level == other.calibration_.rule.level
    else:
        np.testing.assert_array_equal(one.valid_lambdas_, other.valid_lambdas_)
        np.testing.assert_array_equal(one.p_values_, other.p_values_)
    assert one.lambda_hat_ == other.lambda_hat_
    assert one.n_judgements_ == other.n_judgements_
    return True


@pytest.mark.parametrize("k_max", [K, [2, 4, K]])
@pytest.mark.parametrize("select", ["objective", "last"])
@pytest.mark.parametrize("set_score", ["max", "sum", "first_k", "first_k_reject"])
def test_thresholds(set_score, select, k_max, log):
    options = {"policy": ThresholdPolicy(set_score=set_score, select=select), "k_max": k_max}
    lazy = sampler(log=log, **options).fit(X, Y)
    assert lazy.n_draws_ == len(drawn(log)) <= 150 * K
    full = sampler(**options)
    full.calibrate(full.collect(X, Y))
    assert full.n_draws_ == 150 * K
    assert same(lazy, full)
    new, _ = questions(30, first=1000)
    assert lazy.predict(new) == full.predict(new)
    if select == "last" and set_score == "first_k":
        assert lazy.n_draws_ < 100 * K  # of which a third are the optimisation part


@pytest.mark.parametrize("guarantee", ["pac", "marginal"])
@pytest.mark.parametrize("same_text", [None, 0.5])
def test_exit_policies(guarantee, same_text, log):
    options = {"policy": ExitPolicy(same_text=same_text, guarantee=guarantee)}
    lazy = sampler(log=log, **options).fit(X, Y)
    assert lazy.n_draws_ == len(drawn(log)) < 150 * K
    full = sampler(**options)
    full.calibrate(full.collect(X, Y))
    assert same(lazy, full)
    # every prompt that calibrates has the draws that predict makes for it
    made, sets = lazy.calibration_data_.n_draws, lazy.predict(X)
    searched = made == K
    assert np.array_equal(made[~searched], sets.n_samples[~searched])
    assert np.mean(searched) < 0.9
    assert [len(row) for row in lazy.calibration_draws_] == made.tolist()
    assert lazy.fit_transform(X, Y) == full.predict(X)
    assert len(drawn(log)) == lazy.n_draws_ + np.maximum(sets.n_samples - made, 0).sum()


@pytest.mark.parametrize(
    "policy", [ThresholdPolicy(set_score="first_k", select="last"), ExitPolicy()]
)
def test_another_epsilon_draws_what_is_new(policy, tmp_path):
    one = sampler(epsilon=0.5, policy=policy).fit(X, Y)
    few = one.n_draws_
    one.set_params(epsilon=0.4).calibrate(one.calibration_data_)
    assert few <= one.n_draws_ < 150 * K
    anew = sampler(policy=policy).fit(X, Y)
    assert np.array_equal(one.predict(X).n_samples, anew.predict(X).n_samples)
    data = one.calibration_data_
    data.save(tmp_path / "data.npz")
    read = CalibrationData.load(tmp_path / "data.npz")
    assert np.array_equal(read.n_draws, data.n_draws)
    assert read.n_made == data.n_made == one.n_draws_
    with pytest.raises(ValueError, match="n_draws must"):
        CalibrationData(data.quality, data.similarity, np.ones((150, K)), n_draws=data.n_draws)
    labelled = data.with_labels(np.ones((150, K)))
    for use, given in ((search_frontier, data), (one.calibrate, labelled)):
        with pytest.raises(ValueError, match="must hold all 6 draws"):
            use(given)
    with pytest.raises(ValueError, match="n_draws must count all draws that have a label"):
        learn_then_test(labelled, 0.5)


@pytest.mark.parametrize("policy", [None, ExitPolicy(), ExitPolicy(guarantee="marginal")])
def test_a_null_names_no_epsilon_that_nobody_knows(policy):
    with pytest.warns(NullCalibrationWarning, match="would have worked is at least"):
        sampler(epsilon=0.05, policy=policy).fit(X[:90], Y[:90])


@pytest.mark.parametrize("same_text", [None, 0.5])
def test_a_null_counts_what_was_known_before(same_text):
    options = {"epsilon": 0.1, "k_max": K, "policy": ExitPolicy(same_text=same_text)}
    model = ToyModel(skill=0.3)
    full, lazy = (toy_sampler(model, judging=how, **options) for how in ("all", "lazy"))
    with pytest.warns(NullCalibrationWarning):
        labels = full.fit(X, Y).calibration_data_.labels
    data = lazy.collect(X, Y)
    hopeless = ~np.any(labels == 1, axis=1, keepdims=True)
    known = data.with_labels(np.where(hopeless, labels, -1), data.provenance.admission)
    with pytest.warns(NullCalibrationWarning):
        lazy.calibrate(known)
    found, wanted = lazy.calibration_.rule.outcome, full.calibration_.rule.outcome
    assert found.safest == wanted.safest
    assert found.smallest_level == wanted.smallest_level
