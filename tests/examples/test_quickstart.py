"""The quickstart as a newcomer runs it."""

import ast

import pytest

from tests.examples.loading import EXAMPLES, needs, run

needs("torch", "transformers", "matplotlib")

SCRIPT = EXAMPLES / "quickstart.py"


def test_the_estimator_stands_within_the_first_forty_lines():
    calls = [
        node
        for node in ast.walk(ast.parse(SCRIPT.read_text("utf-8")))
        if isinstance(node, ast.Call)
    ]
    lines = {call.func.id: call.lineno for call in calls if isinstance(call.func, ast.Name)}
    assert max(lines["ConformalSampler"], lines["ComponentSelector"]) <= 40


@pytest.mark.slow
def test_the_quickstart_keeps_what_it_promises():
    rows = {line[:30].strip(): line[30:].split() for line in run(SCRIPT).splitlines()}
    for row in ("a right report in the set", "all trusted sentences right"):
        promised, found = (int(share.rstrip("%")) / 100 for share in rows[row])
        assert promised == 0.9
        # 100 new strips: fewer than 80 good ones of 90 expected ones have a chance of 1 in 1,200
        assert found >= 0.8
    page = (SCRIPT.parent / "output" / "quickstart.html").read_text("utf-8")
    assert page.count("data:image/png") > 20
    assert "<b title=" in page
    assert page.count("<h3>The digits are ") == 20
