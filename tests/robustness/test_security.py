"""Text from models and strangers is shown, never run; nothing foreign is unpickled."""

import ast
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sklearn_clm
from sklearn_clm import ComponentSelector
from sklearn_clm.caching import CachedAdmission, CachedGenerator
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import Generation
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import ThresholdPolicy
from sklearn_clm.scoring import exact_match
from tests.pages import Page
from tests.toy import Answering, n_stored, toy_sampler

SOURCE = Path(sklearn_clm.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# --- what the source does not do ------------------------------------------------------------------

FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "__import__", "breakpoint", "input"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads"),
    *("joblib.load", "torch.load", "yaml.load", "shelve.open", "dill.load", "dill.loads"),
    *("os.system", "os.popen", "os.execv", "os.spawnv", "tempfile.mktemp"),
}
# the source of a function that runs already is compiled, to be compared with it, and never run
ALLOWED = {"generators/_syntax.py": ["compile"]}
FORBIDDEN_MODULES = {"subprocess", "marshal", "shelve", "dill", "cloudpickle", "yaml", "telnetlib"}
FORBIDDEN_KEYWORDS = {"allow_pickle", "trust_remote_code", "shell"}


def dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def faults(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            names = [alias.name for alias in node.names] if module is None else [module]
            yield from (name for name in names if name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in FORBIDDEN_CALLS:
                yield name
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            for keyword in FORBIDDEN_KEYWORDS & keywords.keys():
                if isinstance(keywords[keyword], ast.Constant) and keywords[keyword].value:
                    yield f"{name}({keyword}=...)"
            if name == "np.load" and "allow_pickle" not in keywords:
                yield "np.load without allow_pickle"
            # or by a dictionary that holds it, whose default is False
            if name.endswith(".from_pretrained") and not {"trust_remote_code", None} & set(
                keywords
            ):
                yield f"{name} without trust_remote_code"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_the_source_runs_nothing_foreign(file):
    found = list(faults(ast.parse(file.read_text(encoding="utf-8"))))
    assert found == ALLOWED.get(str(file.relative_to(SOURCE)), [])


def test_that_test_sees():
    code = """
import subprocess, yaml.nodes
from pickle import loads
pickle.loads(b"")
eval("1")
np.load("x")
np.load("x", allow_pickle=True)
AutoModel.from_pretrained("x")
AutoModel.from_pretrained("x", trust_remote_code=True)
run("x", shell=True)
model.eval()
"""
    assert len(list(faults(ast.parse(code)))) == 9


@pytest.mark.slow
def test_bandit_finds_nothing():
    pytest.importorskip("bandit")
    command = [sys.executable, "-m", "bandit", "-q", "-r", str(SOURCE), "-f", "json"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(found.stdout)
    assert not report["results"]
    assert not report["errors"]


# --- HTML -----------------------------------------------------------------------------------------

PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</td></tr></table></div><h1>",
    "<!-- <style>*{display:none}</style>",
    "&lt;b&gt; &amp; \ud7ff \0 \x1b[2J",
    "javascript:alert(1)",
]
TAGS = {
    *("table", "caption", "thead", "tbody", "tr", "td", "th", "div", "p", "b", "ol", "li", "br"),
    *("hr", "h2", "h3", "style", "html", "head", "body", "meta", "title", "details", "summary"),
    "mark",
}


ATTRIBUTES = {
    *(
        "style",
        "class",
        "open",
        "title",
        "lang",
        "charset",
        "colspan",
        "name",
        "content",
        "src",
        "alt",
        "dir",
    )
}


def assert_harmless(page, *shown):
    page.encode("utf-8")
    seen = Page(page)
    assert not seen.open
    assert not seen.comments
    assert seen.tags <= TAGS | {"img"}
    for name, value in seen.attributes:
        if name == "src":
            assert value.startswith("data:image/png;base64,")
        assert name in ATTRIBUTES
        assert not any(payload in (value or "") for payload in PAYLOADS)
    text = "".join(seen.text)
    for payload in shown:
        assert payload.encode("utf-8", "replace").decode() in text


def echo(prompt, draw):
    """The prompt, and something of its own."""
    text = prompt if isinstance(prompt, str) else prompt[0]["content"]
    return Generation(f"{text} {draw}.", -0.1 * draw, 3)


def always(reference, response):
    return True


def echoing(**params):
    options = {"generator": Answering(echo), "k_max": 2, "epsilon": 0.5, "admission": always}
    return toy_sampler(**options | params)


@pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
def test_sets_show_text_as_text(payload, chat):
    def prompt(text):
        return [{"role": "user", "content": text}] if chat else text

    calibration = [prompt(f"prompt {i}") for i in range(40)]
    options = {"alpha": 0.5, "component_score": "support", "admission": always}
    selector = ComponentSelector(echoing(), **options).fit(calibration, ["x"] * 40)
    sets = selector.sampler_.predict([prompt(payload), prompt("plain")])
    chosen = selector.predict(sets)
    assert chosen[0].components
    for shown in (sets, sets[0], chosen, chosen[0]):
        assert_harmless(shown._repr_html_())
        # text for a terminal holds nothing that steers one
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", str(shown))
    response = sets[0].responses[0]
    assert_harmless(sets[0]._repr_html_(), response)
    assert_harmless(chosen[0]._repr_html_(), response)


def test_names_show_as_text():
    """Names of functions and classes come from whoever wrote them."""
    payload = "".join(PAYLOADS[:5])

    def best(quality):
        return float(np.max(quality))

    best.__name__ = best.__qualname__ = payload
    rng = np.random.default_rng(0)
    data = CalibrationData(rng.random((60, 2)), np.zeros((60, 2, 2)), np.ones((60, 2)))
    generator = type(payload, (Answering,), {})(echo)
    sampler = echoing(policy=ThresholdPolicy(set_score=best), generator=generator).calibrate(data)
    report = CalibrationReport.from_estimator(sampler)
    assert_harmless(report.to_html(), payload)
    assert_harmless(report._repr_html_(), payload)
    assert payload not in report.to_markdown() or "<" not in payload


# --- files ----------------------------------------------------------------------------------------

SQL = "'; DROP TABLE entries; --"


def test_sql_is_a_value_like_any_other(tmp_path):
    path = tmp_path / "cache.sqlite"
    cached = CachedGenerator(Answering(echo), path, key=SQL)
    texts = [SQL, '"', "%", "?", "a\0b", "\ud7ff"]
    rows = cached.sample(texts, 2)
    assert CachedGenerator(Answering(echo), path, key=SQL).sample(texts, 2) == rows
    judge = CachedAdmission(exact_match, path, key=SQL)
    assert dict(judge.judge_pairs([SQL, "a"], [SQL, SQL])) == {0: True, 1: False}
    assert n_stored(cached) == 12
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM entries").fetchone() == (14,)
    connection.close()


def test_files_hold_no_pickle(tmp_path):
    """What is saved begins as its format does; a pickle would begin with its own mark."""
    rng = np.random.default_rng(0)
    data = CalibrationData(rng.random((60, 2)), np.zeros((60, 2, 2)), np.ones((60, 2)))
    data.save(tmp_path / "data.npz")
    echoing().calibrate(data).save_calibration(tmp_path / "calibration.json")
    CachedGenerator(Answering(echo), tmp_path / "cache.sqlite").sample(["a"], 1)
    assert (tmp_path / "data.npz").read_bytes().startswith(b"PK")
    with np.load(tmp_path / "data.npz", allow_pickle=False) as archive:
        assert not any(archive[name].dtype.hasobject for name in archive.files)
    json.loads((tmp_path / "calibration.json").read_text())
    for file in tmp_path.iterdir():
        assert not re.search(rb"\x80[\x02-\x05]\x95|c__builtin__|csklearn", file.read_bytes())
