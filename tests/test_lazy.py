"""Names that come in when they are first used."""

import importlib
import pickle
import subprocess
import sys

import pytest

PACKAGES = ["sklearn_clm", "sklearn_clm.generators", "sklearn_clm.scoring"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_listed(package):
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        value = getattr(module, name)
        assert getattr(value, "__module__", package).startswith(package)
        assert vars(module)[name] is value


@pytest.mark.parametrize("package", PACKAGES)
def test_unknown_names_are_refused(package):
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'missing'"):
        module.missing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'missing'"):
        exec(f"from {package} import missing")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_star_brings_all_names(package):
    names = {}
    exec(f"from {package} import *", names)
    assert set(importlib.import_module(package).__all__) <= set(names)


def test_lazy_classes_pickle_into_a_fresh_interpreter():
    from sklearn_clm import ComponentSelector
    from sklearn_clm.scoring import PTrue

    content = pickle.dumps(ComponentSelector(component_score=PTrue(n_answers=3)))
    code = f"import pickle; print(pickle.loads({content!r}).component_score.n_answers)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "3\n"


def test_a_name_is_imported_when_it_is_first_used():
    code = (
        "import sys, sklearn_clm.generators as g\n"
        "module = 'sklearn_clm.generators._openai'\n"
        "print(module in sys.modules, g.OpenAIGenerator.__module__, module in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "sklearn_clm.generators._openai", "True"]
