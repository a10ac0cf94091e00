"""Wrong arguments of functions, generators and the command line are named."""

import re
import warnings

import pytest

from sklearn_clm.__main__ import main
from tests.robustness import bad_arguments, bad_scores

FUNCTIONS = [
    pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2]}")
    for table in (
        bad_arguments.CALIBRATION,
        bad_scores.SCORING,
        bad_scores.GENERATORS,
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


COMMANDS = [
    ("calibrate", "epsilon", "nan"),
    ("calibrate", "epsilon", "0"),
    ("calibrate", "delta", "2"),
    ("calibrate", "n-lambdas", "0"),
    ("calibrate", "k-max", "0"),
    ("calibrate", "k-max", "9"),
    ("calibrate", "size-weight", "-1"),
    ("calibrate", "excess-weight", "nan"),
    ("calibrate", "excess-weight", "inf"),
    ("calibrate", "optimization-fraction", "1"),
    ("calibrate", "set-score", "best"),
    ("calibrate", "seed", "-1"),
    ("calibrate", "output", "/no/such/folder/calibration.json"),
    ("evaluate", "epsilons", "a"),
    ("evaluate", "epsilons", "nan"),
    ("evaluate", "epsilons", "2"),
    ("evaluate", "epsilons", "0:1:-5"),
    ("evaluate", "epsilons", "0:1:1e9"),
    ("evaluate", "delta", "0"),
    ("evaluate", "trials", "-1"),
    ("evaluate", "n-lambdas", "-3"),
    ("evaluate", "k-max", "0"),
    ("evaluate", "methods", "best"),
    ("evaluate", "frontier-fraction", "2"),
    ("evaluate", "testing-fraction", "0"),
    ("evaluate", "size-weight", "-1"),
    ("evaluate", "jobs", "0"),
    ("evaluate", "seed", "-1"),
]


PARAMETERS = {
    "methods": "set_score",
    "jobs": "n_jobs",
    "trials": "n_trials",
    "seed": "random_state",
    "output": "/no/such/folder/calibration.json",
}


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.npz"
    bad_arguments.DATA.save(path)
    return str(path)


@pytest.mark.parametrize(("command", "option", "value"), COMMANDS)
def test_wrong_options_end_in_one_line(command, option, value, data_file, tmp_path, capsys):
    """The line names the option, or the parameter that it sets, and nothing is written."""
    output = tmp_path / "output"
    arguments = [command, "--data", data_file, "--quiet", "--output", str(output)]
    if command == "evaluate":
        arguments += ["--trials", "1", "--figure-format", "none", "--methods", "max"]
    assert main([*arguments, f"--{option}={value}"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    parameter = PARAMETERS.get(option, option.replace("-", "_"))
    assert parameter in message or option in message
    assert not output.exists()
