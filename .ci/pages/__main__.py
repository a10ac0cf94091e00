"""Pages of the guide, the gallery and the reference, written into a folder.

python .ci/pages site

Beside each page lies its twin in Markdown, and ``llms.txt`` lists the twins.
"""

import doctest
import json
import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import matplotlib as mpl
import numpy.typing as npt
import pdoc
from pdoc import render
from pdoc.render_helpers import to_html, to_markdown

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FIRST = Path("README.md")
PAGE_SUFFIXES = (".md", ".py", ".ipynb")


class ArrayLike:
    """NumPy's name for what makes an array, which its signatures would spell out in six lines."""

    __module__ = "numpy.typing"


def main(folder: str) -> None:
    """Write the pages."""
    site = Path(folder).resolve()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "sklearn_clm"
    npt.ArrayLike = ArrayLike  # before the package imports the name

    chapters = {name: pdoc.doc.Module.from_name(name) for name in names_of_chapters()}
    for chapter in chapters.values():
        for name in chapter.obj.__all__:
            getattr(chapter.obj, name)  # pdoc sees what a module has imported so far
    guide = dict(pages_from(FIRST))
    render.configure(docformat="numpy", template_directory=HERE)
    render.env.globals["chapters"] = [name.replace(".", "/") + ".html" for name in chapters]
    render.env.globals["guide"] = {
        address(path): title_of(path, text) for path, text in guide.items() if path.suffix == ".md"
    }
    render.env.globals["pictures"] = draw_displays(chapters, site)

    pdoc.pdoc(*chapters, output_directory=site)
    for path, text in guide.items():
        write(site / address(path), page_of(path, text, guide))
    linked = {link for path, text in guide.items() for link in links_of(path, text)}
    for file in {*guide, *linked}:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_bytes(file.read_bytes())
    for name, chapter in chapters.items():
        write(site / f"{name.replace('.', '/')}.md", "\n\n".join(twin_of(chapter)) + "\n")
    write(site / "llms.txt", "\n".join(list_of_twins(guide, chapters)) + "\n")


def write(path: Path, text: str) -> None:
    """Write a text into a folder that need not be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def names_of_chapters() -> list[str]:
    """The package, and the public packages in it."""
    inner = pkgutil.iter_modules([str(ROOT / "sklearn_clm")])
    public = [module.name for module in inner if module.ispkg and not module.name.startswith("_")]
    return ["sklearn_clm", *(f"sklearn_clm.{name}" for name in public)]


def pages_from(path: Path) -> Iterator[tuple[Path, str]]:
    """A page and all that it leads to, each once: its path, its text in Markdown."""
    waiting = [path]
    for path in waiting:
        text = markdown_of(path)
        yield path, text
        waiting += [
            link
            for link in dict.fromkeys(links_of(path, text))
            if link.suffix in PAGE_SUFFIXES and link not in waiting
        ]


def markdown_of(path: Path) -> str:
    """A page's text: of a program its source, of a notebook its cells."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    head = f"# {path.name}\n\n[The file]({path.name})"
    if path.suffix == ".py":
        return f"{head}\n\n{fenced(text)}"
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join([head, *(fenced(text) if kind == "code" else text for kind, text in cells)])


def fenced(code: str) -> str:
    """A block of Python in Markdown."""
    return f"```python\n{code.rstrip()}\n```"


def links_of(path: Path, text: str) -> Iterator[Path]:
    """The files of this project that a page links, from the root."""
    if path.suffix == ".py":
        return
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target = urldefrag(link).url
        if target and not re.match(r"[a-z]+:", target):
            yield Path(os.path.normpath(path.parent / target))


def address(path: Path) -> str:
    """Where the page of a file stands."""
    if path.name == "README.md":
        return str(path.with_name("index.html"))
    return str(path.with_suffix(".html") if path.suffix == ".md" else f"{path}.html")


def title_of(path: Path, text: str) -> str:
    """The first heading of a page, without what follows a colon; the package has a page, too."""
    if path == FIRST:
        return "README"
    return text.partition("\n")[0].lstrip("# ").partition(":")[0]


def page_of(path: Path, text: str, guide: dict[Path, str]) -> str:
    """A page of the guide as HTML, with links to the other pages."""
    root = "../" * (len(path.parts) - 1)

    def to_page(match: re.Match[str]) -> str:
        target, anchor = urldefrag(match[1])
        file = Path(os.path.normpath(path.parent / target))
        if not target or file not in guide or path.suffix == ".py" or file == path:
            return match[0]
        return f'href="{os.path.relpath(address(file), path.parent)}{"#" * bool(anchor)}{anchor}"'

    def to_chapter(match: re.Match[str]) -> str:
        page = match[1].replace(".", "/") + ".html"
        known = page in render.env.globals["chapters"]
        return f'<a href="{root}{page}">{match[0]}</a>' if known else match[0]

    body, contents = with_anchors(text)
    linked = re.sub(r'href="([^"]+)"', to_page, body)
    linked = re.sub(r"<code>(sklearn_clm[.\w]*)</code>", to_chapter, linked)
    page = render.env.get_template("guide.html.jinja2")
    return page.render(title=title_of(path, text), root=root, body=linked, contents=contents)


def with_anchors(text: str) -> tuple[str, str]:
    """A page and its contents as HTML, with the anchors of headings that GitHub gives them."""
    body = to_html(text)
    contents = body.toc_html or ""
    html = str(body)
    for anchor, heading in re.findall(r'<h\d id="([^"]*)">(.*?)</h\d>', html):
        words = unescape(re.sub(r"<[^>]*>", "", heading)).lower()
        github = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        html = html.replace(f'id="{anchor}"', f'id="{github}"')
        contents = contents.replace(f'href="#{anchor}"', f'href="#{github}"')
    return html, contents


def draw_displays(chapters: dict[str, pdoc.doc.Module], site: Path) -> dict[str, str]:
    """What the example of each display draws: addresses of pictures, by full names."""
    pictures = {}
    for chapter in chapters.values():
        for member in chapter.members.values():
            if not member.name.endswith("Display"):
                continue
            example = doctest.DocTestParser().get_doctest(
                member.docstring, {}, member.fullname, None, None
            )
            doctest.DocTestRunner().run(example, clear_globs=False)
            address = f"pictures/{member.name}.svg"
            (site / "pictures").mkdir(parents=True, exist_ok=True)
            example.globs["display"].figure_.savefig(site / address, metadata={"Date": None})
            pictures[member.fullname] = address
    return pictures


def twin_of(chapter: pdoc.doc.Module) -> Iterator[str]:
    """A chapter in Markdown: its text, then each class and function."""
    yield f"# {chapter.modulename}"
    yield to_markdown(chapter.docstring, chapter, "numpy")
    for member in chapter.flattened_own_members:
        yield from member_of_twin(member, chapter, "##")
        for inner in getattr(member, "own_members", []):
            yield from member_of_twin(inner, chapter, "###")


def member_of_twin(member: Any, chapter: pdoc.doc.Module, heading: str) -> Iterator[str]:
    """A public class, function or attribute in Markdown."""
    if member.name.startswith("_") or not member.docstring or member.kind == "module":
        return
    yield f"{heading} {member.qualname}"
    made_by = member.members.get("__init__") if member.kind == "class" else member
    if made_by is not None and made_by.kind == "function":
        yield fenced(f"{member.name}{made_by.signature_without_self}")
    # its headings stand below those of the chapter's members
    yield re.sub(r"^#+ ", "#### ", to_markdown(member.docstring, chapter, "numpy"), flags=re.M)


def list_of_twins(guide: dict[Path, str], chapters: dict[str, pdoc.doc.Module]) -> Iterator[str]:
    """``llms.txt``: the pages in Markdown, a line each."""
    first, *_ = guide.values()
    title, summary, *_ = first.split("\n\n")
    yield f"{title}\n\n> {' '.join(summary.split())}\n\n## Guide\n"
    for path, text in guide.items():
        if path.suffix == ".md":
            yield f"- [{title_of(path, text)}]({path})"
    yield "\n## Reference\n"
    for name, chapter in chapters.items():
        what = chapter.docstring.partition("\n")[0]
        yield f"- [{name}]({name.replace('.', '/')}.md): {what}"


if __name__ == "__main__":
    main(*sys.argv[1:])
