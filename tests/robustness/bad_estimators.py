"""Wrong parameters and inputs of the two estimators, and parts of theirs that misbehave."""

import math

import numpy as np
from sklearn.linear_model import LogisticRegression

from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData
from sklearn_clm.generators import Generation
from tests.toy import ToyModel, Unscored

NAN = math.nan

# parameter, wrong value, what of it the message shows
SAMPLER_PARAMETERS = [
    ("generator", "gpt", "'gpt'"),
    ("generator", 3, "3"),
    ("generator", Unscored(), "Unscored"),
    ("k_max", 0, "0"),
    ("k_max", -1, "-1"),
    ("k_max", 2.5, "2.5"),
    ("k_max", "five", "'five'"),
    ("k_max", None, "None"),
    ("k_max", [], "[]"),
    ("k_max", [3, 0], "[3, 0]"),
    ("k_max", [3, "a"], "[3, 'a']"),
    ("epsilon", 0.0, "0.0"),
    ("epsilon", 1.0, "1.0"),
    ("epsilon", -0.1, "-0.1"),
    ("epsilon", NAN, "nan"),
    ("epsilon", "0.3", "'0.3'"),
    ("epsilon", None, "None"),
    ("epsilon", [0.1, 0.2], "[0.1, 0.2]"),
    ("delta", 0, "0"),
    ("delta", 1, "1"),
    ("delta", NAN, "nan"),
    ("admission", "equal", "'equal'"),
    ("admission", 3, "3"),
    ("admission", None, "None"),
    ("quality", "likelyhood", "'likelyhood'"),
    ("quality", 3, "3"),
    ("quality", None, "None"),
    ("similarity", "bleu", "'bleu'"),
    ("similarity", 3, "3"),
    ("set_score", "mean", "'mean'"),
    ("set_score", 3, "3"),
    ("size_weight", -1, "-1"),
    ("size_weight", NAN, "nan"),
    ("size_weight", math.inf, "inf"),
    ("excess_weight", -0.5, "-0.5"),
    ("excess_weight", math.inf, "inf"),
    ("n_lambdas", 0, "0"),
    ("n_lambdas", 2.5, "2.5"),
    ("optimization_fraction", 0, "0"),
    ("optimization_fraction", 1.0, "1.0"),
    ("training_fraction", 0.0, "0.0"),
    ("on_null", "ignore", "'ignore'"),
    ("random_state", "a", "'a'"),
    ("random_state", -1, "-1"),
    ("n_jobs", "all", "'all'"),
    ("n_jobs", 0, "0"),
    ("verbose", "yes", "'yes'"),
]

SELECTOR_PARAMETERS = [
    ("sampler", "sampler", "'sampler'"),
    ("sampler", 3, "3"),
    ("alpha", 0, "0"),
    ("alpha", 1.0, "1.0"),
    ("alpha", NAN, "nan"),
    ("alpha", "0.3", "'0.3'"),
    ("delta", 0, "0"),
    ("delta", NAN, "nan"),
    ("splitter", "words", "'words'"),
    ("splitter", 3, "3"),
    ("component_score", "mean", "'mean'"),
    ("component_score", 3, "3"),
    ("admission", "equal", "'equal'"),
    ("admission", None, "None"),
    ("on_null", "ignore", "'ignore'"),
    ("random_state", "a", "'a'"),
    ("n_jobs", "all", "'all'"),
    ("n_jobs", 0, "0"),
]

N = 30
X, Y = [f"item {i}" for i in range(N)], [f"answer {i}" for i in range(N)]


def changed(items, position, value):
    return [*items[:position], value, *items[position + 1 :]]


# argument, prompts, admissions, what the message shows
INPUTS = [
    ("prompts", X[:-1], Y, "29"),
    ("admissions", X, Y[:-1], "29"),
    ("prompts", [], [], "empty"),
    ("prompts", np.array([]), [], "0"),
    ("prompts", None, Y, "None"),
    ("prompts", "item 1", Y, "str 'item 1'"),
    ("prompts", {"a": 1}, Y, "dict"),
    ("prompts", iter(X), Y, "list_iterator"),
    ("prompts", changed(X, 7, None), Y, "None at position 7"),
    ("prompts", changed(X, 7, NAN), Y, "nan at position 7"),
    ("prompts", np.array(changed(X, 7, None), dtype=object), Y, "None at position 7"),
    ("prompts", changed(X, 7, 3), Y, "number 3 at position 7"),
    ("prompts", changed(X, 7, object()), Y, "object"),
    ("prompts", np.zeros((3, 2, 2), dtype=object), Y[:3], "(3, 2, 2)"),
    ("admissions", X, "answer", "str 'answer'"),
    ("admissions", X, len, "len"),
    ("admissions", X, 3, "int 3"),
    ("admissions", X, iter(Y), "list_iterator"),
    ("admissions", X, changed(Y, 4, None), "None at position 4"),
    ("admissions", X, changed(Y, 4, NAN), "nan at position 4"),
    ("admissions", X, changed(Y, 4, len), "admissions[4] a callable"),
    ("admissions", X, changed([len] * N, 4, "a"), "admissions[4] a reference"),
    ("admissions", X, changed(Y, 4, []), "empty list"),
    ("admissions", X, changed(Y, 4, ["a", None]), "['a', None]"),
    ("y", X, None, "None"),
]

# argument, prompts, what the message shows
PREDICT_INPUTS = [
    ("prompts", [], "empty"),
    ("prompts", None, "None"),
    ("prompts", "item 1", "'item 1'"),
    ("prompts", ["a", None], "None at position 1"),
    ("prompts", [NAN, "a"], "nan at position 0"),
    ("prompts", [[1.0, 2.0]], "rows of numbers"),
    ("prompts", np.ones((2, 3)), "rows of numbers"),
]


class Misbehaving(ToyModel):
    """Changes what ToyModel draws for prompt 12 and those after it."""

    chunk_size = 10

    def __init__(self, change, log=None):
        super().__init__(log=log)
        self.change = change

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        rows = super().sample(prompts, n_samples, start=start, seed=seed)
        return self.change(rows) if prompts[0] == "item 10" else rows


def failing(rows):
    raise ConnectionError("generator went away")


# what is wrong, the change of 10 rows of draws, error, what the message shows
GENERATORS = [
    ("too few draws", lambda rows: [row[:-1] for row in rows], ValueError, "[3, 3"),
    ("too many draws", lambda rows: [[*row, row[0]] for row in rows], ValueError, "[5, 5"),
    ("too few prompts", lambda rows: rows[:-1], ValueError, "10 prompts"),
    ("no list", lambda rows: None, ValueError, "NoneType"),
    ("text for a row", lambda rows: ["abcd" for _ in rows], ValueError, "'str'"),
    ("no draws", lambda rows: [[None] * 4 for _ in rows], TypeError, "None"),
    ("no response", lambda rows: [[Generation(None)] * 4 for _ in rows], TypeError, "None"),
    ("a failure", failing, ConnectionError, "went away"),
]


class Pairs:
    """A similarity that is used whole."""

    def __init__(self, of):
        self.of = of

    def pairwise(self, a, b=None):
        return self.of(len(a), len(a if b is None else b))


class Whole:
    """A quality that is used whole."""

    def __init__(self, of):
        self.of = of

    def score_draws(self, prompts, generations, start):
        return self.of(len(prompts), len(generations[0]) - start)


def raising(*arguments):
    raise ZeroDivisionError("in the user's function")


# parameter, value that misbehaves when it is called, error, what the message shows
CALLED = [
    ("admission", lambda a, b: 2, TypeError, "returned 2"),
    ("admission", lambda a, b: None, TypeError, "returned None"),
    ("admission", lambda a, b: "yes", TypeError, "'yes'"),
    ("admission", lambda a, b: np.ones(2, dtype=bool), TypeError, "ndarray"),
    ("admission", raising, ZeroDivisionError, "user's function"),
    ("quality", lambda p, g: NAN, ValueError, "NaN"),
    ("quality", lambda p, g: None, ValueError, "None"),
    ("quality", lambda p, g: "0.5", ValueError, "'0.5'"),
    ("quality", lambda p, g: [0.5, 0.5], ValueError, "[0.5, 0.5]"),
    ("quality", raising, ZeroDivisionError, "user's function"),
    ("quality", Whole(lambda n, k: np.ones((n, k + 1))), ValueError, "(30, 5)"),
    ("quality", Whole(lambda n, k: np.full((n, k), NAN)), ValueError, "NaN"),
    ("quality", Whole(lambda n, k: None), ValueError, "object"),
    ("quality", LogisticRegression(), ValueError, "fitted"),
    ("similarity", lambda a, b: NAN, ValueError, "NaN"),
    ("similarity", lambda a, b: "same", ValueError, "'same'"),
    ("similarity", raising, ZeroDivisionError, "user's function"),
    ("similarity", Pairs(lambda n, m: np.ones(n)), ValueError, "(3,)"),
    ("similarity", Pairs(lambda n, m: np.full((n, m), NAN)), ValueError, "NaN"),
    ("set_score", lambda quality: "high", TypeError, "'high'"),
    ("set_score", lambda quality, accepted: np.ones(3), ValueError, "(3,)"),
    ("set_score", raising, ZeroDivisionError, "user's function"),
]

SELECTOR_CALLED = [
    ("splitter", lambda text: [(0, 10**6)], ValueError, "1000000"),
    ("splitter", lambda text: [(5, 2)], ValueError, "(5, 2)"),
    ("splitter", lambda text: "words", (ValueError, TypeError), "words"),
    ("splitter", lambda text: None, (ValueError, TypeError), "None"),
    ("component_score", lambda p, c: NAN, ValueError, "NaN"),
    ("component_score", lambda p, c: math.inf, ValueError, "inf"),
    ("component_score", lambda p, c: None, (ValueError, TypeError), "None"),
    ("component_score", raising, ZeroDivisionError, "user's function"),
    ("admission", lambda a, b: 2, TypeError, "returned 2"),
    ("admission", raising, ZeroDivisionError, "user's function"),
]

rng = np.random.default_rng(0)
DATA = CalibrationData(rng.random((40, 4)), np.zeros((40, 4, 4)), np.ones((40, 4)))
COMPONENTS = ComponentCalibrationData.from_arrays(np.ones((40, 2)), np.ones((40, 2)))

# arrived, what the message shows
CALIBRATE_INPUTS = [
    (None, "NoneType"),
    (DATA.quality, "ndarray"),
    (COMPONENTS, "ComponentCalibrationData"),
    (DATA.truncate(3), "k_max=4 asks for more draws than the 3"),
]
