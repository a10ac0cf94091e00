"""What counts as another function, class or object, and what does not."""

import ast
import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.generators._base import fingerprint
from sklearn_clm.generators._fingerprint import UnidentifiedError, digest_of, identity, strictly
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
        return part[:80]
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
    "an inner docstring": ('"Doc."\n        return', "return", set()),
    "a comment": ("# comment", "# another", set()),
    "a line": ("\nHELPER", "\n\n\nHELPER", set()),
    "blanks": ("text, *, default", "text,   *,default", set()),
    "a global": ("HELPER = 1", "HELPER = 2", set()),
}


def identities(source, folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / "my_own_code.py").write_text(source)
    monkeypatch.delitem(sys.modules, "my_own_code", raising=False)
    importlib.invalidate_caches()
    module = importlib.import_module("my_own_code")
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
    old, new, changed = EDITS[edit]
    assert old in MODULE
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    before = identities(MODULE, tmp_path / "a", monkeypatch)
    after = identities(MODULE.replace(old, new), tmp_path / "b", monkeypatch)
    assert {name for name in before if before[name] != after[name]} == changed
    assert before["first"] != before["second"]


def test_the_module_of_own_code_does_not_count(tmp_path, monkeypatch):
    """What a script defines, and was calibrated with there, a service imports."""
    imported = identities(MODULE, tmp_path, monkeypatch)
    script = tmp_path / "script.py"
    script.write_text(
        f"{MODULE}\nfrom sklearn_clm.generators._fingerprint import identity\n"
        "print([identity(template), identity(Judge()), Mine().fingerprint()])\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(script)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ast.literal_eval(ran.stdout) == [
        imported[name] for name in ("template", "judge", "mine")
    ]


def test_objects_are_their_parameters():
    class Counting:
        def __init__(self, level):
            self.level, self.n_calls = level, 0

    class Derived:
        def __init__(self, level):
            self.bound = 2 * level

    for kind in (Counting, Derived):
        assert identity(kind(1)) == identity(kind(1)) != identity(kind(2))
    used = Counting(1)
    used.n_calls = 9
    assert identity(used) == identity(Counting(1))


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


def test_a_generator_with_slots_is_known_by_them():
    class Slotted:
        __slots__ = ("n",)

        def __init__(self, n):
            self.n = n

        def sample(self, prompts, n_samples, *, start=0, seed=0):
            return [[str(self.n)] * n_samples for _ in prompts]

    assert fingerprint(Slotted(1)) == fingerprint(Slotted(1)) != fingerprint(Slotted(2))


def test_a_fitted_estimator_is_what_it_has_learnt_however_often_it_was_used():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    one, other = (KNeighborsClassifier(3).fit(rows[:n], np.arange(n) % 2) for n in (40, 39))
    before = digest_of(dict, {"model": one})
    one.predict(rows)
    assert digest_of(dict, {"model": one}) == before != digest_of(dict, {"model": other})


def test_state_that_identifies_nothing_needs_a_key(tmp_path):
    with open(tmp_path / "file", "w") as file:

        def judge(text):
            return file.name == text

        assert identity(judge) == identity(judge)
        with pytest.raises(UnidentifiedError, match="key="), strictly():
            identity(judge)
    answers = iter(["yes", "no"])
    with pytest.raises(UnidentifiedError), strictly():
        identity(lambda text: next(answers))


def test_functions_without_source_are_known_by_byte_code():
    made = []
    for bound in (1, 1, 2):
        names = {"__name__": "__main__"}
        exec(f"def judge(a, b):\n    return len(b) > {bound} or b in {{'x', 'y'}}", names)
        made.append(names["judge"])
    one, same, other = map(identity, made)
    assert one == same != other


def test_functions_of_packages_are_their_names_and_what_they_close_over():
    assert identity(rouge_l) == identity(rouge_l)
    strict, lax = (threshold_admission(rouge_l, threshold=level) for level in (0.8, 0.4))
    assert identity(strict) != identity(lax)


@pytest.mark.slow
def test_digests_are_equal_in_every_process(tmp_path):
    (tmp_path / "mine.py").write_text(
        MODULE + "\nimport re\nWORDS = {'a', 'b', 'c'}\n"
        "judge = (lambda words, pattern: lambda text: text in words)(WORDS, re.compile('a+'))\n"
    )
    source = (
        "import mine\nfrom sklearn_clm.generators._fingerprint import identity, strictly\n"
        "with strictly():\n    print(mine.Mine().fingerprint(), identity(mine.judge))"
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
