import math

import numpy as np
import pytest

from sklearn_clm.calibration import Configuration, SamplingRule
from sklearn_clm.calibration.set_scores import get_set_score

KEEP_ALL = Configuration(math.inf, -math.inf, 0.9)


def make_rule(configuration=KEEP_ALL, set_score="max", **options):
    return SamplingRule(configuration, get_set_score(set_score), **options)


def test_before_the_first_draw():
    rule = make_rule(k_max=2)
    assert (rule.accepted, rule.n_samples, rule.score) == ([], 0, -math.inf)
    assert rule.stopped is False
    assert rule.done is False


def test_the_budget_stops_without_confidence():
    rule = make_rule(k_max=2)
    assert rule.update(0.1, []) is False
    assert rule.update(0.2, [0.0]) is True
    assert rule.done
    assert rule.stopped is False
    assert rule.score == 0.2


def test_an_empty_set_is_never_confident():
    rule = make_rule(Configuration(math.inf, 0.5, -math.inf), k_max=3)
    assert [rule.update(0.4, [0.0] * j) for j in range(2)] == [False, False]
    assert rule.score == -math.inf
    assert rule.update(0.5, [0.0, 0.0])
    assert rule.stopped is True
    assert rule.accepted == [2]


@pytest.mark.parametrize("confident", [False, True])
def test_no_draw_after_the_end(confident):
    rule = make_rule(k_max=1)
    rule.update(1.0 if confident else 0.0, [])
    assert rule.stopped is confident
    with pytest.raises(RuntimeError, match=r"^the sampling rule has stopped; it takes no further"):
        rule.update(1.0, [0.0])
    assert rule.n_samples == 1


@pytest.mark.parametrize(("width", "wanted"), [(None, 3), (5, 5)])
def test_vectorised_scores_see_arrays_as_wide_as_in_calibration(width, wanted):
    shapes = []

    def total(quality, accepted):
        shapes.append((quality.shape, accepted.shape))
        return (quality * accepted).sum(axis=1)

    rule = make_rule(set_score=total, k_max=3, width=width)
    rule.update(0.25, [])
    assert rule.score == 0.25
    assert shapes == [((1, wanted), (1, wanted))]


def test_no_threshold_is_rounded_to_the_precision_of_a_score():
    rule = make_rule(Configuration(math.inf, 0.1, math.inf), k_max=2)
    rule.update(np.float32(0.1) - np.float32(1e-8), [])  # 0.0999999940395...
    rule.update(np.float32(0.1), [0.0])
    assert rule.accepted == [1]
