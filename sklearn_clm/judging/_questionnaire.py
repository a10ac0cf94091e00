"""The judging page as one file, for people elsewhere.

The file holds the pairs, the page and its program. It needs no server and loads nothing: its policy
lets run what was written here alone, by digests. Verdicts come back as JSON, which
:meth:`sklearn_clm.caching.HumanJudge.import_` reads.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from sklearn_clm.caching import HumanJudge, WantedVerdict
from sklearn_clm.caching.verdict_files import VERDICTS_FORMAT
from sklearn_clm.calibration.files import replacing
from sklearn_clm.generators.records import key_digest
from sklearn_clm.judging._view import images, pair_view, png

_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def export_questionnaire(
    judge: HumanJudge,
    path: str | os.PathLike[str],
    wanted: Sequence[WantedVerdict] | None = None,
) -> None:
    """Write the judging page with its pairs as one file.

    Send it to people who judge by mail. They open it in a browser, on a phone too, and send back
    the file of verdicts that it saves; ``judge.import_(file)`` keeps them. What several people say
    of a pair is kept by their names, and the last one read counts.

    Parameters
    ----------
    judge : HumanJudge
        Its question is asked, and its store will know the pairs.
    path : str or path
        The HTML file, replaced where it exists.
    wanted : sequence of WantedVerdict, default=None
        The pairs, for instance of a :class:`sklearn_clm.caching.VerdictsWanted`; None is what the
        last calibration lacked, ``judge.wanted()``.

    Raises
    ------
    ValueError
        If there is nothing to judge.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn_clm.caching import HumanJudge, JudgedPrompt, WantedVerdict
    >>> from sklearn_clm.judging import export_questionnaire
    >>> folder = tempfile.TemporaryDirectory()
    >>> judge = HumanJudge(os.path.join(folder.name, "verdicts.sqlite"), judge="Ada")
    >>> pairs = [WantedVerdict(JudgedPrompt("2+2?"), "four")]
    >>> path = os.path.join(folder.name, "questions.html")
    >>> export_questionnaire(judge, path, pairs)
    >>> "four" in open(path, encoding="utf-8").read()
    True
    """
    pairs = list(judge.wanted() if wanted is None else wanted)
    if not pairs:
        raise ValueError("wanted must hold a pair to judge, got none instead.")
    # an order of prompts that nobody chose, the responses of a prompt one after the other
    pairs.sort(key=lambda pair: key_digest([pair.asked.prompt, list(pair.asked.references)]))
    judge.expect(pairs)  # the verdicts come back with ids alone

    pictures = {pair.id: [_address(image) for image in images(pair)] for pair in pairs}
    content = {
        "format": VERDICTS_FORMAT,
        "question": judge.question,
        "digest": key_digest([judge.question, [pair.id for pair in pairs]]).hex(),
        "pairs": [pair_view(pair) for pair in pairs],
        "images": {id_: addresses for id_, addresses in pictures.items() if addresses},
    }
    with replacing(path) as unfinished:
        Path(unfinished).write_text(_page(content), encoding="utf-8")


def _page(content: Mapping[str, object]) -> str:
    """The page with style, program and content inside."""
    folder = resources.files("sklearn_clm.judging")
    page, style, turns, program = (
        folder.joinpath(name).read_text("utf-8")
        for name in ("page.html", "page.css", "questionnaire.js", "page.js")
    )
    # no text of the content can end the element or begin a comment
    written = json.dumps(content).replace("<", "\\u003c")
    scripts = " ".join(map(_digest_source, (turns, program)))
    policy = _POLICY.format(scripts=scripts, styles=_digest_source(style))

    # the links of the page to its files give way to what the files hold
    head, rest = re.sub(r"<(link|script) [^\n]*\n", "", page).split("</head>")
    body, end = rest.split("</body>")
    head = head.replace(
        '<meta charset="utf-8">\n',
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
    )
    return (
        f"{head}<style>{style}</style>\n</head>{body}"
        f'<script type="application/json" id="file">{written}</script>\n'
        f"<script>{turns}</script>\n<script>{program}</script>\n</body>{end}"
    )


def _digest_source(text: str) -> str:
    """The source of a policy that allows this text."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _address(image: object) -> str:
    """A picture within the page, as a ``data:`` address."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()
