"""The first program of the README, word for word, away from the clone."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_first_program_prints_what_the_readme_shows(tmp_path):
    ((program, shown),) = re.findall(
        r"^```python\n(.*?)^```\n.*?^```\n(.*?)^```", README.read_text("utf-8"), re.M | re.S
    )
    assert len([line for line in program.splitlines() if line]) <= 10
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        cwd=tmp_path,
    )
    printed = " ".join(done.stdout.split())
    assert printed == " ".join(shown.split())
    promised, held = map(int, re.findall(r"(\d+) %", printed)[:2])
    assert promised == 80 <= held
    assert len(done.stdout.splitlines()) <= 12
