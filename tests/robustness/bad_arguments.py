"""Wrong values of the arguments of functions, constructors and the command line.

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
from sklearn_clm.generators import (
    CachedGenerator,
    EstimatorGenerator,
    Generation,
    OpenAIGenerator,
    PrecomputedGenerator,
    ResamplingGenerator,
    TransformersGenerator,
    prompt_bytes,
)
from sklearn_clm.metrics import set_loss, set_outcomes
from sklearn_clm.scoring import (
    CachedScore,
    admission_matrix,
    get_component_score,
    get_quality,
    get_set_score,
    get_similarity,
    get_splitter,
    label_match,
    likelihood,
    quality_matrix,
    similarity_tensor,
    threshold_admission,
)

rng = np.random.default_rng(0)
Q, S, A = rng.random((60, 3)), rng.random((60, 3, 3)), rng.random((60, 3)) < 0.8
DATA = CalibrationData(Q, S, A)
COMPONENTS = ComponentCalibrationData.from_arrays(Q, A)
DRAWS = [[Generation("a", -1.0, 1), Generation("b", -2.0, 1)]]
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


def service(**params):
    generator = OpenAIGenerator(**{"model": "m", "base_url": "http://127.0.0.1:9/v1"} | params)
    return lambda: generator.sample(["a"], 1)


def checkpoint(**params):
    generator = TransformersGenerator(**{"model": "/no/such/checkpoint"} | params)
    return lambda: generator.sample(["a"], 1)


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

SCORING = [
    ("get_quality", "quality", "'likelyhood'", lambda: get_quality("likelyhood")),
    ("get_quality", "quality", "int", lambda: get_quality(3)),
    ("get_similarity", "similarity", "'bleu'", lambda: get_similarity("bleu")),
    ("get_set_score", "set_score", "'mean'", lambda: get_set_score("mean")),
    ("get_set_score", "set_score", "NoneType", lambda: get_set_score(None)),
    ("get_splitter", "splitter", "'words'", lambda: get_splitter("words")),
    ("get_component_score", "component_score", "'mean'", lambda: get_component_score("mean")),
    ("likelihood", "log-probability", "None", lambda: likelihood("x", Generation("a"))),
    ("likelihood", "log-probability", "nan", lambda: likelihood("x", Generation("a", NAN, 1))),
    ("likelihood", "number of tokens", "-1", lambda: likelihood("x", Generation("a", -1.0, -1))),
    ("quality_matrix", "quality", "nan|NaN", lambda: quality_matrix(returning(NAN), ["x"], DRAWS)),
    (
        "quality_matrix",
        "quality",
        r"\[1.0, 2.0\]",
        lambda: quality_matrix(returning([1.0, 2.0]), ["x"], DRAWS),
    ),
    ("quality_matrix", "quality", "None", lambda: quality_matrix(returning(None), ["x"], DRAWS)),
    ("quality_matrix", "quality", "1j", lambda: quality_matrix(returning(1j), ["x"], DRAWS)),
    (
        "quality_matrix",
        "generations",
        "1 and 0|0 and 1",
        lambda: quality_matrix(returning(1.0), [], DRAWS),
    ),
    ("quality_matrix", "start", "5", lambda: quality_matrix(returning(1.0), ["x"], DRAWS, start=5)),
    (
        "similarity_tensor",
        "similarity",
        "NaN",
        lambda: similarity_tensor(returning(NAN), [["a", "b"]]),
    ),
    (
        "similarity_tensor",
        "responses",
        "1 draws",
        lambda: similarity_tensor("rouge_l", [["a", "b"], ["a"]]),
    ),
    (
        "admission_matrix",
        "admission",
        "'yes'",
        lambda: admission_matrix(returning("yes"), ["a"], [["b"]]),
    ),
    ("admission_matrix", "admission", "1", lambda: admission_matrix(returning(1), ["a"], [["b"]])),
    (
        "admission_matrix",
        "admissions",
        "callable",
        lambda: admission_matrix("exact_match", [len, "a"], [["b"], ["b"]]),
    ),
    (
        "admission_matrix",
        "admissions",
        "None",
        lambda: admission_matrix("exact_match", [None], [["b"]]),
    ),
    (
        "admission_matrix",
        "admissions",
        "empty list",
        lambda: admission_matrix("exact_match", [[]], [["b"]]),
    ),
    (
        "admission_matrix",
        "admissions",
        "length 2",
        lambda: admission_matrix("exact_match", ["a", "b"], [["b"]]),
    ),
    ("threshold_admission", "metric", "'rouge'", lambda: threshold_admission("rouge", 0.5)),
    ("threshold_admission", "threshold", "'a'", lambda: threshold_admission(max, "a")),
    ("threshold_admission", "threshold", "NaN", lambda: threshold_admission(max, NAN)),
    ("label_match", "labeler", "3", lambda: label_match(3)),
    ("CachedScore", "score", "str", lambda: CachedScore("rouge_l")("a", "b")),
    ("set_outcomes", "sets", "list", lambda: set_outcomes(["a"], [["a"]])),
    ("set_loss", "sets", "str", lambda: set_loss(["a"], "a")),
]

GENERATORS = [
    (
        "PrecomputedGenerator",
        "responses",
        "1 rows",
        lambda: PrecomputedGenerator(["a", "b"], [["x"]]).sample(["a"], 1),
    ),
    (
        "PrecomputedGenerator",
        "responses",
        "str",
        lambda: PrecomputedGenerator(["a"], ["xyz"]).sample(["a"], 1),
    ),
    (
        "PrecomputedGenerator",
        "responses",
        "None",
        lambda: PrecomputedGenerator(["a"], [[None]]).sample(["a"], 1),
    ),
    (
        "PrecomputedGenerator",
        "logprobs",
        "2 values",
        lambda: PrecomputedGenerator(["a"], [["x"]], logprobs=[[0, 0]]).sample(["a"], 1),
    ),
    (
        "PrecomputedGenerator",
        "prompts",
        "'b'",
        lambda: PrecomputedGenerator(["a"], [["x"]]).sample(["b"], 1),
    ),
    (
        "PrecomputedGenerator",
        "prompts",
        "1 draws",
        lambda: PrecomputedGenerator(["a"], [["x"]]).sample(["a"], 2),
    ),
    (
        "PrecomputedGenerator.from_frame",
        "frame",
        "'prompt'",
        lambda: PrecomputedGenerator.from_frame({"x": [1]}),
    ),
    (
        "PrecomputedGenerator.from_frame",
        "prompt",
        "None",
        lambda: PrecomputedGenerator.from_frame({"prompt": [None], "response": ["a"]}),
    ),
    (
        "PrecomputedGenerator.from_frame",
        "draw",
        "-1",
        lambda: PrecomputedGenerator.from_frame({"prompt": ["a"], "response": ["a"], "draw": [-1]}),
    ),
    (
        "PrecomputedGenerator.from_frame",
        "draw",
        "0.5",
        lambda: PrecomputedGenerator.from_frame(
            {"prompt": ["a"], "response": ["a"], "draw": [0.5]}
        ),
    ),
    (
        "CachedGenerator",
        "path",
        "int",
        lambda: CachedGenerator(ResamplingGenerator(), 3).sample(["a"], 1),
    ),
    (
        "CachedGenerator",
        "path",
        "NUL",
        lambda: CachedGenerator(ResamplingGenerator(), "a\0b").sample(["a"], 1),
    ),
    (
        "ResamplingGenerator",
        "admissions",
        "callables",
        lambda: ResamplingGenerator().fit(["a"], [len]),
    ),
    ("ResamplingGenerator", "reference", "none", lambda: ResamplingGenerator().fit([], [])),
    (
        "EstimatorGenerator",
        "admissions",
        "list",
        lambda: EstimatorGenerator(None).fit([[1.0]], [["a"]]),
    ),
    ("prompt_bytes", "prompts", "object", lambda: prompt_bytes(object())),
    ("OpenAIGenerator", "model", "3", service(model=3)),
    ("OpenAIGenerator", "endpoint", "'chats'", service(endpoint="chats")),
    ("OpenAIGenerator", "temperature", "-1", service(temperature=-1)),
    ("OpenAIGenerator", "top_p", "0", service(top_p=0)),
    ("OpenAIGenerator", "max_tokens", "0", service(max_tokens=0)),
    ("OpenAIGenerator", "n_per_request", "0", service(n_per_request=0)),
    ("OpenAIGenerator", "timeout", "0", service(timeout=0)),
    ("OpenAIGenerator", "max_retries", "-1", service(max_retries=-1)),
    ("OpenAIGenerator", "prices", "3", service(prices=3)),
    ("TransformersGenerator", "max_new_tokens", "0", checkpoint(max_new_tokens=0)),
    ("TransformersGenerator", "temperature", "0", checkpoint(temperature=0)),
    ("TransformersGenerator", "top_k", "-1", checkpoint(top_k=-1)),
    ("TransformersGenerator", "top_p", "1.5", checkpoint(top_p=1.5)),
    ("TransformersGenerator", "dtype", "'int8'", checkpoint(dtype="int8")),
    ("TransformersGenerator", "batch_size", "0", checkpoint(batch_size=0)),
    ("TransformersGenerator", "trust_remote_code", "'yes'", checkpoint(trust_remote_code="yes")),
    (
        "TransformersGenerator",
        "model_kwargs",
        "'use_safetensors'",
        checkpoint(model_kwargs={"use_safetensors": False}),
    ),
    (
        "TransformersGenerator",
        "model_kwargs",
        "'trust_remote_code'",
        checkpoint(model_kwargs={"trust_remote_code": True}),
    ),
    ("TransformersGenerator", "model", "/no/such/checkpoint", checkpoint()),
]

EVALUATION = [
    ("run_trials", "data", "ndarray", lambda: run_trials(Q, ["max"])),
    ("run_trials", "methods", "'max'", trials(methods="max")),
    ("run_trials", "methods", r"[]", trials(methods=[])),
    ("run_trials", "set_score", "'best'", trials(methods=["best"])),
    ("run_trials", "epsilons", "1.5", trials(epsilons=[1.5])),
    ("run_trials", "epsilons", "[0.5 0.2]", trials(epsilons=[0.5, 0.2])),
    ("run_trials", "delta", "0", trials(delta=0)),
    ("run_trials", "n_trials", "0", trials(n_trials=0)),
    ("run_trials", "frontier_fraction", "0", trials(frontier_fraction=0)),
    ("run_trials", "testing_fraction", "1", trials(testing_fraction=0.95)),
    ("run_trials", "k_max", "9", trials(k_max=9)),
    ("run_trials", "n_lambdas", "0", trials(n_lambdas=0)),
    ("run_component_trials", "alphas", "2", lambda: run_component_trials(COMPONENTS, [2])),
    ("run_component_trials", "data", "ndarray", lambda: run_component_trials(Q)),
    ("run_component_trials", "delta", "1", lambda: run_component_trials(COMPONENTS, delta=1)),
]
