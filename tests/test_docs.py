"""The reference and the guide as pages: built without a warning."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_clm

README = Path(__file__).resolve().parents[1] / "README.md"


def packages():
    return [
        f"sklearn_clm.{found.name}"
        for found in pkgutil.iter_modules(sklearn_clm.__path__)
        if found.ispkg and not found.name.startswith("_")
    ]


def test_the_command_of_the_readme_names_every_package():
    (names,) = re.findall(r"^pdoc .* sklearn_clm sklearn_clm\.\{(.*)\}$", README.read_text(), re.M)
    assert {f"sklearn_clm.{name}" for name in names.split(",")} == set(packages())


@pytest.mark.parametrize("name", ["sklearn_clm", *packages()])
def test_every_chapter_has_an_example_that_runs(name):
    chapter = pkgutil.resolve_name(name).__doc__
    # doctests of the whole package are run with the tests
    assert ">>> " in chapter
    assert "# doctest: +SKIP" not in chapter


@pytest.mark.slow
def test_pages_build_without_warnings(tmp_path):
    pytest.importorskip("pdoc")
    command = [sys.executable, "-m", "pdoc", "-d", "numpy", "-o", str(tmp_path)]
    done = subprocess.run(
        [*command, "sklearn_clm", *packages()], capture_output=True, text=True, check=True
    )
    assert "warn" not in done.stderr.lower(), done.stderr
    assert len(list(tmp_path.rglob("*.html"))) >= 10
