import re
import warnings

import pytest

from tests.robustness import bad_arguments

FUNCTIONS = [
    pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2]}")
    for table in (
        bad_arguments.CALIBRATION,
        bad_arguments.SCORING,
        bad_arguments.GENERATORS,
        bad_arguments.EVALUATION,
    )
    for row in table
]


@pytest.mark.parametrize(("function", "argument", "arrived", "call"), FUNCTIONS)
def test_wrong_arguments_are_named(function, argument, arrived, call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
    message = str(caught.value)
    assert argument in message
    assert arrived in message or re.search(arrived, message)
