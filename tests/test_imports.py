"""What an import of the package pulls in."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import sklearn_clm

ROOT = Path(sklearn_clm.__file__).parent
HEAVY = {"torch", "transformers", "openai", "matplotlib", "pandas", "sqlite3", "starlette"}


def imported_at_once(path: Path) -> Iterator[str]:
    """Packages that a module imports when it is imported itself."""
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield str(node.module).split(".")[0]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += ast.iter_child_nodes(node)


def test_imports_pull_in_nothing_heavy():
    packages = sorted(
        ".".join(path.parent.relative_to(ROOT.parent).parts) for path in ROOT.rglob("__init__.py")
    )
    # pandas comes with scikit-learn where it is installed
    heavy = HEAVY - {"pandas"}
    code = "import sys\n" + "".join(f"from {package} import *\n" for package in packages)
    code += f"print(sorted({heavy!r} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_calibration_needs_numpy_and_scipy_alone():
    needed = {
        name
        for path in (ROOT / "calibration").rglob("*.py")
        for name in imported_at_once(path)
        if name not in sys.stdlib_module_names and name != "sklearn_clm"
    }
    assert needed == {"numpy", "scipy"}
