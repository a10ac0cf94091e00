"""Which responses are one text."""

import numpy as np
import pytest

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration.table import Table
from sklearn_clm.policies import ExitPolicy


@pytest.mark.parametrize(
    ("same_text", "first", "expected"),
    [
        (None, [0, 1, 2, 3], [0, 1, 2, 3]),
        # draw 3 is like draw 1, which is no text of its own: clusters do not chain
        (0.8, [0, 1, 2, 3], [0, 0, 2, 3]),
        (0.95, [0, 1, 2, 3], [0, 1, 2, 3]),
        (0.8, [0, 1, 2, 1], [0, 0, 2, 0]),
    ],
)
def test_near_duplicates_are_one_text(same_text, first, expected):
    similarity = np.zeros((1, 4, 4))
    similarity[0, 1, 0] = similarity[0, 3, 1] = 0.9
    data = CalibrationData(np.zeros((1, 4)), similarity, np.ones((1, 4)), texts=[first])
    texts = ExitPolicy(same_text=same_text).texts(Table(data), np.arange(1))
    assert texts.tolist() == [expected]


def test_which_texts_are_near_copies_is_learnt_from_labels():
    rng = np.random.default_rng(0)
    # three meanings, of which one is right; what means the same is more alike than 0.8
    meanings = rng.integers(3, size=(60, 6))
    same = meanings[:, :, None] == meanings[:, None, :]
    similarity = np.where(same, rng.uniform(0.8, 1.0, same.shape), rng.uniform(0, 0.7, same.shape))
    data = CalibrationData(rng.random((60, 6)), similarity, meanings == 0)
    policy = ExitPolicy().fit(data)
    assert 0.6 < policy.model_.same_text < 0.85
    expected = (meanings[:, :, None] == meanings[:, None, :]).argmax(axis=2)
    assert np.mean(policy.texts(Table(data), np.arange(60)) == expected) > 0.9
    # where like texts differ as often as others, none is a copy
    by_chance = data.with_labels(rng.random((60, 6)) < 0.5)
    assert ExitPolicy().fit(by_chance).model_.same_text is None
