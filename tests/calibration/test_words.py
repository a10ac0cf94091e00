"""Numbers in words say what was computed."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.calibration.words import rounded_up


@settings(max_examples=300, deadline=None)
@given(level=st.floats(1e-6, 1.0, exclude_max=True))
def test_levels_are_rounded_up_and_printed_ones_stay(level):
    # one unit in the last place above a decimal is above it
    for one in (level, np.nextafter(round(level, 4), 1.0)):
        assert one <= rounded_up(one) < one + 1.001e-4
    assert rounded_up(round(level, 4)) == round(level, 4)
