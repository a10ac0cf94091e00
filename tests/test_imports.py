"""What an import of the package pulls in."""

import subprocess
import sys
from pathlib import Path

import sklearn_clm

ROOT = Path(sklearn_clm.__file__).parent
# pandas comes with scikit-learn where it is installed
HEAVY = {"torch", "transformers", "openai", "matplotlib", "sqlite3", "starlette"}


def test_imports_pull_in_nothing_heavy():
    packages = sorted(
        ".".join(path.parent.relative_to(ROOT.parent).parts) for path in ROOT.rglob("__init__.py")
    )
    code = "import sys\n" + "".join(f"from {package} import *\n" for package in packages)
    code += f"print(sorted({HEAVY!r} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
