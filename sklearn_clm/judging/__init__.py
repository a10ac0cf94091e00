"""Judging: a page in the browser for people's verdicts.

| object | does |
|---|---|
| :func:`serve` | serves the page to this machine, until it is interrupted |
| :class:`JudgingSession` | one person's way through the pairs; the page without the web |
| :func:`judging_app` | the page as an ASGI application |
| :func:`export_questionnaire` | the page as one file, for people elsewhere |
| :func:`hand_over` | has escalated prompts answered: by a function, a file or people |

## From a calibration

The page asks for what a calibration lacks, round by round, and shows what it found in the end.
Verdicts are kept by a :class:`sklearn_clm.caching.HumanJudge`; the thresholds are those of the
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
>>> turn = session.turn()  # what the page shows
>>> while turn.pair is not None:
...     turn = session.act(turn.pair.id, "y")  # what a key does
>>> turn.conclusion
'0.4'

``serve(judge, calibration)`` does the same in the browser. A lazy ``fit`` tells how many verdicts
it may still want, in ``n_at_most`` of :class:`sklearn_clm.caching.VerdictsWanted`, and the page
says so: "Decided after at most 37 more, 6 of them in this round." That is a bound, which each
verdict lowers; most calibrations end long before. ``sklearn-clm judge STORE``, in a process of its
own, knows what the last calibration lacked, and not this bound.

Where people audit a model, no page shows what the model says: who knew it would agree too often,
and the promise is about what people say by themselves.

A verdict that is changed later is a new row, and the last one counts: the next ``fit`` or
``calibrate`` looks all of them up again.

## Sentences and claims

A sentence is judged in the response around it, and a claim that does not stand in it beside it;
passages that the prompt holds are shown with the prompt, and others, of a
:class:`sklearn_clm.scoring.GroundedIn` with a `context`, by themselves.
``ComponentSelector(sampler, admission=judge, judging="lazy")`` asks from the highest score down,
as its test walks, and no more of a prompt that is known to have a wrong one; the threshold is that
of all labels (:meth:`sklearn_clm.ComponentSelector.fit`). Give it a question of its own, such as
``HumanJudge(path, question="Is this true?")``: the file may be the same. The verdict is one on the
sentence, whatever response holds it.

Long texts have many sentences, so that a calibration may want thousands of verdicts: let a model
judge them and people audit it (:class:`sklearn_clm.policies.AuditedJudging`).

## As few verdicts as possible: two judges, one of them cheap

The optimisation part only shapes the path of the tests. A guarantee holds for every path that was
fixed before the calibration part was looked at, so labels there may come from anybody:

>>> from sklearn_clm.policies import LazyJudging
>>> cheap = LazyJudging(optimization_judgements=None, optimization_admission="exact_match")
>>> _ = sampler.set_params(judging=cheap)  # people judge the calibration part alone

For 200 sums as in :mod:`sklearn_clm.policies`, with 6 draws (epsilon 0.2, means of ten), people
gave 633 verdicts with ``judging="all"``, 349 with "lazy" and 144 so. With ``policy=ExitPolicy()``
besides they gave 156: fewer prompts shape the test there, and more take it.

Never so on the calibration part: what is certified there is a promise for the admission that
judged there. A model may judge it in place of people only as far as it is never too lenient
(Corollary A.4).

## Several people

Several people may judge at once, each at a server of their own on the same file
(``serve(judge, judge.wanted(), judged_by="Grace")``). Each is given the prompts in another order,
and a pair that somebody judged is shown to nobody else. Where two meet at a pair, be it under one
name, the first verdict counts, and the other one is told so.

People elsewhere judge by mail: :func:`export_questionnaire` writes one file, which they open in a
browser, without a server, and which saves their verdicts as JSON. Lazy rounds are small and mail is
slow, so ask at once for all that may be wanted, as far as it is known, here of two people, each
half of it:

>>> from sklearn_clm.caching import VerdictsWanted
>>> from sklearn_clm.judging import export_questionnaire
>>> by_mail = HumanJudge(judge.path, question="Is it the sum, in digits?")
>>> sampler = sampler.set_params(admission=by_mail, judging="lazy")
>>> try:
...     sampler = sampler.fit(prompts, by_mail.asked(prompts))
... except VerdictsWanted as error:
...     pairs = [*error.wanted, *error.later]
...     export_questionnaire(by_mail, os.path.join(folder.name, "ada.html"), pairs[::2])
...     export_questionnaire(by_mail, os.path.join(folder.name, "grace.html"), pairs[1::2])

``by_mail.import_("verdicts-Ada.json")`` keeps what came back, and the same ``fit`` goes on, or
raises again for what is still missing.

## Who may see it

The page is served on 127.0.0.1 alone, at an address that holds a random token. Requests of another
Host or Origin are refused, and the page loads and runs nothing but its own files. Prompts and
responses are shown as text, never as markup, with control characters and changes of direction made
visible; images are encoded anew.
"""

import sklearn_clm.caching  # noqa: F401 - whole, before parts of it
from sklearn_clm.judging._handover import hand_over
from sklearn_clm.judging._questionnaire import export_questionnaire
from sklearn_clm.judging._server import judging_app, serve
from sklearn_clm.judging._session import JudgingSession, Turn, Wanted

__all__ = [
    "JudgingSession",
    "Turn",
    "Wanted",
    "export_questionnaire",
    "hand_over",
    "judging_app",
    "serve",
]
