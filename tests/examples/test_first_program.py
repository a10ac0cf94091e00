"""The first programs of the README, word for word, away from the clone."""

import ast
import re

from tests.examples.loading import EXAMPLES, run

README = EXAMPLES.parent / "README.md"
RECIPES = EXAMPLES / "recipes.md"


def test_the_first_program_prints_what_the_readme_shows(tmp_path):
    (program, shown), *_ = re.findall(
        r"^```python\n(.*?)^```\n.*?^```\n(.*?)^```", README.read_text("utf-8"), re.M | re.S
    )
    assert len([line for line in program.splitlines() if line]) <= 10
    out = run("-W", "error", "-c", program, folder=tmp_path)
    printed = " ".join(out.split())
    assert printed == " ".join(shown.split())
    promised, held = map(int, re.findall(r"(\d+) %", printed)[:2])
    assert promised == 80 <= held
    assert len(out.splitlines()) <= 12


def test_answers_and_escalations_are_those_that_the_readme_shows(tmp_path):
    (program, _), (answering, shown) = re.findall(
        r"^```python\n(.*?)^```\n.*?^```\n(.*?)^```", README.read_text("utf-8"), re.M | re.S
    )
    assert len([line for line in answering.splitlines() if line]) == 5
    before, out = (
        run("-W", "error", "-c", text, folder=tmp_path) for text in (program, program + answering)
    )
    printed = out.removeprefix(before)
    assert printed == shown
    answered, wrong = map(int, re.findall(r"(\d+) of 100 answered, (\d+) wrongly", printed)[0])
    assert wrong <= 0.15 * answered


def test_what_it_calibrates_is_served_as_the_recipe_says(tmp_path):
    (program, *_) = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    section = RECIPES.read_text("utf-8").partition("## Serve it")[2]
    (serving, *_) = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    before, out = (
        run("-W", "error", "-c", text, folder=tmp_path) for text in (program, program + serving)
    )
    *streamed, answer = out.removeprefix(before).splitlines()
    one = ast.literal_eval(answer)
    assert "21" in one["responses"]
    assert len(streamed) == len(one["responses"])
    assert one["guaranteed"]
