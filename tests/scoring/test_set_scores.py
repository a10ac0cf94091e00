import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_clm.scoring import get_set_score

NAMES = ["first_k", "first_k_reject", "max", "sum"]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 4), k=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_both_forms_agree_to_the_last_bit(name, n, k, seed):
    rng = np.random.default_rng(seed)
    quality = rng.choice([-np.inf, 0.1, 0.3, 1e-9, 7.0, rng.random()], (n, k))
    accepted = rng.random((n, k)) < 0.6
    score = get_set_score(name)
    for order in ("C", "F"):
        running = score.running(np.asarray(quality, order=order), np.asarray(accepted, order=order))
        assert running.shape == (n, k)
        for i in range(n):
            for j in range(k):
                members = quality[i, : j + 1][accepted[i, : j + 1]]
                if len(members):
                    assert running[i, j] == score.of_set(members, j + 1)


def test_what_each_rejects():
    flags = {
        name: (score.rejects_quality, score.rejects_similarity, score.counts_draws)
        for name, score in ((name, get_set_score(name)) for name in NAMES)
    }
    assert flags == {
        "first_k": (False, False, False),
        "first_k_reject": (False, True, True),
        "max": (True, True, False),
        "sum": (True, True, False),
    }


def test_values():
    quality = np.array([0.25, 0.5])
    values = [get_set_score(name).of_set(quality, 4) for name in NAMES]
    assert values == [2.0, 4.0, 0.5, 0.75]


def power(quality, exponent=2.0):
    """A parameter with a default makes no vectorised score of it."""
    return float(np.sum(quality**exponent))


class Count:
    def __call__(self, quality):
        return len(quality)


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [(np.median, "median", 2.0), (power, "power", 86.0), (Count(), "Count", 3), (max, "max", 9.0)],
)
def test_plain_callables(function, name, value):
    score = get_set_score(function)
    assert score.of_set(np.array([1.0, 2.0, 9.0]), 3) == value
    assert (score.name, score.running, score.of_sets) == (name, None, None)
    assert get_set_score(score) is score


def test_vectorised_callable():
    def smallest(quality, accepted):
        return np.where(accepted, quality, np.inf).min(axis=1)

    score = get_set_score(smallest)
    assert score.running is None
    assert score.of_set(np.array([0.5, 0.25]), 7) == 0.25
    sets = np.array([[True, False], [True, True]])
    assert_array_equal(score.of_sets(np.array([[3.0, 2.0], [5.0, 4.0]]), sets), [3.0, 4.0])


def test_vectorised_callables_that_give_no_array_of_numbers():
    with pytest.raises(ValueError, match="set_score <lambda>"):
        get_set_score(lambda quality, accepted: quality).of_set(np.array([1.0, 2.0]), 2)
    words = get_set_score(lambda quality, accepted: ["high"] * len(quality))
    with pytest.raises(TypeError, match="set_score <lambda>"):
        words.of_sets(np.ones((2, 3)), np.ones((2, 3), dtype=bool))


def test_nan_stays_where_nothing_else_exists():
    quality, accepted = np.array([[0.5, 0.25], [-np.inf, np.inf]]), np.array([[0, 0], [1, 1]]) > 0
    with np.errstate(invalid="ignore"):
        mean = get_set_score(lambda q, a: q.sum(axis=1) / a.sum(axis=1))
        assert np.isnan(mean.of_sets(quality, accepted)).all()
        assert np.isnan(get_set_score(np.mean).of_set(quality[1], 2))
