"""Evaluation: repeated random splits, planning, and a watch on the risk in use.

A single split into calibration and test says little: loss and size vary with it. The paper repeats
it (section 5, Appendix F): one part finds the frontier, one tests it, the rest measures, for
several set scores and all epsilons.

>>> import numpy as np
>>> from sklearn_clm.calibration import CalibrationData
>>> from sklearn_clm.evaluation import run_trials
>>> rng = np.random.default_rng(0)
>>> quality = rng.random((500, 8))
>>> data = CalibrationData(quality, rng.random((500, 8, 8)), rng.random((500, 8)) < 0.6 * quality)
>>> results = run_trials(data, ["first_k", "max"], [0.2, 0.3, 0.4], n_trials=20, random_state=0)
>>> bool(results.compare("max", "first_k", "size").mean < 0)  # normalised area under the curve
True

:func:`run_component_trials` does the same for scores of components. Trials
abstain at levels that cannot be reached, and their measures are NaN.

## From the shell

The same on arrays that you have, such as the authors' own files:

    python -m sklearn_clm evaluate --scores scores.npy --labels labels.npy --similarity div.npy
    python -m sklearn_clm calibrate --data draws.npz --epsilon 0.2 --output thresholds.json

`evaluate` writes curves, areas and figures; `calibrate` writes what
:meth:`sklearn_clm.ConformalSampler.load_calibration` reads.

## Planning

:func:`plan` estimates from a pilot of 50 to 100 prompts what calibrations of several sizes will
do. The number of prompts is decided beforehand: who collects more after each failure until one
calibration succeeds is misled more often than delta says. ``plan(..., looks=3)`` is for three
calibrations of growing data, each with delta / 3.
:func:`smallest_epsilons` tells what larger calibration parts would certify, and
:func:`chance_of_null` how likely another calibration of the same size is to certify nothing.

>>> from sklearn_clm.evaluation import smallest_epsilons
>>> smallest_epsilons(30, 300, [100, 300, 3000], delta=0.05).round(3)
array([0.164, 0.133, 0.109])

:func:`plan_audits` compares, from a pilot that a model and people have both judged, how many
verdicts of people it takes if they audit the model, and if they judge alone.

## A watch on the risk in use

A calibration holds for the distribution that it saw. :class:`RiskMonitor` takes outcomes of sets
that were judged after deployment, and raises an alarm when the risk exceeds epsilon. It may be
looked at after every outcome: the chance of ever raising a false alarm is at most alpha. Outcomes
must be of all prompts or of a random share of them, never of complaints.

>>> from sklearn_clm.evaluation import RiskMonitor
>>> monitor = RiskMonitor(0.2, alpha=0.05)  # or a calibrated estimator in place of epsilon
>>> monitor = monitor.update(rng.random(200) < 0.5)  # the world has changed
>>> bool(monitor.alarm_), bool(monitor.alarm_at_ < 100)
(True, True)

After an alarm, calibrate again on new prompts. The absence of one renews no certificate.
"""

from sklearn_clm.evaluation._audit_plan import AuditPlan, plan_audits
from sklearn_clm.evaluation._component_trials import reference_scores, run_component_trials
from sklearn_clm.evaluation._monitor import RiskMonitor
from sklearn_clm.evaluation._plan import Plan, chance_of_null, plan, smallest_epsilons
from sklearn_clm.evaluation._results import ComponentTrialResults, PairedDifference, TrialResults
from sklearn_clm.evaluation._trials import run_trials

__all__ = [
    "AuditPlan",
    "ComponentTrialResults",
    "PairedDifference",
    "Plan",
    "RiskMonitor",
    "TrialResults",
    "chance_of_null",
    "plan",
    "plan_audits",
    "reference_scores",
    "run_component_trials",
    "run_trials",
    "smallest_epsilons",
]
