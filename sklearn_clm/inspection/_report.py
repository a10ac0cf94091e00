"""What a calibration means, in words, numbers and pictures."""

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Self

from sklearn.pipeline import Pipeline

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm._results._cards import element, head
from sklearn_clm.calibration.files import replacing
from sklearn_clm.evaluation.markdown import markdown_table, markdown_text
from sklearn_clm.inspection._sections import Section, sections
from sklearn_clm.inspection.figures import Display, calibrated

_TITLE = "Calibration report"
_STYLE = """<style>
.clm.clm-report p{margin:.3rem 0 .6rem;max-width:75ch;font-size:1rem;color:var(--ink)}
.clm-report h2{margin:.3rem 0 .8rem;font-size:1.25rem;line-height:1.3;color:var(--ink)}
.clm-report h3{margin:1.5rem 0 .3rem;font-size:1rem;line-height:1.4;color:var(--ink)}
.clm-report details{border-top:1px solid var(--line)}
.clm-report summary{cursor:pointer;padding:.45rem 0;min-height:2.75rem}
.clm-report summary h3{display:inline;margin:0}
.clm-report table{display:block;overflow-x:auto;margin:.5rem 0;border-collapse:collapse;
font-size:.9375rem;color:var(--ink)}
.clm-report tr{background:none}
.clm-report td,.clm-report th{padding:.2rem .6rem;border:1px solid var(--line);text-align:start}
.clm.clm-report p.clm-warning{padding-inline-start:.7rem;
border-inline-start:.25rem solid var(--no)}
.clm-report img{display:block;max-width:100%;height:auto;border-radius:.5rem}
.clm-report :focus-visible{outline:.1875rem solid var(--yes);outline-offset:.125rem}
</style>"""


# around the element the page is as light, or as dark, as the element is
_PAGE_STYLE = """<style>html{background:#fbfaf7}body{margin:0 auto;max-width:62rem}
@media (prefers-color-scheme:dark){html{background:#141413}}</style>"""


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """Report on a calibrated estimator: its guarantee, and the numbers.

    It is shown as HTML with pictures in a notebook and as Markdown in print. Create it with
    :meth:`from_estimator`.
    """

    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.sections, tuple):
            raise TypeError(
                f"sections must be a tuple of Sections, got {type(self.sections).__name__} "
                "instead: of an estimator take CalibrationReport.from_estimator(estimator)."
            )

    @classmethod
    def from_estimator(cls, estimator: ConformalSampler | ComponentSelector | Pipeline) -> Self:
        """Report on a fitted sampler or selector.

        Parameters
        ----------
        estimator : ConformalSampler, ComponentSelector or Pipeline
            An estimator after ``fit``, ``calibrate`` or ``load_calibration``, of which no data are
            known; of a pipeline, the last step that is one. A selector's report states what is
            promised of its sampler's sets, too; all figures of these are in the sampler's own.
        """
        fitted = calibrated(estimator, ConformalSampler, ComponentSelector, with_data=False)
        return cls(tuple(sections(fitted)))

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What to be careful about."""
        return sum((s.paragraphs for s in self.sections if s.warning), ())

    def to_markdown(self) -> str:
        """The report as Markdown."""
        blocks = [f"# {_TITLE}"]
        level = "##"
        for section in self.sections:
            # Markdown folds nothing: what a page would fold stands under a heading of its own
            if section.folded and level == "##":
                blocks.append("## All figures")
                level = "###"
            blocks.append(f"{level} {section.heading}")
            paragraphs = [markdown_text(text) for text in section.paragraphs]
            if section.warning:
                paragraphs = ["\n".join(f"- {text}" for text in paragraphs)]
            blocks += paragraphs
            if section.table:
                blocks.append(markdown_table(section.table).rstrip("\n"))
        return "\n\n".join(blocks) + "\n"

    def to_html(self) -> str:
        """The report as an HTML fragment, with pictures."""
        parts = [_STYLE, f"<h2>{_TITLE}</h2>"]
        # one picture is open from the start, so that a page says more than words at first sight
        first_picture = next((part for part in self.sections if part.display is not None), None)
        for section in self.sections:
            if section.summary is not None:
                parts.append(head(section.summary))
            heading = f"<h3>{escape(section.heading)}</h3>"
            if section.folded:
                tag = "<details open>" if section is first_picture else "<details>"
                heading = f"{tag}<summary>{heading}</summary>"
            parts.append(heading)
            css = ' class="clm-warning"' if section.warning else ""
            parts += [f"<p{css}>{escape(text)}</p>" for text in section.paragraphs]
            if section.table:
                header, *rows = section.table
                cells = [_html_row(header, "th"), *(_html_row(row, "td") for row in rows)]
                parts.append(f"<table>{''.join(cells)}</table>")
            if section.display is not None:
                parts.append(_picture(section.display, section.heading))
            parts.append("</details>" * section.folded)
        return element(*parts, kind="clm clm-report")

    def save(self, path: str | Path) -> None:
        """Write the report to an .html, .htm or .md file."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".html", ".htm", ".md"):
            raise ValueError(f"path={str(path)!r} must end in .html, .htm or .md.")
        if suffix == ".md":
            text = self.to_markdown()
        else:
            text = (
                '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width, initial-scale=1">'
                '<meta name="color-scheme" content="light dark">'
                f"<title>{_TITLE}</title>{_PAGE_STYLE}</head><body>{self.to_html()}</body></html>\n"
            )
        # whole or not at all: a page that ends early would look like a report
        with replacing(path) as unfinished:
            Path(unfinished).write_text(text, encoding="utf-8")

    def __repr__(self) -> str:
        headings = ", ".join(section.heading for section in self.sections)
        return f"<CalibrationReport: {headings}>"

    __str__ = to_markdown
    _repr_html_ = to_html


def _html_row(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _picture(display: Display, heading: str) -> str:
    """The display as an image within the page."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "<p>The picture is drawn where sklearn-clm[plot] is installed.</p>"
    # a figure of its own, which no window shows and no later plot touches
    figure = Figure(figsize=display.size, layout="constrained")
    display.plot(ax=figure.subplots(*display.shape))
    # within the page, so that a report is one file
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return f'<img alt="{escape(heading)}" src="data:image/png;base64,{data}" />'
