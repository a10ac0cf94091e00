"""Groups, shifts, losses and watches in use: what they see, keep and refuse."""

import functools
import pickle

import numpy as np
import pytest

from sklearn_clm import ComponentSelector, NullCalibrationWarning
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.generators.prompts import check_prompts
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import CovariateShift, ExitPolicy, LazyJudging, Losses, ThresholdPolicy
from tests.toy import questions, toy_sampler

N = 240
X, Y = questions(N)
NEW, _ = questions(300, first=10_000)
FEW = ThresholdPolicy(n_lambdas=6)


sampler = functools.partial(toy_sampler, policy=FEW)


def states(reference, component):
    return reference in component


def selector(of, **options):
    options = {"alpha": 0.3, "admission": states, "component_score": "support", **options}
    return ComponentSelector(of, random_state=0, **options)


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(X, Y)


def report_of(estimator):
    return str(CalibrationReport.from_estimator(estimator))


@pytest.mark.parametrize("k_max", [5, [2, 5]])
@pytest.mark.parametrize("set_score", ["max", "sum", "first_k", "first_k_reject", np.mean])
def test_losses_see_the_sets_that_predict_returns(set_score, k_max):
    seen = set()

    def facts(one):
        return one.prompt, one.responses, one.n_samples, one.set_score, one.stopped

    def seeing(prompt, reference, one):
        seen.add(facts(one))
        return 0.0

    policy = ThresholdPolicy(set_score=set_score, n_lambdas=6)
    losses = Losses({"seen": seeing}, {"seen": 0.3})
    one = sampler(k_max=k_max, policy=policy, losses=losses).fit(X, Y)
    sets = one.predict([X[i] for i in one.calibration_indices_])
    # those of the part that shapes the path are seen as far as it needs them
    assert np.mean([facts(each) in seen for each in sets]) > 0.6


def test_losses_are_not_remembered_from_another_set_score_or_with_other_attributes():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, prompt, reference, one):
            return min(1.0, self.factor * max(one.set_score, 0.0))

    loss, total = Scaled(0.05), ThresholdPolicy(set_score="sum", n_lambdas=6)
    one = sampler(losses=Losses({"scaled": loss}, {"scaled": 0.5})).fit(X, Y)
    data = one.calibration_data_
    for factor in (0.05, 0.4):
        loss.factor = factor
        one.set_params(policy=total).calibrate(data)
        fresh = sampler(policy=total, losses=Losses({"scaled": loss}, {"scaled": 0.5})).fit(X, Y)
        np.testing.assert_array_equal(one.p_values_, fresh.p_values_)


def lacks_reference(prompt, reference, one):
    return float(reference is None)


@pytest.mark.parametrize(
    "params",
    [
        {"losses": Losses({"lacks": lacks_reference}, {"lacks": 0.5})},
        {"judging": LazyJudging(optimization_judgements=None)},
    ],
)
def test_nobody_is_given_references_that_a_pickle_has_lost(params):
    references = [lambda response, right=right: response == right for right in Y]
    one = sampler(**params).fit(X, references)
    copied = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(one))))
    assert copied.predict(NEW[:5]) == one.predict(NEW[:5])
    with pytest.raises(ValueError, match="admissions"):
        copied.set_params(epsilon=0.3).calibrate(copied.calibration_data_)


def test_rules_of_other_groups_are_another_calibration(fitted):
    data = fitted.calibration_data_
    names = ["a" if i < 200 else "b" for i in range(N)]
    one = sampler().calibrate(data, groups=names)
    other = sampler().calibrate(data, groups=[{"a": "b", "b": "a"}[name] for name in names])
    assert one.calibration_.digest != other.calibration_.digest
    assert sampler().calibrate(data, groups=names).calibration_.digest == one.calibration_.digest


def test_audited_prompts_are_kept_by_their_weight_as_others_are():
    monitor = RiskMonitor(0.3, share=0.3, seed=0)
    # whoever has no other identifier of a request than its prompt
    audited = check_prompts([p for i in range(8000) if monitor.should_audit(p := f"question {i}")])
    shift = CovariateShift(weight_bound=2.0)
    kept, _ = shift.applied(np.full(len(audited), 0.5), audited.digests, 0)
    assert abs(len(kept) / len(audited) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / len(audited))


@pytest.mark.filterwarnings("ignore:gamma_hat_")
def test_a_selector_with_groups_is_watched_by_the_thresholds_of_its_groups(fitted, tmp_path):
    with pytest.warns(NullCalibrationWarning):
        none = selector(fitted).fit(X, Y, groups=[i % 60 for i in range(N)])
    assert none.gamma_hat_ < np.inf  # of all prompts together, for comparison
    with pytest.raises(ValueError, match="target must be certified"):
        RiskMonitor(none)
    one = selector(fitted).fit(X, Y, groups=[f"a {i % 2}" for i in range(N)])
    other = selector(fitted).fit(X, Y, groups=[f"b {i % 2}" for i in range(N)])
    RiskMonitor(one, path=tmp_path / "monitor.sqlite").update([0, 1])
    assert RiskMonitor(one, path=tmp_path / "monitor.sqlite").n_audited_ == 2
    with pytest.raises(ValueError, match="target"):
        RiskMonitor(other, path=tmp_path / "monitor.sqlite")


@pytest.mark.filterwarnings("ignore:gamma_hat_")
def test_both_guarantees_at_once_are_claimed_only_where_both_have_a_confidence(fitted):
    data = fitted.calibration_data_
    marginal = sampler(policy=ExitPolicy(guarantee="marginal")).calibrate(data)
    with pytest.warns(NullCalibrationWarning):
        null = sampler(epsilon=0.02).calibrate(data)
    for of, delta, claimed in (
        (fitted, 0.05, "hold at once with confidence 1 - 2 delta"),
        (fitted, 0.1, "hold at once with confidence 85 %"),
        (marginal, 0.05, "on average over calibration prompts"),
        (null, 0.05, "Of the sampler's sets: Nothing could be certified"),
    ):
        text = report_of(selector(of, delta=delta).fit(X, Y))
        assert claimed in text
        assert f"Of the sampler's sets: {of.calibration_.claim.sentence()}" in text
        assert ("union bound" in text) == (of is fitted)
