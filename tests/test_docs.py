"""The reference and the guide as pages: built without a warning, without a dead link."""

import code
import inspect
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
        self.anchors, self.links, self.pictures = set(), set(), set()
        self.blocks, self.is_code, self.n_in_chapter = [], False, 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        if tag == "a" and attrs.get("href"):
            self.links.add(attrs["href"])
        if tag == "img" and attrs.get("src"):
            self.pictures.add(attrs["src"])
            self.links.add(attrs["src"])
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
    """The pages of README's command, each by its path."""
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("site")
    commands = re.findall(r"^pip install .* && python (\S+) site$", README.read_text("utf-8"), re.M)
    (command,) = commands
    options = {"capture_output": True, "text": True, "cwd": README.parent}
    done = subprocess.run([sys.executable, command, str(folder)], **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == ""
    return {path: Page(path.read_text("utf-8")) for path in folder.rglob("*.html")}


def root_of(pages):
    """The folder of all pages."""
    return next(path.parent for path in pages if path.name == "sklearn_clm.html")


@pytest.mark.slow
def test_pages_build_without_warnings_and_dead_links(site):
    dead = []
    for path, page in site.items():
        for link in page.links:
            target, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", target):
                continue
            other = (path.parent / unquote(target)).resolve() if target else path
            if not other.is_file() or (anchor and unquote(anchor) not in site[other].anchors):
                dead.append(f"{path.name}: {link}")
    assert not dead, "\n".join(sorted(dead))


@pytest.mark.slow
def test_readme_and_gallery_are_pages_that_lead_to_each_other(site):
    folder = root_of(site)
    names = {str(path.relative_to(folder)) for path in site}
    chapters = {f"{name.replace('.', '/')}.html" for name in ("sklearn_clm", *packages())}
    guide = {"index.html", "examples/index.html", "examples/recipes.html"}
    assert chapters | guide | {"examples/quickstart.py.html"} <= names
    for name in guide | chapters:
        links = {(folder / name).parent / link for link in site[folder / name].links}
        reached = {link.resolve() for link in links}
        assert {(folder / other).resolve() for other in guide | chapters} <= reached, name
    written = "".join(path.read_text("utf-8") for path in site)
    assert "_SupportsArray" not in re.sub(r"<[^>]*>", "", written)


@pytest.mark.slow
def test_each_display_has_a_picture(site):
    inspection = pkgutil.resolve_name("sklearn_clm.inspection")
    displays = [name for name in inspection.__all__ if name.endswith("Display")]
    shown = set().union(*(page.pictures for page in site.values()))
    pictures = {f"../pictures/{name}.svg" for name in [*displays, "GateDisplay"]}
    assert {one for one in shown if "Display" in one} == pictures
    assert len({(root_of(site) / "pictures" / Path(one).name).read_bytes() for one in pictures}) > 5


@pytest.mark.slow
def test_each_chapter_has_a_twin_that_is_listed(site):
    folder = root_of(site)
    listed = re.findall(
        r"^- \[.*?\]\(([^)]+\.md)\)", (folder / "llms.txt").read_text("utf-8"), re.M
    )
    chapters = [f"{name.replace('.', '/')}.md" for name in ("sklearn_clm", *packages())]
    assert {"README.md", "examples/recipes.md", *chapters} <= set(listed)
    for name in listed:
        assert (folder / name).read_text("utf-8").startswith("# ")
    for name in ("sklearn_clm", *packages()):
        twin = (folder / f"{name.replace('.', '/')}.md").read_text("utf-8")
        module = pkgutil.resolve_name(name)
        objects = [one for one in module.__all__ if inspect.isroutine(getattr(module, one))]
        objects += [one for one in module.__all__ if inspect.isclass(getattr(module, one))]
        assert [one for one in objects if f"\n## {one}\n" not in twin] == []


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
    script += "const blocks = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
    script += "console.log(JSON.stringify(blocks.map(codeOf)));"
    n_blocks = 0
    for path, page in site.items():
        assert page.blocks == [] or 'className = "copy"' in path.read_text("utf-8")
        command, blocks = ["node", "-e", script], json.dumps(page.blocks)
        done = subprocess.run(command, input=blocks, capture_output=True, text=True, check=True)
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
