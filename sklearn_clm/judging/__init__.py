"""Judging: a page in the browser on which people give the verdicts that a calibration needs.

| object | does |
|---|---|
| :func:`serve` | serves the page to this machine, until it is interrupted |
| :class:`JudgingSession` | one person's way through the pairs; the page without the web |
| :func:`judging_app` | the page as an ASGI application |
| :func:`wanted_from_file` | reads the pairs of a file |
| :func:`audit_judge` | error rates of a model that judges, against the verdicts of people |

## From a calibration

The page asks for what a calibration lacks, round by round, and shows what it found in the end.
Verdicts are kept by a :class:`~sklearn_clm.caching.HumanJudge`; the thresholds are those of the
same verdicts given in any other way.

>>> import os, tempfile
>>> from sklearn_clm import ConformalSampler
>>> from sklearn_clm.caching import HumanJudge
>>> from sklearn_clm.generators import PrecomputedGenerator
>>> from sklearn_clm.judging import JudgingSession
>>> folder = tempfile.TemporaryDirectory()
>>> judge = HumanJudge(os.path.join(folder.name, "verdicts.sqlite"), judge="Ada")
>>> prompts = [f"{i} + 1 =" for i in range(40)]
>>> drawn = PrecomputedGenerator(prompts, [[f"{i + 1}", "one", "a few"] for i in range(40)])
>>> sampler = ConformalSampler(
...     drawn, k_max=3, quality="self_consistency", admission=judge, judging="lazy", epsilon=0.4
... )
>>> session = JudgingSession(judge, lambda: sampler.fit(prompts, judge.asked(prompts)).epsilon)
>>> turn = session.turn("window")  # what the page shows
>>> while turn.pair is not None:
...     turn = session.act("window", turn.pair.id, "y")  # what a key does
>>> turn.conclusion
'0.4'

``serve(judge, calibration)`` does the same in the browser. A function that knows how many verdicts
it may still want raises :class:`~sklearn_clm.caching.VerdictsWanted` with ``n_at_most``, and the
page says so: "Decided after at most 37 more."

## Two people

A second person judges a random part of what the first has judged, without seeing the verdicts:
``serve(judge, judged_by="Grace", second_opinions=0.2)``. These do not count as labels. Once the
part is done, the page shows how many agree. Several people may also give first opinions at once,
each at a server of their own on the same file: the first verdict on a pair stays until whoever gave
it takes it back.

## Who may see it

The page is served on 127.0.0.1 alone, at an address that holds a random token. Requests of another
Host or Origin are refused, nothing but verdicts is taken in, and the page loads and runs nothing
but its own files. Prompts and responses are shown as text, never as markup, with control
characters and changes of direction made visible; images are encoded anew.
"""

from sklearn_clm.judging._audit import JudgeAudit, audit_judge
from sklearn_clm.judging._server import judging_app, serve
from sklearn_clm.judging._session import JudgingSession, Turn, Wanted, wanted_from_file

__all__ = [
    "JudgeAudit",
    "JudgingSession",
    "Turn",
    "Wanted",
    "audit_judge",
    "judging_app",
    "serve",
    "wanted_from_file",
]
