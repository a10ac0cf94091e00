"""Conformal language modeling for scikit-learn.

A language model that is sampled several times often gives an acceptable answer among others that
are not. This package calibrates, on prompts for which you can tell, when to stop sampling and what
to throw away, so that the set that is left holds an acceptable answer as often as you demand
(:class:`ConformalSampler`); and which sentences of those answers can be trusted on their own
(:class:`ComponentSelector`). It implements *Conformal Language Modeling* (Quach et al., ICLR 2024).

The chapters of this guide are the pages of the packages:

| chapter | what it is about |
|---|---|
| this page | the first calibration; choosing epsilon, K and n; sentences; files; questions |
| `sklearn_clm.calibration` | what is guaranteed, why, what is not noticed; arrays, groups, shift |
| `sklearn_clm.generators` | functions (async, LangChain), models, services, tables (CSV); scaling |
| `sklearn_clm.scoring` | quality, similarity, admission, component scores; your own |
| `sklearn_clm.caching` | keeping draws, scores and verdicts; people as judges |
| `sklearn_clm.judging` | a page in the browser on which people judge |
| `sklearn_clm.policies` | stopping earlier, judging less, answer or escalate |
| `sklearn_clm.metrics` | measuring sets and selections; parameter searches; pipelines |
| `sklearn_clm.evaluation` | trials; planning; production (async, latency); a watch; the shell |
| `sklearn_clm.runs` | stopping or handing over runs of an agent |
| `sklearn_clm.inspection` | reports and figures |

## The first calibration

Three things are needed: a generator, prompts from the distribution that will be met, and for each
of them a reference (or several, or a function) that tells an admissible response. Here the
"language model" is a file of samples that were drawn before, ten for each sum:

>>> import numpy as np
>>> from sklearn_clm import ConformalSampler
>>> from sklearn_clm.generators import PrecomputedGenerator
>>> rng = np.random.default_rng(0)
>>> pairs = [(a, b) for a in range(10, 40) for b in range(10, 40)]
>>> prompts = [f"{a} + {b} =" for a, b in rng.permutation(pairs)]
>>> references = [str(sum(map(int, prompt[:-2].split(" + ")))) for prompt in prompts]
>>> def answer(right):  # small last digits are hard
...     wrong = rng.random() < (0.6 if int(right) % 10 < 4 else 0.3)
...     return str(int(right) + rng.integers(1, 9) * wrong)
>>> samples = [[answer(right) for _ in range(10)] for right in references]
>>> generator = PrecomputedGenerator(prompts, samples)
>>> parts = {"quality": "self_consistency", "similarity": "exact_match"}
>>> sampler = ConformalSampler(generator, k_max=10, epsilon=0.1, **parts)
>>> sampler = sampler.fit(prompts[:600], references[:600])

`fit` drew ten answers for each of 600 prompts, scored and judged them, and calibrated. On one third
of the prompts it chose which thresholds to test; on the other two thirds it tested them. `predict`
then draws as long as the stopping rule asks for more:

>>> sets = sampler.predict(prompts[600:])
>>> hits = [reference in answers for reference, answers in zip(references[600:], sets)]
>>> bool(np.mean(hits) >= 0.9), bool(np.mean([one.n_samples for one in sets]) < 8)
(True, True)
>>> bool(np.mean([len(one) for one in sets]) < 2)  # and small sets
True

In at most 5 % of calibrations (`delta`) do the sets of new prompts miss more often than in 10 % of
the cases (`epsilon`); :mod:`sklearn_clm.calibration` says what that does not promise.

## Choosing epsilon, K and the number of prompts

*Epsilon* lies between two numbers, the achievable band: the error of all K draws together, below
which nothing can be certified, and the error of a single draw, above which no sets are needed.

>>> low, high = sampler.achievable_epsilon_
>>> bool(low < 0.1 < high)
True

*K* buys the lower end: take the smallest `k_max` whose error is comfortably below epsilon. A list,
``k_max=[5, 10, 20]``, draws the largest and chooses among them inside the guarantee; a parameter
search over `k_max` on the prompts that then calibrate would void it.

*The number of prompts* decides how far above the lower end epsilon must lie. No calibration can
succeed with fewer than

>>> from sklearn_clm.calibration import prompts_needed
>>> prompts_needed(epsilon=0.1, delta=0.05, optimization_fraction=1 / 3)
43

prompts, and that is for a model without any error. Where 10 % of the prompts have no admissible
draw, calibration parts of 100, 300 and 3,000 prompts certify these levels at best:

>>> from sklearn_clm.evaluation import chance_of_null, smallest_epsilons
>>> smallest_epsilons(30, 300, [100, 300, 3000], delta=0.05).round(3)
array([0.164, 0.133, 0.109])

so a few hundred prompts certify what lies some 0.03 to 0.06 above the floor. Near it, calibration
may fail by bad luck: with an observed 30 errors among 300, another calibration of the same size
certifies nothing at epsilon = 0.15 with probability

>>> round(chance_of_null(30, 300, 0.15, 0.05), 2)
0.19

With a pilot of 50 to 100 prompts, :func:`sklearn_clm.evaluation.plan` (from the shell:
``sklearn-clm plan``) estimates what calibrations of several sizes will do.
`sklearn_clm.inspection` draws figures of it. A null calibration is not silent: `fit` warns and
says what is lacking (the smallest epsilon that would have worked, more prompts), and `predict`
marks its sets as not guaranteed.

Data are collected once and calibrated as often as you like. But the guarantee is spent once: an
epsilon chosen after a look at what these data certify is chosen too well.

>>> data = sampler.calibration_data_
>>> stricter = ConformalSampler(generator, k_max=10, epsilon=0.08, **parts)
>>> stricter.calibrate(data).predict(prompts[600:602])[0].guaranteed
True

## Sentences and claims that can be trusted

A selector after a sampler, in a pipeline, calibrates a threshold on the scores of sentences; the
example of :class:`ComponentSelector` shows it. Both promises hold at once with probability
1 - 2 `delta`. "Trusted" means admissible by the admission that was calibrated with, no more.

What is checked may be claims in place of sentences: a model takes responses apart, draws that say
the same support a claim, and those that are kept are all true with the promised probability.

>>> import json, random
>>> from sklearn_clm import ComponentSelector, ConformalSampler
>>> from sklearn_clm.generators import FunctionGenerator
>>> from sklearn_clm.policies import ThresholdPolicy
>>> from sklearn_clm.scoring import ClaimSplitter, ClaimSupport
>>> def ask(question, seed=0):  # stands for any model, plain or async
...     task, _, text = question.partition("Response: ")
...     if text:  # the question of ClaimSplitter: a claim a line
...         return "- " + text.split("\\n")[0].replace(" and ", "\\n- ")
...     year = random.Random(f"{question} {seed}").choice([1867] * 5 + [1868])
...     return f"{question} was born in {year} and {question} won a prize"
>>> def is_true(name, text):  # or people: sklearn_clm.caching.HumanJudge
...     return "1868" not in text
>>> people = [f"Person {i}" for i in range(150)]
>>> late = ThresholdPolicy(size_weight=1, excess_weight=0)  # stops late: all draws are support
>>> made = {"quality": "self_consistency", "policy": late, "admission": is_true}
>>> drawn = ConformalSampler(FunctionGenerator(ask), k_max=5, epsilon=0.1, **made)
>>> claims = {"splitter": ClaimSplitter(ask), "component_score": ClaimSupport(), "alpha": 0.1}
>>> selector = ComponentSelector(drawn, admission=is_true, **claims).fit(people, people)
>>> print(json.dumps(selector.predict(["Curie"])[0].components))
["Curie was born in 1867", "Curie won a prize"]

All that is known of each, kept or not, is in ``to_dict()["claims"]``, and
``to_frame(left_out=True)`` is a table of it.

## Files

>>> import tempfile
>>> from sklearn_clm.calibration import CalibrationData
>>> with tempfile.TemporaryDirectory() as folder:
...     data.save(f"{folder}/draws.npz")  # arrays, never a pickle
...     sampler.save_calibration(f"{folder}/thresholds.json")  # small and readable
...     same = CalibrationData.load(f"{folder}/draws.npz")
...     copy = ConformalSampler(generator, k_max=10, epsilon=0.1, **parts)
...     copy = copy.load_calibration(f"{folder}/thresholds.json")
>>> same.provenance.differences(data.provenance), copy.lambda_hat_ == sampler.lambda_hat_
((), True)

Both carry what they were collected with (generator and its training, seed, scores, judge, budget).
A sampler of other parts refuses them and says what differs. Code of your own is recognised by
its name and source, under every Python alike, so it may move from a script to a module; code that
will be edited stays the same as ``CachedGenerator(generator, store, key="a name")``, from the first
run on. Bare arrays, which cannot know, are allowed, and the result says "provenance unknown".

## Questions that are often asked

- *Fewer test sets than promised hold a right response.* With m test prompts the share scatters by
  some sqrt(epsilon (1 - epsilon) / m), and a share `delta` of calibrations fails. Beyond that, the
  prompts are of another distribution, or the calibration prompts had a part in training.
- *More sets than promised do.* That is the price of confidence with few prompts, and thresholds
  move in steps. "marginal" (`sklearn_clm.policies`) is nearer, and weaker.
- *Is anything trained? I have a model.* No: `fit` calibrates, on prompts that the model, its
  prompt template and its decoding parameters were not chosen on.
- *A promise for each prompt?* No method gives one without assumptions. For groups of prompts,
  under a shift of the distribution, for several risks at once: `sklearn_clm.policies`.
- *The same prompt several times?* Each counts as a sample of its own. Copies tell nothing new and
  void the promise; `fit` warns where they are many. Of dialogues take whole ones as prompts.
- *An empty set?* No draw passed the thresholds within the budget: the model abstains. Such sets
  count as errors, and are within the promise.
- *Must scores be probabilities?* No, only their order matters. A poor score costs draws.
- *Chat messages, images, retrieved passages?* They are prompts: `sklearn_clm.generators`.
- *No log-probabilities, samples that I have, a server such as vLLM or Ollama, limits of rates?*
  `sklearn_clm.generators`; without log-probabilities, "self_consistency" in `sklearn_clm.scoring`.
- *A language model, or a person, as judge?* `sklearn_clm.scoring`, `sklearn_clm.judging`.
- *Claims instead of whole responses?* :class:`ComponentSelector`: its `splitter` may give parts of
  the text, or claims in other words, such as :class:`sklearn_clm.scoring.ClaimSplitter` asks for.
- *Keep it for years?* `save_calibration` writes JSON (*Files*, above), not a pickle. A generator
  that `fit` has trained is not in it: keep `sampler.generator_`, and load into a sampler with that.

## Progress and logs

``verbose=1`` shows how far each stage is. What a service should know is logged as "sklearn_clm":
null calibrations as warnings; calls of a function that failed and are repeated, and predictions
for prompts that calibrated, as information.

>>> import logging
>>> logging.getLogger("sklearn_clm").setLevel(logging.INFO)
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

# first: nested in our own imports they take longer
import scipy.stats  # noqa: F401
import sklearn.base  # noqa: F401

from sklearn_clm._exceptions import NullCalibrationError, NullCalibrationWarning
from sklearn_clm._version import __version__

if TYPE_CHECKING:
    from sklearn_clm._estimators import ComponentSelector, ConformalSampler
    from sklearn_clm._results import ComponentSet, ComponentSets, PredictionSet, PredictionSets

logging.getLogger("sklearn_clm").addHandler(logging.NullHandler())

__all__ = [
    "ComponentSelector",
    "ComponentSet",
    "ComponentSets",
    "ConformalSampler",
    "NullCalibrationError",
    "NullCalibrationWarning",
    "PredictionSet",
    "PredictionSets",
    "__version__",
]

_HOMES = {
    "ComponentSelector": "_estimators",
    "ConformalSampler": "_estimators",
    "ComponentSet": "_results",
    "ComponentSets": "_results",
    "PredictionSet": "_results",
    "PredictionSets": "_results",
}
_PACKAGES = (
    "caching",
    "calibration",
    "evaluation",
    "generators",
    "inspection",
    "judging",
    "metrics",
    "policies",
    "runs",
    "scoring",
)


def __getattr__(name: str) -> Any:
    # Not at once: whoever imports a package of ours holds its lock and waits for this module. If
    # this module then imported that package in another thread, each would wait for the other. For
    # the same reason our packages import one another whole before they import parts.
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
