"""Run the examples, smaller than by default, and write the pictures of the gallery.

python examples/pictures [NAME ...]
"""

import argparse
import base64
import io
import re
import runpy
import shutil
import sys
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "sklearn_clm", "path.simplify": True}

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent
OUTPUT = EXAMPLES / "output" / "pictures"
OPTIONS = {
    "open_domain_qa": ["--questions", "400", "--trials", "20"],
    "language_families": ["--questions", "1000"],
    "cascade": [],
    "summarization": ["--texts", "400", "--classifier-texts", "150", "--trials", "20"],
    "report_generation": ["--images", "300", "--k-max", "10", "--trials", "20"],
}


def main() -> None:
    """Write the pictures asked for, or all of them."""
    names = ["quickstart", "grid_search_k_max", *OPTIONS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    chosen = parser.parse_args().names or names
    if unknown := set(chosen) - set(names):
        parser.error(f"no picture of {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    sys.path.insert(0, str(EXAMPLES))
    for name in chosen:
        path = HERE / f"{name}.svg"
        if name == "quickstart":
            trusted = runpy.run_path(str(EXAMPLES / "quickstart.py"))["trusted"]
            path.write_text(draw_sets([trusted[1], trusted[2]]), encoding="utf-8")
        elif name == "grid_search_k_max":
            run(name, ["--figure", str(path)])
        else:
            report = run(name, [*OPTIONS[name], "--output", str(OUTPUT)])
            if name in ("language_families", "cascade"):
                shutil.copyfile(OUTPUT / path.name, path)
            else:
                draw_curves(report["results" if name == "open_domain_qa" else "components"], path)
        rounded(path)
        print(f"Wrote {path}", flush=True)


def run(name: str, options: list[str]) -> Any:
    """Run a script's main function."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](options)


def draw_curves(results: Any, path: Path) -> None:
    """Draw what the splits gave: of sets for questions, of sentences for longer texts."""
    import matplotlib.pyplot as plt

    from sklearn_clm.inspection import RiskCurveDisplay

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    display = RiskCurveDisplay.from_trials(results, ax=axes)
    for one in axes:
        one.set_title("", loc="left")
        one.set_xlabel(display.level_label)
    # over all three
    axes[0].get_legend().remove()
    lines = axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside upper left", ncols=4, frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def rounded(path: Path) -> None:
    """Leave two digits behind the point of each coordinate, which the eye cannot tell apart."""
    text = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", path.read_text("utf-8"))
    path.write_text(text, encoding="utf-8")


def draw_sets(sets: Any) -> str:
    """Prompts, their sets, and the trusted sentences on a tint."""
    # of Helvetica, as wide as Arial; letters of other fonts are scaled, not spaced
    metrics = Path(mpl.get_data_path(), "fonts", "pdfcorefonts", "Helvetica.afm").read_text(
        "latin-1"
    )
    found = re.findall(r"^C (\d+) ; WX (\d+)", metrics, re.MULTILINE)
    advance = {chr(int(code)): int(width) for code, width in found}
    rows, y, right = [], 0, 0.0
    for one in sets:
        answer = one.prediction_set
        file = io.BytesIO()
        one.prompt.save(file, format="PNG")
        pixels = base64.b64encode(file.getvalue()).decode("ascii")
        n, drawn = len(answer.responses), answer.n_samples
        rows.append(
            f'<image x="12" y="{y + 12}" width="192" height="48" href="data:image/png;base64,'
            f'{pixels}" style="image-rendering:pixelated"/><text x="12" y="{y + 78}" class="note">'
            f"{n} report{'s' * (n > 1)} of {drawn} drawn</text>"
        )
        for i, response in enumerate(answer.responses):
            x, top = 228, y + 12 + 26 * i
            rows.append(f'<text x="{x}" y="{top + 15}">{i + 1}</text>')
            x += 20
            for sentence in sentences_of(response):
                trusted = sentence in one.components
                width = sum(advance[character] for character in sentence) * 0.013 + 6
                if trusted:
                    rows.append(
                        f'<rect x="{x:.0f}" y="{top}" width="{width:.0f}" height="20" rx="4"/>'
                    )
                rows.append(
                    f'<text x="{x + 3:.0f}" y="{top + 15}" textLength="{width - 6:.0f}" '
                    'lengthAdjust="spacingAndGlyphs">'
                    f"{escape(sentence)}</text>"
                )
                x += width + 4
            right = max(right, x + 8)
        y += 24 + max(78, 26 * n)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:.0f} {y}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13"><title>Strips of digits, the '
        "sets of reports about them, and the sentences that can be trusted, on a tint</title>"
        "<style>.note{fill:#555}rect{fill:#cfe8d4}</style>"
        f'<path d="M0 0H{right:.0f}V{y}H0Z" fill="#fff"/>{"".join(rows)}</svg>\n'
    )


def sentences_of(report: str) -> list[str]:
    """The sentences of a report, as the selector splits them."""
    from sklearn_clm.scoring import get_splitter

    return [report[start:stop].strip() for start, stop in get_splitter("sentence")(report)]


if __name__ == "__main__":
    main()
