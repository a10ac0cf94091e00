"""What code counts as when generators, scores and judges are identified."""

import os
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest

from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.generators._base import fingerprint
from sklearn_clm.generators._fingerprint import UnidentifiedError, identity, strictly
from sklearn_clm.scoring import likelihood, rouge_l, threshold_admission

# a notebook: every cell is run in one namespace, which is that of __main__
NOTEBOOK = """
from sklearn_clm.generators import BaseGenerator, Generation
import threading

EXAMPLES = ["2 + 2 = 4"]
SETTINGS = {"prefix": "Q: "}
separator = " | "
CALLS = []
LOCK = threading.Lock()

def shorten(text):
    return text[:80]

def helper(text):
    return shorten(SETTINGS["prefix"] + text)

class Template:
    suffix = "?"
    def __call__(self, text):
        return helper(separator.join([*EXAMPLES, text])) + self.suffix

def template(text, *, default="A:"):
    with LOCK:
        CALLS.append(text)
    return helper(separator.join([*EXAMPLES, text])) + default

class Base(BaseGenerator):
    def ask(self, prompt):
        return Template()(prompt)

class Mine(Base):
    def __init__(self, temperature=1.0):
        self.temperature = temperature

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        CALLS.append(len(prompts))
        return [[Generation(self.ask(prompt))] * n_samples for prompt in prompts]
"""
EDITS = {
    "a list in capitals": ("2 + 2 = 4", "3 + 3 = 6"),
    "a dictionary in capitals": ('"Q: "', '"Frage: "'),
    "a global": ('" | "', '" / "'),
    "a helper of a helper": ("text[:80]", "text[:90]"),
}
IN_TEMPLATE = {"a default": ('default="A:"', 'default="B:"')}
IN_CLASSES = {
    "a class attribute": ('suffix = "?"', 'suffix = "!"'),
    "a method of a class that is used": ("+ self.suffix", "+ self.suffix * 2"),
    "the body of the generator": ("* n_samples for", "* (n_samples + 0) for"),
    "the body of its base": ("Template()(prompt)", "Template()(prompt.strip())"),
}


def run(source, name="__main__"):
    namespace = {"__name__": name}
    exec(textwrap.dedent(source), namespace)
    return namespace


@pytest.mark.parametrize("edit", [*EDITS, *IN_TEMPLATE])
@pytest.mark.parametrize("module", ["__main__", "my_templates"])
def test_functions_are_followed_as_far_as_they_reach(edit, module):
    old, new = {**EDITS, **IN_TEMPLATE}[edit]
    assert old in NOTEBOOK
    one, same, other = (
        identity(run(source, module)["template"])
        for source in (NOTEBOOK, NOTEBOOK, NOTEBOOK.replace(old, new))
    )
    assert one == same != other


@pytest.mark.parametrize("edit", [*EDITS, *IN_CLASSES])
def test_code_of_a_generator_is_part_of_it(edit):
    old, new = {**EDITS, **IN_CLASSES}[edit]
    assert old in NOTEBOOK
    one, same, other = (
        run(source)["Mine"]().fingerprint()
        for source in (NOTEBOOK, NOTEBOOK, NOTEBOOK.replace(old, new))
    )
    assert one == same != other


def test_a_global_that_changes_under_a_function_is_noticed():
    cells = run(NOTEBOOK)
    before = identity(cells["template"]), cells["Mine"]().fingerprint()
    cells["EXAMPLES"].append("1 + 1 = 2")
    after = identity(cells["template"]), cells["Mine"]().fingerprint()
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_what_code_writes_itself_is_no_part_of_it():
    cells = run(NOTEBOOK)
    generator = cells["Mine"]()
    before = identity(cells["template"]), generator.fingerprint()
    with strictly():
        cells["template"]("what")
        generator.sample(["what"], 1)
        assert cells["CALLS"]
        assert (identity(cells["template"]), generator.fingerprint()) == before


class Service:
    """Counts its requests; what it has learnt is an array."""

    def __init__(self, name):
        self.name, self.n_requests, self.weights = name, 0, np.zeros(2)

    def update(self, x):
        self.n_requests += 1
        self.weights = self.weights + x


class Asking(BaseGenerator):
    def __init__(self, service):
        self.service = service

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self.service.update(0.0)
        return [[Generation("yes")] * n_samples for _ in prompts]


def test_what_held_objects_write_in_use_is_no_part_unless_it_is_learnt():
    service, other = Service("a"), Service("b")
    generator = Asking(service)
    before = generator.fingerprint()
    generator.sample(["what"], 1)
    assert service.n_requests == 1
    assert generator.fingerprint() == before != Asking(other).fingerprint()
    service.update(1.0)
    assert generator.fingerprint() != before


def test_counts_and_memories_in_closures_are_no_part_of_a_function():
    def counting(factor):
        n, seen, table = 0, {}, {"a": factor}

        def judge(text):
            nonlocal n
            n += 1
            seen[text] = table["a"] * len(text)
            return seen[text]

        return judge

    one, same, other = counting(1), counting(1), counting(2)
    before = identity(one)
    one("text")
    assert identity(one) == before == identity(same) != identity(other)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [("0", "random")])
def test_digests_are_equal_in_every_process(tmp_path, seeds):
    (tmp_path / "helpers.py").write_text(
        "WORDS = {'a', 'b', 'c'}\ndef clean(x): return x.strip()\n"
    )
    source = (
        NOTEBOOK
        + """
import re, functools, helpers
import numpy as np
WORDS = {"some", "words", "in", "a", "set"}
PATTERN = re.compile("a+")
def score(text):
    import json
    from helpers import clean
    known = text in {"x", "y", "z"} or text in WORDS or text in helpers.WORDS
    return known and PATTERN.search(helpers.clean(text)) and np.log(json.loads(text))
from sklearn_clm.generators._fingerprint import identity, strictly
with strictly():
    print(Mine().fingerprint(), identity(score), identity(functools.partial(template, default="C")))
"""
    )
    prints = set()
    for seed in seeds:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", source], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        prints.add(done.stdout)
    assert len(prints) == 1


def test_members_of_modules_of_the_user_are_followed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "my_own_texts.py"
    prints = []
    for text in ("Q", "Q", "R"):
        file.write_text(f"TEXT = {text!r}\nOTHER = {len(prints)}\n")
        monkeypatch.delitem(sys.modules, "my_own_texts", raising=False)
        sys.path_importer_cache.clear()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        at_top = run("import my_own_texts\ndef template(x): return my_own_texts.TEXT + x")
        prints.append(identity(at_top["template"]))
    assert prints[0] == prints[1] != prints[2]


def test_modules_that_are_imported_late_are_followed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    late = run("def template(x):\n    import my_late_texts\n    return my_late_texts.TEXT + x")
    prints = []
    for text in ("Q", "R"):
        (tmp_path / "my_late_texts.py").write_text(f"TEXT = {text!r}\n")
        prints.append(identity(late["template"]))
    assert prints[0] != prints[1]
    assert late["template"]("") == "R"
    assert identity(late["template"]) == prints[1]


def test_unknown_state_that_code_reads_needs_a_key(tmp_path):
    with open(tmp_path / "file", "w") as file:

        def judge(text):
            return file.name == text

        assert identity(judge) == identity(judge)
        with (
            pytest.raises(UnidentifiedError, match=r"has no state that identifies it: .* a key="),
            strictly(),
        ):
            identity(judge)
    answers = iter(["yes", "no"])
    with pytest.raises(UnidentifiedError), strictly():
        identity(lambda text: next(answers))


class Private(BaseGenerator):
    """Keeps what it learns to itself, and counts its draws."""

    def fit(self, prompts, references):
        self._table = dict(zip(prompts, references))
        self._n_draws = 0
        return self

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        self._n_draws += n_samples
        self._last = prompts
        return [[Generation(self._table[prompt])] * n_samples for prompt in prompts]


def test_a_generator_with_slots_is_known_by_them():
    class Slotted:
        __slots__ = ("n", "words")

        def __init__(self, n):
            self.n = n

        def sample(self, prompts, n_samples, *, start=0, seed=0):
            return [[str(self.n)] * n_samples for _ in prompts]

    assert fingerprint(Slotted(1)) == fingerprint(Slotted(1)) != fingerprint(Slotted(2))


def test_what_is_learnt_counts_wherever_it_is_kept():
    one, same, other = (Private().fit(["a"], [label]) for label in "xxy")
    before = one.fingerprint()
    one.sample(["a"], 3)
    assert one.fingerprint() == before == fingerprint(same) != other.fingerprint()


def test_functions_of_the_package_are_themselves_in_every_version():
    moved = types.FunctionType(
        likelihood.__code__.replace(co_firstlineno=likelihood.__code__.co_firstlineno + 7),
        likelihood.__globals__,
        likelihood.__name__,
    )
    assert identity(moved) == identity(likelihood)
    strict, lax = (threshold_admission(rouge_l, threshold=level) for level in (0.8, 0.4))
    assert identity(strict) != identity(lax)
