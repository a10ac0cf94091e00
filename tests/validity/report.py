"""The study's results as tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from .study import CellResult


def as_markdown(results: Sequence[CellResult]) -> str:
    """One row for each cell."""
    lines = [
        "| calibrated | world | set score | n | epsilon | delta | allowed | null | failed "
        "| 99.9 % interval | holds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        cell, (low, high) = result.cell, result.interval
        lines.append(
            f"| {cell.procedure} | {cell.world} | {cell.set_score_name} | {cell.setting.n} "
            f"| {cell.setting.epsilon:.3f} | {cell.setting.delta:g} | {cell.allowed:.3g} "
            f"| {result.n_null / result.n_calibrations:.2f} | {result.frequency:.4f} "
            f"| {low:.4f} to {high:.4f} | {'yes' if result.holds else 'NO'} |"
        )
    return "\n".join(lines)


def summary_markdown(results: Sequence[CellResult], date: str = "") -> str:
    """One row for each kind of guarantee: its worst cell."""
    lines = [
        "| calibrated | cells | calibrations | highest share of failures / allowed "
        "| its interval | cells above their delta | measured |",
        "|---|---|---|---|---|---|---|",
    ]
    for procedure in dict.fromkeys(result.cell.procedure for result in results):
        group = [result for result in results if result.cell.procedure == procedure]
        worst = max(group, key=lambda result: result.frequency / result.cell.allowed)
        low, high = worst.interval
        lines.append(
            f"| {procedure.replace('_', ' ')} | {len(group)} "
            f"| {sum(result.n_calibrations for result in group):,} "
            f"| {worst.frequency:.3f} / {worst.cell.allowed:.3g} ({worst.cell.world}) "
            f"| {low:.3f} to {high:.3f} | {sum(not result.holds for result in group)} "
            f"| {date} |"
        )
    return "\n".join(lines)


def update_page(path: Path, tables: Mapping[str, str]) -> None:
    """Put tables between the marks of their names; rows of other parts of the study stay."""
    text = path.read_text("utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        old, _, after = rest.partition(end)
        rows = table.split("\n")
        if name == "results":
            kinds = {row.split("|")[1] for row in rows}
            kept = [row for row in old.strip().split("\n")[2:] if row.split("|")[1] not in kinds]
            rows += kept
        text = before + start + "\n" + "\n".join(rows) + "\n\n" + end + after
    path.write_text(text, "utf-8")
