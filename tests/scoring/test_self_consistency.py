import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone

from sklearn_clm.calibration import CalibrationData, learn_then_test, risk_surface
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import SelfConsistency, quality_matrix, rouge_l, similarity_tensor
from tests.scoring.test_similarity import blocks_of

word = st.sampled_from(["a", "b", "c", "d e", "d f", "日本"])
rows_of_answers = blocks_of(st.lists(word, min_size=1, max_size=4).map(" ".join), 9).filter(len)


def as_draws(rows):
    return [[Generation(response) for response in row] for row in rows]


@settings(max_examples=60, deadline=None)
@given(rows_of_answers, st.data())
def test_rounds_give_the_very_same_numbers(rows, data):
    quality = SelfConsistency()
    prompts = [""] * len(rows)
    whole = quality.score_draws(prompts, as_draws(rows), start=0)
    start = data.draw(st.integers(0, len(rows[0])))
    stop = data.draw(st.integers(start, len(rows[0])))
    part = quality.score_draws(prompts, as_draws([row[:stop] for row in rows]), start=start)
    assert_array_equal(part, whole[:, start:stop])


@settings(max_examples=40, deadline=None)
@given(rows_of_answers)
def test_quality_is_the_agreement_with_earlier_draws(rows):
    quality = quality_matrix("self_consistency", [""] * len(rows), as_draws(rows))
    for row, scores in zip(rows, quality):
        for j, score in enumerate(scores):
            agreement = [1.0 if row[j] == row[i] else rouge_l(row[j], row[i]) for i in range(j)]
            assert score == pytest.approx(sum(agreement) / (j + 1), abs=1e-12)


def test_similarity():
    rows = as_draws([["The Seine", "seine.", "Rhine"]])
    quality = SelfConsistency("exact_match")
    assert_array_equal(quality.score_draws(["?"], rows), [[0.0, 0.5, 0.0]])
    assert clone(quality).get_params() == quality.get_params()


def test_a_repeated_answer_stops_sampling():
    rng = np.random.default_rng(0)
    rows, correct = [], []
    for share in rng.beta(2.0, 0.7, size=500):
        others = (1.0 - share) * np.array([0.4, 0.3, 0.2, 0.1])
        answers = rng.choice(5, size=12, p=[share, *others])
        rows.append([f"answer {answer}" for answer in answers])
        correct.append(answers == 0)
    similarity = similarity_tensor("exact_match", rows)
    quality = quality_matrix(SelfConsistency("exact_match"), [""] * len(rows), as_draws(rows))
    data = CalibrationData(quality, similarity, np.array(correct))
    result = learn_then_test(data, 0.2, 0.05, random_state=0)
    surface = risk_surface(data, *([value] for value in result.lambda_hat), set_score="max")
    assert surface.loss.item() < 0.2
    assert surface.samples.item() < 6.0
