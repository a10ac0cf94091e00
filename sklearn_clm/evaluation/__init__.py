"""Evaluation: repeated random splits, planning, production and monitoring.

A single split into calibration and test says little: loss and size vary with it. The paper repeats
it (section 5, Appendix F): one part finds the frontier, one tests it, the rest measures, for
several set scores and all epsilons (:func:`run_trials`), or for scores of components
(:func:`run_component_trials`).

## From the shell

| command | what it does | exit status 1 |
|---|---|---|
| ``sklearn-clm plan PILOT`` | how many prompts to collect | |
| ``calibrate SAMPLES`` | thresholds, as JSON; ``--report page.html`` | nothing is certified |
| ``predict NEW`` | the set of each new prompt, as JSON Lines or CSV | |
| ``evaluate HELD_OUT --calibration FILE`` | how many sets hold | the promise is refuted |

Status 2 is an error or wrong use, 130 an interrupt. A promise is refuted where the 95 % interval of
the risk on held-out prompts lies above its level; those that ``calibrate`` has seen are left out,
and a judge other than that of calibration is refused. ``sklearn-clm calibrate --help`` tells all
options.

``calibrate --policy exit`` calibrates one level that stops when sure and when hopeless, ``--policy
answer --alpha 0.1`` one answer where it is likely to be right: the file is that of the same policy
in Python, ``predict`` says which prompts are `answered` and which are escalated, and ``evaluate``
measures the answers that were given.

So a table of samples becomes answers and escalations, measured on samples that were kept out, by
three commands (columns ``prompt``, ``response`` and ``reference``):

    sklearn-clm calibrate samples.csv --key MODEL --policy answer --alpha 0.25
    sklearn-clm predict new.csv --key MODEL --calibration calibration.json -o answers.csv
    sklearn-clm evaluate held_out.csv --key MODEL --calibration calibration.json

A column of verdicts (``--label``) needs no reference; ``--judge`` says who gave them, and the
promise names them. ``--groups`` makes a promise for each group of prompts, and measures each:

    sklearn-clm calibrate judged.csv --key MODEL --label verdict --judge "support team, November"
    sklearn-clm calibrate samples.csv --key MODEL --groups kind -o groups.json

``--key`` names the model and its settings, and is yours to say: a file cannot tell whose draws it
holds. Thresholds hold for the same key alone, and serve a sampler whose
:class:`sklearn_clm.caching.CachedGenerator` has it.

*Tables*: CSV, TSV, JSON Lines, and Parquet (``pip install "sklearn-clm[parquet]"``), with a draw in
a row, or all draws of a prompt in a list (``--responses``, JSON in CSV); beside it a reference,
several (``--references``, JSON in CSV), or a verdict (``--label``), and
log-probabilities or a quality, where there are some:

    sklearn-clm calibrate samples.csv --key MODEL --prompt question --response text --reference gold

*lm-evaluation-harness*: ``repeats: 10``, ``do_sample: true`` and a temperature in the task,
``lm_eval ... --log_samples --output_path logs``, and then

    sklearn-clm calibrate logs/*/samples_TASK_*.jsonl --key MODEL --reference target

Its metrics are about the first of several responses. Runs of one response each, with other seeds,
are several files, whose metric is the verdict: ``--label exact_match``. Where the task has several
filters, ``--filter`` names one; what it extracts are the draws, if there are as many.

*Inspect*: ``inspect eval task.py --epochs 10`` at a temperature above 0, and then

    sklearn-clm calibrate logs/LOG.eval --key MODEL

Scores (C and I, 1 and 0; other numbers with ``--threshold``) are the verdicts, of several scorers
the one that ``--label`` names; ``--response answer`` takes what the scorer has read in a response.
JSON is read too. Newer versions compress by Zstandard, which needs ``pip install
"sklearn-clm[inspect]"`` (or zipfile-zstd alone) before Python 3.14. Samples in chunks, and runs
that failed or were stopped, are refused.

*Draws end early* where a task has ``early_stopping=InspectStopping()``: a sample is not drawn again
after a success, and its log calibrates as well as that of all epochs, for a fraction of the price
(:class:`InspectStopping`). So does any table in which prompts have draws of different number,
whatever ended them: a success settles its prompt, and what the draws leave open counts as an error.
Of draws that stopped at a success take thresholds: an exit level mostly keeps all draws then, and
votes that stopped there are open, so that answers are certified where few are missing.

The draws of a prompt must be independent draws of one model: no vote, and no best of several. Of
verdicts the judge is marked as unknown, unless ``--judge`` names them. ``--data`` reads what
``CalibrationData.save`` writes.

## Planning

:func:`plan` estimates from a pilot of 50 to 100 prompts what calibrations of several sizes will
do. The number of prompts is decided beforehand: who collects more after each failure until one
calibration succeeds is misled more often than delta says. Of three calibrations of growing data,
each has delta / 3, and is planned with it.
:func:`smallest_epsilons` tells what larger calibration parts would certify, and
:func:`chance_of_null` how likely another calibration of the same size is to certify nothing.

:func:`plan_answers` (``plan PILOT --policy answer``) says of each number of votes what share of the
prompts it answers, and how many prompts it takes to certify that at most alpha of them are wrong.

:func:`plan_audits` compares, from a pilot that a model has judged and people in part, how many
verdicts of people it takes if they audit the model, all at once or until it is decided, and if they
judge alone. It needs no verdict of people at first, and says how many for the pilot would pay.

## What to do with a set

The promise is about the whole set. What a user sees is up to you:

- *Show one.* The member of highest quality, ``max(zip(one.quality, one.responses))``, where a wrong
  answer does little harm; nothing is promised of it alone. To promise something of single answers,
  take :class:`sklearn_clm.policies.AnswerPolicy`.
- *Ask the user.* Two or three members are a question: "did you mean ...?" An admissible one is
  among them as often as was promised.
- *Escalate.* A large set, or one whose draws were used up without a stop, is a hard prompt: give it
  to a dearer model or to a person. ``AnswerPolicy`` says how many of the others are wrong.
- *Compare.* Let a program (tests, a compiler, a solver) choose among the members: it finds an
  admissible one as often as the set holds one.
- *Abstain.* An empty set says that nothing was good enough. With ``guaranteed=False`` nothing was
  certified at all: do not show such a set as if it were.

## In production

A service loads what was calibrated, and answers one prompt at a time, in threads or, with
:meth:`sklearn_clm.ConformalSampler.apredict`, in an event loop (async). ``to_dict()`` is a set as
JSON, and `on_accept` receives each response as soon as it joins a set, so that it can be
streamed:

>>> import asyncio, json, os, random, tempfile
>>> from sklearn_clm import ConformalSampler
>>> from sklearn_clm.generators import FunctionGenerator
>>> def ask(question, seed):  # your model
...     return str(sum(map(int, question.split("+"))) + random.Random(seed).choice([0, 0, 0, 1]))
>>> pairs = [f"{a} + {b}" for a in range(20) for b in range(10)]
>>> answers = [str(sum(map(int, pair.split("+")))) for pair in pairs]
>>> def sampler_of():
...     generator = FunctionGenerator(ask, max_concurrency=16, timeout=60, draw_ahead=0.2)
...     return ConformalSampler(generator, k_max=5, epsilon=0.2, quality="self_consistency")
>>> folder = tempfile.TemporaryDirectory()
>>> path = os.path.join(folder.name, "thresholds.json")
>>> sampler_of().fit(pairs, answers).save_calibration(path)  # offline
>>> sampler = sampler_of().load_calibration(path)  # in the service
>>> streamed = []
>>> async def answer(question):
...     sets = await sampler.apredict(
...         [question], on_accept=lambda i, draw: streamed.append(draw.response)
...     )
...     return sets[0]
>>> one = asyncio.run(answer("21 + 4"))
>>> body = json.loads(json.dumps(one.to_dict()))
>>> body["responses"] == streamed, "25" in streamed, body["guarantee"][:22]
(True, True, 'With confidence 95 % o')
>>> folder.cleanup()

A task that is cancelled begins no further draw, cancels calls of an ``async`` function and keeps
what a plain one still returns, and `max_concurrency` bounds the calls of all requests to one
sampler together. Serve with the function that calibrated: an ``async`` one counts as another than a
plain one, and works for both.

*Popular prompts.* Requests for one prompt at the same time share its draws, and an error in them.
If the one that asked first is cancelled, the others go on with what it began.

*Calls that hang.* Give them a `timeout` in seconds: without, :class:`FunctionGenerator
<sklearn_clm.generators.FunctionGenerator>` waits for ever, and as many calls as `max_concurrency`
that hang stop the service. A call that is given up frees its place for the next one, is repeated
like one that failed, and then is a ``TimeoutError`` that names the prompt. Calibrate with the same
`timeout`, since what is given up is not drawn. An :class:`sklearn_clm.generators.OpenAIGenerator`
has one of 120 seconds, and so have scores and judges that ask a model by such a generator; a score
or a judge that is a function of yours runs as it is, and its client needs a limit of its own. The
time of a whole request is its caller's to limit: ``asyncio.wait_for(sampler.apredict(X), 60)``.

The promise of a loaded calibration is ``sampler.calibration_.claim.sentence()``, and
``CalibrationReport.from_estimator(sampler)`` is its report. ``load_calibration`` and ``calibrate``
may be called while other threads predict: each request has the old calibration or the new one.

*Latency.* A rule looks at one draw before it asks for the next, so a prompt alone waits for its
draws one after the other. `draw_ahead` of a :class:`sklearn_clm.generators.FunctionGenerator` or an
:class:`sklearn_clm.generators.OpenAIGenerator` makes draws in parallel that will probably be
needed: it is the largest chance, by the calibration prompts, that a draw is made in vain. Sets are
the same. Sums as in the first program, 50 ms for a draw, 16 calls at a time, one prompt after the
other (``python tests/benchmarks --only service``):

| policy | `draw_ahead` | time, of the needed draws one after another | draws made, for one needed |
|---|---|---|---|
| thresholds, 5.7 draws needed | 0.0 | 1.05 | 1 |
| | 0.1 | 0.39 | 1.00 |
| | 0.3 | 0.32 | 1.12 |
| | 1.0 | 0.26 | 1.75 |
| `ExitPolicy()`, 3.8 draws needed | 0.0 | 1.07 | 1 |
| | 0.1 | 0.54 | 1.00 |
| | 0.3 | 0.34 | 1.06 |

*MLflow, W&B.* ``sklearn_clm.metrics.set_outcomes(references, sets).means()`` is a flat dict of
numbers for ``mlflow.log_metrics`` or ``wandb.log``; ``sampler.get_params()`` are the parameters.

## A watch on the risk in use

A calibration holds for the distribution that it saw. :class:`RiskMonitor` takes outcomes of sets
that were judged after deployment, and raises an alarm when the risk exceeds epsilon. It may be
looked at after every outcome: the chance of ever raising a false alarm is at most alpha. In a
service it chooses the requests to audit, by request and seed alone, and keeps their outcomes in a
file. Complaints are no sample, and have no part in it:

>>> from sklearn_clm.evaluation import RiskMonitor
>>> monitor = RiskMonitor(0.2, share=0.1)  # or a calibrated estimator; path="audits.sqlite"
>>> requests = [f"request {i}" for i in range(50)]
>>> queue = [request for request in requests if monitor.should_audit(request)]  # for people
>>> monitor = monitor.update([False] * len(queue), queue)  # once they have judged
>>> bool(monitor.alarm_), len(queue)
(False, 6)

After an alarm, calibrate again on new prompts. The absence of one renews no certificate.
"""

import sklearn_clm.scoring  # noqa: F401 - whole, before parts of it
from sklearn_clm.evaluation._answer_plan import AnswerPlan, plan_answers
from sklearn_clm.evaluation._audit_plan import AuditPlan, plan_audits
from sklearn_clm.evaluation._inspect import InspectStopping
from sklearn_clm.evaluation._monitor import RiskMonitor
from sklearn_clm.evaluation._plan import Plan, plan
from sklearn_clm.evaluation._results import TrialResults
from sklearn_clm.evaluation._trials import reference_scores, run_component_trials, run_trials
from sklearn_clm.evaluation.sizes import chance_of_null, smallest_epsilons

__all__ = [
    "AnswerPlan",
    "AuditPlan",
    "InspectStopping",
    "Plan",
    "RiskMonitor",
    "TrialResults",
    "chance_of_null",
    "plan",
    "plan_answers",
    "plan_audits",
    "reference_scores",
    "run_component_trials",
    "run_trials",
    "smallest_epsilons",
]
