"""Run the whole study: ``python tests/validity``."""

import argparse
import sys
import time
from pathlib import Path

# the name "tests" may belong to another package of the environment
sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from validity.monitoring import monitoring_markdown, monitoring_results  # noqa: E402
from validity.mutations import MUTATIONS  # noqa: E402
from validity.report import as_markdown, plot, summary_markdown  # noqa: E402
from validity.study import all_cells, run_cell, run_study  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/validity", description=__doc__)
    parser.add_argument("--calibrations", type=int, default=2000, help="in each cell")
    parser.add_argument("--quick", action="store_true", help="100 calibrations in each cell")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: all cores)")
    parser.add_argument("--markdown", type=Path, help="write the full table to this file")
    parser.add_argument("--figure", type=Path, help="write the figure to this file")
    arguments = parser.parse_args()
    start = time.monotonic()

    n_calibrations = 100 if arguments.quick else arguments.calibrations
    results = run_study(list(all_cells()), n_calibrations, n_jobs=arguments.jobs, verbose=1)
    table = as_markdown(results)
    print(table, "", summary_markdown(results), sep="\n")
    if arguments.markdown:
        arguments.markdown.write_text(f"{summary_markdown(results)}\n\n{table}\n", "utf-8")
    if arguments.figure:
        plot(results, str(arguments.figure))

    violated = sum(not result.holds for result in results)
    print(f"\n{len(results)} cells, {violated} with an interval above what is allowed.")
    print(f"{time.monotonic() - start:.0f} s; now what is broken on purpose:", flush=True)
    unnoticed = 0
    for name, mutation in MUTATIONS.items():
        # fewer would leave a broken calibration within its interval
        n = max(n_calibrations, 1500) // mutation.cost
        result = run_cell(mutation.cell, n, procedure=mutation.run)
        unnoticed += result.holds
        print(
            f"broken on purpose ({name}): failed {result.frequency:.3f} of the time, allowed "
            f"{mutation.cell.allowed:g}: {'NOT NOTICED' if result.holds else 'noticed'}"
        )
    watched = monitoring_results(max(n_calibrations, 500))
    print("", "The monitor in use:", monitoring_markdown(watched), sep="\n")
    violated += sum(not result.holds for result in watched)
    unnoticed += sum(not result.notices for result in watched)
    print(f"{time.monotonic() - start:.0f} s in all")
    return int(violated > 0 or unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
