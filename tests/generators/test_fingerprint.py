"""What counts as another function, class, object or generator, and what does not."""

import collections
import copy
import datetime as dt
import enum
import functools
import importlib
import inspect
import logging
import operator
import os
import pickle
import pkgutil
import string
import subprocess
import sys
import threading
import types
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.metaestimators import available_if

import sklearn_clm
from sklearn_clm.generators import BaseGenerator, EstimatorGenerator, Generation
from sklearn_clm.generators.identity import (
    digest_of,
    fingerprint,
    identity,
    strictly,
)
from sklearn_clm.scoring import component_match, rouge_l, threshold_admission

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
    return identities_of(imported(source, folder, name, monkeypatch))


def imported(source, folder, name, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / f"{name}.py").write_text(source)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def identities_of(module):
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


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_says_nothing_of_the_code_that_runs(edit, tmp_path, monkeypatch):
    old, new, changed = EDITS[edit]
    name = f"{tmp_path.name}_edited"
    edited = MODULE.replace(old, new)
    running = imported(MODULE, tmp_path, name, monkeypatch)
    asked_before = imported(MODULE, tmp_path, f"{name}_asked", monkeypatch)
    unedited = identities_of(asked_before)
    for one in (name, f"{name}_asked"):
        (tmp_path / f"{one}.py").write_text(edited)
    assert identities_of(asked_before) == unedited
    later = identities_of(running)
    restarted = identities_of(imported(edited, tmp_path, f"{name}_new", monkeypatch))
    assert {part for part in later if later[part] != restarted[part]} >= changed
    if edit in ("a comment", "a line", "blanks", "a global"):
        assert later == restarted == unedited
    importlib.reload(running)
    assert identities_of(running) == restarted


SYNTAX = """
async def various(first, /, second=(1, 2.5), *rest: "words", key: int = 3, **others) -> str:
    class Local(dict, metaclass=type):
        "Doc."
        size: int = 2

    @staticmethod
    def inner(x=first):
        nonlocal second
        second = yield
    match first:
        case {"a": [1, *tail], **more} if (n := len(rest)) > 1:
            return f"{n!r:>{key}.{n}}{{}}" f"{more=}" "\\N{BULLET}" + rb"\\d".decode()
        case str() | None:
            pass
    async with first as held:
        await held
    try:
        return [a async for a in held if not a] + sorted(rest, key=lambda a, *b: -a)
    except (ValueError, KeyError) as error:
        del error
        raise
    finally:
        first[1:2, ...] @= ~0x1F ** 1_000j
"""


def test_digests_are_equal_under_every_python(tmp_path, monkeypatch):
    """The digest is the same number on whatever runs this test."""
    module = imported(MODULE + SYNTAX, tmp_path, "golden", monkeypatch)
    parts = {**identities_of(module), "various": identity(module.various)}
    told = {name: parts[name] for name in ("template", "closed", "judge", "mine", "various")}
    assert digest_of(dict, told) == "4f3a39b5cd7abd9d22f5319d5c8f4a01"


def modules_of_the_package():
    found = pkgutil.walk_packages(sklearn_clm.__path__, "sklearn_clm.")
    return [importlib.import_module(each.name) for each in found if "__main__" not in each.name]


def texts_in(value):
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each)]
    return [value] if isinstance(value, str) else []


def test_no_module_of_the_package_is_part_of_an_identity():
    """A file that was saved still agrees after a module was renamed, or split."""
    modules = {module.__name__: module for module in modules_of_the_package()}
    rooms = {name for name in modules if name.count(".") == 1 and "._" not in name}
    public = [getattr(modules[room], name) for room in rooms for name in modules[room].__all__]
    public += [getattr(sklearn_clm, name) for name in sklearn_clm.__all__]
    parts = [part for part in public if inspect.isclass(part) or inspect.isfunction(part)]
    assert len(parts) > 100

    parts += [
        rouge_l,
        rouge_l.pairwise,
        threshold_admission(rouge_l, 0.4),
        component_match(rouge_l),
    ]
    for part in parts:
        names = [text for text in texts_in(identity(part)) if text.startswith("sklearn_clm.")]
        assert names, part
        inner = tuple(f"{module}." for module in modules.keys() - rooms)
        assert not any(name.startswith(inner) for name in names), names


def test_no_two_classes_of_the_package_have_one_identity():
    """The room and the name tell them apart, as modules do not count."""
    classes = {
        cls
        for module in modules_of_the_package()
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__.startswith("sklearn_clm.")
    }
    assert len(classes) > 150
    assert len({identity(cls) for cls in classes}) == len(classes)


def test_a_partial_is_its_function_and_arguments():
    def made(n=1, **named):
        return functools.partial(longer_than, n, **named)

    touched = made()
    touched.__dict__  # noqa: B018  # some versions of Python make it when it is asked for
    touched.note = "seen"
    assert identity(touched) == identity(made()) == identity(pickle.loads(pickle.dumps(made())))
    others = [made(2), made(k=1), functools.partial(without_source, 1)]
    assert len({str(identity(one)) for one in (made(), *others)}) == 4


class Methods:
    """Each of its functions counts, whatever stands around it."""

    limit = 1
    words: tuple = ("a", {"b": 2})

    @staticmethod
    def static(text):
        return text

    @classmethod
    def of_class(cls, text):
        return text

    @property
    def bound(self):
        return self.limit

    @functools.cached_property
    def later(self):
        return self.limit

    @functools.lru_cache  # noqa: B019
    def cached(self):
        return self.limit

    @available_if(lambda self: True)
    def available(self):
        return self.limit


@pytest.mark.parametrize("name", ["static", "of_class", "bound", "later", "cached", "available"])
def test_each_method_of_a_class_counts(name):
    def other(self):
        return 2

    kinds = {
        "static": staticmethod,
        "of_class": classmethod,
        "bound": property,
        "later": functools.cached_property,
        "cached": functools.lru_cache,
        "available": available_if(lambda self: True),
    }
    changed = type("Methods", (), {**vars(Methods), name: kinds[name](other)})
    same = type("Methods", (), dict(vars(Methods)))
    changed.__qualname__ = same.__qualname__ = "Methods"
    assert identity(same) == identity(Methods) != identity(changed)


@pytest.mark.parametrize("changed", [{"limit": 2}, {"words": ("a", {"b": 3})}, {"more": None}])
def test_plain_attributes_of_a_class_count(changed):
    other = type("Methods", (), {**vars(Methods), **changed})
    assert identity(other) != identity(Methods)


class Mode(enum.Enum):
    STRICT = 1
    LAX = 2


class Least:
    def __init__(self, share):
        self.share = share

    def is_met(self, share):
        return share >= self.share


def _handlers():
    """Methods of other kinds, by the number that they return."""
    of_text = functools.singledispatchmethod(lambda self, part: 1)
    of_text.register(str, lambda self, part: 2)
    return of_text


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (Mode.STRICT, Mode.LAX),
        (Least(0.5), Least(0.6)),
        (Decimal("0.1"), Decimal("0.2")),
        (Fraction(1, 3), Fraction(2, 3)),
        (np.float32(0.1), np.float32(0.2)),
        (PurePath("strict"), PurePath("lax")),
        (dt.timedelta(1), dt.timedelta(2)),
        (range(3), range(4)),
        (max, min),
        (functools.partial(round, ndigits=1), functools.partial(round, ndigits=2)),
        (operator.attrgetter("a"), operator.attrgetter("b")),
        ({"a": [max]}, {"a": [min]}),
        ([lambda text: text], [lambda text: text.strip()]),
        (functools.partialmethod(max, 1), functools.partialmethod(max, 2)),
        (functools.partial(int, base=2), functools.partial(int, base=8)),
        (str.lower, str.upper),
        (Least(0.5).is_met, Least(0.6).is_met),
        ((Least(0.5), str), (Least(0.6), str)),
        ((Least(0.5), str), (Least(0.5), bytes)),
        (string.Template("Is $it right?"), string.Template("Is $it wrong?")),
        (types.SimpleNamespace(least=0.5), types.SimpleNamespace(least=0.6)),
        (types.MappingProxyType({"least": 0.5}), types.MappingProxyType({"least": 0.6})),
        (collections.deque("ab"), collections.deque("ba")),
        (functools.singledispatchmethod(lambda self, part: 1), _handlers()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_functions_and_own_objects_in_a_class_count(value, other):
    def of(attribute):
        return identity(type("Judge", (), {"attribute": attribute}))

    same = value if isinstance(value, types.MappingProxyType) else copy.copy(value)
    assert of(value) == of(same) != of(other)


class Limiter:
    """An object of the user's that identifies nothing, but for its rate."""

    def __init__(self, rate):
        self.seconds = 1 / rate
        self._lock = threading.Lock()


def test_a_lock_in_an_object_of_a_class_is_no_reason_to_refuse_it():
    def of(rate):
        with strictly("generator"):
            return identity(type("Model", (), {"limiter": Limiter(rate)}))

    assert of(2) == of(2) != of(3)


def _rule(least):
    class Rule(NamedTuple):
        words: int

        def is_met(self, text):
            return len(text.split()) >= self.words + least

    return Rule


def _vocabulary(kind, least):
    class Vocabulary(kind):
        def is_met(self, text):
            return text in self and len(text) > least

    return Vocabulary


def test_an_own_container_is_its_class_its_items_and_its_attributes():
    first, other = _rule(1), _rule(2)
    assert identity(first(3)) == identity(_rule(1)(3)) != identity(first(4))
    assert identity(first(3)) != identity(other(3))
    for kind in (list, tuple, set, frozenset):
        assert identity(_vocabulary(kind, 1)("ab")) != identity(_vocabulary(kind, 2)("ab"))
    words = _vocabulary(dict, 1)(a=1)
    before = identity(words)
    words.language = "Welsh"
    assert identity(words) != before


def _class_with_notes(n_made):
    class Judge:
        lock = threading.Lock()
        log = logging.getLogger(f"judge {n_made}")
        made = []

        def __init__(self):
            self.made.append(self)

    Judge.usual = Judge()
    for _ in range(n_made):
        Judge()
    return Judge


def test_what_a_class_notes_and_what_packages_make_for_it_do_not_count():
    one, other = _class_with_notes(1), _class_with_notes(2)
    assert identity(one.usual) == identity(other.made[-1])
    assert identity(one) == identity(other)


def test_a_member_of_an_enumeration_is_its_name_and_value():
    assert identity(Mode.STRICT) != identity(Mode.LAX)
    other = enum.Enum("Mode", {"STRICT": 2, "LAX": 1})
    assert identity(other.STRICT) != identity(Mode.STRICT)
    # whichever is asked first
    asked = "from tests.generators.test_fingerprint import Mode, identity as of; print({})"
    orders = ["(of(Mode.LAX), of(Mode.STRICT))", "(of(Mode.STRICT), of(Mode.LAX))[::-1]"]
    said = [
        subprocess.run(
            [sys.executable, "-c", asked.format(order)], capture_output=True, text=True, check=True
        ).stdout
        for order in orders
    ]
    assert said[0] == said[1]


def test_a_class_that_counts_its_uses_stays_the_same():
    class Counting:
        n_calls = 0
        seen = []

        def __call__(self, reference, response):
            Counting.n_calls += 1
            self.seen.append(response)
            return True

    before = identity(Counting())
    Counting()("a", "b")
    assert identity(Counting()) == before


SERVICE = """
import sys, warnings
sys.path.insert(0, {folder!r})
import my_llm
from sklearn_clm import ConformalSampler
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import FunctionGenerator

def write(text):
    with open({folder!r} + "/my_llm.py", "w") as file:
        file.write(text)

def sampler(wrap=lambda generator: generator):
    generator = wrap(FunctionGenerator(my_llm.ask, max_retries=0))
    return ConformalSampler(generator, k_max=3, quality=my_llm.quality, delta=0.2)

X, Y = [f"prompt {{i}}" for i in range(60)], ["A"] * 60
"""
MY_LLM = """
def ask(prompt):
    return "A"

def quality(prompt, generation):
    return 1.0
"""


@pytest.fixture
def run_service(tmp_path):
    def run(script):
        code = SERVICE.format(folder=str(tmp_path)) + script
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    (tmp_path / "my_llm.py").write_text(MY_LLM)
    return run


def test_an_edit_under_a_running_service(run_service):
    """What ran is recorded, and is told from what runs after the restart."""
    run_service(
        """
a = open("my_llm.py").read()
write(a.replace('"A"', '"B"'))
fitted = sampler(lambda inner: CachedGenerator(inner, "store.sqlite")).fit(X, Y)
assert fitted.calibration_.certified
fitted.save_calibration("edited.json")
write("# a comment of git pull" + chr(10) + a.replace('"A"', '"B"'))
assert fitted.predict(["new"])[0].responses == ("A",)
write(a)
"""
    )
    run_service(
        """
fitted = sampler().fit(X, Y)
fitted.save_calibration("unedited.json")
write("# another comment" + 2 * chr(10) + open("my_llm.py").read())
assert fitted.predict(["new"])[0].guaranteed
"""
    )
    restarted = """
for name in ("unedited", "edited"):
    try:
        sampler().load_calibration(name + ".json")
        print("loads")
    except ValueError:
        print("refused")
"""
    assert run_service(restarted)[0] == "loads"  # a comment makes no other model
    as_b = """
write(open("my_llm.py").read().replace('"A"', '"B"'))
"""
    run_service(as_b)
    ask_the_store = """
cached = CachedGenerator(FunctionGenerator(my_llm.ask), "store.sqlite")
print(cached.sample(X[:1], 1)[0][0].response, cached.n_hits_)
"""
    assert run_service(restarted + ask_the_store) == ["refused", "refused", "B", "0"]


@pytest.mark.slow
def test_digests_are_equal_in_every_process(tmp_path):
    (tmp_path / "mine.py").write_text(
        MODULE + "\nimport re\nWORDS = {'a', 'b', 'c'}\n"
        "judge = (lambda words, pattern: lambda text: text in words)(WORDS, re.compile('a+'))\n"
    )
    source = (
        "import mine\nfrom sklearn_clm.generators.identity import identity, strictly\n"
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
