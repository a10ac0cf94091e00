"""Wrong values of the arguments of calibration and evaluation.

Each row: what is called, the argument, what of the wrong value must show in the message, the call.
"""

import math

import numpy as np

from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    Configuration,
    SamplingRule,
    binomial_p_value,
    component_learn_then_test,
    evaluate_configurations,
    fixed_sequence_test,
    learn_then_test,
    pareto_frontier,
    risk_surface,
    smallest_epsilon,
    threshold_grid,
)
from sklearn_clm.evaluation import run_component_trials, run_trials
from sklearn_clm.scoring import get_set_score

rng = np.random.default_rng(0)
Q, S, A = rng.random((60, 3)), rng.random((60, 3, 3)), rng.random((60, 3)) < 0.8
DATA = CalibrationData(Q, S, A)
COMPONENTS = ComponentCalibrationData.from_arrays(Q, A)
NAN = math.nan


def with_nan(array, *index):
    changed = np.array(array, dtype=float)
    changed[index] = NAN
    return changed


def returning(value):
    return lambda *arguments: value


def ltt(**params):
    return lambda: learn_then_test(DATA, **{"epsilon": 0.4, "random_state": 0} | params)


def trials(**params):
    return lambda: run_trials(
        DATA, **{"methods": ["max"], "epsilons": [0.5], "n_trials": 1, "random_state": 0} | params
    )


def surface(**params):
    grid = {name: [0.5] for name in ("similarity_thresholds", "quality_thresholds")}
    return lambda: risk_surface(
        DATA, **grid | {"set_score_thresholds": [0.5], "set_score": "max"} | params
    )


CALIBRATION = [
    ("CalibrationData", "quality", "(60,)", lambda: CalibrationData(Q[:, 0], S, A)),
    ("CalibrationData", "quality", "<U1", lambda: CalibrationData([["a"]], S, A)),
    ("CalibrationData", "quality", "object", lambda: CalibrationData([[None]], S, A)),
    ("CalibrationData", "quality", "complex", lambda: CalibrationData(Q + 1j, S, A)),
    (
        "CalibrationData",
        "quality",
        "prompt 3, draw 1",
        lambda: CalibrationData(with_nan(Q, 3, 1), S, A),
    ),
    (
        "CalibrationData",
        "quality",
        "(0, 0)",
        lambda: CalibrationData(Q[:0, :0], S[:0, :0, :0], A[:0, :0]),
    ),
    ("CalibrationData", "similarity", "(60, 3, 2)", lambda: CalibrationData(Q, S[:, :, :2], A)),
    (
        "CalibrationData",
        "similarity",
        "prompt 2",
        lambda: CalibrationData(Q, with_nan(S, 2, 1, 0), A),
    ),
    ("CalibrationData", "admissible", "(60, 2)", lambda: CalibrationData(Q, S, A[:, :2])),
    ("CalibrationData", "admissible", "0.5", lambda: CalibrationData(Q, S, np.full((60, 3), 0.5))),
    (
        "CalibrationData",
        "admissible",
        "<U3",
        lambda: CalibrationData(Q, S, np.full((60, 3), "yes")),
    ),
    ("split", "fraction", "1.0", lambda: DATA.split(1.0)),
    ("split", "fraction", "nan", lambda: DATA.split(NAN)),
    ("take", "indices", "float64", lambda: DATA.take([0.5])),
    ("take", "indices", "no prompt", lambda: DATA.take(np.array([], dtype=int))),
    ("truncate", "k", "0", lambda: DATA.truncate(0)),
    ("truncate", "k", "4", lambda: DATA.truncate(4)),
    ("truncate", "k", "2.5", lambda: DATA.truncate(2.5)),
    (
        "ComponentCalibrationData",
        "scores",
        "(2, 1)",
        lambda: ComponentCalibrationData(np.ones((2, 1)), [1, 1], [0, 2]),
    ),
    (
        "ComponentCalibrationData",
        "scores",
        "nan",
        lambda: ComponentCalibrationData([NAN], [1], [0, 1]),
    ),
    (
        "ComponentCalibrationData",
        "scores",
        "inf",
        lambda: ComponentCalibrationData([np.inf], [1], [0, 1]),
    ),
    (
        "ComponentCalibrationData",
        "scores",
        "<U1",
        lambda: ComponentCalibrationData(["a"], [1], [0, 1]),
    ),
    (
        "ComponentCalibrationData",
        "admissible",
        "2",
        lambda: ComponentCalibrationData([0.5], [2], [0, 1]),
    ),
    (
        "ComponentCalibrationData",
        "offsets",
        "3",
        lambda: ComponentCalibrationData([0.5], [1], [0, 3]),
    ),
    (
        "ComponentCalibrationData",
        "labels",
        "2",
        lambda: ComponentCalibrationData.from_arrays([[0.5]], [[1], [0]]),
    ),
    (
        "ComponentCalibrationData",
        "prompt_index",
        "-1",
        lambda: ComponentCalibrationData.from_arrays([0.5], [1], prompt_index=[-1]),
    ),
    ("learn_then_test", "epsilon", "0.0", ltt(epsilon=0.0)),
    ("learn_then_test", "epsilon", "nan", ltt(epsilon=NAN)),
    ("learn_then_test", "epsilon", "'a'", ltt(epsilon="a")),
    ("learn_then_test", "epsilon", "[]", ltt(epsilon=[])),
    ("learn_then_test", "epsilon", "[0.2, 1.5]", ltt(epsilon=[0.2, 1.5])),
    ("learn_then_test", "delta", "1", ltt(delta=1)),
    ("learn_then_test", "delta", "None", ltt(delta=None)),
    ("learn_then_test", "delta", "[0.1]", ltt(delta=[0.1])),
    ("learn_then_test", "random_state", "-1", ltt(random_state=-1)),
    ("learn_then_test", "random_state", "'a'", ltt(random_state="a")),
    ("learn_then_test", "set_score", "'best'", ltt(set_score="best")),
    ("learn_then_test", "n_lambdas", "0", ltt(n_lambdas=0)),
    ("learn_then_test", "n_lambdas", "2.5", ltt(n_lambdas=2.5)),
    ("learn_then_test", "size_weight", "-1", ltt(size_weight=-1)),
    ("learn_then_test", "excess_weight", "inf", ltt(excess_weight=math.inf)),
    ("learn_then_test", "fraction", "0", ltt(optimization_fraction=0)),
    ("learn_then_test", "k_max", "4", ltt(k_max=4)),
    ("learn_then_test", "k_max", "[]", ltt(k_max=[])),
    ("learn_then_test", "k_max", "2.5", ltt(k_max=2.5)),
    ("learn_then_test", "data", "ndarray", lambda: learn_then_test(Q, 0.3)),
    ("learn_then_test", "epsilon=0.01", "that takes 299", ltt(epsilon=0.01)),
    (
        "learn_then_test",
        "set_score",
        "shape (1, 2)",
        ltt(set_score=lambda quality, accepted: np.ones((1, 2))),
    ),
    ("learn_then_test", "set_score", "text", ltt(set_score=returning("text"))),
    ("risk_surface", "similarity_thresholds", "NaN", surface(similarity_thresholds=[NAN])),
    ("risk_surface", "quality_thresholds", "()", surface(quality_thresholds=0.5)),
    ("risk_surface", "set_score_thresholds", "(0,)", surface(set_score_thresholds=[])),
    ("risk_surface", "set_score_thresholds", "a", surface(set_score_thresholds=["a"])),
    ("risk_surface", "n_jobs", "0", surface(n_jobs=0)),
    ("risk_surface", "data", "list", lambda: risk_surface([], [1], [1], [1], set_score="max")),
    (
        "evaluate_configurations",
        "lambdas",
        "(2,)",
        lambda: evaluate_configurations(DATA, [1, 2], set_score="max"),
    ),
    (
        "evaluate_configurations",
        "lambdas",
        "NaN",
        lambda: evaluate_configurations(DATA, [[0, 0, NAN]], set_score="max"),
    ),
    (
        "evaluate_configurations",
        "k_max",
        "7",
        lambda: evaluate_configurations(DATA, [[0, 0, 0]], set_score="max", k_max=7),
    ),
    (
        "threshold_grid",
        "n_lambdas",
        "-1",
        lambda: threshold_grid(DATA, set_score="max", n_lambdas=-1),
    ),
    ("binomial_p_value", "n_errors", "float64", lambda: binomial_p_value(0.5, 2, 0.5)),
    ("binomial_p_value", "n_errors", "3", lambda: binomial_p_value(3, 2, 0.5)),
    ("binomial_p_value", "n_errors", "-1", lambda: binomial_p_value(-1, 2, 0.5)),
    ("binomial_p_value", "n must", "0", lambda: binomial_p_value(0, 0, 0.5)),
    ("binomial_p_value", "epsilon", "1.0", lambda: binomial_p_value(0, 2, 1.0)),
    ("smallest_epsilon", "delta", "0", lambda: smallest_epsilon(0, 2, 0)),
    ("fixed_sequence_test", "p_values", "(1, 1)", lambda: fixed_sequence_test([[0.5]], 0.1)),
    ("fixed_sequence_test", "p_values", "NaN", lambda: fixed_sequence_test([NAN], 0.1)),
    ("fixed_sequence_test", "delta", "2", lambda: fixed_sequence_test([0.5], 2)),
    ("pareto_frontier", "costs", "(3,)", lambda: pareto_frontier([1, 2, 3])),
    ("pareto_frontier", "costs", "NaN", lambda: pareto_frontier([[1, NAN]])),
    ("component_learn_then_test", "alpha", "0", lambda: component_learn_then_test(COMPONENTS, 0)),
    (
        "component_learn_then_test",
        "delta",
        "1",
        lambda: component_learn_then_test(COMPONENTS, 0.3, 1),
    ),
    (
        "component_learn_then_test",
        "alpha=0.01",
        "299",
        lambda: component_learn_then_test(COMPONENTS, 0.01),
    ),
    ("component_learn_then_test", "data", "ndarray", lambda: component_learn_then_test(Q, 0.3)),
    (
        "SamplingRule",
        "k_max",
        "0",
        lambda: SamplingRule(Configuration(0, 0, 0), get_set_score("max"), 0),
    ),
]

EVALUATION = [
    ("run_trials", "data", "ndarray", lambda: run_trials(Q, ["max"])),
    ("run_trials", "methods", "3", trials(methods=3)),
    ("run_trials", "methods", r"[]", trials(methods=[])),
    ("run_trials", "set_score", "'best'", trials(methods=["best"])),
    ("run_trials", "epsilons", "1.5", trials(epsilons=[1.5])),
    ("run_trials", "epsilons", "[0.5 0.2]", trials(epsilons=[0.5, 0.2])),
    ("run_trials", "delta", "0", trials(delta=0)),
    ("run_trials", "n_trials", "0", trials(n_trials=0)),
    ("run_trials", "random_state", "-1", trials(random_state=-1)),
    ("run_trials", "random_state", "'a'", trials(random_state="a")),
    ("run_trials", "frontier_fraction", "0", trials(frontier_fraction=0)),
    ("run_trials", "testing_fraction", "1", trials(testing_fraction=0.95)),
    ("run_trials", "k_max", "9", trials(k_max=9)),
    ("run_trials", "n_lambdas", "0", trials(n_lambdas=0)),
    ("run_component_trials", "alphas", "2", lambda: run_component_trials(COMPONENTS, [2])),
    ("run_component_trials", "data", "ndarray", lambda: run_component_trials(Q)),
    ("run_component_trials", "delta", "1", lambda: run_component_trials(COMPONENTS, delta=1)),
]
