"""Wrong values of the arguments of scores and generators, row by row as in `bad_arguments`."""

import math

from sklearn_clm.caching import CachedGenerator, CachedScore
from sklearn_clm.generators import (
    EstimatorGenerator,
    Generation,
    OpenAIGenerator,
    PrecomputedGenerator,
    ResamplingGenerator,
    TransformersGenerator,
    draw_stream,
)
from sklearn_clm.metrics import set_loss, set_outcomes
from sklearn_clm.scoring import (
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
from tests.robustness.bad_arguments import returning

NAN = math.nan
DRAWS = [[Generation("a", -1.0, 1), Generation("b", -2.0, 1)]]


def service(**params):
    generator = OpenAIGenerator(**{"model": "m", "base_url": "http://127.0.0.1:9/v1"} | params)
    return lambda: generator.sample(["a"], 1)


def checkpoint(**params):
    generator = TransformersGenerator(**{"model": "/no/such/checkpoint"} | params)
    return lambda: generator.sample(["a"], 1)


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
    ("admission_matrix", "admission", "2", lambda: admission_matrix(returning(2), ["a"], [["b"]])),
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
        "CachedGenerator",
        "seed",
        "2**63",
        lambda: CachedGenerator(PrecomputedGenerator(["a"], [["x"]])).sample(["a"], 1, seed=2**70),
    ),
    (
        "PrecomputedGenerator",
        "responses",
        "got 1",
        lambda: PrecomputedGenerator(["a", "b"], [["x"]]).sample(["a"], 1),
    ),
    (
        "PrecomputedGenerator",
        "responses",
        "'xyz'",
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
        "got 2",
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
        "2 draws, got 1",
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
        "len",
        lambda: ResamplingGenerator().fit(["a"], [len]),
    ),
    ("ResamplingGenerator", "reference", "none", lambda: ResamplingGenerator().fit([], [])),
    (
        "EstimatorGenerator",
        "admissions",
        "list",
        lambda: EstimatorGenerator(None).fit([[1.0]], [["a"]]),
    ),
    ("draw_stream", "prompts", "object", lambda: draw_stream(object(), 0, 0)),
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
