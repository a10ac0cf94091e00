"""Sets that are made on arrays are those of the sampling rule, draw by draw."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.calibration import Configuration
from sklearn_clm.calibration.algorithm_1 import run_algorithm_1, sets_at_stop
from sklearn_clm.calibration.set_scores import get_set_score
from tests.calibration.oracle import run
from tests.calibration.strategies import SET_SCORES, calibration_data, thresholds


@settings(max_examples=150, deadline=None)
@given(calibration_data(), thresholds(1), thresholds(1), thresholds(1), st.data())
def test_sets_at_stop_are_those_of_the_sampling_rule(data, l1, l2, l3, draw):
    score = get_set_score(draw.draw(st.sampled_from(SET_SCORES)))
    k_max = draw.draw(st.integers(1, data.k_max))
    configuration = Configuration(l1[0], l2[0], l3[0])
    shown, samples = sets_at_stop(data, configuration, k_max, score)
    sets = run_algorithm_1(data, configuration, k_max, score).one_by_one()
    for i, one in enumerate(sets):
        rule = run(data, i, configuration, score, k_max)
        assert one == (tuple(rule.accepted), rule.n_samples, rule.score, rule.stopped)
        assert [draws[0] for draws in rule.texts.values()] == np.flatnonzero(shown[i]).tolist()
        assert rule.n_samples == samples[i]
