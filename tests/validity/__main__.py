"""Run the whole study: ``python -m tests.validity``."""

import argparse
import sys
from pathlib import Path

from .mutations import MUTATIONS
from .report import as_markdown, plot, summary_markdown
from .study import all_cells, run_cell, run_study


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.validity", description=__doc__)
    parser.add_argument("--calibrations", type=int, default=2000, help="in each cell")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: all cores)")
    parser.add_argument("--markdown", type=Path, help="write the full table to this file")
    parser.add_argument("--figure", type=Path, help="write the figure to this file")
    arguments = parser.parse_args()

    results = run_study(list(all_cells()), arguments.calibrations, n_jobs=arguments.jobs, verbose=1)
    table = as_markdown(results)
    print(table, "", summary_markdown(results), sep="\n")
    if arguments.markdown:
        arguments.markdown.write_text(f"{summary_markdown(results)}\n\n{table}\n", "utf-8")
    if arguments.figure:
        plot(results, str(arguments.figure))

    violated = sum(not result.holds for result in results)
    print(f"\n{len(results)} cells, {violated} with an interval above what is allowed.")
    unnoticed = 0
    for name, mutation in MUTATIONS.items():
        result = run_cell(mutation.cell, arguments.calibrations, procedure=mutation.run)
        unnoticed += result.holds
        print(
            f"broken on purpose ({name}): failed {result.frequency:.3f} of the time, allowed "
            f"{mutation.cell.allowed:g}: {'NOT NOTICED' if result.holds else 'noticed'}"
        )
    return int(violated > 0 or unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
