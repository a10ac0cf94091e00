"""The flow of imports: generators, scoring, calibration, estimators, and what looks at results."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sklearn_clm

ROOT = Path(sklearn_clm.__file__).parent
FOUNDATION = {"_exceptions", "_lazy", "_replacing", "_version"}
PACKAGES = [
    *("generators", "scoring", "calibration", "estimators"),
    *("metrics", "evaluation", "inspection", "outermost"),
]
OUTERMOST = {"__main__", "_cli", "_report"}
HEAVY = {"torch", "transformers", "openai", "matplotlib", "pandas", "rapidfuzz", "sqlite3"}
# classes derived from those of transformers; imported in functions alone
BUILT_ON_TORCH = {"sklearn_clm.generators._kv_buffer"}
# an estimator opens its report when it is asked for one
DOORS = {("sklearn_clm._reporting", "sklearn_clm._report")}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules that a module imports, and whether it does so when it is imported itself."""
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text("utf-8")), True)]
    while waiting:
        node, at_once = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((name.name, at_once) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            assert node.module is not None
            yield node.module, at_once
            if node.module.startswith("sklearn_clm"):  # a name may be a module
                candidates = (f"{node.module}.{name.name}" for name in node.names)
                yield from ((name, at_once) for name in candidates if name in MODULES)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += [(child, False) for child in node.body]
            waiting += [(child, at_once) for child in node.orelse]
        else:
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            waiting += [(child, at_once and not inside) for child in ast.iter_child_nodes(node)]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def layer(module: str) -> int:
    """Place in the flow; 0 is what all may import."""
    first = module.split(".")[1] if "." in module else ""
    if first in FOUNDATION:
        return 0
    if first in OUTERMOST:
        first = "outermost"
    return 1 + PACKAGES.index(first if first in PACKAGES else "estimators")


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
IMPORTS = {module: list(imports(path)) for module, path in MODULES.items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_imports_against_the_flow(package):
    against = [
        (module, imported)
        for module in MODULES
        if layer(module) == 1 + PACKAGES.index(package)
        for imported, _ in IMPORTS[module]
        if imported.split(".")[0] == "sklearn_clm" and imported != "sklearn_clm"
        if layer(imported) > layer(module) and (module, imported) not in DOORS
    ]
    assert against == []


def test_all_modules_are_placed():
    assert {layer(module) for module in MODULES} == set(range(len(PACKAGES) + 1))


def test_nothing_imports_the_package_as_a_whole():
    importers = {
        module
        for module, imported in IMPORTS.items()
        if any(name == "sklearn_clm" for name, _ in imported)
    }
    assert importers <= {m for m in MODULES if layer(m) >= 1 + PACKAGES.index("estimators")}


def test_calibration_knows_arrays_and_set_scores_only():
    at_once, later, own = set(), set(), set()
    for module, imported in IMPORTS.items():
        if module.startswith("sklearn_clm.calibration"):
            for name, now in imported:
                first = name.split(".")[0]
                if first == "sklearn_clm":
                    own.add(name)
                elif first not in sys.stdlib_module_names:
                    (at_once if now else later).add(first)
    assert at_once == {"numpy", "scipy"}
    assert later <= {"joblib", "tqdm"}
    others = {name for name in own if not name.startswith("sklearn_clm.calibration")}
    assert others == {"sklearn_clm._replacing", "sklearn_clm.scoring._set_scores"}


def test_heavy_packages_are_imported_in_functions():
    heavy = {
        module: found
        for module, imported in IMPORTS.items()
        if (found := HEAVY & {name.split(".")[0] for name, now in imported if now})
    }
    assert set(heavy) == BUILT_ON_TORCH
    for module, imported in IMPORTS.items():
        at_once = {name for name, now in imported if now}
        assert not at_once & BUILT_ON_TORCH, f"{module} imports {at_once & BUILT_ON_TORCH}"


def test_imports_pull_in_nothing_heavy():
    packages = sorted(module for module, path in MODULES.items() if path.name == "__init__.py")
    # pandas comes with scikit-learn where it is installed
    heavy = HEAVY - {"pandas"}
    code = "import sys\n" + "".join(f"from {package} import *\n" for package in packages)
    code += f"print(sorted({heavy!r} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
