"""Labels belong to texts, and what was paid for is kept."""

import numpy as np
import pytest

from sklearn_clm.calibration import CalibrationData, learn_then_test
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.certify import nth_largest_by_asking
from sklearn_clm.calibration.set_scores import get_set_score
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.thresholds import ThresholdPath
from tests.calibration.strategies import random_data
from tests.calibration.tables import equal_texts, lazy_table

EVERYTHING = Frontier(np.array([[np.inf, -np.inf, np.inf]]), np.array([2]), *np.zeros((2, 1)))


def unlabelled(n, k, texts=None):
    return CalibrationData(np.ones((n, k)), np.zeros((n, k, k)), np.full((n, k), -1), texts=texts)


def witnesses(table, r):
    """Ask until so many prompts have a witness, or no more can."""
    columns = ThresholdPath(table, np.arange(len(table.n_draws)), EVERYTHING, get_set_score("max"))
    return nth_largest_by_asking(columns.members(0), r)


def test_equal_texts_share_their_label():
    texts = np.array([[0, 1, 0], [0, 0, 0]])
    table = Table(unlabelled(2, 3, texts), judge=lambda rows, draws: draws == 0)
    table.ask(np.array([0, 1, 0]), np.array([2, 1, 1]))
    assert table.labels.tolist() == [[1, 0, 1], [1, 1, 1]]
    assert table.n_judgements == 3
    assert table.labels_at(np.array([0, 1]), np.array([1, 2])).tolist() == [0, 1]


def test_what_was_judged_before_an_error_is_kept():
    truth = np.random.default_rng(0).random((20, 2)) < 0.6
    fails_at, n_given = 9, 0

    def judge(rows, draws):
        nonlocal n_given
        for i, j in zip(rows, draws):
            if n_given == fails_at:
                raise KeyboardInterrupt
            n_given += 1
            yield truth[i, j]

    table = Table(unlabelled(20, 2), judge=judge)
    with pytest.raises(KeyboardInterrupt):
        witnesses(table, 15)
    assert table.n_judgements == fails_at == np.sum(table.labels >= 0)
    fails_at = -1
    fresh = Table(unlabelled(20, 2), judge=lambda rows, draws: truth[rows, draws])
    assert witnesses(table, 15) == witnesses(fresh, 15)
    assert table.n_judgements == fresh.n_judgements


@pytest.mark.parametrize(
    ("verdicts", "n_kept"), [([], 0), ([True], 1), ([True] * 3, 2), ([True, False], 2)]
)
def test_a_judge_gives_one_verdict_for_each_text_and_equal_ones_to_equal_texts(verdicts, n_kept):
    data = unlabelled(1, 3, [[0, 1, 0]])
    table = Table(data, judge=lambda rows, draws: verdicts)
    with pytest.raises(ValueError, match="one verdict"):
        table.ask(np.array([0, 0]), np.array([0, 2]))
    assert table.n_judgements == n_kept
    with pytest.raises(ValueError, match="one verdict"):
        Table(data.with_labels([[1, -1, 0]]))


def test_a_filled_table_has_nobody_to_ask():
    data = CalibrationData([[0.5, 0.7]], np.zeros((1, 2, 2)), [[1, -1]], n_draws=[1])
    table = Table(data)
    assert not table.is_lazy
    with pytest.raises(ValueError, match="no judge"):
        table.ask(np.array([0]), np.array([0]))
    with pytest.raises(ValueError, match="no generator to make"):
        table.ensure(np.array([0]), 2)
    table.ensure(np.array([0]), 1)


def test_draws_are_made_once_and_known_as_far_as_they_are():
    data = random_data(5, 4, share=1.0)
    table = lazy_table(data, draws=False)
    assert table.is_lazy
    table.ensure(np.array([1, 3]), np.array([2, 4]))
    table.ensure(np.array([1]), 1)
    assert table.n_draws.tolist() == [0, 2, 0, 4, 0]
    table.ask(np.array([1]), np.array([1]))
    filled, part = table.filled(), table.part(np.array([3, 1]))
    assert filled.n_draws.tolist() == [0, 2, 0, 4, 0]
    assert part.n_draws.tolist() == [4, 2]
    assert part.labels.tolist() == [[-1] * 4, [-1, 1, -1, -1]]
    assert np.array_equal(part.quality[0], data.quality[3])


def test_equal_texts():
    first = equal_texts([["a", "a", 1, "1"], [True, 1, 1.0, [1]]])
    assert first.tolist() == [[0, 0, 2, 3], [0, 1, 2, 3]]
    # in few digits, and with the middle left out, these would all read alike
    long, tiny = np.zeros(2000), np.arange(2000) == 1000
    first = equal_texts([[long, long.copy(), long + tiny, {"a": long + 1e-12 * tiny}]])
    assert first.tolist() == [[0, 0, 2, 3]]
    assert equal_texts([[{"a": long}, {"a": long + 1e-12 * tiny}]]).tolist() == [[0, 1]]


def test_labels_and_texts_survive_files_and_parts(tmp_path):
    texts = np.array([[0, 0, 2], [0, 1, 0]])
    data = CalibrationData(
        [[0.1] * 3] * 2, np.zeros((2, 3, 3)), [[1, 1, -1], [0, 1, 0]], None, texts
    )
    data.save(tmp_path / "data.npz")
    loaded = CalibrationData.load(tmp_path / "data.npz")
    assert np.array_equal(loaded.labels, data.labels)
    assert np.array_equal(loaded.texts, texts)
    assert loaded.take([1, 0]).truncate(2).texts.tolist() == [[0, 1], [0, 0]]
    assert loaded.truncate(2).unknown is None


def test_unknown_labels_are_refused_where_all_are_needed():
    data = CalibrationData([[0.5]] * 30, np.zeros((30, 1, 1)), [[1]] * 29 + [[-1]])
    with pytest.raises(ValueError, match="label for each draw"):
        learn_then_test(data, 0.3)
    assert data.take(np.arange(29)).unknown is None
    assert data.labels[-1] == -1
