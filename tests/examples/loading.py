"""Scripts of the examples as modules."""

import importlib.util
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def needs(*packages):
    """Skip the tests of a file where one of the packages is missing."""
    for package in packages:
        pytest.importorskip(package)


def load(path, monkeypatch):
    """Import a script under a name of its own, as if run from its folder."""
    monkeypatch.syspath_prepend(str(path.parent))
    name = f"example_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def run(*arguments, folder=None):
    """What a program of Python prints."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, stdout=subprocess.PIPE, encoding="utf-8", check=True, cwd=folder
    ).stdout


def assert_disjoint(parts):
    """Nothing of one part is in another."""
    assert sum(map(len, parts)) == len(set().union(*parts))


@contextmanager
def no_new_draws():
    """Local models are asked for nothing."""
    from sklearn_clm.generators import TransformersGenerator

    def serve(generator, queue):
        assert not queue.take(1), "a second run drew again"

    with patch.object(TransformersGenerator, "serve", serve):
        yield
