"""A set shows each text once, whatever makes it, and all sizes count what it shows."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm import ComponentSelector
from sklearn_clm.calibration import CalibrationData, search_frontier
from sklearn_clm.calibration.set_scores import get_set_score
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.generators import CascadeGenerator
from sklearn_clm.generators.draws import text_key
from sklearn_clm.metrics import set_loss, set_outcomes
from sklearn_clm.metrics._sets import set_size
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, ThresholdPolicy
from tests.calibration.oracle import outcome
from tests.toy import ToyModel, questions, toy_sampler

X, Y = questions(130)
NEW, REFERENCES = questions(25, first=1000)
K = 6

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

THRESHOLDS = st.builds(
    ThresholdPolicy,
    set_score=st.sampled_from(["max", "sum", "first_k", "first_k_reject", np.mean]),
    n_lambdas=st.sampled_from([2, 6]),
    size_weight=st.sampled_from([0.0, 0.5]),
    draw_weight=st.sampled_from([0.0, 0.1]),
    select=st.sampled_from(["objective", "last"]),
)
POLICIES = st.one_of(
    THRESHOLDS,
    st.builds(ExitPolicy, same_text=st.sampled_from([None, "auto", 0.5])),
    st.builds(
        AnswerPolicy,
        st.sampled_from([0.1, 0.3]),
        score=st.sampled_from(["auto", "vote", "quality", "learnt"]),
        same_text=st.sampled_from([None, 0.5]),
    ),
)


def shows_each_once(sets):
    """Whether no set holds a text twice, and all of them say which draws gave it."""
    for one in sets:
        keys = [text_key(response) for response in one]
        assert len(keys) == len(set(keys)) == len(one) == len(one.indices) == len(one.repeats)
        accepted = one.accepted.tolist()
        assert len(accepted) == len(set(accepted))
        assert max(accepted, default=0) < one.n_samples == len(one.generations)
        for first, again in zip(one.indices.tolist(), one.repeats):
            assert list(again) == sorted(again)
            assert all(first < j for j in again)
        assert len(one.to_dict()["responses"]) == len(one)
    return True


@settings(max_examples=40, deadline=None)
@given(
    policy=POLICIES,
    quality=st.sampled_from(["likelihood", "self_consistency"]),
    epsilon=st.sampled_from([0.02, 0.2, 0.4]),
    skill=st.sampled_from([0.6, 1.0]),
    tiers=st.booleans(),
)
def test_no_text_twice(policy, quality, epsilon, skill, tiers, tmp_path_factory):
    model, k_max = ToyModel(skill=skill), K
    if tiers:
        model = CascadeGenerator([model, ToyModel()], n_draws=[3, 3], prices=[1, 10])
    options = {"policy": policy, "quality": quality, "epsilon": epsilon, "k_max": k_max}
    eager = toy_sampler(model, **options).fit(X, Y)
    sets = eager.predict(NEW)
    assert shows_each_once(sets)
    assert asyncio.run(eager.apredict(NEW)) == sets
    # sizes in metrics, outcomes, frames and calibration count alike
    shown = [len({text_key(response) for response in one}) for one in sets]
    assert sets.sizes.tolist() == sets.to_frame()["size"].tolist() == shown
    assert set_size(REFERENCES, sets) == np.mean(shown)
    assert set_outcomes(REFERENCES, sets).size.tolist() == shown
    assert 0 <= set_loss(REFERENCES, sets, average=False).mean() <= 1
    rule, data, again = eager.calibration_.rule, eager.calibration_data_, eager.predict(X)
    assert shows_each_once(again)
    score = get_set_score(policy.set_score)
    if rule.certified:
        assert rule.shown(data, score).sum(axis=1).tolist() == again.sizes.tolist()
    if isinstance(policy, ThresholdPolicy):
        assert rule.expected(data, score).of_prompts["size"].tolist() == again.sizes.tolist()
        if rule.certified:
            result = eager.result_
            assert rule.outcome.size == result.risks.size[result.position]
    # from a file, and lazily
    path = tmp_path_factory.mktemp("texts") / "calibration.json"
    eager.save_calibration(path)
    assert toy_sampler(model, **options).load_calibration(path).predict(NEW) == sets
    assert shows_each_once(toy_sampler(model, judging="lazy", **options).fit(X, Y).predict(NEW))


@settings(max_examples=15, deadline=None)
@given(
    set_score=st.sampled_from(["max", "sum", "first_k_reject"]),
    quality=st.sampled_from(["likelihood", "self_consistency"]),
    epsilon=st.sampled_from([0.3, 0.45]),
    select=st.sampled_from(["objective", "last"]),
    draw_weight=st.sampled_from([0.0, 0.1]),
)
def test_lazily_the_same_configuration_is_chosen_by_the_number_of_texts(
    set_score, quality, epsilon, select, draw_weight
):
    weights = {"excess_weight": 0.0, "draw_weight": draw_weight}
    scores = {"quality": quality, "k_max": K}
    others = toy_sampler(**scores).collect(*questions(60, first=5000))
    frontier = search_frontier(others, set_score=set_score, n_lambdas=6, **weights)
    policy = ThresholdPolicy(set_score=set_score, select=select, frontier=frontier, **weights)
    options = {"policy": policy, "epsilon": epsilon, **scores}
    eager, lazy = (toy_sampler(judging=how, **options).fit(X, Y) for how in ("all", "lazy"))
    assert (lazy.lambda_hat_, lazy.k_max_) == (eager.lambda_hat_, eager.k_max_)
    assert lazy.predict(NEW) == eager.predict(NEW)
    sizes = [one.calibration_.rule.outcome.sizes for one in (lazy, eager)]
    np.testing.assert_array_equal(*sizes)
    result, data = eager.result_, eager.calibration_data_
    if eager.lambda_hat_ is not None:
        chosen = outcome(data, eager.lambda_hat_, set_score, eager.k_max_)
        assert chosen.size == pytest.approx(result.risks.size[result.position])
        of_valid = result.risks.objective(**policy.weights)[: result.n_valid]
        assert select == "last" or result.position == np.argmin(of_valid)


def test_components_come_from_all_accepted_draws_and_none_is_there_twice():
    sampler = toy_sampler(quality="self_consistency", k_max=K, epsilon=0.3, policy=ExitPolicy())
    options = {"admission": "exact_match", "component_score": "support"}
    selector = ComponentSelector(sampler, alpha=0.5, delta=0.2, **options).fit(X, Y)
    selected = selector.predict(NEW)
    n_repeated = 0
    for one in selected:
        texts = [text_key(component) for component in one]
        assert len(texts) == len(set(texts))
        assert shows_each_once([one.prediction_set])
        for component, places in zip(one.components, one.occurrences):
            draws = {place.draw for place in places}
            generations = one.prediction_set.generations
            accepted = one.prediction_set.accepted.tolist()
            assert draws == {j for j in accepted if component in generations[j].response}
            n_repeated += len(draws) > 1
    assert n_repeated > 5


def test_a_set_score_counts_draws_and_eq_7_counts_texts():
    # one text, drawn again and again: its quality, the share that agrees, rises with each draw
    texts = np.zeros((50, 4), dtype=int)
    quality = np.tile([0.0, 0.25, 0.5, 0.75], (50, 1))
    similarity, right = np.ones((50, 4, 4)), np.ones((50, 4))
    lambdas = [[np.inf, -np.inf, 0.6], [np.inf, -np.inf, np.inf], [np.inf, 0.3, 0.6]]
    known = CalibrationData(quality, similarity, right, texts=texts)
    bare = CalibrationData(quality, similarity, right)
    shown, counted = (
        evaluate_configurations(data, lambdas, set_score="max") for data in (known, bare)
    )
    assert counted.size.tolist() == [4, 4, 2]
    assert shown.size.tolist() == [1, 1, 1]
    for name in ("n_errors", "samples", "excess"):
        assert getattr(shown, name).tolist() == getattr(counted, name).tolist()
