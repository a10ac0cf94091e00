"""What an import of the package pulls in, and what packages take from each other."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_clm

ROOT = Path(sklearn_clm.__file__).parent
# pandas comes with scikit-learn where it is installed
HEAVY = {"torch", "transformers", "openai", "matplotlib", "sqlite3", "starlette"}


def test_imports_pull_in_nothing_heavy():
    packages = sorted(
        ".".join(path.parent.relative_to(ROOT.parent).parts) for path in ROOT.rglob("__init__.py")
    )
    code = "import sys\n" + "".join(f"from {package} import *\n" for package in packages)
    code += f"print(sorted({HEAVY!r} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def packages():
    return [f"sklearn_clm.{path.parent.name}" for path in sorted(ROOT.glob("*/__init__.py"))]


WHOLE_FIRST = """
import builtins, sys
real, parts = builtins.__import__, []

def noting(name, *rest):
    package = name.rpartition(".")[0]
    if package.startswith("sklearn_clm.") and package not in sys.modules:
        parts.append(name)
    return real(name, *rest)

builtins.__import__ = noting
for package in sys.argv[1:]:
    for name in [name for name in sys.modules if name.startswith("sklearn_clm")]:
        del sys.modules[name]
    real(package)
print(parts)
"""


def test_packages_are_imported_before_parts_of_them():
    """Or two threads may each hold what the other waits for: a part, and its package."""
    run = subprocess.run(
        [sys.executable, "-c", WHOLE_FIRST, *packages()], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"


IN_THREADS = """
import importlib, random, sys, threading, time
import scipy.stats, sklearn.linear_model, sklearn.metrics, sklearn.model_selection, sklearn.pipeline
random.seed(int(sys.argv[1]))
names, errors = [*sys.argv[2:], "sklearn_clm", "sklearn_clm"], []

class Slow:
    def find_spec(self, name, path, target=None):
        if name.startswith("sklearn_clm"):
            time.sleep(0.02 * random.random())

def enter(name):
    together.wait()
    try:
        getattr(importlib.import_module(name), "ConformalSampler", None)
    except BaseException as error:
        errors.append(error)

sys.meta_path.insert(0, Slow())
random.shuffle(names)
together = threading.Barrier(len(names))
threads = [threading.Thread(target=enter, args=(name,), daemon=True) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(120)
    assert not thread.is_alive()
print(errors)
"""


@pytest.mark.parametrize("order", range(3))
def test_threads_may_import_the_package_together(order):
    run = subprocess.run(
        [sys.executable, "-c", IN_THREADS, str(order), *packages()], capture_output=True, text=True
    )
    assert run.stdout == "[]\n", run.stderr


def test_a_module_without_an_underscore_is_one_that_other_packages_use():
    """Users have what packages name; `lint-imports` says who may enter the other modules."""
    modules = {
        f"sklearn_clm.{path.parent.name}.{path.stem}"
        for path in ROOT.glob("*/*.py")
        if not path.stem.startswith("_")
    }
    used = set()
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                parts = node.module.split(".")
                if len(parts) > 2 and parts[1] != room:
                    used.add(node.module)
    assert modules
    assert modules <= used
    for package in packages():
        named = set(importlib.import_module(package).__all__)
        assert not {module for module in modules if module.rpartition(".")[2] in named}
