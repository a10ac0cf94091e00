"""What is not what a policy was calibrated for is noticed."""

import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from sklearn_clm import ConformalSampler, NullCalibrationError
from sklearn_clm.__main__ import main
from sklearn_clm.caching import HumanJudge, VerdictsWanted
from sklearn_clm.calibration import CalibrationData, Provenance, achievable_epsilon
from sklearn_clm.evaluation import run_trials
from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.inspection import AchievableBandDisplay
from sklearn_clm.policies import ExitPolicy, LazyJudging, ThresholdPolicy
from tests.toy import ToyModel, questions

N, K = 150, 6


def sampler(**options):
    return ConformalSampler(
        ToyModel(), **{"k_max": K, "epsilon": 0.4, "random_state": 0, **options}
    )


class Repeating(BaseGenerator):
    """Often "right", more often for some prompts than for others, otherwise one of a few texts."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [
            [self._draw(int(prompt), j, seed) for j in range(start, start + n_samples)]
            for prompt in prompts
        ]

    def _draw(self, prompt, j, seed):
        right = np.random.default_rng([prompt, 1]).random() < 0.85
        often = np.random.default_rng([prompt, 2]).choice([0.15, 0.5])
        rng = np.random.default_rng([prompt, j, seed])
        text = "right" if right and rng.random() < often else f"wrong {rng.integers(3)}"
        return Generation(text, logprob=-float(rng.exponential()), n_tokens=1)


def equality(a, b):
    return float(a == b)


def test_a_policy_learnt_from_the_prompts_that_calibrate_is_refused():
    prompts, references = questions(N)
    source = sampler(policy=ExitPolicy()).fit(prompts, references)
    data = source.calibration_data_
    policy = ExitPolicy().fit(data, data.first)
    frontier = sampler().fit(prompts, references).frontier_
    for elsewhere in (policy, ThresholdPolicy(frontier=frontier)):
        with pytest.raises(ValueError, match=r"must come from other prompts .* of these 150"):
            sampler(policy=elsewhere).fit(prompts, references)
        with pytest.raises(ValueError, match=r"must come from other prompts"):
            sampler(policy=elsewhere).calibrate(data)
        sampler(policy=clone(elsewhere)).fit(*questions(N, first=5000))


def test_a_fitted_policy_with_other_parameters_is_refused():
    data = sampler().collect(*questions(N))
    policy = ExitPolicy(LogisticRegression(C=1.0), look_ahead=2).fit(data, data.first)
    one = sampler(policy=policy).fit(*questions(N, first=5000))
    before = one.predict(["item 9"])
    for name, value in (("look_ahead", 3), ("estimator__C", 0.1), ("same_text", 0.5)):
        given = policy.get_params()[name]
        one.set_params(**{f"policy__{name}": value})
        with pytest.raises(ValueError, match=f"policy must have .* another {name[:9]}.* instead"):
            one.fit(*questions(N, first=5000))
        with pytest.raises(ValueError, match="policy must have the parameters"):
            clone(one).fit(*questions(N, first=5000))
        assert one.predict(["item 9"]) == before
        policy.set_params(**{name: given})
    assert one.fit(*questions(N, first=5000)).predict(["item 9"]) == before
    policy.set_params(look_ahead=3).fit(data, data.first)
    assert one.fit(*questions(N, first=5000)).calibration_.exit.model is policy.model_


def test_scores_that_many_prompts_share_are_no_sign_of_common_prompts():
    rng = np.random.default_rng(0)

    def discrete(n):
        quality = rng.integers(3, size=(n, 2)).astype(float)
        return CalibrationData(quality, np.zeros((n, 2, 2)), rng.random((n, 2)) < 0.8)

    one, other = discrete(100), discrete(100)
    policy = ExitPolicy().fit(one, one.first)
    sampler(policy=policy, k_max=2).calibrate(other)


def test_a_frontier_of_other_budgets_is_refused():
    frontier = sampler().fit(*questions(N)).frontier_
    for judging in ("all", "lazy"):
        for k_max in (K - 1, K + 1):
            one = sampler(policy=ThresholdPolicy(frontier=frontier), judging=judging, k_max=k_max)
            with pytest.raises(ValueError, match=f"k_max must be {K}, .* got {k_max} instead"):
                one.fit(*questions(N, first=5000))


def test_exit_policies_calibrated_without_texts_predict_without_them():
    # bare arrays do not tell which responses are equal: predict must not merge them either
    epsilon, delta, n_new = 0.3, 0.05, 400
    prompts = [str(i) for i in range(1, 500)]
    one = ConformalSampler(
        Repeating(), k_max=8, epsilon=epsilon, delta=delta, similarity=equality, random_state=0,
        policy=ExitPolicy(),
    )  # fmt: skip
    data = one.collect(prompts, ["right"] * len(prompts))
    bare = CalibrationData(data.quality, data.similarity, data.admissible, data.provenance)
    one.calibrate(bare)
    new = [str(i) for i in range(10_000, 10_000 + n_new)]
    sets = one.predict(new)
    # the sets of a prompt that calibrated are those that calibration looked at
    found = one.calibration_.exit
    tau, exits = found.model.scores(bare.quality, bare.similarity, bare.first)
    for i, own in enumerate(one.predict(prompts[:60])):
        assert own.indices.tolist() == np.flatnonzero(tau[i] >= found.level).tolist()
        assert own.n_samples == 1 + np.sum(exits[i, :-1] >= found.level)
    risk = np.mean(["right" not in s.responses for s in sets])
    assert risk <= epsilon + 3 * np.sqrt(epsilon * (1 - epsilon) / n_new)


def test_files_are_for_one_kind_of_policy_and_of_guarantee(tmp_path):
    data = questions(N)
    path = tmp_path / "calibration.json"
    marginal = sampler(policy=ExitPolicy(), guarantee="marginal").fit(*data)
    marginal.save_calibration(path)
    with pytest.raises(ValueError, match="guarantee is 'marginal' there and 'pac' here"):
        sampler(policy=ExitPolicy()).load_calibration(path)
    sampler(policy=ExitPolicy(), guarantee="marginal").load_calibration(path)
    content = json.loads(path.read_text())
    del content["digest"]  # which would notice any of it
    for wrong in (
        {"k_max": 3},
        {"rho": 0},
        {"quality": [2, 1]},
        {"text": {"coefficients": [1], "intercept": 0}},
    ):
        model = {**content["exit"]["model"], **wrong}
        path.write_text(json.dumps({**content, "exit": {**content["exit"], "model": model}}))
        with pytest.raises(ValueError, match="is not an intact file"):
            clone(marginal).load_calibration(path)
    sampler(policy=ExitPolicy()).fit(*data).save_calibration(path)
    with pytest.raises(ValueError, match="policy is 'an exit policy' there and 'thresholds' here"):
        sampler().load_calibration(path)
    with pytest.raises(ValueError, match=r"policy__same_text is 'none' there and 0\.5 here"):
        sampler(policy=ExitPolicy(same_text=0.5)).load_calibration(path)
    learnt_from = sampler().collect(*questions(N, first=2 * N))
    fitted = ExitPolicy().fit(learnt_from, learnt_from.first)
    with pytest.raises(ValueError, match=r"policy\.model_ is .* there and .* here"):
        sampler(policy=fitted).load_calibration(path)
    sampler(policy=fitted).fit(*data).save_calibration(path)
    sampler(policy=fitted).load_calibration(path)
    sampler().fit(*data).save_calibration(path)
    with pytest.raises(ValueError, match="policy is 'thresholds' there"):
        sampler(policy=ExitPolicy()).load_calibration(path)


def test_labels_from_elsewhere_are_used_and_said_to_be_unknown():
    prompts, references = questions(N)
    one = sampler(judging="lazy")
    data = one.collect(prompts, references)
    labels = np.full((N, K), -1)
    labels[:, 0] = 0
    first = np.take_along_axis(labels, data.first, axis=1)
    one.calibrate(data.with_labels(first))
    assert (one.calibration_data_.labels[:, 0] == 0).all()
    assert one.calibration_.unknown == ("admission",)
    one.calibrate(data)
    assert one.calibration_.unknown == ()
    # a fit with all labels, of which others then have their say
    full = sampler().fit(prompts, references)
    full.calibrate(full.calibration_data_.with_labels(np.ones((N, K))))
    assert full.calibration_.unknown == ("admission",)


def test_lazily_judged_data_of_a_smaller_budget_go_on_being_judged():
    one = sampler(judging="lazy").fit(*questions(N))
    data = one.calibration_data_
    one.set_params(k_max=3, epsilon=0.5).calibrate(data)
    one.set_params(epsilon=0.6).calibrate(one.calibration_data_)
    one.set_params(epsilon=0.55).calibrate(data.truncate(3))
    one.set_params(k_max=K, epsilon=0.45).calibrate(data)
    assert (one.calibration_data_.k_max, one.k_max_) == (K, K)
    with pytest.raises(ValueError, match="nobody to ask"):
        one.calibrate(data.take(np.arange(N)[::-1]))


def test_people_are_asked_no_more_where_splits_have_no_seed(tmp_path):
    prompts, references = questions(60)
    judge = HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")
    n_asked = []
    for _ in range(2):
        one = sampler(admission=judge, judging=LazyJudging(), random_state=None, k_max=3)
        n_asked.append(0)
        while True:
            try:
                one.fit(prompts, judge.asked(prompts, references))
                break
            except VerdictsWanted as error:
                n_asked[-1] += len(error.wanted)
                for wanted in error.wanted:
                    judge.record(wanted, wanted.response in wanted.asked.references)
    assert n_asked[0] < 180
    assert n_asked[1] == 0


def test_lazily_judged_samplers_with_functions_are_pickled():
    prompts, references = questions(N)
    admissions = [lambda response, wanted=wanted: response == wanted for wanted in references]
    one = sampler(judging="lazy").fit(prompts, admissions)
    copy = pickle.loads(pickle.dumps(one))
    assert copy.predict(prompts[:9]) == one.predict(prompts[:9])
    with pytest.raises(ValueError, match="functions are not in a pickle"):
        copy.set_params(judging=LazyJudging(optimization_judgements=None)).calibrate(
            copy.calibration_data_
        )


def test_messages_of_marginal_nulls_and_of_parameters_of_names():
    one = sampler(policy=ExitPolicy(), guarantee="marginal", epsilon=0.02, on_null="raise")
    with pytest.raises(NullCalibrationError, match=r"on average .* at least 73 prompts"):
        one.fit(*questions(60))
    with pytest.raises(ValueError, match=r"policy must be an object .* got 'thresholds' instead"):
        sampler().set_params(policy__look_ahead=2)
    assert sampler().set_params(policy=ExitPolicy(), policy__look_ahead=2).policy.look_ahead == 2


def test_the_command_line_keeps_precision_and_refuses_unknown_labels(tmp_path, capsys):
    rng = np.random.default_rng(0)
    quality = rng.random((200, 3)).astype(np.float32)
    labels = (rng.random((200, 3)) < 0.7).astype(int)
    arrays = (quality, np.zeros((200, 3, 3), dtype=np.float32))
    known = Provenance(generator="6f1c", seed=3)
    path, output = tmp_path / "data.npz", tmp_path / "calibration.json"
    CalibrationData(*arrays, labels, known).save(path)
    arguments = [
        "calibrate",
        "--data",
        str(path),
        "--epsilon",
        "0.3",
        "--seed",
        "0",
        "--output",
        str(output),
    ]
    assert main(arguments) == 0
    assert json.loads(output.read_text())["precision"] == "float32"
    labels[0, 0] = -1
    CalibrationData(*arrays, labels, known).save(path)
    assert main(arguments) != 0
    assert "label" in capsys.readouterr().err


def test_unknown_labels_are_not_counted_as_errors():
    one = sampler(judging="lazy").fit(*questions(N))
    data = one.calibration_data_
    for use in (
        achievable_epsilon,
        lambda data: run_trials(data, ["max"], [0.4]),
        AchievableBandDisplay.from_data,
        lambda data: AchievableBandDisplay.from_estimator(one),
    ):
        with pytest.raises(ValueError, match="a label for each draw"):
            use(data)
