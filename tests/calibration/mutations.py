"""How much of `sklearn_clm.calibration` could be wrong without a test noticing?

mutmut changes one operator, number or word of a function at a time; a test that fails *kills* the
mutant. In a clone of its own (it writes `mutants/`; one to two hours on two cores)::

    pip install -e ".[test]" "mutmut==3.8.1"
    mutmut run --max-children 2
    mutmut results --all true | python -m tests.calibration.mutations

prints killed and surviving mutants by module; at least nine of ten are to be killed.
`mutmut show NAME` says what a survivor changed. `[tool.mutmut]` in `pyproject.toml` says what is
changed and which tests run; the hypothesis profile `mutation` draws the same examples every time.
"""

import sys
from collections import Counter
from collections.abc import Iterable

# one that crashes the interpreter or never ends is noticed as well
_KILLED = {"killed", "timeout", "segfault", "caught by type check"}


def table(lines: Iterable[str]) -> str:
    """Markdown table of ``NAME: STATUS`` lines, by module."""
    killed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in lines:
        name, _, status = line.strip().rpartition(": ")
        module = name.partition(".x")[0]
        if not name or status == "not checked":
            continue
        for key in (module, "all"):
            total[key] += 1
            killed[key] += status in _KILLED
    rows = [
        f"| {module} | {total[module]} | {killed[module]} | {killed[module] / total[module]:.1%} |"
        for module in sorted(total, key=lambda module: (module == "all", module))
    ]
    return "\n".join(["| module | mutants | killed | share |", "|---|---:|---:|---:|", *rows])


if __name__ == "__main__":
    print(table(sys.stdin))
