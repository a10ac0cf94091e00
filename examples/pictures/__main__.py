"""Run the examples, smaller than by default, and write the pictures of the gallery.

python examples/pictures [NAME ...]
"""

import argparse
import re
import runpy
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "sklearn_clm", "path.simplify": True}

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent
OUTPUT = EXAMPLES / "output" / "pictures"
WIDTH = 800  # of the picture of the quickstart, with what it shows
QUESTIONS = (
    "Which country is the city of Yerevan in?",
    "Which continent is Togo in?",
    "Which language do people speak in Austria?",
    "Which US state is the city of Seattle in?",
    "What is the chemical symbol of neon?",
)
CITIES = ("Kobe", "Madrid", "Callao")
OPTIONS = {
    "risk_curves": [],
    "cascade": [],
    "open_domain_qa": ["--questions", "400", "--trials", "20"],
    "language_families": ["--questions", "1000"],
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
            found = runpy.run_path(str(EXAMPLES / "quickstart.py"))
            path.write_text(draw_sets(found), encoding="utf-8")
        elif name == "grid_search_k_max":
            run(name, ["--figure", str(path)])
        else:
            report = run(name, [*OPTIONS[name], "--output", str(OUTPUT)])
            if name in ("language_families", "cascade"):
                shutil.copyfile(OUTPUT / path.name, path)
            elif name == "risk_curves":
                for part in ("sets", "answers"):
                    shutil.copyfile(OUTPUT / f"smollm2_{part}.svg", HERE / f"smollm2_{part}.svg")
                    rounded(HERE / f"smollm2_{part}.svg")
                path = HERE / "smollm2_sentences.svg"
                draw_curves(report["sentences"], path)
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
    """Leave two digits behind the point of each coordinate, which the eye cannot tell apart.

    The date goes, too: the same run draws the same file.
    """
    text = re.sub(r"\s*<dc:date>.*?</dc:date>", "", path.read_text("utf-8"))
    text = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text)
    path.write_text(text, encoding="utf-8")


def draw_sets(found: dict[str, Any]) -> str:
    """Sets of answers to new questions, and trusted sentences about new cities, on a tint."""
    lines = [heading(found["rows"], "the set holds", "Sets of answers")]
    for question in QUESTIONS:
        (one,) = [one for one in found["sets"] if one.prompt == question]
        pieces = [Piece(question + "  ")]
        pieces += [Piece(response.strip(), framed=True) for response in one.responses]
        lines += wrapped(pieces)
    lines += [[], heading(found["rows"], "all trusted sentences", "Sentences to rely on, tinted")]
    for city in CITIES:
        (one,) = [one for one in found["trusted"] if one.prompt == city]
        paragraphs = one.prediction_set
        shown = f"{city}: {len(paragraphs)} of {paragraphs.n_samples} paragraphs"
        lines.append([Piece(shown, note=True)])
        for i, paragraph in enumerate(paragraphs.responses, start=1):
            sentences = sentences_of(paragraph)
            pieces = [Piece(sentence, tinted=sentence in one.components) for sentence in sentences]
            lines += wrapped([Piece(str(i), note=True), *pieces])
    parts = []
    y = 14.0
    for line in lines:
        x = 14.0
        for piece in line:
            parts.append(piece.drawn(x, y))
            x += piece.width + 5
        y += 25 if line else 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 28} {y + 6:.0f}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13"><title>Sets of answers of '
        "SmolLM2, and what it writes about cities, with the sentences that can be trusted on a "
        "tint</title><style>.note{fill:#555}.head{font-weight:bold}.tint{fill:#bfe5c8}"
        ".frame{fill:#fff;stroke:#888}</style>"
        f'<path d="M0 0H{WIDTH + 28}V{y + 6:.0f}H0Z" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


@dataclass
class Piece:
    """Text that stays on one line."""

    text: str
    tinted: bool = False
    framed: bool = False
    note: bool = False
    head: bool = False

    @property
    def width(self) -> float:
        # of Helvetica, as wide as Arial; letters of other fonts are scaled, not spaced
        per_mille = sum(advances().get(letter, 556) for letter in self.text)
        return per_mille * 0.013 * (1.06 if self.head else 1.0) + 6

    def drawn(self, x: float, y: float) -> str:
        box = "tint" if self.tinted else "frame" if self.framed else None
        style = ' class="note"' * self.note + ' class="head"' * self.head
        rectangle = (
            f'<rect class="{box}" x="{x:.0f}" y="{y}" width="{self.width:.0f}" height="20" rx="4"/>'
        )
        text = (
            f'<text x="{x + 3:.0f}" y="{y + 15}"{style} textLength="{self.width - 6:.0f}" '
            f'lengthAdjust="spacingAndGlyphs" xml:space="preserve">{escape(self.text)}</text>'
        )
        return (rectangle if box else "") + text


def heading(rows: list[Any], words: str, title: str) -> list[Piece]:
    """A title, what was promised, and what held: of kinds of prompts, those with a promise."""
    promised = [row for row in rows if words in row[0] and row[3].guaranteed]
    n_new = sum(len(group) for _, _, _, group in promised)
    n_held = sum(held * len(group) for _, _, held, group in promised)
    each = f" in each of {len(promised)} kinds" if len(promised) > 1 else ""
    promise = (
        f"{1 - promised[0][1]:.0%} promised{each}, {n_held / n_new:.0%} of {n_new} new ones held"
    )
    return [Piece(title, head=True), Piece(promise, note=True)]


def wrapped(pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces in lines that are not too long."""
    lines: list[list[Piece]] = [[]]
    for piece in pieces:
        if lines[-1] and sum(one.width + 5 for one in lines[-1]) + piece.width > WIDTH:
            lines.append([])
        lines[-1].append(piece)
    return lines


@cache
def advances() -> dict[str, int]:
    """Widths of letters in thousandths of the size of the font."""
    path = Path(mpl.get_data_path(), "fonts", "pdfcorefonts", "Helvetica.afm")
    found = re.findall(r"^C (\d+) ; WX (\d+)", path.read_text("latin-1"), re.MULTILINE)
    return {chr(int(code)): int(width) for code, width in found}


def sentences_of(report: str) -> list[str]:
    """The sentences of a report, as the selector splits them."""
    from sklearn_clm.scoring import get_splitter

    return [report[start:stop].strip() for start, stop in get_splitter("sentence")(report)]


if __name__ == "__main__":
    main()
