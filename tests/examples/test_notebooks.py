"""The notebooks and the programs of the pages, run as a reader would run them."""

import json
import re

import pytest

from tests.examples.loading import EXAMPLES, needs, run

needs("torch", "transformers", "openai", "matplotlib")

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def code_of(notebook):
    """The code cells, one below the other; the value of the last line of each is not shown."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(notebook):
    content = json.loads(notebook.read_text("utf-8"))
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    for cell in code_of(notebook):
        compile(cell, notebook.name, "exec")
        for module, name in re.findall(r"from (_protocols\.\w+) import (\w+)", cell):
            source = EXAMPLES.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
            assert re.search(rf"^(def|class) {name}\b", source, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_certify(notebook):
    output = EXAMPLES / "output"
    for kept in output.glob(f"{notebook.stem}.*"):
        kept.unlink()
    printed = run("-c", "\n".join(code_of(notebook)), folder=EXAMPLES)
    (share,) = re.findall(r"^(\d+)% (?:of the sets )?hold", printed, re.M)
    # promised are 75 % and 90 % of 100 and 200 prompts: fewer have a chance of 1 in 1,000
    assert int(share) >= 61
    assert "<h3>Guarantee</h3>" in (output / f"{notebook.stem}.html").read_text("utf-8")


@pytest.mark.slow
def test_the_examples_of_the_gallery_run(tmp_path):
    code, judging = re.findall(
        r"^```python\n(.*?)^```", (EXAMPLES / "README.md").read_text("utf-8"), re.M | re.S
    )
    serving = "from sklearn_clm.judging import serve"
    assert serving in judging
    judging = judging.replace("verdicts.sqlite", str(tmp_path / "verdicts.sqlite")).replace(
        serving,
        "from sklearn_clm.judging import JudgingSession\n"
        "def serve(judge, ask): print(JudgingSession(judge, ask).turn().estimate)",
    )
    printed = run("-c", code + judging, folder=EXAMPLES.parent)
    (n_at_most,) = re.findall(r"^Decided after at most (\d+) more\b", printed, re.M)
    assert 300 < int(n_at_most) < 2_000  # different readings of 20 reports, not their wordings
    assert "With confidence 95 % over the calibration prompts" in printed
    assert printed.count("**") > 100
