"""Bad input, one matrix: an entry point, an argument, bad values; the error names the argument."""

import math
import re
import warnings
from functools import cache, partial

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    Configuration,
    SamplingRule,
    betting_p_value,
    binomial_p_value,
    component_learn_then_test,
    critical_count,
    fixed_sequence_test,
    keep_by_weight,
    learn_then_test,
    pareto_frontier,
    prompts_needed,
    risk_surface,
    smallest_epsilon,
    two_phase_p_value,
    two_phase_smallest_epsilon,
    weighted_betting_p_value,
)
from sklearn_clm.calibration._search import threshold_grid
from sklearn_clm.calibration.betting import RiskEProcess, confidence_sequence
from sklearn_clm.evaluation import (
    RiskMonitor,
    chance_of_null,
    plan,
    plan_audits,
    run_component_trials,
    run_trials,
    smallest_epsilons,
)
from sklearn_clm.generators import (
    DrawQueue,
    EstimatorGenerator,
    FunctionGenerator,
    Generation,
    OpenAIGenerator,
    ParallelGenerator,
    PrecomputedGenerator,
    TransformersGenerator,
)
from sklearn_clm.metrics import set_outcomes
from sklearn_clm.policies import (
    AnswerPolicy,
    AuditedJudging,
    CovariateShift,
    ExitPolicy,
    Groups,
    LazyJudging,
    Losses,
    ThresholdPolicy,
)
from sklearn_clm.runs import RunGate
from sklearn_clm.scoring import (
    LLMJudge,
    PTrue,
    RougeL,
    SelfConsistency,
    Support,
    get_set_score,
)
from tests.toy import ToyModel, Unscored, drawn, n_stored, questions

NAN, INF = math.nan, math.inf
WRONG = (ValueError, TypeError)
rng = np.random.default_rng(0)
Q, S, A = rng.random((60, 3)), rng.random((60, 3, 3)), rng.random((60, 3)) < 0.8
DATA = CalibrationData(Q, S, A)
FOUR_DRAWS = CalibrationData(np.ones((40, 4)), np.zeros((40, 4, 4)), np.ones((40, 4)))
COMPONENTS = ComponentCalibrationData.from_arrays(Q, A)
X, Y = questions(30)


def refused(call, error, name):
    """The call raises an error that names an argument, and warns of nothing before."""
    with warnings.catch_warnings(action="error"), pytest.raises(error) as caught:
        call()
    words = rf"(?<![\w.]){re.escape(name)}(?!\w)" if name.isidentifier() else re.escape(name)
    assert re.search(words, str(caught.value)), str(caught.value)
    return caught.value


# --- functions, data, generators, monitors ---------------------------------------------------


def changed(items, position, value):
    items = items.copy() if isinstance(items, np.ndarray) else list(items)
    items[position] = value
    return items


def returning(value):
    return lambda *arguments: value


def drawing(make, **usual):
    """A draw of a generator that is made so."""

    def draw(**params):
        return make(**usual | params).sample(X[:1], 1)

    draw.__name__ = make.__name__
    return draw


service = drawing(OpenAIGenerator, model="m", base_url="http://127.0.0.1:9/v1")
checkpoint = drawing(TransformersGenerator, model="/no/such/checkpoint")
parallel = drawing(ParallelGenerator, generator=ToyModel())
function = drawing(FunctionGenerator, ask=str)


def precomputed(n_samples):
    return PrecomputedGenerator(["a"], [["x"]]).sample(["a"], n_samples)


def cached(path=None, seed=0):
    return CachedGenerator(PrecomputedGenerator(["a"], [["x"]]), path).sample(["a"], 1, seed=seed)


def classes(**params):
    return EstimatorGenerator(GaussianNB(), **params).fit([[0], [1]], [0, 1]).sample([[0]], 1)


def model_judge(**params):
    return LLMJudge(FunctionGenerator(returning("yes")), **params)("a", "b")


def p_true(**params):
    generator = FunctionGenerator(returning("yes"))
    return PTrue(generator, **params).score_draws(["a"], [[Generation("b")]])


def support(**params):
    return Support(**params).score_components(["a"], [[Generation("b")]], [[[(0, 1)]]])


def exit_policy(**params):
    return ExitPolicy().fit(**{"data": DATA} | params)


GRID = {f"{name}_thresholds": [0.5] for name in ("similarity", "quality", "set_score")}
TRIALS = {"methods": ["max"], "epsilons": [0.5], "n_trials": 1, "random_state": 0}
CONFIGURATION = Configuration(0, 0, 0)
COUNTS = {"n_refused": 5, "n_prompts": 100, "n_missed": 0, "n_audited": 10}
MONITOR = RiskEProcess(0.3)

# entry point, arguments that are right
FUNCTIONS = {
    CalibrationData: {"quality": Q, "similarity": S, "admissible": A},
    DATA.split: {},
    DATA.take: {},
    DATA.truncate: {},
    ComponentCalibrationData: {"scores": [0.5], "admissible": [1], "offsets": [0, 1]},
    ComponentCalibrationData.from_arrays: {"scores": [[0.5]], "labels": [[1]]},
    learn_then_test: {"data": DATA, "epsilon": 0.4, "random_state": 0},
    risk_surface: {"data": DATA, **GRID, "set_score": "max"},
    threshold_grid: {"data": DATA, "set_score": "max"},
    binomial_p_value: {"n_errors": 0, "n": 2, "epsilon": 0.5},
    smallest_epsilon: {"n_errors": 0, "n": 2, "delta": 0.1},
    critical_count: {"n": 10, "epsilon": 0.1, "delta": 0.1},
    prompts_needed: {"epsilon": 0.1, "delta": 0.1},
    fixed_sequence_test: {"p_values": [0.5], "delta": 0.1},
    betting_p_value: {"losses": [0.5], "epsilon": 0.3},
    weighted_betting_p_value: {"losses": [0.5], "weights": [1.0], "epsilon": 0.3, "bound": 1.0},
    keep_by_weight: {"weights": [1.0], "bound": 2.0, "keys": [1]},
    RiskEProcess: {"epsilon": 0.3},
    MONITOR.update: {},
    confidence_sequence: {"totals": 1, "n": 2},
    two_phase_p_value: {**COUNTS, "epsilon": 0.1},
    two_phase_smallest_epsilon: {**COUNTS, "delta": 0.1},
    pareto_frontier: {},
    component_learn_then_test: {"data": COMPONENTS, "alpha": 0.3},
    SamplingRule: {"configuration": CONFIGURATION, "set_score": get_set_score("max")},
    run_trials: {"data": DATA, **TRIALS},
    run_component_trials: {"data": {"a": COMPONENTS}, "alphas": [0.5]},
    smallest_epsilons: {"n_errors": 3, "n": 100, "sizes": [50], "delta": 0.1},
    chance_of_null: {"n_errors": 3, "n": 100, "epsilon": 0.1, "delta": 0.1},
    plan: {"data": DATA, "epsilon": 0.3, "sizes": [100]},
    plan_audits: {"by_model": [True], "by_people": [True], "n_prompts": 100, "epsilon": 0.2},
    RiskMonitor: {"target": 0.3},
    exit_policy: {},
    set_outcomes: {"admissions": ["a"]},
    cached: {},
    precomputed: {},
    model_judge: {},
    p_true: {},
    support: {},
    parallel: {},
    function: {},
    classes: {},
    DrawQueue: {"prompts": ["a"]},
    service: {},
    checkpoint: {},
}

# entry point, argument, values
BAD_ARGUMENTS = [
    (CalibrationData, "quality", Q[:, 0], [["a"]], Q + 1j, changed(Q, (3, 1), NAN), Q[:0]),
    (CalibrationData, "quality", [[1.0], [1.0, 2.0]]),
    (CalibrationData, "similarity", S[:, :, :2], changed(S, (2, 1, 0), NAN), None, Q),
    (CalibrationData, "admissible", A[:, :2], np.full((60, 3), 0.5), np.full((60, 3), "yes")),
    (CalibrationData, "admissible", np.full((60, 3), NAN), [[1], [1, 0]]),
    (CalibrationData, "texts", np.tile([0, 2, 2], (60, 1)), np.tile([0, 0, 1], (60, 1))),
    (CalibrationData, "texts", [[0, 1]], 1.0 * A),
    (CalibrationData, "prompts", ["a"] * 60),
    (CalibrationData, "n_draws", [4] * 60, [2] * 60),  # of draws whose label is known
    (DATA.split, "fraction", 1.0, NAN, -0.5),
    (DATA.take, "indices", np.array([], dtype=int), np.zeros(60, dtype=bool), [[0]]),
    (DATA.truncate, "k", 0, 4, 2.5, -1),
    (ComponentCalibrationData, "scores", np.ones((2, 1)), [NAN], [INF], ["a"]),
    (ComponentCalibrationData, "admissible", [2], [0.7]),
    (ComponentCalibrationData, "offsets", [0, 3], [1, 1], [0, 2, 1], [0], [0.0, 1.0]),
    (ComponentCalibrationData.from_arrays, "labels", [[1], [0]], [[1, 0]]),
    (learn_then_test, "data", Q, None),
    (learn_then_test, "epsilon", NAN, [], [0.2, 1.5], 0.01, [[0.1]], "low"),
    (learn_then_test, "fraction", 1.0),
    (learn_then_test, "delta", 1, None, [0.1], "0.1"),
    (learn_then_test, "set_score", "best", returning(np.ones((1, 2))), returning("text")),
    (learn_then_test, "n_lambdas", 0, 2.5),
    (learn_then_test, "size_weight", -1, "1"),
    (learn_then_test, "excess_weight", INF),
    (learn_then_test, "draw_weight", NAN),
    (learn_then_test, "k_max", 4, [], 2.5, [0, 3]),
    (risk_surface, "data", [], Q),
    (risk_surface, "similarity_thresholds", [NAN]),
    (risk_surface, "quality_thresholds", 0.5, [[0.5]]),
    (risk_surface, "set_score_thresholds", [], ["a"]),
    (threshold_grid, "n_lambdas", -1),
    (binomial_p_value, "n_errors", 0.5, 3, -1),
    (binomial_p_value, "n", 0, 2.0),
    (binomial_p_value, "epsilon", 1.0, 0.0, NAN, "much", "0.5"),
    (smallest_epsilon, "delta", 0),
    (critical_count, "n", 10.0),
    (critical_count, "delta", 1.0),
    (prompts_needed, "epsilon", "0.1", [0.1]),
    (prompts_needed, "delta", [0.1]),
    (fixed_sequence_test, "p_values", [[0.5]], [NAN], [1.5]),
    (fixed_sequence_test, "delta", 2, [0.05]),
    (pareto_frontier, "costs", [1, 2, 3], [[1, NAN]], [[1, 2, 3]]),
    (component_learn_then_test, "data", Q, DATA),
    (component_learn_then_test, "alpha", 0, 0.01, 1, NAN, [0.3]),
    (component_learn_then_test, "delta", 1, [0.1]),
    (betting_p_value, "losses", [1.1], [-0.1], [NAN], 0.5, []),
    (betting_p_value, "epsilon", 1.0),
    (betting_p_value, "keys", [1, 2], [0.5], ["one"]),
    (weighted_betting_p_value, "losses", [0.5, 0.5], [1.5]),
    (keep_by_weight, "weights", [2.5], [-1.0], [NAN], [0.0], [[1.0]]),
    (keep_by_weight, "bound", 0.0),
    (keep_by_weight, "keys", [1, 2], [0.5]),
    (RiskEProcess, "epsilon", 1.5),
    (MONITOR.update, "losses", [0.0, 1.5], [NAN], 1.0),
    (confidence_sequence, "totals", 3),
    (confidence_sequence, "alpha", 0.0),
    (two_phase_p_value, "n_refused", -1, 101),
    (two_phase_p_value, "n_missed", -1, 11, 0.5, 96),
    (two_phase_p_value, "n_audited", 0, 101),
    (two_phase_p_value, "epsilon", NAN),
    (two_phase_smallest_epsilon, "delta", 1.0),
    (SamplingRule, "k_max", 0),
    (run_trials, "data", Q, COMPONENTS),
    (run_trials, "methods", 3, [], "max", ["max", "max"]),
    (run_trials, "epsilons", [1.0], [0.5, 0.2], []),
    (run_trials, "delta", 0),
    (run_trials, "n_trials", 0),
    (run_trials, "frontier_fraction", 0),
    (run_trials, "testing_fraction", 0.95),
    (run_trials, "k_max", 9),
    (run_trials, "n_lambdas", 0),
    (run_component_trials, "data", Q, {"a": 1}, {"a": COMPONENTS, "b": COMPONENTS.take([0])}),
    (run_component_trials, "alphas", [2]),
    (run_component_trials, "delta", 1),
    (run_component_trials, "reference_scores", {"b": []}, {"a": [[0.1]]}),
    (run_component_trials, "calibration_fraction", 1.0),
    (run_component_trials, "n_trials", 0),
    (smallest_epsilons, "n", 0, 2, 100.0),
    (chance_of_null, "n_errors", -1, 101, 0.5),
    (chance_of_null, "n", 0),
    (plan, "sizes", [], [10.5], [1]),
    (plan, "power", 1.0),
    (plan, "optimization_fraction", 0, "a"),
    (plan, "epsilon", [0.1, 0.2]),
    (RiskMonitor, "target", None, "0.3", 2),
    (plan_audits, "by_model", [1], [], [True, False]),
    (plan_audits, "n_prompts", 5, None, 100.5),
    (plan_audits, "epsilon", 1.5),
    (plan_audits, "power", 0.0),
    (RiskMonitor, "share", "a", 0),
    (RiskMonitor, "alpha", 0.0),
    (RiskMonitor, "seed", -1),
    (exit_policy, "data", "data.npz"),
    (set_outcomes, "sets", [["a"]]),
    (cached, "path", 3),
    (precomputed, "n_samples", -1, 2.5),
    (model_judge, "max_attempts", 0),
    (p_true, "n_answers", 0),
    (support, "threshold", "a"),
    (parallel, "n_jobs", 0, "all"),
    (parallel, "chunk_size", 0),
    (function, "ask", "gpt"),
    (function, "max_concurrency", 0),
    (function, "max_retries", -1),
    (function, "timeout", 0),
    (classes, "batch_size", 0, 2.5),
    (DrawQueue, "n_draws", 0),
    (service, "model", 3),
    (service, "endpoint", "chats"),
    (service, "temperature", -1),
    (service, "top_p", 0),
    (service, "max_tokens", 0),
    (service, "n_per_request", 0),
    (service, "timeout", 0),
    (service, "max_retries", -1),
    (checkpoint, "model", 3),
    (checkpoint, "max_new_tokens", 0),
    (checkpoint, "temperature", 0, -1.0, NAN),
    (checkpoint, "stop", 3, ["\n", ""], [1]),
    (checkpoint, "prompt_template", 3),
    (checkpoint, "tokenizer", 3),
    (checkpoint, "preprocess", "resize"),
    (checkpoint, "top_k", -1, 2.5),
    (checkpoint, "top_p", 1.5),
    (checkpoint, "dtype", "int8"),
    (checkpoint, "batch_size", 0),
    (checkpoint, "trust_remote_code", "yes"),
]


def of(rows):
    """One parameter set for each bad value of each row; what is called may be a class."""
    return list(_of(rows))


def _of(rows):
    for function, name, *values in rows:
        for value in values:
            label = f"{function.__name__}-{name}-{_shown(value)}"
            yield pytest.param(function, name, value, id=label)


def _shown(value):
    text = value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)
    return re.sub(r" at 0x\w+|\s+", "", text)[:24]


@pytest.mark.parametrize(("function", "name", "value"), of(BAD_ARGUMENTS))
def test_arguments_of_functions(function, name, value):
    refused(lambda: function(**FUNCTIONS[function] | {name: value}), WRONG, name)


# --- parameters of estimators ----------------------------------------------------------------


def sampler(log=None, **params):
    options = {"k_max": 4, "epsilon": 0.5, "random_state": 0, "generator": ToyModel(log=log)}
    return ConformalSampler(**options | params)


def selector(log=None, **params):
    options = {"alpha": 0.6, "component_score": "support", "random_state": 0}
    return ComponentSelector(**{"sampler": sampler(log), **options} | params)


@pytest.fixture(scope="module", params=[sampler, selector], ids=lambda make: make.__name__)
def kind(request):
    """How an estimator is made, and one that is fitted."""
    return request.param, fitted_by(request.param)


@cache
def fitted_by(make):
    return make().fit(X, Y)


def nothing_fitted(estimator):
    with pytest.raises(NotFittedError):
        estimator.predict(X[:2])
    assert not [name for name in vars(estimator) if name.endswith("_")]


def policy(**params):
    return {"policy": ThresholdPolicy(**params)}


FRONTIER = learn_then_test(DATA, 0.4, random_state=0).frontier
LEVELS = (0, NAN, "0.3", [0.1, 0.2])
# estimator, parameter, values
BAD_PARAMETERS = [
    (sampler, "generator", "gpt", Unscored(), ToyModel),
    (sampler, "k_max", 0, 2.5, None, [], [3, 0]),
    (sampler, "epsilon", *LEVELS),
    (sampler, "delta", *LEVELS),
    (sampler, "admission", "equal", None),
    (sampler, "quality", "likelyhood", None, SelfConsistency),
    (sampler, "similarity", "bleu", 3, RougeL),
    (sampler, "policy", "thresholds", ThresholdPolicy),
    (sampler, "judging", "some", LazyJudging),
    (sampler, "groups", "by", Groups),
    (sampler, "shift", 2.0, CovariateShift),
    (sampler, "losses", len, {"a": len}),
    (sampler, "optimization_fraction", 0, 1.0),
    (sampler, "training_fraction", 0.0),
    (sampler, "on_null", "ignore"),
    (sampler, "random_state", "a", -1),
    (sampler, "n_jobs", "all", 0),
    (sampler, "verbose", "yes"),
    (selector, "sampler", "sampler"),
    (selector, "alpha", *LEVELS),
    (selector, "delta", 0, NAN),
    (selector, "splitter", "words"),
    (selector, "component_score", "mean"),
    (selector, "admission", "equal", None),
    (selector, "on_null", "ignore"),
    (selector, "random_state", "a"),
    (selector, "n_jobs", 0),
]
# parameter of a part, parameters of the sampler
BAD_PARTS = [
    *(("set_score", policy(set_score=value)) for value in ("mean", 3)),
    *(("size_weight", policy(size_weight=value)) for value in (-1, NAN, INF)),
    *(("excess_weight", policy(excess_weight=value)) for value in (-0.5, INF)),
    ("draw_weight", policy(draw_weight="a")),
    *(("n_lambdas", policy(n_lambdas=value)) for value in (0, 2.5)),
    ("select", policy(select="best")),
    ("guarantee", {"policy": ExitPolicy(guarantee="sure")}),
    ("draw_price", {"policy": ExitPolicy(draw_price=-1)}),
    ("draw_price", {"policy": ExitPolicy(draw_price="cheap")}),
    ("optimization_judgements", {"judging": LazyJudging(optimization_judgements=6)}),
    ("optimization_admission", {"judging": LazyJudging(optimization_admission="nonsense")}),
    ("weight_bound", {"shift": CovariateShift(len, weight_bound=-1)}),
    *(("k_max", {"policy": ThresholdPolicy(frontier=FRONTIER), "k_max": k}) for k in (2, 4)),
    ("policy", {"policy": ExitPolicy().fit(DATA)}),
    ("k_max", {"policy": ExitPolicy(), "k_max": [2, 4]}),
    ("look_ahead", {"policy": ExitPolicy(look_ahead=0)}),
    ("predict_proba", {"policy": ExitPolicy(estimator=object())}),
    ("levels", {"losses": Losses({"a": len}, {"b": 0.1})}),
    ("levels", {"losses": Losses({}, {})}),
    ("levels", {"losses": Losses({"len": len}, {"len": 0.0})}),
    *(("levels", {"losses": Losses({"len": len}, {"len": level})}) for level in (2, [0.2])),
    ("functions", {"losses": Losses("wrong", {"wrong": 0.1})}),
    ("policy", {"losses": Losses({"len": len}, {"len": 0.5}), "policy": ExitPolicy()}),
    ("judging", {"losses": Losses({"len": len}, {"len": 0.5}), "judging": "lazy"}),
    ("n_audits", {"judging": AuditedJudging(len, n_audits=10), "policy": AnswerPolicy()}),
    ("n_audits", {"judging": AuditedJudging(len, n_audits=5), "epsilon": 0.1}),
    ("n_audits", {"judging": AuditedJudging(len, n_audits=0)}),
    ("policy", {"judging": AuditedJudging(len), "policy": AnswerPolicy(score="vote")}),
    ("policy", {"judging": AuditedJudging(len), "policy": AnswerPolicy(score="quality")}),
    ("nobody", {"judging": AuditedJudging("nobody", n_audits=10)}),
    ("design", {"judging": AuditedJudging(len, n_audits=10, design="bets")}),
]


@pytest.mark.parametrize(("make", "name", "value"), of(BAD_PARAMETERS))
def test_parameters(make, name, value, log):
    """They are refused before anything is drawn, and an earlier fit stays."""
    new = make(log).set_params(**{name: value})
    refused(lambda: new.fit(X, Y), WRONG, name)
    nothing_fitted(new)
    assert not drawn(log)
    if make is sampler and name != "training_fraction":
        refused(lambda: new.calibrate(FOUR_DRAWS), WRONG, name)
        nothing_fitted(new)
    fitted = fitted_by(make)
    before, good = fitted.predict(X[:5]), getattr(fitted, name)
    refused(lambda: fitted.set_params(**{name: value}).fit(X, Y), WRONG, name)
    assert fitted.set_params(**{name: good}).predict(X[:5]) == before


@pytest.mark.parametrize(
    ("make", "name", "value", "words"),
    [
        (sampler, "policy", "exit", "of 'sklearn_clm.policies.ExitPolicy'"),
        (sampler, "policy", ExitPolicy, "the class ExitPolicy (pass an instance, ExitPolicy(...))"),
        (sampler, "judging", ThresholdPolicy, "got the class ThresholdPolicy (pass"),
        (selector, "sampler", ConformalSampler, "an instance of 'sklearn_clm.ConformalSampler'"),
        (selector, "sampler", X, "instead: data are for fit(X, y)."),
        (sampler, "groups", ["a"] * len(X), "fit(X, y, groups=...), or a function that computes"),
        (lambda log: RunGate(), "groups", ["a"] * len(X), "as Groups(function)."),
        (lambda log: RunGate(), "scorer", "logistic", "'predict_proba'. got 'logistic' instead."),
    ],
)
def test_messages_about_parameters_name_what_users_import(make, name, value, words, log):
    with pytest.raises(InvalidParameterError) as raised:
        make(log).set_params(**{name: value}).fit(X, Y)
    message = str(raised.value)
    assert words.lower() in message.lower()
    assert "._" not in message
    assert len(message) < 500


@pytest.mark.parametrize(
    "make", [ConformalSampler, ComponentSelector, AnswerPolicy, ExitPolicy, RunGate]
)
def test_parameters_that_do_not_exist(make):
    has_alpha = make in (ComponentSelector, AnswerPolicy, RunGate)
    wrong, right = ("epsilon", "alpha") if has_alpha else ("alpha", "epsilon")
    refused(lambda: make(**{wrong: 0.1}), TypeError, f"got {wrong} instead (epsilon is the level")
    refused(lambda: make(**{wrong: 0.1}), TypeError, right)
    refused(lambda: make(level=0.1), TypeError, "got level instead.")
    refused(lambda: make(X, Y, 4, 3, 2, 1), TypeError, "must be given by name")
    refused(lambda: make(X, Y, 4, 3, 2, 1), TypeError, "got 6 without one instead")


@pytest.mark.parametrize(("name", "params"), BAD_PARTS)
def test_parameters_of_parts(name, params, log):
    new = sampler(log, **params)
    refused(lambda: new.fit(X, Y), WRONG, name)
    nothing_fitted(new)
    assert not drawn(log)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (part, name)
        for part in (AnswerPolicy, ExitPolicy, ThresholdPolicy)
        for name in part._parameter_constraints
    ],
)
def test_every_parameter_of_a_policy_is_checked(part, name, log):
    new = sampler(log, policy=part(**{name: object()}))
    refused(lambda: new.fit(X, Y), InvalidParameterError, name)
    nothing_fitted(new)
    assert not drawn(log)


# --- what estimators are given ---------------------------------------------------------------

# one of each kind: tests/test_prompts.py has the others
BAD_PROMPTS = [None, "item 1", iter(X), [], changed(X, 7, None), changed(X, 7, object())]
BAD_ADMISSIONS = ["answer", Y[:-1], changed(Y, 4, None), changed(Y, 4, len), changed(Y, 4, [])]
INPUTS = [
    *(pytest.param("prompts", one, Y, id=f"prompts-{_shown(one)}") for one in BAD_PROMPTS),
    *(pytest.param("admissions", X, one, id=f"admissions-{_shown(one)}") for one in BAD_ADMISSIONS),
    pytest.param("y", X, None, id="y-None"),
]
BAD_NEW = [None, "item 1", [], ["a", None], np.ones((2, 3))]


@pytest.mark.parametrize(("name", "prompts", "admissions"), INPUTS)
def test_prompts_and_admissions(kind, name, prompts, admissions, log):
    make, fitted = kind
    new = make(log)
    refused(lambda: new.fit(prompts, admissions), WRONG, name)
    nothing_fitted(new)
    assert not drawn(log)
    before = fitted.predict(X[:5])
    refused(lambda: fitted.fit(prompts, admissions), WRONG, name)
    assert fitted.predict(X[:5]) == before
    if make is sampler and "object" not in _shown(prompts):
        refused(lambda: fitted.score(prompts, admissions), WRONG, name)


def test_references_that_nobody_gave(kind):
    make, fitted = kind
    for call in (make(None).fit, make(None).fit_transform):
        refused(lambda call=call: call(X), ValueError, "admissions (y) must hold")
    words = "must hold, for each prompt, a reference or a function of a response"
    refused(lambda: make(None).collect(X), WRONG, words)
    if make is sampler:
        refused(lambda: fitted.score(X), ValueError, "admissions (y) must hold")


@pytest.mark.parametrize("prompts", BAD_NEW, ids=_shown)
def test_prompts_to_predict(kind, prompts):
    _, fitted = kind
    for call in (fitted.predict, fitted.transform, lambda one: fitted.score(one, Y[:2])):
        refused(partial(call, prompts), WRONG, "prompts")


@pytest.mark.parametrize("data", [None, Q, COMPONENTS, DATA, "data.npz"], ids=_shown)
def test_data_to_calibrate_on(kind, data):
    """DATA have draws for three of four, and are no components."""
    make, fitted = kind
    if make is selector and data is COMPONENTS:
        return
    name = "k_max" if make is sampler and data is DATA else "data"
    new, before = make(), fitted.predict(X[:5])
    refused(lambda: new.calibrate(data), WRONG, name)
    nothing_fitted(new)
    refused(lambda: fitted.calibrate(data), WRONG, name)
    assert fitted.predict(X[:5]) == before


BAD_GROUPS = [
    *(None, dict.fromkeys(X, "a"), {"a"}, "a", X[:-1], 40, np.zeros((30, 2))),
    *(changed(X, 3, value) for value in (None, [1], NAN)),
]
BAD_WEIGHTS = [None, np.ones(29), ["a"] * 30, [NAN] * 30, [-1.0] * 30, [3.0] * 30, np.zeros(30)]


@pytest.mark.parametrize("make", [sampler, selector])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(pytest.param("groups", one, id=f"groups-{_shown(one)}") for one in BAD_GROUPS),
        *(pytest.param("prompt_weight", one, id=f"weight-{_shown(one)}") for one in BAD_WEIGHTS),
    ],
)
def test_groups_and_weights(make, name, value, log):
    new = make(log)
    if name == "groups":
        new.set_params(groups=Groups())
    else:
        shift = "shift" if make is sampler else "sampler__shift"
        new.set_params(**{shift: CovariateShift(weight_bound=2.0)})
    refused(lambda: new.fit(X, Y, **{name: value}), WRONG, name)
    assert not drawn(log)


def test_nothing_works_before_fit(kind, tmp_path):
    make, _ = kind
    new = make()
    for call in (new.predict, new.transform, lambda prompts: new.score(prompts, Y[:2])):
        refused(partial(call, X[:2]), NotFittedError, type(new).__name__)
    refused(
        lambda: new.save_calibration(tmp_path / "file.json"), NotFittedError, type(new).__name__
    )


# --- generators and functions that misbehave when they are called ----------------------------


class Misbehaving(ToyModel):
    """Changes what ToyModel draws for prompt 22 and those beside it."""

    chunk_size = 10

    def __init__(self, change, log=None):
        super().__init__(log=log)
        self.change = change

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        rows = super().sample(prompts, n_samples, start=start, seed=seed)
        return self.change(rows) if "item 22" in prompts else rows


def failing(*arguments):
    raise ZeroDivisionError("went away")


GENERATORS = {
    "too few draws": lambda rows: [row[:-1] for row in rows],
    "no list": lambda rows: None,
    "no draws": lambda rows: [[None] * 4 for _ in rows],
    "a failure": failing,
}


@pytest.mark.parametrize("change", GENERATORS.values(), ids=GENERATORS.keys())
def test_generators_that_misbehave(change, log, tmp_path):
    """Of 30 prompts, 10 or more were drawn whole; none of their draws is made again."""
    path = tmp_path / "cache.sqlite"
    new = sampler(generator=CachedGenerator(Misbehaving(change, log), path, key="toy"))
    if change is failing:
        refused(lambda: new.fit(X, Y), ZeroDivisionError, "went away")
    else:
        refused(lambda: new.fit(X, Y), WRONG, "generator Misbehaving")
    nothing_fitted(new)
    kept = CachedGenerator(ToyModel(log=log), path, key="toy")
    n_kept, n_drawn = n_stored(kept), len(drawn(log))
    assert n_kept >= 40
    fitted = sampler(generator=kept).fit(X, Y)
    assert len(drawn(log)) - n_drawn == 30 * 4 - n_kept
    wanted = sampler().fit(X, Y).calibration_data_
    assert fitted.calibration_data_.quality.tolist() == wanted.quality.tolist()


class Whole:
    """A similarity, a quality, or a score of components that is used whole."""

    def __init__(self, of):
        self.of = of

    def pairwise(self, a, b=None):
        return self.of(len(a), len(a if b is None else b))

    def score_draws(self, prompts, generations, start):
        return self.of(len(prompts), len(generations[0]) - start)

    def score_components(self, prompts, generations, spans):
        return self.of


TWICE = np.ones(2, dtype=bool)
WIDE, NANS = Whole(lambda n, k: np.ones((n, k + 1))), Whole(lambda n, k: np.full((n, k), NAN))
CALLED = [
    (sampler, "admission", *map(returning, (2, None, "yes", TWICE)), failing),
    (sampler, "quality", *map(returning, (NAN, None, "0.5", [0.5, 0.5])), WIDE, NANS, failing),
    (sampler, "quality", Whole(lambda n, k: None), LogisticRegression()),
    (sampler, "similarity", *map(returning, (NAN, "same", 1j)), failing),
    (sampler, "similarity", Whole(lambda n, m: np.ones(n)), Whole(lambda n, m: [[1, 2], [1]])),
    (sampler, "similarity", NANS),
    (sampler, "policy__set_score", returning("high"), failing),
    (sampler, "policy__set_score", lambda quality, accepted: np.ones(3)),
    (selector, "splitter", *map(returning, ([(0, 10**6)], [(5, 2)], "words"))),
    (selector, "component_score", *map(returning, (NAN, None)), failing),
    (selector, "component_score", *map(Whole, ([], [[[0.5]]]))),
    (selector, "admission", returning(2), failing),
]


@pytest.mark.parametrize(("make", "name", "value"), of(CALLED))
def test_functions_that_misbehave(make, name, value, log):
    """Nothing is half-fitted, no draw is lost, and an earlier fit goes on."""
    new = make(log)
    if name == "policy__set_score":
        new.set_params(policy=ThresholdPolicy())
    good = new.get_params()[name]
    new.set_params(**{name: value})
    expected = (ZeroDivisionError, "") if value is failing else (WRONG, name.split("__")[-1])
    error = refused(lambda: new.fit(X, Y), *expected)
    if value is failing:
        assert any(note.startswith(f"{name.split('__')[-1]} failing") for note in error.__notes__)
    with pytest.raises(NotFittedError):
        new.predict(X[:2])
    # two draws of four prompts are tried first; calibration alone asks a set score
    assert name == "policy__set_score" or len(drawn(log)) <= 4 * 2
    new.set_params(**{name: good}).fit(X, Y)
    assert len(drawn(log)) == len(set(drawn(log)))
    before = new.predict(X)
    refused(lambda: new.set_params(**{name: value}).fit(X, Y), *expected)
    new.set_params(**{name: good})
    if name == "policy__set_score":  # calibration alone asks it, and has forgotten the earlier one
        refused(lambda: new.predict(X), NotFittedError, "")
        new.calibrate(new.collect(X, Y))
    assert new.predict(X) == before


def test_a_set_score_that_misbehaves_only_in_prediction():
    said = []
    score = partial(lambda said, quality: "high" if said else max(quality), said)
    fitted = sampler(**policy(set_score=score)).fit(X, Y)
    before = fitted.predict(X)
    said.append("high")
    refused(lambda: fitted.predict(X), TypeError, "set_score")
    said.clear()
    assert fitted.predict(X) == before
