"""Run the whole study: ``python tests/validity``."""

import argparse
import datetime as dt
import sys
import time
from pathlib import Path

# the name "tests" may belong to another package of the environment
sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from validity.monitoring import monitoring_markdown, monitoring_results  # noqa: E402
from validity.mutations import MUTATIONS  # noqa: E402
from validity.power import power_markdown  # noqa: E402
from validity.report import as_markdown, summary_markdown, update_page  # noqa: E402
from validity.study import PROCEDURES, all_cells, run_cell, run_study  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/validity", description=__doc__)
    parser.add_argument("--calibrations", type=int, default=2000, help="in each cell")
    parser.add_argument("--short", action="store_true", help="100 calibrations in each cell")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: all cores)")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*PROCEDURES, "mutations", "monitor", "power"],
        metavar="PART",
        help="only these parts: kinds of cells, 'mutations', 'monitor', 'power'",
    )
    parser.add_argument("--page", type=Path, help="renew the tables of this file (README.md)")
    arguments = parser.parse_args()
    start = time.monotonic()
    parts = arguments.only or [*PROCEDURES, "mutations", "monitor", "power"]
    n_calibrations = 100 if arguments.short else arguments.calibrations
    tables = {}

    cells = [cell for cell in all_cells() if cell.procedure in parts]
    results = run_study(cells, n_calibrations, n_jobs=arguments.jobs, verbose=1)
    violated, unnoticed = sum(not result.holds for result in results), 0
    if results:
        date = f"{dt.date.today():%B %Y}"
        table, tables["results"] = as_markdown(results), summary_markdown(results, date)
        print(table, "", tables["results"], sep="\n")
        print(f"\n{len(results)} cells, {violated} with an interval off what is allowed.")
    if "mutations" in parts:
        print(f"{time.monotonic() - start:.0f} s; now what is broken on purpose:", flush=True)
        lines = ["| broken on purpose | failed | allowed | noticed |", "|---|---|---|---|"]
        for name, mutation in MUTATIONS.items():
            # fewer would leave a broken calibration within its interval
            n = max(n_calibrations // mutation.cost, mutation.n)
            result = run_cell(mutation.cell, n, procedure=mutation.run)
            unnoticed += result.holds
            noticed = "NO" if result.holds else "yes"
            cell = mutation.cell
            allowed = f"{cell.least:.3f} to {cell.allowed:g}" if cell.least else f"{cell.allowed:g}"
            lines.append(f"| {name} | {result.frequency:.3f} | {allowed} | {noticed} |")
            print(lines[-1], flush=True)
        tables["mutations"] = "\n".join(lines)
    if "monitor" in parts:
        watched = monitoring_results(max(n_calibrations, 500))
        tables["monitor"] = monitoring_markdown(watched)
        violated += sum(not result.holds for result in watched)
        unnoticed += sum(not result.notices for result in watched)
        print("", tables["monitor"], sep="\n", flush=True)
    if "power" in parts:
        tables["power"] = power_markdown(n_calibrations)
        print("", tables["power"], sep="\n")
    if arguments.page:
        update_page(arguments.page, tables)
    print(f"{time.monotonic() - start:.0f} s in all")
    return int(violated > 0 or unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
