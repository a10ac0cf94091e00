"""One page of results: what was promised and what held as bars, and the sets as cards."""

from html import escape

STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #fff; --ink: #1d1d1b; --faint: #62625d;
  --line: #87857c; --yes: #00648f; --no: #b34a00 }
@media (prefers-color-scheme: dark) {
  :root { --paper: #141413; --card: #1e1e1c; --ink: #deddd6; --faint: #a09f97; --line: #7a7972;
    --yes: #62b8e4; --no: #f0a067 }
}
* { box-sizing: border-box }
body { max-width: 62rem; margin: 0 auto; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 1.0625rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { margin: .5rem 0; font-size: 1.75rem; line-height: 1.25 }
h2 { margin: 2.5rem 0 .3rem; font-size: 1.25rem; line-height: 1.3 }
p { margin: .3rem 0 .8rem; max-width: 75ch }
ul { margin: 1.2rem 0; padding: 0; list-style: none }
li.row { display: grid; grid-template-columns: minmax(0, 1fr) 12.5rem; gap: 0 1rem;
  padding: .45rem 0 .6rem; border-top: 1px solid var(--line); align-items: end }
.held { font-size: 1.75rem; font-weight: 600; line-height: 1.1; color: var(--yes) }
.broken { color: var(--no) }
.open { color: var(--faint) }
.note { color: var(--faint); font-size: .875rem }
.row .note, .row > span.held { text-align: end }
.bar { position: relative; height: .75rem; margin: .3rem 0 .35rem; border-radius: 1rem;
  border: 1px solid var(--line); background: var(--card) }
.fill { height: 100%; border-radius: 1rem; background: currentColor }
.tick { position: absolute; top: -.3rem; bottom: -.3rem; width: .1875rem; background: var(--ink) }
summary { cursor: pointer; padding: .45rem 0; min-height: 2.75rem }
body > details { border-top: 1px solid var(--line) }
:focus-visible { outline: .1875rem solid var(--yes); outline-offset: .125rem }
body .clm, body .clm-report { padding-inline: 0 }
@media (max-width: 40rem) {
  li.row { grid-template-columns: minmax(0, 1fr) auto }
  .row .bar, .row .note { grid-column: 1 / -1; text-align: start }
}
"""


def write(path, title, intro, rows, closing, sections):
    """Write a page.

    Parameters
    ----------
    path : Path
        Where it is written.
    title, intro, closing : str
        Its heading, and what stands above and below the bars.
    rows : list of (str, float, float, PredictionSets or ComponentSets)
        What was promised, the tolerated risk, the share of the sets that held, and the sets.
    sections : list of (str, str, dict of str to str)
        A heading, a remark, and parts of HTML by their title; the first part is open.
    """
    parts = [f"<h1>{escape(title)}</h1><p>{escape(intro)}</p>"]
    parts.append(f'<ul aria-label="Promised and held">{"".join(map(_row, rows))}</ul>')
    parts.append(f"<p>{escape(closing)}</p>")
    for heading, remark, details in sections:
        parts.append(f"<h2>{escape(heading)}</h2><p>{escape(remark)}</p>")
        for i, (name, content) in enumerate(details.items()):
            is_open = "" if i else " open"
            parts.append(f"<details{is_open}><summary>{escape(name)}</summary>{content}</details>")
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>",
        encoding="utf-8",
    )


def _row(row):
    """A promise as a bar, as long as the share that held, with a tick at what was promised."""
    what, risk, held, group = row
    promise = "nothing promised"
    sign = "open"
    tick = ""
    if group.guaranteed:
        promise = f"{1 - risk:.0%} promised"
        sign = "broken" if held < 1 - risk else ""
        tick = f'<div class="tick" style="left:{1 - risk:.1%}"></div>'
    fill = f'<div class="fill" style="width:{held:.1%}"></div>'
    return (
        f'<li class="row"><span>{escape(what)}</span>'
        f'<span class="held {sign}">{held:.0%}</span>'
        f'<div class="bar held {sign}">{fill}{tick}</div>'
        f'<span class="note">{promise}, {len(group)} new</span></li>'
    )
