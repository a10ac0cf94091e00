"""Runs: stop or hand over agents that go wrong.

An agent, or a model that reasons, makes a *run*: steps, each with a score (a judge's probability of
success, a log-probability, a reward), and in the end success or failure. :class:`RunGate` stops
runs that are going wrong, or hands them over, and promises one of two things with confidence
1 - delta over the calibration runs:

| `promise` | at most alpha |
|---|---|
| ``"keeps"`` | of the runs that would succeed are stopped |
| ``"passes"`` | of the runs that are let through to their end fail |

>>> import numpy as np
>>> from sklearn_clm.runs import RunGate
>>> rng = np.random.default_rng(0)
>>> succeeded = rng.random(600) < 0.6
>>> runs = [rng.normal(good, 1.0, size=rng.integers(2, 9)) for good in succeeded]  # yours
>>> gate = RunGate(alpha=0.1).fit(runs[:400], succeeded[:400])
>>> gate.calibration_.claims[None].sentence()[:74]
'With confidence 95 % over the calibration runs that succeed, a new run fro'
>>> report = gate.report(runs[400:], succeeded[400:])  # prints itself, and is HTML in notebooks
>>> [section.heading for section in report.sections]
['Guarantee', 'New runs']

## While a run goes on

``gate.open()`` takes a score after each step and says whether to go on. It knows the scores so far
alone, its state is a line of JSON, and one step takes microseconds:

>>> run = gate.open()
>>> [run.step(score) for score in (0.8, -2.5, -3.0)]
[True, True, False]

``gate.save("gate.json")`` keeps what was calibrated, and ``RunGate(alpha=0.1).load("gate.json")``
is what a service begins with. A run outlives a restart by its line of JSON:

>>> kept = run.to_json()  # after each step, to a file or a database
>>> run = gate.open(state=kept)
>>> run.stopped
True

## What is not promised

- Nothing is said of a single run: the promise is an average over new runs.
- New runs must come from the same agent, tools, tasks and scores, independently. Several runs of
  one task tell less than as many tasks: give a run of each.
- It is a hand-over rather than a saving: on public traces 11 to 57 % of the failing runs were
  stopped at alpha = 0.1, late, so that 1 to 8 % of all steps were saved
  (``python examples/runs.py``).
- *Stopping changes which runs finish.* Never calibrate again on runs that a gate let through:
  those that it stopped are missing, and they were not missing at random. Let a random share of runs
  go ungated, and calibrate on that share alone.
- Runs that a budget or an error ended are neither successes nor failures by themselves. `fit`
  refuses them until `unfinished` says what they are, and the report says how many there were.
- The scorer must not have learnt from the runs that calibrate, nor `features` from their outcomes.
- The two promises are of two gates. Both hold together with probability 1 - 2 delta.

## Reading runs

:func:`read_runs` reads tables with a step in each row, and logs of Inspect, whose agents' messages
hold scores in their metadata, or of which a function makes scores:
``gate.fit(*read_runs("runs.csv"))``. :class:`GateDisplay` draws what is stopped over alpha, and
when.
"""

import sklearn_clm.inspection  # noqa: F401 - whole, before parts of it
from sklearn_clm.runs._display import GateDisplay
from sklearn_clm.runs._gate import GateCalibration, OpenRun, RunGate
from sklearn_clm.runs._reading import read_runs

__all__ = ["GateCalibration", "GateDisplay", "OpenRun", "RunGate", "read_runs"]
