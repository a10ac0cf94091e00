"""``python tests/benchmarks``: every benchmark of this folder as one table."""

import argparse
import datetime as dt
import importlib
import os
import pkgutil
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy

# the name "tests" may belong to another package of the environment
sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

import benchmarks  # noqa: E402
from benchmarks import Row  # noqa: E402

__all__ = ["main"]

_HEADER = ("what", "reference", "ours", "ratio")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print them."""
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(benchmarks.__path__)
        if not module.name.startswith("_")
    )
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="smaller data, in three or four minutes"
    )
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")
    options = parser.parse_args(arguments)

    start = time.monotonic()
    rows: list[Row] = []
    for name in options.only or names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        module = importlib.import_module(f"benchmarks.{name}")
        for row in module.rows(options.short):
            print(f"  {row.what}: {_ratio(row.ratio)}", file=sys.stderr, flush=True)
            rows.append(row)
    table = as_markdown(rows)
    print(table)
    print(f"{time.monotonic() - start:.0f} s in all", file=sys.stderr)
    if options.markdown is not None:
        options.markdown.write_text(table, encoding="utf-8")


def as_markdown(rows: Sequence[Row]) -> str:
    """The table in Markdown, with the date and what it was measured on."""
    lines = [
        f"| {' | '.join(_HEADER)} |",
        "| --- | --- | --- | ---: |",
        *(f"| {row.what} | {row.reference} | {row.ours} | {_ratio(row.ratio)} |" for row in rows),
        "",
        f"Measured {dt.date.today():%d %B %Y} on {platform.platform()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}.",
    ]
    return "\n".join(lines) + "\n"


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f} x" if ratio >= 100 else f"{ratio:.3g} x"


if __name__ == "__main__":
    main()
