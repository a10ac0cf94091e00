"""New prompts that are distributed otherwise than those that calibrate."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from sklearn_clm import ComponentSelector
from sklearn_clm.calibration import CalibrationData, Provenance
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import CovariateShift, ExitPolicy, ThresholdPolicy
from sklearn_clm.policies.shift import Shift
from tests.toy import drawn, questions, toy_sampler

N = 240
X, Y = questions(N)
NEW, _ = questions(12, first=1000)
WEIGHTS = np.where(np.arange(N) % 2 == 0, 0.5, 1.5)


def weight_of(prompt):
    return 0.5 if int(prompt.split()[-1]) % 2 == 0 else 1.5


def twice_weight_of(prompt):
    return 2 * weight_of(prompt)


def sampler(log=None, **options):
    return toy_sampler(log=log, **{"policy": ThresholdPolicy(n_lambdas=5), "k_max": 4} | options)


def test_a_shift_of_another_version_is_named():
    with pytest.raises(ValueError, match="shift of the provenance must be one of this version"):
        Shift.of(Provenance(shift='{"bound": 2.0}'))


@pytest.mark.parametrize("policy", [None, ExitPolicy()], ids=["thresholds", "exit"])
@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_rejected_prompts_are_neither_drawn_nor_judged(policy, judging, log):
    shift = CovariateShift(weight_bound=1.5)
    one = sampler(log, policy=policy, judging=judging, shift=shift)
    one.fit(X, Y, prompt_weight=WEIGHTS)
    kept = one.calibration_indices_
    assert set(np.flatnonzero(WEIGHTS == 1.5)) <= set(kept)
    assert 20 < np.sum(WEIGHTS[kept] == 0.5) < 60
    assert {prompt for *_, prompt in drawn(log)} == {X[i] for i in kept}
    # what is left calibrates as if there had been nothing else
    alone = sampler(policy=policy, judging=judging).fit([X[i] for i in kept], [Y[i] for i in kept])
    new, _ = questions(20, first=1000)
    assert one.predict(new).responses == alone.predict(new).responses
    assert (one.shift_.n_offered, one.shift_.n_kept) == (N, len(kept))
    assert alone.shift_ is None


def test_weights_are_told_by_a_callable_and_kept_in_a_file(tmp_path):
    given = sampler(shift=CovariateShift(weight_bound=2.0)).fit(X, Y, prompt_weight=WEIGHTS)
    told = sampler(shift=CovariateShift(weight_of, weight_bound=2.0)).fit(X, Y)
    assert np.array_equal(told.calibration_indices_, given.calibration_indices_)
    told.save_calibration(tmp_path / "file.json")
    for own in (None, told.shift):
        assert sampler(shift=own).load_calibration(tmp_path / "file.json").shift_ == told.shift_
    with pytest.raises(ValueError, match="weight_bound"):
        sampler(shift=CovariateShift(weight_bound=4.0)).load_calibration(tmp_path / "file.json")
    # whatever the order of the prompts
    turned = sampler(shift=CovariateShift(weight_of, weight_bound=2.0)).fit(X[::-1], Y[::-1])
    assert set(N - 1 - turned.calibration_indices_) == set(told.calibration_indices_)


def test_data_of_kept_prompts_say_so_wherever_they_go(tmp_path):
    shift = CovariateShift(weight_of, weight_bound=2.0, estimated=True)
    one = sampler(shift=shift)
    data = one.collect(X, Y)
    data.save(tmp_path / "data.npz")
    loaded = CalibrationData.load(tmp_path / "data.npz")
    here = one.calibrate(data)
    # thinned once, not twice, and marked whatever the parameters of the other sampler are
    for other in (sampler(shift=clone(shift)), sampler()):
        for given in (loaded, data.take(np.arange(data.n_prompts))):
            other.calibrate(given)
            assert other.lambda_hat_ == here.lambda_hat_
            assert other.shift_ == here.shift_
            assert all(one.claim.approximate for one in other.predict(X[:3]))
    bare = sampler().collect(X, Y)
    with pytest.raises(ValueError, match="weight_bound"):
        sampler(shift=CovariateShift(weight_of, weight_bound=2.0)).calibrate(bare)


@pytest.mark.parametrize(
    "changed", [{"weight_bound": 3.0}, {"weight": twice_weight_of}, {"estimated": True}]
)
def test_another_shift_than_that_of_data_or_of_a_file_is_refused(changed, tmp_path):
    shift = CovariateShift(weight_of, weight_bound=2.0)
    one = sampler(shift=shift).fit(X, Y)
    one.save_calibration(tmp_path / "file.json")
    data = one.calibration_data_
    for given in (one, sampler(shift=clone(shift))):
        given.set_params(**{f"shift__{name}": value for name, value in changed.items()})
        (name,) = changed
        with pytest.raises(ValueError, match=rf"another {name}:"):
            given.calibrate(data)
        with pytest.raises(ValueError, match=rf"another {name}:"):
            given.load_calibration(tmp_path / "file.json")


def test_copies_of_a_prompt_are_kept_each_by_itself():
    one = sampler(shift=CovariateShift(weight_bound=2.0))
    one.fit(X[:5] * 60, Y[:5] * 60, prompt_weight=np.ones(300))
    counts = np.bincount(one.calibration_indices_ % 5)
    assert np.all((counts > 15) & (counts < 45))


def test_groups_of_kept_prompts():
    shift = CovariateShift(weight_of, weight_bound=1.5)
    one = sampler(shift=shift).fit(X, Y, groups=np.arange(N) % 2 == 0)
    kept = one.calibration_indices_ % 2 == 0
    n_tested = {name: rule.outcome.n_calibration for name, rule in one.groups_.items()}
    n_searched = {name: rule.outcome.n_optimization for name, rule in one.groups_.items()}
    assert n_tested[True] + n_searched[True] == kept.sum()
    assert n_tested[False] + n_searched[False] == np.sum(~kept)


def test_estimated_weights_are_said_to_be_approximate():
    one = sampler(shift=CovariateShift(weight_of, weight_bound=2.0, estimated=True)).fit(X, Y)
    sets = one.predict(questions(3, 1000)[0])
    assert one.shift_.estimated
    assert sets[0].claim.approximate
    assert "approximate: weights are estimated" in str(sets)
    assert "approximate: weights are estimated" in sets[0].to_dict()["guarantee"]
    assert sets.to_frame()["approximate"].all()
    known = sampler(shift=CovariateShift(weight_of, weight_bound=2.0)).fit(X, Y)
    assert not known.predict(["item 7"])[0].claim.approximate


def test_weights_need_a_shift_that_asks_for_them():
    for shift in (None, CovariateShift(weight_of)):
        with pytest.raises(ValueError, match="shift must" if shift is None else "prompt_weight"):
            sampler(shift=shift).fit(X, Y, prompt_weight=WEIGHTS)
    one = sampler(shift=CovariateShift(weight_bound=1.5)).fit(X, Y, prompt_weight=WEIGHTS)
    data = one.calibration_data_
    assert one.set_params(epsilon=0.5).calibrate(data).shift_.weight_bound == 1.5


def components(fitted=None, **options):
    options = {"component_score": "support", "admission": "exact_match", "alpha": 0.6, **options}
    return ComponentSelector(fitted, **options)


def test_components_of_kept_prompts_calibrate():
    """In a pipeline as alone: those that weights have dropped are not of the new distribution."""
    shift = CovariateShift(weight_of, weight_bound=1.5, estimated=True)
    direct = components(sampler(shift=shift)).fit(X + X[:30], Y + Y[:30])
    kept = direct.calibration_indices_
    assert 150 < len(kept) == direct.sampler_.shift_.n_kept < N
    piped = make_pipeline(sampler(shift=shift), components()).fit(X + X[:30], Y + Y[:30])[-1]
    # of a prompt that stands there twice the first may be taken for the second
    taken = [sorted(X[i % N] for i in one.calibration_indices_) for one in (piped, direct)]
    assert taken[0] == taken[1]
    assert np.array_equal(piped.n_errors_, direct.n_errors_)
    assert direct.shift_ == direct.sampler_.shift_
    assert all(one.claim.approximate for one in direct.predict(NEW))
    assert "weights are estimated" in str(CalibrationReport.from_estimator(direct))
    with pytest.raises(ValueError, match="sampler must not be fitted yet"):
        components(direct.sampler_).fit(X, Y)


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_groups_and_weights_through_pipelines():
    names, new_names = [f"ward {i % 3}" for i in range(N)], ["ward 0", "ward 1", "ward 2"]
    shift = CovariateShift(weight_bound=1.5)
    with config_context(enable_metadata_routing=True):
        first = sampler(shift=shift).set_fit_request(prompt_weight=True, groups=False)
        last = components().set_fit_request(groups=True, prompt_weight=False)
        first.set_transform_request(groups=False)
        pipeline = make_pipeline(first, last.set_predict_request(groups=True))
        pipeline.fit(X, Y, groups=names, prompt_weight=WEIGHTS)
        sets = pipeline.predict(NEW[:3], groups=new_names)
        assert [part.group for part in sets] == new_names
    joint = components(sampler(shift=shift)).fit(X, Y, groups=names, prompt_weight=WEIGHTS)
    assert joint.groups_ == pipeline[-1].groups_
    assert joint.predict(NEW[:3], groups=new_names) == sets


def test_components_have_no_weights_of_their_own():
    with pytest.raises(ValueError, match="shift must"):
        components(sampler()).fit(X, Y, prompt_weight=WEIGHTS)
    shifted = sampler(shift=CovariateShift(weight_bound=1.5))
    sets = shifted.fit_transform(X, Y, prompt_weight=WEIGHTS)
    for of, given in ((sampler().fit(X, Y), X), (None, sets)):
        with pytest.raises(ValueError, match="prompt_weight must"):
            components(of).fit(given, Y, prompt_weight=WEIGHTS)
