"""The reference and the guide as pages: built without a warning, without a dead link."""

import code
import json
import pkgutil
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import sklearn_clm

README = Path(__file__).resolve().parents[1] / "README.md"


class Page(HTMLParser):
    """Anchors, links and blocks of code of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.blocks, self.is_code, self.n_in_chapter = [], False, 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        if tag == "a" and attrs.get("href"):
            self.links.add(attrs["href"])
        if tag == "pre":
            self.is_code = True
            self.blocks.append("")

    def handle_endtag(self, tag):
        if tag == "pre":
            self.is_code = False
        if tag == "section" and not self.n_in_chapter:  # the first one is the chapter
            self.n_in_chapter = len(self.blocks)

    def handle_data(self, data):
        if self.is_code:
            self.blocks[-1] += data


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


def test_examples_for_contributors_run():
    text = (README.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, "CONTRIBUTING.md", "exec"), {"__name__": "example"})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages, each by its path."""
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pdoc", "-d", "numpy", "-t", ".ci/pages", "-o", str(folder)]
    command += ["sklearn_clm", *packages()]
    options = {"capture_output": True, "text": True, "check": True, "cwd": README.parent}
    done = subprocess.run(command, **options)
    assert "warn" not in done.stderr.lower(), done.stderr
    return {path: Page(path.read_text("utf-8")) for path in folder.rglob("*.html")}


@pytest.mark.slow
def test_pages_build_without_warnings_and_dead_links(site):
    pages = site
    assert len(pages) >= 10
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


class Prompt(code.InteractiveConsole):
    """Python's prompt, which stops at errors."""

    def showsyntaxerror(self, filename=None, **options):
        raise sys.exc_info()[1]

    def runcode(self, compiled):
        if self.runs:
            exec(compiled, self.locals)

    def paste(self, text, *, runs):
        self.runs = runs
        for line in text.removesuffix("\n").split("\n"):
            is_incomplete = self.push(line)
        assert not is_incomplete, text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which runs what copies")
def test_what_is_copied_from_a_page_runs_at_the_prompt(site):
    script = (README.parent / ".ci/pages/copied.js").read_text("utf-8")
    script += "console.log(JSON.stringify(JSON.parse(process.argv[1]).map(codeOf)));"
    n_blocks = 0
    for path, page in site.items():
        assert page.blocks == [] or 'className = "copy"' in path.read_text("utf-8")
        command = ["node", "-e", script, json.dumps(page.blocks)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        prompt = Prompt()
        for k, (block, copied) in enumerate(zip(page.blocks, json.loads(done.stdout), strict=True)):
            if not block.startswith(">>>"):
                assert copied == block.rstrip() + "\n"
                continue
            n_blocks += 1
            # the examples of a chapter go on from one another
            prompt.paste(copied, runs=k < page.n_in_chapter and "+SKIP" not in block)
    assert n_blocks > 100


def test_the_readme_gives_the_test_command_on_a_line_of_its_own():
    assert re.search(
        r'^pip install -e "\.\[test\]" && python -m pytest', README.read_text("utf-8"), re.M
    )
