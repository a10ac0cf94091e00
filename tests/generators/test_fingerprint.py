"""What counts as another function, class, object or generator, and what does not."""

import copy
import functools
import importlib
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_clm.generators import BaseGenerator, EstimatorGenerator, Generation
from sklearn_clm.generators._identity import (
    digest_of,
    fingerprint,
    identity,
    strictly,
)
from sklearn_clm.scoring import rouge_l, threshold_admission

MODULE = '''
from dataclasses import dataclass

from sklearn_clm.generators import BaseGenerator, Generation

HELPER = 1

def template(text, *, default="A:"):
    """Doc."""
    # comment
    def shorten(part):
        "Doc."
        try:
            return part[:80]
        except TypeError:
            return "refused"
    return shorten(f"Q: {text!r:>{9}}") + default

def closed(n):
    return lambda reference, response: len(response) > n

pair = lambda text: text, lambda text: text.strip()

@dataclass
class Judge:
    """Doc."""
    least: float = 0.5

    def __call__(self, reference, response):
        return response >= self.least

class Base(BaseGenerator):
    def ask(self, prompt):
        return prompt

class Mine(Base):
    suffix = "?"

    def __init__(self, temperature=1.0):
        self.temperature = temperature

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        return [[Generation(self.ask(prompt) + self.suffix)] * n_samples for prompt in prompts]

ONE = closed(1)
'''
EDITS = {
    "a body": ("part[:80]", "part[:90]", {"template"}),
    "an f-string": ('f"Q: ', 'f"R: ', {"template"}),
    "a default": ('"A:"', '"B:"', {"template"}),
    "one of two lambdas": (".strip()", ".lower()", {"second"}),
    "a variable around": ("closed(1)", "closed(2)", {"closed"}),
    "a method": (">= self", "> self", {"judge"}),
    "a base": ("return prompt\n", "return prompt + '!'\n", {"mine"}),
    "a class attribute": ('suffix = "?"', 'suffix = "!"', {"mine"}),
    "a docstring": ('"""Doc."""', '"""Other words."""', set()),
    "an inner docstring": ('"Doc."\n        try', "try", set()),
    "a handler": ('return "refused"', 'return ""', {"template"}),
    "a comment": ("# comment", "# another", set()),
    "a line": ("\nHELPER", "\n\n\nHELPER", set()),
    "blanks": ("text, *, default", "text,   *,default", set()),
    "a global": ("HELPER = 1", "HELPER = 2", set()),
}


def identities(source, folder, name, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / f"{name}.py").write_text(source)
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    return {
        "template": identity(module.template),
        "closed": identity(module.ONE),
        "first": identity(module.pair[0]),
        "second": identity(module.pair[1]),
        "judge": identity(module.Judge()),
        "mine": module.Mine().fingerprint(),
    }


@pytest.mark.parametrize("edit", EDITS)
def test_what_an_edit_changes(edit, tmp_path, monkeypatch):
    """The module does not count: what a script defines, a service imports."""
    old, new, changed = EDITS[edit]
    assert old in MODULE
    before = identities(MODULE, tmp_path, f"{tmp_path.name}_before", monkeypatch)
    after = identities(MODULE.replace(old, new), tmp_path, f"{tmp_path.name}_after", monkeypatch)
    assert {name for name in before if before[name] != after[name]} == changed
    assert before["first"] != before["second"]


class Private(BaseGenerator):
    """Keeps what it learns to itself, and counts its draws."""

    def fit(self, prompts, references):
        self._table = dict(zip(prompts, references))
        self._n_draws = 0
        return self

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self._n_draws += n_samples
        return [[Generation(self._table[prompt])] * n_samples for prompt in prompts]


def test_a_training_counts_and_its_use_does_not():
    one, same, other = (Private().fit(["a"], [label]) for label in "xxy")
    before = one.fingerprint()
    one.sample(["a"], 3)
    assert one.fingerprint() == before == fingerprint(same) != other.fingerprint()
    assert before != Private().fingerprint()
    assert one.fit(["a"], ["y"]).fingerprint() == other.fingerprint()


def test_state_that_identifies_nothing_needs_a_key(tmp_path):
    with open(tmp_path / "file", "w") as file:

        def judge(text):
            return file.name == text

        assert identity(judge) == identity(judge)
        with pytest.raises(ValueError, match=r"judge: .+key="), strictly("judge"):
            identity(judge)
    answers = iter(["yes", "no"])
    with pytest.raises(ValueError, match="judge"), strictly("judge"):
        identity(lambda text: next(answers))


@pytest.mark.slow
def test_digests_are_equal_in_every_process(tmp_path):
    (tmp_path / "mine.py").write_text(
        MODULE + "\nimport re\nWORDS = {'a', 'b', 'c'}\n"
        "judge = (lambda words, pattern: lambda text: text in words)(WORDS, re.compile('a+'))\n"
    )
    source = (
        "import mine\nfrom sklearn_clm.generators._identity import identity, strictly\n"
        "with strictly('it'):\n    print(mine.Mine().fingerprint(), identity(mine.judge))"
    )
    prints = set()
    for seed in ("0", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", source], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        prints.add(done.stdout)
    assert len(prints) == 1


def longer_than(n):
    return lambda reference, response: len(response) > n


def without_source(bound):
    names = {"__name__": "__main__"}
    exec(f"def judge(a, b):\n    return len(b) > {bound} or b in {{'x', 'y'}}", names)
    return names["judge"]


@pytest.mark.parametrize(
    "classifier",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(3, random_state=0),
    ],
)
def test_an_object_and_its_pickled_copy_are_the_same(classifier):
    rows = np.random.default_rng(0).normal(size=(40, 3))
    classifier.fit(rows, rows[:, 0] > 0)
    first = EstimatorGenerator(FrozenEstimator(classifier))
    second = pickle.loads(pickle.dumps(first))
    third = pickle.loads(pickle.dumps(second))
    assert first.fingerprint() == second.fingerprint() == third.fingerprint()
    other = clone(classifier).fit(rows, rows[:, 1] > 0)
    assert EstimatorGenerator(FrozenEstimator(other)).fingerprint() != first.fingerprint()
    texts = make_pipeline(TfidfVectorizer(), LogisticRegression())
    texts.fit(["a cat sat", "a dog ran", "lorem ipsum", "dolor sit"], [1, 1, 0, 0])
    copied = pickle.loads(pickle.dumps(texts))
    copied[0]._stop_words_id += 8  # an address, which is another one in another process
    assert digest_of(dict, {"model": texts}) == digest_of(dict, {"model": copied})


def test_tensors_are_told_by_their_numbers():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.width, self.layer = width, torch.nn.Linear(2, width)

    one, same, other = (Net(2) for _ in range(3))
    same.load_state_dict(one.state_dict())
    models = [one, same, other, *(model.bfloat16() for model in map(copy.deepcopy, (one, other)))]
    prints = [digest_of(dict, {"model": model}) for model in models]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4
    sparse = [torch.tensor([[0.0, value]]).to_sparse() for value in (1.0, 1.0, 2.0)]
    one, same, other = (digest_of(dict, {"made": made}) for made in sparse)
    assert one == same != other


class Used:
    """Its parameters tell what it is; how often it was used does not."""

    def __init__(self, least):
        self.least, self.n_calls = least, 0

    def reaches(self, reference, response):
        self.n_calls += 1
        return response >= self.least


class Derived:
    def __init__(self, least):
        self.bound = 2 * least


class Slotted:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n


def counting_from(first):
    def count(n):
        return first if n == 0 else count(n - 1)

    return count


@pytest.mark.parametrize(
    "make",
    [
        Used,
        Derived,
        Slotted,
        counting_from,
        lambda n: Used(n).reaches,
        lambda n: threshold_admission(rouge_l, threshold=n / 4),
        lambda n: {n: "a", "b": {2}},
        without_source,
        lambda n: functools.cache(longer_than(n)),
        lambda n: functools.lru_cache(maxsize=9)(longer_than(n)),
        lambda n: functools.partial(longer_than(n)),
        lambda n: functools.partial(functools.partial(longer_than(n))),
        lambda n: [longer_than(n)],
        lambda n: {"judge": longer_than(n)},
        lambda n: functools.wraps(longer_than(0))(lambda *pair: longer_than(n)(*pair)),
        lambda n: FunctionTransformer(longer_than(n)),
    ],
)
@pytest.mark.parametrize("told_by", [identity, lambda made: digest_of(dict, {"made": made})])
def test_what_is_made_of_another_number_is_another_thing(make, told_by):
    one, same, other = (told_by(make(n)) for n in (1, 1, 2))
    assert one == same != other


def test_keys_of_another_type_and_other_methods_are_told_apart():
    assert identity({1: "a"}) != identity({"1": "a"})
    assert identity({1: "a", "b": {2}}) == identity({"b": {2}, 1: "a"})
    used = Used(1)
    used.reaches(0, 1)
    assert identity(used) == identity(Used(1))
    assert identity(Used(1).reaches) != identity(Used(1).__init__)
