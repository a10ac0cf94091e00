"""The reference and the guide as pages: built without a warning, without a dead link."""

import ast
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import sklearn_clm

README = Path(__file__).resolve().parents[1] / "README.md"


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        if tag == "a" and attrs.get("href"):
            self.links.add(attrs["href"])


def packages():
    return [
        f"sklearn_clm.{found.name}"
        for found in pkgutil.iter_modules(sklearn_clm.__path__)
        if found.ispkg and not found.name.startswith("_")
    ]


def test_the_command_of_the_readme_names_every_package():
    (names,) = re.findall(
        r"^pdoc .* sklearn_clm sklearn_clm\.\{(.*)\}$", README.read_text(encoding="utf-8"), re.M
    )
    assert {f"sklearn_clm.{name}" for name in names.split(",")} == set(packages())


@pytest.mark.parametrize("name", ["sklearn_clm", *packages()])
def test_every_chapter_has_an_example_that_runs(name):
    chapter = pkgutil.resolve_name(name).__doc__
    # doctests of the whole package are run with the tests
    assert ">>> " in chapter
    assert "# doctest: +SKIP" not in chapter


def test_docstrings_describe_in_ten_words_first_of_all():
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    root = Path(sklearn_clm.__file__).parent
    texts = [
        ast.get_docstring(node)
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, documented)
    ]
    firsts = [text.split("\n")[0] for text in texts if text]
    assert not [first for first in firsts if len(first.split()) > 10]


@pytest.mark.slow
def test_pages_build_without_warnings_and_dead_links(tmp_path):
    pytest.importorskip("pdoc")
    command = [sys.executable, "-m", "pdoc", "-d", "numpy", "-t", ".ci/pages", "-o", str(tmp_path)]
    command += ["sklearn_clm", *packages()]
    options = {"capture_output": True, "text": True, "check": True, "cwd": README.parent}
    done = subprocess.run(command, **options)
    assert "warn" not in done.stderr.lower(), done.stderr
    pages = {path: Page(path.read_text("utf-8")) for path in tmp_path.rglob("*.html")}
    assert len(pages) >= 10
    assert 'className = "copy"' in (tmp_path / "sklearn_clm.html").read_text("utf-8")
    dead = []
    for path, page in pages.items():
        for link in page.links:
            target, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", target):
                continue
            other = (path.parent / unquote(target)).resolve() if target else path
            if other not in pages or (anchor and unquote(anchor) not in pages[other].anchors):
                dead.append(f"{path.name}: {link}")
    assert not dead, "\n".join(sorted(dead))


def test_the_readme_gives_the_test_command_on_a_line_of_its_own():
    assert re.search(
        r'^pip install -e "\.\[test\]" && python -m pytest', README.read_text("utf-8"), re.M
    )
