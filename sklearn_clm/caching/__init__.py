"""Caches: draws, scores and verdicts, made once and kept.

| object | keeps | where |
|---|---|---|
| :class:`CachedGenerator` | every draw, the moment it arrives | a SQLite file |
| :class:`CachedScore` | qualities and similarities | the same file or another |
| :class:`CachedSplitter` | claims of responses | the same |
| :class:`CachedAdmission` | verdicts of a judge that is a model or a rule | the same |
| :class:`HumanJudge` | verdicts of people, with who and when | the same |
| :class:`DrawMemory` | draws, within this process; every estimator has one | memory, bounded |

## Nothing is paid for twice

Draws are keyed, so using one again is a look-up: by the generator's fingerprint, the prompt, the
seed and the index of the draw. A run that is killed at any moment loses none, and ends with the
same thresholds when it is started again. Requests to an estimator that want a draw at the same
time, in threads or in an event loop, have it made once. Two processes may both pay for it.

>>> import os, tempfile
>>> from sklearn_clm.caching import CachedGenerator
>>> from sklearn_clm.generators import PrecomputedGenerator
>>> folder = tempfile.TemporaryDirectory()
>>> path = os.path.join(folder.name, "draws.sqlite")
>>> service = PrecomputedGenerator(["2 + 2 ="], [["4", "5", "4"]])  # stands for one that is paid
>>> cached = CachedGenerator(service, path)
>>> _ = cached.sample(["2 + 2 ="], 2)
>>> _ = cached.sample(["2 + 2 ="], 3)
>>> cached.n_misses_, cached.n_hits_
(3, 2)

Draws of a generator of your own arrive at the end of each call of its ``sample``, for 256 prompts:
where they are paid for, give it ``chunk_size = 1``, or ``serve``.

Another model, temperature, template or training is another key, and so is other code, where the
generator is a class of your own: once it was edited, all draws are made anew. Where the edit does
not change what is drawn (it repeats failed requests, say), or a fingerprint cannot be known,
``key=`` names the generator from the first run on; draws of different generators under one key
would be taken for each other's. Files hold prompts and responses in the clear.

Where a disk is full, or another process keeps a file locked for a minute, an error says so and
nothing more is paid for. What was made is held in the memory of the process, and is written before
the file is used again.

Judges and scores that cost are kept likewise:

>>> from sklearn_clm.caching import CachedAdmission
>>> from sklearn_clm.scoring import exact_match
>>> admission = CachedAdmission(exact_match, path)
>>> admission("4", "4")
True

## People as judges

A :class:`HumanJudge` is an admission. Asked about responses that nobody has judged, it raises
:class:`VerdictsWanted`, which lists them all. People then judge, by file or one by one, and the
same call goes on from there.

>>> from sklearn_clm.caching import HumanJudge, VerdictsWanted
>>> judge = HumanJudge(path, question="Is the sum right?", judge="Ada")
>>> asked = judge.asked(["2 + 2 ="], ["4"])  # in place of references: people see prompts, too
>>> try:
...     judge(asked[0], "four")
... except VerdictsWanted as error:
...     judge.export(os.path.join(folder.name, "wanted.csv"), error.wanted)
...     judge.record(error.wanted[0], True, note="in words")  # or import_ the file, filled in
>>> judge(asked[0], "four")
True

With an estimator: ``sampler.set_params(admission=judge).fit(prompts, judge.asked(prompts))``, again
and again until nothing is wanted. With lazy judging the rounds are many and small; a file may ask
for more at a time, by ``judge.export(path, [*error.wanted, *error.later[:50]])``, and the outcome
is the same. Draws are not made again, since the sampler keeps them; a :class:`CachedGenerator`
keeps them over days. Nothing is ever overwritten: a correction is a new row, and the newest verdict
counts.

>>> folder.cleanup()
"""

import sklearn_clm.scoring  # noqa: F401 - whole, before parts of it
from sklearn_clm.caching._generator import CachedGenerator
from sklearn_clm.caching._human_judge import HumanJudge
from sklearn_clm.caching._memory import DrawMemory
from sklearn_clm.caching._scores import CachedAdmission, CachedScore, CachedSplitter
from sklearn_clm.caching._verdicts import (
    Context,
    JudgedPrompt,
    Verdict,
    VerdictsWanted,
    WantedVerdict,
)

__all__ = [
    "CachedAdmission",
    "CachedGenerator",
    "CachedScore",
    "CachedSplitter",
    "Context",
    "DrawMemory",
    "HumanJudge",
    "JudgedPrompt",
    "Verdict",
    "VerdictsWanted",
    "WantedVerdict",
]
