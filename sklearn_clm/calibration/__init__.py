r"""Certified thresholds from arrays of scores and labels.

This chapter says what is guaranteed and why. It knows arrays alone: n prompts with K draws each,
their quality, the similarity of draws to earlier ones, and which draws are admissible.

## What is guaranteed

With probability at least 1 - delta over the calibration prompts, the set of a new prompt holds an
admissible response with probability at least 1 - epsilon (Eq. 1 of the paper). It holds for any
model, any scores and any number of prompts, if the calibration prompts and the new ones are
independent draws of one distribution, and if what was trained was trained on others.

It is *not* a promise for each prompt, nor for each kind of prompt, not under a shift of the
distribution, and not for turns of one dialogue, which depend on each other. It is spent once:
whoever compares twenty calibrations on the data that calibrated them, and takes the best, has
tested twenty times. And "admissible" is what the labels say: labels stricter than the truth keep
the guarantee for the truth (Corollary A.4), laxer ones do not.

## What is not noticed, and what to do instead

The package refuses or warns of what it can see. It cannot see the following, and each of them makes
`guaranteed` say more than is true.

| not noticed | what to do instead |
|---|---|
| prompts that trained, or chose, a frozen model, a score or a template | calibrate on others |
| a few of them (3 %) among those that a policy was fitted on | split prompts before you `collect` |
| popular prompts that all stand in the part on which you fit a policy or score | each prompt once |
| popular prompts that trained a generator whose draws stand in a file | each prompt once |
| a policy or frontier learnt on these bare arrays, where many rows are equal | `prompts=` |
| epsilon, `k_max` or a score chosen by what these data certify | a pilot, then other prompts |
| a second try with another seed or subset, if none passed | one try; new prompts |
| a marginal promise hardly above the smallest epsilon in reach, read as if given | "pac" |
| collecting until a calibration succeeds | fix n beforehand, or m looks, with delta / m each |
| a measure on prompts that calibrated (logged) | other prompts |
| paraphrases, or turns of a dialogue, in separate rows | one row for each; the dialogue as prompt |
| near copies: other white space, noise, SMOTE, augmentation | the originals alone |
| prompts, or `keys`, that are numbers of rows of a sorted table | the texts, or shuffle first |
| new prompts that are distributed otherwise | `shift=`, or a `RiskMonitor` in use |
| a promise read for each prompt, or for each topic | `groups=` fixed beforehand |
| a judge, or references, that are wrong | the promise is about them: audit the judge |
| verdicts changed after a calibration that was saved, or is in use | calibrate again |
| a service whose model changes behind its name | `memory_.clear()`, `fit`; a `RiskMonitor` |
| a generator of yours whose draws depend on the batch, or on earlier ones | `check_keyed` |
| draws of a service that is not keyed, after memory is gone | a `CachedGenerator` with a file |
| a generator that ignores `start`, where it draws for a few prompts | `check_keyed`, uncached |
| outcomes audited on complaint, or where judging is easy | `should_audit` decides |
| outcomes sorted by outcome or topic, in a `RiskMonitor` | pass `requests=`, not sorted calls |
| bare losses sorted by outcome or topic, in a p-value by betting | `keys=`, or a shuffle |
| losses of sets that are not `guaranteed`, in a `RiskMonitor` | leave them out |
| the file of a `RiskMonitor` edited, moved or deleted | leave it to the monitor |
| weights of a shift that were estimated on these prompts | estimate them on others |
| weights of a shift that were estimated, and are said to be known | `estimated=True` |
| samples of a file that were sorted, voted on, or the best of several | all draws, in order |
| samples of a file that stand there twice, or are of several models or seeds | one run of each |
| bare rows, or runs for a `RunGate`, that stand there twice | each once |
| prompts that repeat, in `learn_then_test` and other functions | a sampler, which says so |
| scores of a file that look at later draws, such as ranks | scores of a draw and earlier ones |
| one `key` for two models, or two settings | a key for each |
| a score in a cache whose numbers depend much on the batch | a score of higher precision |
| columns in another order than before, after `calibrate` on the data of a file | the same order |
| bare arrays of other draws, scores or seeds ("provenance unknown") | `collect`, or their files |
| globals and helpers of a score, judge or generator, edited | `memory_.clear()`, then `fit` |
| the code of a score, reloaded while it is in use | `memory_.clear()`, then `fit` |
| an attribute of a class, set after its first use in a process | start anew, or ``fingerprint()`` |
| an object of yours whose attributes, no parameters of it, differ | a method ``fingerprint()`` |
| a list, dict, array or object in a score or generator, edited | `memory_.clear()`, `fit` |
| a variable that a function encloses, bound to another value in use | `memory_.clear()`, `fit` |
| a model trained further by hand, or weights set, in ``generator_`` | `memory_.clear()`, `fit` |
| weights of a loaded model, written through ``.data`` or NumPy | load it anew |
| hooks, methods or attributes of a loaded model's layers, set | `CachedGenerator(..., key=)` |
| a client or model of a package in an attribute of a class, another one | a parameter of it |
| a list or dict of classes or objects in an attribute of a class, another one | a tuple of them |
| another version of an installed package that holds a score, judge or generator | `fit` anew |
| a score or judge that changes as it is called, such as one by a running mean | a fixed one |
| a pickle of an estimator from another version of this package | `save_calibration`, or `fit` |

Whatever the reason, ``predict`` warns once the share of empty sets, or of prompts that take all
draws, is one that chance does not give beside that of calibration (p < 1e-6). A change that leaves
both as they are shows in judged outcomes alone.

## Why it holds

*Each test.* Fix a configuration of thresholds. Given the seed, the draws of a prompt are a fixed
function of it, so the losses of independent prompts are independent, 0 or 1, with mean R, the risk.
If R > epsilon, the chance of at most e errors among n prompts is at most
P(Binom(n, epsilon) <= e). So that is a p-value, :func:`binomial_p_value`, from a whole number of
errors and never from a rounded mean.

*Many configurations.* One part of the data (the optimisation part) chooses which configurations
are tested and in which order: a Pareto frontier of error against cost, from the safest on. The
other part tests them in that order, at level delta each, and stops at the first failure
(:func:`fixed_sequence_test`). A false certificate needs that the first configuration in the order
whose risk is above epsilon be certified: one event, of probability at most delta. So *all*
certified configurations are safe at once, and the cheapest may be chosen among them. *Accept
everything*, sets of all K draws, comes first: it passes whenever any other would.

*Components.* A sentence that occurs in several draws is scored by the maximum over its
occurrences, so a sentence of a set never scores higher than among all K draws. Selecting from all K
with threshold gamma therefore errs wherever selecting from the set does (Proposition 4.4), and
calibration may look at all K. The loss falls as gamma grows, so the thresholds are tested from the
largest down, without a split. A component need not stand in the text: whatever has a label, and a
score that never falls as draws are added, is one, such as a claim in other words. Where up to m
wrong ones are tolerated (``max_wrong=m``), the (m + 1)-th largest score of a wrong one decides in
place of the largest.

*Both at once* hold with probability at least 1 - 2 delta, by the union bound.

## Arrays that you already have

>>> import numpy as np
>>> from sklearn_clm.calibration import CalibrationData, learn_then_test
>>> rng = np.random.default_rng(0)
>>> scores = rng.random((600, 10))  # quality of each draw
>>> labels = rng.random((600, 10)) < 0.7 * scores  # 1 where a draw is admissible
>>> similarity = rng.random((600, 10, 10))  # of draw j to draw l < j, at [:, j, l]
>>> data = CalibrationData.from_arrays(scores, similarity, labels)
>>> result = learn_then_test(data, epsilon=0.3, delta=0.05, set_score="max", random_state=0)
>>> result.lambda_hat is not None, result.n_calibration, bool(result.p_values[0] <= 0.05)
(True, 400, True)

:func:`risk_surface` gives loss, size, draws and excess on any grid, :func:`critical_count` how many
errors there may be. ``sklearn-clm calibrate --help`` does the same from files.

*Draws that end early*, say after a success, are NaN, or counted by `n_draws`. A witness settles its
prompt, and so does a majority that no draw can overtake; what the draws leave open counts as an
error. So nothing is certified that all draws would not certify, whatever ended them (``_holes.py``
holds the proof), and means that a stop on verdicts would bias are left out. K, the budget, is fixed
before the data are seen, as epsilon is.

>>> n_draws = np.where(labels.any(axis=1), labels.argmax(axis=1) + 1, 10)
>>> made = np.arange(10) < n_draws[:, np.newaxis]
>>> cut = CalibrationData.from_arrays(
...     np.where(made, scores, np.nan), similarity, np.where(made, labels, np.nan)
... )
>>> few = learn_then_test(cut, epsilon=0.3, delta=0.05, set_score="max", random_state=0)
>>> few.smallest_epsilon == result.smallest_epsilon, round(cut.n_made / labels.size, 2)
(True, 0.29)

## Groups, shift, other losses

One frontier may be tested once for each group of prompts, on that group's alone. Each claim then
holds with confidence 1 - delta, or all G claims together with tests at level delta / G.

>>> from sklearn_clm.calibration import search_frontier
>>> frontier = search_frontier(data.take(np.arange(200)))
>>> german = np.arange(200, 600, 2)  # other prompts; known before anything is drawn
>>> within = learn_then_test(data.take(german), 0.3, delta=0.05 / 2, frontier=frontier)
>>> within.n_calibration, within.lambda_hat is not None
(200, True)

Where new prompts have density w(x) <= B relative to the calibration prompts, prompt i is kept with
probability w(x_i) / B; those kept are distributed as new ones, and are tested as usual. With
weights that were estimated the guarantee is approximate.

>>> from sklearn_clm.calibration import keep_by_weight
>>> weights = np.where(np.arange(600) < 300, 0.5, 1.5)  # the second half will be more frequent
>>> digests = rng.integers(2**63, size=600)  # of the prompts
>>> kept = keep_by_weight(weights, bound=1.5, keys=digests)
>>> bool(np.mean(kept[:300]) < np.mean(kept[300:]))
True

For losses between 0 and 1, such as a cost, :func:`betting_p_value` takes the place of the binomial
one. Of several risks the largest p-value counts, and no correction is needed.

>>> from sklearn_clm.calibration import betting_p_value
>>> losses = rng.beta(1, 9, size=300)  # mean 0.1
>>> bool(betting_p_value(losses, epsilon=0.15) <= 0.05)
True

## What people would say

A model judges N prompts, and people n of the responses that it admitted, drawn at random. The exact
test of the risk by people's standard (proof: ``_two_phase.py``) needs far fewer of their verdicts
than a test by theirs alone, as long as the model is rarely lenient:

>>> from sklearn_clm.calibration import two_phase_p_value, two_phase_power
>>> bool(two_phase_p_value(21, 300, 0, 60, epsilon=0.15) <= 0.05)
True
>>> round(two_phase_power(0.07, 0.01, 300, 60, epsilon=0.15, delta=0.1), 2)
0.93

## Provenance and files

:class:`CalibrationData` knows what it was collected with (:class:`Provenance`), through ``take``,
``split``, ``truncate``, ``save`` and ``load``; bare arrays know nothing. New scores must come from
the same computation, in any batch or precision: thresholds stand between scores, not on them.
"""

from sklearn_clm.calibration._arrays import Provenance
from sklearn_clm.calibration._binomial import (
    binomial_p_value,
    clopper_pearson,
    critical_count,
    prompts_needed,
    smallest_epsilon,
)
from sklearn_clm.calibration._learn_then_test import LearnThenTestResult, learn_then_test
from sklearn_clm.calibration._rule import Configuration, SamplingRule
from sklearn_clm.calibration._search import pareto_frontier, search_frontier
from sklearn_clm.calibration._two_phase import (
    two_phase_p_value,
    two_phase_power,
    two_phase_smallest_epsilon,
)
from sklearn_clm.calibration.betting import betting_p_value, weighted_betting_p_value
from sklearn_clm.calibration.certify import fixed_sequence_test
from sklearn_clm.calibration.claim import Claim
from sklearn_clm.calibration.components import (
    ComponentCalibrationData,
    ComponentThreshold,
    component_learn_then_test,
)
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.rows import keep_by_weight
from sklearn_clm.calibration.surface import risk_surface

__all__ = [
    "CalibrationData",
    "Claim",
    "ComponentCalibrationData",
    "ComponentThreshold",
    "Configuration",
    "LearnThenTestResult",
    "Provenance",
    "SamplingRule",
    "betting_p_value",
    "binomial_p_value",
    "clopper_pearson",
    "component_learn_then_test",
    "critical_count",
    "fixed_sequence_test",
    "keep_by_weight",
    "learn_then_test",
    "pareto_frontier",
    "prompts_needed",
    "risk_surface",
    "search_frontier",
    "smallest_epsilon",
    "two_phase_p_value",
    "two_phase_power",
    "two_phase_smallest_epsilon",
    "weighted_betting_p_value",
]
