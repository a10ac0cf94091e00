"""Check what a release would ship: ``python tests/distribution.py ARCHIVE BIN``.

ARCHIVE is the source archive; BIN is the folder of programs of an environment that holds the wheel
alone. The archive must hold tests and examples; the wheel must run, away from the clone, the first
program and the shell commands of the README that need no files of the reader's.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
HEAVY = ("torch", "transformers", "openai", "matplotlib")


def check_archive(path: Path) -> None:
    """The archive holds the package, its tests and its examples."""
    with tarfile.open(path) as archive:
        # the first part of each name is the folder of the version
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(
        ["git", "ls-files", "sklearn_clm", "tests", "examples", "README.md", "LICENSE"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    missing = {name for name in tracked if name} - names
    assert not missing, f"the source archive lacks {sorted(missing)[:5]}"
    print("source archive:", len(names), "files")


def check_wheel(programs: Path) -> None:
    """What is installed runs the first program and the shell's commands."""

    def run(*command: str, folder: str) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stderr}"
        return done.stdout

    python = str(programs / "python")
    (first_program, *_) = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    shell_commands = re.findall(r"^sklearn-clm (.* examples/logs/.*)$", README, re.M)
    assert shell_commands, "the README shows no command on the logs of the clone"
    with tempfile.TemporaryDirectory() as folder:
        heavy_imports = f"import sklearn_clm, sys; print(set(sys.modules) & set({HEAVY}))"
        assert run(python, "-c", heavy_imports, folder=folder).strip() == "set()"
        assert "promised 80 %" in run(python, "-c", first_program, folder=folder)
        for arguments in shell_commands:
            # names with a star are the shell's to expand
            in_clone = arguments.replace("examples/", f"{ROOT}/examples/")
            run("sh", "-c", f"{programs / 'sklearn-clm'} {in_clone}", folder=folder)
    print("wheel: the first program and", len(shell_commands), "commands of the shell run")


if __name__ == "__main__":
    check_archive(Path(sys.argv[1]))
    check_wheel(Path(sys.argv[2]))
